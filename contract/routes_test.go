package contract_test

import (
	"testing"

	"github.com/idem-go/idem/contract"
	"github.com/stretchr/testify/assert"
)

// routes are addresses of each bound provider, and what is beside them. An empty
// name is no contract at all.
var routes = []struct{ method, target, want string }{
	{"POST", "https://api.stripe.com/v1/charges", "stripe_v1"},
	{"POST", "https://api.stripe.com/v1/payment_intents/pi_1/capture", "stripe_v1"},
	{"DELETE", "https://api.stripe.com/v1/customers/c", ""},
	{"POST", "https://api.stripe.com/v2/core/accounts", "stripe_v2"},
	{"POST", "https://api.stripe.com:443/v2/core/event_destinations", "stripe_v2"},
	{"POST", "https://api.stripe.com:8443/v3/x", ""},

	{"POST", "https://api-m.paypal.com/v2/checkout/orders", "paypal_orders_v2"},
	{"POST", "https://api-m.sandbox.paypal.com/v2/checkout/orders/X/capture", "paypal_orders_v2"},
	{"PATCH", "https://api-m.paypal.com/v2/checkout/orders/X", ""},
	{"POST", "https://api-m.paypal.com/v2/payments/captures/X/refund", "paypal_payments_v2"},
	{"POST", "https://api.sandbox.paypal.com/v2/payments/authorizations/X/capture", "paypal_payments_v2"},
	{"POST", "https://api-m.paypal.com/v3/vault/setup-tokens", "paypal_vault_v3"},
	{"POST", "https://api-m.sandbox.paypal.com/v3/vault/payment-tokens", "paypal_vault_v3"},
	{"DELETE", "https://api-m.paypal.com/v3/vault/payment-tokens/X", ""},
	{"POST", "https://api.paypal.com/v1/payments/payouts", "paypal_payouts_v1"},
	{"POST", "https://api-m.sandbox.paypal.com/v1/payments/payouts", "paypal_payouts_v1"},
	{"POST", "https://api-m.paypal.com/v1/payments/payouts-item/X/cancel", ""},
	{"POST", "https://api-m.paypal.com/v1/oauth2/token", ""},

	{"POST", "https://connect.squareup.com/v2/payments", "square_payments"},
	{"POST", "https://connect.squareupsandbox.com/v2/refunds", "square_payments"},
	{"POST", "https://connect.squareup.com/v2/payments/cancel", ""},
	{"POST", "https://connect.squareup.com/v2/payments/P/complete", ""},
	{"POST", "https://connect.squareup.com/v2/orders", "square_orders"},
	{"POST", "https://connect.squareupsandbox.com/v2/orders/O/pay", "square_orders"},
	{"POST", "https://connect.squareup.com/v2/orders/search", ""},
	{"POST", "https://connect.squareup.com/v2/orders//pay", ""},

	{"POST", "https://checkout-test.adyen.com/v71/payments", "adyen"},
	{"POST", "https://abc-Shop-checkout-live.adyenpayments.com/checkout/v71/payments", "adyen"},
	{"POST", "https://checkout-live.adyenpayments.com/checkout/v71/payments", ""},
	{"POST", "https://api.checkout.com/payments", "checkout_com"},
	{"POST", "https://vkuhvk4v.api.sandbox.checkout.com/payments/pay_1/refunds", "checkout_com"},
	{"POST", "https://transfers.sandbox.checkout.com/transfers", "checkout_com"},
	{"POST", "https://api.sandbox.checkout.com/payment-sessions", ""},
	{"POST", "https://api.checkout.com/payments/pay_1/reversals", ""},
	{"POST", "https://evilapi.checkout.com/payments", ""},
	{"POST", "https://api.gocardless.com/payments", "gocardless"},
	{"POST", "https://api-sandbox.gocardless.com/subscriptions", "gocardless"},
	{"POST", "https://api.gocardless.com/payments/PM1/actions/cancel", ""},
	{"POST", "https://api.wise.com/v1/transfers", "wise"},
	{"POST", "https://api.sandbox.transferwise.tech/v1/transfers", "wise"},
	{"POST", "https://api.wise.com/v3/profiles/1/transfers/2/payments", ""},

	{"POST", "https://production.plaid.com/transfer/authorization/create", "plaid_transfer_authorization"},
	{"POST", "https://sandbox.plaid.com/wallet/transaction/execute", "plaid_wallet"},
	{"POST", "https://sandbox.plaid.com/transfer/create", "plaid_transfer_create"},
	{"POST", "https://sandbox.plaid.com/transfer/get", ""},
	{"POST", "https://app.moderntreasury.com/api/payment_orders", "modern_treasury"},
	{"POST", "https://app.moderntreasury.com/api/ledger_transactions", "modern_treasury"},
	{"POST", "https://app.moderntreasury.com/mcp", ""},
	{"POST", "https://platform.brexapis.com/v1/transfers", "brex"},
	{"POST", "https://platform.staging.brexapps.com/v2/cards", "brex"},
	{"DELETE", "https://platform.brexapis.com/v1/vendors/1", ""},

	{"POST", "https://api.razorpay.com/v1/payouts", "razorpay_payouts"},
	{"POST", "https://api.razorpay.com/v1/payouts/p/cancel", ""},
	{"POST", "https://api.razorpay.com/v1/payments/pay_1/refund", "razorpay_refunds"},
	{"POST", "https://api.razorpay.com/v1/payments/pay_1/capture", ""},
	{"POST", "https://api.razorpay.com/v1/transfers", "razorpay_transfers"},
	{"POST", "https://api.razorpay.com/v1/transfers/t/reversals", ""},

	{"POST", "https://api.braintreegateway.com/merchants/M/transactions", "braintree_classic"},
	{"POST", "https://api.sandbox.braintreegateway.com:443/merchants/M/transactions", "braintree_classic"},
	{"POST", "https://payments.sandbox.braintree-api.com/graphql", "braintree_classic"},
	{"PUT", "https://api.braintreegateway.com/merchants/M/transactions/x/void", ""},
	{"POST", "https://shop.myshopify.com/admin/api/2026-04/graphql.json", ""},
	{"POST", "https://api.twilio.com/2010-04-01/Accounts/A/Messages.json", "twilio"},
	{"POST", "https://api.twilio.com/2010-04-01/Accounts/A/Calls.json", "twilio"},
	{"POST", "https://verify.twilio.com/v2/Services", ""},
	{"POST", "https://api.sendgrid.com/v3/mail/send", "sendgrid"},
	{"POST", "https://API.sendgrid.com/v3/marketing/singlesends", "sendgrid"},
	{"POST", "http://sendgrid.com/v3/mail/send", ""},
	{"POST", "https://api.resend.com/emails", "resend"},
	{"POST", "https://api.resend.com/emails/batch", "resend"},
	{"POST", "https://api.resend.com/emails/1/cancel", ""},

	{"POST", "https://api.mercury.com/api/v1/account/A/transactions", "mercury"},
	{"POST", "https://api-sandbox.mercury.com/api/v1/account/A/transactions", "mercury"},
	{"POST", "https://api.mercury.com/api/v1/account/A/request-send-money", ""},
	{"POST", "https://api.increase.com/ach_transfers", "increase"},
	{"POST", "https://sandbox.increase.com/wire_transfers", "increase"},
	{"POST", "https://api.sandbox.increase.com/ach_transfers", ""},
	{"POST", "https://api.column.com/transfers/ach", "column"},
	{"POST", "https://api.column.com/transfers/wire/w_1/reverse", "column"},
	{"POST", "https://api.column.com/transfers/ach/a_1/cancel", ""},
	{"POST", "https://api.lithic.com/v1/cards", "lithic"},
	{"POST", "https://sandbox.lithic.com/v1/cards", "lithic"},
	{"POST", "https://api.lithic.com/v1/cards/search_by_pan", ""},
	{"POST", "https://api.lithic.com/v1/payments", "lithic_payments"},
	{"POST", "https://sandbox.lithic.com/v1/book_transfers", "lithic_payments"},
	{"POST", "https://api.lithic.com/v1/payments/t/retry", ""},
	{"POST", "https://api.dwolla.com/transfers", "dwolla"},
	{"POST", "https://api-sandbox.dwolla.com/customers", "dwolla"},
	{"POST", "https://dwolla.com/transfers", ""},

	{"POST", "https://api.cdp.coinbase.com/platform/v2/evm/accounts", "coinbase_cdp"},
	{"POST", "https://api.cdp.coinbase.com/platform/v2/transfers", "coinbase_cdp"},
	{"POST", "https://api.cdp.coinbase.com/platform/v1/x", ""},
	{"PATCH", "https://api.klarna.com/ordermanagement/v1/orders/O", "klarna"},
	{"POST", "https://api-na.playground.klarna.com/ordermanagement/v1/orders/O/captures", "klarna"},
	{"POST", "https://api.klarna.com/checkout/v3/orders", ""},
	{"POST", "https://api.mollie.com/v2/payments", "mollie"},
	{"POST", "https://api.mollie.com/v2/payments/tr_1/refunds", "mollie"},
	{"POST", "https://api.mollie.com/oauth2/tokens", ""},
	{"POST", "https://secure.worldpay.com/jsp/merchant/xml/paymentService.jsp", ""},

	{"POST", "https://ec2.eu-west-1.amazonaws.com/", ""},
	{"POST", "https://dynamodb.eu-west-1.amazonaws.com/", ""},
	{"POST", "https://compute.googleapis.com/compute/v1/projects/p/zones/z/instances", ""},
	{"POST", "https://storage.googleapis.com/upload/storage/v1/b/x/o", "gcs"},
	{"PUT", "https://storage.googleapis.com/bucket/object", "gcs"},
	{"POST", "https://bucket.storage.googleapis.com/object", ""},
	{"POST", "https://api.openai.com/v1/responses", "openai"},
	{"POST", "https://api.openai.com/v1/chat/completions", "openai"},
	{"POST", "https://openai.azure.com/v1/responses", ""},
	{"POST", "https://api.anthropic.com/v1/messages", "anthropic"},
	{"POST", "https://api.anthropic.com/v1/messages/batches", "anthropic"},
	{"POST", "https://console.anthropic.com/v1/messages", ""},
	{"GET", "https://api.anthropic.com/v1/messages", ""},
}

