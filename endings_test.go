package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// world is a provider that keeps its contract to the letter and no longer: it
// forgets a key the moment its retention is over.
type world struct {
	mu       sync.Mutex
	keeps    bool          // honours keys
	retain   time.Duration // for so long
	stored   map[string]memory
	effects  int
	arrivals int
	script   []scene // for the first arrivals
}

type memory struct {
	at     time.Time
	status int
}

// scene is how one arrival ends.
type scene struct {
	name     string
	executes bool
	waits    bool // it is sent again after a wait
	status   int  // stored, if it executes
	answer   func(ctx context.Context, status int) (*http.Response, error)
}

var errReset = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}

func plainAnswer(_ context.Context, status int) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("answer")), ContentLength: 6}, nil
}

func answerHeader(name, value string) func(context.Context, int) (*http.Response, error) {
	return func(ctx context.Context, status int) (*http.Response, error) {
		resp, err := plainAnswer(ctx, status)
		resp.Header.Set(name, value)
		return resp, err
	}
}

func answerBody(mediaType string, body io.Reader) func(context.Context, int) (*http.Response, error) {
	return func(_ context.Context, status int) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: header("Content-Type", mediaType), Body: io.NopCloser(body), ContentLength: -1}, nil
	}
}

func noAnswer(err error) func(context.Context, int) (*http.Response, error) {
	return func(context.Context, int) (*http.Response, error) { return nil, err }
}

func silence(ctx context.Context, _ int) (*http.Response, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// scenes are the classes of answers. They are made anew for each run, since
// bodies are read.
func scenes() []scene {
	broken := func() io.Reader {
		return io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	return []scene{
		{"201", true, false, 201, plainAnswer},
		{"201 cut", true, true, 201, answerBody("text/plain", broken())},
		{"stream", true, false, 200, answerBody("text/event-stream", strings.NewReader("data: x\n\n"))},
		{"stream broken", true, false, 200, answerBody("text/event-stream", broken())},
		{"reset after the effect", true, true, 201, noAnswer(errReset)},
		{"silence after the effect", true, false, 201, silence},
		{"500 after the effect", true, true, 201, func(ctx context.Context, _ int) (*http.Response, error) { return plainAnswer(ctx, 500) }},
		{"302 after the effect", true, false, 201, func(ctx context.Context, _ int) (*http.Response, error) { return plainAnswer(ctx, 302) }},
		{"reset before the effect", false, true, 0, noAnswer(errReset)},
		{"never sent", false, true, 0, noAnswer(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")})},
		{"400", false, false, 400, plainAnswer},
		{"401", false, false, 401, plainAnswer},
		{"409", false, false, 409, plainAnswer},
		{"409 in flight", false, true, 409, answerHeader("Retry-After", "1")},
		{"429", false, true, 429, plainAnswer},
		{"429 for long", false, false, 429, answerHeader("Retry-After", "7200")},
		{"503", false, true, 503, plainAnswer},
		{"501", false, false, 501, plainAnswer},
	}
}

// RoundTrip is one arrival.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	closeBody(req)
	if err := context.Cause(req.Context()); err != nil {
		return nil, err
	}
	w.mu.Lock()
	now := scene{name: "works", executes: true, status: 201, answer: plainAnswer}
	if w.arrivals < len(w.script) {
		now = w.script[w.arrivals]
	}
	w.arrivals++
	key := req.Header.Get("Idempotency-Key")
	if m, ok := w.stored[key]; ok && w.keeps && key != "" && time.Since(m.at) < w.retain {
		w.mu.Unlock()
		return answerHeader("Idempotent-Replayed", "true")(req.Context(), m.status)
	}
	if now.executes {
		w.effects++
		w.stored[key] = memory{at: time.Now(), status: now.status}
	}
	w.mu.Unlock()
	return now.answer(req.Context(), now.status)
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects
}

// callEnd is one way in which a direct call can end.
type callEnd struct {
	answer   int    // of scenes
	doubt    bool   // an attempt before it left doubt, in an effect
	contract string // keyed, keyed for an unknown time, none
	cancel   string // when the caller leaves
	fault    string // of the journal
	kill     bool   // how the process ends
}

func (e callEnd) String() string {
	return fmt.Sprintf("%s/doubt=%v/%s/cancel %s/journal %s/kill=%v", scenes()[e.answer].name, e.doubt, e.contract, e.cancel, e.fault, e.kill)
}

func allEndings() []callEnd {
	var all []callEnd
	for answer := range scenes() {
		for _, doubt := range []bool{false, true} {
			for _, rules := range []string{"keyed", "keyed, retention unknown", "none"} {
				for _, cancel := range []string{"never", "at the send", "in the wait"} {
					for _, fault := range []string{"none", "begin", "after the answer"} {
						for _, kill := range []bool{false, true} {
							e := callEnd{answer, doubt, rules, cancel, fault, kill}
							if !e.sameAsAnother() {
								all = append(all, e)
							}
						}
					}
				}
			}
		}
	}
	return all
}

// sameAsAnother leaves out what makes no difference.
func (e callEnd) sameAsAnother() bool {
	nothingSent := e.fault == "begin" && (e.answer > 0 || e.cancel != "never")
	heldBefore := e.contract == "none" && e.doubt && e.answer > 0
	noWait := e.cancel == "in the wait" && !scenes()[e.answer].waits
	oneRetention := e.contract == "keyed, retention unknown" && e.cancel != "never"
	return nothingSent || heldBefore || noWait || oneRetention
}

// Every way in which a direct call can end: the error's class, what is recorded
// after a clean stop and after a kill, and that ten days of resume never
// contradict what the caller was told (P9).
func TestEveryEndOfACall(t *testing.T) {
	endings := allEndings()
	require.GreaterOrEqual(t, len(endings), 400)
	dir := t.TempDir()
	for i, e := range endings {
		if i%raceStep != 0 {
			continue
		}
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { e.check(t, filepath.Join(dir, fmt.Sprint(i, ".db"))) })
		})
	}
}

