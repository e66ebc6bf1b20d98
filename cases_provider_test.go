package idem

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

const formType = "application/x-www-form-urlencoded"

// providerBodies are requests of a provider's own kind, by the contract's name.
// The others take any JSON.
var providerBodies = map[string]struct{ contentType, body string }{
	"stripe_v1":                    {formType, "amount=4200&currency=usd&metadata[order]=order-1"},
	"twilio":                       {formType, "To=%2B15550001&From=%2B15550002&Body=hello"},
	"sendgrid":                     {"application/json", `{"personalizations":[{"to":[{"email":"a@b.example"}]}],"subject":"hello"}`},
	"openai":                       {"application/json", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`},
	"anthropic":                    {"application/json", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`},
	"braintree_classic":            {"application/json", `{"query":"mutation($input: C!){chargePaymentMethod(input:$input){transaction{id}}}","variables":{"input":{"amount":"42.00"}}}`},
	"braintree_amo":                {"application/json", `{"query":"mutation($input: C!, $ApiRequestKey: ID!){charge(input:$input){id}}","variables":{"input":{"amount":"42.00"}}}`},
	"shopify":                      {"application/json", `{"query":"mutation($input: R!, $idempotencyKey: String!){refundCreate(input:$input) @idempotent(key:$idempotencyKey){userErrors{code}}}","variables":{"input":{"orderId":"gid://1"}}}`},
	"square_payments":              {"application/json", `{"source_id":"cnon:1","amount_money":{"amount":4200,"currency":"USD"}}`},
	"square_orders":                {"application/json", `{ "order": {"location_id":"L1","line_items":[{"quantity":"1"}]} }`},
	"mercury":                      {"application/json", `{"recipientId":"r1","amount":42.00,"paymentMethod":"ach"}`},
	"wise":                         {"application/json", "{\n  \"targetAccount\": 1,\n  \"quoteUuid\": \"q1\"\n}"},
	"plaid_transfer_authorization": {"application/json", `{"client_id":"c","type":"debit","amount":"42.00","user":{"legal_name":"A"}}`},
	"plaid_wallet":                 {"application/json", `{"wallet_id":"w1","amount":{"iso_currency_code":"GBP","value":42.0}}`},
	"lithic_payments":              {"application/json", `{"amount":4200,"type":"COLLECTION"}`},
	"aws_ec2":                      {formType, "Action=RunInstances&Version=2016-11-15&ImageId=ami-1&MinCount=1&MaxCount=1"},
	"aws_dynamodb_txn":             {"application/x-amz-json-1.0", `{"TransactItems":[{"Put":{"TableName":"t","Item":{"id":{"S":"1"}}}}]}`},
	"worldpay_wpg":                 {"text/xml", `<paymentService version="1.4"><submit><order orderCode="1"/></submit></paymentService>`},
}

// providerURL is a route of the contract on the provider's own host; for one
// that is bound to none, on ours.
func providerURL(c *contract.Contract) string {
	host, path := "provider.example", "/charges"
	if len(c.Hosts) > 0 {
		host = strings.Replace(c.Hosts[0], "*", "x1", 1)
	}
	if len(c.Paths) > 0 {
		path = strings.ReplaceAll(c.Paths[0], "*", "x1")
	}
	return "http://" + host + path
}

// providerRules are the package's own where they know the provider's hosts.
func providerRules(c *contract.Contract) contract.Resolver {
	if len(c.Hosts) > 0 {
		return contract.Known
	}
	return c.At("provider.example")
}

func providerRequest(tb testing.TB, c *contract.Contract, ctx context.Context) *http.Request {
	tb.Helper()
	kind, ok := providerBodies[c.Name]
	if !ok {
		kind.contentType, kind.body = "application/json", `{"amount":4200}`
	}
	req := mustRequest(tb, ctx, providerURL(c), kind.body)
	req.Header.Set("Content-Type", kind.contentType)
	require.Equal(tb, c.Name, providerRules(c).Resolve(req).Name)
	return req
}

// providerRig is a rig whose server is that provider.
func providerRig(tb testing.TB, c *contract.Contract, steps ...faultinjection.Step) *rig {
	tb.Helper()
	r := newRigFor(tb, c.At("provider.example"), steps...)
	r.transport.Contracts = providerRules(c)
	return r
}

