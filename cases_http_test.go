package idem

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// tap is a server that keeps what came over each connection, byte for byte.
type tap struct {
	url string

	mu  sync.Mutex
	got []string
}

// newTap answers the n-th request, from 1, with the bytes that answer gives;
// then it closes the connection.
func newTap(tb testing.TB, answer func(n int, request string) string) *tap {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	t := &tap{url: "http://" + listener.Addr().String()}
	var open sync.WaitGroup
	tb.Cleanup(func() {
		listener.Close()
		open.Wait()
	})
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer conn.Close()
				if request, err := readWire(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, answer(t.keep(request), request))
				}
			})
		}
	})
	return t
}

func (t *tap) keep(request string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.got = append(t.got, request)
	return len(t.got)
}

func (t *tap) requests() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.got...)
}

// readWire reads one request as it comes, with the body that its head names.
func readWire(from *bufio.Reader) (string, error) {
	var raw bytes.Buffer
	length, chunked := 0, false
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return "", err
		}
		raw.WriteString(line)
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch strings.ToLower(name) {
		case "content-length":
			if length, err = strconv.Atoi(value); err != nil {
				return "", err
			}
		case "transfer-encoding":
			chunked = true
		case "":
			if chunked {
				for !bytes.HasSuffix(raw.Bytes(), []byte("0\r\n\r\n")) {
					b, err := from.ReadByte()
					if err != nil {
						return "", err
					}
					raw.WriteByte(b)
				}
				return raw.String(), nil
			}
			_, err := io.CopyN(&raw, from, int64(length))
			return raw.String(), err
		}
	}
}

// watchedBody tells how often it was closed.
type watchedBody struct {
	io.Reader
	closer io.Closer
	closed atomic.Int32
}

func (b *watchedBody) Close() error {
	b.closed.Add(1)
	if b.closer != nil {
		return b.closer.Close()
	}
	return nil
}

