package contract

import (
	"net/http"
	"time"
)

// inFlightByRetryAfter is a 409 that names a time to come back. Reading it as
// "in flight" costs nothing: it only leads to a resend under the same key.
var inFlightByRetryAfter = Signal{Status: http.StatusConflict, Header: Marker{Header: "Retry-After"}}

// Keyed returns the contract of a server that honours a raw key in the given
// header, and remembers it for retention. Zero retention means unknown: resends
// are then allowed for at most one hour. Say a figure that the server's
// documentation promises, not one that it usually keeps.
//
// Only claim it for a server that claims a key atomically and repeats the first
// answer: against one that ignores the header, a resend is a second effect. For
// such a server there is [Unsupported].
//
// Two answers are recognised, both widespread and both harmless where the
// server means nothing by them:
//
//   - 409 with a Retry-After header: the key is being worked on now. A plain 409
//     is not that, since it is most servers' word for a business conflict; after
//     an attempt that may have been executed it is held for a person. Where yours
//     means it so, say it with Overlap or InFlight on a [Contract.Clone].
//   - Idempotent-Replayed: true: the answer comes from the store. The value
//     counts, since some servers always send the header.
//
// A 422 is not read as a mismatch, because it is most servers' word for a
// validation error; add a [Signal] with your server's error code to a
// [Contract.Clone] for that.
//
// The contract is not bound to a host and takes every request with a method
// that may have an effect. Use [Contract.At], except in a transport that only
// ever speaks to that one server.
func Keyed(header string, retention time.Duration) *Contract {
	return &Contract{
		Name:      "keyed",
		Key:       Place{Header: header},
		Retention: retention,
		Replayed:  Marker{Header: "Idempotent-Replayed", Value: "true"},
		InFlight:  []Signal{inFlightByRetryAfter},
	}
}

// Unsupported is the contract of a server that is known not to honour keys. No
// key is sent to it, and what may have been delivered is not sent again by
// itself. It is not bound to a host. It is read-only; see [Contract.At].
var Unsupported = &Contract{Name: "unsupported", NoKeys: true}
