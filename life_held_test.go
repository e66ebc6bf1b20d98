package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// held is the intent that is held, whatever its name.
func (l *life) held() Intent {
	l.t.Helper()
	list, err := l.journal.List(l.t.Context(), Filter{States: []State{StateHeld}})
	require.NoError(l.t, err)
	require.Len(l.t, list, 1)
	return list[0]
}

// closed changes the file between two lives.
func (l *life) closed(statement string, args ...any) {
	l.t.Helper()
	require.NoError(l.t, l.journal.Close())
	db := inspect(l.t, l.path)
	_, err := db.Exec(statement, args...)
	require.NoError(l.t, err)
	require.NoError(l.t, db.Close())
	l.open()
}

// copied goes on with a copy of the journal.
func (l *life) copied() {
	l.t.Helper()
	require.NoError(l.t, l.journal.Close())
	file, err := os.ReadFile(l.path)
	require.NoError(l.t, err)
	l.path = filepath.Join(l.t.TempDir(), "copy.db")
	require.NoError(l.t, os.WriteFile(l.path, file, 0o600))
	l.open()
}

// lost leaves order-1 in doubt, and due.
func (l *life) lost() {
	l.t.Helper()
	l.transport.Retry.MaxAttempts = 1
	l.acts = slices.Insert(l.acts, l.sends(), act(actLost))
	requireUnknown(l.t, l.call(), StateUnknown)
	time.Sleep(time.Minute)
}

const damage = `UPDATE intent SET body = CAST(replace(CAST(body AS TEXT), '42', '43') AS BLOB)`

// holding is a way to become held.
type holding struct {
	reason HoldReason
	doubt  bool
	helps  string // part of what the error of a call says would help
	acts   []act
	reach  func(l *life)
}

var holdings = []holding{
	{HoldExpired, true, "look at the provider's side", nil, func(l *life) { l.lost(); time.Sleep(24 * time.Hour); l.resume() }},
	{HoldStoredFailure, true, "look at the provider's side", []act{actAnswer(500, "Idempotent-Replayed", "true")}, func(l *life) { _ = l.call() }},
	{HoldExhausted, true, "release it", []act{actAnswer(503)}, func(l *life) { l.lost(); l.resume() }},
	{HoldExhausted, false, "release it", []act{actAnswer(429)}, func(l *life) { l.prepares(); l.resume() }},
	{HoldPoison, true, "find out why", nil, func(l *life) { l.crash(0, func() { _ = l.call() }); l.resume() }},
	{HoldCredentials, true, "Client.Authorize", nil, func(l *life) {
		req := l.request()
		req.Header.Set("Authorization", "Bearer x")
		l.crash(503, func() { _, _ = l.client.Do("order-1", req) })
		l.resume()
	}},
	{HoldCredentials, false, "Client.Authorize", []act{actAnswer(401)}, func(l *life) { l.prepares(); l.resume() }},
	{HoldUnnamed, true, "", nil, func(l *life) { l.crash(503, func() { _, _ = l.transport.RoundTrip(l.request()) }); l.resume() }},
	{HoldUnnamed, false, "", nil, func(l *life) { l.crash(429, func() { _, _ = l.transport.RoundTrip(l.request()) }); l.resume() }},
	{HoldNoContract, true, "contract.Keyed", []act{actLost}, func(l *life) { l.transport.Contracts = contract.First(); _ = l.call() }},
	{HoldNotKept, true, "look at the provider's side", []act{actStream(errReset)}, func(l *life) {
		resp, err := l.client.Do("order-1", l.request())
		require.NoError(l.t, err)
		resp.Body.Close()
	}},
	{HoldRedirect, true, "look at the provider's side", []act{actAnswer(300)}, func(l *life) { _ = l.call() }},
	{HoldRedirect, false, "look at the provider's side", []act{actAnswer(307, "Location", "http://other.example/")}, func(l *life) { l.prepares(); l.resume() }},
	{HoldUnsettlingAnswer, true, "look at the provider's side", []act{actAnswer(400)}, func(l *life) { l.lost(); _ = l.call() }},
	{HoldCopied, true, "make sure that only one is in use", nil, func(l *life) { l.lost(); l.copied() }},
	{HoldCopied, false, "make sure that only one is in use", nil, func(l *life) { l.prepares(); l.copied() }},
	{HoldClock, true, "set the clock", nil, func(l *life) {
		l.lost()
		l.closed(`UPDATE meta SET value = ? WHERE name = 'clock'`, time.Now().Add(time.Hour).UnixNano())
	}},
	{HoldChecksum, true, "look at the provider's side", nil, func(l *life) { l.lost(); l.closed(damage); l.resume() }},
	{HoldChecksum, false, "look at the provider's side", nil, func(l *life) { l.prepares(); l.closed(damage); l.resume() }},
}

