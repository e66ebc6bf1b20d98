package idem

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// This file makes the calls of the vectors that are about what is decided before
// a send, over a true journal in virtual time.

// vectorCall is one call, and vectorCalls are what a vector tells of: the one
// that left the journal as it is, and the one that the vector is about.
type vectorCall struct{ operation, host, path, key, credential, body string }

type vectorCalls struct {
	first, next vectorCall
	recorded    bool // there was a first one
	fails       bool // the journal cannot be written
	beside      bool // another call of the operation runs
	process     bool // in another process
}

const vectorOwnKey = "8e03978e-40d5-43e8-bc93-6894a57f9324"

// calls reads the conditions.
func (v *vector) calls(t *testing.T) vectorCalls {
	t.Helper()
	g := v.Given
	calls := vectorCalls{recorded: g.Attempt > 1 || g.Before != "none" && g.Before != "pending"}
	first, next := &calls.first, &calls.next
	first.operation, next.operation = "vector", "vector"
	key := v.text(t, "key")
	if length, ok := v.given("key_length"); ok {
		key = strings.Repeat("k", int(length.(float64)))
	}
	if key != "" { // of an SDK
		first.operation, next.operation = "", ""
		first.key, next.key = key, key
	}
	first.host, next.host = v.text(t, "first_host"), v.text(t, "next_host")
	if other := v.text(t, "key_already_used_on"); other != "" {
		first.operation, next.operation = "", ""
		first.path, first.key, next.key, calls.recorded = other, vectorOwnKey, vectorOwnKey, true
	}
	if credential := v.text(t, "credential"); credential != "" {
		require.Equal(t, "rotated", credential)
		first.credential, next.credential, calls.recorded = "Bearer first", "Bearer second", true
	}
	if digest := v.text(t, "body_digest"); digest != "" {
		require.Contains(t, []string{"differs from journal", "same as journal"}, digest)
		calls.recorded = true
		if digest == "differs from journal" {
			next.body = " "
		}
	}
	if broken := v.text(t, "journal"); broken != "" {
		require.Regexp(t, "failed|full|read-only|unavailable", broken)
		calls.fails = true
	}
	calls.process = v.says(t, "second_process", true)
	calls.beside = v.says(t, "second_caller", true) || calls.process
	return calls
}

// call makes the vector's call.
func (v *vector) call(t *testing.T) (deeds []vectorDeed) {
	t.Helper()
	calls := v.calls(t)
	if calls.next.credential != "" { // of an adopted key another one is never taken
		adopted := calls
		adopted.first.operation, adopted.next.operation, adopted.first.key, adopted.next.key = "", "", vectorOwnKey, vectorOwnKey
		virtually(t, func(t *testing.T) {
			d := newVectorWorld(t, v, adopted).deed()
			assert.Equal(t, []string{"FAIL_CLOSED"}, d.actions)
			assert.ErrorIs(t, d.err, ErrMismatch)
		})
	}
	names := []string{calls.next.operation}
	c := v.contract(t)
	if req := v.request(t, c, calls.next.host); calls.next.operation != "" && (c.NoKeys || c.Resolve(req) == nil) {
		names = append(names, "") // an SDK's request, too, that nobody named
	}
	for _, name := range names {
		calls.next.operation = name
		virtually(t, func(t *testing.T) {
			w := newVectorWorld(t, v, calls)
			if calls.beside {
				deeds = append(deeds, w.join())
			} else {
				deeds = append(deeds, w.deed())
			}
		})
	}
	return deeds
}

// vectorWorld is a client whose base transport notes what it is given.
type vectorWorld struct {
	t       *testing.T
	v       *vector
	c       *contract.Contract
	calls   vectorCalls
	path    string
	faulty  *faultyJournal
	tr      *Transport
	sends   []*http.Request
	state   State // of the operation at the last send
	answers func(*http.Request) (*http.Response, error)
}

