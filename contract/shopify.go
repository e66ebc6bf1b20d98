package contract

import (
	"net/http"
	"time"
)

// Shopify is the contract of the mutations of Shopify's GraphQL Admin API that
// take the @idempotent directive. The key is the variable idempotencyKey, so each
// mutation must be written to use it:
//
//	mutation Refund($input: RefundInput!, $idempotencyKey: String!) {
//	  refundCreate(input: $input) @idempotent(key: $idempotencyKey) { ... }
//	}
//
// A mutation that does not is executed again by a resend, and a query needs no
// key. That cannot be told from the URL, so it is bound to no host: bind it to
// "*.myshopify.com" with [Contract.At], in a transport that only sends such
// mutations. It is read-only.
var Shopify = &Contract{
	Name:       "shopify",
	Hosts:      []string{},
	Paths:      []string{"/admin/api/*/graphql.json"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// api/usage/idempotent-requests; the 24 hours and the replay are second hand.
	// Read 2026-11-29.
	Key:       Place{Pointer: "/variables/idempotencyKey"},
	Retention: 24 * time.Hour,

	Replay: ReplayCurrent,
	// api/usage/implementing-idempotency, read 2026-11-29.
	InFlight: []Signal{{
		Status: http.StatusOK, Pointer: "/data/*/userErrors/*/code", Value: "IDEMPOTENCY_CONCURRENT_REQUEST",
	}},
	Mismatch: []Signal{{
		Status: http.StatusOK, Pointer: "/data/*/userErrors/*/code", Value: "IDEMPOTENCY_KEY_PARAMETER_MISMATCH",
	}},
	ErrorsInside200: true,

	Sources: []string{
		"https://shopify.dev/docs/api/usage/idempotent-requests",
		"https://shopify.dev/docs/api/usage/implementing-idempotency",
		"https://shopify.dev/changelog/making-idempotency-mandatory-for-inventory-adjustments-and-refund-mutations",
	},
	Checked: "2026-11-29",
}