// actStream answers with a stream, which breaks with an error.
func actStream(err error) act {
	return func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
		closeBody(req)
		return eventStream(io.NopCloser(io.MultiReader(strings.NewReader("data: x\n\n"), iotest.ErrReader(cmp.Or(err, io.EOF))))), nil
	}
}

func (h holding) String() string { return fmt.Sprintf("%s, doubt=%v", h.reason, h.doubt) }

// held runs f on an intent that is held so.
func (h holding) held(t *testing.T, f func(t *testing.T, l *life, seen Intent)) {
	live(t, RetryPolicy{MaxAttempts: 1, ResumeAttempts: 1, MaxDeaths: 1}, h.acts, func(t *testing.T, l *life) {
		h.reach(l)
		seen := l.held()
		require.Equal(t, h.reason, seen.HoldReason)
		require.Equal(t, h.doubt, seen.Doubt)
		f(t, l, seen)
	})
}

func resolved(c *Client, ctx context.Context, seen Intent, by, note string) (Intent, error) {
	return c.Resolve(ctx, seen, StateSucceeded, by, note)
}

// decisions are what a person can do, where it is allowed, and what it leads to
// without doubt and in doubt.
var decisions = []struct {
	name    string
	decide  func(c *Client, ctx context.Context, seen Intent, by, note string) (Intent, error)
	allowed func(h holding) bool
	becomes map[bool]State
}{
	{"Release", (*Client).Release, func(h holding) bool { return h.reason != HoldExpired && h.reason != HoldNoContract }, map[bool]State{true: StateUnknown, false: StatePending}},
	{"ReleaseExpired", (*Client).ReleaseExpired, func(h holding) bool { return h.reason == HoldExpired }, map[bool]State{true: StateUnknown}},
	{"Resolve", resolved, func(holding) bool { return true }, map[bool]State{true: StateSucceeded, false: StateSucceeded}},
	{"Withdraw", (*Client).Withdraw, func(h holding) bool { return !h.doubt }, map[bool]State{false: StateWithdrawn}},
}

// Held is never sent, by no resume and no call; the error of a call says the
// reason, and what would help.
func TestLife_EveryHoldReasonIsReachable(t *testing.T) {
	reached := map[HoldReason]bool{}
	for _, h := range holdings {
		reached[h.reason] = true
		t.Run(h.String(), func(t *testing.T) {
			h.held(t, func(t *testing.T, l *life, seen Intent) {
				if h.reason == HoldUnnamed { // nobody can call it again
					l.unsent()
				} else {
					for _, err := range []error{l.call(), l.continues()} {
						requireUnknown(t, err, StateHeld)
						require.ErrorIs(t, err, ErrHeld)
						assert.ErrorContains(t, err, "held ("+string(h.reason)+")")
						assert.ErrorContains(t, err, h.helps)
						var failure *OperationError
						require.ErrorAs(t, err, &failure)
						assert.Equal(t, h.reason, failure.HoldReason)
					}
					l.still()
				}
				after := l.held()
				assert.Equal(t, [2]any{seen.Version, seen.HoldReason}, [2]any{after.Version, after.HoldReason}, "nothing changed")
			})
		})
	}
	reached[HoldBodyNotKept] = true // which a call ends: TestKilledWithoutItsBody
	assert.Len(t, reached, len(holdText))
}

// Held is left by a decision only: which are allowed, and which are refused and
// change nothing.
func TestLife_HeldIsLeftByADecision(t *testing.T) {
	for _, h := range holdings {
		for _, allowed := range decisions {
			if !allowed.allowed(h) {
				continue
			}
			t.Run(h.String()+"/"+allowed.name, func(t *testing.T) {
				h.held(t, func(t *testing.T, l *life, seen Intent) {
					for _, refused := range decisions {
						if refused.allowed(h) {
							continue
						}
						_, err := refused.decide(l.client, t.Context(), seen, "ann", "why")
						requireUnknown(t, err, StateHeld)
						require.ErrorContains(t, err, "nothing was changed", refused.name)
						require.Equal(t, seen.Version, l.held().Version)
					}
					got, err := allowed.decide(l.client, t.Context(), seen, "ann", "why")
					require.NoError(t, err)
					assert.Equal(t, allowed.becomes[h.doubt], got.State)
					assert.Equal(t, [2]string{"ann", "why"}, [2]string{got.By, got.Note})
					h.left(t, l, seen, got)
				})
			})
		}
	}
}

