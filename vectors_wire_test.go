package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/internal/clock"
)

// vectorsOnTheWire go over loopback too: a server that answers as the vector
// says, a journal in a file, and the contract bound to the server.
var vectorsOnTheWire = []string{
	"CV001", // success
	"CV002", // replay
	"CV004", // stored_failure
	"CV005", // server_error
	"CV006", // stored_failure, replayed
	"CV007", // rate_limit
	"CV009", // sticky_unknown
	"CV010", // mismatch
	"CV013", // retention, after a restart
	"CV015", // replay of a refusal
	"CV028", // in_flight by body and header
	"CV037", // retention that is long enough
	"CV047", // already_done, without proof
	"CV050", // already_done, the key in the body
	"CV054", // in_flight
	"CV055", // final_failure
	"CV065", // should_retry
	"CV066", // errors_in_200, the key in a GraphQL variable
	"CV068", // errors_in_200, XML
	"CV073", // final_failure inside a success
	"CV080", // companion, first sent late
	"CV081", // retention by the server's word
	"CV082", // mismatch, the key in the query
	"CV085", // retention, the key in the query
	"CV089", // no_contract
	"CV090", // retry_after in milliseconds
	"CV095", // in_flight by name
	"CV106", // sticky_unknown, the key in the body
	"CV110", // already_done by the contract
	"CV118", // transport, refused
	"CV121", // transport, lost answer
	"CV129", // transport, cut answer
	"CV134", // redirect, a GET follows
	"CV135", // redirect that proves nothing
	"CV138", // not_executed
	"CV141", // recovery of what was never sent
}

func TestVectorsOverTheWire(t *testing.T) {
	t.Parallel()
	_, raw := loadVectors(t, "testdata/vectors.json")
	classes := map[string]bool{}
	for _, id := range vectorsOnTheWire {
		v := mustVector(t, raw[id])
		classes[v.Class] = true
		t.Run(id, func(t *testing.T) {
			for _, diff := range v.differences(t, v.overTheWire(t)) {
				t.Errorf("%s (%s): %s", v.Title, v.Class, diff)
			}
		})
	}
	assert.GreaterOrEqual(t, len(classes), 16)
}

// vectorWire is a vector's provider on a loopback port, and its client.
type vectorWire struct {
	t      *testing.T
	v      *vector
	c      *contract.Contract
	path   string
	server *httptest.Server
	base   *http.Transport
	ahead  atomic.Int64 // of the clock
	late   bool         // the vector is about a resume

	mu       sync.Mutex
	answer   int // the arrival that gets the vector's answer
	arrivals []vectorArrival
	after    []Intent // as recorded after each attempt
	decision []string
	journal  *SQLiteJournal
	client   *Client
}

type vectorArrival struct {
	at     time.Time
	method string
	key    string
	body   string // without the key
	state  State  // of the operation, as it was journaled then
	first  string // the companion that is the first send's
}

func newVectorWire(t *testing.T, v *vector) *vectorWire {
	t.Helper()
	w := &vectorWire{t: t, v: v, path: filepath.Join(t.TempDir(), "journal.db"), answer: v.Given.Attempt, base: &http.Transport{}}
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	t.Cleanup(w.base.CloseIdleConnections)
	w.c = v.contract(t).At(w.server.Listener.Addr().String())
	w.late = v.restarts(t)
	w.open()
	return w
}

// open begins a life of the client.
func (w *vectorWire) open() {
	w.t.Helper()
	journal, err := Open(w.path, nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, journal.Close()) })
	w.journal = journal
	tr := &Transport{Journal: journal, Base: w.base, Contracts: w.c, Observer: &Observer{Attempted: w.attempted}}
	tr.Retry = RetryPolicy{MaxAttempts: w.v.Given.Attempt + 1, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Second}
	tr.clock = clock.Clock{Wall: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }}
	if w.v.Given.TransportError == "dial tcp: connection refused" {
		w.base.DialContext = w.refuseFirst
	}
	w.client = NewClient(tr)
}

// refuseFirst dials a port at which nobody listens, once.
func (w *vectorWire) refuseFirst(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	refuse := w.answer > 0
	w.answer = 0
	w.mu.Unlock()
	if refuse {
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(w.t, err)
		address = closed.Addr().String()
		require.NoError(w.t, closed.Close())
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func (w *vectorWire) attempted(_ context.Context, in Intent, a Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after, w.decision = append(w.after, in), append(w.decision, a.Decision)
}

// ServeHTTP loses the earlier answers, gives the vector's, and works after it.
func (w *vectorWire) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	assert.NoError(w.t, err)
	key, _, err := w.c.Key.Find(r.Header, r.URL, body)
	assert.NoError(w.t, err)
	_, blank := w.c.Key.Blank(r.URL, r.Header.Get("Content-Type"), body)
	in, _ := w.client.Lookup(context.Background(), "vector")
	a := vectorArrival{at: time.Now(), method: r.Method, key: key, body: string(blank), state: in.State}
	for _, c := range w.c.Companions {
		if !c.PerAttempt {
			a.first = r.Header.Get(c.Header)
		}
	}
	w.mu.Lock()
	w.arrivals = append(w.arrivals, a)
	n, answer := len(w.arrivals), w.answer
	w.mu.Unlock()
	switch {
	case n < answer:
		w.cut(out, "")
	case n > answer || w.late:
		out.WriteHeader(http.StatusCreated)
	default:
		resp, err := w.v.answer(w.t, w.c, time.Now(), func() {}, r)
		if err != nil {
			w.cut(out, "")
			return
		}
		answer, err := io.ReadAll(resp.Body)
		assert.NoError(w.t, err)
		var head bytes.Buffer
		_ = resp.Header.Write(&head)
		w.cut(out, fmt.Sprintf("HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n%s", resp.StatusCode, head.String(), resp.ContentLength, answer))
	}
}

// cut writes to the connection and closes it.
func (w *vectorWire) cut(out http.ResponseWriter, text string) {
	conn, _, err := out.(http.Hijacker).Hijack()
	if assert.NoError(w.t, err) {
		_, _ = io.WriteString(conn, text)
		conn.Close()
	}
}

// do calls the operation.
func (w *vectorWire) do(d *vectorDeed) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	resp, err := w.client.Do("vector", w.request().WithContext(WithResult(ctx, &d.result)))
	d.err, d.response = err, resp != nil
	if resp != nil {
		readAndClose(w.t, resp)
	}
	var failure *OperationError
	if errors.As(err, &failure) {
		d.response = failure.Response != nil
	}
}

