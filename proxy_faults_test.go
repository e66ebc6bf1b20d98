package idem_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

const patience, stallTimeout = 5 * time.Second, 300 * time.Millisecond // of an attempt on a machine under load; of one that nothing else ends

var (
	wires    = []string{"plain", "chunked", "h2"}
	connEnds = []faultinjection.ConnEnd{faultinjection.Reset, faultinjection.Cut, faultinjection.Stall}
)

// proxied is a client and a server on one wire (plain, chunked or h2), with a
// true journal and a true ledger. Each case puts a proxy of its own in between.
type proxied struct {
	wire    string
	ledger  *faultinjection.Ledger
	server  *httptest.Server
	hasty   life         // makes the first calls
	patient life         // goes on with them, as another process would
	number  atomic.Int64 // of operations
	tap     *tap         // set to note the bytes of the next connection
}

// life is a client with its own handle of the journal and its own connections.
type life struct {
	journal *idem.SQLiteJournal
	client  *idem.Client
}

func newProxied(t *testing.T, wire string, hasty idem.RetryPolicy) *proxied {
	ledger, err := faultinjection.OpenLedger(filepath.Join(t.TempDir(), "ledger.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ledger.Close()) })
	api := contract.Keyed("Idempotency-Key", 24*time.Hour)
	p := &proxied{wire: wire, ledger: ledger}
	var handler http.Handler = faultinjection.NewServer(api, ledger)
	if inner := handler; wire == "chunked" {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(chunking{w}, r) })
	}
	p.server = httptest.NewUnstartedServer(handler)
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0) // broken connections are the point
	if p.server.EnableHTTP2 = wire == "h2"; wire == "h2" {
		p.server.StartTLS()
	} else {
		p.server.Start()
	}
	t.Cleanup(p.server.Close)
	path := filepath.Join(t.TempDir(), "journal.db")
	live := func(retry idem.RetryPolicy, http2 http.HTTP2Config) life {
		journal, err := idem.Open(path, nil)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, journal.Close()) })
		base := p.server.Client().Transport.(*http.Transport).Clone()
		base.DialContext, base.HTTP2 = p.dial, &http2
		t.Cleanup(base.CloseIdleConnections)
		retry.MinBackoff = cmp.Or(retry.MinBackoff, time.Millisecond)
		return life{journal, idem.NewClient(&idem.Transport{Journal: journal, Base: base, Contracts: api, Retry: retry})}
	}
	p.hasty = live(hasty, http.HTTP2Config{})
	p.patient = live(idem.RetryPolicy{MaxAttempts: 1, AttemptTimeout: patience}, http.HTTP2Config{
		SendPingTimeout: time.Second, PingTimeout: time.Second, // else net/http goes on with a connection that is silent
	})
	return p
}

func (p *proxied) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil && p.tap != nil {
		p.tap.Conn, conn = conn, p.tap
	}
	return conn, err
}

// chunking sends a body in two chunks, without its length.
type chunking struct{ http.ResponseWriter }

func (w chunking) WriteHeader(code int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(code)
}

func (w chunking) Write(p []byte) (int, error) {
	_, err := w.ResponseWriter.Write(p[:len(p)/2])
	flushed := http.NewResponseController(w.ResponseWriter).Flush()
	_, last := w.ResponseWriter.Write(p[len(p)/2:])
	return len(p), errors.Join(err, flushed, last)
}

// tap is a connection whose bytes are noted.
type tap struct {
	net.Conn
	mu       sync.Mutex
	up, down bytes.Buffer
}

func (c *tap) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.note(&c.up, p[:n])
	return n, err
}

func (c *tap) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.note(&c.down, p[:n])
	return n, err
}

func (c *tap) note(to *bytes.Buffer, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to.Write(p)
}

func (c *tap) seen() (up, down []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.up.Bytes()), bytes.Clone(c.down.Bytes())
}

// proxyCase is one operation and what its connections suffer.
type proxyCase struct {
	*proxied
	life
	t          *testing.T
	proxy      *faultinjection.Proxy
	name, body string
}

func (p *proxied) begin(t *testing.T, faults ...faultinjection.ConnFault) *proxyCase {
	proxy, err := faultinjection.StartProxy(p.server.URL)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	proxy.Next(faults...)
	c := &proxyCase{proxied: p, life: p.hasty, t: t, proxy: proxy}
	c.rename()
	return c
}

