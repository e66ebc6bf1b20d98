package idem

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A call that waited for a generation does not send it once a later one has
// taken its place: the customer has paid with another card.
func TestAttack_ContinueOfASupersededGeneration(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Retry.MaxAttempts = 1
		good := r.transport.Base
		first := true
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			if first {
				first = false
				time.Sleep(10 * time.Second)
				return status(429)(req)
			}
			return good.RoundTrip(req)
		})
		var err1 error
		ended := make(chan struct{})
		go func() {
			_, _, err1 = r.do(t.Context(), "order", `{"card":1}`)
			close(ended)
		}()
		time.Sleep(time.Second)
		continued := make(chan error, 1)
		// through another Transport on the same journal (a worker), or the same one: it would join
		other := NewClient(&Transport{Journal: r.journal, Base: r.transport.Base, Contracts: rigContract(), Name: "worker"})
		go func() { _, err := other.Continue(t.Context(), "order"); continued <- err }()
		time.Sleep(time.Second)
		<-ended
		require.ErrorIs(t, err1, ErrNotSent)
		in := r.lookup("order")
		require.Equal(t, StateWithdrawn, in.State)
		_, _, err := r.do(WithRenewal(t.Context(), in.Key), "order", `{"card":2}`)
		require.NoError(t, err)
		t.Log("continue:", <-continued)
		assert.Equal(t, 1, r.effects(), "one operation")
	})
}

// The same for the hop of a redirect.
func TestAttack_HopOfASupersededGeneration(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		good := r.transport.Base
		first := true
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			if first {
				first = false
				return status(307, "Location", "http://provider.example/charges?hop")(req)
			}
			return good.RoundTrip(req)
		})
		hc := r.client.HTTPClient()
		hc.CheckRedirect = func(*http.Request, []*http.Request) error {
			in := r.lookup("order")
			require.Equal(t, StatePending, in.State)
			_, err := r.client.Withdraw(t.Context(), in, "me", "another card")
			require.NoError(t, err)
			_, _, err = r.do(WithRenewal(t.Context(), in.Key), "order", `{"card":2}`)
			require.NoError(t, err)
			return nil
		}
		resp, err := hc.Do(mustRequest(t, WithOperation(t.Context(), "order"), rigURL, `{"card":1}`))
		t.Log(resp, err)
		assert.Equal(t, 1, r.effects(), "one operation")
	})
}

// Whatever Authorize takes, nothing is sent past the key's life.
func TestAttack_SlowAuthorizeAndTheKeysLife(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRigFor(t, contract.Keyed("Idempotency-Key", time.Hour))
		r.transport.Retry.MaxAttempts = 1
		base := &starts{answer: status(503)}
		r.transport.Base = base
		begun := time.Now()
		_, _, err := r.do(t.Context(), "order", orderBody(1))
		require.ErrorIs(t, err, ErrUnknownOutcome)
		time.Sleep(30 * time.Minute)
		r.client.Authorize = func(*http.Request, Intent) error { time.Sleep(45 * time.Minute); return nil } // a token server that hangs
		_, err = r.client.Resume(t.Context())
		require.NoError(t, err)
		for _, at := range base.at {
			assert.Less(t, at.Sub(begun), time.Hour, "the provider forgets the key after an hour")
		}
	})
}

// A machine that sleeps during a wait judges the key's age when it wakes.
func TestAttack_SuspendDuringAWaitAndTheKeysLife(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		var moved atomic.Int64
		r.transport.clock.Wall = func() time.Time { return time.Now().Add(time.Duration(moved.Load())) }
		base := &starts{answer: status(503)}
		r.transport.Base = base
		go func() {
			time.Sleep(100 * time.Millisecond) // in the first back-off (at least 500 ms)
			moved.Store(int64(48 * time.Hour)) // the lid was closed for two days
		}()
		_, _, err := r.do(t.Context(), "order", orderBody(1))
		t.Log(err)
		assert.Len(t, base.at, 1, "the key is two days old, its life one day")
	})
}

