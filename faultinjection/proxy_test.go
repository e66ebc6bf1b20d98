package faultinjection_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

func mustProxy(t *testing.T, upstream string) *faultinjection.Proxy {
	proxy, err := faultinjection.StartProxy(upstream)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	return proxy
}

const (
	patience = 10 * time.Second
	silence  = 50 * time.Millisecond // so long nothing comes of what is stalled
)

// side is one end of a connection through a proxy.
type side struct {
	t *testing.T
	*net.TCPConn
}

func (s side) send(text string) {
	_, err := s.Write([]byte(text))
	require.NoError(s.t, err)
}

// read reads until the end, or until nothing more comes, and says which.
func (s side) read(wait time.Duration) (text, end string) {
	require.NoError(s.t, s.SetReadDeadline(time.Now().Add(wait)))
	var all bytes.Buffer
	_, err := io.Copy(&all, s)
	switch {
	case err == nil:
		end = "fin"
	case errors.Is(err, syscall.ECONNRESET):
		end = "rst"
	case errors.Is(err, os.ErrDeadlineExceeded):
		end = "silence"
	default:
		end = err.Error()
	}
	return all.String(), end
}

func (s side) expect(text string) {
	require.NoError(s.t, s.SetReadDeadline(time.Now().Add(patience)))
	got := make([]byte, len(text))
	_, err := io.ReadFull(s, got)
	require.NoError(s.t, err)
	require.Equal(s.t, text, string(got))
}

// upstream listens, and connects through a proxy.
type upstream struct {
	t        *testing.T
	listener *net.TCPListener
}

func newUpstream(t *testing.T) upstream {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return upstream{t, listener}
}

func (u upstream) address() string { return u.listener.Addr().String() }

func (u upstream) dial(p *faultinjection.Proxy) side {
	conn, err := net.DialTimeout("tcp", p.Addr(), patience)
	require.NoError(u.t, err)
	u.t.Cleanup(func() { conn.Close() })
	return side{u.t, conn.(*net.TCPConn)}
}

// refused is a connection that is reset at once: the dial has noticed, or the
// first read does.
func (u upstream) refused(p *faultinjection.Proxy) {
	conn, err := net.DialTimeout("tcp", p.Addr(), patience)
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	require.ErrorIs(u.t, err, syscall.ECONNRESET)
}

func (u upstream) connect(p *faultinjection.Proxy) (client, server side) {
	client = u.dial(p)
	return client, u.accept()
}

func (u upstream) accept() side {
	require.NoError(u.t, u.listener.SetDeadline(time.Now().Add(patience)))
	conn, err := u.listener.AcceptTCP()
	require.NoError(u.t, err)
	u.t.Cleanup(func() { conn.Close() })
	return side{u.t, conn}
}

// Each end comes exactly after so many bytes, on the side that it is told of.
func TestProxyEndsAfterSoManyBytes(t *testing.T) {
	const sent = "0123456789"
	u := newUpstream(t)
	proxy := mustProxy(t, u.address())
	for _, up := range []bool{true, false} {
		for _, end := range []faultinjection.ConnEnd{faultinjection.Reset, faultinjection.Cut, faultinjection.Stall} {
			for _, after := range []int64{-1, 0, 1, 9, 10} {
				t.Run(fmt.Sprintf("up=%v %s %d", up, end, after), func(t *testing.T) {
					u := upstream{t, u.listener}
					flow := faultinjection.Flow{End: end, After: after}
					fault := faultinjection.ConnFault{Down: flow}
					if up {
						fault = faultinjection.ConnFault{Up: flow}
					}
					proxy.Next(fault)
					from, to := u.connect(proxy)
					if !up {
						from, to = to, from
					}
					to.send("back") // the other direction is as it was
					from.expect("back")
					from.send(sent)
					handed, strikes := sent[:max(after, 0)], after < int64(len(sent))
					wait := patience
					if !strikes || end == faultinjection.Stall {
						wait = silence
					}
					text, how := to.read(wait)
					assert.Equal(t, handed, text)
					_, other := from.read(wait)
					ends := map[faultinjection.ConnEnd]string{"reset": "rst", "cut": "fin", "stall": "silence"}
					if !strikes {
						ends[end] = "silence" // nothing happens
					}
					assert.Equal(t, ends[end], how)
					assert.Equal(t, ends[end], other)
					all := proxy.Connections()
					last := all[len(all)-1]
					assert.Equal(t, strikes, last.Struck)
					assert.Equal(t, fault, last.Fault)
					counts := []int64{last.Up, last.Down}
					if !up {
						counts = []int64{last.Down, last.Up}
					}
					assert.Equal(t, []int64{int64(len(handed)), 4}, counts)
				})
			}
		}
	}
}

