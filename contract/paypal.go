package contract

import (
	"net/http"
	"time"
)

// payPalHosts are production and sandbox, each under its newer and older name.
// The servers of PayPal's REST specifications, read 2026-11-29.
func payPalHosts() []string {
	return []string{"api-m.paypal.com", "api.paypal.com", "api-m.sandbox.paypal.com", "api.sandbox.paypal.com"}
}

// payPalOverlap: a second request may fail while the first one is at work, with
// a code that is not published. reference/guidelines/idempotency, read
// 2026-11-29.
var payPalOverlap = []Signal{{Status: http.StatusUnprocessableEntity}}

var (
	// The place of an error's code is that of PayPal's error object, and the
	// status is that of the vault's error pages, read 2026-11-29.
	payPalUsedBefore = Signal{
		Status: http.StatusUnprocessableEntity, Pointer: "/details/*/issue", Value: "PAYPAL_REQUEST_ID_PREVIOUSLY_USED",
	}
	// Its status and place differ from API to API. errors/duplicate_request_id,
	// read 2026-11-29.
	payPalDuplicate = Signal{Text: `"DUPLICATE_REQUEST_ID"`}
)

// PayPalOrdersV2 is the contract of PayPal's Orders API v2, with create, confirm,
// authorize and capture. A key belongs to one kind of call: authorize and capture
// of one order need two. A repeated key shows the order as it stands now. It is
// read-only; see [Contract.Clone].
var PayPalOrdersV2 = &Contract{
	Name:    "paypal_orders_v2",
	Hosts:   payPalHosts(),
	Paths:   []string{"/v2/checkout/orders"},
	Methods: []string{http.MethodPost},

	// checkout_orders_v2.json, read 2026-11-29.
	Key:       Place{Header: "PayPal-Request-Id"},
	MaxLength: 108,
	Retention: 6 * time.Hour, // up to 72 h by arrangement

	Replay:   ReplayCurrent,
	Mismatch: []Signal{payPalUsedBefore, payPalDuplicate},
	Overlap:  payPalOverlap,

	Sources: []string{
		"https://github.com/paypal/paypal-rest-api-specifications/blob/main/openapi/checkout_orders_v2.json",
		"https://developer.paypal.com/reference/guidelines/idempotency",
	},
	Checked: "2026-11-29",
}

// PayPalPaymentsV2 is the contract of PayPal's Payments API v2: captures,
// refunds and voids of what an order authorized. A repeated key shows the payment
// as it stands now. It is read-only; see [Contract.Clone].
var PayPalPaymentsV2 = &Contract{
	Name:    "paypal_payments_v2",
	Hosts:   payPalHosts(),
	Paths:   []string{"/v2/payments"},
	Methods: []string{http.MethodPost},

	Key: Place{Header: "PayPal-Request-Id"}, // its length is not published
	// payments_payment_v2.json, read 2026-11-29.
	Retention: 45 * 24 * time.Hour,

	Replay:   ReplayCurrent,
	Mismatch: []Signal{payPalDuplicate},
	Overlap:  payPalOverlap,

	Sources: []string{
		"https://github.com/paypal/paypal-rest-api-specifications/blob/main/openapi/payments_payment_v2.json",
	},
	Checked: "2026-11-29",
}

// PayPalVaultV3 is the contract of PayPal's Vault API v3 for setup tokens and
// payment tokens. It is read-only; see [Contract.Clone].
var PayPalVaultV3 = &Contract{
	Name:    "paypal_vault_v3",
	Hosts:   payPalHosts(),
	Paths:   []string{"/v3/vault"},
	Methods: []string{http.MethodPost},

	Key: Place{Header: "PayPal-Request-Id"},
	// vault_payment_tokens_v3.json, read 2026-11-29.
	Retention: 3 * time.Hour,

	Replay:   ReplayCurrent,
	Mismatch: []Signal{payPalUsedBefore},

	Sources: []string{
		"https://github.com/paypal/paypal-rest-api-specifications/blob/main/openapi/vault_payment_tokens_v3.json",
		"https://developer.paypal.com/api/payment-tokens/v3/errors/paypal_request_id_previously_used",
	},
	Checked: "2026-11-29",
}

// PayPalPayoutsV1 is the contract of PayPal's Payouts API v1. It is read-only;
// see [Contract.Clone].
var PayPalPayoutsV1 = &Contract{
	Name:    "paypal_payouts_v1",
	Hosts:   payPalHosts(),
	Paths:   []string{"/v1/payments/payouts"},
	Methods: []string{http.MethodPost},

	// payments_payouts_batch_v1.json, read 2026-11-29.
	Key:       Place{Header: "PayPal-Request-Id"},
	MaxLength: 1000,
	Retention: 30 * 24 * time.Hour,

	Replay: ReplayCurrent,

	Sources: []string{
		"https://github.com/paypal/paypal-rest-api-specifications/blob/main/openapi/payments_payouts_batch_v1.json",
	},
	Checked: "2026-11-29",
}