// said is what becomes of one arrival: an answer in front of the key store, or
// else a step of the server.
type said struct {
	step         faultinjection.Step
	status       int
	header, body string
}

// script says what becomes of each arrival, one at a time.
func script(r *rig, of func(n int) said) {
	base, n := r.server.Transport(), -1
	r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		n++
		s := of(n)
		if s.status > 0 {
			s.step = faultinjection.Status(s.status)
		}
		r.server.Plan(s.step)
		resp, err := base.RoundTrip(req)
		if err == nil && s.status > 0 {
			resp.Header, resp.ContentLength = headerLines(s.header), int64(len(s.body))
			resp.Body = io.NopCloser(strings.NewReader(s.body))
		}
		return resp, err
	})
}

func decidedAs(r *rig, in Intent) (all []string) {
	r.tb.Helper()
	attempts, err := r.journal.Attempts(r.tb.Context(), in)
	require.NoError(r.tb, err)
	for _, a := range attempts {
		all = append(all, a.Decision)
	}
	return all
}

// The meanings that a conflict can have.
const (
	meansInFlight = "in flight" // come again
	meansMismatch = "mismatch"  // the key was used with another request
	meansRefused  = "refused"   // by the business
	meansDone     = "done"      // and here it is
	meansUnclear  = "unclear"   // the provider's clients send it again
)