// earlyExits are the ways in which a call ends without a send.
var earlyExits = map[string]struct {
	prepare func(t *testing.T, r *realRig, req *http.Request) *http.Request
	want    error
	inside  bool // RoundTrip itself refuses; the others are the client's doors
}{
	"journal closed": {inside: true, want: ErrJournal, prepare: func(t *testing.T, r *realRig, req *http.Request) *http.Request {
		require.NoError(t, r.journal.Close())
		return req
	}},
	"no journal": {inside: true, want: ErrJournal, prepare: func(_ *testing.T, r *realRig, req *http.Request) *http.Request {
		r.transport.Journal = nil
		return req
	}},
	"journal locked by another process": {inside: true, want: ErrJournal, prepare: func(t *testing.T, r *realRig, req *http.Request) *http.Request {
		startChild(t, "hold-write-lock", r.path).awaitLine("locked")
		ctx, cancel := context.WithTimeout(req.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return req.WithContext(ctx)
	}},
	"invalid key": {inside: true, want: ErrNotSent, prepare: func(_ *testing.T, _ *realRig, req *http.Request) *http.Request {
		req.Header.Set("Idempotency-Key", "not a key")
		return req
	}},
	"invalid policy": {inside: true, want: ErrNotSent, prepare: func(_ *testing.T, r *realRig, req *http.Request) *http.Request {
		r.transport.Retry.MaxAttempts = -1
		return req
	}},
	"context cancelled": {inside: true, want: context.Canceled, prepare: func(_ *testing.T, _ *realRig, req *http.Request) *http.Request {
		ctx, cancel := context.WithCancel(req.Context())
		cancel()
		return req.WithContext(ctx)
	}},
	"body over the limit": {inside: true, want: ErrNotSent, prepare: func(_ *testing.T, r *realRig, req *http.Request) *http.Request {
		r.transport.MaxRequestBody = 100
		return req
	}},
	"length over the limit": {inside: true, want: ErrNotSent, prepare: func(_ *testing.T, r *realRig, req *http.Request) *http.Request {
		r.transport.MaxRequestBody, req.ContentLength = 100, 600
		return req
	}},
	"no name": {inside: true, want: ErrNoOperation, prepare: func(_ *testing.T, r *realRig, req *http.Request) *http.Request {
		r.transport.RequireOperation = true
		return req.WithContext(WithOperation(req.Context(), ""))
	}},
	"client shut down": {want: ErrClosed, prepare: func(t *testing.T, r *realRig, req *http.Request) *http.Request {
		require.NoError(t, r.client.Shutdown(t.Context()))
		return req
	}},
	"client without a transport": {want: ErrNotSent, prepare: func(_ *testing.T, r *realRig, req *http.Request) *http.Request {
		r.client.Transport = nil
		return req
	}},
}

func TestO10_BodyIsClosedOnEveryEarlyExit(t *testing.T) {
	for name, exit := range earlyExits {
		doors := map[string]func(*realRig, *http.Request) (*http.Response, error){
			"HTTPClient": func(r *realRig, req *http.Request) (*http.Response, error) { return r.client.HTTPClient().Do(req) },
		}
		if exit.inside {
			doors["RoundTrip"] = func(r *realRig, req *http.Request) (*http.Response, error) { return r.transport.RoundTrip(req) }
		}
		if name != "no name" {
			doors["Do"] = func(r *realRig, req *http.Request) (*http.Response, error) { return r.client.Do("order-1", req) }
		}
		for door, call := range doors {
			t.Run(name+", "+door, func(t *testing.T) {
				r := newRealRig(t)
				pr, pw := io.Pipe()
				freed := make(chan struct{})
				go func() { // blocks until the body is read or closed
					defer close(freed)
					_, _ = pw.Write(bytes.Repeat([]byte("x"), 600))
					_ = pw.Close()
				}()
				body := &watchedBody{Reader: pr, closer: pr}
				req := mustRequest(t, WithOperation(t.Context(), "order-1"), r.url+"/charges", "")
				req.Body, req.GetBody, req.ContentLength = body, nil, -1
				resp, err := call(r, exit.prepare(t, r, req))
				returned := time.Now()
				require.ErrorIs(t, err, exit.want)
				require.Nil(t, resp)
				select {
				case <-freed:
				case <-time.After(2 * time.Second):
				}
				assert.Less(t, time.Since(returned), time.Second, "the writer is free")
				assert.Equal(t, int32(1), body.closed.Load(), "closed, once")
				assert.Empty(t, r.arrivals())
			})
		}
	}
}

// What is answered without a send closes the body as well.
func TestO10_BodyIsClosedWhereTheJournalAnswers(t *testing.T) {
	r := newRealRig(t)
	for i, bytes := range []string{orderBody(77), orderBody(77), orderBody(78)} { // sent, recorded, another request
		body := &watchedBody{Reader: strings.NewReader(bytes)}
		req := mustRequest(t, t.Context(), r.url+"/charges", "")
		req.Body, req.GetBody, req.ContentLength = body, nil, -1
		_, err := r.client.Do("order-77", req)
		assert.Equal(t, i == 2, errors.Is(err, ErrMismatch), err)
		assert.Equal(t, int32(1), body.closed.Load())
	}
	assert.Len(t, r.arrivals(), 1)
}

func TestO35_TLSFailuresAreNotRetried(t *testing.T) {
	var connections atomic.Int32
	counted := func(s *httptest.Server, start func()) *httptest.Server {
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // failed handshakes are the point
		start()
		t.Cleanup(s.Close)
		return s
	}
	arrivals := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	secure := httptest.NewUnstartedServer(arrivals)
	counted(secure, secure.StartTLS)
	plain := httptest.NewUnstartedServer(arrivals)
	counted(plain, plain.Start)
	trusted := x509.NewCertPool()
	trusted.AddCert(secure.Certificate())

	for name, test := range map[string]struct {
		url, dial string
		roots     *x509.CertPool
		is        func(error) bool
		uncounted bool
	}{
		"unknown authority":        {url: secure.URL, roots: x509.NewCertPool(), is: as[x509.UnknownAuthorityError]},
		"wrong host name":          {url: "https://other.invalid", dial: secure.Listener.Addr().String(), roots: trusted, is: as[x509.HostnameError]},
		"plain HTTP port":          {url: "https://" + plain.Listener.Addr().String(), is: as[tls.RecordHeaderError]},
		"port of another protocol": {url: "https://ssh.invalid", dial: banner(t), uncounted: true, is: as[tls.RecordHeaderError]},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var dials atomic.Int32
			base := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: test.roots}}
			base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				if test.dial != "" {
					address = test.dial
				}
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
			t.Cleanup(base.CloseIdleConnections)
			r.transport.Base = base
			connections.Store(0)
			_, err := r.client.Do("order-1", mustRequest(t, t.Context(), test.url+"/charges", orderBody(1)))
			require.ErrorIs(t, err, ErrNotSent)
			require.NotErrorIs(t, err, ErrUnknownOutcome)
			assert.True(t, test.is(err), "the original error is found: %v", err)
			assert.Equal(t, int32(1), dials.Load(), "one connection attempt")
			if !test.uncounted {
				assert.Equal(t, int32(1), connections.Load(), "as the server sees it")
			}
			in := r.lookup("order-1")
			assert.Equal(t, StateWithdrawn, in.State)
			assert.False(t, in.Doubt)
			attempts, err := r.journal.Attempts(t.Context(), in)
			require.NoError(t, err)
			require.Len(t, attempts, 1)
			assert.Equal(t, phaseNotSent, attempts[0].Phase)
		})
	}
}

func as[E error](err error) bool {
	var found E
	return errors.As(err, &found)
}

// banner is the address of a server that greets in a protocol of its own.
func banner(tb testing.TB) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	tb.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.9\r\n")
			_, _ = io.Copy(io.Discard, conn) // until the client leaves
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

