package contract

import "net/http"

func lithicHosts() []string { return []string{"api.lithic.com", "sandbox.lithic.com"} }

// Lithic is the contract of Lithic's card creation. The header is taken on a
// list of routes of which only this one is known here; for another one of the
// list, [Contract.Clone] and set Paths. How long a key is remembered is published
// but was not read. It is read-only.
var Lithic = &Contract{
	Name:       "lithic",
	Hosts:      lithicHosts(),
	Paths:      []string{"/v1/cards"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// docs/idempotent-requests and lithic-go's card.go, read 2026-11-29.
	Key:       Place{Header: "Idempotency-Key"},
	Form:      UUID,
	MaxLength: 36,

	Replay: ReplayVerbatim,

	Sources: []string{
		"https://docs.lithic.com/docs/idempotent-requests",
		"https://docs.lithic.com/changelog",
		"https://github.com/lithic-com/lithic-go/blob/main/card.go",
	},
	Checked: "2026-11-29",
}

// LithicPayments is the contract of Lithic's payments and book transfers: the
// caller chooses the token that the transaction has from then on, so that it can
// be read by it for ever. It is read-only; see [Contract.Clone].
var LithicPayments = &Contract{
	Name:       "lithic_payments",
	Hosts:      lithicHosts(),
	Paths:      []string{"/v1/payments", "/v1/book_transfers"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// lithic-go's payment.go and booktransfer.go, read 2026-11-29.
	Key:         Place{Pointer: "/token"},
	Form:        UUID,
	MaxLength:   36,
	AfterExpiry: NeverExpires,

	Replay: ReplayCurrent,

	// The same files, read 2026-11-30.
	Read: Read{
		Path:  "{path}/{key}",
		Found: Signal{Status: http.StatusOK, Pointer: "/token", Value: "{key}"},
	},

	Sources: []string{
		"https://github.com/lithic-com/lithic-go/blob/main/payment.go",
		"https://github.com/lithic-com/lithic-go/blob/main/booktransfer.go",
	},
	Checked: "2026-11-29",
}