// left checks what a decision brought: what is released is sent, once, under
// its key, unless its row is damaged or its credentials are missing.
func (h holding) left(t *testing.T, l *life, seen, got Intent) {
	sends := l.sends()
	l.acts = nil
	released := got.State == StatePending || got.State == StateUnknown
	assert.Equal(t, h.doubt && released, got.Doubt)
	if released {
		assert.Equal(t, [3]any{0, 0, true}, [3]any{got.Resumes, got.Deaths, got.Due.IsZero()})
	}
	if !released || h.reason == HoldChecksum || h.reason == HoldCredentials && h.doubt {
		l.unsent()
		return
	}
	l.resume()
	require.Equal(t, sends+1, l.sends())
	assert.Equal(t, seen.Key, l.keys[sends])
}

// A decision names the intent as it was seen: if it moved, or a call is at it,
// nothing is done.
func TestLife_DecisionOnWhatMovedDoesNothing(t *testing.T) {
	for _, d := range decisions {
		live(t, RetryPolicy{MaxAttempts: 1, ResumeAttempts: 1}, []act{actAnswer(429)}, func(t *testing.T, l *life) {
			l.prepares()
			l.resume()
			l.closed(`UPDATE status SET hold_reason = 'expired'`)
			old := l.held()
			moved, err := l.client.Release(t.Context(), old, "bob", "first")
			require.NoError(t, err)
			refused := func(seen Intent) {
				_, err := d.decide(l.client, context.Background(), seen, "ann", "why")
				assert.ErrorIs(t, err, ErrUnknownOutcome, d.name)
				assert.ErrorIs(t, err, ErrBusy, d.name)
				assert.ErrorContains(t, err, "nothing was changed")
			}
			refused(old)
			after := l.in()
			assert.Equal(t, [3]any{moved.Version, moved.State, "bob"}, [3]any{after.Version, after.State, after.By})
			l.acts = append(l.acts, func(req *http.Request, server http.RoundTripper) (*http.Response, error) {
				refused(old)
				return server.RoundTrip(req)
			})
			require.NoError(t, l.call())
			assert.Equal(t, "bob", l.in().By)
		})
	}
}

// ReleaseExpired restarts the key's life, and may execute a second time.
func TestLife_ReleaseExpiredMayExecuteTwice(t *testing.T) {
	live(t, RetryPolicy{MaxAttempts: 1}, []act{actLost, actAnswer(503)}, func(t *testing.T, l *life) {
		require.Error(t, l.call())
		time.Sleep(24 * time.Hour)
		l.resume()
		in, err := l.client.ReleaseExpired(t.Context(), l.held(), "ann", "looked")
		require.NoError(t, err)
		assert.Equal(t, [2]time.Time{time.Now().UTC(), time.Now().UTC().Add(24*time.Hour - 10*time.Minute)}, [2]time.Time{in.FirstSent, in.Expires})
		l.resume()
		time.Sleep(23 * time.Hour)
		l.resume()
		assert.Equal(t, StateSucceeded, l.in().State)
		assert.Equal(t, 2, l.effects(), "the server forgot the key")
		assert.Equal(t, l.keys[0], l.keys[2])
	})
	virtually(t, func(t *testing.T) { // where the server honours no keys, even that is refused
		l := newLife(t, rigContract(), RetryPolicy{MaxAttempts: 1}, actLost)
		require.Error(t, l.call())
		time.Sleep(24 * time.Hour)
		l.resume()
		l.transport.Contracts = contract.Unsupported
		_, err := l.client.ReleaseExpired(t.Context(), l.held(), "ann", "")
		requireUnknown(t, err, StateHeld)
		l.still()
	})
}

