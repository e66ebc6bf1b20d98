package contract

import (
	"net/http"
	"time"
)

// Adyen is the contract of Adyen's Checkout API, on its test host and on the
// live hosts of every company. Answers are stored unless they are marked
// transient. A key is known in one region only, so that a failover to another
// region's host is another payment. It is read-only; see [Contract.Clone].
//
// Adyen's other APIs have other hosts, which are not listed, because their
// specifications do not show the header; bind a copy with [Contract.At] where
// you know better.
var Adyen = &Contract{
	Name: "adyen",
	// The two addresses of adyen-openapi CheckoutService-v71.json, servers and
	// "Going live"; the live one begins with the company's prefix. Read
	// 2026-11-29.
	Hosts:   []string{"checkout-test.adyen.com", "*-checkout-live.adyenpayments.com"},
	Methods: []string{http.MethodPost}, // api-idempotency, read 2026-11-29

	// At most 64 characters, a UUID recommended. api-idempotency and
	// CheckoutService-v72.json, read 2026-11-29.
	Key:       Place{Header: "Idempotency-Key"},
	MaxLength: 64,
	// 7 to 14 days in the wording of 2026, 31 in an older copy of the page; the
	// stricter one counts. api-idempotency, read 2026-11-29.
	Retention:  7 * 24 * time.Hour,
	HostPinned: true, // by region; the same page, as is the echo
	Echo:       "Idempotency-Key",

	Replay: ReplayVerbatim,

	// Codes 704 and 703 are quoted by others from api-idempotency, read
	// 2026-11-29.
	InFlight: []Signal{
		{Status: http.StatusUnprocessableEntity, Pointer: "/errorCode", Value: "704"},
		{Status: http.StatusConflict, Pointer: "/errorCode", Value: "704"},
	},
	StoreDown: []Signal{
		{Status: http.StatusServiceUnavailable, Pointer: "/errorCode", Value: "703"},
	},
	// A failure without the header is the stored result. api-idempotency, read
	// 2026-11-29.
	StoresClientErrors: true,
	StoresServerErrors: true,
	Transient:          Marker{Header: "Transient-Error", Value: "true"},

	Sources: []string{
		"https://docs.adyen.com/development-resources/api-idempotency",
		"https://github.com/Adyen/adyen-openapi/blob/main/json/CheckoutService-v72.json",
		"https://github.com/Adyen/adyen-go-api-library/blob/main/src/checkout/model_additional_data_common.go",
	},
	Checked: "2026-11-29",
}
