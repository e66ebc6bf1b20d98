package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// counted is a base that counts what it is sent.
func counted(answer func(*http.Request) (*http.Response, error)) (http.RoundTripper, *atomic.Int64) {
	n := new(atomic.Int64)
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		n.Add(1)
		return answer(req)
	}), n
}

// A thousand callers of a server that is down send each once, and together no
// more than the budget again: those who wait for their turn count. The refusal
// says so, gives the last answer, and the operation goes on later.
func TestBudgetOfAFleet(t *testing.T) {
	t.Parallel()
	const calls = 1000
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		base, sent := counted(status(503))
		r.transport.Base = base
		var refused atomic.Int64
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				var result Result
				ctx := WithResult(WithOperation(t.Context(), fmt.Sprint("order-", i)), &result)
				resp, err := r.transport.RoundTrip(mustRequest(t, ctx, rigURL, orderBody(i)))
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, 503, resp.StatusCode)
				readAndClose(t, resp)
				assert.ErrorIs(t, result.Err(), ErrUnknownOutcome)
				if strings.Contains(result.Err().Error(), "retry budget of http://provider.example:80 is used up") {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		resent := sent.Load() - calls
		most := int64(defaultBudget + calls*budgetShare + 10) // and a few seconds
		assert.LessOrEqual(t, resent, most)
		assert.GreaterOrEqual(t, resent, int64(defaultBudget))
		assert.GreaterOrEqual(t, refused.Load(), calls-most)
		assert.Equal(t, StateUnknown, r.lookup("order-999").State)
	})
}

// An agent that calls one unfinished operation for ever gets a resend a second.
func TestBudgetOfAnAgentsLoop(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		base, sent := counted(status(500))
		r.transport.Base = base
		r.transport.Retry = RetryPolicy{MaxAttempts: 1, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond}
		named := 0
		begun := time.Now()
		for time.Since(begun) < time.Minute {
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			require.ErrorIs(t, err, ErrUnknownOutcome)
			if strings.Contains(err.Error(), "retry budget") {
				named++
			}
			time.Sleep(20 * time.Millisecond)
		}
		assert.LessOrEqual(t, sent.Load(), int64(1+defaultBudget+61))
		assert.GreaterOrEqual(t, sent.Load(), int64(1+defaultBudget+50), "the floor")
		assert.Greater(t, named, 1000)
		assert.Equal(t, sent.Load(), int64(r.lookup("order-1").Attempts), "a refusal is no attempt")
	})
}

// A server that answers each operation at its last attempt uses nothing up.
func TestBudgetComesBackWithAnswers(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		tries := map[string]int{}
		base, sent := counted(func(req *http.Request) (*http.Response, error) {
			key := req.Header.Get("Idempotency-Key")
			if tries[key]++; tries[key] < defaultMaxAttempts {
				return status(503)(req)
			}
			return status(200)(req)
		})
		r.transport.Base = base
		r.transport.Retry = RetryPolicy{MinBackoff: time.Nanosecond, MaxBackoff: time.Nanosecond, Budget: 3}
		for i := range 200 {
			code, _, err := r.do(t.Context(), fmt.Sprint("order-", i), orderBody(i))
			require.NoError(t, err)
			require.Equal(t, 200, code)
		}
		assert.Equal(t, int64(200*defaultMaxAttempts), sent.Load())
	})
}

// What is not journaled has the same budget.
func TestBudgetOfReads(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		base, sent := counted(status(503))
		r.transport.Base = base
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, rigURL, nil)
				require.NoError(t, err)
				resp, err := r.transport.RoundTrip(req)
				require.NoError(t, err)
				readAndClose(t, resp)
			})
		}
		all.Wait()
		assert.LessOrEqual(t, sent.Load(), int64(100+defaultBudget+10))
		assert.GreaterOrEqual(t, sent.Load(), int64(100+defaultBudget))
	})
}

// A server that asks an account for a pause gets no first attempt of that
// account until it is over; another account goes on, and a recorded answer needs
// no server.
func TestPauseOfADestination(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c := &contract.Contract{
			Name: "double", Key: contract.Place{Header: "Idempotency-Key"}, Retention: time.Hour,
			ScopeHeaders: []string{"Account"},
		}
		r := newRigFor(t, c)
		begun := time.Now()
		var mu sync.Mutex
		arrived := map[string]time.Duration{}
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			name := req.Header.Get("Name")
			if _, again := arrived[name]; !again && name == "limited" {
				arrived[name] = time.Since(begun)
				return status(429, "Retry-After", "10")(req)
			}
			arrived[name] = time.Since(begun)
			return status(200)(req)
		})
		call := func(ctx context.Context, name, credential, account string) (*http.Response, error) {
			req := mustRequest(t, ctx, rigURL, `{}`)
			req.Header.Set("Name", name)
			req.Header.Set("Authorization", credential)
			req.Header.Set("Account", account)
			return r.client.Do(name, req)
		}
		done := func(resp *http.Response, err error) {
			if assert.NoError(t, err) {
				readAndClose(t, resp)
			}
		}
		done(call(t.Context(), "before", "a", "1"))
		var all sync.WaitGroup
		all.Go(func() { done(call(t.Context(), "limited", "a", "1")) })
		synctest.Wait()
		for i := range 50 {
			all.Go(func() { done(call(t.Context(), fmt.Sprint("same-", i), "a", "1")) })
		}
		done(call(t.Context(), "other credential", "b", "1"))
		done(call(t.Context(), "other account", "a", "2"))
		done(call(t.Context(), "before", "a", "1"))
		require.Zero(t, time.Since(begun), "nobody of these waited")

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := call(short, "in a hurry", "a", "1")
		require.ErrorIs(t, err, ErrNotSent)
		require.ErrorContains(t, err, "http://provider.example:80 asked for a pause of 10s more")
		_, err = r.client.Lookup(t.Context(), "in a hurry")
		require.ErrorIs(t, err, ErrNotFound)

		gone, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { leave(errors.New("enough")) })
		_, err = call(gone, "leaves", "a", "1")
		require.ErrorIs(t, err, ErrNotSent)
		require.ErrorContains(t, err, "enough")

		all.Wait()
		for i := range 50 {
			at := arrived[fmt.Sprint("same-", i)]
			assert.GreaterOrEqual(t, at, 10*time.Second)
			assert.LessOrEqual(t, at, 11*time.Second)
		}
		assert.NotContains(t, arrived, "leaves")
	})
}
