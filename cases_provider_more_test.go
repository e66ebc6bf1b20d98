package idem

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// keeper is a provider that keeps a failure as the result of a key, and what
// shows it.
type keeper struct {
	name   string
	c      *contract.Contract
	header http.Header // of the 500
	most   int         // arrivals in all
	why    HoldReason
}

var keepers = []keeper{
	{"Stripe, marked", contract.StripeV1, nil, 2, HoldStoredFailure},
	{"Stripe, advises against", contract.StripeV1, header("Stripe-Should-Retry", "false"), 1, HoldStoredFailure},
	{"Stripe, advises for", contract.StripeV1, header("Stripe-Should-Retry", "true"), 2, HoldStoredFailure},
	{"Increase, marked", contract.Increase, nil, 2, HoldStoredFailure},
	{"Increase, advises against", contract.Increase, header("X-Should-Retry", "false"), 1, HoldStoredFailure},
	{"Mollie, marked", contract.Mollie, nil, 2, HoldStoredFailure},
	{"Keyed, marked", contract.Keyed("Idempotency-Key", 24*time.Hour), nil, 2, HoldStoredFailure},
	{"Keyed of unknown life, marked", contract.Keyed("Idempotency-Key", 0), nil, 2, HoldStoredFailure},

	// Nothing shows that it is stored: only the bounds help.
	{"Adyen", contract.Adyen, nil, defaultMaxAttempts + defaultResumeAttempts, HoldExhausted},
	{"Adyen, marked as not stored", contract.Adyen, header("Transient-Error", "true"), defaultMaxAttempts + defaultResumeAttempts, HoldExhausted},
	{"Square, key in JSON", contract.SquarePayments, nil, defaultMaxAttempts + defaultResumeAttempts, HoldExhausted},
	{"Shopify, key in a variable", contract.Shopify, nil, defaultMaxAttempts + defaultResumeAttempts, HoldExhausted},
	{"AWS EC2, key in a form", contract.AWSEC2, nil, defaultMaxAttempts + defaultResumeAttempts, HoldExhausted},
	{"IETF", contract.IETF(24 * time.Hour), nil, defaultMaxAttempts + defaultResumeAttempts, HoldExhausted},
}

func TestO18_AStoredFailureIsNotAskedForEver_UnderEachProvider(t *testing.T) {
	t.Parallel()
	for _, j := range judgedContracts {
		if j.value != "" && (j.c.Replayed.Header != "" || j.c.StoresServerErrors) {
			assert.True(t, slices.ContainsFunc(keepers, func(k keeper) bool { return k.c == j.c }), "%s is not tried", j.value)
		}
	}
	for _, k := range keepers {
		t.Run(k.name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := providerRig(t, k.c)
				r.server.StoreFailures = true
				r.server.Retention = 365 * 24 * time.Hour // longer than anyone asks
				r.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) {
					return http.StatusInternalServerError, k.header, []byte(`{"error":"ours"}`)
				}
				resp, result, err := r.roundTrip(t.Context(), "order-1", providerRequest(t, k.c, t.Context()))
				require.NoError(t, err)
				readAndClose(t, resp)
				assert.Equal(t, http.StatusInternalServerError, resp.StatusCode, "what the server said")
				require.ErrorIs(t, result.Err(), ErrUnknownOutcome)
				for range 5 {
					r.reopen()
					for range 10 {
						time.Sleep(time.Minute)
						_, err := r.client.Resume(t.Context())
						require.NoError(t, err)
					}
				}
				in := r.lookup("order-1")
				assert.Equal(t, StateHeld, in.State, "visible")
				assert.Equal(t, k.why, in.HoldReason)
				assert.True(t, in.Doubt)
				for _, ctx := range []context.Context{t.Context(), WithRenewal(t.Context(), in.Key)} {
					_, _, err := r.roundTrip(ctx, "order-1", providerRequest(t, k.c, ctx))
					require.ErrorIs(t, err, ErrUnknownOutcome)
					require.ErrorIs(t, err, ErrHeld)
				}
				assert.Equal(t, in.Key, keyAsParsed(t, in, r.sameKeyAndBytes(k.most)), "no new key without a decision")
				held, err := r.journal.List(t.Context(), Filter{States: []State{StateHeld}})
				require.NoError(t, err)
				assert.Len(t, held, 1)
				assert.Zero(t, r.effects())
			})
		})
	}
}

