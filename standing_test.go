package idem

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// refusals are the ways in which a call ends before it reaches its intent.
var refusals = map[string]func(t *testing.T, r *rig, req *http.Request) error{
	"cancelled context": func(t *testing.T, r *rig, req *http.Request) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.client.Do("order-1", req.WithContext(ctx))
		return err
	},
	"cancelled context, through an SDK": func(t *testing.T, r *rig, req *http.Request) error {
		ctx, cancel := context.WithCancel(WithOperation(t.Context(), "order-1"))
		cancel()
		_, err := r.client.HTTPClient().Do(req.WithContext(ctx))
		return err
	},
	"broken body": func(t *testing.T, r *rig, req *http.Request) error {
		req.Body, req.ContentLength = io.NopCloser(iotest.ErrReader(errors.New("disk gone"))), -1
		_, err := r.client.Do("order-1", req)
		return err
	},
	"bad header": func(t *testing.T, r *rig, req *http.Request) error {
		req.Header["X-A"] = []string{"\n"}
		_, err := r.client.Do("order-1", req)
		return err
	},
	"shut down": func(t *testing.T, r *rig, req *http.Request) error {
		require.NoError(t, r.client.Shutdown(t.Context()))
		_, err := r.client.Do("order-1", req)
		return err
	},
	"shut down, through an SDK": func(t *testing.T, r *rig, req *http.Request) error {
		require.NoError(t, r.client.Shutdown(t.Context()))
		_, err := r.client.HTTPClient().Do(req.WithContext(WithOperation(t.Context(), "order-1")))
		return err
	},
	"invalid policy": func(t *testing.T, r *rig, req *http.Request) error {
		broken := &Transport{Journal: r.journal, Retry: RetryPolicy{MaxAttempts: -1}}
		_, err := NewClient(broken).Do("order-1", req)
		return err
	},
	"journal closed": func(t *testing.T, r *rig, req *http.Request) error {
		require.NoError(t, r.journal.Close())
		_, err := r.client.Do("order-1", req)
		require.ErrorIs(t, err, ErrJournal)
		return err
	},
	"continued with a cancelled context": func(t *testing.T, r *rig, _ *http.Request) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.client.Continue(ctx, "order-1")
		return err
	},
}

// A call that is refused before it reaches its intent does not say "not sent" of
// an operation that an earlier call may have executed (P9).
func TestRefusedCallTellsWhatAnEarlierOneLeft(t *testing.T) {
	for name, refuse := range refusals {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t, faultinjection.DieAfterEffect)
				r.transport.Retry.MaxAttempts = 1
				_, _, err := r.do(t.Context(), "order-1", orderBody(1))
				requireUnknown(t, err, StateUnknown)

				err = refuse(t, r, mustRequest(t, t.Context(), rigURL, orderBody(1)))
				requireUnknown(t, err, StateUnknown)
				var failure *OperationError
				require.ErrorAs(t, err, &failure)
				assert.Equal(t, "order-1", failure.Operation)
				assert.Len(t, r.arrivals(), 1)
			})
			if name == "continued with a cancelled context" {
				return // there is nothing to continue
			}
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				err := refuse(t, r, mustRequest(t, t.Context(), rigURL, orderBody(1)))
				require.ErrorIs(t, err, ErrNotSent, "an operation that the journal does not know")
				require.NotErrorIs(t, err, ErrUnknownOutcome)
			})
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				_, _, err := r.do(t.Context(), "order-1", orderBody(1))
				require.NoError(t, err)
				err = refuse(t, r, mustRequest(t, t.Context(), rigURL, orderBody(1)))
				require.Error(t, err)
				require.NotErrorIs(t, err, ErrNotSent, "it succeeded")
				require.NotErrorIs(t, err, ErrUnknownOutcome, "it succeeded")
				assert.ErrorContains(t, err, "succeeded")
			})
		})
	}
}

// The same for a key that the caller set.
func TestRefusedCallUnderAnAdoptedKey(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Retry.MaxAttempts = 1
		send := func(ctx context.Context) error {
			req := mustRequest(t, ctx, rigURL, orderBody(1))
			req.Header.Set("Idempotency-Key", "own-key")
			_, err := r.transport.RoundTrip(req)
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, send(ctx), ErrNotSent)
		requireUnknown(t, send(t.Context()), StateUnknown)
		requireUnknown(t, send(ctx), StateUnknown)
	})
}

// An attempt's own limit is a timeout to whoever asks.
func TestAttemptTimeoutIsATimeout(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Hold)
		r.transport.Retry = RetryPolicy{MaxAttempts: 1, AttemptTimeout: time.Second}
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		var failure *OperationError
		require.ErrorAs(t, err, &failure)
		assert.True(t, failure.Timeout())
		assert.ErrorContains(t, err, "RetryPolicy.AttemptTimeout")
		r.server.Release()
	})
}