// faultyJournal fails where the ending says so.
type faultyJournal struct {
	*SQLiteJournal
	begin, update bool
}

func (j *faultyJournal) Begin(ctx context.Context, want Intent) (Intent, bool, error) {
	if j.begin {
		return Intent{}, false, errDisk
	}
	return j.SQLiteJournal.Begin(ctx, want)
}

func (j *faultyJournal) Update(ctx context.Context, next Intent, a *Attempt, durable bool) (Intent, error) {
	if j.update {
		return Intent{}, errDisk
	}
	return j.SQLiteJournal.Update(ctx, next, a, durable)
}

func (e callEnd) check(t *testing.T, path string) {
	w := &world{stored: map[string]memory{}, keeps: e.contract != "none"}
	transport := &Transport{Base: w}
	switch e.contract {
	case "keyed":
		w.retain = 24 * time.Hour
		transport.Contracts = contract.Keyed("Idempotency-Key", w.retain)
	case "keyed, retention unknown":
		w.retain = time.Hour + time.Second
		transport.Contracts = contract.Keyed("Idempotency-Key", 0)
	default:
		transport.Contracts = contract.First()
	}
	if e.doubt {
		w.script = append(w.script, scene{"lost", true, true, 201, noAnswer(errReset)})
	}
	journal, err := Open(path, nil)
	require.NoError(t, err)
	faulty := &faultyJournal{SQLiteJournal: journal, begin: e.fault == "begin"}
	transport.Journal = faulty

	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // there is no limit of ours without a contract
	defer cancel()
	last := scenes()[e.answer]
	answer := last.answer
	last.answer = func(ctx context.Context, status int) (*http.Response, error) {
		faulty.update = e.fault == "after the answer"
		if e.cancel == "at the send" {
			cancel()
		}
		return answer(ctx, status)
	}
	w.script = append(w.script, last)
	transport.Observer = &Observer{Waiting: func(_ context.Context, in Intent, _ time.Duration) {
		if e.cancel == "in the wait" && w.arrivals == len(w.script) {
			time.AfterFunc(time.Millisecond, cancel)
		}
	}}
	var result Result
	resp, err := NewClient(transport).Do("order-1", mustRequest(t, WithResult(ctx, &result), rigURL, orderBody(1)))
	if resp != nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	told := e.classOf(t, resp, err, result)
	effects := w.count()
	faulty.begin, faulty.update = false, false
	if e.kill {
		journal.store.Die()
	} else {
		require.NoError(t, journal.Close())
	}
	e.resumeForDays(t, path, transport, w, told, effects)
}