func (w *vectorWire) request() *http.Request {
	req := w.v.request(w.t, w.c, w.server.Listener.Addr().String())
	req.URL.Scheme = "http"
	return req
}

// overTheWire does what the vector is about, with every attempt before it.
func (v *vector) overTheWire(t *testing.T) vectorDeed {
	w := newVectorWire(t, v)
	var d vectorDeed
	g := v.Given
	if w.late {
		w.recover(&d)
	} else {
		w.do(&d)
	}
	in := w.lookup()
	d.in, d.key, d.silent, d.wait = in, w.keys(), w.c.NoKeys, time.Hour // the shortest waits are TestVectors' affair
	if d.after == "" {
		d.after = vectorState(in.State)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late {
		return d
	}
	if len(w.decision) >= g.Attempt {
		d.decision = w.decision[g.Attempt-1]
	}
	later := slices.ContainsFunc(w.arrivals[min(max(w.answer, 0), len(w.arrivals)):], func(a vectorArrival) bool { return a.method == g.Method })
	switch {
	case later: // the next attempt settled it
		require.Equal(t, StateSucceeded, in.State)
		d.actions, d.after = []string{"RETRY_SAME_KEY", "RECONCILE"}, vectorState(w.after[g.Attempt-1].State)
		if v.Class == "retry_after" {
			d.wait = w.arrivals[w.answer].at.Sub(w.arrivals[w.answer-1].at)
		}
	case in.State == StateSucceeded:
		d.actions = []string{"RETURN_FINAL"}
		if last := w.arrivals[len(w.arrivals)-1]; last.method == http.MethodGet {
			assert.Empty(t, last.key)
			d.actions, d.key = []string{"SEND_WITHOUT_KEY"}, "none"
		}
	default:
		d.actions = map[State][]string{
			StateRejected: {"RETURN_FINAL_FAILED"}, StateHeld: {"HOLD", "RETURN_IN_DOUBT", "RECONCILE"},
			StateUnknown: {"RETURN_IN_DOUBT", "RECONCILE"}, StateWithdrawn: {"RETURN_NOT_SENT"},
		}[in.State]
	}
	return d
}

// recover leaves the operation as the vector has it, and resumes it in another
// life, after the time that the vector says.
func (w *vectorWire) recover(d *vectorDeed) {
	w.t.Helper()
	if w.v.Given.Attempt == 1 {
		_, err := w.client.Prepare("vector", w.request())
		require.NoError(w.t, err)
	} else {
		w.client.Transport.Retry.MaxAttempts = w.v.Given.Attempt - 1
		w.do(&vectorDeed{})
	}
	require.NoError(w.t, w.journal.Close())
	w.ahead.Store(int64(time.Duration(w.v.Given.Age * float64(time.Second))))
	w.open()
	before := len(w.arrivals)
	require.Equal(w.t, w.v.Given.Attempt-1, before)
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	_, err := w.client.Resume(ctx)
	require.NoError(w.t, err)
	if len(w.arrivals) == before {
		w.do(d) // is told the same
		require.Len(w.t, w.arrivals, before)
		d.actions = []string{"HOLD"}
		return
	}
	require.Len(w.t, w.arrivals, before+1)
	require.Equal(w.t, StateInFlight, w.arrivals[before].state, "counted before it was sent")
	d.actions, d.after = []string{"RETRY_SAME_KEY"}, vectorState(w.arrivals[before].state)
	if before == 0 {
		d.actions = []string{"SEND"}
	}
}

// lookup is the operation as it is recorded.
func (w *vectorWire) lookup() Intent {
	w.t.Helper()
	in, err := w.client.Lookup(w.t.Context(), "vector")
	require.NoError(w.t, err)
	return in
}

// keys checks that every send of the operation had the one key and the same
// bytes.
func (w *vectorWire) keys() string {
	w.t.Helper()
	in := w.lookup()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.arrivals {
		if a.method != w.v.Given.Method {
			continue
		}
		assert.Equal(w.t, w.arrivals[0].body, a.body)
		if w.c.NoKeys {
			assert.Empty(w.t, a.key)
			continue
		}
		assert.Equal(w.t, in.Key, a.key)
		assert.Contains(w.t, []State{StateInFlight}, a.state, "journaled before it was sent")
		if len(w.c.Companions) > 0 && a.first != "" {
			assert.Equal(w.t, in.FirstSent.Format(http.TimeFormat), a.first)
		}
	}
	if w.c.NoKeys {
		return "none"
	}
	return "same"
}
