package idem

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// bodies are kept again; Prepare of a row without one promises what Resume cannot do.
func TestAttack_PrepareOfARowWithoutItsBody(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		require.NoError(t, r.journal.Close())
		r.path, r.options = filepath.Join(t.TempDir(), "n.db"), &SQLiteOptions{NoRequestBodies: true}
		r.transport.Retry.MaxAttempts = 1
		r.open()
		_, _, err := r.do(t.Context(), "order-1", oneOrder)
		requireUnknown(t, err, StateUnknown)
		r.options = nil
		r.reopen()
		in, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, oneOrder))
		require.NoError(t, err)
		t.Log(in.State, in.Prepared)
		time.Sleep(time.Minute)
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		for _, h := range report.Held {
			t.Log(h.HoldReason)
		}
		assert.Empty(t, report.Held)
		assert.Equal(t, 1, report.Settled)
	})
}

// an SDK that signs what it sends, its key with it.
func TestAttack_SignedKeyOfAnSDK(t *testing.T) {
	for name, place := range map[string]contract.Place{"body": {Pointer: "/key"}, "header": {Header: "Idempotency-Key"}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				c := contract.Keyed("Idempotency-Key", time.Hour)
				c.Key = place
				r := newRigFor(t, c)
				r.transport.Key = DeriveKeys([]byte("a secret"))
				req := mustRequest(t, t.Context(), rigURL, `{"key":"sdk-1","amount":4200}`)
				req.Header.Set("Content-Digest", "sha-256=:x:")
				req.Header.Set("Signature-Input", `sig1=("idempotency-key" "content-digest")`)
				req.Header.Set("Signature", "sig1=:x:")
				if name == "header" {
					req.Header.Set("Idempotency-Key", "sdk-1")
				}
				_, res, err := r.roundTrip(t.Context(), "order-1", req)
				t.Log(res.Intent.Key, err)
				for _, a := range r.arrivals() {
					assert.Equal(t, []string{"sdk-1"}, a.Keys, "signed with another key than it is sent with")
				}
				assert.NoError(t, err)
			})
		})
	}
}

// two renewals on, elsewhere: the third generation has the first one's key.
func TestAttack_ThirdGenerationElsewhere(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Fail(402), faultinjection.Fail(402))
		derive := func() { r.transport.Key = DeriveKeys([]byte("a secret")) }
		derive()
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err)
		one := r.lookup("order-1").Key
		_, _, err = r.do(WithRenewal(t.Context(), one), "order-1", orderBody(2))
		require.NoError(t, err)
		two := r.lookup("order-1").Key
		r.path = filepath.Join(t.TempDir(), "another.db")
		r.reopen()
		derive()
		_, _, err = r.do(WithRenewal(t.Context(), two), "order-1", orderBody(3))
		require.ErrorIs(t, err, ErrNotSent)
		assert.ErrorContains(t, err, "renew it where it was made")
		assert.Len(t, r.arrivals(), 2)
		assert.NotEqual(t, one, two)
	})
}

// Fingerprint that panics or changes what it gets harms nothing.
func TestAttack_WildFingerprint(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Fingerprint = func(req *http.Request, body []byte) ([]byte, error) {
			req.Method, req.URL.Path = "GET", "/other"
			req.Header.Set("Authorization", "stolen")
			req.Header.Del("Content-Type")
			for i := range body {
				body[i] = 'x'
			}
			return []byte("same"), nil
		}
		status, _, err := r.do(t.Context(), "order-1", oneOrder)
		require.NoError(t, err)
		require.Equal(t, 201, status)
		a := r.arrivals()[0]
		require.Equal(t, oneOrder, string(a.Body))
		require.Equal(t, "POST", a.Method)
		require.Empty(t, a.Header.Get("Authorization"))
		r.transport.Fingerprint = func(*http.Request, []byte) ([]byte, error) { panic("wild") }
		require.Panics(t, func() { _, _, _ = r.do(t.Context(), "order-2", oneOrder) })
		r.transport.Fingerprint = nil
		_, _, err = r.do(t.Context(), "order-2", oneOrder)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, r.client.Shutdown(ctx))
	})
}

// withheld parameters: what is stored, and what is sent again.
func TestAttack_WithheldOnResume(t *testing.T) {
	for _, c := range []struct{ query, given, want string }{
		{"a=1&token=A&token=&token=B&x=%20", "token=C&evil=1&a=9&token=D", "a=1&token=C&token=&token=D&x=%20"},
		{"to%6ben=A+B&a", "token=C%20D", "to%6ben=C%20D&a"},
		{"token=%1A", "token=%1A", "token=%1A"},
		{"token=a=b&token", "token=c=d", "token=c=d&token"},
	} {
		t.Run(c.query, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				r.transport.Retry.MaxAttempts = 1
				var sent []string
				r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
					sent = append(sent, req.URL.RawQuery)
					st := 500
					if len(sent) > 1 {
						st = 201
					}
					return &http.Response{StatusCode: st, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: req}, nil
				})
				r.client.Authorize = func(req *http.Request, _ Intent) error {
					assert.NotContains(t, req.URL.RawQuery, "\x1a")
					req.URL.RawQuery = c.given
					req.URL.Path, req.Method = "/evil", "GET"
					req.Header.Set("Idempotency-Key", "evil")
					return nil
				}
				_, err := r.client.Do("order-1", mustRequest(t, t.Context(), rigURL+"?"+c.query, oneOrder))
				requireUnknown(t, err, StateUnknown)
				time.Sleep(time.Minute)
				_, err = r.client.Resume(t.Context())
				require.NoError(t, err)
				require.Equal(t, []string{c.query, c.want}, sent)
			})
		})
	}
}