// After a cut nothing comes through any more, and nobody is reset for what he
// still sends.
func TestProxyCutIsAnEndAndNoReset(t *testing.T) {
	u := newUpstream(t)
	proxy := mustProxy(t, u.address())
	proxy.Next(faultinjection.ConnFault{Up: faultinjection.Flow{End: faultinjection.Cut, After: 3}})
	client, server := u.connect(proxy)
	client.send("abcdef")
	text, how := server.read(patience)
	assert.Equal(t, []string{"abc", "fin"}, []string{text, how})
	for range 3 {
		server.send("too late")
		client.send("too late")
		time.Sleep(5 * time.Millisecond) // a reset would come at once
	}
	text, how = client.read(patience)
	assert.Equal(t, []string{"", "fin"}, []string{text, how})
}

// A stalled direction does not tell the end of the connection; the other one
// does.
func TestProxyStallHidesTheEnd(t *testing.T) {
	u := newUpstream(t)
	proxy := mustProxy(t, u.address())
	proxy.Next(faultinjection.ConnFault{Up: faultinjection.Flow{End: faultinjection.Stall, After: 1}})
	client, server := u.connect(proxy)
	require.NoError(t, client.SetWriteDeadline(time.Now().Add(patience)))
	for range 64 {
		client.send(strings.Repeat("x", 1<<20)) // more than the system keeps: the sender is not held up
	}
	require.NoError(t, client.Close())
	text, how := server.read(silence)
	assert.Equal(t, []string{"x", "silence"}, []string{text, how})
}

func TestProxyWithoutAFaultIsAConnection(t *testing.T) {
	t.Run("bytes", func(t *testing.T) {
		u := newUpstream(t)
		proxy := mustProxy(t, "http://"+u.address())
		proxy.Next(faultinjection.ConnFault{Up: faultinjection.Flow{Latency: time.Millisecond}})
		client, server := u.connect(proxy)
		sent := make([]byte, 8<<20)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(sent) // never fails
		for _, way := range [][2]side{{client, server}, {server, client}} {
			done := make(chan error, 1)
			go func() {
				_, err := way[0].Write(sent)
				done <- errors.Join(err, way[0].CloseWrite()) // half is closed, the other half goes on
			}()
			text, how := way[1].read(patience)
			assert.Equal(t, "fin", how)
			assert.Equal(t, sha256.Sum256(sent), sha256.Sum256([]byte(text)))
			require.NoError(t, <-done)
		}
		c := proxy.Connections()[0]
		assert.Equal(t, []int64{8 << 20, 8 << 20}, []int64{c.Up, c.Down})
		assert.False(t, c.Struck)
	})
	t.Run("reset", func(t *testing.T) { // is handed on, whichever side it comes from
		u := newUpstream(t)
		proxy := mustProxy(t, u.address())
		for i := range 2 {
			client, server := u.connect(proxy)
			ends := []side{client, server}
			server.send("x")
			client.expect("x")
			require.NoError(t, ends[i].SetLinger(0))
			require.NoError(t, ends[i].Close())
			_, how := ends[1-i].read(patience)
			assert.Equal(t, "rst", how)
		}
	})
	t.Run("nobody upstream", func(t *testing.T) {
		u := newUpstream(t)
		proxy := mustProxy(t, u.address())
		require.NoError(t, u.listener.Close())
		u.refused(proxy)
	})
}