func TestO46_OneConnectionServesAllTries(t *testing.T) {
	for name, test := range map[string]struct {
		kept    int64 // MaxResponseBody
		callers int
	}{
		"one caller":                    {callers: 1},
		"four callers":                  {callers: 4},
		"answers above MaxResponseBody": {callers: 1, kept: 1 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			tries := map[string]int{}
			var connections atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				mu.Lock()
				tries[req.Header.Get("Idempotency-Key")]++
				n := tries[req.Header.Get("Idempotency-Key")]
				mu.Unlock()
				if n <= 3 {
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write(bytes.Repeat([]byte("x"), 2<<10))
				}
			}))
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			server.Start()
			defer server.Close()
			base := &http.Transport{MaxConnsPerHost: 1}
			defer base.CloseIdleConnections()
			r := newRig(t)
			r.transport.Base = base
			r.transport.MaxResponseBody = test.kept
			r.transport.Retry.MinBackoff = time.Microsecond
			call := func(i int) {
				ctx, cancel := context.WithTimeout(t.Context(), patience) // a deadlock fails, and does not hang
				defer cancel()
				resp, err := r.client.Do("order-"+strconv.Itoa(i), mustRequest(t, ctx, server.URL, orderBody(i)))
				if assert.NoError(t, err) {
					readAndClose(t, resp)
				}
			}
			call(0)
			baseline := runtime.NumGoroutine()
			var calls sync.WaitGroup
			for c := range test.callers {
				calls.Go(func() {
					for i := 1 + c; i < 100; i += test.callers {
						call(i)
					}
				})
			}
			calls.Wait()
			assert.Len(t, tries, 100)
			for _, n := range tries {
				assert.Equal(t, 4, n)
			}
			assert.Equal(t, int32(1), connections.Load(), "one TCP connection in all")
			requireGoroutines(t, baseline)
		})
	}
}

// requireGoroutines waits, within a second, for what is ending.
func requireGoroutines(t *testing.T, baseline int) {
	t.Helper()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= baseline+1 }, // Eventually runs this in one
		time.Second, time.Millisecond, "goroutines are back to the baseline")
}

func TestO52_MessagesWithoutABody(t *testing.T) {
	for _, test := range []struct{ method, answer string }{
		{http.MethodHead, "HTTP/1.1 200 OK\r\nContent-Length: 57178\r\n"},
		{http.MethodGet, "HTTP/1.1 204 No Content\r\n"},
		{http.MethodGet, "HTTP/1.1 304 Not Modified\r\nContent-Length: 57178\r\n"},
		{http.MethodPost, "HTTP/1.1 204 No Content\r\n"},
		{http.MethodPost, "HTTP/1.1 304 Not Modified\r\nContent-Length: 57178\r\n"},
	} {
		t.Run(test.method+" "+test.answer[9:12], func(t *testing.T) {
			tap := newTap(t, func(int, string) string { return test.answer + "Connection: close\r\n\r\n" })
			r := newWireRig(t)
			req, err := http.NewRequestWithContext(WithOperation(t.Context(), "order-1"), test.method, tap.url+"/charges", nil)
			require.NoError(t, err)
			for range 2 { // a POST is answered by the journal the second time, or stays refused
				resp, err := r.transport.RoundTrip(req)
				if test.method == http.MethodPost && test.answer[9:12] == "304" && resp == nil {
					require.ErrorIs(t, err, ErrHeld)
					continue
				}
				require.NoError(t, err, "not taken for cut")
				require.Equal(t, test.answer[9:12], strconv.Itoa(resp.StatusCode))
				require.NotNil(t, resp.Body)
				assert.Empty(t, readAndClose(t, resp))
			}
			want := 2
			if test.method == http.MethodPost {
				want = 1
			}
			assert.Len(t, tap.requests(), want, "no retry")
		})
	}
	for name, body := range map[string]func() (io.ReadCloser, int64){
		"nil":                          func() (io.ReadCloser, int64) { return nil, 0 },
		"NoBody":                       func() (io.ReadCloser, int64) { return http.NoBody, 0 },
		"empty reader":                 func() (io.ReadCloser, int64) { return io.NopCloser(strings.NewReader("")), 0 },
		"empty reader, unknown length": func() (io.ReadCloser, int64) { return io.NopCloser(strings.NewReader("")), -1 },
	} {
		t.Run("POST with "+name, func(t *testing.T) {
			tap := newTap(t, func(n int, _ string) string {
				if n == 1 {
					return "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
				}
				return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
			})
			r := newWireRig(t)
			req := mustRequest(t, t.Context(), tap.url+"/charges", "")
			req.Body, req.ContentLength = body()
			req.GetBody = nil
			resp, err := r.client.Do("order-1", req)
			require.NoError(t, err)
			assert.Empty(t, readAndClose(t, resp))
			requests := tap.requests()
			require.Len(t, requests, 2)
			assert.Equal(t, requests[0], requests[1])
			for _, raw := range requests {
				assert.Contains(t, parseWire(t, raw).headers, "Content-Length: 0")
				assert.NotContains(t, strings.ToLower(raw), "transfer-encoding")
			}
		})
	}
}

// newWireRig is a rig that sends over real connections.
func newWireRig(tb testing.TB, steps ...faultinjection.Step) *rig {
	tb.Helper()
	r := newRig(tb, steps...)
	base := &http.Transport{}
	tb.Cleanup(base.CloseIdleConnections)
	r.transport.Base = base
	r.transport.Retry.MinBackoff = time.Millisecond
	return r
}
