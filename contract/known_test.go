package contract_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exported are all contracts that this package gives away.
func exported() map[string]*contract.Contract {
	return map[string]*contract.Contract{
		"StripeV1":     contract.StripeV1,
		"StripeV2":     contract.StripeV2,
		"Adyen":        contract.Adyen,
		"Unsupported":  contract.Unsupported,
		"Keyed":        contract.Keyed("X-Request-Idem", 24*time.Hour),
		"KeyedUnknown": contract.Keyed("Idempotency-Key", 0),
		"IETF":         contract.IETF(time.Hour),
	}
}

func TestExportedContractsAreValid(t *testing.T) {
	for name, c := range exported() {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.Validate())
			assert.NotEmpty(t, c.Name)
			if c.Hosts != nil {
				assert.NotEmpty(t, c.Sources)
				assert.Equal(t, "2026-11-29", c.Checked)
			}
			if !c.NoKeys {
				require.NoError(t, c.CheckKey("8e03978e-40d5-43dd-bc93-6894a57f9324"))
			}
		})
	}
}

func TestKnown(t *testing.T) {
	for _, tt := range []struct {
		target string
		want   *contract.Contract
	}{
		{"https://api.stripe.com/v1/charges", contract.StripeV1},
		{"https://API.stripe.com:443/v1", contract.StripeV1},
		{"https://api.stripe.com/v2/core/accounts", contract.StripeV2},
		{"https://api.stripe.com/v3/x", nil},
		{"https://api.stripe.com/", nil},
		{"https://api.stripe.com/v1/../v2/x", nil},
		{"https://files.stripe.com/v1/files", nil},
		{"https://api.stripe.com.evil.test/v1/charges", nil},
		{"https://checkout-test.adyen.com/v71/payments", contract.Adyen},
		{"https://1797a841fbb37ca7-Shop-checkout-live.adyenpayments.com/checkout/v71/payments", contract.Adyen},
		{"https://1797a841fbb37ca7-Shop-pal-live.adyenpayments.com/pal/servlet/Payment/v68/authorise", nil},
		{"https://api.example.com/v1/charges", nil},
	} {
		t.Run(tt.target, func(t *testing.T) {
			assert.Equal(t, tt.want, contract.Known.Resolve(mustRequest(t, "POST", tt.target)))
			assert.Nil(t, contract.Known.Resolve(mustRequest(t, "GET", tt.target)))
		})
	}
}

func TestStripe(t *testing.T) {
	assert.Same(t, contract.StripeV1, contract.Stripe.Resolve(mustRequest(t, "POST", "https://api.stripe.com/v1/charges")))
	assert.Same(t, contract.StripeV2, contract.Stripe.Resolve(mustRequest(t, "POST", "https://api.stripe.com/v2/x")))
	assert.Nil(t, contract.Stripe.Resolve(mustRequest(t, "POST", "https://checkout-test.adyen.com/v71/payments")))

	double := contract.StripeAt("127.0.0.1:12111")
	assert.Equal(t, "stripe_v1", double.Resolve(mustRequest(t, "POST", "http://127.0.0.1:12111/v1/charges")).Name)
	assert.Equal(t, "stripe_v2", double.Resolve(mustRequest(t, "POST", "http://127.0.0.1:12111/v2/x")).Name)
	assert.Nil(t, double.Resolve(mustRequest(t, "POST", "https://api.stripe.com/v1/charges")))
}

func TestFirst(t *testing.T) {
	req := mustRequest(t, "POST", "https://api.stripe.com/v1/charges")
	mine := contract.Keyed("Idempotency-Key", 0).At("api.stripe.com")
	var typedNil *contract.Contract

	assert.Same(t, mine, contract.First(mine, contract.Known).Resolve(req))
	assert.Same(t, contract.StripeV1, contract.First(contract.Known, mine).Resolve(req))
	assert.Same(t, mine, contract.First(nil, typedNil, contract.First(), mine).Resolve(req))
	assert.Nil(t, contract.First().Resolve(req))
	assert.Nil(t, contract.First(nil).Resolve(req))

	list := []contract.Resolver{mine}
	r := contract.First(list...)
	list[0] = contract.Unsupported
	assert.Same(t, mine, r.Resolve(req), "the caller's list was copied")
}

// TestFacts holds what contracts.json says of the four families; a change of one
// of these figures is a decision, not an accident.
func TestFacts(t *testing.T) {
	raw := contract.Place{Header: "Idempotency-Key"}
	for _, c := range []*contract.Contract{contract.StripeV1, contract.StripeV2, contract.Adyen} {
		assert.Equal(t, raw, c.Key, c.Name)
		assert.Equal(t, []string{"POST"}, c.Methods, c.Name)
		assert.Empty(t, c.Proven, c.Name)
		assert.False(t, c.RotatingCredentials, c.Name)
	}
	assert.Equal(t, 24*time.Hour, contract.StripeV1.Retention)
	assert.Zero(t, contract.StripeV2.Retention, "not verified")
	assert.Equal(t, 168*time.Hour, contract.Adyen.Retention)
	assert.Equal(t, 90*time.Minute, contract.IETF(90*time.Minute).Retention)
	assert.True(t, contract.StripeV1.StoresServerErrors)
	assert.False(t, contract.StripeV2.StoresServerErrors)
	assert.True(t, contract.Adyen.StoresServerErrors)
	assert.Equal(t, contract.Marker{}, contract.StripeV2.Replayed)
	assert.Equal(t, contract.Marker{}, contract.Adyen.Replayed)
	assert.Equal(t, contract.Marker{}, contract.IETF(0).Replayed)
	assert.Equal(t, contract.Quoted, contract.IETF(0).Key.Encoding)
	assert.True(t, contract.Unsupported.NoKeys)
}

