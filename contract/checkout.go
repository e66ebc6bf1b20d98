package contract

import (
	"net/http"
	"time"
)

// CheckoutCom is the contract of Checkout.com's listed routes: payments and what
// is done to them, payment contexts, and transfers. The retention can be set for an account in production; a
// sandbox of 2022 to 2024 remembered keys for two minutes only. It is read-only;
// see [Contract.Clone].
var CheckoutCom = &Contract{
	Name: "checkout_com",
	// The environments of its SDKs, read 2026-11-29; newer accounts have a prefix
	// of their own in front.
	Hosts: []string{
		"api.checkout.com", "*.api.checkout.com", "api.sandbox.checkout.com", "*.api.sandbox.checkout.com",
		"transfers.checkout.com", "transfers.sandbox.checkout.com",
	},
	// payments/manage-payments/retry-a-payment, read 2026-11-29.
	Paths: []string{
		"/payment-contexts", "/payments", "/payments/*/authorizations", "/payments/*/cancellations",
		"/payments/*/captures", "/payments/*/refunds", "/payments/*/voids", "/transfers",
	},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// The same page.
	Key:         Place{Header: "Cko-Idempotency-Key"},
	Retention:   24 * time.Hour,
	AfterExpiry: ExecutesAgain,

	Replay: ReplayVerbatim,
	// 409 in the wording of 2026, 429 until about 2025; the same page asks for
	// thirty seconds between two tries. Read 2026-11-29.
	InFlight: []Signal{{Status: http.StatusConflict}, {Status: http.StatusTooManyRequests}},
	MinDelay: 30 * time.Second,

	Sources: []string{
		"https://www.checkout.com/docs/payments/manage-payments/retry-a-payment",
		"https://support.checkout.com/hc/en-us/articles/24570669653010",
	},
	Checked: "2026-11-29",
}
