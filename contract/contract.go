// Package contract states what a provider publishes about its idempotency
// keys, as plain values: where the key goes, how long it is remembered, and how
// the answers that matter for a retry look.
//
// There is a value for each provider, or for each family of a provider's routes
// where they differ, such as [StripeV1] or [PayPalOrdersV2]; docs/providers.md
// lists them. [Known] routes a request to the one that is bound to its host,
// path and method. Some are bound to no host, because there is none to name, or
// because the key works for some accounts or requests only: their comment says
// so, and [Contract.At] binds them. A server of your own is [Keyed] or [IETF],
// bound the same way:
//
//	api := contract.Keyed("Idempotency-Key", 24*time.Hour).At("api.example.com")
//
// Any other provider is a [Contract] that you write from its documentation (the
// example of the package is one), and several resolvers become one with
// [First]:
//
//	all := contract.First(api, contract.Known)
//
// A [Contract] is data only. [Contract.Clone] one to change it; [Contract.At]
// binds a copy to other hosts, such as a test double; [Contract.Validate] finds
// what does not fit together. A field left zero means "not known", which is
// always the cautious side: an unknown retention is trusted for an hour at most,
// an unlisted signal is not recognised, an answer that is not listed as proof
// proves nothing. A request that no resolver takes has no contract: it gets no
// key, and what may have been delivered is not sent again by itself.
//
// Facts drift. Each value names its sources and the day they were read; where
// two figures are known, it has the stricter one.
package contract

import (
	"net/http"
	"time"
)

// Resolver finds the contract of a request. Implementations are safe for
// concurrent use, do not read the body, and do not change the request.
type Resolver interface {
	// Resolve returns nil where the request is not its own.
	Resolve(req *http.Request) *Contract
}