func TestAnswers(t *testing.T) {
	const (
		stripeInUse    = `{"error":{"code":"idempotency_key_in_use","type":"idempotency_error"}}`
		stripeMismatch = `{"error":{"type":"idempotency_error"}}`
	)
	keyed, ietf := contract.Keyed("Idempotency-Key", 0), contract.IETF(0)
	problem := http.Header{"Content-Type": {"application/problem+json; charset=utf-8"}}
	link := http.Header{"Link": {`<https://h/doc>; rel="describedby"; type="text/html"`}}
	retryAfter := http.Header{"Retry-After": {"1"}}
	for _, tt := range []struct {
		name   string
		c      *contract.Contract
		status int
		header http.Header
		body   string
		want   string
	}{
		{"CV010", contract.StripeV1, 400, nil, stripeMismatch, "mismatch"},
		{"stripe in use", contract.StripeV1, 409, nil, stripeInUse, "in flight"},
		{"stripe other 409", contract.StripeV1, 409, nil, `{"error":{"code":"lock_timeout"}}`, ""},
		{"stripe other 400", contract.StripeV1, 400, nil, `{"error":{"type":"invalid_request_error"}}`, ""},
		{"stripe v2 409", contract.StripeV2, 409, nil, "", "in flight"},
		{"CV024", ietf, 422, http.Header{"Content-Type": {"application/json"}}, "{}", ""},
		{"ietf plain 422", ietf, 422, nil, "", ""},
		{"ietf problem 422", ietf, 422, problem, "", "mismatch"},
		{"ietf link 422", ietf, 422, link, "", "mismatch"},
		{"ietf other link 422", ietf, 422, http.Header{"Link": {`<https://h/describedby>; rel="next"`}}, "", ""},
		{"ietf plain 409", ietf, 409, nil, "", ""},
		{"ietf problem 409", ietf, 409, problem, "", "in flight"},
		{"ietf link 409", ietf, 409, link, "", "in flight"},
		{"ietf 409 with a time", ietf, 409, retryAfter, "", "in flight"},
		{"CV028", contract.Adyen, 422, nil, `{"errorCode":"704"}`, "in flight"},
		{"CV028 as number, 409", contract.Adyen, 409, nil, `{"errorCode":704}`, "in flight"},
		{"adyen validation", contract.Adyen, 422, nil, `{"errorCode":"14_010"}`, ""},
		{"CV031", contract.Adyen, 503, nil, `{"errorCode":"703"}`, "store down"},
		{"adyen other 503", contract.Adyen, 503, nil, `<html>`, ""},
		{"keyed 409 with a time", keyed, 409, retryAfter, "", "in flight"},
		{"keyed plain 409", keyed, 409, nil, "", ""},
		{"keyed 503 with a time", keyed, 503, retryAfter, "", ""},
		{"keyed 422", keyed, 422, problem, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			for _, list := range []struct {
				name    string
				signals []contract.Signal
			}{
				{"already done", tt.c.AlreadyDone}, {"in flight", tt.c.InFlight}, {"mismatch", tt.c.Mismatch},
				{"store down", tt.c.StoreDown}, {"not executed", tt.c.NotExecuted},
			} {
				if contract.Any(list.signals, tt.status, tt.header, []byte(tt.body)) {
					got = list.name
					break
				}
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestReplayMarkers(t *testing.T) {
	for _, c := range []*contract.Contract{contract.StripeV1, contract.Keyed("Idempotency-Key", 0)} {
		assert.True(t, c.Replayed.Matches(http.Header{"Idempotent-Replayed": {"true"}}), c.Name)
		assert.False(t, c.Replayed.Matches(http.Header{"Idempotent-Replayed": {"false"}}), "CV108, %s", c.Name)
		assert.False(t, c.Replayed.Matches(http.Header{}), c.Name)
	}
	assert.True(t, contract.Adyen.Transient.Matches(http.Header{"Transient-Error": {"true"}}), "CV029")
	assert.False(t, contract.Adyen.Transient.Matches(http.Header{"Transient-Error": {"false"}}))
}

// TestUseChangesNothing compares the shared values with copies made before
// everything of the package was used on them.
func TestUseChangesNothing(t *testing.T) {
	before := make(map[string]*contract.Contract)
	values := exported()
	for name, c := range values {
		before[name] = c.Clone()
	}
	for _, c := range values {
		req := mustRequest(t, "POST", "https://API.stripe.com/v1/x")
		contract.First(c, contract.Known).Resolve(req)
		require.NoError(t, c.Validate())
		bound := c.At("H.example.com")
		bound.Hosts[0] = "changed"
		bound.RetryStatuses = append(bound.RetryStatuses, 500)
		_ = c.CheckKey("k")
		for _, list := range [][]contract.Signal{c.InFlight, c.Mismatch, c.StoreDown} {
			contract.Any(list, 409, http.Header{}, []byte("{}"))
		}
		if parsed, err := c.Key.Parse(c.Key.Format("k")); !c.NoKeys {
			require.NoError(t, err)
			require.Equal(t, "k", parsed)
		}
	}
	for name, c := range values {
		assert.Equal(t, before[name], c, name)
	}
}
