package idem

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/idem-go/idem/faultinjection"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// More of what an adversary found: credentials, hosts and texts.

func TestAdoptedKeyUnderAnyOtherCredential(t *testing.T) {
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Auth-Token", "PRIVATE-TOKEN", "user info"} {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			send := func(credential string) error {
				req := mustRequest(t, t.Context(), rigURL, orderBody(1))
				req.Header.Set("Idempotency-Key", "own-key")
				if name == "user info" {
					req.URL.User = url.UserPassword("me", credential)
				} else {
					req.Header.Set(name, credential)
				}
				_, err := r.transport.RoundTrip(req)
				return err
			}
			require.NoError(t, send("alice"))
			require.NoError(t, send("alice"))
			require.ErrorIs(t, send("bob"), ErrMismatch, name)
			assert.Len(t, r.arrivals(), 1)
		})
	}
}

// A relative redirect keeps the Host that the caller set, as net/http does.
func TestRedirectKeepsTheHost(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Redirect(307, "/b"), faultinjection.Redirect(307, rigURL+"/c"))
		req := mustRequest(t, t.Context(), rigURL, orderBody(1))
		req.Host = "tenant.example"
		resp, err := r.client.Do("order-1", req)
		require.NoError(t, err)
		readAndClose(t, resp)
		var hosts []string
		for _, a := range r.arrivals() {
			hosts = append(hosts, a.Host)
		}
		assert.Equal(t, []string{"tenant.example", "tenant.example", "provider.example"}, hosts)
	})
	t.Run("resumed", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.Status(503), faultinjection.Redirect(307, "/b"), faultinjection.Redirect(307, rigURL+"/c"))
			r.transport.Retry.MaxAttempts = 1
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			req.Host = "tenant.example"
			_, err := r.client.Do("order-1", req)
			requireUnknown(t, err, StateUnknown)
			requireResumed(t, r, "order-1")
			assert.Equal(t, "tenant.example", r.arrivals()[2].Host)
			assert.Equal(t, "provider.example", r.arrivals()[3].Host)
		})
	})
}

// Neither queries nor user names nor credentials are in texts.
func TestTextsHoldNoSecrets(t *testing.T) {
	const secret = "S3CRET"
	address := "http://bob:" + secret + "@provider.example/charges?api_key=" + secret
	bases := map[string]func(r *rig) http.RoundTripper{
		"bad location": func(*rig) http.RoundTripper {
			return answering(func(*http.Request) *http.Response {
				return &http.Response{StatusCode: 307, Header: header("Location", "://"+secret), Body: http.NoBody}
			})
		},
		"endless redirect": func(*rig) http.RoundTripper {
			return answering(func(*http.Request) *http.Response {
				return &http.Response{StatusCode: 307, Header: header("Location", "/x?token="+secret), Body: http.NoBody}
			})
		},
		"talkative base": func(*rig) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				return nil, fmt.Errorf("%s failed with %s", req.URL, req.Header.Get("Authorization"))
			})
		},
	}
	for name, base := range bases {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			r.transport.Base = base(r)
			r.transport.Retry.MaxAttempts = 12
			req := mustRequest(t, t.Context(), address, orderBody(1))
			req.Header.Set("Authorization", "Bearer "+secret)
			_, err := r.client.Do("order-1", req)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), secret, name)
			attempts, err := r.journal.Attempts(t.Context(), r.lookup("order-1"))
			require.NoError(t, err)
			for _, a := range attempts {
				assert.NotContains(t, a.Error, secret, name)
			}
		})
	}
}

func TestNamesOfSecretHeaders(t *testing.T) {
	for _, name := range []string{
		"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "X-Auth-Token", "OK-ACCESS-PASSPHRASE", "CB-ACCESS-SIGN",
		"X-JWT-Assertion", "DPoP", "X-Amz-Credential", "X-Hmac", "X-Otp", "X-Pin", "X-Pass", "X-Passwd", "X-Bearer", "X-Forwarded-Client-Cert",
		"X-Signature", "My-Secret", "mine",
	} {
		assert.True(t, isSecret(name, []string{"Mine"}), name)
	}
	for _, name := range []string{"Content-Type", "X-Design", "X-Passenger", "X-Shipping", "X-Request-Id", "Stripe-Account"} {
		assert.False(t, isSecret(name, nil), name)
	}
}
