package idem

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// This file is about waits, claims, crashes and resumes.

// A wait longer than the caller's patience (MaxBackoff, the context's deadline)
// frees it at once, with the response in hand.
func TestLife_LongWaitFreesTheCallerWithTheAnswerInHand(t *testing.T) {
	for _, patience := range []time.Duration{time.Hour, 5 * time.Second} {
		for _, status := range []int{429, 503} {
			wait := map[time.Duration]string{time.Hour: "31", 5 * time.Second: "6"}[patience]
			live(t, RetryPolicy{}, []act{actAnswer(status, "Retry-After", wait)}, func(t *testing.T, l *life) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				begun := time.Now()
				_, _, err := l.do(ctx, "order-1", orderBody(1))
				assert.Zero(t, time.Since(begun), "at once")
				var failure *OperationError
				require.ErrorAs(t, err, &failure)
				assert.Equal(t, status, failure.Response.StatusCode)
				assert.Equal(t, "act", readAndClose(t, failure.Response))
				assert.Equal(t, 1, l.sends())
			})
		}
	}
}

// parkings are the ways to be left with a wait of an hour, and the state that
// the answer gave.
var parkings = []struct {
	prepared bool
	status   int
	state    State
}{{false, 429, StateWithdrawn}, {true, 429, StatePending}, {false, 503, StateUnknown}, {true, 503, StateUnknown}}

// The state of a parked intent is what the answer gave. Nobody sends it before
// the due time, over restarts; waiting uses no attempts.
func TestLife_ParkedIntentIsNotSentBeforeItsTime(t *testing.T) {
	for _, test := range parkings {
		for _, killed := range []bool{false, true} {
			acts := []act{actAnswer(test.status, "Retry-After", "3600")}
			live(t, RetryPolicy{ResumeAttempts: 1}, acts, func(t *testing.T, l *life) {
				if test.prepared {
					l.prepares()
				}
				require.Error(t, l.call())
				parked := l.in()
				require.Equal(t, test.state, parked.State)
				require.Equal(t, test.state == StateUnknown, parked.Doubt)
				require.True(t, parked.Due.After(time.Now().Add(time.Hour-time.Second)))
				for range 3 {
					l.restart(killed)
					l.still()
					time.Sleep(15 * time.Minute)
				}
				in := l.in()
				assert.Equal(t, [4]any{parked.State, parked.Due, 1, 0}, [4]any{in.State, in.Due, in.Attempts, in.Resumes})
				time.Sleep(time.Until(parked.Due) - time.Second)
				l.resume()
				require.Equal(t, 1, l.sends())
				time.Sleep(time.Second)
				if l.resume(); test.state == StateWithdrawn {
					require.Equal(t, 1, l.sends(), "by a new call only")
					require.NoError(t, l.call())
				}
				assert.Equal(t, 2, l.sends())
				assert.Equal(t, StateSucceeded, l.in().State)
			})
		}
	}
}

// A wait longer than the key's life: in doubt it is not sent any more; what
// cannot have executed is, since its key does not age.
func TestLife_WaitLongerThanTheKeysLife(t *testing.T) {
	for _, test := range parkings {
		virtually(t, func(t *testing.T) {
			l := newLife(t, contract.Keyed("Idempotency-Key", 10*time.Minute), RetryPolicy{}, actAnswer(test.status, "Retry-After", "3600"))
			if test.prepared {
				l.prepares()
			}
			require.Error(t, l.call())
			require.True(t, l.in().Expires.Before(l.in().Due))
			l.still()
			time.Sleep(2 * time.Hour)
			if test.state != StateUnknown {
				require.NoError(t, l.call())
				return
			}
			requireUnknown(t, l.call(), StateUnknown)
			require.Len(t, l.resume().Held, 1)
			assert.Equal(t, HoldExpired, l.in().HoldReason)
			assert.Equal(t, 1, l.sends())
		})
	}
}

// The due time and the length of the wait are both stored; what remains is the
// shorter of both, so that a clock that was set back does not stretch it.
func TestLife_WhatRemainsIsTheShorterOfDueAndWait(t *testing.T) {
	for _, rest := range [][2]time.Duration{{10 * time.Hour, 10 * time.Second}, {10 * time.Second, 10 * time.Hour}} {
		live(t, RetryPolicy{MaxAttempts: 1}, []act{actLost}, func(t *testing.T, l *life) {
			requireUnknown(t, l.call(), StateUnknown)
			require.NoError(t, l.journal.Close())
			db := inspect(t, l.path)
			_, err := db.Exec(`UPDATE status SET due = ?, wait = ?`, time.Now().Add(rest[0]).UnixNano(), int64(rest[1]))
			require.NoError(t, err)
			require.NoError(t, db.Close())
			l.open()
			begun := time.Now()
			require.NoError(t, l.call())
			assert.Equal(t, 10*time.Second, l.at[1].Sub(begun))
		})
	}
}

