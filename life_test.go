package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// The files life_*_test.go are the index of the life of an intent: each of its
// sentences has a test named after it. This one is about calls and OnSettled.

// act is how one send ends. server is the reference server behind it.
type act func(req *http.Request, server http.RoundTripper) (*http.Response, error)

// actAnswer answers in front of the server.
func actAnswer(status int, pairs ...string) act {
	return func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
		closeBody(req)
		return &http.Response{StatusCode: status, Header: header(pairs...), Body: io.NopCloser(strings.NewReader("act")), ContentLength: 3}, nil
	}
}

// actLost executes, and loses the answer.
func actLost(req *http.Request, server http.RoundTripper) (*http.Response, error) {
	resp, err := server.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	return nil, errReset
}

// actUnsent provably sends nothing.
func actUnsent(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
	closeBody(req)
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
}

// actSlow takes d before it ends as next does.
func actSlow(d time.Duration, next act) act {
	return func(req *http.Request, server http.RoundTripper) (*http.Response, error) {
		time.Sleep(d)
		return next(req, server)
	}
}

// life is a rig with short words for what happens to order-1. It is the base
// transport too: the n-th send ends as the n-th act says, those after the last
// one as the server answers.
type life struct {
	*rig
	t      *testing.T
	server http.RoundTripper
	mu     sync.Mutex
	acts   []act
	at     []time.Time // of the sends
	keys   []string
	dead   *SQLiteJournal
	told   []Intent    // by OnSettled
	asked  []time.Time // of Verify
}

func newLife(t *testing.T, c *contract.Contract, p RetryPolicy, acts ...act) *life {
	t.Helper()
	r := newRigFor(t, c)
	l := &life{rig: r, t: t, server: r.transport.Base, acts: acts}
	r.transport.Base, r.transport.Retry = l, p
	return l
}

// live is a test of one life in virtual time, at a server that keeps keys for a
// day.
func live(t *testing.T, p RetryPolicy, acts []act, f func(t *testing.T, l *life)) {
	t.Helper()
	virtually(t, func(t *testing.T) { f(t, newLife(t, rigContract(), p, acts...)) })
}

func (l *life) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	n := len(l.at)
	l.at, l.keys = append(l.at, time.Now()), append(l.keys, req.Header.Get("Idempotency-Key"))
	l.mu.Unlock()
	if n < len(l.acts) {
		return l.acts[n](req, l.server)
	}
	return l.server.RoundTrip(req)
}

func (l *life) sends() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.at)
}

func (l *life) in() Intent { l.t.Helper(); return l.lookup("order-1") }

func (l *life) request() *http.Request {
	l.t.Helper()
	return mustRequest(l.t, l.t.Context(), rigURL, orderBody(1))
}

// call is a direct call.
func (l *life) call() error {
	l.t.Helper()
	_, _, err := l.do(l.t.Context(), "order-1", orderBody(1))
	return err
}

func (l *life) continues() error {
	l.t.Helper()
	resp, err := l.client.Continue(l.t.Context(), "order-1")
	if err == nil {
		readAndClose(l.t, resp)
	}
	return err
}

func (l *life) prepares() Intent {
	l.t.Helper()
	in, err := l.client.Prepare("order-1", l.request())
	require.NoError(l.t, err)
	return in
}

func (l *life) resume() Report {
	l.t.Helper()
	report, err := l.client.Resume(l.t.Context())
	require.NoError(l.t, err)
	return report
}

// run lets Run work for a while.
func (l *life) run(d time.Duration) {
	l.t.Helper()
	stop := l.running()
	time.Sleep(d)
	stop()
}

// restart ends this process and begins the next one.
func (l *life) restart(killed bool) {
	l.t.Helper()
	if !killed {
		l.reopen()
		return
	}
	l.kill()
	l.open()
}

// kill ends the process as kill -9 does.
func (l *life) kill() {
	if l.dead != l.journal {
		l.dead = l.journal
		l.journal.store.Die()
	}
}

// dies kills the process in the middle of the attempt.
func (l *life) dies(req *http.Request, server http.RoundTripper) (*http.Response, error) {
	defer l.kill()
	return actLost(req, server)
}

// unsent checks that the resumes send nothing.
func (l *life) unsent() {
	l.t.Helper()
	before := l.sends()
	l.resume()
	l.run(10 * time.Second)
	require.Equal(l.t, before, l.sends(), "sent by a resume")
}