// sentAgain is what the contract makes of a status that comes with nothing else.
func sentAgain(c *contract.Contract, status int, table bool) bool {
	alone := contract.Signal{Status: status}
	switch {
	case slices.Contains(c.InFlight, alone):
		return true
	case slices.Contains(c.Mismatch, alone):
		return false
	case slices.Contains(c.RetryStatuses, status):
		return true
	case slices.Contains(c.FinalStatuses, status):
		return false
	}
	return table
}

// Each status, once, under every contract that takes a key.
func TestO30_EveryStatusHasItsRule_UnderEachProvider(t *testing.T) {
	t.Parallel()
	exceptions := map[string][]int{}
	for _, j := range judgedContracts {
		if j.value == "" || j.c.NoKeys {
			continue
		}
		t.Run(j.c.Name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := providerRig(t, j.c)
				r.transport.Retry.MaxBackoff = 2 * time.Minute // some want a minute between two sends
				var status int
				script(r, func(n int) said {
					if status == 0 {
						return said{}
					}
					defer func() { status = 0 }()
					return said{status: status, body: `{"error":"no"}`}
				})
				for _, rule := range statusRules {
					status = rule.status
					operation, before := fmt.Sprint("order-", rule.status), len(r.arrivals())
					req := providerRequest(t, j.c, t.Context())
					if j.c.Form == contract.Issued {
						putKey(t, j.c, req, operation)
					}
					resp, _, err := r.roundTrip(t.Context(), operation, req)
					require.NoError(t, err)
					readAndClose(t, resp)
					in := r.lookup(operation)
					arrivals := r.arrivals()[before:]
					if len(arrivals) != map[bool]int{true: 2, false: 1}[rule.again] {
						exceptions[j.c.Name] = append(exceptions[j.c.Name], rule.status)
					}
					if sentAgain(j.c, rule.status, rule.again) {
						assert.Equal(t, in.Key, keyAsParsed(t, in, requireOneKey(t, arrivals, 2)), rule.status)
						assert.Equal(t, http.StatusCreated, resp.StatusCode)
						assert.Equal(t, StateSucceeded, in.State)
						continue
					}
					requireOneKey(t, arrivals, 1)
					assert.Equal(t, rule.status, resp.StatusCode)
					assert.Equal(t, rule.state, in.State, rule.status)
				}
			})
		})
	}
	assert.Equal(t, map[string][]int{
		"standard_webhooks": {400, 401, 403, 404, 413, 422, 501, 505, 511}, // whatever is no success and not 410
	}, exceptions)
}

// Where no key is taken, only what was not looked at is sent again.
func TestO30_EveryStatusHasItsRule_WithoutKeys(t *testing.T) {
	for _, c := range keyless() {
		t.Run(c.Name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := providerRig(t, c)
				var status int
				script(r, func(int) said {
					defer func() { status = 0 }()
					return said{status: status}
				})
				for _, rule := range statusRules {
					status = rule.status
					operation, before := fmt.Sprint("order-", rule.status), len(r.arrivals())
					resp, _, err := r.roundTrip(t.Context(), operation, providerRequest(t, c, t.Context()))
					require.NoError(t, err)
					readAndClose(t, resp)
					arrivals := r.arrivals()[before:]
					if rule.status == http.StatusTooEarly || rule.status == http.StatusTooManyRequests {
						assert.Len(t, arrivals, 2)
						assert.Equal(t, StateSucceeded, r.lookup(operation).State)
						continue
					}
					assert.Len(t, arrivals, 1, rule.status)
					want := rule.state
					if want == StateUnknown {
						want = StateHeld // since it will never be sent again
					}
					assert.Equal(t, want, r.lookup(operation).State, rule.status)
				}
			})
		})
	}
}

