package contract

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestForms(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    *Contract
		key  string
		want string // empty: fine
	}{
		{"CV075", RazorpayPayouts, "order:42/attempt.1", "byte 6 of the key is not a letter"},
		{"CV075 short", RazorpayPayouts, "abc", "3 bytes, less than the 4 required"},
		{"CV075 long", RazorpayPayouts, strings.Repeat("a", 37), "37 bytes, more than the 36"},
		{"space inside", RazorpayPayouts, "order 42_a-B", ""},
		{"space in front", RazorpayPayouts, " order 42", "byte 1 of the key is a space"},
		{"space behind", RazorpayTransfers, "order ", "byte 6 of the key is a space"},
		{"word", RazorpayRefunds, "order 42 refund", "byte 6 of the key is not a visible"},
		{"short word", RazorpayRefunds, "order-42", "8 bytes, less than the 10 required"},
		{"good word", RazorpayRefunds, "order-42_refund", ""},
		{"CV107", Column, "pay\t1", "byte 4 of the key"},
		{"CV107 emoji", Column, "pay😀", "byte 4 of the key"},
		{"printable", Column, "pay 1 ~", ""},
		{"CV099", SquarePayments, strings.Repeat("a", 49), "49 bytes, more than the 45"},
		{"version 4", CoinbaseCDP, someUUID, ""},
		{"version 7", CoinbaseCDP, "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "not one of version 4"},
		{"another variant", CoinbaseCDP, "8e03978e-40d5-43dd-0c93-6894a57f9324", "not one of version 4"},
		{"no UUID", CoinbaseCDP, "order-42", "not a UUID"},
		{"issued", PlaidTransferCreate, "460cbe92-2dcc-8eae-5ad6-b37d0ec90fd9", ""},
		{"256", Resend, strings.Repeat("a", 256), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.c.CheckKey(tt.key)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), tt.key)
		})
	}
}

func TestCompanionText(t *testing.T) {
	first := time.Date(2026, 11, 29, 1, 2, 3, 999, time.FixedZone("x", 3600))
	now := first.Add(time.Hour)
	frozen := OASISRepeatable.Companions[0]
	assert.Equal(t, "Sun, 29 Nov 2026 00:02:03 GMT", frozen.Text(first, now))
	each := StandardWebhooks.Companions[0]
	assert.Equal(t, "1795914123", each.Text(first, now))
	each.PerAttempt = false
	assert.Equal(t, "1795910523", each.Text(first, now))
	assert.Empty(t, Companion{Header: "X"}.Text(first, now))
}

func TestWaitAsks(t *testing.T) {
	w := GoCardless.Waits[0]
	assert.True(t, w.Asks(http.Header{"Ratelimit-Reset": {"x"}, "Ratelimit-Remaining": {"0"}}), "CV049")
	assert.False(t, w.Asks(http.Header{"Ratelimit-Reset": {"x"}, "Ratelimit-Remaining": {"10"}}))
	assert.False(t, w.Asks(http.Header{"Ratelimit-Reset": {"x"}}))
	assert.False(t, w.Asks(http.Header{"Ratelimit-Remaining": {"0"}}))
	assert.True(t, Wait{Header: "Retry-After"}.Asks(http.Header{"Retry-After": {""}}))
}

