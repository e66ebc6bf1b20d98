package idem

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// beside is a rig whose Run goes on beside the calls. It keeps what each call
// was told, to hold the loop to it.
type beside struct {
	*rig
	t    *testing.T
	stop func()
	told map[string]toldCall // the last call of each operation
}

type toldCall struct {
	err   error
	body  string // of the answer
	sends int    // of the operation, until then
}

// withRunBeside tells a story in virtual time while a Run goes on, and checks
// the operations an hour later.
func withRunBeside(t *testing.T, prepare func(r *rig), story func(b *beside), steps ...faultinjection.Step) {
	t.Helper()
	virtually(t, func(t *testing.T) {
		b := &beside{rig: newRig(t, steps...), t: t, told: map[string]toldCall{}}
		b.patient()
		if prepare != nil {
			prepare(b.rig)
		}
		b.begin()
		defer func() { b.stop() }() // where the story ends early
		time.Sleep(time.Minute)     // the loop rests
		story(b)
		time.Sleep(time.Hour)
		b.stop()
		for operation, told := range b.told {
			b.keeps(operation, told)
		}
	})
}

func (b *beside) begin() { b.stop = sync.OnceFunc(b.running()) }

// call does the operation that is named after its order.
func (b *beside) call(ctx context.Context, operation string) error {
	b.t.Helper()
	req := mustRequest(b.t, ctx, rigURL, `{"order":"`+operation+`"}`)
	req.Header.Set("X-Order", operation)
	return b.send(operation, req)
}

func (b *beside) send(operation string, req *http.Request) error {
	b.t.Helper()
	resp, err := b.client.Do(operation, req)
	told := toldCall{err: err, sends: len(b.arrivalsOf(operation))}
	if err == nil {
		told.body = readAndClose(b.t, resp)
	}
	b.told[operation] = told
	return err
}

// keeps checks that nothing contradicts what the call was told.
func (b *beside) keeps(operation string, told toldCall) {
	b.t.Helper()
	in, err := b.client.Lookup(b.t.Context(), operation)
	if errors.Is(err, ErrNotFound) {
		in.State = StateWithdrawn // never was
	} else {
		require.NoError(b.t, err)
	}
	arrivals := b.arrivalsOf(operation)
	if len(arrivals) > 0 {
		assert.Equal(b.t, in.Key, requireOneKey(b.t, arrivals, len(arrivals)), operation)
	}
	effects, err := b.ledger.EffectsOf(operation)
	require.NoError(b.t, err)
	assert.LessOrEqual(b.t, effects, 1, operation)
	switch {
	case errors.Is(told.err, ErrNotSent):
		assert.Equal(b.t, StateWithdrawn, in.State, "%s was reported not sent", operation)
		assert.Zero(b.t, effects, operation)
		assert.Len(b.t, arrivals, told.sends, operation)
	case told.err == nil:
		require.True(b.t, in.State.Final(), "%s was reported done, and is %s", operation, in.State)
		assert.Equal(b.t, told.body, string(in.Outcome.Body), operation)
		assert.Len(b.t, arrivals, told.sends, "%s was done", operation)
	default:
		assert.True(b.t, in.State.Final() || in.State == StateHeld, "%s is %s", operation, in.State)
	}
}

func TestO01_OutcomeIsRecordedThoughTheCallerLeft_WithRunBeside(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	withRunBeside(t, func(r *rig) { r.transport.Journal = &leaving{Journal: r.transport.Journal, leave: cancel} }, func(b *beside) {
		_ = b.call(ctx, "order-1") // whatever it hears
		require.Error(b.t, ctx.Err())
		assert.Equal(b.t, StateSucceeded, b.lookup("order-1").State)
		time.Sleep(time.Hour)
		assert.Len(b.t, b.arrivals(), 1)
	})
}

// The hop takes its time: meanwhile the operation is nobody's.
func TestO02_RedirectHopKeepsTheKey_WithRunBeside(t *testing.T) {
	for _, code := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		withRunBeside(t, nil, func(b *beside) {
			client := b.client.HTTPClient()
			client.CheckRedirect = func(*http.Request, []*http.Request) error {
				time.Sleep(20 * time.Second)
				return nil
			}
			resp, err := client.Do(mustRequest(b.t, WithOperation(b.t.Context(), "order-1"), rigURL, `{"order":"order-1"}`))
			require.NoError(b.t, err)
			assert.Equal(b.t, http.StatusCreated, resp.StatusCode)
			b.told["order-1"] = toldCall{body: readAndClose(b.t, resp), sends: 2}
			assert.Equal(b.t, "/pay2", b.arrivals()[1].URI)
		}, faultinjection.Redirect(code, "/pay2"))
	}
}