// conflicts are a provider's answers that share a status with others of another
// meaning.
var conflicts = []struct {
	name         string
	c            *contract.Contract
	means        string
	doubted      string // what it means in doubt, where that differs
	status       int
	header, body string
}{
	{"Stripe, key in use", contract.StripeV1, meansInFlight, "", 409, "Retry-After: 1", `{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use"}}`},
	{"Stripe, other parameters", contract.StripeV1, meansMismatch, "", 400, "", `{"error":{"type":"idempotency_error"}}`},
	{"Stripe, no retry advised", contract.StripeV1, meansRefused, "", 409, "Stripe-Should-Retry: false", `{"error":{"code":"resource_already_exists"}}`},
	{"Stripe, bad request", contract.StripeV1, meansRefused, "", 400, "", `{"error":{"type":"invalid_request_error"}}`},
	{"Stripe, lock", contract.StripeV1, meansUnclear, "", 409, "", `{"error":{"code":"lock_timeout"}}`},

	{"IETF, problem", contract.IETF(time.Hour), meansInFlight, "", 409, "Content-Type: application/problem+json\nRetry-After: 1", `{"title":"A request is outstanding"}`},
	{"IETF, link", contract.IETF(time.Hour), meansInFlight, "", 409, `Link: <https://a.example/d>; rel="describedby"` + "\nRetry-After: 1", ``},
	{"IETF, key reused", contract.IETF(time.Hour), meansMismatch, "", 422, "Content-Type: application/problem+json", `{"title":"Key is used"}`},
	{"IETF, business", contract.IETF(time.Hour), meansRefused, "", 409, "Content-Type: application/json", `{"code":"sold_out"}`},
	{"IETF, validation", contract.IETF(time.Hour), meansRefused, "", 422, "Content-Type: application/json", `{"code":"amount"}`},

	{"GoCardless, made before", contract.GoCardless, meansDone, "", 409, "", `{"error":{"errors":[{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"PM1"}}]}}`},
	{"GoCardless, made before, but what", contract.GoCardless, meansRefused, "", 409, "", `{"error":{"errors":[{"reason":"idempotent_creation_conflict"}]}}`},
	{"GoCardless, business", contract.GoCardless, meansRefused, "", 409, "", `{"error":{"errors":[{"reason":"bank_account_exists","links":{"creditor_bank_account":"BA1"}}]}}`},

	{"Increase, key used", contract.Increase, meansMismatch, "", 409, "", `{"type":"idempotency_key_already_used_error","resource_id":"x1"}`},
	{"Increase, business", contract.Increase, meansRefused, "", 409, "", `{"type":"invalid_operation_error"}`},

	{"Square, key reused", contract.SquarePayments, meansMismatch, "", 400, "", `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED"}]}`},
	{"Square, bad request", contract.SquarePayments, meansRefused, "", 400, "", `{"errors":[{"code":"BAD_REQUEST"}]}`},
	{"Square, conflict", contract.SquareOrders, meansRefused, "", 409, "", `{"errors":[{"code":"CONFLICT"}]}`},

	{"Adyen, 422 at work", contract.Adyen, meansInFlight, "", 422, "Retry-After: 1", `{"errorCode":"704"}`},
	{"Adyen, 409 at work", contract.Adyen, meansInFlight, "", 409, "Retry-After: 1", `{"errorCode":"704"}`},
	{"Adyen, validation", contract.Adyen, meansRefused, "", 422, "", `{"errorCode":"130"}`},
	{"Adyen, business", contract.Adyen, meansRefused, "", 409, "", `{"errorCode":"907"}`},

	{"Resend, at work", contract.Resend, meansInFlight, "", 409, "Retry-After: 1", `{"name":"concurrent_idempotent_requests"}`},
	{"Resend, key reused", contract.Resend, meansMismatch, "", 409, "", `{"name":"invalid_idempotent_request"}`},
	{"Resend, business", contract.Resend, meansRefused, "", 409, "", `{"name":"conflict"}`},

	{"Razorpay, at work", contract.RazorpayRefunds, meansInFlight, "", 409, "Retry-After: 1", `{"error":{"description":"Request failed because another one is still in progress"}}`},
	{"Razorpay, key reused", contract.RazorpayRefunds, meansMismatch, "", 409, "", `{"error":{"description":"Different request with the same key"}}`},
	{"Razorpay, something else", contract.RazorpayRefunds, meansUnclear, "", 409, "", `{"error":{"description":"conflict"}}`},

	{"Coinbase, at work", contract.CoinbaseCDP, meansInFlight, "", 409, "Retry-After: 1", `{"errorType":"already_exists"}`},
	{"Coinbase, key reused", contract.CoinbaseCDP, meansMismatch, "", 409, "", `{"errorType":"idempotency_error"}`},

	{"PayPal, key reused", contract.PayPalOrdersV2, meansMismatch, "", 422, "", `{"details":[{"issue":"PAYPAL_REQUEST_ID_PREVIOUSLY_USED"}]}`},
	{"PayPal, business", contract.PayPalOrdersV2, meansRefused, meansInFlight, 422, "Retry-After: 1", `{"details":[{"issue":"INSTRUMENT_DECLINED"}]}`},

	{"Mercury, made before", contract.Mercury, meansDone, "", 409, "", `{"id":"t1","status":"pending"}`},
	{"Mercury, business", contract.Mercury, meansRefused, "", 409, "", `{"errors":{"message":"limit"}}`},

	{"Shopify, at work", contract.Shopify, meansInFlight, "", 200, "Retry-After: 1", `{"data":{"refundCreate":{"userErrors":[{"code":"IDEMPOTENCY_CONCURRENT_REQUEST"}]}}}`},
	{"Shopify, key reused", contract.Shopify, meansMismatch, "", 200, "", `{"data":{"refundCreate":{"userErrors":[{"code":"IDEMPOTENCY_KEY_PARAMETER_MISMATCH"}]}}}`},
	{"Worldpay, at work", contract.WorldpayWPG, meansInFlight, "", 200, "Retry-After: 1", `<reply><error code="9">Request in progress</error></reply>`},
}

