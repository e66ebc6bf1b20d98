package idem

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
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
	for wait, patience := range map[string]time.Duration{"31": time.Hour, "6": 5 * time.Second} {
		for _, status := range []int{429, 503} {
			live(t, RetryPolicy{}, []act{actAnswer(status, "Retry-After", wait)}, func(t *testing.T, l *life) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				begun := time.Now()
				_, _, err := l.do(ctx, "order-1", orderBody(1))
				assert.Zero(t, time.Since(begun), "at once")
				var failure *OperationError
				require.ErrorAs(t, err, &failure)
				assert.Equal(t, [2]any{status, "act"}, [2]any{failure.Response.StatusCode, readAndClose(t, failure.Response)})
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
			acts := []act{actAnswer(test.status, "Retry-After", "3600"), actLost}
			l := newLife(t, contract.Keyed("Idempotency-Key", 10*time.Minute), RetryPolicy{MaxAttempts: 1}, acts...)
			if test.prepared {
				l.prepares()
			}
			require.Error(t, l.call())
			l.still()
			l.transport.Retry.MaxBackoff = 2 * time.Hour // a patient call is judged by when it would send
			if requireUnknown(t, l.call(), StateUnknown); test.state != StateUnknown {
				time.Sleep(time.Minute)
				l.resume()
				assert.Equal(t, [2]any{StateSucceeded, 3}, [2]any{l.in().State, l.sends()}, "the key was new")
				return
			}
			time.Sleep(2 * time.Hour)
			l.resume()
			assert.Equal(t, [2]any{HoldExpired, 1}, [2]any{l.in().HoldReason, l.sends()})
		})
	}
}

