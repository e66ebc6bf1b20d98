package contract

import (
	"net/http"
	"time"
)

// A different body is a BAD_REQUEST_ERROR, which every other bad request is as
// well. Read 2026-11-29.
var razorpayBadRequest = Signal{Status: http.StatusBadRequest, Pointer: "/error/code", Value: "BAD_REQUEST_ERROR"}

// RazorpayPayouts is the contract of RazorpayX payouts, composite ones included.
// A repeated key shows the payout as it stands now, so that a success can say
// that it failed. Its 409 is published for refunds and transfers and assumed
// here. It is read-only; see [Contract.Clone].
var RazorpayPayouts = &Contract{
	Name:       "razorpay_payouts",
	Hosts:      []string{"api.razorpay.com"},
	Paths:      []string{"/v1/payouts"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// api/x/payout-idempotency, read 2026-11-29.
	Key:       Place{Header: "X-Payout-Idempotency"},
	Form:      WordSpace,
	MinLength: 4,
	MaxLength: 36,
	Retention: 7 * 24 * time.Hour,

	Replay:   ReplayCurrent,
	InFlight: []Signal{{Status: http.StatusConflict}},
	Mismatch: []Signal{razorpayBadRequest},
	// A failed payout did not and will not happen; a new one needs a new key.
	// api/x/payout-idempotency, read 2026-11-29.
	Proven:          []Signal{{Status: http.StatusOK, Pointer: "/status", Value: "failed"}},
	ErrorsInside200: true,

	Sources: []string{
		"https://github.com/razorpay/markdown-docs/blob/master/errors/x.md",
		"https://github.com/razorpay/markdown-docs/blob/master/api/x/payout-idempotency/make-request.md",
		"https://razorpay.com/docs/api/x/payout-idempotency",
	},
	Checked: "2026-11-29",
}

// RazorpayRefunds is the contract of Razorpay's refunds, normal and instant.
// How long a key is remembered is not published. Its hint to use another key
// while one is in progress must not be followed: that would be a second refund.
// It is read-only; see [Contract.Clone].
var RazorpayRefunds = &Contract{
	Name:       "razorpay_refunds",
	Hosts:      []string{"api.razorpay.com"},
	Paths:      []string{"/v1/payments/*/refund"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// api/refunds/normal-refunds-idempotent, read 2026-11-29.
	Key:       Place{Header: "X-Refund-Idempotency"},
	Form:      Word,
	MinLength: 10,

	Replay: ReplayVerbatim,
	// The texts are those of normal-refunds-idempotent.md, read 2026-11-29; its
	// pages disagree on 400 or 409 for a mismatch.
	InFlight: []Signal{{Status: http.StatusConflict, Pointer: "/error/description", Text: "still in progress"}},
	Mismatch: []Signal{
		{Status: http.StatusConflict, Pointer: "/error/description", Text: "Different request"},
		razorpayBadRequest,
	},
	StoreDown: []Signal{
		{Status: http.StatusInternalServerError, Pointer: "/error/description", Text: "idempotency record"},
	},
	RetryStatuses: []int{http.StatusConflict},

	Sources: []string{
		"https://github.com/razorpay/markdown-docs/blob/master/api/refunds/normal-refunds-idempotent.md",
	},
	Checked: "2026-11-29",
}

// RazorpayTransfers is the contract of Razorpay Route's direct transfers. How
// long a key is remembered is not published. It is read-only; see
// [Contract.Clone].
var RazorpayTransfers = &Contract{
	Name:       "razorpay_transfers",
	Hosts:      []string{"api.razorpay.com"},
	Paths:      []string{"/v1/transfers"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// direct-transfers-idempotent-request.md, read 2026-11-29.
	Key:       Place{Header: "X-Transfer-Idempotency"},
	Form:      WordSpace,
	MinLength: 4,
	MaxLength: 36,

	Replay:   ReplayVerbatim,
	InFlight: []Signal{{Status: http.StatusConflict}},
	Mismatch: []Signal{razorpayBadRequest},

	Sources: []string{
		"https://github.com/razorpay/markdown-docs/blob/master/api/payments/route/direct-transfers-idempotent-request.md",
	},
	Checked: "2026-11-29",
}
