package contract_test

import (
	"net/http"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustRequest(tb testing.TB, method, target string) *http.Request {
	tb.Helper()
	req, err := http.NewRequest(method, target, nil)
	require.NoError(tb, err)
	return req
}

func TestHosts(t *testing.T) {
	tests := []struct {
		pattern, target string
		want            bool
	}{
		{"api.example.com", "https://api.example.com/x", true},
		{"api.example.com", "https://API.Example.COM/x", true},
		{"API.Example.COM", "https://api.example.com/x", true},
		{"api.example.com", "https://api.example.com./x", true},
		{"api.example.com.", "https://api.example.com/x", true},
		{"api.example.com", "https://api.example.com:8443/x", true},
		{"api.example.com", "https://api.example.com:/x", true},
		{"api.example.com", "https://example.com/x", false},
		{"api.example.com", "https://api.example.com.evil.test/x", false},
		{"api.example.com", "https://xapi.example.com/x", false},
		{"api.example.com", "https://evil.test/api.example.com", false},
		{"api.example.com", "https://api.example.com@evil.test/x", false},

		{"api.example.com:443", "https://api.example.com/x", true},
		{"api.example.com:443", "https://api.example.com:443/x", true},
		{"api.example.com:443", "https://api.example.com:0443/x", true},
		{"api.example.com:443", "http://api.example.com/x", false},
		{"api.example.com:80", "http://api.example.com/x", true},
		{"api.example.com:8443", "https://api.example.com:8443/x", true},
		{"api.example.com:8443", "https://api.example.com/x", false},
		{"api.example.com:443", "ftp://api.example.com/x", false},

		{"*.example.com", "https://a.example.com/x", true},
		{"*.example.com", "https://a.b.EXAMPLE.com./x", true},
		{"*.example.com", "https://example.com/x", false},
		{"*.example.com", "https://evilexample.com/x", false},
		{"*.example.com", "https://a.example.com.evil.test/x", false},
		{"*.example.com:8443", "https://a.example.com:8443/x", true},
		{"*.example.com:8443", "https://a.example.com/x", false},
		{"*-live.example.com", "https://shop-live.example.com/x", true},
		{"*-live.example.com", "https://-live.example.com/x", false},
		{"*-live.example.com", "https://live.example.com/x", false},
		{"*example.com", "https://evilexample.com/x", false}, // invalid, and takes nothing
		{"*", "https://example.com/x", false},

		{"127.0.0.1:8080", "http://127.0.0.1:8080/x", true},
		{"127.0.0.1:8080", "http://127.0.0.1:8081/x", false},
		{"[::1]:80", "http://[::1]/x", true},
		{"[::1]:80", "http://[0:0:0:0:0:0:0:1]:80/x", true},
		{"[::1]:80", "http://[::1]:81/x", false},
		{"[::1]", "http://[::1]:81/x", true},
		{"::1", "http://[::1]:81/x", true},
		{"[2001:DB8::1]", "https://[2001:db8:0::1]/x", true},
		{"[2001:db8::1]", "https://[2001:db8::2]/x", false},
		{"[fe80::1%eth0]", "http://[fe80::1%25eth0]/x", true},
		{"[fe80::1%eth0]", "http://[fe80::1]/x", false},
		{"", "https:///x", false},
		{"", "https://example.com/x", false},
	}
	for _, tt := range tests {
		t.Run(tt.pattern+" "+tt.target, func(t *testing.T) {
			c := contract.Keyed("Idempotency-Key", 0).At(tt.pattern)
			req := mustRequest(t, http.MethodPost, tt.target)
			got := c.Resolve(req)
			if tt.want {
				assert.Same(t, c, got)
			} else {
				assert.Nil(t, got)
			}
		})
	}
}

func TestHostsOfNoHost(t *testing.T) {
	anywhere := contract.Keyed("Idempotency-Key", 0)
	assert.NotNil(t, anywhere.Resolve(mustRequest(t, "POST", "https://example.com/")), "unbound takes every host")
	assert.Nil(t, anywhere.At().Resolve(mustRequest(t, "POST", "https://example.com/")), "an empty setting binds to none")
	assert.Nil(t, anywhere.At([]string{}...).Resolve(mustRequest(t, "POST", "https://example.com/")))
}

func TestHostIsTheURLs(t *testing.T) {
	c := contract.Keyed("Idempotency-Key", 0).At("api.example.com")
	req := mustRequest(t, "POST", "https://10.0.0.1/x")
	req.Host = "api.example.com"
	assert.Nil(t, c.Resolve(req), "the bytes go to 10.0.0.1")
	req.URL.Host, req.Host = "api.example.com", "10.0.0.1"
	assert.Same(t, c, c.Resolve(req))
}

func TestPaths(t *testing.T) {
	tests := []struct {
		prefix, target string
		want           bool
	}{
		{"/v1", "https://h/v1", true},
		{"/v1", "https://h/v1/", true},
		{"/v1", "https://h/v1/charges", true},
		{"/v1", "https://h/v1?x=/v2", true},
		{"/v1", "https://h/v10", false},
		{"/v1", "https://h/v1%2Fcharges", false},
		{"/v1", "https://h/v1%2fcharges", false},
		{"/v1", "https://h/V1/charges", false},
		{"/v1", "https://h/x/v1/charges", false},
		{"/v1", "https://h//v1/charges", false},
		{"/v1", "https://h/", false},
		{"/v1", "https://h", false},
		{"/v1", "https://h/v1/../v2/charges", false},
		{"/v1", "https://h/v1/%2e%2E/v2/charges", false},
		{"/v1", "https://h/v1/.%2E/v2", false},
		{"/v1", "https://h/v1/./charges", false},
		{"/v1", "https://h/v1/..", false},
		{"/v1", "https://h/v1/...", true},
		{"/v1", "https://h/v1/a..b", true},
		{"/v1", "https://h/v1/a%20b", true},
		{"/v1/", "https://h/v1", true},
		{"/v1/", "https://h/v1/charges", true},
		{"/a%2Fb", "https://h/a%2Fb/c", true},
		{"/a%2Fb", "https://h/a/b/c", false},
		{"/", "https://h", true},
		{"/", "https://h/any/thing", true},
		{"", "https://h/any", false},
		{"v1", "https://h/v1", false},
	}
	for _, tt := range tests {
		t.Run(tt.prefix+" "+tt.target, func(t *testing.T) {
			c := contract.Keyed("Idempotency-Key", 0)
			c.Paths = []string{"/never", tt.prefix}
			assert.Equal(t, tt.want, c.Resolve(mustRequest(t, "POST", tt.target)) != nil)
		})
	}
}

func TestPathsOfAnOpaqueURL(t *testing.T) {
	c := contract.Keyed("Idempotency-Key", 0)
	c.Paths = []string{"/v1"}
	req := mustRequest(t, "POST", "https://h/v1/x")
	require.NotNil(t, c.Resolve(req))
	req.URL.Opaque = "//h/v2/x"
	assert.Nil(t, c.Resolve(req), "what is sent is the opaque part")
}

func TestMethods(t *testing.T) {
	any := contract.Keyed("Idempotency-Key", 0)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		assert.NotNil(t, any.Resolve(mustRequest(t, method, "https://h/")), method)
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "post", "PURGE"} {
		assert.Nil(t, any.Resolve(mustRequest(t, method, "https://h/")), method)
	}
	post := contract.IETF(time.Hour)
	assert.NotNil(t, post.Resolve(mustRequest(t, "PATCH", "https://h/")))
	assert.Nil(t, post.Resolve(mustRequest(t, "PUT", "https://h/")))
	assert.Nil(t, any.Resolve(&http.Request{URL: &url.URL{Scheme: "https", Host: "h"}}), "an empty method is GET")
}