// The due time and the length of the wait are both stored; what remains is the
// shorter of both, so that a clock that was set back does not stretch it.
func TestLife_WhatRemainsIsTheShorterOfDueAndWait(t *testing.T) {
	for _, rest := range [][2]time.Duration{{10 * time.Hour, 10 * time.Second}, {10 * time.Second, 10 * time.Hour}} {
		live(t, RetryPolicy{MaxAttempts: 1}, []act{actLost}, func(t *testing.T, l *life) {
			requireUnknown(t, l.call(), StateUnknown)
			l.closed(`UPDATE status SET due = ?, wait = ?`, time.Now().Add(rest[0]).UnixNano(), int64(rest[1]))
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
				l.acts = []act{func(req *http.Request, server http.RoundTripper) (*http.Response, error) {
					if inTheSend {
						leave()
					}
					time.AfterFunc(time.Millisecond, leave)
					if executed {
						return actLost(req.WithContext(context.Background()), server)
					}
					return actUnsent(req, server)
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
			assert.Equal(t, [2]int{1, 2}, [2]int{l.effects(), l.sends()})
			assert.Equal(t, l.keys[0], l.keys[1])
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
		"held, not our refusal":  {actLost, actAnswer(400), StateHeld, 0}, // theirs may have been executed
	} {
		t.Run(name, func(t *testing.T) {
			live(t, RetryPolicy{MaxAttempts: 1}, nil, func(t *testing.T, l *life) {
				l.acts = []act{l.loses(test.theirs, test.ours)}
				err := l.call()
				in := l.in()
				require.Equal(t, [2]any{test.want, test.want == StateHeld}, [2]any{in.State, in.Doubt})
				if test.status != 0 {
					assert.Equal(t, test.status, in.Outcome.StatusCode)
				}
				if name != "ours, over held" && name != "theirs, then ours" {
					requireUnknown(t, err, StateUnknown)
				}
			})
		})
	}
}

// crash kills the process during a call: in its attempt, or in the wait after
// one that was answered so.
func (l *life) crash(answered int, call func()) {
	l.t.Helper()
	l.acts, l.transport.Retry.MaxAttempts = []act{l.dies}, max(l.transport.Retry.MaxAttempts, 2)
	if answered != 0 {
		l.acts = []act{actAnswer(answered)}
		l.transport.Observer = &Observer{Waiting: func(context.Context, Intent, time.Duration) { l.kill() }}
	}
	call()
	require.Equal(l.t, 1, l.sends())
	l.open()
	l.transport.Observer = nil
	time.Sleep(time.Minute)
}

// crashed runs f after a crash in each state, of a call under that key and name.
func crashed(t *testing.T, key, operation string, f func(t *testing.T, l *life)) {
	for _, answered := range []int{0, 429, 503} {
		live(t, RetryPolicy{}, nil, func(t *testing.T, l *life) {
			req := l.request()
			if key != "" {
				req.Header.Set("Idempotency-Key", key)
			}
			l.crash(answered, func() {
				_, _ = l.transport.RoundTrip(req.WithContext(WithOperation(t.Context(), operation)))
			})
			f(t, l)
		})
	}
}

// A crash tells the caller nothing, so what is named, or has the caller's key,
// is resumed.
func TestLife_NamedIsResumedAfterACrash(t *testing.T) {
	for _, name := range [][2]string{{"", "order-1"}, {"own-key", ""}, {"own-key", "order-1"}} {
		crashed(t, name[0], name[1], func(t *testing.T, l *life) {
			assert.Equal(t, [3]any{1, 1, l.keys[0]}, [3]any{l.resume().Settled, l.effects(), l.keys[1]})
		})
	}
}

// What has neither is held: the caller may have issued it again.
func TestLife_UnnamedIsHeldAfterACrash(t *testing.T) {
	crashed(t, "", "", func(t *testing.T, l *life) {
		l.resume()
		assert.Equal(t, HoldUnnamed, l.held().HoldReason)
		l.unsent()
	})
}

// ResumeUnnamed is for applications that never do that.
func TestLife_ResumeUnnamedSendsThemToo(t *testing.T) {
	crashed(t, "", "", func(t *testing.T, l *life) {
		l.transport.ResumeUnnamed = true
		assert.Equal(t, [2]any{1, l.keys[0]}, [2]any{l.resume().Settled, l.keys[1]})
	})
}

// others puts n more orders into the outbox.
func (l *life) others(n int) {
	l.t.Helper()
	for i := range n {
		_, err := l.client.Prepare(fmt.Sprint("other-", i), mustRequest(l.t, l.t.Context(), rigURL, orderBody(100+i)))
		require.NoError(l.t, err)
	}
}

// Resume makes one attempt of each intent that is due, per pass.
func TestLife_ResumeMakesOneAttemptOfEachDueIntentPerPass(t *testing.T) {
	live(t, RetryPolicy{}, nil, func(t *testing.T, l *life) {
		l.server = answering(answerWith(503))
		l.others(3)
		time.Sleep(25 * time.Hour) // a key that was not used does not age
		for pass := 1; pass <= 3; pass++ {
			assert.Equal(t, [3]int{3, 0, 3 * pass}, [3]int{l.resume().Sent, l.resume().Sent, l.sends()})
			time.Sleep(time.Minute)
		}
	})
}

// Resume and Run make at most ResumeAttempts since the last direct call or
// release; then the intent is held: exhausted.
func TestLife_ResumeAttemptsSinceTheLastCallOrRelease(t *testing.T) {
	for _, how := range []string{"Resume", "Run", "restarts"} {
		live(t, RetryPolicy{MaxAttempts: 3, ResumeAttempts: 2}, nil, func(t *testing.T, l *life) {
			l.server = answering(answerWith(503))
			l.crash(0, func() { _ = l.call() })
			l.resume()
			require.Equal(t, 2, l.sends())
			time.Sleep(time.Minute)
			requireUnknown(t, l.call(), StateUnknown)
			require.Equal(t, 5, l.sends(), "its own MaxAttempts")
			for _, sends := range []int{7, 9} {
				for range 5 {
					time.Sleep(time.Minute)
					if l.resume(); how == "restarts" {
						l.restart(true)
					}
				}
				if how == "Run" {
					l.run(time.Hour)
				}
				require.Equal(t, [2]any{sends, HoldExhausted}, [2]any{l.sends(), l.held().HoldReason})
				_, err := l.client.Release(t.Context(), l.held(), "ann", "")
				require.NoError(t, err)
			}
		})
	}
}

// A call cut by a crash is continued on that count, not on what it had left.
func TestLife_CallCutByACrashGoesOnOnResumesCount(t *testing.T) {
	live(t, RetryPolicy{MaxAttempts: 4, ResumeAttempts: 3}, nil, func(t *testing.T, l *life) {
		l.server = answering(answerWith(503))
		l.crash(503, func() { _ = l.call() })
		l.acts = append(l.acts, actAnswer(503), actAnswer(503), l.dies)
		for range 6 { // it dies in the last one
			_, _ = l.client.Resume(t.Context())
			time.Sleep(time.Minute)
			l.restart(true)
		}
		assert.Equal(t, [2]any{1 + 3, HoldExhausted}, [2]any{l.sends(), l.held().HoldReason})
	})
}

// deaths claims everything, to see what is charged to it.
func (l *life) deaths() (n int) {
	due, _, err := l.journal.ClaimDue(l.t.Context(), time.Now().Add(24*time.Hour), Filter{})
	require.NoError(l.t, err)
	for _, in := range due {
		n += in.Deaths
	}
	return n
}

// stillborn kills the process before the attempt is on the wire, where the next one
// may start.
func (l *life) stillborn(req *http.Request) (*http.Response, error) {
	l.kill()
	return actUnsent(req, nil)
}

// lastResume is one that the process does not outlive.
func (l *life) lastResume() {
	l.t.Helper()
	_, err := l.client.Resume(l.t.Context())
	require.ErrorIs(l.t, err, ErrJournal, "it died")
	l.open()
}

// A death is charged only to an attempt that had started.
func TestLife_DeathIsChargedToAStartedAttemptOnly(t *testing.T) {
	for name, die := range map[string]func(l *life){
		"wait": func(l *life) { l.crash(503, func() { _ = l.call() }) },
		"Authorize": func(l *life) {
			l.lost()
			l.client.Authorize = func(*http.Request, Intent) error { l.kill(); return nil }
			l.lastResume()
		},
		"Verify": func(l *life) {
			l.lost()
			l.client.Verify = func(context.Context, Intent) (State, error) { l.kill(); return StateUnknown, nil }
			l.lastResume()
		},
		"attempt":           func(l *life) { l.crash(0, func() { _ = l.call() }) },
		"another's attempt": func(l *life) { l.prepares(); l.others(1); l.server = roundTripper(l.stillborn); l.lastResume() },
	} {
		t.Run(name, func(t *testing.T) {
			live(t, RetryPolicy{}, nil, func(t *testing.T, l *life) {
				die(l)
				require.Equal(t, 1, l.sends())
				assert.Equal(t, map[bool]int{true: 1}[strings.HasSuffix(name, "attempt")], l.deaths())
			})
		})
	}
}

// MaxDeaths in a row are poison, for a call too; a finished attempt ends the row.
func TestLife_DeathsInARowArePoison(t *testing.T) {
	live(t, RetryPolicy{MaxAttempts: 1, MaxDeaths: 2}, nil, func(t *testing.T, l *life) {
		l.acts = []act{l.dies, actAnswer(503), l.dies, l.dies}
		_ = l.call()
		for range 6 {
			l.open()
			time.Sleep(time.Minute)
			_, _ = l.client.Resume(t.Context())
			l.kill()
		}
		l.open()
		assert.Equal(t, [2]any{HoldPoison, 4}, [2]any{l.held().HoldReason, l.sends()})
		l.still()
	})
	live(t, RetryPolicy{MaxDeaths: 2}, nil, func(t *testing.T, l *life) {
		l.crash(0, func() { _ = l.call() })
		ctx, leave := context.WithCancel(t.Context())
		l.transport.Journal = leavingJournal{l.journal, leave}
		_, _, err := l.do(ctx, "order-1", orderBody(1)) // no attempt: it does not end the row
		requireUnknown(t, err, StateUnknown)
		l.transport.Journal, l.acts = l.journal, []act{nil, l.dies}
		l.lastResume()
		requireUnknown(t, l.call(), StateHeld)
		assert.Equal(t, [2]any{HoldPoison, 2}, [2]any{l.held().HoldReason, l.sends()})
	})
}

// What has deaths is resumed alone in its process, after all without.
func TestLife_IntentWithDeathsIsResumedAloneAfterAllOthers(t *testing.T) {
	for _, how := range []string{"Resume", "Run"} {
		live(t, RetryPolicy{}, nil, func(t *testing.T, l *life) {
			l.crash(0, func() { _ = l.call() })
			l.others(5)
			var running, ended atomic.Int32
			server, suspect := l.server, l.keys[0]
			l.server = roundTripper(func(req *http.Request) (*http.Response, error) {
				if running.Add(1); req.Header.Get("Idempotency-Key") == suspect {
					assert.Equal(t, [2]int32{1, 5}, [2]int32{running.Load(), ended.Load()}, "alone, and the last")
				}
				time.Sleep(10 * time.Second)
				running.Add(-1)
				ended.Add(1)
				return server.RoundTrip(req)
			})
			l.acts = nil
			if how == "Run" {
				l.run(2 * time.Minute)
			} else {
				l.resume()
			}
			assert.Equal(t, 6, l.effects())
		})
	}
}

// One at a time for each operation, over two handles.
func TestOnSettled_OneAtATimeForAnOperation(t *testing.T) {
	live(t, RetryPolicy{}, nil, func(t *testing.T, l *life) {
		l.listens(func(int) error { time.Sleep(10 * time.Second); return nil })
		l.prepares()
		other := NewClient(&Transport{Journal: mustOpen(t, l.path, nil), Base: l, Contracts: rigContract()})
		other.OnSettled = l.client.OnSettled
		ended := make(chan Report)
		go func() { ended <- l.resume() }()
		time.Sleep(time.Second)
		report, err := other.Resume(t.Context())
		require.NoError(t, err)
		assert.Zero(t, report.Notified)
		assert.Equal(t, 1, (<-ended).Notified)
		assert.Len(t, l.told, 1)
	})
}