// rename makes it another operation: all are of one length.
func (c *proxyCase) rename() {
	c.name = fmt.Sprintf("order-%06d", c.number.Add(1))
	c.body = fmt.Sprintf(`{"order":%q,"note":%q}`, c.name, strings.Repeat("x", 4<<10))
}

// do calls the operation and returns its whole answer.
func (c *proxyCase) do(ctx context.Context) (string, error) {
	scheme, _, _ := strings.Cut(c.server.URL, ":")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+"://"+c.proxy.Addr()+"/charges", strings.NewReader(c.body))
	require.NoError(c.t, err)
	resp, err := c.client.Do(c.name, req)
	if err != nil {
		assert.NotErrorIs(c.t, err, context.Canceled, "nobody has cancelled")
		return "", err
	}
	defer resp.Body.Close()
	assert.Equal(c.t, http.StatusCreated, resp.StatusCode)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return string(answer), nil
}

// check is what holds at any moment between two calls, and returns the intent
// and what arrived of it.
func (c *proxyCase) check() (idem.Intent, []faultinjection.Arrival) {
	in, err := c.client.Lookup(c.t.Context(), c.name)
	require.NoError(c.t, err)
	attempts, err := c.journal.Attempts(c.t.Context(), in)
	require.NoError(c.t, err)
	assert.Len(c.t, attempts, in.Attempts)
	all, err := c.ledger.Arrivals()
	require.NoError(c.t, err)
	var arrivals []faultinjection.Arrival
	for _, a := range all {
		if a.Operation == c.name {
			arrivals = append(arrivals, a)
			assert.Equal(c.t, []string{in.Key}, a.Keys, "the key of the journal")
			assert.Equal(c.t, c.body, string(a.Body), "the bytes of the call")
			assert.Equal(c.t, "POST /charges", a.Method+" "+a.URI)
		}
	}
	mayArrive, final := 0, 0
	for _, a := range attempts {
		if a.Phase != "not_sent" {
			mayArrive++
		}
		if a.Decision == "succeeded" || a.Decision == "replayed" {
			final++
		}
	}
	assert.LessOrEqual(c.t, len(arrivals), mayArrive, "each arrival is an attempt that may have been sent")
	effects, err := c.ledger.EffectsOf(c.name)
	require.NoError(c.t, err)
	assert.LessOrEqual(c.t, effects, 1)
	switch {
	case !in.State.Final():
		assert.Nil(c.t, in.Outcome)
		assert.Zero(c.t, final)
	case assert.Equal(c.t, idem.StateSucceeded, in.State):
		assert.Equal(c.t, 1, effects)
		assert.Equal(c.t, 1, final)
		assert.True(c.t, in.Outcome.Complete)
	}
	return in, arrivals
}

// whole checks an answer, and that it is what the journal keeps and gives again.
// late says that an attempt may have arrived after a later one.
func (c *proxyCase) whole(answer string, late bool) {
	var charge struct{ Request json.RawMessage }
	require.NoError(c.t, json.Unmarshal([]byte(answer), &charge), "the whole body")
	assert.Equal(c.t, c.body, string(charge.Request))
	in, arrivals := c.check()
	require.Equal(c.t, idem.StateSucceeded, in.State)
	assert.Equal(c.t, answer, string(in.Outcome.Body))
	again, err := c.do(c.t.Context())
	require.NoError(c.t, err)
	assert.Equal(c.t, answer, again)
	later, _ := c.check()
	assert.Equal(c.t, in.Attempts, later.Attempts, "from the journal")
	if !late {
		assert.Equal(c.t, len(arrivals) > 1, in.Outcome.Replayed, "the first arrival took effect")
	}
}

// offsets are the places of one direction at which a connection is broken.
type offsets struct {
	at    [6]int64 // 0, 1, in the header, at its end, in the body, at the last byte
	total int64
}

// second are the places in a second exchange on the same connection.
func (o offsets) second() offsets {
	for i := range o.at {
		o.at[i] += o.total
	}
	return o
}