// still checks that nobody sends: no resume and no call.
func (l *life) still() {
	l.t.Helper()
	before := l.sends()
	l.unsent()
	require.Error(l.t, l.call())
	require.Error(l.t, l.continues())
	require.Equal(l.t, before, l.sends(), "sent by a call")
}

func requireNotSent(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ErrNotSent)
	require.NotErrorIs(t, err, ErrUnknownOutcome)
}

// Nothing executed when a direct call ends: withdrawn, and told so, with a time
// before which it is not sent where the server named one. Only a new call sends
// it, under the same key.
func TestLife_DirectCallThatExecutedNothingEndsWithdrawn(t *testing.T) {
	for name, acts := range map[string][]act{
		"never sent":          {actUnsent, actUnsent},
		"429":                 {actAnswer(429), actAnswer(429)},
		"401":                 {actAnswer(401)},
		"403":                 {actAnswer(403)},
		"407":                 {actAnswer(407)},
		"429, then not sent":  {actAnswer(429), actUnsent},
		"429 for an hour":     {actAnswer(429, "Retry-After", "3600")},
		"cancelled, no send":  nil,
		"cancelled in a wait": {actUnsent},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, RetryPolicy{MaxAttempts: 2}, acts, func(t *testing.T, l *life) {
				ctx, leave := context.WithCancel(t.Context())
				if name == "cancelled, no send" {
					l.transport.Journal = leavingJournal{l.journal, leave}
				} else if name == "cancelled in a wait" {
					l.transport.Observer = &Observer{Waiting: func(context.Context, Intent, time.Duration) { leave() }}
				}
				_, _, err := l.do(ctx, "order-1", orderBody(1))
				leave()
				requireNotSent(t, err)
				in := l.in()
				assert.Equal(t, [3]any{StateWithdrawn, false, len(acts)}, [3]any{in.State, in.Doubt, in.Attempts})
				switch name {
				case "cancelled in a wait": // what was left of it
				case "429 for an hour":
					assert.WithinRange(t, in.Due, time.Now().Add(time.Hour), time.Now().Add(66*time.Minute))
					assert.ErrorContains(t, err, "not before "+in.Due.Format(time.RFC3339))
				default:
					assert.True(t, in.Due.IsZero(), "nobody named a time")
				}
				l.transport.Journal = l.journal
				l.restart(true)
				l.unsent()
				time.Sleep(2 * time.Hour)
				l.unsent()
				require.NoError(t, l.call())
				assert.Equal(t, in.Key, l.keys[len(acts)], "same key")
				assert.Equal(t, 1, l.effects())
			})
		})
	}
}

// In doubt: unknown, or held where no resend is allowed.
func TestLife_DirectCallInDoubtLeavesUnknownOrHeld(t *testing.T) {
	for _, test := range []struct {
		name  string
		c     *contract.Contract
		act   act
		state State
		hold  HoldReason
	}{
		{"lost answer", rigContract(), actLost, StateUnknown, ""},
		{"503", rigContract(), actAnswer(503), StateUnknown, ""},
		{"no contract", nil, actLost, StateHeld, HoldNoContract},
		{"the key is too old by now", rigContract(), actSlow(24*time.Hour, actLost), StateHeld, HoldExpired},
	} {
		t.Run(test.name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				l := newLife(t, test.c, RetryPolicy{MaxAttempts: 1, AttemptTimeout: 48 * time.Hour}, test.act)
				requireUnknown(t, l.call(), test.state)
				in := l.in()
				assert.Equal(t, [3]any{test.state, test.hold, true}, [3]any{in.State, in.HoldReason, in.Doubt})
			})
		})
	}
}

// Prepared: stays pending until something executed, and is delivered. A Do that
// fails says unknown, since it will be delivered, and never not sent.
func TestLife_PreparedStaysPendingAndIsDelivered(t *testing.T) {
	for name, acts := range map[string][]act{
		"never sent": {actUnsent},
		"429":        {actAnswer(429)},
		"cancelled":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			live(t, RetryPolicy{MaxAttempts: 1}, acts, func(t *testing.T, l *life) {
				key := l.prepares().Key
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if acts == nil {
					l.transport.Journal = leavingJournal{l.journal, leave}
				}
				_, _, err := l.do(ctx, "order-1", orderBody(1))
				requireUnknown(t, err, StatePending)
				assert.ErrorContains(t, err, "it will be")
				assert.Equal(t, StatePending, l.in().State)
				l.restart(true)
				time.Sleep(time.Minute)
				l.resume()
				assert.Equal(t, [2]any{StateSucceeded, key}, [2]any{l.in().State, l.keys[len(acts)]})
			})
		})
	}
}

