package contract

import (
	"net/http"
	"time"
)

// Stripe takes the requests to api.stripe.com: [StripeV1] below /v1, [StripeV2]
// below /v2. [StripeAt] is the same for a test double or a gateway.
var Stripe = First(StripeV1, StripeV2)

// StripeAt returns what [Stripe] is, bound to other hosts (see [Contract.At]).
func StripeAt(hosts ...string) Resolver {
	return First(StripeV1.At(hosts...), StripeV2.At(hosts...))
}

// StripeV1 is the contract of Stripe's API v1. The status and body of the first
// execution are stored, 500s included, and given again for at least a day. It
// is read-only; see [Contract.Clone].
var StripeV1 = &Contract{
	Name:    "stripe_v1",
	Hosts:   []string{"api.stripe.com"},
	Paths:   []string{"/v1"},
	Methods: []string{http.MethodPost}, // api/idempotent_requests, read 2026-11-29

	// Up to 255 characters; raw, not quoted. api/idempotent_requests and
	// stripe-go's NewRequest, read 2026-11-29.
	Key:       Place{Header: "Idempotency-Key"},
	MaxLength: 255,
	// The key space is the account's; these name the account a platform acts
	// for. Seen in clients of Stripe on 2026-11-29, not in its own text.
	ScopeHeaders: []string{"Stripe-Account", "Stripe-Context"},
	// Pruned some time after 24 h. api/idempotent_requests, read 2026-11-29.
	Retention: 24 * time.Hour,

	// Both on the same page.
	AfterExpiry: ExecutesAgain,
	Echo:        "Idempotency-Key",

	Replay: ReplayVerbatim,
	// error-low-level, "Idempotency and retries", read 2026-11-29 in a copy.
	Replayed: Marker{Header: "Idempotent-Replayed", Value: "true"},
	// stripe-go's error.go, read 2026-11-29.
	InFlight: []Signal{
		{Status: http.StatusConflict, Pointer: "/error/code", Value: "idempotency_key_in_use"},
	},
	// The type is in stripe-go's error.go; the status is second hand. Read
	// 2026-11-29.
	Mismatch: []Signal{
		{Status: http.StatusBadRequest, Pointer: "/error/type", Value: "idempotency_error"},
	},
	StoresClientErrors: true, // once execution began; the same page
	StoresServerErrors: true, // "including 500 errors", api/idempotent_requests, read 2026-11-29

	// error-low-level and stripe-go's shouldRetry, read 2026-11-29.
	ShouldRetry:   stripeAdvice,
	RetryStatuses: []int{http.StatusConflict},

	Sources: stripeSources(),
	Checked: "2026-11-29",
}

// StripeV2 is the contract of Stripe's API v2. A success is not repeated; failed
// work is taken up again under the same key, so that a failure is not a stored
// answer. It is read-only; see [Contract.Clone].
var StripeV2 = &Contract{
	Name:    "stripe_v2",
	Hosts:   []string{"api.stripe.com"},
	Paths:   []string{"/v2"},
	Methods: []string{http.MethodPost}, // api-v2-overview, read 2026-11-29

	Key:          Place{Header: "Idempotency-Key"}, // as v1
	MaxLength:    255,
	ScopeHeaders: []string{"Stripe-Account", "Stripe-Context"},
	// Retention stays unknown: error-low-level speaks of a 30-day window, seen
	// 2026-11-29 in an excerpt only. The replay marker and the answer to a
	// mismatch were not found.

	Replay: ReplayReworked, // api/idempotent_requests, read 2026-11-29
	// Its code is not published; api-v2-overview, read 2026-11-29.
	InFlight: []Signal{{Status: http.StatusConflict}},

	ShouldRetry: stripeAdvice, // as v1

	Sources: append(stripeSources(), "https://docs.stripe.com/api-v2-overview"),
	Checked: "2026-11-29",
}

// stripeAdvice outranks the status: stripe-go's shouldRetry, read 2026-11-29.
var stripeAdvice = Advice{Header: "Stripe-Should-Retry", Yes: "true", No: "false"}

func stripeSources() []string {
	return []string{
		"https://docs.stripe.com/api/idempotent_requests",
		"https://docs.stripe.com/error-low-level",
		"https://github.com/stripe/stripe-go/blob/master/stripe.go",
		"https://github.com/stripe/stripe-go/blob/master/error.go",
	}
}
