package idem

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// HTTP/2 frame types (RFC 9113 6).
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway = 0, 1, 3, 4, 7
	flagEnd, flagAck, flagHeadersEnd                                = 1, 1, 4
)

// firstConn is a listener whose first connections are answered frame by frame,
// by the script of each; the others are the server's own.
type firstConn struct {
	net.Listener
	mu      sync.Mutex
	scripts []func(c *framed)
	bodies  []string // what came as DATA there

	answered atomic.Int32 // requests, there
}

func (l *firstConn) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		if len(l.scripts) == 0 {
			l.mu.Unlock()
			return conn, nil
		}
		script := l.scripts[0]
		l.scripts = l.scripts[1:]
		l.mu.Unlock()
		go func() {
			defer conn.Close()
			script(&framed{conn: conn, Reader: bufio.NewReader(conn), of: l})
		}()
	}
}

// framed is the server's side of an HTTP/2 connection, without HPACK.
type framed struct {
	conn net.Conn
	*bufio.Reader
	of     *firstConn
	data   bytes.Buffer // of this request
	stream uint32
}

func (c *framed) write(kind, flags byte, stream uint32, payload []byte) {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:]
	head = append(head, kind, flags)
	head = binary.BigEndian.AppendUint32(head, stream)
	_, _ = c.conn.Write(append(head, payload...))
}

// request reads one request whole.
func (c *framed) request() bool {
	_ = c.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if c.stream == 0 {
		preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		if _, err := io.ReadFull(c, preface); err != nil {
			return false
		}
		c.write(frameSettings, 0, 0, nil)
	}
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(c, head); err != nil {
			return false
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return false
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch {
		case kind == frameSettings && flags&flagAck == 0:
			c.write(frameSettings, flagAck, 0, nil)
		case kind == frameHeaders:
			c.stream = stream
		case kind == frameData:
			c.data.Write(payload)
		}
		if (kind == frameHeaders || kind == frameData) && flags&flagEnd != 0 {
			c.of.mu.Lock()
			c.of.bodies = append(c.of.bodies, c.data.String())
			c.of.mu.Unlock()
			c.data.Reset()
			return true
		}
	}
}

// reset refuses the request, and answers the ones that follow.
func (c *framed) reset(code uint32) {
	for c.write(frameReset, 0, c.stream, binary.BigEndian.AppendUint32(nil, code)); ; {
		if !c.request() {
			return
		}
		c.of.answered.Add(1)
		const okay = 0x88 // :status 200 (RFC 7541 A)
		c.write(frameHeaders, flagEnd|flagHeadersEnd, c.stream, []byte{okay})
	}
}

func (c *framed) goAway(last, code uint32) {
	payload := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code)
	c.write(frameGoAway, 0, 0, payload)
}

