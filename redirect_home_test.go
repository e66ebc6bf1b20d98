package idem

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// otherOrigins are other origins than https://api.example.
var otherOrigins = []string{
	"https://evil.example/x", "http://api.example/x", "https://api.example:8443/x", "https://sub.api.example/x", "//evil.example/x",
	"https://api.example@evil.example/x", "https://api.example.evil.example/x", "http://api.example:443/x", "https://evil.example:443/x",
	`https://evil.example\@api.example/x`, "https://[::1]/x",
}

// homeBase answers the first request at home with a redirect, and notes all.
type homeBase struct {
	status   int
	location string
	via      string // a redirect at home comes first
	all      []*http.Request
	bodies   []string
}

func (b *homeBase) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		whole, _ := io.ReadAll(req.Body)
		req.Body.Close()
		body = string(whole)
	}
	b.all, b.bodies = append(b.all, req), append(b.bodies, body)
	resp := &http.Response{
		StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: req,
		Body: io.NopCloser(strings.NewReader("landed")), ContentLength: 6,
	}
	switch {
	case len(b.all) == 1 && b.via != "":
		resp.StatusCode = 303
		resp.Header.Set("Location", b.via)
	case len(b.all) == 1 || len(b.all) == 2 && b.via != "":
		resp.StatusCode = b.status
		resp.Header.Set("Location", b.location)
	}
	return resp, nil
}

func homeRequest(t *testing.T) *http.Request {
	t.Helper()
	req := mustRequest(t, t.Context(), "https://api.example/charges?api_key=qsecret1", `{"card":"b0dy"}`)
	req.Header.Set("Authorization", "Bearer s3cret-auth")
	req.Header.Set("X-Api-Key", "s3cret-key")
	req.Header.Set("X-Customer", "s3cret-customer")
	req.Header.Set("Cookie", "sid=s3cret-cookie")
	req.Header.Set("User-Agent", "shop/1")
	return req
}

// Whatever a redirect says, the key, the headers and the body stay on the origin
// that the caller named.
func TestRedirectsLeaveEverythingAtHome(t *testing.T) {
	for _, location := range otherOrigins {
		for _, status := range []int{301, 302, 303, 307, 308} {
			for _, via := range []string{"", "/there"} {
				if via != "" && status >= 307 {
					continue // a GET by then
				}
				virtually(t, func(t *testing.T) {
					r := newRig(t)
					base := &homeBase{status: status, location: location, via: via}
					r.transport.Base = base
					for _, how := range []string{"Do", "HTTPClient"} {
						base.all, base.bodies = nil, nil
						req := homeRequest(t)
						if how == "Do" {
							_, _ = r.client.Do("order-do", req)
						} else {
							_, _ = r.client.HTTPClient().Do(req.WithContext(WithOperation(req.Context(), "order-sdk")))
						}
						what := fmt.Sprintf("%d %s by %s via %q", status, location, how, via)
						require.NotEmpty(t, base.all, what)
						assert.Equal(t, "s3cret-key", base.all[0].Header.Get("X-Api-Key"), "at home")
						away := 0
						for i, got := range base.all {
							if origin(got.URL) == "https://api.example:443" {
								continue
							}
							away++
							shown := fmt.Sprintf("%v %v %v", got.Header, got.URL, got.Host)
							assert.NotContains(t, shown, "s3cret", what)
							assert.NotContains(t, shown, "qsecret1", what)
							assert.NotContains(t, strings.ToLower(shown), "idempotency", what)
							assert.Empty(t, base.bodies[i], what)
							assert.Equal(t, "GET", got.Method, what)
							assert.Equal(t, "shop/1", got.Header.Get("User-Agent"), what)
						}
						if status >= 307 {
							assert.Zero(t, away, what)
						} else if !strings.Contains(location, `\`) {
							assert.Equal(t, 1, away, what)
						}
					}
				})
			}
		}
	}
}

// At home everything goes along, but for the key.
func TestRedirectAtHomeKeepsTheHeaders(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		base := &homeBase{status: 303, location: "https://api.example:443/there"}
		r.transport.Base = base
		resp, err := r.client.Do("order-1", homeRequest(t))
		require.NoError(t, err)
		require.Equal(t, "landed", readAndClose(t, resp))
		require.Len(t, base.all, 2)
		assert.Equal(t, "s3cret-key", base.all[1].Header.Get("X-Api-Key"))
		assert.Equal(t, "s3cret-customer", base.all[1].Header.Get("X-Customer"))
		assert.Empty(t, headerValues(base.all[1].Header, "Idempotency-Key"))
		assert.NotEmpty(t, headerValues(base.all[0].Header, "Idempotency-Key"))
	})
}

// A resume goes to another origin as little as a call.
func TestResumedRedirectStaysAtHome(t *testing.T) {
	for _, location := range otherOrigins {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			base := &homeBase{status: 307, location: location}
			r.transport.Base = base
			r.client.Authorize = func(req *http.Request, _ Intent) error {
				req.Header = homeRequest(t).Header
				req.URL.RawQuery = "api_key=qsecret1"
				return nil
			}
			_, err := r.client.Prepare("order-1", homeRequest(t))
			require.NoError(t, err)
			_, err = r.client.Resume(t.Context())
			require.NoError(t, err)
			for _, got := range base.all {
				assert.Equal(t, "https://api.example:443", origin(got.URL), location)
			}
			require.Len(t, base.all, 1)
			assert.Equal(t, HoldRedirect, r.lookup("order-1").HoldReason, location)
		})
	}
}

// What a server names as the target is shown escaped and cut.
func TestTargetOfARedirectIsEscaped(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Base = &homeBase{status: 307, location: "https://evil%E2%80%AE.example" + strings.Repeat(".x", 5000) + "/?token=qsecret2"}
		_, err := r.client.Do("order-1", homeRequest(t))
		require.ErrorIs(t, err, ErrNotSent)
		require.ErrorContains(t, err, `https://evil\u202e.example.x.x`)
		requireFit(t, err.Error(), 1024)
	})
}
