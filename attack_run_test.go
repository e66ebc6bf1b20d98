package idem

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (r *rig) suspects(n int) {
	good := r.transport.Base
	die := make(chan struct{})
	r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		<-die
		return nil, errReset
	})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			_, _, err := r.do(context.Background(), fmt.Sprint("suspect-", i), orderBody(i))
			require.ErrorIs(r.tb, err, ErrUnknownOutcome)
		})
	}
	synctest.Wait()
	r.journal.store.Die()
	close(die)
	all.Wait()
	r.transport.Base = good
	r.open()
}

// Those with deaths get on beside a destination that hangs.
func TestAttack_FewSuspectsBesideAnOutage(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.suspects(20)
		base := &starts{answer: func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "down.example" {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return status(200)(req)
		}}
		r.transport.Base = base
		j := &counting{SQLiteJournal: r.journal}
		r.transport.Journal = j
		r.transport.Retry.ResumeAttempts = 1 << 20
		r.prepare("http://down.example/", orders("down", 16)...)
		stop := r.running()
		for range 4 {
			time.Sleep(5 * time.Minute)
			t.Log(r.settled(orders("suspect", 20)), "of 20 suspects; claims", j.claims.Load(), "updates", j.updates.Load())
		}
		stop()
		assert.Equal(t, 20, r.settled(orders("suspect", 20)))
	})
}

// So do many of them.
func TestAttack_SuspectsBesideAnOutage(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T) {
		r := newRigFor(t, contract.Keyed("Idempotency-Key", time.Hour))
		r.suspects(100)
		base := &starts{answer: func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "down.example" {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return status(200)(req)
		}}
		r.transport.Base = base
		r.transport.Retry.ResumeAttempts = 1 << 20
		r.prepare("http://down.example/", orders("down", 200)...)
		stop := r.running()
		time.Sleep(90 * time.Minute)
		stop()
		states := map[string]int{}
		for i := range 100 {
			in := r.lookup(fmt.Sprint("suspect-", i))
			states[string(in.State)+"/"+string(in.HoldReason)]++
		}
		t.Log(states)
		assert.Equal(t, 100, states["succeeded/"])
	})
}

// Waiting for a destination that hangs is no busy loop.
func TestAttack_SixteenAtAHungDestination(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		r.transport.Retry = RetryPolicy{AttemptTimeout: 10 * time.Minute}
		j := &counting{SQLiteJournal: r.journal}
		r.transport.Journal = j
		r.prepare(rigURL, orders("order", 16)...)
		stop := r.running()
		time.Sleep(time.Minute)
		j.reset()
		time.Sleep(time.Minute)
		t.Log("claims", j.claims.Load(), "updates", j.updates.Load(), "in a minute, for eight waiting intents")
		assert.Less(t, j.claims.Load(), int64(200))
		stop()
	})
}

// Everything at once on one handle.
func TestAttack_Race(t *testing.T) {
	t.Parallel()
	for range 6 {
		r := newRig(t)
		r.client.OnSettled = func(context.Context, Intent) error { return nil }
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _ = r.client.Run(context.Background()) })
		}
		end := time.Now().Add(1500 * time.Millisecond)
		for g := range 4 {
			wg.Go(func() {
				for i := 0; time.Now().Before(end.Add(300 * time.Millisecond)); i++ {
					name := fmt.Sprint("o-", i)
					req := mustRequest(t, t.Context(), rigURL, orderBody(i))
					switch g {
					case 0:
						_, _ = r.client.Prepare(name, req)
					case 1:
						if resp, err := r.client.Do(name, req); err == nil {
							resp.Body.Close()
						}
					case 2:
						if in, err := r.client.Lookup(t.Context(), name); err == nil {
							_, _ = r.client.Withdraw(t.Context(), in, "me", "")
							_, _ = r.client.Resolve(t.Context(), in, StateSucceeded, "me", "")
						}
					case 3:
						_, _ = r.client.Resume(t.Context())
					}
				}
			})
		}
		time.Sleep(time.Until(end))
		wg.Go(func() { _ = r.client.Shutdown(context.Background()) })
		wg.Go(func() { time.Sleep(50 * time.Millisecond); _ = r.journal.Close() })
		wg.Wait()
	}
}

// A hook that ends its goroutine leaves no claim and no slot behind.
func TestAttack_GoexitEverywhere(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"Base", "Authorize", "Verify", "OnSettled", "Attempted", "Settled"} {
		t.Run(where, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				var bad atomic.Bool
				exit := func(at string) {
					if at == where && bad.Load() {
						runtime.Goexit()
					}
				}
				good := r.transport.Base
				code := 503
				r.transport.Retry = RetryPolicy{MaxAttempts: 1}
				r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
					exit("Base")
					if code != 0 {
						return status(code)(req)
					}
					return good.RoundTrip(req)
				})
				r.client.Authorize = func(*http.Request, Intent) error { exit("Authorize"); return nil }
				r.client.Verify = func(context.Context, Intent) (State, error) { exit("Verify"); return StateUnknown, nil }
				var told atomic.Int32
				r.client.OnSettled = func(context.Context, Intent) error { exit("OnSettled"); told.Add(1); return nil }
				r.transport.Observer = &Observer{
					Attempted: func(context.Context, Intent, Attempt) { exit("Attempted") },
					Settled:   func(context.Context, Intent) { exit("Settled") },
				}
				for i, n := range orders("order", 20) {
					_, _, err := r.do(t.Context(), n, orderBody(i))
					require.Error(t, err)
				}
				code = 0
				bad.Store(true)
				stop := r.running()
				time.Sleep(time.Minute)
				bad.Store(false)
				time.Sleep(10 * time.Minute)
				stop()
				assert.Equal(t, 20, r.settled(orders("order", 20)))
				assert.Equal(t, int32(20), told.Load())
				assert.Equal(t, 20, r.effects())
			})
		})
	}
}

