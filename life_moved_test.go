package idem

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/idem-go/idem/faultinjection"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Resolve of an intent that moved since it was seen does nothing: Ann sees it
// held, Bob releases it, it is on its way; Ann's "rejected" must not end it.
func TestLife_ResolveOfWhatMovedDoesNothing(t *testing.T) {
	fail := actAnswer(503)
	live(t, RetryPolicy{MaxAttempts: 1, ResumeAttempts: 1}, []act{fail}, func(t *testing.T, l *life) {
		l.lost()
		l.resume()
		seen := l.held()
		_, err := l.client.Release(t.Context(), seen, "bob", "")
		require.NoError(t, err)
		l.acts = append(l.acts, func(req *http.Request, server http.RoundTripper) (*http.Response, error) {
			_, err := l.client.Resolve(context.Background(), seen, StateRejected, "ann", "") // in the middle of the attempt
			assert.ErrorIs(t, err, ErrBusy)
			return server.RoundTrip(req)
		})
		l.resume()
		in := l.in()
		assert.Equal(t, StateSucceeded, in.State, "it took effect: %d", l.effects())
	})
}

// A person's word does not end what a call is at right now, and the call's true
// answer is not thrown away.
func TestLife_ResolveWhileACallIsAtIt(t *testing.T) {
	live(t, RetryPolicy{MaxAttempts: 1}, nil, func(t *testing.T, l *life) {
		l.acts = []act{func(req *http.Request, server http.RoundTripper) (*http.Response, error) {
			_, err := l.client.Resolve(context.Background(), l.in(), StateRejected, "ann", "")
			assert.ErrorIs(t, err, ErrBusy)
			return server.RoundTrip(req)
		}}
		require.NoError(t, l.call())
		assert.Equal(t, StateSucceeded, l.in().State)
		assert.Equal(t, 1, l.effects())
	})
}

// Withdraw, through the handle that a call waits on, of a pending intent: busy,
// as it is through another handle; and the call never says unknown of what
// provably did not execute.
func TestLife_WithdrawWhileACallWaits(t *testing.T) {
	live(t, RetryPolicy{}, []act{actUnsent}, func(t *testing.T, l *life) {
		ended := make(chan error)
		go func() { ended <- l.call() }()
		time.Sleep(time.Millisecond)
		in := l.in()
		require.Equal(t, StatePending, in.State)
		_, err := l.client.Withdraw(t.Context(), in, "ann", "")
		assert.ErrorIs(t, err, ErrBusy)
		assert.NotErrorIs(t, <-ended, ErrUnknownOutcome)
	})
}

// A late true answer, written over a lost claim, does not set the count of
// attempts back (internal/sqlite/update.go, force: forceStatus writes the stale
// Attempts, Resumes, By, ... of the owner that lost its claim).
func TestLife_LateAnswerDoesNotSetTheCountersBack(t *testing.T) {
	live(t, RetryPolicy{MaxAttempts: 1}, nil, func(t *testing.T, l *life) {
		l.acts = []act{l.loses(actAnswer(503), actAnswer(201))}
		require.NoError(t, l.call())
		in := l.in()
		attempts, err := l.journal.Attempts(t.Context(), in)
		require.NoError(t, err)
		require.Len(t, attempts, 2)
		assert.Equal(t, 2, in.Attempts, "a send more went out")
		require.NoError(t, l.journal.Close())
		checkFile(t, l.path)
	})
}

// What remains of a wait is min(due - now, wait) for Resume and Run too: after
// the clock was set back by a year, a prepared intent is not delivered a year
// late (internal/sqlite/statements.go, selectDueFree: s.due <= ? only).
func TestLife_ResumeDoesNotWaitForAClockThatWasSetBack(t *testing.T) {
	live(t, RetryPolicy{MaxAttempts: 1}, []act{actAnswer(429, "Retry-After", "60")}, func(t *testing.T, l *life) {
		l.prepares()
		l.resume()
		require.Equal(t, StatePending, l.in().State)
		const year = 365 * 24 * time.Hour
		l.closed(`UPDATE status SET due = due + ?`, int64(year))
		l.closed(`UPDATE meta SET value = CAST(value AS INTEGER) + ? WHERE name = 'clock'`, int64(year))
		require.LessOrEqual(t, l.in().Wait, 66*time.Second)
		l.run(time.Hour)
		assert.Equal(t, StateSucceeded, l.in().State)
	})
}