// A direct call makes at most MaxAttempts.
func TestLife_DirectCallMakesAtMostMaxAttempts(t *testing.T) {
	for most, want := range map[int]int{0: 4, 1: 1, 3: 3} {
		for _, how := range []act{actUnsent, actAnswer(429), actAnswer(503), actLost} {
			live(t, RetryPolicy{MaxAttempts: most}, []act{how, how, how, how, how, how}, func(t *testing.T, l *life) {
				require.Error(t, l.call())
				assert.Equal(t, [2]int{want, want}, [2]int{l.sends(), l.in().Attempts})
			})
		}
	}
}

// Hops, layers and an SDK's loop inside the call share its attempts. Once used
// up, the last answer comes back at once, without a send.
func TestLife_HopsLayersAndLoopsShareTheAttempts(t *testing.T) {
	hop := actAnswer(307, "Location", "/again")
	for name, test := range map[string]struct {
		acts []act
		last int
	}{
		"hops":  {[]act{hop, hop, hop}, 307},
		"mixed": {[]act{actAnswer(503), hop, actAnswer(503)}, 503},
		"loop":  {[]act{actAnswer(503), actAnswer(429), actAnswer(503)}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, RetryPolicy{MaxAttempts: 3}, test.acts, func(t *testing.T, l *life) {
				layers := NewClient(&Transport{Journal: l.journal, Contracts: rigContract(), Base: l.transport, Name: "outer", Retry: l.transport.Retry})
				sdk := layers.HTTPClient()
				sdk.CheckRedirect = func(_ *http.Request, via []*http.Request) error {
					if len(via) > 5 {
						return http.ErrUseLastResponse
					}
					return nil
				}
				ctx := WithOperation(t.Context(), "order-1")
				for again := range 3 {
					begun := time.Now()
					resp, err := sdk.Do(l.request().WithContext(ctx))
					require.NoError(t, err)
					assert.Equal(t, [3]any{test.last, "act", 3}, [3]any{resp.StatusCode, readAndClose(t, resp), l.sends()})
					if again > 0 {
						assert.Zero(t, time.Since(begun), "at once")
					}
				}
				assert.Equal(t, 3, l.in().Attempts)
			})
		})
	}
}

// A later direct call has MaxAttempts of its own, and sends nothing before the
// due time.
func TestLife_LaterCallHasItsOwnAttemptsFromTheDueTimeOn(t *testing.T) {
	fail := actAnswer(503)
	live(t, RetryPolicy{MaxAttempts: 2, MinBackoff: 10 * time.Second}, []act{fail, fail, fail, fail, fail, fail}, func(t *testing.T, l *life) {
		requireUnknown(t, l.call(), StateUnknown)
		for _, sends := range []int{2, 4} {
			require.Equal(t, sends, l.sends())
			due := l.in().Due
			require.False(t, due.Before(time.Now().Add(10*time.Second)))
			l.restart(sends == 2)
			requireUnknown(t, l.call(), StateUnknown)
			assert.False(t, l.at[sends].Before(due), "before the due time")
		}
		require.Equal(t, 6, l.sends())
	})
}

// Counters and due times survive restarts.
func TestLife_CountersAndDueTimesSurviveRestarts(t *testing.T) {
	for _, killed := range []bool{false, true} {
		live(t, RetryPolicy{}, []act{actAnswer(503, "Retry-After", "3600")}, func(t *testing.T, l *life) {
			l.lost()
			l.resume()
			before := l.in()
			require.Equal(t, [2]int{2, 1}, [2]int{before.Attempts, before.Resumes})
			require.True(t, before.Due.After(time.Now().Add(59*time.Minute)))
			l.restart(killed)
			after := l.in()
			before.Version, after.Version = 0, 0
			assert.Equal(t, before, after)
		})
	}
}

// countedJournal notes the count of attempts that is durable.
type countedJournal struct {
	Journal
	durable int
}

func (j *countedJournal) Update(ctx context.Context, next Intent, a *Attempt, durable bool) (got Intent, err error) {
	if got, err = j.Journal.Update(ctx, next, a, durable); durable {
		j.durable = got.Attempts
	}
	return got, err
}

