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

// A provider that knows keys under one credential only: what may have been
// executed is sent again under that one, and under no other.
func TestKeysOfOneCredential(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c := rigContract()
		c.CredentialPinned = true
		r := newRigFor(t, c, faultinjection.Status(401), faultinjection.DieAfterEffect)
		r.transport.Retry.MaxAttempts = 1
		call := func(credential string) error {
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			req.Header.Set("Authorization", credential)
			resp, err := r.client.Do("order-1", req)
			if err == nil {
				readAndClose(t, resp)
			}
			return err
		}
		require.ErrorIs(t, call("expired"), ErrNotSent)
		require.ErrorIs(t, call("first"), ErrUnknownOutcome)
		require.ErrorIs(t, call("expired"), ErrMismatch, "the provider may know the key under the one that was not refused")
		require.NoError(t, call("first"))
		require.Equal(t, 1, r.effects())
	})
	for name, tt := range map[string]struct {
		credential string
		sent       bool
	}{"the same": {"first", true}, "another": {"second", false}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				c := rigContract()
				c.CredentialPinned = true
				r := newRigFor(t, c, faultinjection.DieAfterEffect, faultinjection.DieAfterEffect)
				r.transport.Retry.MaxAttempts = 1
				call := func(operation, credential string) error {
					req := mustRequest(t, t.Context(), rigURL, orderBody(1))
					req.Header.Set("Authorization", credential)
					resp, err := r.client.Do(operation, req)
					if err == nil {
						readAndClose(t, resp)
					}
					return err
				}
				require.ErrorIs(t, call("called", "first"), ErrUnknownOutcome)
				require.ErrorIs(t, call("resumed", "first"), ErrUnknownOutcome)
				time.Sleep(time.Minute)
				r.reopen()
				err := call("called", tt.credential)
				r.client.Authorize = func(req *http.Request, _ Intent) error {
					req.Header.Set("Authorization", tt.credential)
					return nil
				}
				_, resumeErr := r.client.Resume(context.Background())
				require.NoError(t, resumeErr)
				if tt.sent {
					require.NoError(t, err)
					assert.Equal(t, StateSucceeded, r.lookup("resumed").State)
					assert.Len(t, r.arrivals(), 4)
					return
				}
				require.ErrorIs(t, err, ErrMismatch)
				require.ErrorContains(t, err, "another credential")
				assert.Equal(t, HoldCredentials, r.lookup("resumed").HoldReason)
				assert.Len(t, r.arrivals(), 2)
			})
		})
	}
}