func newVectorWorld(t *testing.T, v *vector, calls vectorCalls) *vectorWorld {
	t.Helper()
	w := &vectorWorld{t: t, v: v, c: v.contract(t), calls: calls, path: filepath.Join(t.TempDir(), "journal.db")}
	w.tr, w.faulty = w.open()
	w.answers = answerVector(http.StatusCreated)
	if !calls.recorded {
		return w
	}
	switch before := v.Given.Before; {
	case before == "succeeded", calls.first.path != "":
	case before == "pending":
		_, err := NewClient(w.tr).Prepare(calls.first.operation, w.request(calls.first))
		require.NoError(t, err)
		time.Sleep(w.age())
		return w
	case before == "unknown":
		w.answers = func(*http.Request) (*http.Response, error) { return nil, errReset }
	default:
		status := map[string]int{"rejected": 400, "withdrawn": 429, "held": 302}[before]
		require.NotZero(t, status, before)
		w.answers = answerVector(status)
	}
	w.call(w.tr, calls.first)
	w.answers, w.sends = answerVector(http.StatusCreated), nil
	time.Sleep(w.age())
	return w
}

func answerVector(status int) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"id":"x"}`)), ContentLength: 10}, nil
	}
}

func (w *vectorWorld) age() time.Duration { return time.Duration(w.v.Given.Age * float64(time.Second)) }

// open opens the journal, as another process would the second time.
func (w *vectorWorld) open() (*Transport, *faultyJournal) {
	w.t.Helper()
	journal, err := Open(w.path, nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, journal.Close()) })
	faulty := &faultyJournal{SQLiteJournal: journal}
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		w.sends = append(w.sends, req)
		w.state = w.find(w.calls.next).State
		return w.answers(req)
	})
	return &Transport{Journal: faulty, Base: base, Contracts: w.c, Retry: RetryPolicy{MaxAttempts: 1}}, faulty
}

// request is the caller's request of a call.
func (w *vectorWorld) request(call vectorCall) *http.Request {
	w.t.Helper()
	req := w.v.request(w.t, w.c, call.host)
	if call.path != "" {
		req.URL.Path = call.path
	}
	body := vectorBytes(w.t, req)
	if call.key != "" {
		if place := w.c.Key; place.Header != "" {
			req.Header[http.CanonicalHeaderKey(place.Header)] = []string{place.Format(call.key)}
		} else {
			target, keyed, err := place.Put(req.URL, req.Header.Get("Content-Type"), body, call.key)
			require.NoError(w.t, err)
			req.URL, body = target, keyed
		}
	}
	if call.credential != "" {
		req.Header.Set("Authorization", call.credential)
	}
	text := string(body) + call.body
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	return req
}

// call makes a call and says how it ended.
func (w *vectorWorld) call(tr *Transport, call vectorCall) (*http.Response, Result, error) {
	w.t.Helper()
	var result Result
	ctx := WithResult(w.t.Context(), &result)
	if call.operation != "" {
		ctx = WithOperation(ctx, call.operation)
	}
	resp, err := tr.RoundTrip(w.request(call).WithContext(ctx))
	if err == nil {
		readAndClose(w.t, resp)
		err = result.Err()
	}
	return resp, result, err
}

// find looks for the operation of a call; the zero Intent: there is none.
func (w *vectorWorld) find(call vectorCall) Intent {
	w.t.Helper()
	address := shownURL(w.request(call).URL)
	all, err := w.faulty.List(context.Background(), Filter{})
	require.NoError(w.t, err)
	for _, in := range all {
		if in.Operation == call.operation && (call.operation != "" || in.URL == address) {
			return in
		}
	}
	return Intent{}
}

// deed makes the call that the vector is about.
func (w *vectorWorld) deed() vectorDeed {
	w.t.Helper()
	before := w.find(w.calls.next)
	w.faulty.begin = w.calls.fails
	resp, result, err := w.call(w.tr, w.calls.next)
	w.faulty.begin = false
	after := w.find(w.calls.next)
	d := vectorDeed{
		after: vectorState(after.State), in: after, response: resp != nil, err: err, result: result, key: "none",
	}
	if after.ID != "" && !w.c.NoKeys {
		d.key = "same"
	}
	switch {
	case len(w.sends) > 0 && after.ID == "":
		d.actions = []string{"SEND_WITHOUT_KEY"}
		d.key = w.keyOf(w.sends[0], "")
	case len(w.sends) > 0:
		d.actions, d.after, d.key = []string{"SEND"}, vectorState(w.state), w.keyOf(w.sends[0], after.Key)
		if before.Attempts > 0 {
			d.actions = []string{"RETRY_SAME_KEY"}
		}
	case result.FromJournal:
		d.actions = []string{"RETURN_RECORDED"}
	default:
		require.Error(w.t, err)
		d.actions = []string{"FAIL_CLOSED"}
		before.Version = after.Version // it may have been looked at
		assert.Equal(w.t, before, after, "a refused call changes nothing")
	}
	return d
}

// keyOf looks for the key in what was sent.
func (w *vectorWorld) keyOf(req *http.Request, want string) string {
	w.t.Helper()
	if w.c.NoKeys {
		return "none"
	}
	key, found, err := w.c.Key.Find(req.Header, req.URL, vectorBytes(w.t, req))
	require.NoError(w.t, err)
	if !found {
		return "none"
	}
	require.Equal(w.t, want, key)
	return "same"
}

// join makes the call twice at the same time.
func (w *vectorWorld) join() vectorDeed {
	w.t.Helper()
	answers := w.answers
	w.answers = func(req *http.Request) (*http.Response, error) {
		time.Sleep(time.Second)
		return answers(req)
	}
	second := w.tr
	if w.calls.process {
		second, _ = w.open()
	}
	ended := make(chan error, 1)
	go func() {
		_, _, err := w.call(w.tr, w.calls.next)
		ended <- err
	}()
	time.Sleep(time.Millisecond)
	running := w.find(w.calls.next)
	resp, result, err := w.call(second, w.calls.next)
	require.NoError(w.t, errors.Join(err, <-ended))
	require.Len(w.t, w.sends, 1)
	return vectorDeed{
		actions: []string{"JOIN"}, after: vectorState(running.State), in: running, response: resp != nil, result: result,
		key: w.keyOf(w.sends[0], running.Key),
	}
}

// A vector that is to be settled by a read is: where a verifier is set, it is
// asked before anything is sent, and what it proves is recorded.
func TestVectorsVerify(t *testing.T) {
	path, own := vectorFile()
	ids, raw := loadVectors(t, path)
	n := 0
	for _, id := range ids {
		v := mustVector(t, raw[id])
		if v.Expect.Action != "RECONCILE" {
			continue
		}
		n++
		t.Run(id, func(t *testing.T) { virtually(t, v.verify) })
	}
	if own {
		assert.Equal(t, 7, n)
	}
}

// verify loses an answer, gets the vector's where it has one, and resumes.
func (v *vector) verify(t *testing.T) {
	require.Equal(t, "unknown", v.Given.Before)
	w := newVectorWorld(t, v, vectorCalls{first: vectorCall{operation: "vector"}, next: vectorCall{operation: "vector"}, recorded: true})
	if v.Given.Response != nil && !w.c.NoKeys {
		w.answers = func(req *http.Request) (*http.Response, error) { return v.answer(t, w.c, time.Now(), func() {}, req) }
		_, _, err := w.call(w.tr, w.calls.next)
		if err == nil {
			return // TestVectors says by which sentence
		}
		require.ErrorIs(t, err, ErrUnknownOutcome)
	}
	before := w.find(w.calls.next)
	require.Contains(t, []State{StateUnknown, StateHeld}, before.State)
	time.Sleep(2 * time.Minute)
	client, asked := NewClient(w.tr), 0
	client.Verify = func(_ context.Context, in Intent) (State, error) {
		asked++
		assert.Equal(t, before.Key, in.Key)
		return StateSucceeded, nil
	}
	w.sends = nil
	_, err := client.Resume(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, asked)
	assert.Empty(t, w.sends)
	assert.Equal(t, StateSucceeded, w.find(w.calls.next).State)
}
