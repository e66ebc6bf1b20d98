package contract

import (
	"net/http"
	"time"
)

// Wise is the contract of Wise's transfers: the key is a member of the JSON
// body. How long it is remembered is not published. It is read-only; see
// [Contract.Clone].
var Wise = &Contract{
	Name: "wise",
	// Production and sandbox, each under its newer and older name.
	Hosts: []string{
		"api.wise.com", "api.transferwise.com", "api.wise-sandbox.com", "api.sandbox.transferwise.tech",
	},
	Paths:      []string{"/v1/transfers"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// guides/product/send-money/standard-api-transfers, read 2026-11-29.
	Key:       Place{Pointer: "/customerTransactionId"},
	Form:      UUID,
	MaxLength: 36,

	Replay: ReplayVerbatim,

	Sources: []string{"https://docs.wise.com/guides/product/send-money/standard-api-transfers"},
	Checked: "2026-11-29",
}

// ModernTreasury is the contract of Modern Treasury. A key belongs to one API
// key, under which it is one over all routes: whatever the route and the body, a
// repeated key gets the first answer. It is read-only; see [Contract.Clone].
var ModernTreasury = &Contract{
	Name:    "modern_treasury",
	Hosts:   []string{"app.moderntreasury.com"}, // the servers of its specification, read 2026-11-29
	Paths:   []string{"/api"},
	Methods: []string{http.MethodPost},

	// reference/idempotent-requests, read 2026-11-29.
	Key:              Place{Header: "Idempotency-Key"},
	Retention:        24 * time.Hour,
	AfterExpiry:      ExecutesAgain,
	CredentialPinned: true,

	Replay:   ReplayVerbatim,
	InFlight: []Signal{{Status: http.StatusConflict}},

	Sources: []string{
		"https://docs.moderntreasury.com/reference/idempotent-requests",
		"https://github.com/Modern-Treasury/modern-treasury-go/blob/main/internal/requestconfig/requestconfig.go",
	},
	Checked: "2026-11-29",
}

// Brex is the contract of Brex's API, in which every POST takes a key. How long
// it is remembered is not published. It is read-only; see [Contract.Clone].
var Brex = &Contract{
	Name: "brex",
	// Production and staging, the servers of its specifications, read 2026-11-29.
	Hosts:   []string{"platform.brexapis.com", "platform.staging.brexapps.com"},
	Methods: []string{http.MethodPost},

	Key: Place{Header: "Idempotency-Key"}, // docs/idempotency, read 2026-11-29

	Replay: ReplayVerbatim,

	Sources: []string{"https://developer.brex.com/docs/idempotency"},
	Checked: "2026-11-29",
}

// Mercury is the contract of Mercury's payments: the key is a member of the JSON
// body. A repeated key is answered with 409 and the ordinary transaction. How
// long it is remembered is not published. It is read-only; see [Contract.Clone].
var Mercury = &Contract{
	Name:       "mercury",
	Hosts:      []string{"api.mercury.com", "api-sandbox.mercury.com"},
	Paths:      []string{"/api/v1/account/*/transactions"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	Key: Place{Pointer: "/idempotencyKey"}, // reference/transactions-2, read 2026-11-29

	Replay: ReplayConflict,
	// Only with a transaction in it. reference/transactions-2, read 2026-11-29.
	AlreadyDone: []Signal{{Status: http.StatusConflict, Pointer: "/id", Also: "/status"}},

	Sources: []string{"https://docs.mercury.com/reference/transactions-2"},
	Checked: "2026-11-29",
}

// Increase is the contract of Increase. The key stays on the object that it
// made, so that the object can be listed by it; an expiry is not published. It is
// read-only; see [Contract.Clone].
var Increase = &Contract{
	Name:    "increase",
	Hosts:   []string{"api.increase.com", "sandbox.increase.com"}, // increase-go, read 2026-11-29
	Methods: []string{http.MethodPost},

	// documentation/idempotency-keys, read 2026-11-29.
	Key:         Place{Header: "Idempotency-Key"},
	MaxLength:   200,
	AfterExpiry: NeverExpires,

	Replay:   ReplayCurrent,
	Replayed: Marker{Header: "Idempotent-Replayed", Value: "true"},
	// Beside it, resource_id names what holds the key.
	Mismatch: []Signal{
		{Status: http.StatusConflict, Pointer: "/type", Value: "idempotency_key_already_used_error"},
	},

	// increase-go's internal/requestconfig, read 2026-11-29.
	ShouldRetry: stainlessAdvice,
	Waits:       stainlessWaits,

	// Every list filters by the key, and every object shows its own:
	// documentation/idempotency-keys, read 2026-11-30.
	Read: Read{
		Path:  "{path}?idempotency_key={key}",
		Found: Signal{Status: http.StatusOK, Pointer: "/data/*/idempotency_key", Value: "{key}"},
	},

	Sources: []string{
		"https://increase.com/documentation/idempotency-keys",
		"https://github.com/Increase/increase-go/blob/main/internal/requestconfig/requestconfig.go",
	},
	Checked: "2026-11-29",
}

// Column is the contract of Column's listed routes. Only successes are stored.
// It is read-only; see [Contract.Clone].
var Column = &Contract{
	Name:  "column",
	Hosts: []string{"api.column.com"}, // the sandbox has the same one
	// working-with-the-api/idempotency, read 2026-11-29.
	Paths: []string{
		"/bank-accounts", "/bank-accounts/*/account-numbers", "/entities/business", "/entities/person",
		"/interests/configs", "/interests/pivot-rates", "/loans", "/loans/disbursements", "/loans/payments",
		"/loans/*/sales", "/transfers/ach", "/transfers/ach/*/reverse", "/transfers/book",
		"/transfers/checks/deposit", "/transfers/checks/issue", "/transfers/international-wire",
		"/transfers/international-wire/fx-rate", "/transfers/wire", "/transfers/wire/*/reverse",
	},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// Characters 32 to 126, case counts; may be forgotten after 30 days. The same
	// page.
	Key:       Place{Header: "Idempotency-Key"},
	Form:      Printable,
	MaxLength: 255,
	Retention: 30 * 24 * time.Hour,

	Replay: ReplayVerbatim,

	Sources: []string{
		"https://docs.column.com/markdown/working-with-the-api/idempotency.md",
		"https://column.com/docs/workingwithapi/idempotency",
	},
	Checked: "2026-11-29",
}

// Dwolla is the contract of Dwolla. The exact body is a part of the key: another
// one is another request, and not a mismatch. It is read-only; see
// [Contract.Clone].
var Dwolla = &Contract{
	Name:    "dwolla",
	Hosts:   []string{"api.dwolla.com", "api-sandbox.dwolla.com"},
	Methods: []string{http.MethodPost},

	// api-fundamentals/idempotency-key, read 2026-11-29.
	Key:       Place{Header: "Idempotency-Key"},
	Retention: 24 * time.Hour,

	Replay:   ReplayVerbatim,
	InFlight: []Signal{{Status: http.StatusConflict}},

	Sources: []string{"https://developers.dwolla.com/docs/api-reference/api-fundamentals/idempotency-key"},
	Checked: "2026-11-29",
}
