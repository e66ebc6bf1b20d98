package contract

import (
	"net/http"
	"time"
)

func plaidHosts() []string { return []string{"production.plaid.com", "sandbox.plaid.com"} }

func plaidSources() []string {
	return []string{"https://github.com/plaid/plaid-openapi/blob/master/2020-09-14.yml"}
}

// PlaidTransferAuthorization is the contract of Plaid's
// /transfer/authorization/create: the key is a member of the JSON body. An answer
// "user_action_required" is a success; once the user acted, the same key may be
// used again, as a new operation. It is read-only; see [Contract.Clone].
var PlaidTransferAuthorization = &Contract{
	Name:       "plaid_transfer_authorization",
	Hosts:      plaidHosts(),
	Paths:      []string{"/transfer/authorization/create"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// 2020-09-14.yml, TransferAuthorizationIdempotencyKey, read 2026-11-29.
	Key:         Place{Pointer: "/idempotency_key"},
	MaxLength:   50,
	Retention:   48 * time.Hour,
	AfterExpiry: ExecutesAgain,

	Replay: ReplayVerbatim,

	Sources: plaidSources(),
	Checked: "2026-11-29",
}

// PlaidWallet is the contract of Plaid's /wallet/transaction/execute: the key is
// a member of the JSON body, and a resend waits a minute. It is read-only; see
// [Contract.Clone].
var PlaidWallet = &Contract{
	Name:       "plaid_wallet",
	Hosts:      plaidHosts(),
	Paths:      []string{"/wallet/transaction/execute"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// 2020-09-14.yml, WalletTransactionExecuteRequest, read 2026-11-29.
	Key:       Place{Pointer: "/idempotency_key"},
	MaxLength: 128,
	Retention: 24 * time.Hour,

	Replay:   ReplayVerbatim,
	MinDelay: time.Minute,

	Sources: plaidSources(),
	Checked: "2026-11-29",
}

// PlaidTransferCreate is the contract of Plaid's /transfer/create. Its key is
// the authorization that the caller was given before: one authorization makes one
// transfer at most. So the request must have it, and none is minted. It is
// read-only; see [Contract.Clone].
var PlaidTransferCreate = &Contract{
	Name:       "plaid_transfer_create",
	Hosts:      plaidHosts(),
	Paths:      []string{"/transfer/create"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// 2020-09-14.yml, TransferCreateRequest, read 2026-11-29.
	Key:         Place{Pointer: "/authorization_id"},
	Form:        Issued,
	AfterExpiry: NeverExpires,

	Replay: ReplayCurrent,

	Sources: plaidSources(),
	Checked: "2026-11-29",
}