// twoHosts are providers with a host of production and another one.
var twoHosts = []*contract.Contract{
	contract.Increase, contract.SquarePayments, contract.Mercury, contract.PlaidTransferAuthorization, contract.GoCardless, contract.Klarna,
}

// secondHost is the same request to the provider's second host.
func secondHost(req *http.Request, c *contract.Contract) *http.Request {
	req.URL.Host, req.Host = c.Hosts[1], c.Hosts[1]
	return req
}

func TestO30_TheTableIsChangedPerHost_UnderEachProvider(t *testing.T) {
	for _, c := range twoHosts {
		t.Run(c.Name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				own := c.At(c.Hosts[0])
				own.RetryStatuses, own.FinalStatuses = append(own.RetryStatuses, 404, 501), append(own.FinalStatuses, 429, 503)
				require.NoError(t, own.Validate())
				require.NotContains(t, c.RetryStatuses, 404, "the original stays as it is")
				r := providerRig(t, c)
				r.transport.Contracts = contract.First(own, contract.Known)
				var status int
				script(r, func(n int) said {
					defer func() { status = 0 }()
					return said{status: status}
				})
				for i, want := range []struct {
					status       int
					first, other int // arrivals at the host that was changed, and at the other one
				}{{404, 2, 1}, {501, 2, 1}, {429, 1, 2}, {503, 1, 2}, {500, 2, 2}, {400, 1, 1}} {
					for host, arrivals := range []int{want.first, want.other} {
						status = want.status
						before := len(r.arrivals())
						req := providerRequest(t, c, t.Context())
						if host == 1 {
							req = secondHost(req, c)
						}
						resp, _, err := r.roundTrip(t.Context(), fmt.Sprint("order-", i, "-", host), req)
						require.NoError(t, err)
						readAndClose(t, resp)
						requireOneKey(t, r.arrivals()[before:], arrivals)
						assert.Equal(t, map[int]int{1: want.status, 2: http.StatusCreated}[arrivals], resp.StatusCode)
					}
				}
			})
		})
	}
}

// putKey puts a key where the contract wants it, as an SDK does.
func putKey(tb testing.TB, c *contract.Contract, req *http.Request, key string) {
	tb.Helper()
	if c.Key.Header != "" {
		req.Header[http.CanonicalHeaderKey(c.Key.Header)] = []string{c.Key.Format(key)}
		return
	}
	body := givenBody(tb, req)
	u, with, err := c.Key.Put(req.URL, req.Header.Get("Content-Type"), []byte(body), key)
	require.NoError(tb, err)
	again := mustRequest(tb, req.Context(), u.String(), string(with))
	req.URL, req.Body, req.ContentLength, req.GetBody = again.URL, again.Body, again.ContentLength, again.GetBody
}

func givenBody(tb testing.TB, req *http.Request) string {
	tb.Helper()
	body, err := req.GetBody()
	require.NoError(tb, err)
	text, err := readAll(body, req.ContentLength, 1<<20)
	require.NoError(tb, err)
	return string(text)
}

func keyLong(n int) string { return strings.Repeat("k", n) }

const (
	goodUUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
	timeUUID = "0f8fad5b-d9cb-169f-a165-70867728950e" // of version 1
)