// classOf checks the answer on its own and says what the caller was told.
func (e callEnd) classOf(t *testing.T, resp *http.Response, err error, result Result) string {
	t.Helper()
	notSent, unknown := errors.Is(err, ErrNotSent), errors.Is(err, ErrUnknownOutcome)
	require.False(t, notSent && unknown, "both classes: %v", err)
	require.NotEqual(t, resp == nil, err == nil, "a response or an error")
	switch {
	case err == nil && result.Err() == nil && resp.StatusCode/100 == 2 && result.Intent.State == StateInFlight:
		return "streamed"
	case err == nil && resp.StatusCode/100 == 2:
		return "succeeded"
	case err == nil:
		require.Equal(t, StateRejected, result.Intent.State)
		return "rejected"
	}
	var failure *OperationError
	require.ErrorAs(t, err, &failure)
	require.True(t, notSent || unknown, "neither class: %v", err)
	for _, secret := range []string{failure.Key, "4200"} {
		if secret != "" {
			require.NotContains(t, err.Error(), secret)
		}
	}
	require.Equal(t, errors.Is(err, ErrHeld), failure.State == StateHeld, err)
	if e.fault != "none" && e.fault != "begin" && unknown && failure.State != StateHeld && e.cancel != "in the wait" {
		assert.ErrorIs(t, err, ErrJournal)
	}
	if notSent {
		return "not sent"
	}
	return "unknown"
}

// resumeForDays lets ten days go by, and checks after each pass that nothing
// contradicts what the caller was told.
func (e callEnd) resumeForDays(t *testing.T, path string, transport *Transport, w *world, told string, effects int) {
	journal, err := Open(path, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, journal.Close()) }()
	next := &Transport{Journal: journal, Base: w, Contracts: transport.Contracts}
	client := NewClient(next)
	for _, pause := range []time.Duration{0, time.Minute, time.Hour, 2 * time.Hour, 20 * time.Hour, time.Hour, 24 * time.Hour, 8 * 24 * time.Hour} {
		time.Sleep(pause)
		_, err := client.Resume(t.Context())
		require.NoError(t, err)
		in, err := client.Lookup(t.Context(), "order-1")
		if errors.Is(err, ErrNotFound) {
			require.Equal(t, "not sent", told)
			require.Zero(t, w.count())
			continue
		}
		require.NoError(t, err)
		require.LessOrEqual(t, w.count(), 1, "effects")
		switch told {
		case "not sent":
			require.Zero(t, w.count(), "told not sent")
			require.NotEqual(t, StateSucceeded, in.State)
		case "rejected":
			require.Equal(t, effects, w.count(), "told rejected")
			require.Equal(t, StateRejected, in.State)
		case "succeeded", "streamed":
			require.Equal(t, 1, w.count())
			require.NotContains(t, []State{StateRejected, StateWithdrawn, StatePending}, in.State)
		}
		if in.State == StateSucceeded {
			require.Equal(t, 1, w.count(), "recorded as succeeded")
		}
		if in.State == StateRejected || in.State == StateWithdrawn {
			require.Zero(t, w.count(), "recorded as %s", in.State)
		}
	}
	// And another call of the same operation never makes a second effect.
	resp, err := client.Do("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
	if err == nil {
		resp.Body.Close()
	}
	require.LessOrEqual(t, w.count(), 1, "effects after a call again")
}
