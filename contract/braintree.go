package contract

import (
	"net/http"
	"time"
)

// BraintreeClassic is the contract of Braintree as everyone has it: its gateway
// and its GraphQL API take no key. The check for duplicates is a guess by amount
// and card within 30 seconds, which a merchant can change or switch off, so that
// it proves nothing; clientMutationId is only echoed. It is read-only; see
// [Contract.Clone].
var BraintreeClassic = &Contract{
	Name: "braintree_classic",
	// The gateway's hosts are those of Braintree's client libraries, the others
	// are in "Making API Calls"; read 2026-11-29.
	Hosts: []string{
		"api.braintreegateway.com", "api.sandbox.braintreegateway.com",
		"payments.braintree-api.com", "payments.sandbox.braintree-api.com",
	},
	Methods: []string{http.MethodPost},
	NoKeys:  true,
	Sources: []string{
		"https://developer.paypal.com/braintree/articles/control-panel/transactions/duplicate-checking",
		"https://github.com/braintree/graphql-api/blob/main/schema.graphql",
		"https://github.com/braintree/graphql-api/blob/main/CHANGELOG.md",
	},
	Checked: "2026-11-29",
}

// BraintreeAtMostOnce is the contract of At-Most-Once processing in Braintree's
// GraphQL API, which only some merchants have. It is bound to no host, because
// anywhere else the key does nothing. Where in the request the ApiRequestKey goes
// is not public: the place here is a variable of that name, for a mutation that
// you write to use it. Bind it with [Contract.At], and set Key, only with that
// page of Braintree's before you.
//
// A request in progress is told by a "retryable validation error" whose code is
// not published, so that no signal is known. It is read-only.
var BraintreeAtMostOnce = &Contract{
	Name:    "braintree_amo",
	Hosts:   []string{},
	Methods: []string{http.MethodPost},

	Key:       Place{Pointer: "/variables/ApiRequestKey"},
	Retention: 30 * 24 * time.Hour, // integration_guides/idempotency, read 2026-11-29

	Replay:          ReplayCurrent,
	ErrorsInside200: true,

	Sources: []string{"https://graphql.braintreepayments.com/integration_guides/idempotency"},
	Checked: "2026-11-29",
}