func TestKnownRoutes(t *testing.T) {
	for _, tt := range routes {
		got := ""
		if c := contract.Known.Resolve(mustRequest(t, tt.method, tt.target)); c != nil {
			got = c.Name
		}
		assert.Equal(t, tt.want, got, "%s %s", tt.method, tt.target)
	}
}

func TestPathPatterns(t *testing.T) {
	for _, tt := range []struct {
		path   string
		exact  bool
		target string
		want   bool
	}{
		{"/v1/*/x", false, "/v1/a/x", true},
		{"/v1/*/x", false, "/v1/a/x/y", true},
		{"/v1/*/x", true, "/v1/a/x/y", false},
		{"/v1/*/x", true, "/v1/a/x/", true},
		{"/v1/*/x", false, "/v1/a/b/x", false},
		{"/v1/*/x", false, "/v1//x", false},
		{"/v1/*/x", false, "/v1/a%2Fb/x", true},
		{"/v1/*", false, "/v1", false},
		{"/v1/*", true, "/v1/a", true},
		{"/*/*", true, "/a/b", true},
		{"/v1", true, "/v1", true},
		{"/v1", true, "/v1/a", false},
		{"/", true, "/", true},
		{"/", true, "/a", false},
		{"/v1/*/x", false, "/v1/../x", false},
	} {
		c := contract.Keyed("K", 0).At("h")
		c.Paths, c.ExactPaths = []string{tt.path}, tt.exact
		got := c.Resolve(mustRequest(t, "POST", "https://h"+tt.target)) != nil
		assert.Equal(t, tt.want, got, "%s exact=%v %s", tt.path, tt.exact, tt.target)
	}
}