// With the provider's contract each conflict is what it says: come again, under
// the same key; or final after one arrival, with a kind of its own.
func TestO05_AConflictIsWhatTheProviderSays(t *testing.T) {
	t.Parallel()
	for _, test := range conflicts {
		t.Run(test.name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := providerRig(t, test.c)
				script(r, func(n int) said {
					if n == 0 || test.means == meansUnclear {
						return said{status: test.status, header: test.header, body: test.body}
					}
					return said{}
				})
				begun := time.Now()
				resp, result, err := r.roundTrip(t.Context(), "order-1", providerRequest(t, test.c, t.Context()))
				require.NoError(t, err)
				in := r.lookup("order-1")
				text := readAndClose(t, resp)
				switch test.means {
				case meansInFlight:
					assert.Equal(t, http.StatusCreated, resp.StatusCode)
					assert.GreaterOrEqual(t, time.Since(begun), time.Second, "as long as it asked for")
					assert.Equal(t, []string{"in_flight", "succeeded"}, decidedAs(r, in))
					assert.Equal(t, StateSucceeded, in.State)
					r.sameKeyAndBytes(2)
					assert.Equal(t, 1, r.effects())
					return
				case meansUnclear:
					requireUnknown(t, result.Err(), StateUnknown)
					requireBounded(t, r, defaultMaxAttempts)
					return
				}
				require.NoError(t, result.Err(), "final")
				assert.Equal(t, test.status, resp.StatusCode)
				assert.Equal(t, test.body, text, "the caller sees why")
				r.sameKeyAndBytes(1)
				want := map[string]string{meansMismatch: "mismatch", meansRefused: "rejected", meansDone: "already_done"}[test.means]
				assert.Equal(t, []string{want}, decidedAs(r, in))
				assert.Equal(t, map[bool]State{true: StateSucceeded, false: StateRejected}[test.means == meansDone], in.State)
				assert.Equal(t, test.means == meansDone, result.FromProvider)
				requireNothingMore(t, r, test.c, 1)
			})
		})
	}
}

// The first answer is lost: then a refusal says nothing of the first attempt.
func TestO05_AConflictInDoubt(t *testing.T) {
	t.Parallel()
	for _, test := range conflicts {
		t.Run(test.name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				means := test.means
				if test.doubted != "" {
					means = test.doubted
				}
				r := providerRig(t, test.c)
				script(r, func(n int) said {
					switch {
					case n == 0:
						return said{step: faultinjection.DieAfterEffect}
					case n == 1 || means == meansUnclear:
						return said{status: test.status, header: test.header, body: test.body}
					}
					return said{}
				})
				resp, result, err := r.roundTrip(t.Context(), "order-1", providerRequest(t, test.c, t.Context()))
				require.NoError(t, err)
				readAndClose(t, resp)
				in := r.lookup("order-1")
				switch means {
				case meansInFlight:
					assert.Equal(t, StateSucceeded, in.State)
					assert.Equal(t, "in_flight", decidedAs(r, in)[1])
					r.sameKeyAndBytes(3)
				case meansDone:
					assert.Equal(t, StateSucceeded, in.State)
					r.sameKeyAndBytes(2)
				case meansUnclear:
					requireUnknown(t, result.Err(), StateUnknown)
					requireBounded(t, r, defaultMaxAttempts)
				default:
					requireUnknown(t, result.Err(), StateHeld)
					require.ErrorIs(t, result.Err(), ErrHeld)
					assert.Equal(t, HoldUnsettlingAnswer, in.HoldReason)
					assert.True(t, in.Doubt)
					assert.Equal(t, []string{"no_answer", map[bool]string{true: "mismatch", false: "rejected"}[means == meansMismatch]}, decidedAs(r, in))
					r.sameKeyAndBytes(2)
					requireNothingMore(t, r, test.c, 2)
				}
				assert.Equal(t, 1, r.effects())
			})
		})
	}
}

// requireBounded lets the operation be resumed until it is held: it is sent as
// often as the policy says, and nothing is taken for an end.
func requireBounded(t *testing.T, r *rig, sofar int) {
	t.Helper()
	r.sameKeyAndBytes(sofar)
	for range 2 * defaultResumeAttempts {
		time.Sleep(time.Minute)
		_, err := r.client.Resume(t.Context())
		require.NoError(t, err)
	}
	in := r.lookup("order-1")
	assert.Equal(t, StateHeld, in.State)
	assert.Equal(t, HoldExhausted, in.HoldReason)
	assert.Equal(t, in.Key, keyAsParsed(t, in, r.sameKeyAndBytes(sofar+defaultResumeAttempts)))
}

// keyAsParsed is the key of an arrival, without its place's quotes.
func keyAsParsed(tb testing.TB, in Intent, onWire string) string {
	tb.Helper()
	key, err := in.Place.Parse(onWire)
	require.NoError(tb, err)
	return key
}