// Resolve is a person's word, with who and why; it is final.
func TestLife_ResolveIsAPersonsWord(t *testing.T) {
	for _, to := range []State{StateSucceeded, StateRejected} {
		live(t, RetryPolicy{MaxAttempts: 1}, nil, func(t *testing.T, l *life) {
			l.lost()
			seen := l.in()
			for _, wrong := range []State{StateUnknown, StateWithdrawn, StateHeld, StatePending, ""} {
				_, err := l.client.Resolve(t.Context(), seen, wrong, "ann", "")
				require.ErrorContains(t, err, "succeeded or rejected")
			}
			_, err := l.client.Resolve(t.Context(), seen, to, "", "nobody")
			require.ErrorContains(t, err, "who decides")
			_, err = l.client.Resolve(t.Context(), seen, to, "ann", "asked them")
			require.NoError(t, err)
			l.restart(true)
			in := l.in()
			assert.Equal(t, [4]any{to, "ann", "asked them", false}, [4]any{in.State, in.By, in.Note, in.Doubt})
			for _, err := range []error{l.call(), l.continues()} {
				require.ErrorIs(t, err, ErrNotKept)
				require.NotErrorIs(t, err, ErrUnknownOutcome)
			}
			l.unsent()
		})
	}
}

// verifies sets a Verify that answers so, and notes when it was asked.
func (l *life) verifies(state State, err error) {
	l.client.Verify = func(ctx context.Context, in Intent) (State, error) {
		l.asked = append(l.asked, time.Now())
		_, limited := ctx.Deadline()
		assert.True(l.t, limited && in.Doubt && in.Request == nil)
		return state, err
	}
}

// doubts are ways to be in doubt, with and without a resend that is allowed.
var doubts = []struct {
	name string
	hold HoldReason // that the next resume finds, or leaves
	make func(l *life)
}{
	{"unknown", "", (*life).lost},
	{"expired", HoldExpired, func(l *life) { l.lost(); time.Sleep(24 * time.Hour) }},
	{"no contract", HoldNoContract, func(l *life) { l.acts, l.transport.Contracts = []act{actLost}, contract.First(); _ = l.call() }},
	{"copied", HoldCopied, func(l *life) { l.lost(); l.copied() }},
}

// A read that finds the effect settles it before a resend, and where none is
// allowed. "Not there" finalises nothing: it permits a resend under the same key
// that is allowed anyway. No call asks, and nothing is asked without doubt.
func TestVerify_ProofSettlesAndNotFoundOnlyPermits(t *testing.T) {
	for _, d := range doubts {
		for _, found := range []State{StateSucceeded, StateUnknown} {
			t.Run(d.name+"/"+string(found), func(t *testing.T) {
				live(t, RetryPolicy{MaxAttempts: 1}, nil, func(t *testing.T, l *life) {
					l.others(1)
					l.verifies(found, nil)
					d.make(l)
					require.Empty(t, l.asked)
					l.verifies(found, nil) // the client may be another one
					report := l.resume()
					require.NotEmpty(t, l.asked)
					in := l.in()
					if found == StateUnknown && d.hold != "" {
						assert.Equal(t, [2]any{d.hold, true}, [2]any{in.HoldReason, in.Doubt})
						l.still()
						return
					}
					assert.Equal(t, [2]any{StateSucceeded, false}, [2]any{in.State, in.Doubt})
					if found == StateUnknown {
						assert.Equal(t, 2, strings.Count(strings.Join(l.keys, " "), in.Key))
						return
					}
					assert.Equal(t, [2]any{"verify", &Outcome{}}, [2]any{in.By, in.Outcome})
					require.ErrorIs(t, l.call(), ErrNotKept)
					if d.name != "copied" { // then the others are held too
						assert.Equal(t, 2, report.Settled)
						assert.Equal(t, 2, l.sends(), "the other one's, and the first")
					}
				})
			})
		}
	}
}

// An error, and any other answer of it, settles nothing; the resend waits, as
// one of the ResumeAttempts.
func TestVerify_ErrorOrRejectedSettlesNothing(t *testing.T) {
	for state, err := range map[State]error{StateRejected: nil, StateHeld: nil, "": nil, StateSucceeded: errReset, StateUnknown: errReset} {
		live(t, RetryPolicy{MaxAttempts: 1, ResumeAttempts: 3}, nil, func(t *testing.T, l *life) {
			l.lost()
			l.verifies(state, err)
			for n := 1; n <= 3; n++ {
				l.resume()
				in := l.in()
				require.Equal(t, [2]int{n, 1}, [2]int{in.Resumes, in.Attempts})
				require.Equal(t, n < 3, in.State == StateUnknown && in.Due.After(time.Now()))
				time.Sleep(time.Minute)
			}
			for range 3 {
				assert.Equal(t, HoldExhausted, l.held().HoldReason)
				time.Sleep(time.Hour)
				l.resume()
			}
			assert.Greater(t, len(l.asked), 4, "held is read too")
			assert.True(t, l.held().Doubt)
			assert.Equal(t, 1, l.sends())
		})
	}
}