func TestResolveNil(t *testing.T) {
	var none *contract.Contract
	req := mustRequest(t, "POST", "https://h/")
	assert.Nil(t, none.Resolve(req))
	assert.Nil(t, none.At("h"))
	assert.Nil(t, none.Clone())
	assert.Nil(t, contract.Unsupported.Resolve(nil))
	assert.Nil(t, contract.Unsupported.Resolve(&http.Request{Method: "POST"}))
	assert.Same(t, contract.Unsupported, contract.Unsupported.Resolve(req))
}

func TestAtKeepsTheRest(t *testing.T) {
	double := contract.StripeV1.At("127.0.0.1:12111", "[::1]:80", "Gateway.Example.com")
	assert.Equal(t, []string{"127.0.0.1:12111", "[::1]:80", "gateway.example.com"}, double.Hosts)
	require.NoError(t, double.Validate())
	assert.NotNil(t, double.Resolve(mustRequest(t, "POST", "http://127.0.0.1:12111/v1/charges")))
	assert.NotNil(t, double.Resolve(mustRequest(t, "POST", "http://[::1]/v1/charges")))
	assert.Nil(t, double.Resolve(mustRequest(t, "POST", "http://127.0.0.1:12111/v2/charges")))
	assert.Nil(t, double.Resolve(mustRequest(t, "POST", "https://api.stripe.com/v1/charges")))

	double.Hosts = contract.StripeV1.Hosts
	assert.Equal(t, contract.StripeV1, double)
}

// fill sets every field to something that is not zero, lists with one member.
func fill(tb testing.TB, v reflect.Value) {
	tb.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(tb, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 4))
		fill(tb, v.Index(0))
	case reflect.String:
		v.SetString("before")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	default:
		tb.Fatalf("a field of kind %v: teach Clone and this test to copy it", v.Kind())
	}
}

func TestCopiesShareNothing(t *testing.T) {
	for name, copyOf := range map[string]func(*contract.Contract) *contract.Contract{
		"Clone": (*contract.Contract).Clone,
		"At":    func(c *contract.Contract) *contract.Contract { return c.At("before") },
	} {
		t.Run(name, func(t *testing.T) {
			var original, want contract.Contract
			fill(t, reflect.ValueOf(&original).Elem())
			fill(t, reflect.ValueOf(&want).Elem())
			got := copyOf(&original)
			require.Equal(t, &want, got)
			v := reflect.ValueOf(got).Elem()
			for i := range v.NumField() {
				if f := v.Field(i); f.Kind() == reflect.Slice {
					f.Index(0).SetZero()
					f.Set(reflect.Append(f, f.Index(0)))
				}
			}
			assert.Equal(t, want, original)
		})
	}
}

func TestResolveAllocatesNothing(t *testing.T) {
	stripe := mustRequest(t, "POST", "https://api.stripe.com/v1/charges/ch_1/capture")
	other := mustRequest(t, "POST", "https://other.example.com:8443/v1/charges")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if contract.Known.Resolve(stripe) == nil || contract.Known.Resolve(other) != nil {
			t.Error("wrong contract")
		}
	}))
}