// Contract is one provider's published rules for one family of routes.
//
// A Contract must not be changed once a transport uses it. It is its own
// [Resolver], and safe for concurrent use.
type Contract struct {
	// Name identifies the rules in journals and logs, such as "stripe_v1".
	Name string

	// Hosts are the host names this contract is bound to, compared with the
	// host of the request's URL (not with its Host field: the URL is where the
	// bytes go) without regard to case and to a final dot. "host" means any
	// port, "host:port" that port only, where no port in the URL is the
	// scheme's own. "*.example.com" takes every name below example.com but not
	// example.com, "*-live.example.com" every name with that ending. An IPv6
	// address is written "[::1]" or "[::1]:8080". nil means every host, an
	// empty list none.
	Hosts []string
	// Paths are path prefixes that end at a segment border: "/v1" takes "/v1"
	// and "/v1/charges", not "/v10". They are compared byte by byte with the
	// path as it is sent, so that "/v1%2Fcharges" is one segment and not taken.
	// A path with "." or ".." segments is taken by none, because where it leads
	// is the server's to say. A "*" as a whole segment takes any one segment:
	// "/v1/payments/*/refund". nil means every path.
	Paths []string
	// ExactPaths is true where Paths are whole paths and take nothing below
	// them, because the routes there take no key.
	ExactPaths bool
	// Methods are upper-case methods on which the provider takes a key. nil
	// means POST, PUT, PATCH and DELETE.
	Methods []string

	// NoKeys is true for a server that is known not to honour keys: no key is
	// sent, and nothing that may have been delivered is sent again by itself.
	NoKeys bool
	// Key says where the key goes. It is required unless NoKeys.
	Key Place
	// Form restricts the key's characters. Zero means visible ASCII.
	Form Form
	// MinLength is the shortest key in bytes. Zero means 1.
	MinLength int
	// MaxLength is the longest key in bytes. Zero means 255.
	MaxLength int
	// Companions are headers that go with the key. nil means none.
	Companions []Companion
	// Echo is a header by which an answer shows that the key was understood.
	// Empty means that none is known.
	Echo string
	// ScopeHeaders name request headers that separate one key space from
	// another, such as the account a platform acts for. They are part of the
	// request's identity.
	ScopeHeaders []string
	// Retention is how long the provider remembers a key, the strictest figure
	// known. Zero means unknown: resends are then allowed for at most one hour,
	// and for 30 days where AfterExpiry is NeverExpires.
	Retention time.Duration
	// AfterExpiry is what a key that was forgotten does. Zero means unknown,
	// which is read as ExecutesAgain.
	AfterExpiry AfterExpiry
	// RotatingCredentials is true where the key space does not depend on the
	// credential, so that a key may go on under another one.
	RotatingCredentials bool
	// CredentialPinned is true where a key is said to belong to one credential:
	// under another one it is a new key. What may have been executed is then not
	// sent under another one that the request shows.
	CredentialPinned bool
	// HostPinned is true where a key is said to be known on one host only, such
	// as that of a region: on another one it is a new key.
	HostPinned bool

	// Replay is what a repeated key is answered with. Zero means unknown.
	Replay ReplayStyle
	// Replayed marks an answer that comes from the provider's store.
	Replayed Marker
	// InFlight, Mismatch, AlreadyDone, StoreDown and NotExecuted are the
	// answers that say so. The first that matches wins, in the order
	// AlreadyDone, InFlight, Mismatch, StoreDown, NotExecuted.
	InFlight    []Signal // the key is being worked on now
	Mismatch    []Signal // the key was used with another request
	AlreadyDone []Signal // the effect exists, under this key
	StoreDown   []Signal // the key store did not answer
	NotExecuted []Signal // refused before any effect
	// Overlap are failures that a second request may get while the first one is
	// still at work, where the provider names no better sign. In doubt they
	// prove nothing and count as InFlight; without doubt they are what their
	// status says. They are looked at after all the others.
	Overlap []Signal
	// Proven are failures that are given only after the key was claimed, so
	// that they settle an operation that is in doubt. A status alone proves
	// nothing: each names a place in the body or a header too.
	Proven []Signal
	// StoresClientErrors is true where a refusal such as a declined card is the
	// stored result of a key. It tells people what a renewal is for; a refusal
	// in doubt is proof only by Replayed or Proven.
	StoresClientErrors bool
	// StoresServerErrors is true where a 5xx can be the stored result of a key.
	StoresServerErrors bool
	// FailOpen is true where a request is let through, unchecked, while the key
	// store is down. StoreDown then proves nothing, and a resend can be a second
	// effect.
	FailOpen bool
	// ErrorsInside200 is true where a 2xx can carry a failure, so that its body
	// is read before it is believed.
	ErrorsInside200 bool

	// ShouldRetry is the provider's own advice. Zero means none.
	ShouldRetry Advice
	// Transient marks a failure that was not stored. Zero means none.
	Transient Marker
	// Waits are the headers that ask for a wait, the first present one counts.
	// nil means Retry-After, an empty list none.
	Waits []Wait
	// MinDelay is the shortest pause before a resend. Zero means the policy's.
	MinDelay time.Duration
	// RetryStatuses and FinalStatuses overrule the status table: the first are
	// sent again under the same key, the second are not.
	RetryStatuses, FinalStatuses []int
	// AttemptTimeout is how long one attempt may take where the provider works
	// longer than usual. Zero means the policy's.
	AttemptTimeout time.Duration

	// Read finds out whether the effect of a key exists. Zero means that no such
	// request is known.
	Read Read

	// Sources are the pages these facts were read from, Checked the day.
	Sources []string
	Checked string // YYYY-MM-DD; empty: not checked
}

// Encoding is how a key is written in its place.
type Encoding string

const (
	// Raw writes the key as it is.
	Raw Encoding = ""
	// Quoted writes it as a structured-field string, in double quotes
	// (RFC 9651 3.3.3).
	Quoted Encoding = "quoted"
)

// Form restricts the characters of a key.
type Form string

