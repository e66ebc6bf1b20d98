package contract

import (
	"net/http"
	"time"
)

// IETF returns the contract of a server that follows the draft "The
// Idempotency-Key HTTP Header Field": the header Idempotency-Key with a quoted
// structured-field string, on POST and PATCH. retention is what the server
// publishes; the draft has no default. Zero means unknown: resends are then
// allowed for at most one hour.
//
// A 409 means in flight and a 422 a key that was used with another request, but
// only where the answer has the draft's marks: a problem+json body, or a Link
// with rel=describedby. A plain 422 is most servers' validation error and is
// left to the usual rules. A 409 with a Retry-After header is read as in flight
// too, as in [Keyed]; that one is ours, not the draft's.
//
// The draft has no mark for a replayed answer, so none is known here. The
// contract is not bound to a host; use [Contract.At].
func IETF(retention time.Duration) *Contract {
	// draft-ietf-httpapi-idempotency-key-header-06 section 2.7 (-07 known
	// through quotations only), read 2026-11-29.
	problem := Marker{Header: "Content-Type", Value: "application/problem+json"}
	describedBy := Marker{Header: "Link", Param: "rel", Value: "describedby"}
	return &Contract{
		Name:    "ietf",
		Methods: []string{http.MethodPost, http.MethodPatch}, // -06 section 2
		// Section 2.1: an Item Structured Header whose value is a String;
		// RFC 9651 3.3.3 says how that is written. Read 2026-11-29.
		Key:       Place{Header: "Idempotency-Key", Encoding: Quoted},
		MaxLength: 1024, // what every parser must take, RFC 9651 3.3.3; read 2026-11-29
		Retention: retention,

		Replay:             ReplayVerbatim,
		StoresClientErrors: true, // section 2.6: also the error of a first request
		InFlight: []Signal{
			{Status: http.StatusConflict, Header: problem},
			{Status: http.StatusConflict, Header: describedBy},
			inFlightByRetryAfter,
		},
		Mismatch: []Signal{
			{Status: http.StatusUnprocessableEntity, Header: problem},
			{Status: http.StatusUnprocessableEntity, Header: describedBy},
		},
		Sources: []string{
			"https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-06",
			"https://www.rfc-editor.org/rfc/rfc9651#section-3.3.3",
		},
		Checked: "2026-11-29",
	}
}