// measure sends one request without a fault and looks at its bytes. Where they
// are encrypted, the handshake counts as the header, and 19/20 of the rest are as
// near to the last byte as can be.
func (p *proxied) measure(t *testing.T) (up, down offsets) {
	c := p.begin(t)
	p.tap = &tap{}
	var header [2]int
	answer, err := c.do(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteHeaders: func() {
		up, down := p.tap.seen()
		header = [2]int{len(up), len(down)}
	}}))
	require.NoError(t, err)
	c.whole(answer, false)
	sent, got := p.tap.seen()
	if p.wire != "h2" {
		end := []byte("\r\n\r\n")
		header = [2]int{bytes.Index(sent, end) + len(end), bytes.Index(got, end) + len(end)}
		require.Equal(t, p.wire == "chunked", bytes.HasSuffix(got, []byte("\r\n0\r\n\r\n")))
	}
	p.tap = nil
	places := func(header, total int) offsets {
		require.Greater(t, header, 50)
		require.Greater(t, total, header+4<<10)
		last := total - 1
		if p.wire == "h2" {
			last = header + (total-header)*19/20
		}
		o := offsets{total: int64(total)}
		for i, at := range []int{0, 1, header / 2, header, header + (total-header)/2, last} {
			o.at[i] = int64(at)
		}
		return o
	}
	return places(header[0], len(sent)), places(header[1], len(got))
}

// Group 13: a connection breaks at every telling byte, in either direction. What
// was not answered whole is not final, nothing takes effect twice, and all sends
// are the same.
func TestProxyFaults(t *testing.T) {
	start := time.Now()
	var cases atomic.Int64
	var all sync.WaitGroup
	each := func(name, wire string, end faultinjection.ConnEnd, up, down offsets, used bool) {
		all.Go(func() { // they wait most of the time
			t.Run(name+" "+string(end), func(t *testing.T) {
				hasty := idem.RetryPolicy{MaxAttempts: 1, AttemptTimeout: patience}
				if end == faultinjection.Stall {
					hasty.AttemptTimeout = stallTimeout
				}
				p := newProxied(t, wire, hasty)
				for i := range up.at {
					p.breakAt(t, i, faultinjection.ConnFault{Up: faultinjection.Flow{End: end, After: up.at[i]}}, used)
					p.breakAt(t, i, faultinjection.ConnFault{Down: faultinjection.Flow{End: end, After: down.at[i]}}, used)
					cases.Add(2)
				}
			})
		})
	}
	for _, wire := range wires {
		up, down := newProxied(t, wire, idem.RetryPolicy{}).measure(t)
		for _, end := range connEnds {
			each(wire, wire, end, up, down, false)
			if wire == "plain" && end != faultinjection.Stall { // net/http would send again by itself
				each("used connection", wire, end, up.second(), down.second(), true)
			}
		}
	}
	all.Wait()
	t.Logf("%d cases in %v", cases.Load(), time.Since(start))
	assert.EqualValues(t, (3*3+2)*6*2, cases.Load())
}

// struck is an operation whose first connection suffered the fault, and the
// error of its call. Where only a short timeout ends an attempt, a machine under
// load may be too slow to get there.
func (p *proxied) struck(t *testing.T, fault faultinjection.ConnFault, used bool) (*proxyCase, error) {
	for range 10 {
		c := p.begin(t, fault)
		if used { // by another operation, which goes well
			answer, err := c.do(t.Context())
			require.NoError(t, err)
			c.whole(answer, false)
			c.rename()
		}
		_, err := c.do(t.Context())
		require.Error(t, err)
		if all := c.proxy.Connections(); len(all) == 1 && all[0].Struck {
			return c, err
		}
		c.check()
	}
	require.Fail(t, "the fault never came")
	return nil, nil
}

// breakAt breaks the first connection of an operation at the i-th place.
func (p *proxied) breakAt(t *testing.T, i int, fault faultinjection.ConnFault, used bool) {
	t.Run(fault.String(), func(t *testing.T) {
		c, err := p.struck(t, fault, used)
		in, arrivals := c.check()
		assert.False(t, in.State.Final())
		assert.Equal(t, 1, in.Attempts)
		assert.False(t, fault.Up.End+fault.Down.End != faultinjection.Stall && strings.Contains(err.Error(), "AttemptTimeout"), "it ended by itself")
		if errors.Is(err, idem.ErrNotSent) {
			assert.True(t, p.wire == "h2" && i < 4, "in the handshake")
			assert.Equal(t, idem.StateWithdrawn, in.State)
			assert.Empty(t, arrivals)
		} else {
			require.ErrorIs(t, err, idem.ErrUnknownOutcome)
			assert.Equal(t, idem.StateUnknown, in.State)
			assert.True(t, p.wire != "h2" || i > 2)
		}
		switch {
		case fault.Up.End != "", p.wire == "h2" && i < 3:
			assert.Empty(t, arrivals, "it never was whole")
		case p.wire != "h2" || i > 3:
			assert.Len(t, arrivals, 1, "the answer had begun")
		}
		c.settle(false)
	})
}

