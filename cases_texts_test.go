package idem

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// A header that the caller declared as secret is in no text either.
func TestO03_DeclaredSecretIsInNoText(t *testing.T) {
	for _, how := range []string{"Do", "Continue"} {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.Status(503))
			r.transport.Secrets = []string{"X-Ours"}
			r.transport.Retry.MaxAttempts = 1
			server := r.transport.Base
			talks := how == "Do"
			r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := server.RoundTrip(req)
				if talks {
					return nil, fmt.Errorf("no luck with %v", req.Header)
				}
				return resp, err
			})
			r.client.Authorize = func(req *http.Request, _ Intent) error {
				putSecrets(req.Header, "second")
				return nil
			}
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			putSecrets(req.Header, "first")
			_, err := r.client.Do("order-1", req)
			talks = true
			if how == "Continue" {
				_, err = r.client.Continue(t.Context(), "order-1")
			}
			require.Error(t, err)
			assert.NotContains(t, err.Error(), secretMark)
			attempts, err := r.journal.Attempts(t.Context(), r.lookup("order-1"))
			require.NoError(t, err)
			assert.NotContains(t, fmt.Sprint(attempts), secretMark, "stored")
		})
	}
}

// What Authorize put into the request, or into its error, is in no text.
func TestO03_AuthorizeThatFailsShowsNoCredential(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(503))
		r.transport.Retry.MaxAttempts = 1
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		r.client.Authorize = func(req *http.Request, _ Intent) error {
			putSecrets(req.Header, "second")
			return fmt.Errorf("the server of tokens says that %s has expired", req.Header.Get("Authorization"))
		}
		_, err = r.client.Continue(t.Context(), "order-1")
		require.Error(t, err)
		assert.NotContains(t, err.Error(), secretMark)
	})
}