// Cancelling means to stop waiting: with nothing executed, withdrawn; else doubt,
// which a resume settles.
func TestLife_CancelLeavesWithdrawnOrDoubtThatResumeSettles(t *testing.T) {
	for _, executed := range []bool{false, true} {
		for _, inTheSend := range []bool{false, true} {
			live(t, RetryPolicy{}, nil, func(t *testing.T, l *life) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				how := actUnsent
				if executed {
					how = actLost
				}
				l.acts = []act{func(req *http.Request, server http.RoundTripper) (*http.Response, error) {
					defer time.AfterFunc(map[bool]time.Duration{true: 0, false: time.Millisecond}[inTheSend], leave)
					defer time.Sleep(time.Microsecond)
					return how(req, server)
				}}
				_, _, err := l.do(ctx, "order-1", orderBody(1))
				require.ErrorIs(t, err, context.Canceled)
				if !executed {
					requireNotSent(t, err)
					assert.Equal(t, StateWithdrawn, l.in().State)
					l.unsent()
					return
				}
				requireUnknown(t, err, StateUnknown)
				requireResumed(t, l.rig, "order-1")
			})
		}
	}
}

// The write after a send does not use the caller's cancelled context.
func TestLife_EndIsRecordedThoughTheCallerLeft(t *testing.T) {
	for status, state := range map[int]State{201: StateSucceeded, 400: StateRejected, 503: StateUnknown, 429: StateWithdrawn} {
		live(t, RetryPolicy{}, nil, func(t *testing.T, l *life) {
			ctx, leave := context.WithCancel(t.Context())
			l.acts = []act{func(req *http.Request, server http.RoundTripper) (*http.Response, error) {
				leave()
				return actAnswer(status)(req, server)
			}}
			_, _, err := l.do(ctx, "order-1", orderBody(1))
			assert.Equal(t, state.Final(), err == nil, "the answer is here")
			l.restart(status != 201) // what is only posted is not lost by an end in good order
			assert.Equal(t, state, l.in().State)
			attempts, err := l.journal.Attempts(t.Context(), l.in())
			require.NoError(t, err)
			require.Len(t, attempts, 1)
			assert.Equal(t, status, attempts[0].StatusCode)
		})
	}
}

// Who shares another's answer does not inherit its cancellation: when the leader
// leaves, a joiner takes over, under the same key.
func TestLife_JoinerTakesOverWhenTheLeaderLeaves(t *testing.T) {
	for _, how := range []act{actUnsent, actLost} {
		live(t, RetryPolicy{}, []act{actSlow(time.Second, how)}, func(t *testing.T, l *life) {
			leading, leave := context.WithCancel(t.Context())
			ends := make(chan error, 2)
			go func() {
				_, _, err := l.do(leading, "order-1", orderBody(1))
				ends <- err
			}()
			time.Sleep(time.Millisecond)
			go func() { ends <- l.call() }()
			time.Sleep(time.Second) // the leader waits for its second attempt
			leave()
			require.ErrorIs(t, <-ends, context.Canceled)
			require.NoError(t, <-ends)
			assert.Equal(t, 1, l.effects())
			assert.Equal(t, l.keys[0], l.keys[1])
			assert.Equal(t, 2, l.sends())
		})
	}
}

// loses makes an act during which the claim is lost to another life of the same
// journal, whose own attempt ends as theirs does.
func (l *life) loses(theirs, ours act) act {
	return func(req *http.Request, server http.RoundTripper) (*http.Response, error) {
		in := l.in()
		in.State, in.Doubt, in.Claimed = StateUnknown, true, false
		_, err := l.journal.Update(context.Background(), in, nil, true)
		require.NoError(l.t, err)
		other, err := Open(l.path, nil)
		require.NoError(l.t, err)
		defer func() { require.NoError(l.t, other.Close()) }()
		base := roundTripper(func(req *http.Request) (*http.Response, error) { return theirs(req, server) })
		client := NewClient(&Transport{Journal: other, Contracts: rigContract(), Base: base, Retry: RetryPolicy{ResumeAttempts: 1}})
		_, err = client.Resume(context.Background())
		require.NoError(l.t, err)
		return ours(req, server)
	}
}

// A final answer of any attempt of the same key is accepted while the intent is
// not final, from an owner that lost its claim too. Everything else is
// conditional on the claim, and what is final stays.
func TestLife_TrueAnswerIsNeverThrownAway(t *testing.T) {
	for name, test := range map[string]struct {
		theirs, ours act
		want         State
		status       int
	}{
		"ours, over held":        {actAnswer(503), actAnswer(201), StateSucceeded, 201},
		"theirs, then not ours":  {actAnswer(201), actAnswer(503), StateSucceeded, 201},
		"theirs, then ours":      {actAnswer(202), actAnswer(201), StateSucceeded, 202},
		"held, not our question": {actAnswer(503), actAnswer(503), StateHeld, 0},
		"held, not our guess":    {actAnswer(302), actAnswer(429), StateHeld, 0},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, RetryPolicy{MaxAttempts: 1}, nil, func(t *testing.T, l *life) {
				l.acts = []act{l.loses(test.theirs, test.ours)}
				err := l.call()
				in := l.in()
				require.Equal(t, test.want, in.State)
				if test.status != 0 {
					assert.Equal(t, test.status, in.Outcome.StatusCode)
				}
				if name != "ours, over held" && name != "theirs, then ours" {
					requireUnknown(t, err, StateUnknown)
				}
				assert.Equal(t, test.want == StateHeld, in.Doubt)
			})
		})
	}
}