// settle goes on with the operation until it is answered.
func (c *proxyCase) settle(late bool) {
	c.life = c.patient
	for range 10 {
		if answer, err := c.do(c.t.Context()); err == nil {
			c.whole(answer, late)
			return
		}
		c.check()
	}
	in, _ := c.check()
	attempts, _ := c.journal.Attempts(c.t.Context(), in) // to be shown only
	require.Fail(c.t, "never settled", "%+v\n%+v", attempts, c.proxy.Connections())
}

// The soak of group 13: connections break at random bytes, one, two or three in a
// row, with latency and partitions. IDEM_PROXY_CASES says how many operations.
func TestProxyFaultsAtRandom(t *testing.T) {
	t.Parallel()
	const batch = 150                // with one journal
	slots := make(chan struct{}, 12) // most wait
	seed, cases := uint64(time.Now().UnixNano()), 60
	for name, into := range map[string]any{"IDEM_PROXY_SEED": &seed, "IDEM_PROXY_CASES": &cases} {
		if text := os.Getenv(name); text != "" {
			_, err := fmt.Sscan(text, into)
			require.NoError(t, err, name)
		}
	}
	t.Logf("again: IDEM_PROXY_SEED=%d IDEM_PROXY_CASES=%d go test -run TestProxyFaultsAtRandom .", seed, cases)
	var lengths [3][2]int64
	for i, wire := range wires {
		up, down := newProxied(t, wire, idem.RetryPolicy{}).measure(t)
		lengths[i] = [2]int64{up.total, down.total}
	}
	var connections, struck, done atomic.Int64
	for from := 0; from < cases; from += batch {
		t.Run(fmt.Sprintf("from %d", from), func(t *testing.T) {
			var rigs [3]*proxied
			for i, wire := range wires {
				rigs[i] = newProxied(t, wire, idem.RetryPolicy{MaxAttempts: 2, AttemptTimeout: stallTimeout})
			}
			var all sync.WaitGroup
			for i := from; i < min(from+batch, cases); i++ {
				slots <- struct{}{}
				all.Go(func() {
					defer func() { <-slots }()
					t.Run(fmt.Sprint("case ", i), func(t *testing.T) {
						r := rand.New(rand.NewPCG(seed, uint64(i)))
						for _, c := range rigs[i%3].suffer(t, r, lengths[i%3]) {
							connections.Add(1)
							if c.Struck {
								struck.Add(1)
							}
						}
						done.Add(1)
					})
				})
			}
			all.Wait()
		})
	}
	t.Logf("%d operations, %d connections, %d struck by a fault", done.Load(), connections.Load(), struck.Load())
	assert.EqualValues(t, cases, done.Load())
	assert.GreaterOrEqual(t, struck.Load(), int64(cases/2))
}

// suffer brings one operation to its end over connections that break at random.
func (p *proxied) suffer(t *testing.T, r *rand.Rand, lengths [2]int64) []faultinjection.Connection {
	var faults []faultinjection.ConnFault
	for range 1 + r.IntN(3) {
		faults = append(faults, randomConn(r, lengths))
	}
	c := p.begin(t, faults...)
	t.Logf("%s: %q", p.wire, faults)
	if r.IntN(5) == 0 {
		at := time.Duration(r.IntN(20)) * time.Millisecond
		for _, timer := range []*time.Timer{
			time.AfterFunc(at, c.proxy.Partition),
			time.AfterFunc(at+stallTimeout*3/2, func() { assert.NoError(t, c.proxy.Heal()) }),
		} {
			defer timer.Stop()
		}
	}
	for range faults {
		if answer, err := c.do(t.Context()); err == nil {
			c.whole(answer, true)
			return c.proxy.Connections()
		}
		c.check()
	}
	c.settle(true)
	return c.proxy.Connections()
}

func randomConn(r *rand.Rand, lengths [2]int64) (f faultinjection.ConnFault) {
	flow := func(length int64) faultinjection.Flow {
		after, latency := r.Int64N(length+length/20), time.Duration(r.IntN(5))*time.Millisecond
		return faultinjection.Flow{End: connEnds[r.IntN(3)], After: after, Latency: latency}
	}
	if r.IntN(10) == 0 {
		return faultinjection.ConnFault{Refuse: true}
	}
	ways := 1 + r.IntN(3)
	if ways&1 != 0 {
		f.Up = flow(lengths[0])
	}
	if ways&2 != 0 {
		f.Down = flow(lengths[1])
	}
	return f
}