// TestProviderAnswers reads the vectors' answers with the values' signals.
func TestProviderAnswers(t *testing.T) {
	const requestInProgress = `<reply><orderStatus><error code="9"><![CDATA[Request in progress]]></error></orderStatus></reply>`
	for _, tt := range []struct {
		name   string
		c      *Contract
		status int
		header http.Header
		body   string
		want   string
	}{
		{"CV039", PayPalVaultV3, 422, nil, `{"details":[{},{"issue":"PAYPAL_REQUEST_ID_PREVIOUSLY_USED"}]}`, "mismatch"},
		{"CV040", PayPalOrdersV2, 422, nil, `{"details":[{"issue":"unknown"}]}`, "overlap"},
		{"orders duplicate", PayPalOrdersV2, 400, nil, `{"name":"DUPLICATE_REQUEST_ID"}`, "mismatch"},
		{"orders success", PayPalOrdersV2, 200, nil, `{"note":"DUPLICATE_REQUEST_ID"}`, ""},
		{"CV042", CheckoutCom, 409, nil, ``, "in flight"},
		{"CV043", CheckoutCom, 429, nil, ``, "in flight"},
		{"CV047", GoCardless, 409, nil, `{"error":{"errors":[{"reason":"idempotent_creation_conflict"}]}}`, ""},
		{"gocardless done", GoCardless, 409, nil,
			`{"error":{"errors":[{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"PM1"}}]}}`, "done"},
		{"gocardless other", GoCardless, 409, nil, `{"error":{"errors":[{"reason":"x","links":{"conflicting_resource_id":"PM1"}}]}}`, ""},
		{"CV050", Mercury, 409, nil, `{"id":"txn_1","status":"pending"}`, "done"},
		{"mercury other", Mercury, 409, nil, `{"id":"txn_1"}`, ""},
		{"CV051", Mercury, 400, nil, `{"message":"duplicate"}`, ""},
		{"CV054", ModernTreasury, 409, nil, ``, "in flight"},
		{"CV061", Mollie, 400, nil, ``, "mismatch"},
		{"CV063", Increase, 409, nil, `{"type":"idempotency_key_already_used_error","resource_id":"ach_1"}`, "mismatch"},
		{"CV066", Shopify, 200, nil, `{"data":{"x":null,"refundCreate":{"userErrors":[{"code":"IDEMPOTENCY_CONCURRENT_REQUEST"}]}}}`, "in flight"},
		{"shopify mismatch", Shopify, 200, nil, `{"data":{"a":{"userErrors":[{"code":"B"},{"code":"IDEMPOTENCY_KEY_PARAMETER_MISMATCH"}]}}}`, "mismatch"},
		{"shopify success", Shopify, 200, nil, `{"data":{"a":{"userErrors":[]}}}`, ""},
		{"CV068", WorldpayWPG, 200, nil, requestInProgress, "in flight"},
		{"CV068 another status", WorldpayWPG, 409, nil, requestInProgress, "in flight"},
		{"CV069", WorldpayWPG, 200, nil, `<lastEvent>AUTHORISED</lastEvent>`, ""},
		{"CV070", RazorpayRefunds, 409, nil, `{"error":{"description":"another request with this key is still in progress"}}`, "in flight"},
		{"razorpay mismatch", RazorpayRefunds, 409, nil, `{"error":{"description":"Different request for this key"}}`, "mismatch"},
		{"razorpay, elsewhere", RazorpayRefunds, 409, nil, `{"notes":"still in progress"}`, ""},
		{"CV072", RazorpayRefunds, 500, nil, `{"error":{"description":"failed to fetch idempotency record"}}`, "store down"},
		{"CV073", RazorpayPayouts, 200, nil, `{"id":"pout_1","status":"failed"}`, "proven"},
		{"payout done", RazorpayPayouts, 200, nil, `{"id":"pout_1","status":"processed"}`, ""},
		{"CV076", OASISRepeatable, 412, http.Header{"Repeatability-Result": {"rejected"}}, ``, ""},
		{"oasis mismatch", OASISRepeatable, 400, http.Header{"Repeatability-Result": {"Rejected"}}, ``, "mismatch"},
		{"oasis other", OASISRepeatable, 400, nil, ``, ""},
		{"CV082", AWSEC2, 400, nil, `<Error><Code>IdempotentParameterMismatch</Code></Error>`, "mismatch"},
		{"dynamodb", AWSDynamoDBTransaction, 400, nil, `{"__type":"com.amazonaws#IdempotentParameterMismatchException"}`, "mismatch"},
		{"CV095", Resend, 409, nil, `{"name":"concurrent_idempotent_requests"}`, "in flight"},
		{"CV096", Resend, 409, nil, `{"name":"invalid_idempotent_request"}`, "mismatch"},
		{"coinbase", CoinbaseCDP, 409, nil, `{"errorType":"already_exists"}`, "in flight"},
		{"coinbase mismatch", CoinbaseCDP, 422, nil, `{"errorType":"idempotency_error"}`, "mismatch"},
		{"square", SquarePayments, 400, nil, `{"errors":[{"code":"IDEMPOTENCY_KEY_REUSED"}]}`, "mismatch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			for _, list := range []struct {
				name    string
				signals []Signal
			}{
				{"done", tt.c.AlreadyDone}, {"in flight", tt.c.InFlight}, {"mismatch", tt.c.Mismatch},
				{"store down", tt.c.StoreDown}, {"not executed", tt.c.NotExecuted}, {"proven", tt.c.Proven},
				{"overlap", tt.c.Overlap},
			} {
				if Any(list.signals, tt.status, tt.header, []byte(tt.body)) {
					got = list.name
					break
				}
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestWildcards(t *testing.T) {
	const body = ` {"a":{"x":[{"c":1},{"c":"two"}],"y":null},"*":"star","n":[[["deep"]]]} `
	for _, tt := range []struct {
		pointer, value, text string
		want                 bool
	}{
		{"/a/x/*/c", "two", "", true},
		{"/a/x/*/c", "1", "", true},
		{"/a/x/*/c", "3", "", false},
		{"/a/*/1/c", "", "wo", true},
		{"/a/*/0/c", "", "1", false}, // a number is no text
		{"/*/*/*/c", "two", "", true},
		{"/n/*/*/*", "deep", "", true},
		{"/n/*/*/*/*", "", "", false},
		{"/*", "star", "", true},
		{"/a/y", "", "", false},
		{"/a/*/z", "", "", false},
	} {
		s := Signal{Pointer: tt.pointer, Value: tt.value, Text: tt.text}
		assert.Equal(t, tt.want, s.Matches(400, nil, []byte(body)), "%+v", s)
	}
	// A place in the body of a success counts only where its status is named.
	assert.False(t, Signal{Pointer: "/a"}.Matches(200, nil, []byte(body)))
	assert.False(t, Signal{Text: "star"}.Matches(204, nil, []byte(body)))
	assert.True(t, Signal{Status: 200, Text: "star"}.Matches(200, nil, []byte(body)))
	assert.True(t, Signal{Text: "<x"}.Matches(500, nil, []byte("<xml>")))
	assert.False(t, Signal{Pointer: "/a", Text: "x"}.Matches(500, nil, []byte("x")))
	assert.False(t, Signal{Text: "a", Also: "/b"}.Matches(500, nil, []byte(`{"a":1}`)))
}