// requireNothingMore checks that neither a resume nor a restart sends again.
func requireNothingMore(t *testing.T, r *rig, c *contract.Contract, arrivals int) {
	t.Helper()
	time.Sleep(time.Hour)
	_, err := r.client.Resume(t.Context())
	require.NoError(t, err)
	r.reopen()
	_, err = r.client.Resume(t.Context())
	require.NoError(t, err)
	_, _, err = r.roundTrip(t.Context(), "order-1", providerRequest(t, c, t.Context()))
	if !r.lookup("order-1").State.Final() {
		requireUnknown(t, err, StateHeld)
	}
	assert.Len(t, r.arrivals(), arrivals)
}

// A retry meets its own first attempt, which is still at work.
func TestO05_TheFirstAttemptIsStillAtWork(t *testing.T) {
	tried := 0
	for _, j := range judgedContracts {
		if j.value == "" || len(j.c.InFlight) == 0 || j.c.InFlight[0].Text != "" { // the server here knows no texts
			continue
		}
		tried++
		t.Run(j.c.Name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				// Longer than one attempt waits, and than the pause after it.
				r := providerRig(t, j.c, faultinjection.Slow(defaultAttemptTimeout+max(j.c.MinDelay, time.Second)+400*time.Millisecond))
				resp, _, err := r.roundTrip(t.Context(), "order-1", providerRequest(t, j.c, t.Context()))
				require.NoError(t, err)
				readAndClose(t, resp)
				assert.Equal(t, http.StatusCreated, resp.StatusCode)
				in := r.lookup("order-1")
				assert.Equal(t, StateSucceeded, in.State)
				assert.Equal(t, []string{"no_answer", "in_flight"}, decidedAs(r, in)[:2])
				r.sameKeyAndBytes(3)
				assert.Equal(t, 1, r.effects())
			})
		})
	}
	assert.GreaterOrEqual(t, tried, 5)
}

// Without a classifier a conflict is no success, and is not sent again for ever.
func TestO05_AConflictWithoutAClassifier(t *testing.T) {
	classless := map[string]contract.Resolver{
		"no contract": contract.First(), "no keys": contract.Unsupported.At("provider.example"),
		"keys, and nothing known": contract.Keyed("Idempotency-Key", 24*time.Hour).At("provider.example"),
	}
	for name, contracts := range classless {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				var answer said
				r := newRigFor(t, rigContract())
				r.transport.Contracts = contracts
				script(r, func(int) said { return answer })
				for i, test := range conflicts {
					if test.status != 409 || name == "keys, and nothing known" && strings.Contains(test.header, "Retry-After") {
						continue
					}
					answer = said{status: test.status, header: test.header, body: test.body}
					resp, result, err := r.roundTrip(t.Context(), test.name, mustRequest(t, t.Context(), rigURL, orderBody(i)))
					require.NoError(t, err)
					readAndClose(t, resp)
					assert.Equal(t, test.status, resp.StatusCode)
					require.NoError(t, result.Err())
					assert.Equal(t, StateRejected, r.lookup(test.name).State, test.name)
					assert.Equal(t, 1, r.lookup(test.name).Attempts, test.name)
				}
				assert.GreaterOrEqual(t, len(r.arrivals()), 10)
			})
		})
	}
	t.Run("keys, and a time to come back", func(t *testing.T) { // the one sign that every server may give
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			script(r, func(int) said { return said{status: 409, header: "Retry-After: 1", body: `{"code":"sold_out"}`} })
			resp, result, err := r.roundTrip(t.Context(), "order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
			require.NoError(t, err)
			readAndClose(t, resp)
			requireUnknown(t, result.Err(), StateUnknown)
			requireBounded(t, r, defaultMaxAttempts)
		})
	})
}

// keyless are the providers that are known to take no key.
func keyless() (all []*contract.Contract) {
	for _, j := range judgedContracts {
		if j.c != nil && j.c.NoKeys {
			all = append(all, j.c)
		}
	}
	return all
}