// A first attempt that a clock dated into the future makes no key younger.
func TestAttack_ClockAheadForAMomentAndTheKeysLife(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		var moved atomic.Int64
		wall := func() time.Time { return time.Now().Add(time.Duration(moved.Load())) }
		r.transport.clock.Wall, r.journal.store.Clock.Wall = wall, wall
		r.transport.Retry = RetryPolicy{MaxAttempts: 1, ResumeAttempts: 1 << 20}
		base := &starts{answer: status(503)}
		r.transport.Base = base
		defer r.running()()
		time.Sleep(90 * time.Second)
		moved.Store(int64(12 * time.Hour))
		begun := time.Now()
		_, _, err := r.do(t.Context(), "order", orderBody(1))
		require.ErrorIs(t, err, ErrUnknownOutcome)
		time.Sleep(time.Second)
		moved.Store(0)
		time.Sleep(25 * time.Hour)
		_, _, err = r.do(t.Context(), "order", orderBody(1))
		t.Log(err, r.lookup("order").State, r.lookup("order").HoldReason)
		assert.Less(t, base.at[len(base.at)-1].Sub(begun), 24*time.Hour, "the last send")
	})
}

// Whoever settles a prepared intent: it is told.
func TestAttack_PreparedSettledThroughTheTransport(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		var told listener
		r.client.OnSettled = told.take
		r.prepare(rigURL, "order")
		resp, _, err := r.roundTrip(t.Context(), "order", mustRequest(t, t.Context(), rigURL, orderBody(0)))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		stop := r.running()
		time.Sleep(time.Hour)
		stop()
		assert.Len(t, told.all, 1, "that of a prepared intent, whoever settled it")
	})
}

// A panic before the attempt leaves no claim.
func TestAttack_PanickingResolver(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.prepare(rigURL, "order")
		var bad atomic.Bool
		bad.Store(true)
		c := rigContract()
		r.transport.Contracts = resolverFunc(func(req *http.Request) *contract.Contract {
			if bad.Load() {
				panic("on purpose")
			}
			return c
		})
		func() {
			defer func() { t.Log(recover()) }()
			_, _ = r.client.Resume(t.Context())
		}()
		bad.Store(false)
		time.Sleep(time.Hour)
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, report.Settled)
		assert.False(t, r.lookup("order").Owned)
	})
}

type resolverFunc func(*http.Request) *contract.Contract

func (f resolverFunc) Resolve(req *http.Request) *contract.Contract { return f(req) }

// A Run keeps nothing of what it held.
func TestAttack_RunKeepsNoList(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		base := &starts{answer: status(301, "Location", "/")}
		r.transport.Base = base
		s, leave, err := r.client.sweep(t.Context(), "run")
		require.NoError(t, err)
		defer leave()
		going, stop := context.WithCancel(t.Context())
		s.going, s.steady = going, true
		done := make(chan error)
		go func() { done <- s.run() }()
		for i := range 200 {
			r.prepare(rigURL, fmt.Sprint("order-", i))
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Hour)
		stop()
		<-done
		assert.Less(t, len(s.report.Held), 100, "nobody ever reads them")
	})
}

// A resolver that makes a contract per request does not fill the memory.
func TestAttack_ContractsMadePerRequest(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Contracts = resolverFunc(func(req *http.Request) *contract.Contract { return rigContract() })
		for i := range 1500 {
			_, _, err := r.do(t.Context(), fmt.Sprint("order-", i), orderBody(i))
			require.NoError(t, err)
		}
		n := 0
		r.transport.checked.Range(func(any, any) bool { n++; return true })
		assert.LessOrEqual(t, n, 1024)
	})
}

// What a panic says is not logged.
func TestAttack_PanicTextWithSecrets(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		var log bytes.Buffer
		r.transport.Logger = slog.New(slog.NewTextHandler(&log, nil))
		r.client.Authorize = func(req *http.Request, _ Intent) error { req.Header.Set("Authorization", "Bearer s3cret"); return nil }
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			panic(fmt.Sprintf("cannot send %v", req.Header))
		})
		r.prepare(rigURL, "order")
		func() {
			defer func() { recover() }()
			_, _ = r.client.Resume(t.Context())
		}()
		assert.NotContains(t, log.String(), "s3cret")
		assert.NotContains(t, log.String(), r.lookup("order").Key)
	})
}