// newFramed is an HTTP/2 server whose first connections follow the scripts. The
// later ones count the requests and answer 200.
func newFramed(t *testing.T, scripts ...func(*framed)) (server *httptest.Server, first *firstConn, arrivals func() []doubled) {
	t.Helper()
	var mu sync.Mutex
	var got []doubled
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, doubled{r.Method, r.RequestURI, string(body), r.Header.Clone()})
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	// The scripts stand between the sockets and the server, so a second listener
	// is needed: TLS first, frames after it.
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	first = &firstConn{Listener: tls.NewListener(inner, server.TLS), scripts: scripts}
	front := &http.Server{Handler: server.Config.Handler, TLSConfig: server.TLS}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	front.Protocols = protocols
	go func() { _ = front.Serve(first) }()
	t.Cleanup(func() { _ = front.Close() })
	server.URL = "https://" + inner.Addr().String()
	return server, first, func() []doubled {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

// A server refuses the stream, or goes away below it, after it has read the
// whole body; or breaks off. The request arrives whole under the one key, and
// the caller sees nothing of it.
func TestO49_GoAwayAndRefusedStreams(t *testing.T) {
	const noError, protocolError, internalError, refusedStream = 0, 1, 2, 7
	large := strings.Repeat("0123456789abcdef", 640) // 10 KiB
	for name, script := range map[string]struct {
		play   func(*framed)
		unsent bool // the frames prove that it was not processed
		hidden bool // net/http would send what has no body again, and does not say why
	}{
		"GOAWAY below the stream": {func(c *framed) { c.request(); c.goAway(0, noError); _, _ = io.Copy(io.Discard, c) }, true, true},
		"GOAWAY with an error":    {func(c *framed) { c.request(); c.goAway(0, internalError); _, _ = io.Copy(io.Discard, c) }, true, false},
		"REFUSED_STREAM":          {func(c *framed) { c.request(); c.reset(refusedStream) }, true, true},
		"PROTOCOL_ERROR":          {func(c *framed) { c.request(); c.reset(protocolError) }, false, true},
		"GOAWAY above the stream": {func(c *framed) { c.request(); c.goAway(c.stream, noError) }, false, false},
		"the connection breaks":   {func(c *framed) { c.request() }, false, false},
	} {
		for _, body := range []string{"", large} {
			for _, keyed := range []bool{true, false} {
				what := name + ", no body"
				if body != "" {
					what = name + ", 10 KiB"
				}
				if !keyed {
					what += ", no contract"
				}
				t.Run(what, func(t *testing.T) {
					server, first, arrivals := newFramed(t, script.play)
					contracts := contract.First()
					if keyed {
						contracts = contract.Keyed("Idempotency-Key", time.Hour)
					}
					client := overTLS(t, server, contracts)
					req, err := http.NewRequest(http.MethodPost, server.URL+"/charges", strings.NewReader(body))
					require.NoError(t, err)
					resp, err := client.Do("order-1", req)
					in, lookErr := client.Lookup(context.Background(), "order-1")
					require.NoError(t, lookErr)

					first.mu.Lock()
					defer first.mu.Unlock()
					arrived := len(arrivals()) + int(first.answered.Load())
					if !keyed && (!script.unsent || script.hidden && body == "") {
						require.ErrorIs(t, err, ErrUnknownOutcome, "it may have been executed, and no key protects it")
						assert.Zero(t, arrived)
						return
					}
					require.NoError(t, err)
					readAndClose(t, resp)
					assert.Equal(t, 1, arrived)
					assert.Equal(t, 2, in.Attempts, "each one that went out is counted")
					for _, sent := range first.bodies {
						assert.Equal(t, body, sent)
					}
					for _, a := range arrivals() {
						assert.Equal(t, body, a.body)
						if keyed {
							assert.Equal(t, []string{in.Key}, a.header.Values("Idempotency-Key"))
						}
					}
				})
			}
		}
	}
}

// overTLS is a client of server that trusts it, over a new journal.
func overTLS(t *testing.T, server *httptest.Server, contracts contract.Resolver) *Client {
	t.Helper()
	d := &double{Server: server}
	client := d.client(t, contract.Keyed("X", time.Hour))
	client.Transport.Contracts = contracts
	base := server.Client().Transport.(*http.Transport).Clone()
	base.ForceAttemptHTTP2 = true
	t.Cleanup(base.CloseIdleConnections)
	client.Transport.Base = base
	return client
}

// An idle HTTP/1 connection that dies under the request is not tried anew behind
// our back: each arrival is an attempt.
func TestO49_DeadConnectionsOfHTTP1(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, body := range []string{"", "body"} {
			t.Run(method+" "+body, func(t *testing.T) {
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				defer listener.Close()
				var mu sync.Mutex
				var arrived []string
				go serveAndDie(listener, func(key string) {
					mu.Lock()
					defer mu.Unlock()
					arrived = append(arrived, key)
				})
				base := &http.Transport{}
				defer base.CloseIdleConnections()
				d := &double{Server: &httptest.Server{URL: "http://" + listener.Addr().String()}}
				client := d.client(t, contract.Keyed("Idempotency-Key", time.Hour))
				client.Transport.Base = base
				for _, operation := range []string{"order-1", "order-2", "order-3"} {
					req, err := http.NewRequest(method, d.URL+"/charges", strings.NewReader(body))
					require.NoError(t, err)
					resp, err := client.Do(operation, req)
					require.NoError(t, err)
					readAndClose(t, resp)
				}
				attempts := 0
				for _, operation := range []string{"order-1", "order-2", "order-3"} {
					in, err := client.Lookup(t.Context(), operation)
					require.NoError(t, err)
					attempts += in.Attempts
				}
				mu.Lock()
				defer mu.Unlock()
				assert.Len(t, arrived, attempts)
				assert.Greater(t, attempts, 3, "some connection did die")
			})
		}
	}
}

// serveAndDie answers the first request of each connection, and drops the
// connection when it has read the second one.
func serveAndDie(l net.Listener, arrived func(key string)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			in := bufio.NewReader(conn)
			for n := range 2 {
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				arrived(req.Header.Get("Idempotency-Key"))
				if n == 0 {
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}
		}()
	}
}