func TestO17_NoResendWithoutSupport_UnderEachProvider(t *testing.T) {
	all := keyless()
	for _, c := range []*contract.Contract{
		contract.Unsupported, contract.Twilio, contract.SendGrid, contract.OpenAI, contract.Anthropic, contract.BraintreeClassic,
	} {
		require.True(t, slices.Contains(all, c), c.Name)
	}
	for _, c := range all {
		t.Run(c.Name+", commits, then drops", func(t *testing.T) {
			virtually(t, func(t *testing.T) { keylessDrop(t, c) })
		})
		t.Run(c.Name+", advises to send again", func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := providerRig(t, c)
				script(r, func(int) said {
					return said{status: 500, header: "X-Should-Retry: true\nRetry-After-Ms: 5\nRetry-After: 1\nIdempotent-Replayed: true"}
				})
				_, result, err := r.roundTrip(t.Context(), "order-1", providerRequest(t, c, t.Context()))
				require.NoError(t, err)
				requireUnknown(t, result.Err(), StateHeld)
				assert.Equal(t, HoldNoContract, r.lookup("order-1").HoldReason, "advice for a key that it does not take")
				requireNothingMore(t, r, c, 1)
			})
		})
		t.Run(c.Name+", connection refused, then fine", func(t *testing.T) { keylessDial(t, c) })
		t.Run(c.Name+", support is turned on", func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				req := providerRequest(t, c, t.Context())
				r := newRigFor(t, rigContract(), faultinjection.DieAfterEffect)
				r.transport.Contracts = contract.First(contract.Keyed("Idempotency-Key", 24*time.Hour).At(req.URL.Host), contract.Known)
				resp, result, err := r.roundTrip(t.Context(), "order-1", req)
				require.NoError(t, err)
				readAndClose(t, resp)
				assert.Equal(t, http.StatusCreated, resp.StatusCode)
				assert.True(t, result.FromProvider)
				r.sameKeyAndBytes(2)
				assert.Equal(t, 1, r.effects())
			})
		})
	}
}

// keylessDrop: what may have run is sent once, whoever asks again, and looks as
// the caller made it.
func keylessDrop(t *testing.T, c *contract.Contract) {
	r := providerRig(t, c, faultinjection.DieAfterEffect)
	req := providerRequest(t, c, t.Context())
	_, result, err := r.roundTrip(t.Context(), "order-1", req)
	requireUnknown(t, err, StateHeld)
	require.ErrorIs(t, err, ErrHeld)
	require.Equal(t, err, result.Err())
	assert.ErrorContains(t, err, "contract.Keyed", "it says what would make it safe")
	assert.Equal(t, HoldNoContract, r.lookup("order-1").HoldReason)
	requireNothingMore(t, r, c, 1)
	a := r.arrivals()[0]
	assert.Equal(t, providerBodies[c.Name].body+map[bool]string{true: `{"amount":4200}`}[providerBodies[c.Name].body == ""], string(a.Body))
	assert.Equal(t, req.URL.RequestURI(), a.URI)
	for name := range a.Header {
		assert.NotContains(t, strings.ToLower(name), "idempot")
	}
	assert.Equal(t, 1, r.effects())

	r.server.Plan(faultinjection.DieAfterEffect) // unnamed: it passes, once
	_, err = r.transport.RoundTrip(providerRequest(t, c, t.Context()))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.NotErrorIs(t, err, ErrNotSent)
	assert.Len(t, r.arrivals(), 2)
}

// keylessDial: what never left is tried again.
func keylessDial(t *testing.T, c *contract.Contract) {
	r := providerRig(t, c)
	running, err := r.server.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, running.Close()) })
	base := refusedOnce(t, strings.TrimPrefix(running.URL, "http://"))
	t.Cleanup(base.CloseIdleConnections)
	r.transport.Base, r.transport.Retry.MinBackoff = base, time.Millisecond
	resp, err := r.client.Do("order-1", providerRequest(t, c, t.Context()))
	require.NoError(t, err)
	assert.Equal(t, http.StatusCreated, resp.StatusCode)
	readAndClose(t, resp)
	in := r.lookup("order-1")
	assert.Equal(t, StateSucceeded, in.State)
	assert.Equal(t, []string{"not_sent", "succeeded"}, decidedAs(r, in))
	assert.Len(t, r.arrivals(), 1)
}