// What is held in doubt is read again, from a minute on at growing intervals up
// to six hours, over restarts.
func TestVerify_HeldIsReadAgainAtGrowingIntervals(t *testing.T) {
	live(t, RetryPolicy{MaxAttempts: 1}, nil, func(t *testing.T, l *life) {
		l.lost()
		time.Sleep(24 * time.Hour)
		l.verifies(StateUnknown, nil)
		l.resume() // held from now on, and read just before
		for wait := time.Minute; len(l.asked) < 12; wait = min(2*wait, 6*time.Hour) {
			asked := len(l.asked)
			require.Equal(t, wait, time.Until(l.held().Due))
			l.restart(false)
			l.verifies(StateUnknown, nil)
			time.Sleep(wait - 1)
			l.resume()
			require.Len(t, l.asked, asked)
			time.Sleep(time.Nanosecond)
			l.resume()
			require.Len(t, l.asked, asked+1)
		}
		l.verifies(StateSucceeded, nil)
		l.run(7 * time.Hour)
		assert.Equal(t, StateSucceeded, l.in().State)
		assert.Equal(t, 1, l.sends())
	})
}

// A Verify that hangs ends with AttemptTimeout, before a resend and when held.
func TestVerify_HungOneEndsWithAttemptTimeout(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 5 * time.Second: 5 * time.Second} {
		live(t, RetryPolicy{AttemptTimeout: limit}, nil, func(t *testing.T, l *life) {
			l.lost()
			l.client.Verify = func(ctx context.Context, _ Intent) (State, error) { <-ctx.Done(); return StateUnknown, ctx.Err() }
			for _, held := range []HoldReason{"", "", HoldExpired, HoldExpired} {
				begun := time.Now()
				l.resume()
				assert.Equal(t, want, time.Since(begun))
				assert.Equal(t, held, l.in().HoldReason)
				time.Sleep(12 * time.Hour)
			}
			assert.Equal(t, 1, l.sends())
		})
	}
}

// After an error it is told again, later each time, over restarts.
func TestOnSettled_ErrorIsToldAgainWithGrowingBackoff(t *testing.T) {
	live(t, RetryPolicy{}, nil, func(t *testing.T, l *life) {
		l.prepares()
		var last time.Duration
		for n := 1; n <= 24; n++ {
			l.listens(func(int) error { return errors.New("not now") })
			assert.Equal(t, 1, l.resume().Waiting)
			require.Len(t, l.told, n)
			wait := l.in().Wait
			assert.Equal(t, wait, time.Until(l.in().Due))
			assert.True(t, wait >= last*3/2 || wait == 10*defaultMaxBackoff, "%v after %v", wait, last)
			last = wait
			time.Sleep(wait - 1)
			l.restart(false)
			l.listens(acknowledged)
			l.resume()
			require.Len(t, l.told, n, "not before it is due")
			time.Sleep(time.Nanosecond)
		}
		assert.Equal(t, 10*defaultMaxBackoff, last)
		assert.Equal(t, 1, l.resume().Notified)
		assert.Zero(t, l.resume().Notified)
	})
}

// A panic in it goes up, and it is told again; so it is after a crash before
// the acknowledgement.
func TestOnSettled_PanicAndCrashAreToldAgain(t *testing.T) {
	for _, run := range []bool{false, true} {
		live(t, RetryPolicy{}, nil, func(t *testing.T, l *life) {
			l.prepares()
			l.listens(func(int) error { panic("boom") })
			require.PanicsWithValue(t, "boom", func() {
				if run {
					_ = l.client.Run(t.Context())
				}
				_, _ = l.client.Resume(t.Context())
			})
			require.True(t, l.in().Notify)
			time.Sleep(time.Minute)
			l.listens(func(int) error { l.kill(); return nil })
			_, err := l.client.Resume(t.Context())
			require.ErrorIs(t, err, ErrJournal, "not acknowledged")
			l.open()
			time.Sleep(time.Minute)
			l.listens(acknowledged)
			assert.Equal(t, 1, l.resume().Notified)
			l.run(time.Minute)
			assert.Len(t, l.told, 3)
			assert.Equal(t, 1, l.sends())
		})
	}
}