func TestProxyRefuses(t *testing.T) {
	u := newUpstream(t)
	proxy := mustProxy(t, u.address())
	proxy.Next(faultinjection.ConnFault{Refuse: true})
	u.refused(proxy)
	assert.True(t, proxy.Connections()[0].Struck)

	client, server := u.connect(proxy)
	require.NoError(t, proxy.Refuse())
	require.NoError(t, proxy.Refuse(), "twice is fine")
	_, err := net.DialTimeout("tcp", proxy.Addr(), patience)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	client.send("still there")
	server.expect("still there")
	require.NoError(t, proxy.Heal())
	require.NoError(t, proxy.Heal(), "twice is fine")
	client, server = u.connect(proxy)
	client.send("again")
	server.expect("again")
	assert.Len(t, proxy.Connections(), 3)

	require.NoError(t, proxy.Refuse())
	taken, err := net.Listen("tcp", proxy.Addr())
	require.NoError(t, err)
	defer taken.Close()
	require.ErrorContains(t, proxy.Heal(), "faultinjection: listen")
}

func TestProxyIsSlow(t *testing.T) {
	const late = 60 * time.Millisecond
	for name, test := range map[string]struct {
		fault    faultinjection.ConnFault
		up, down time.Duration // at least
	}{
		"latency up":   {faultinjection.ConnFault{Up: faultinjection.Flow{Latency: late}}, late, 0},
		"latency down": {faultinjection.ConnFault{Down: faultinjection.Flow{Latency: late}}, 0, late},
		"rate":         {faultinjection.ConnFault{Up: faultinjection.Flow{BytesPerSecond: 10_000}, Down: faultinjection.Flow{BytesPerSecond: 20_000}}, 100 * time.Millisecond, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t)
			proxy := mustProxy(t, u.address())
			proxy.Next(test.fault)
			client, server := u.connect(proxy)
			text := strings.Repeat("x", 1000)
			start := time.Now()
			client.send(text)
			server.expect(text)
			assert.GreaterOrEqual(t, time.Since(start), test.up)
			start = time.Now()
			server.send(text)
			client.expect(text)
			assert.GreaterOrEqual(t, time.Since(start), test.down)
		})
	}
	t.Run("latency does not add up", func(t *testing.T) { // many pieces are on their way at once
		u := newUpstream(t)
		proxy := mustProxy(t, u.address())
		proxy.Next(faultinjection.ConnFault{Up: faultinjection.Flow{Latency: 200 * time.Millisecond}})
		client, server := u.connect(proxy)
		start := time.Now()
		for range 20 {
			client.send("x")
			time.Sleep(time.Millisecond) // pieces of their own
		}
		server.expect(strings.Repeat("x", 20))
		assert.Less(t, time.Since(start), 2*time.Second)
	})
}

// A partition holds everything back, ends of connections too, and nothing of it
// is lost.
func TestProxyPartition(t *testing.T) {
	u := newUpstream(t)
	proxy := mustProxy(t, u.address())
	client, server := u.connect(proxy)
	client.send("before")
	server.expect("before")
	leaving, left := u.connect(proxy)
	proxy.Partition()
	proxy.Partition()
	client.send("up")
	server.send("down")
	require.NoError(t, leaving.SetLinger(0))
	require.NoError(t, leaving.Close())
	late := u.dial(proxy)
	late.send("late")
	for _, s := range []side{client, server, left, late} {
		text, how := s.read(silence)
		assert.Equal(t, []string{"", "silence"}, []string{text, how})
	}
	require.NoError(t, u.listener.SetDeadline(time.Now().Add(silence)))
	_, err := u.listener.AcceptTCP()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody is connected")
	require.NoError(t, proxy.Heal())
	server.expect("up")
	client.expect("down")
	u.accept().expect("late")
	_, how := left.read(patience)
	assert.Equal(t, "rst", how)
}

