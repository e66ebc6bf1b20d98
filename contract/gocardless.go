package contract

import "net/http"

// GoCardless is the contract of GoCardless' create routes. A repeated key is
// answered with a conflict that points at what was made, never with the first
// answer. The actions below them, such as cancel, are not listed as taking a key.
// How long a key is remembered is not published. It is read-only; see
// [Contract.Clone].
var GoCardless = &Contract{
	Name:  "gocardless",
	Hosts: []string{"api.gocardless.com", "api-sandbox.gocardless.com"},
	// The services of gocardless-pro for Ruby whose create handles the conflict,
	// read 2026-11-29.
	Paths: []string{
		"/payments", "/refunds", "/mandates", "/subscriptions", "/customers", "/customer_bank_accounts",
		"/creditors", "/creditor_bank_accounts", "/redirect_flows",
	},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	Key: Place{Header: "Idempotency-Key"}, // blog/idempotency-keys, read 2026-11-29

	Replay: ReplayConflict,
	// Without the id of what was made it proves nothing. gocardless-pro for Ruby,
	// read 2026-11-29.
	AlreadyDone: []Signal{{
		Status: http.StatusConflict, Pointer: "/error/errors/*/reason", Value: "idempotent_creation_conflict",
		Also: "/error/errors/*/links/conflicting_resource_id",
	}},
	// A date; it counts when nothing is left. gocardless-pro-go's retries.go,
	// read 2026-11-29.
	Waits: []Wait{{Header: "RateLimit-Reset", When: Marker{Header: "RateLimit-Remaining", Value: "0"}}},

	Sources: []string{
		"https://gocardless.com/blog/idempotency-keys",
		"https://github.com/gocardless/gocardless-pro-go/blob/master/retries.go",
		"https://github.com/gocardless/gocardless-pro-ruby/tree/master/spec/services",
	},
	Checked: "2026-11-29",
}
