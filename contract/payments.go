package contract

import (
	"net/http"
	"time"
)

// CoinbaseCDP is the contract of Coinbase's Developer Platform v2. It is
// read-only; see [Contract.Clone].
var CoinbaseCDP = &Contract{
	Name:    "coinbase_cdp",
	Hosts:   []string{"api.cdp.coinbase.com"},
	Paths:   []string{"/platform/v2"},
	Methods: []string{http.MethodPost},

	// openapi.yaml, IdempotencyKey, read 2026-11-29.
	Key:         Place{Header: "X-Idempotency-Key"},
	Form:        UUID4,
	MaxLength:   128,
	Retention:   24 * time.Hour,
	AfterExpiry: ExecutesAgain,

	Replay: ReplayVerbatim,
	// openapi.yaml; the status of the first one is a conclusion. Read 2026-11-29.
	InFlight: []Signal{{Status: http.StatusConflict, Pointer: "/errorType", Value: "already_exists"}},
	Mismatch: []Signal{
		{Status: http.StatusUnprocessableEntity, Pointer: "/errorType", Value: "idempotency_error"},
		{Status: http.StatusConflict, Pointer: "/errorType", Value: "idempotency_error"},
	},
	RetryStatuses: []int{http.StatusConflict},

	Sources: []string{
		"https://github.com/coinbase/cdp-sdk/blob/main/openapi.yaml",
		"https://docs.cdp.coinbase.com/api-reference/v2/idempotency",
	},
	Checked: "2026-11-29",
}

// Klarna is the contract of Klarna's order management, in Europe, North America
// and Oceania, to which its policy is limited. Its APIs for partners take the key
// as well, on hosts of their own that are not listed. It is read-only; see
// [Contract.Clone].
var Klarna = &Contract{
	Name: "klarna",
	Hosts: []string{
		"api.klarna.com", "api-na.klarna.com", "api-oc.klarna.com",
		"api.playground.klarna.com", "api-na.playground.klarna.com", "api-oc.playground.klarna.com",
	},
	Paths:   []string{"/ordermanagement/v1"},
	Methods: []string{http.MethodPost, http.MethodPatch},

	// escalation-and-retry-policy, read 2026-11-29.
	Key:       Place{Header: "Klarna-Idempotency-Key"},
	Retention: 24 * time.Hour,

	Replay: ReplayVerbatim,

	Sources: []string{
		"https://docs.klarna.com/api/escalation-and-retry-policy/",
		"https://docs.klarna.com/acquirer/klarna-direct/setup-your-integration/integration-resilience/idempotency/",
	},
	Checked: "2026-11-29",
}

// Mollie is the contract of Mollie's API v2. A key is remembered for an hour. It
// is read-only; see [Contract.Clone].
var Mollie = &Contract{
	Name:    "mollie",
	Hosts:   []string{"api.mollie.com"}, // test mode has the same one
	Paths:   []string{"/v2"},
	Methods: []string{http.MethodPost},

	// api-idempotency.rst and specs.yaml, read 2026-11-29.
	Key:         Place{Header: "Idempotency-Key"},
	Retention:   time.Hour,
	AfterExpiry: ExecutesAgain,

	Replay:   ReplayVerbatim,
	Replayed: Marker{Header: "Idempotent-Replayed", Value: "true"},
	InFlight: []Signal{{Status: http.StatusConflict}},
	Mismatch: []Signal{{Status: http.StatusBadRequest}},

	Sources: []string{
		"https://github.com/mollie/api-documentation/blob/master/source/overview/api-idempotency.rst",
		"https://github.com/mollie/openapi/blob/main/specs.yaml",
	},
	Checked: "2026-11-29",
}

// WorldpayWPG is the contract of Worldpay's XML gateway (WPG) for the merchants
// for whom keys were switched on; for all others the key does nothing, so that it
// is bound to no host. Bind it to secure.worldpay.com or
// secure-test.worldpay.com with [Contract.At], and set Retention on the copy to
// the 1 to 365 days that were agreed on.
//
// While the store is down the gateway lets requests through unchecked: make
// orderCode unique as well, and watch the duplicate keys report. It is read-only.
var WorldpayWPG = &Contract{
	Name:       "worldpay_wpg",
	Hosts:      []string{},
	Paths:      []string{"/jsp/merchant/xml/paymentService.jsp"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// wpg/idempotency, read 2026-11-29.
	Key:         Place{Header: "Idempotency-Key"},
	Form:        UUID,
	MaxLength:   36,
	Retention:   24 * time.Hour,
	AfterExpiry: ExecutesAgain,

	Replay:   ReplayVerbatim,
	FailOpen: true,
	// Error 9 with this text, in an XML answer whose status is not published.
	// troubleshoot/idempotencyerrors, read 2026-11-29.
	InFlight: []Signal{
		{Status: http.StatusOK, Text: "Request in progress"},
		{Text: "Request in progress"},
	},
	ErrorsInside200: true,

	Sources: []string{
		"https://developer.worldpay.com/docs/wpg/idempotency",
		"https://developer.worldpay.com/docs/wpg/troubleshoot/idempotencyerrors",
	},
	Checked: "2026-11-29",
}
