package contract

import (
	"net/http"
	"time"
)

// CheckoutCom is the contract of Checkout.com's payments, with captures, refunds
// and voids below them. The retention can be set for an account in production; a
// sandbox of 2022 to 2024 remembered keys for two minutes only. It is read-only;
// see [Contract.Clone].
var CheckoutCom = &Contract{
	Name: "checkout_com",
	// Newer accounts have a prefix of their own in front.
	Hosts: []string{
		"api.checkout.com", "*.api.checkout.com", "api.sandbox.checkout.com", "*.api.sandbox.checkout.com",
	},
	Paths:   []string{"/payments"},
	Methods: []string{http.MethodPost},

	// payments/manage-payments/retry-a-payment, read 2026-11-29.
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