// keyLimits are what the providers take and what they would refuse.
var keyLimits = []struct {
	c         *contract.Contract
	good, bad []string
}{
	{contract.StripeV1, []string{keyLong(255), "a"}, []string{keyLong(256), "a b", "ü"}},
	{contract.Increase, []string{keyLong(200)}, []string{keyLong(201)}},
	{contract.Adyen, []string{keyLong(64)}, []string{keyLong(65)}},
	{contract.PayPalOrdersV2, []string{keyLong(108)}, []string{keyLong(109)}},
	{contract.PayPalPayoutsV1, []string{keyLong(1000)}, []string{keyLong(1001)}},
	{contract.Column, []string{"a b", keyLong(255)}, []string{"a\tb", keyLong(256)}},
	{contract.RazorpayPayouts, []string{"a b_", keyLong(36)}, []string{"abc", "a.b-c", keyLong(37)}},
	{contract.RazorpayRefunds, []string{keyLong(10)}, []string{keyLong(9), "a b c d e f"}},
	{contract.CoinbaseCDP, []string{goodUUID}, []string{timeUUID, "payment-1"}},
	{contract.Lithic, []string{goodUUID, timeUUID}, []string{"payment-1", goodUUID + "0"}},
	{contract.IETF(time.Hour), []string{keyLong(1024), `a"b\c`}, []string{keyLong(1025), "ü"}},

	// In a JSON body.
	{contract.SquarePayments, []string{keyLong(45)}, []string{keyLong(46), "a b"}},
	{contract.SquareOrders, []string{keyLong(192)}, []string{keyLong(193)}},
	{contract.Mercury, []string{keyLong(255), `a"b\c`}, []string{keyLong(256), "a\nb"}},
	{contract.Wise, []string{goodUUID}, []string{"payment-1", strings.ReplaceAll(goodUUID, "-", "")}},
	{contract.PlaidTransferAuthorization, []string{keyLong(50)}, []string{keyLong(51)}},
	{contract.PlaidWallet, []string{keyLong(128)}, []string{keyLong(129)}},
	{contract.PlaidTransferCreate, []string{"auth-1", keyLong(255)}, []string{keyLong(256), "a b"}},
	{contract.LithicPayments, []string{goodUUID}, []string{"payment-1"}},
	{contract.AWSDynamoDBTransaction, []string{keyLong(36)}, []string{keyLong(37)}},
	// In a GraphQL variable.
	{contract.Shopify, []string{keyLong(255)}, []string{keyLong(256), "a b"}},
	{contract.BraintreeAtMostOnce, []string{keyLong(255)}, []string{keyLong(256)}},
	// In a parameter, of a form and of the query.
	{contract.AWSEC2, []string{keyLong(64), "a b&c=d"}, []string{keyLong(65), " a", "ü"}},
	{contract.GoogleAIP155, []string{goodUUID}, []string{timeUUID, "payment-1"}},
}

func TestO51_BadKeysAreRefusedHere_UnderEachProvider(t *testing.T) {
	for _, k := range keyLimits {
		t.Run(k.c.Name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := providerRig(t, k.c)
				bad := slices.Clone(k.bad)
				for name, key := range badKeys {
					if name == "empty" && k.c.Key.Header == "" || k.c.CheckKey(key) == nil {
						continue // in a body it is as good as none; or this one takes it
					}
					bad = append(bad, key)
				}
				for _, key := range bad {
					for _, operation := range []string{"", "order-1"} {
						req := providerRequest(t, k.c, WithOperation(t.Context(), operation))
						putKey(t, k.c, req, key)
						_, err := r.transport.RoundTrip(req)
						requireRefusedHere(t, r, err, key)
					}
				}
				for _, key := range append(bad, "") {
					r.transport.Key = func(Intent) string { return key }
					_, _, err := r.roundTrip(t.Context(), "order-1", providerRequest(t, k.c, t.Context()))
					requireRefusedHere(t, r, err, key)
				}
				r.transport.Key = nil
				for i, key := range k.good {
					req := providerRequest(t, k.c, t.Context())
					putKey(t, k.c, req, key)
					resp, err := r.transport.RoundTrip(req)
					require.NoError(t, err, key)
					readAndClose(t, resp)
					require.Len(t, r.arrivals(), i+1)
					require.Len(t, r.arrivals()[i].Keys, 1)
					got, err := k.c.Key.Parse(r.arrivals()[i].Keys[0])
					require.NoError(t, err)
					assert.Equal(t, key, got, "as it was given")
				}
			})
		})
	}
}

