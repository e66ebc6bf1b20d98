package contract_test

import (
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type c = contract.Contract

// change is an alteration of a valid contract, and what Validate says of it.
type change struct {
	name   string
	change func(*c)
	want   string // empty: valid
}

func checkChanges(t *testing.T, changes []change) {
	for _, tt := range changes {
		t.Run(tt.name, func(t *testing.T) {
			c := contract.Keyed("Idempotency-Key", 24*time.Hour)
			tt.change(c)
			err := c.Validate()
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.True(t, strings.HasPrefix(err.Error(), "contract "), "%v", err)
			assert.Equal(t, 1, strings.Count(err.Error(), "contract "), "one problem, one line: %v", err)
		})
	}
}

func TestValidateKey(t *testing.T) {
	checkChanges(t, []change{
		{"as made", func(c *c) {}, ""},
		{"name with a line break", func(c *c) { c.Name = "a\nb" }, `Name "a\nb" has a character`},

		{"no header", func(c *c) { c.Key.Header = "" }, `Key.Header "" is empty: name the header that carries the key, or set NoKeys`},
		{"header with a space", func(c *c) { c.Key.Header = "My Key" }, `Key.Header "My Key" is not a header name`},
		{"header with a colon", func(c *c) { c.Key.Header = "Key:" }, `Key.Header "Key:" is not a header name`},
		{"header not ASCII", func(c *c) { c.Key.Header = "Ké" }, `Key.Header "Ké" is not a header name`},
		{"unusual header", func(c *c) { c.Key.Header = "x!#$%&'*+-.^_`|~9" }, ""},
		{"Authorization", func(c *c) { c.Key.Header = "authorization" }, `Key.Header "authorization" has another meaning`},
		{"Content-Length", func(c *c) { c.Key.Header = "Content-Length" }, `Key.Header "Content-Length" has another meaning`},
		{"Host", func(c *c) { c.Key.Header = "HOST" }, `Key.Header "HOST" has another meaning`},
		{"Cookie", func(c *c) { c.Key.Header = "Cookie" }, `Key.Header "Cookie" has another meaning`},
		{"unknown encoding", func(c *c) { c.Key.Encoding = "base64" }, `Key.Encoding "base64" is neither`},
		{"unknown form", func(c *c) { c.Form = "hex" }, `Form "hex" is neither`},
		{"too short", func(c *c) { c.MaxLength = 35 }, `MaxLength 35 is less than the 36 bytes`},
		{"too short for its form", func(c *c) { c.MaxLength, c.Form = 32, contract.UUID }, `MaxLength 32 is less`},
		{"negative length", func(c *c) { c.MaxLength = -1 }, `MaxLength -1 is less`},
		{"just long enough", func(c *c) { c.MaxLength, c.Form = 36, contract.UUID }, ""},
		{"quoted and long", func(c *c) { c.Key.Encoding, c.MaxLength = contract.Quoted, 1025 }, `MaxLength 1025 with Key.Encoding "quoted" is more than the 1024`},
		{"raw and long", func(c *c) { c.MaxLength = 1025 }, ""},
		{"echo as replay", func(c *c) { c.Replayed = contract.Marker{Header: "idempotency-key"} }, `Replayed.Header "idempotency-key" is Key.Header too`},
	})
}

func TestValidateDurations(t *testing.T) {
	checkChanges(t, []change{
		{"negative retention", func(c *c) { c.Retention = -time.Second }, `Retention -1s is negative`},
		{"negative delay", func(c *c) { c.MinDelay = -1 }, `MinDelay -1ns is negative`},
		{"negative timeout", func(c *c) { c.AttemptTimeout = -time.Minute }, `AttemptTimeout -1m0s is negative`},
		{"delay over retention", func(c *c) { c.MinDelay = 24 * time.Hour }, `MinDelay 24h0m0s is not less than Retention 24h0m0s`},
		{"timeout over retention", func(c *c) { c.AttemptTimeout = 25 * time.Hour }, `AttemptTimeout 25h0m0s is not less than Retention 24h0m0s`},
		{"timeout, unknown retention", func(c *c) { c.Retention, c.AttemptTimeout = 0, 25*time.Hour }, ""},
	})
}

func TestValidateRoutes(t *testing.T) {
	checkChanges(t, []change{
		{"no hosts", func(c *c) { c.Hosts = []string{} }, `Hosts [] is an empty list`},
		{"no paths", func(c *c) { c.Paths = []string{} }, `Paths [] is an empty list`},
		{"no methods", func(c *c) { c.Methods = []string{} }, `Methods [] is an empty list`},
		{"host twice", func(c *c) { c.Hosts = []string{"a.b", "A.b"} }, `Hosts[1] "a.b" is listed twice`},
		{"path relative", func(c *c) { c.Paths = []string{"v1"} }, `Paths[0] "v1" does not begin with "/"`},
		{"path with half a star", func(c *c) { c.Paths = []string{"/v1/a*"} }, `Paths[0] "/v1/a*" has a * that is not a whole segment`},
		{"paths with stars", func(c *c) { c.Paths = []string{"/v1/*", "/*/*/x", "/*"} }, ""},
		{"path with a query", func(c *c) { c.Paths = []string{"/v1?x"} }, `Paths[0] "/v1?x" is more than a path`},
		{"path not escaped", func(c *c) { c.Paths = []string{"/a b"} }, `Paths[0] "/a b" is not written in its escaped form`},
		{"path badly escaped", func(c *c) { c.Paths = []string{"/a%zz"} }, `Paths[0] "/a%zz" is not written in its escaped form`},
		{"path with dots", func(c *c) { c.Paths = []string{"/a/../b"} }, `Paths[0] "/a/../b" has a "." or ".." segment`},
		{"path twice", func(c *c) { c.Paths = []string{"/a", "/a"} }, `Paths[1] "/a" is listed twice`},
		{"good paths", func(c *c) { c.Paths = []string{"/", "/v1/", "/a%2Fb"} }, ""},
		{"method lower case", func(c *c) { c.Methods = []string{"post"} }, `Methods[0] "post" is not an upper-case method`},
		{"method empty", func(c *c) { c.Methods = []string{""} }, `Methods[0] "" is not an upper-case method`},
		{"method safe", func(c *c) { c.Methods = []string{"POST", "GET"} }, `Methods[1] "GET" is a method without an effect`},
	})
}

func TestValidateScopeHeaders(t *testing.T) {
	checkChanges(t, []change{
		{"scope header", func(c *c) { c.ScopeHeaders = []string{"X Account"} }, `ScopeHeaders[0] "X Account" is not a header name`},
		{"scope is the key", func(c *c) { c.ScopeHeaders = []string{"idempotency-key"} }, `ScopeHeaders[0] "idempotency-key" is Key.Header too`},
		{"scope is a credential", func(c *c) { c.ScopeHeaders = []string{"Authorization"} }, `ScopeHeaders[0] "Authorization" is a credential`},
		{"scope twice", func(c *c) { c.ScopeHeaders = []string{"X-A", "x-a"} }, `ScopeHeaders[1] "X-A" is listed twice`},
	})
}

func TestValidateAnswers(t *testing.T) {
	signals := func(s ...contract.Signal) []contract.Signal { return s }
	checkChanges(t, []change{
		{"empty signal", func(c *c) { c.InFlight = signals(contract.Signal{}) }, `InFlight[0] {Status:0 Pointer: Value: Text: Also: Header:{Header: Value: Param:}} is empty`},
		{"odd status", func(c *c) { c.Mismatch = signals(contract.Signal{Status: 42}) }, `Mismatch[0].Status 42 is not a final status`},
		{"value alone", func(c *c) { c.Mismatch = signals(contract.Signal{Status: 422, Value: "x"}) }, `Mismatch[0].Value "x" has no Pointer`},
		{"pointer without a slash", func(c *c) { c.StoreDown = signals(contract.Signal{Pointer: "error.code"}) }, `StoreDown[0].Pointer "error.code" is not a JSON pointer: it does not begin`},
		{"pointer with a bad escape", func(c *c) { c.StoreDown = signals(contract.Signal{Pointer: "/a~b"}) }, `StoreDown[0].Pointer "/a~b" is not a JSON pointer: it has a ~`},
		{"body of a success", func(c *c) { c.AlreadyDone = signals(contract.Signal{Status: 200, Pointer: "/a"}) }, `AlreadyDone[0].Pointer "/a" with Status 200 is never looked at`},
		{"body of a success, read", func(c *c) {
			c.AlreadyDone, c.ErrorsInside200 = signals(contract.Signal{Status: 200, Pointer: "/a"}), true
		}, ""},
		{"signal twice", func(c *c) { c.Mismatch = signals(contract.Signal{Status: 422}, contract.Signal{Status: 422}) }, `Mismatch[1] {Status:422 Pointer: Value: Text: Also: Header:{Header: Value: Param:}} is listed twice`},
		{"two meanings", func(c *c) {
			c.Mismatch, c.NotExecuted = signals(contract.Signal{Status: 422}), signals(contract.Signal{Status: 422})
		}, `never counts: Mismatch[0] matches the same answers and is judged first`},
		{"hidden by a wider one", func(c *c) {
			c.AlreadyDone = signals(contract.Signal{Status: 409})
		}, `InFlight[0] {Status:409 Pointer: Value: Text: Also: Header:{Header:Retry-After Value: Param:}} never counts: AlreadyDone[0]`},
		{"wider one behind", func(c *c) { c.NotExecuted = signals(contract.Signal{Status: 409}) }, ""},
		{"proof by status", func(c *c) { c.Proven = signals(contract.Signal{Status: 402}) }, `Proven[0] {Status:402 Pointer: Value: Text: Also: Header:{Header: Value: Param:}} has only a status`},
		{"proof by code", func(c *c) { c.Proven = signals(contract.Signal{Status: 402, Pointer: "/code"}) }, ""},
		{"marker without a header", func(c *c) { c.Transient = contract.Marker{Value: "true"} }, `Transient.Header "" is empty beside Value "true"`},
		{"marker's header", func(c *c) { c.Replayed.Header = "a b" }, `Replayed.Header "a b" is not a header name`},
		{"marker's parameter", func(c *c) { c.Replayed.Param = "a b" }, `Replayed.Param "a b" is not a parameter name`},
		{"stored and not stored", func(c *c) { c.Transient = c.Replayed }, `Transient.Header "Idempotent-Replayed" is Replayed too`},
		{"signal's header", func(c *c) { c.InFlight[0].Header.Header = ":" }, `InFlight[0].Header.Header ":" is not a header name`},
	})
}

func TestValidateAdvice(t *testing.T) {
	checkChanges(t, []change{
		{"advice without a header", func(c *c) { c.ShouldRetry = contract.Advice{Yes: "y", No: "n"} }, `ShouldRetry.Header "" is not a header name`},
		{"advice without yes", func(c *c) { c.ShouldRetry = contract.Advice{Header: "A", No: "n"} }, `ShouldRetry.Yes "" is empty`},
		{"advice without no", func(c *c) { c.ShouldRetry = contract.Advice{Header: "A", Yes: "y"} }, `ShouldRetry.No "" is empty`},
		{"advice that says one thing", func(c *c) { c.ShouldRetry = contract.Advice{Header: "A", Yes: "x", No: "X"} }, `ShouldRetry.No "X" is the same as Yes "x"`},
		{"wait without a header", func(c *c) { c.Waits = []contract.Wait{{}} }, `Waits[0].Header "" is not a header name`},
		{"wait's unit", func(c *c) { c.Waits = []contract.Wait{{Header: "A", Unit: "h"}} }, `Waits[0].Unit "h" is neither`},
		{"wait twice", func(c *c) { c.Waits = []contract.Wait{{Header: "A"}, {Header: "a", Unit: "ms"}} }, `Waits[1].Header "a" is listed twice`},
		{"good waits", func(c *c) {
			c.Waits = []contract.Wait{{Header: "retry-after-ms", Unit: "ms"}, {Header: "X", Unit: "unix"}}
		}, ""},
	})
}

func TestValidateStatuses(t *testing.T) {
	checkChanges(t, []change{
		{"retry a success", func(c *c) { c.RetryStatuses = []int{200} }, `RetryStatuses[0] 200 is not a status from 300 to 599`},
		{"final redirect", func(c *c) { c.FinalStatuses = []int{302} }, `FinalStatuses[0] 302 is not a status`},
		{"retry twice", func(c *c) { c.RetryStatuses = []int{409, 409} }, `RetryStatuses[1] 409 is listed twice`},
		{"retry and final", func(c *c) { c.RetryStatuses, c.FinalStatuses = []int{409}, []int{500, 409} }, `FinalStatuses[1] 409 is in RetryStatuses too`},
		{"day", func(c *c) { c.Checked = "29.11.2026" }, `Checked "29.11.2026" is not a date`},
	})
}

func TestValidateHosts(t *testing.T) {
	for _, host := range []string{
		"api.example.com", "API.example.com.", "localhost", "my_host:1", "127.0.0.1:65535", "*.example.com:8443",
		"*-live.example.com", "[::1]", "[::1]:80", "::1", "fe80::", "[fe80::1%eth0]:80", "xn--bcher-kva.example",
	} {
		assert.NoError(t, contract.Keyed("K", 0).At(host).Validate(), host)
	}
	for host, want := range map[string]string{
		"":                        "is empty",
		"https://api.example.com": "has a scheme",
		"api.example.com/v1":      "is more than a host",
		"user@api.example.com":    "is more than a host",
		"api example.com":         "is more than a host",
		"bücher.example":          "xn--",
		":8080":                   "is not a host name",
		"a..b":                    "is not a host name",
		".":                       "is not a host name",
		"a%2Eb":                   "is not a host name",
		"api.example.com:":        "has an empty port",
		"[::1]:":                  "has an empty port",
		"api.example.com:http":    "has a port that is not a number",
		"api.example.com:0":       "has a port that is not a number",
		"api.example.com:65536":   "has a port that is not a number",
		"[::1":                    "is not an IPv6 address",
		"[::1]80":                 "is not an IPv6 address",
		"[127.0.0.1]:80":          "is not an IPv6 address",
		"1:2:3":                   "is not an IPv6 address",
		"*":                       "has a * that is not followed",
		"*example.com":            "has a * that is not followed",
		"a.*.com":                 "has a * that is not in front",
		"*.*.com":                 "has a * that is not in front",
	} {
		require.ErrorContains(t, contract.Keyed("K", 0).At(host).Validate(), want, host)
	}
}

func TestValidateNoKeys(t *testing.T) {
	require.NoError(t, contract.Unsupported.At("h").Validate())

	c := contract.StripeV1.Clone()
	c.NoKeys, c.Form, c.Key.Encoding, c.RotatingCredentials = true, contract.UUID, contract.Quoted, true
	c.AlreadyDone = []contract.Signal{{Status: 410}}
	c.StoreDown = []contract.Signal{{Status: 503}}
	c.Proven = []contract.Signal{{Status: 402, Pointer: "/code"}}
	err := c.Validate()
	for _, field := range []string{
		`Key.Header "Idempotency-Key"`, `Key.Encoding "quoted"`, `Form "uuid"`, "MaxLength 255", "Retention 24h0m0s",
		"RotatingCredentials true", `Replayed.Header "Idempotent-Replayed"`, "InFlight [", "Mismatch [", "AlreadyDone [",
		"StoreDown [", "Proven [", "StoresServerErrors true", "RetryStatuses [409]",
	} {
		assert.ErrorContains(t, err, `contract "stripe_v1": `+field)
	}
	assert.Equal(t, 18, strings.Count(err.Error(), "contradicts NoKeys"))
}

func TestValidateJoinsAll(t *testing.T) {
	c := contract.Keyed("", -time.Hour).At("https://api.example.com")
	c.MaxLength = 8
	err := c.Validate()
	for _, want := range []string{"Key.Header", "Retention", "Hosts[0]", "MaxLength"} {
		assert.ErrorContains(t, err, `contract "keyed": `+want)
	}
	assert.Len(t, strings.Split(err.Error(), "\n"), 4)

	var none *contract.Contract
	assert.Error(t, none.Validate())
}