// OnSettled hears of older generations first, though the older one is put off.
func TestOnSettled_OlderGenerationsFirst(t *testing.T) {
	live(t, RetryPolicy{}, []act{actAnswer(400)}, func(t *testing.T, l *life) {
		l.listens(func(int) error { return errors.New("not now") })
		first := l.prepares()
		l.resume()
		require.Len(t, l.told, 1)
		_, err := l.client.Prepare("order-1", mustRequest(t, WithRenewal(t.Context(), first.Key), rigURL, orderBody(2)))
		require.NoError(t, err)
		l.listens(acknowledged)
		l.resume()
		assert.Len(t, l.told, 1, "the older one is not due yet")
		time.Sleep(time.Minute)
		l.resume()
		l.run(time.Minute)
		require.Len(t, l.told, 3)
		assert.Equal(t, []int{1, 1, 2}, []int{l.told[0].Generation, l.told[1].Generation, l.told[2].Generation})
	})
}

// A wait of our own is not kept for a call that nobody makes; one that the
// server named is.
func TestLife_CancelledInABackoff(t *testing.T) {
	for asked, keeps := range map[time.Duration]bool{0: false, 10 * time.Second: true} {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.Status(429, asked))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			_, _, err := r.do(ctx, "order-1", orderBody(1))
			require.ErrorIs(t, err, ErrNotSent)
			in := r.lookup("order-1")
			assert.Equal(t, StateWithdrawn, in.State)
			assert.Equal(t, keeps, !in.Due.IsZero(), "asked for %s", asked)
		})
	}
}

// What would help where Authorize keeps failing is other credentials.
func TestLife_AuthorizeThatKeepsFailingIsHeldCredentials(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		asked := 0
		r.client.Authorize = func(*http.Request, Intent) error {
			asked++
			return errors.New("token source is down")
		}
		r.prepare(rigURL, "order-1")
		defer r.running()()
		time.Sleep(4 * time.Hour)
		in := r.lookup("order-1")
		assert.Equal(t, HoldCredentials, in.HoldReason)
		assert.Equal(t, defaultResumeAttempts, asked)
		assert.Empty(t, r.arrivals())
	})
}

// Credentials that are refused again and again are held; a refusal that is
// followed by better ones is not.
func TestLife_RefusedCredentialsAreTriedAFewTimes(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		for refusals, want := range map[int]State{credentialTries - 1: StateSucceeded, credentialTries: StateHeld} {
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				var steps []faultinjection.Step
				if doubt {
					steps = append(steps, faultinjection.DieAfterEffect)
				}
				for range refusals {
					steps = append(steps, faultinjection.Status(401))
				}
				r.server.Plan(steps...)
				r.client.Authorize = func(*http.Request, Intent) error { return nil }
				r.prepare(rigURL, "order-1")
				r.transport.Retry.MaxAttempts = 1
				if doubt {
					_, _, err := r.do(t.Context(), "order-1", orderBody(0))
					require.ErrorIs(t, err, ErrUnknownOutcome)
				}
				stop := r.running()
				time.Sleep(time.Hour)
				stop()
				in := r.lookup("order-1")
				assert.Equal(t, want, in.State, "%d refusals, doubt %v", refusals, doubt)
				if want == StateHeld {
					reason := map[bool]HoldReason{false: HoldCredentials, true: HoldUnsettlingAnswer}[doubt]
					assert.Equal(t, reason, in.HoldReason)
				}
			})
		}
	}
}