func TestO11_OneOperationFromManyCallers_WithRunBeside(t *testing.T) {
	slow := func(r *rig) { r.server.Work = 300 * time.Millisecond }
	for name, steps := range map[string][]faultinjection.Step{"fine": nil, "the answer is lost": {faultinjection.DieAfterEffect}} {
		for _, first := range []string{"a caller", "the loop"} {
			t.Run(name+", first "+first, func(t *testing.T) {
				withRunBeside(t, slow, func(b *beside) {
					b.prepare(rigURL, "order-0")
					for first == "the loop" && len(b.arrivals()) == 0 {
						time.Sleep(10 * time.Millisecond)
					}
					var calls sync.WaitGroup
					for range 20 {
						calls.Go(func() {
							_, _, err := b.do(b.t.Context(), "order-0", orderBody(0))
							assert.NoError(b.t, err)
						})
					}
					calls.Wait()
					b.sameKeyAndBytes(1 + len(steps))
					assert.Equal(b.t, 1, b.effects())
				}, steps...)
			})
		}
	}
}

// The process dies with the answer; the application issues the operation again
// at once, or while the loop has it, or afterwards.
func TestO12_SameOperationAfterRestart_WithRunBeside(t *testing.T) {
	for _, when := range []time.Duration{0, 200 * time.Millisecond, time.Second, time.Minute} {
		t.Run(when.String(), func(t *testing.T) {
			withRunBeside(t, nil, func(b *beside) {
				b.stop()
				server := b.transport.Base
				b.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
					defer b.journal.store.Die()
					return server.RoundTrip(req)
				})
				require.ErrorIs(b.t, b.call(b.t.Context(), "order-1"), ErrJournal)
				b.open()
				b.transport.Base = server
				b.server.Work = 500 * time.Millisecond
				b.begin()
				time.Sleep(when)
				for range 3 {
					require.NoError(b.t, b.call(b.t.Context(), "order-1"))
					assert.Len(b.t, b.arrivals(), 2, "one replay, by the loop or by the call")
				}
			}, faultinjection.DieAfterEffect)
		})
	}
}

func TestO14_LostIsUnknownAndRefusedIsNotSent_WithRunBeside(t *testing.T) {
	refuse := func(r *rig) {
		server := r.transport.Base
		r.transport.Retry.MaxAttempts = 1
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Header.Get("X-Order") == "refused" {
				closeBody(req)
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}
			return server.RoundTrip(req)
		})
	}
	withRunBeside(t, refuse, func(b *beside) {
		ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Second)
		defer cancel()
		requireUnknown(b.t, b.call(ctx, "late"), StateUnknown)
		requireUnknown(b.t, b.call(b.t.Context(), "lost"), StateUnknown)
		requireNotSent(b.t, b.call(b.t.Context(), "refused"))
		time.Sleep(time.Hour)
		for _, operation := range []string{"late", "lost"} {
			assert.Equal(b.t, StateSucceeded, b.lookup(operation).State)
			requireOneKey(b.t, b.arrivalsOf(operation), 2)
		}
		assert.Equal(b.t, 2, b.effects())
		assert.Equal(b.t, 1, b.lookup("refused").Attempts, "not even tried again")
	}, faultinjection.SlowAnswer(time.Minute), faultinjection.DieAfterEffect)
}

// The loop leaves the operation alone while its call waits for the next try.
func TestO15_OneShotBodyIsWholeOnEveryTry_WithRunBeside(t *testing.T) {
	withRunBeside(t, func(r *rig) { r.transport.Retry.MinBackoff = 15 * time.Second }, func(b *beside) {
		req := mustRequest(b.t, b.t.Context(), rigURL, "")
		body := &oneShot{Reader: strings.NewReader(`{"order":"order-1","amount":4200}`)}
		req.Body, req.GetBody, req.ContentLength = body, nil, -1
		require.NoError(b.t, b.send("order-1", req))
		b.sameKeyAndBytes(3)
		assert.Equal(b.t, 1, body.closed)
	}, faultinjection.Status(503), faultinjection.Status(503))
}