func requireRefusedHere(t *testing.T, r *rig, err error, key string) {
	t.Helper()
	require.ErrorIs(t, err, ErrNotSent, "%q", key)
	require.NotErrorIs(t, err, ErrUnknownOutcome)
	if len(key) > 5 {
		assert.NotContains(t, err.Error(), key)
	}
	requireNoIntent(t, r)
	assert.Empty(t, r.arrivals())
}

func TestO51_KeyLimitsAreSetPerHost_UnderEachProvider(t *testing.T) {
	for _, c := range twoHosts {
		t.Run(c.Name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				own := c.At(c.Hosts[0])
				own.MaxLength, own.Form = 40, contract.Word
				require.NoError(t, own.Validate())
				r := providerRig(t, c)
				r.transport.Contracts = contract.First(own, contract.Known)
				for _, key := range []string{keyLong(41), "a.b"} {
					req := providerRequest(t, c, t.Context())
					putKey(t, c, req, key)
					_, err := r.transport.RoundTrip(req)
					require.ErrorIs(t, err, ErrNotSent)
					require.Empty(t, r.arrivals())
				}
				for i, key := range []string{keyLong(41), "a.b"} {
					req := secondHost(providerRequest(t, c, t.Context()), c)
					putKey(t, c, req, key)
					resp, err := r.transport.RoundTrip(req)
					require.NoError(t, err)
					readAndClose(t, resp)
					require.Len(t, r.arrivals(), i+1)
				}
				req := providerRequest(t, c, t.Context())
				putKey(t, c, req, keyLong(40))
				resp, err := r.transport.RoundTrip(req)
				require.NoError(t, err)
				readAndClose(t, resp)
				assert.Len(t, r.arrivals(), 3)
			})
		})
	}
}

// What is made here suits every provider, wherever its key goes.
func TestO51_GeneratedKeysSuitEveryProvider_OnTheWire(t *testing.T) {
	t.Parallel()
	derive := DeriveKeys([]byte("secret"))
	seen := map[string]bool{}
	for _, j := range judgedContracts {
		if j.c == nil || j.c.NoKeys || j.value == "" {
			continue
		}
		if j.c.Form == contract.Issued {
			r := providerRig(t, j.c)
			_, _, err := r.roundTrip(t.Context(), "order-1", providerRequest(t, j.c, t.Context()))
			require.ErrorContains(t, err, "takes only a key that the provider has issued", "none is made up")
			requireRefusedHere(t, r, err, "")
			continue
		}
		for range 1000 {
			key := mintKey()
			require.NoError(t, j.c.CheckKey(key), j.c.Name)
			require.NoError(t, j.c.CheckKey(derive(Intent{Operation: key, Generation: 1})), j.c.Name)
		}
		t.Run(j.c.Name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := providerRig(t, j.c)
				r.transport.Scope, r.transport.Key = j.c.Name, derive
				for _, operation := range []string{"", "", "order-1", "order-2"} {
					resp, err := r.transport.RoundTrip(providerRequest(t, j.c, WithOperation(t.Context(), operation)))
					require.NoError(t, err)
					readAndClose(t, resp)
					assert.Equal(t, http.StatusCreated, resp.StatusCode, "the server took it")
				}
				for _, a := range r.arrivals() {
					require.Len(t, a.Keys, 1)
					key, err := j.c.Key.Parse(a.Keys[0])
					require.NoError(t, err)
					assert.Regexp(t, `^[A-Za-z0-9_-]{1,64}$`, key)
					assert.False(t, seen[key], "no two alike")
					seen[key] = true
				}
				assert.Equal(t, 4, r.effects())
			})
		})
	}
	assert.GreaterOrEqual(t, len(seen), 4*30)
}
