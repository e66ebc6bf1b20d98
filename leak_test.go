package idem

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// badEnd is a way in which a call ends badly, or is given up.
type badEnd struct {
	name    string
	answer  func(http.ResponseWriter, *http.Request) // nil: nothing arrives
	request func(*http.Request)                      // nil: as it is
	end     func(*http.Response, context.CancelFunc) // nil: reads it out
	leaves  bool                                     // the caller leaves: in end, or when it has arrived
}

var badEnds = []badEnd{
	{name: "fails", answer: answerOf(http.StatusServiceUnavailable, 2<<10)},
	{name: "no answer", answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{name: "cut", answer: func(w http.ResponseWriter, r *http.Request) { inPieces(true, "only this")(nil, w, r) }},
	{name: "refused and unread", answer: answerOf(http.StatusBadRequest, 8<<10), end: closes},
	{name: "long and unread", answer: answerOf(http.StatusOK, 64<<10), end: closes},
	{name: "long error, unread", answer: answerOf(http.StatusConflict, 64<<10), end: closes},
	{name: "stream", answer: streamOf(inPieces(false, "data: 0\n\n", "data: 1\n\n"))},
	{name: "broken stream", answer: streamOf(inPieces(true, "data: 0\n\n"))},
	{name: "stream closed early", answer: streamOf(beginning("text/event-stream", "data: 0\n\n")), end: closes},
	{name: "stream cancelled", answer: streamOf(beginning("text/event-stream", "data: 0\n\n")), end: cancels, leaves: true},
	{name: "left while waiting", answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, leaves: true},
	{name: "left before", request: leftBefore},
	{name: "port closed", request: func(r *http.Request) { r.URL.Host = closedPort }},
	{name: "body too large", request: once(string(make([]byte, 32<<10)), -1)},
}

func answerOf(code, size int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write(make([]byte, size))
	}
}

func streamOf(events reply) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		with(events, "Content-Type", "text/event-stream")(nil, w, r)
	}
}

func closes(resp *http.Response, _ context.CancelFunc) { resp.Body.Close() }

// cancels leaves in the middle of the body.
func cancels(resp *http.Response, cancel context.CancelFunc) {
	_, _ = io.ReadFull(resp.Body, make([]byte, 4))
	cancel()
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// ill is a client and a server between which everything goes wrong.
type ill struct {
	*rig
	url     string
	open    atomic.Int64 // connections
	callers sync.Map     // X-Call -> context.CancelFunc
	calls   atomic.Int64
	ends    [2]atomic.Int64 // with an answer, with an error
}

func newIll(t *testing.T, proto string) *ill {
	l := &ill{rig: newRig(t)}
	server := listen(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		kind, _ := strconv.Atoi(r.Header.Get("X-Kind"))
		if badEnds[kind].leaves && badEnds[kind].end == nil {
			if leave, ok := l.callers.Load(r.Header.Get("X-Call")); ok {
				leave.(context.CancelFunc)()
			}
		}
		badEnds[kind].answer(w, r)
	}))
	base := server.Client().Transport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = illCallers
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		l.open.Add(1)
		return &countedConn{Conn: conn, open: &l.open}, nil
	}
	l.url = server.URL
	l.transport.Base = base
	l.transport.MaxRequestBody, l.transport.MaxResponseBody = 16<<10, 16<<10
	l.transport.Retry = RetryPolicy{MaxAttempts: 2, MinBackoff: time.Microsecond}
	return l
}

// countedConn is counted until it is closed.
type countedConn struct {
	net.Conn
	once sync.Once
	open *atomic.Int64
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

const illCallers = 16

// run makes n calls, of every kind in turn.
func (l *ill) run(t *testing.T, n int) {
	var all sync.WaitGroup
	last := l.calls.Load() + int64(n)
	for range illCallers {
		all.Go(func() {
			for {
				i := l.calls.Add(1)
				if i > last {
					return
				}
				l.call(t, int(i))
			}
		})
	}
	all.Wait()
	l.calls.Store(last)
}

func (l *ill) call(t *testing.T, i int) {
	kind := badEnds[i%len(badEnds)]
	round, name := i/len(badEnds), fmt.Sprint("order-", i)
	ctx, cancel := t.Context(), context.CancelFunc(func() {})
	if kind.leaves || round%2 == 0 { // the others have a context that lives on
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	l.callers.Store(name, cancel)
	defer l.callers.Delete(name)
	req := mustRequest(t, ctx, l.url, orderBody(i))
	req.Header.Set("X-Kind", strconv.Itoa(i%len(badEnds)))
	req.Header.Set("X-Call", name)
	if round%8 == 7 {
		req.Method = http.MethodGet // is not journaled
	}
	if kind.request != nil {
		kind.request(req)
	}
	var resp *http.Response
	var err error
	if round%4 < 2 {
		resp, err = l.client.Do(name, req)
	} else {
		resp, err = l.client.HTTPClient().Do(req.WithContext(WithOperation(req.Context(), name)))
	}
	if err != nil {
		l.ends[1].Add(1)
		return
	}
	l.ends[0].Add(1)
	if kind.end != nil {
		kind.end(resp, cancel)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// Goroutines, connections and memory are back to where they were after calls
// that failed, were cancelled, and streamed.
func TestNothingIsLeftOfCallsThatEndBadly(t *testing.T) {
	const calls = 5_000 / raceStep / raceStep
	for _, proto := range []string{http1, http2} {
		t.Run(proto, func(t *testing.T) {
			l := newIll(t, proto)
			settle := func() (goroutines int, heap int64) {
				l.transport.CloseIdleConnections()
				require.Eventually(t, func() bool { return l.open.Load() == 0 }, patience, time.Millisecond, "connections")
				require.NoError(t, l.journal.Flush(t.Context()))
				runtime.GC()
				heap, _ = used()
				return runtime.NumGoroutine(), heap
			}
			defer time.AfterFunc(time.Minute, func() { panic("a call hangs") }).Stop()
			l.run(t, calls/10) // caches fill
			goroutines, before := settle()
			l.run(t, calls)
			_, after := settle()
			requireGoroutines(t, goroutines)
			t.Logf("heap %d KiB before, %d KiB after; %d answers, %d errors", before>>10, after>>10, l.ends[0].Load(), l.ends[1].Load())
			assert.Less(t, after-before, int64(256<<10+calls*64), "bytes left of them")
			assert.Greater(t, l.ends[0].Load(), int64(calls/4), "answers")
			assert.Greater(t, l.ends[1].Load(), int64(calls/4), "errors")
		})
	}
}