func TestO16_JournalFailsNothingIsSent_WithRunBeside(t *testing.T) {
	withRunBeside(t, nil, func(b *beside) {
		b.prepare(rigURL, "order-0")
		unlock := lockFile(b.t, b.path)
		for i := range 3 {
			ctx, cancel := context.WithTimeout(b.t.Context(), 500*time.Millisecond)
			begun := time.Now()
			err := b.call(ctx, fmt.Sprint("refused-", i))
			cancel()
			requireNotSent(b.t, err)
			require.ErrorIs(b.t, err, ErrJournal)
			assert.LessOrEqual(b.t, time.Since(begun), 600*time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		assert.Empty(b.t, b.arrivals(), "by the loop neither")
		unlock()
		time.Sleep(time.Minute)
		assert.Len(b.t, b.arrivals(), 1, "what was recorded before")
		require.NoError(b.t, b.call(b.t.Context(), "works"))
	})
}

func TestO17_NoResendWithoutSupport_WithRunBeside(t *testing.T) {
	for name, contracts := range unsupporting {
		t.Run(name, func(t *testing.T) {
			withRunBeside(t, func(r *rig) { r.transport.Contracts = contracts }, func(b *beside) {
				requireUnknown(b.t, b.call(b.t.Context(), "order-1"), StateHeld)
				time.Sleep(24 * time.Hour)
				assert.Equal(b.t, HoldNoContract, b.lookup("order-1").HoldReason)
				require.Len(b.t, b.arrivals(), 1)
				assert.Empty(b.t, b.arrivals()[0].Keys)
				b.told = nil // there is no key to compare
			}, faultinjection.DieAfterEffect)
		})
	}
}

func TestO23_NothingIsHeldWhileTheServerThinks_WithRunBeside(t *testing.T) {
	slow := func(r *rig) { r.server.Work = 500 * time.Millisecond }
	withRunBeside(t, slow, func(b *beside) {
		prepared := orders("prepared", 20)
		b.prepare(rigURL, prepared...)
		var calls sync.WaitGroup
		begun := time.Now()
		for i := range 50 {
			calls.Go(func() {
				_, _, err := b.do(b.t.Context(), fmt.Sprint("order-", i), orderBody(100+i))
				assert.NoError(b.t, err)
			})
		}
		for time.Since(begun) < 3*time.Second {
			listed := time.Now()
			_, err := b.journal.List(b.t.Context(), Filter{States: []State{StateInFlight}})
			require.NoError(b.t, err)
			assert.LessOrEqual(b.t, time.Since(listed), 100*time.Millisecond)
			time.Sleep(50 * time.Millisecond)
		}
		calls.Wait()
		assert.Equal(b.t, 50, b.settled(orders("order", 50)))
		time.Sleep(time.Minute)
		assert.Equal(b.t, 20, b.settled(prepared))
		assert.Len(b.t, b.arrivals(), 70)
	})
}

func TestO37_ContentNeverMakesTheKey_WithRunBeside(t *testing.T) {
	withRunBeside(t, func(r *rig) { r.transport.Retry.MaxAttempts = 1 }, func(b *beside) {
		requireUnknown(b.t, b.call(b.t.Context(), "order-1"), StateUnknown)
		for n := range 10 { // while the loop has it, and after
			_, _, err := b.do(b.t.Context(), "order-1", fmt.Sprintf(`{"order":"order-1","nonce":%d}`, n))
			require.ErrorIs(b.t, err, ErrMismatch)
			time.Sleep(200 * time.Millisecond)
		}
		b.sameKeyAndBytes(2)
		assert.Equal(b.t, StateSucceeded, b.lookup("order-1").State)
	}, faultinjection.DieAfterEffect)
}

func TestO53_AcceptedIsNotDone_WithRunBeside(t *testing.T) {
	accept := func(r *rig) {
		r.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) {
			return http.StatusAccepted, header("Location", "/charges/77"), []byte(`{"status":"queued"}`)
		}
	}
	withRunBeside(t, accept, func(b *beside) {
		require.NoError(b.t, b.call(b.t.Context(), "order-1"))
		time.Sleep(24 * time.Hour)
		in := b.lookup("order-1")
		assert.Equal(b.t, http.StatusAccepted, in.Outcome.StatusCode)
		assert.Equal(b.t, "/charges/77", in.Outcome.Header.Get("Location"))
		assert.Len(b.t, b.arrivals(), 1)
	})
}

func TestO55_AttemptsAreExactlyTheLimit_WithRunBeside(t *testing.T) {
	for _, limit := range []int{1, 2, 5} {
		bounded := func(r *rig) {
			r.transport.Retry.MaxAttempts, r.transport.Retry.ResumeAttempts = limit, 3
			r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.Status(503) })
		}
		withRunBeside(t, bounded, func(b *beside) {
			requireUnknown(b.t, b.call(b.t.Context(), "order-1"), StateUnknown)
			require.Len(b.t, b.arrivals(), limit, "by the call")
			time.Sleep(10 * time.Minute)
			require.Len(b.t, b.arrivals(), limit+3, "and by the loop")
			assert.Equal(b.t, HoldExhausted, b.lookup("order-1").HoldReason)
		})
	}
}

func TestO59_CancelEndsTheWait_WithRunBeside(t *testing.T) {
	for status, state := range map[int]State{503: StateUnknown, 429: StateWithdrawn} {
		patient := func(r *rig) {
			r.transport.Retry = RetryPolicy{MinBackoff: 30 * time.Second, MaxBackoff: time.Minute}
		}
		withRunBeside(t, patient, func(b *beside) {
			ctx, cancel := context.WithCancel(b.t.Context())
			defer cancel()
			time.AfterFunc(100*time.Millisecond, cancel)
			begun := time.Now()
			err := b.call(ctx, "order-1")
			require.ErrorIs(b.t, err, context.Canceled)
			assert.LessOrEqual(b.t, time.Since(begun), 200*time.Millisecond)
			assert.Equal(b.t, state, b.lookup("order-1").State)
			require.Len(b.t, b.arrivals(), 1)
			time.Sleep(time.Hour)
			if state == StateUnknown {
				assert.Equal(b.t, StateSucceeded, b.lookup("order-1").State)
				b.sameKeyAndBytes(2)
			}
		}, faultinjection.Status(status))
	}
}