// An Authorize that hangs holds nobody up for long.
func TestAttack_HungAuthorizeOfASuspect(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.suspects(1)
		r.client.Authorize = func(req *http.Request, in Intent) error {
			if in.Operation == "suspect-0" {
				<-req.Context().Done()
				return req.Context().Err()
			}
			return nil
		}
		stop := r.running()
		time.Sleep(time.Minute)
		r.prepare("http://other.example/", "new")
		time.Sleep(time.Hour)
		assert.NotZero(t, r.lookup("new").Attempts)
		stop()
	})
}

// Shutdown begins nothing new.
func TestAttack_ShutdownDuringResume(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		base := &starts{answer: func(req *http.Request) (*http.Response, error) { time.Sleep(5 * time.Second); return status(200)(req) }}
		r.transport.Base = base
		r.prepare(rigURL, orders("order", 400)...)
		done := make(chan error, 1)
		go func() { _, err := r.client.Resume(t.Context()); done <- err }()
		time.Sleep(time.Second)
		before := base.to("provider.example")
		begun := time.Now()
		require.NoError(t, r.client.Shutdown(t.Context()))
		require.ErrorIs(t, <-done, ErrClosed)
		t.Log("Shutdown took", time.Since(begun), "and", base.to("provider.example")-before, "new attempts")
		assert.Less(t, time.Since(begun), 30*time.Second)
	})
}

// Calls of OnSettled that hang stop no send.
func TestAttack_HungOnSettled(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.client.OnSettled = func(ctx context.Context, in Intent) error { <-ctx.Done(); return ctx.Err() } // database is down
		r.prepare(rigURL, orders("old", 40)...)
		stop := r.running()
		defer stop()
		time.Sleep(10 * time.Minute)
		r.prepare("http://other.example/", "new")
		time.Sleep(time.Hour)
		assert.NotZero(t, r.lookup("new").Attempts, "a new operation is sent within an hour")
	})
}

// Nor do they stop what is sent alone.
func TestAttack_OneHungOnSettledAndOneSuspect(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		good := r.transport.Base
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			r.journal.store.Die()
			return nil, errReset
		})
		_, _, err := r.do(t.Context(), "suspect", orderBody(1))
		require.ErrorIs(t, err, ErrUnknownOutcome)
		r.transport.Base = good
		r.open()
		r.transport.Base = good
		var once atomic.Bool
		r.client.OnSettled = func(ctx context.Context, in Intent) error {
			if once.CompareAndSwap(false, true) {
				<-ctx.Done()
			}
			return nil
		}
		r.prepare(rigURL, "first")
		stop := r.running()
		defer stop()
		time.Sleep(5 * time.Minute)
		r.prepare("http://other.example/", "new")
		time.Sleep(time.Hour)
		assert.NotZero(t, r.lookup("new").Attempts, "a new operation is sent within an hour")
		assert.True(t, r.lookup("suspect").State.Final(), "the suspect too")
	})
}

// A limited account that keeps calling does not keep its destination paused.
func TestAttack_LimitedDirectCalls(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		base := &starts{answer: func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/limited" {
				return status(429, "Retry-After", "3600")(req)
			}
			return status(200)(req)
		}}
		r.transport.Base = base
		_, err := r.client.Do("limited", mustRequest(t, t.Context(), "http://provider.example/limited", orderBody(0)))
		require.Error(t, err)
		r.prepare(rigURL, "order")
		defer r.running()()
		for i := range 3600 / 20 {
			time.Sleep(20 * time.Second)
			_, err := r.client.Do(fmt.Sprint("limited-", i), mustRequest(t, t.Context(), "http://provider.example/limited", orderBody(i)))
			require.Error(t, err)
		}
		assert.Equal(t, StateSucceeded, r.lookup("order").State, "after an hour")
	})
}

type counting struct {
	*SQLiteJournal
	claims, updates, lists atomic.Int64
}

func (j *counting) ClaimDue(ctx context.Context, now time.Time, f Filter) ([]Intent, time.Time, error) {
	j.claims.Add(1)
	return j.SQLiteJournal.ClaimDue(ctx, now, f)
}

func (j *counting) Update(ctx context.Context, next Intent, a *Attempt, durable bool) (Intent, error) {
	j.updates.Add(1)
	return j.SQLiteJournal.Update(ctx, next, a, durable)
}

func (j *counting) List(ctx context.Context, f Filter) ([]Intent, error) {
	j.lists.Add(1)
	return j.SQLiteJournal.List(ctx, f)
}

func (j *counting) reset() { j.claims.Store(0); j.updates.Store(0); j.lists.Store(0) }
