package idem

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

func TestPreparedIsDeliveredByResume(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(429), faultinjection.DieAfterEffect)
		in, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.NoError(t, err)
		assert.Equal(t, StatePending, in.State)
		assert.True(t, in.Prepared)
		assert.Zero(t, in.Attempts)
		assert.Nil(t, in.Request)
		assert.Empty(t, r.arrivals())
		again, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.NoError(t, err)
		assert.Equal(t, in.Key, again.Key)
		_, err = r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, orderBody(2)))
		require.ErrorIs(t, err, ErrMismatch)

		r.journal.store.Die()
		r.open()
		for range 4 {
			_, err := r.client.Resume(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Minute)
		}
		assert.Equal(t, in.Key, r.sameKeyAndBytes(3))
		assert.Equal(t, 1, r.effects())
		assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
		final, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.NoError(t, err, "known: returned as it stands")
		assert.Equal(t, StateSucceeded, final.State)
	})
}

// A failing call of a prepared operation is never "not sent": it will be
// delivered.
func TestDoOfAPreparedOperation(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(429))
		r.transport.Retry.MaxAttempts = 1
		_, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.NoError(t, err)
		_, _, err = r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StatePending)
		assert.ErrorContains(t, err, "not delivered yet")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = r.do(ctx, "order-1", orderBody(1))
		requireUnknown(t, err, StatePending)
		time.Sleep(time.Minute)
		_, err = r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
		r.sameKeyAndBytes(2)
	})
}

func TestPrepareAfterWithdraw(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		in, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.NoError(t, err)
		_, err = r.client.Withdraw(t.Context(), in, "ann", "")
		require.NoError(t, err)
		_, err = r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Empty(t, r.arrivals())
		again, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.NoError(t, err)
		assert.Equal(t, StatePending, again.State)
		assert.Equal(t, in.Key, again.Key)
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, report.Settled)
	})
}

func TestPrepareRefuses(t *testing.T) {
	r := newRig(t)
	for name, change := range map[string]func(*http.Request) string{
		"no name":     func(*http.Request) string { return "" },
		"a read":      func(req *http.Request) string { req.Method = http.MethodGet; return "a" },
		"credentials": func(req *http.Request) string { req.Header.Set("Authorization", "Bearer x"); return "a" },
		"bad header":  func(req *http.Request) string { req.Header["X-A"] = []string{"\n"}; return "a" },
		"no URL":      func(req *http.Request) string { req.URL = nil; return "a" },
	} {
		closed := 0
		req := mustRequest(t, t.Context(), rigURL, orderBody(1))
		req.Body = closeCounter{req.Body, &closed}
		_, err := r.client.Prepare(change(req), req)
		require.ErrorIs(t, err, ErrNotSent, name)
		assert.Equal(t, 1, closed, name)
	}
	_, err := r.client.Lookup(t.Context(), "a")
	require.ErrorIs(t, err, ErrNotFound)
	r.client.Authorize = func(*http.Request, Intent) error { return nil }
	req := mustRequest(t, t.Context(), rigURL, orderBody(1))
	req.Header.Set("Authorization", "Bearer x")
	_, err = r.client.Prepare("a", req)
	require.NoError(t, err)
}

// Whoever was at the operation before: what Prepare took is delivered.
func TestPrepareOfAnUnfinishedOperation(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(429))
		base := r.transport.Base
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return base.RoundTrip(req)
		})
		r.transport.Retry.MaxAttempts = 1
		called := make(chan error)
		go func() {
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			called <- err
		}()
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := r.client.Prepare("order-1", mustRequest(t, short, rigURL, orderBody(1)))
		require.ErrorIs(t, err, ErrBusy)
		require.ErrorIs(t, err, ErrUnknownOutcome)
		in, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.ErrorIs(t, <-called, ErrNotSent)
		require.NoError(t, err)
		assert.Equal(t, StatePending, in.State)
		assert.True(t, in.Prepared)
		time.Sleep(time.Minute)
		_, err = r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
	})
}

// One in doubt becomes a prepared one, durably: its settlement is told.
func TestPrepareOfAnOperationInDoubt(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Retry.MaxAttempts = 1
		var told listener
		r.client.OnSettled = told.take
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.ErrorIs(t, err, ErrUnknownOutcome)
		r.prepare(rigURL, "order-0") // any other
		in, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.NoError(t, err)
		assert.Equal(t, StateUnknown, in.State)
		assert.True(t, r.lookup("order-1").Prepared)
		_, _, err = r.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err)
		_, err = r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Len(t, told.all, 2)
	})
}
