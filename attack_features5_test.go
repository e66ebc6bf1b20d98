package idem

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// what a caller does with the header of a stream that it was given is journaled as the
// provider's.
func TestAttack_HeaderOfAStream(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}, "X-A": {"provider"}},
				Body: io.NopCloser(strings.NewReader("data: 1\n\n")), ContentLength: -1, Request: req}, nil
		})
		resp, err := r.client.Do("order-1", mustRequest(t, t.Context(), rigURL, oneOrder))
		require.NoError(t, err)
		resp.Header.Set("X-Mine", "for my own client only")
		resp.Header["X-A"][0] = "changed"
		readAndClose(t, resp)
		out := r.lookup("order-1").Outcome
		require.Equal(t, 200, out.StatusCode)
		assert.Empty(t, out.Header.Get("X-Mine"))
		assert.Equal(t, "provider", out.Header.Get("X-A"))
	})
}

// a hop of a renewal has attempts of its own, beside those of its call.
func TestAttack_AttemptsOfARenewalsHop(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.Fail(402))
			r.transport.Retry.MaxAttempts = 3
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			require.NoError(t, err)
			key := r.lookup("order-1").Key
			sends := 0
			r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
				sends++
				status, h := 500, http.Header{}
				if sends == 2 {
					status = 307
					h.Set("Location", "/elsewhere")
				}
				return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
			})
			name, ctx := "order-2", t.Context()
			if renewed {
				name, ctx = "order-1", WithRenewal(ctx, key)
			}
			_, _, err = r.do(ctx, name, orderBody(2))
			require.Error(t, err)
			assert.Equal(t, 3, sends, "renewed: %v", renewed)
		})
	}
}