func TestProxyIsForThisMachineOnly(t *testing.T) {
	for _, address := range []string{
		"192.0.2.1:80", "0.0.0.0:80", "[::]:80", ":80", "example.com:80", "http://example.com:80", "http://127.0.0.1.example.com:80",
		"[::ffff:192.0.2.1]:80", "localhost.example.com:80",
	} {
		_, err := faultinjection.StartProxy(address)
		require.ErrorContains(t, err, "not a loopback address", address)
		_, err = faultinjection.StartProxyAt(address, "127.0.0.1:80")
		require.ErrorContains(t, err, "not a loopback address", address)
	}
	for _, address := range []string{"", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"} {
		_, err := faultinjection.StartProxy(address)
		require.ErrorContains(t, err, "faultinjection: proxy to ", address)
	}
	taken := newUpstream(t)
	_, err := faultinjection.StartProxyAt(taken.address(), "127.0.0.1:80")
	require.ErrorContains(t, err, "faultinjection: listen")
	proxy, err := faultinjection.StartProxyAt("localhost:0", "localhost:80")
	require.NoError(t, err)
	require.NoError(t, proxy.Close())
}

func TestConnFaultTexts(t *testing.T) {
	second := faultinjection.Flow{Latency: time.Second, BytesPerSecond: 5}
	for want, f := range map[string]faultinjection.ConnFault{
		"pass":                      {},
		"refuse":                    {Refuse: true},
		"up 1s 5/s":                 {Up: second},
		"up reset 10, down stall 0": {Up: faultinjection.Flow{End: faultinjection.Reset, After: 10}, Down: faultinjection.Flow{End: faultinjection.Stall}},
		"down cut 1 1ms":            {Down: faultinjection.Flow{End: faultinjection.Cut, After: 1, Latency: time.Millisecond}},
	} {
		assert.Equal(t, want, f.String())
	}
}

// Close ends whatever state a connection is in, and leaves no goroutine.
func TestProxyCloseEndsEverything(t *testing.T) {
	u := newUpstream(t)
	before := runtime.NumGoroutine()
	proxy := mustProxy(t, u.address())
	var all []side
	for _, f := range []faultinjection.ConnFault{
		{},
		{Up: faultinjection.Flow{End: faultinjection.Stall}},
		{Up: faultinjection.Flow{End: faultinjection.Cut}},
		{Up: faultinjection.Flow{Latency: time.Hour}},
		{Up: faultinjection.Flow{BytesPerSecond: 1}},
		{Down: faultinjection.Flow{End: faultinjection.Stall}},
	} {
		proxy.Next(f)
		client, server := u.connect(proxy)
		client.send("a lot")
		all = append(all, client, server)
	}
	full, unread := u.connect(proxy) // nobody reads what it sends
	require.NoError(t, full.SetWriteDeadline(time.Now().Add(silence)))
	_, err := full.Write(make([]byte, 64<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	proxy.Partition()
	all = append(all, full, unread, u.dial(proxy))
	start := time.Now()
	require.NoError(t, proxy.Close())
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, running := range []string{"faultinjection.(*Proxy)", "faultinjection.(*proxied)"} {
		assert.NotContains(t, string(stacks), running)
	}
	require.NoError(t, proxy.Close(), "twice is fine")
	assert.Less(t, time.Since(start), 2*time.Second)
	for _, s := range all {
		_, how := s.read(patience)
		assert.NotEqual(t, "silence", how)
	}
	_, err = net.DialTimeout("tcp", proxy.Addr(), patience)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, proxy.Heal(), "does nothing")
	_, err = net.DialTimeout("tcp", proxy.Addr(), patience)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
}