const (
	// Visible takes every key of visible ASCII characters, U+0021 to U+007E.
	Visible Form = ""
	// Printable takes the space too, but not at either end.
	Printable Form = "printable"
	// Word takes letters, digits, "_" and "-".
	Word Form = "word"
	// WordSpace takes the space too, but not at either end.
	WordSpace Form = "word space"
	// UUID takes only a UUID in its 36-character text form.
	UUID Form = "uuid"
	// UUID4 takes only a UUID of version 4 and of the usual variant.
	UUID4 Form = "uuid4"
	// Issued takes visible ASCII that the provider has issued, such as the id of
	// an authorization. It is never minted: a request without it is refused.
	Issued Form = "issued"
)

// ReplayStyle is what a repeated key is answered with.
type ReplayStyle string

const (
	ReplayUnknown ReplayStyle = ""
	// ReplayVerbatim repeats the first answer.
	ReplayVerbatim ReplayStyle = "verbatim"
	// ReplayCurrent shows the thing that was made, as it stands now.
	ReplayCurrent ReplayStyle = "current state"
	// ReplayReworked takes failed work up again and answers anew.
	ReplayReworked ReplayStyle = "reworked"
	// ReplayConflict is a failure status that shows, or points at, the thing
	// that was made; see AlreadyDone.
	ReplayConflict ReplayStyle = "conflict"
)

// AfterExpiry is what a key does that the provider has forgotten.
type AfterExpiry string

const (
	ExpiryUnknown AfterExpiry = ""
	// ExecutesAgain: it is a new key.
	ExecutesAgain AfterExpiry = "executes again"
	// Refused: it is known to be too old.
	Refused AfterExpiry = "refused"
	// NeverExpires: it is not forgotten, because it names the thing itself.
	NeverExpires AfterExpiry = "never expires"
)

// Marker is a header whose presence, or whose value, says something. The zero
// value matches nothing.
type Marker struct {
	Header string // empty: no marker
	// Value is compared without regard to case, with the whole value or with
	// what stands before its parameters: "application/problem+json" takes
	// "application/problem+json; charset=utf-8". A header that comes more than
	// once must say it each time. Empty: presence counts.
	Value string
	// Param names a parameter, such as rel of a Link header. Value is then
	// looked for among the words of that parameter, in any member of the list.
	// Empty: the header's own value is looked at.
	Param string
}

// Signal is an answer with a meaning. Every field that is set must match. The
// zero value matches nothing.
type Signal struct {
	// Status is the answer's. Zero means any, but no 2xx where the body is looked
	// at: an error inside a success is recognised by name only.
	Status int
	// Pointer is an RFC 6901 JSON pointer into the body, such as "/error/code".
	// "*" as a segment takes any member and any index, so that one of several
	// places is enough: "/errors/*/code". Empty: no place in the body.
	Pointer string
	// Value is the text of the string, number or bool there: "704" takes 704
	// and "704". Empty: it counts that something is there, null excepted.
	Value string
	// Text is a part of the string at Pointer or, without a Pointer, of the
	// body, whatever that is. Case counts. Empty: no text is looked for.
	Text string
	// Also is a second pointer at which something must be. Empty: none.
	Also   string
	Header Marker // zero: no header is looked at
}

// Advice is a header by which the provider says whether to send again.
type Advice struct {
	Header  string // empty: none
	Yes, No string // its two values
}

// Wait is a header that asks for a wait.
type Wait struct {
	Header string
	Unit   Unit
	// When is a header without which this one asks for nothing, such as
	// RateLimit-Remaining: 0. Zero means that it always counts.
	When Marker
}

// Asks reports whether the wait is there and counts.
func (w Wait) Asks(h http.Header) bool {
	return len(h.Values(w.Header)) > 0 && (w.When == Marker{} || w.When.Matches(h))
}

// Unit is how a wait header counts.
type Unit string

const (
	// Seconds is RFC 9110's Retry-After: seconds, or an HTTP date.
	Seconds Unit = ""
	// Milliseconds counts milliseconds.
	Milliseconds Unit = "ms"
	// UnixSeconds is the instant itself, in seconds since 1970.
	UnixSeconds Unit = "unix"
)