// Each attempt is counted durably before it starts.
func TestLife_AttemptIsCountedDurablyBeforeItStarts(t *testing.T) {
	live(t, RetryPolicy{MaxAttempts: 3}, nil, func(t *testing.T, l *life) {
		j := &countedJournal{Journal: l.journal, durable: 1} // Begin is
		l.transport.Journal = j
		check := func(req *http.Request, server http.RoundTripper) (*http.Response, error) {
			assert.Equal(t, l.sends(), j.durable, "counted durably")
			assert.Equal(t, l.sends(), count(t, l.path, `SELECT attempts FROM status WHERE state = 'in_flight'`), "in the file")
			return actAnswer(503)(req, server)
		}
		l.acts = []act{check, check, check, check, check}
		requireUnknown(t, l.call(), StateUnknown)
		time.Sleep(time.Minute)
		l.resume()
		require.Equal(t, 4, l.sends())
	})
}

// listens sets an OnSettled that notes what it is told and answers as it is
// made to.
func (l *life) listens(answer func(n int) error) {
	l.client.OnSettled = func(_ context.Context, in Intent) error {
		l.mu.Lock()
		l.told = append(l.told, in)
		n := len(l.told)
		l.mu.Unlock()
		return answer(n)
	}
}

func acknowledged(int) error { return nil }

// settlings are the ways to become final; returned are those that a direct call
// returned, prepared or not.
var settlings = []struct {
	name     string
	returned bool
	status   int
	settle   func(l *life)
}{
	{"resume, succeeded", false, 201, func(l *life) { l.lost(); l.resume() }},
	{"resume, rejected", false, 400, func(l *life) {
		l.crash(429, func() { _ = l.call() })
		l.listens(acknowledged)
		l.acts = append(l.acts, actAnswer(400))
		l.resume()
	}},
	{"stream read out", false, 200, func(l *life) { l.lost(); l.acts = append(l.acts, actStream(nil)); l.resume() }},
	{"verify", false, 0, func(l *life) { l.lost(); l.verifies(StateSucceeded, nil); l.resume() }},
	{"resolve", false, 0, func(l *life) { l.lost(); _, _ = resolved(l.client, l.t.Context(), l.in(), "ann", "") }},
	{"Do", true, 201, func(l *life) { require.NoError(l.t, l.call()) }},
	{"Do, rejected", true, 400, func(l *life) { l.acts = []act{actAnswer(400)}; _ = l.call() }},
	{"Do, redirected", true, 201, func(l *life) { l.acts = []act{actAnswer(307, "Location", "/again")}; require.NoError(l.t, l.call()) }},
	{"Continue", true, 201, func(l *life) { l.lost(); require.NoError(l.t, l.continues()) }},
	{"HTTPClient", true, 201, func(l *life) {
		resp, err := l.client.HTTPClient().Do(l.request().WithContext(WithOperation(l.t.Context(), "order-1")))
		require.NoError(l.t, err)
		readAndClose(l.t, resp)
	}},
}

// Told, with outcome and body, is every final state that no direct call
// returned, and every one of a prepared intent; a call's own end owes nothing,
// and with no OnSettled at the settlement nothing is owed.
func TestOnSettled_IsToldWhatNoCallReturnedAndWhatWasPrepared(t *testing.T) {
	for _, s := range settlings {
		for _, prepared := range []bool{false, true} {
			for _, listening := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/prepared=%v/listening=%v", s.name, prepared, listening), func(t *testing.T) {
					live(t, RetryPolicy{MaxAttempts: 2, MinBackoff: time.Millisecond}, nil, func(t *testing.T, l *life) {
						if listening {
							l.listens(acknowledged)
						}
						if prepared {
							l.prepares()
						}
						s.settle(l)
						require.True(t, l.in().State.Final())
						l.restart(false)
						l.listens(acknowledged)
						l.resume()
						l.run(time.Minute)
						require.False(t, l.in().Notify)
						if !listening && s.name != "resume, rejected" || s.returned && !prepared {
							require.Empty(t, l.told)
							return
						}
						require.Len(t, l.told, 1)
						told, in := l.told[0], l.in()
						assert.Equal(t, [3]any{in.State, in.Key, in.Outcome}, [3]any{told.State, told.Key, told.Outcome})
						assert.Equal(t, s.status, told.Outcome.StatusCode)
						assert.Equal(t, s.status == 201 || s.status == 400, len(told.Outcome.Body) > 0)
					})
				})
			}
		}
	}
}
