package idem

import (
	"context"
	"net/http"
	"time"

	"github.com/idem-go/idem/contract"
)

// Journal stores intents and compares them; it never judges what an answer
// means or whether to send.
//
// A handle is one owner: the rows it has claimed belong to it until it gives
// them up or dies. It keeps a table of its running calls; a row that it owns
// without a running call counts as a dead owner's. A Journal is safe for
// concurrent use.
//
// Every error about storage matches [ErrJournal]; after Close it matches
// [ErrClosed] too. [ErrBusy] and [ErrNotFound] are answers and do not match it. An error of Begin or of a durable Update that matches
// [ErrUnknownOutcome] as well says that the write may have become durable all
// the same.
type Journal interface {
	// Begin finds the row that want means or makes it, and claims it. It is
	// durable on return.
	//
	// The row is looked for by want.ID where that is set ([ErrNotFound] if there
	// is none; one that a later generation has taken the place of comes back
	// unclaimed), else by the newest generation of (Scope, Operation) where
	// Operation is set, else by Adopted where that is set. Where none is found
	// it is made exactly as want says (with Generation, Version and ID filled
	// in), owned by this handle; want.State and want.Attempts may already count
	// the first attempt.
	//
	// A found row that is pending, unknown or withdrawn and has no living owner
	// comes back claimed, its state unchanged. A dead owner's in_flight row
	// comes back claimed, unknown, with Doubt set and Deaths raised by one, and
	// the attempt that was cut is noted as interrupted; one with a HoldReason
	// becomes held instead, and comes back unclaimed. Unclaimed and without a
	// write come back: a row that is final or held, a living owner's (Owned is
	// set), and one whose fingerprint is not want's.
	//
	// A withdrawn row whose body was pruned takes want's request when the
	// fingerprint fits, with the row's key where that is in it. So does a row of a
	// journal that keeps no request bodies, for this call; one that is held for it
	// ([HoldBodyNotKept]) is pending or unknown again. A claimed row without an
	// adopted key of which nothing can have executed (no Doubt, FirstSent zero)
	// takes want's Credential, where want has one.
	//
	// want.Renews names the key of the generation to supersede: if the newest
	// generation has that key and is rejected or withdrawn and not owned by a
	// living handle, the next generation is made from want; if an earlier
	// generation has it, the newest is found as above; in every other case the
	// newest comes back unclaimed.
	//
	// An operation that wants a key held by another one (same Adopted, another
	// operation) gets that other row back, unclaimed.
	Begin(ctx context.Context, want Intent) (got Intent, claimed bool, err error)

	// ClaimDue claims rows that have no living owner and are due at now:
	// pending, unknown, or a dead owner's in_flight (which changes as in
	// Begin), and final rows that owe a notification. A claim is no attempt. A
	// row that becomes held instead, for its HoldReason or because it is
	// damaged, is in due too, this once: unclaimed and without its Request. The
	// limit counts it.
	//
	// Rows without deaths come first, in the order in which they are due. The
	// others follow by deaths, with the one that a claim adds, and among equals
	// by the instant at which their last attempt began: what began last before
	// a process died is the likeliest to have killed it. That order is over all
	// dead owners, and the limit cuts it.
	//
	// An operation's notifications come one at a time, the oldest generation's
	// first: a final row is passed over while an earlier generation owes one,
	// whoever has that.
	//
	// f.Name is exact, empty included; f.States is ignored. next is the earliest
	// due time of what is not due yet and not passed over; zero means nothing
	// waits.
	ClaimDue(ctx context.Context, now time.Time, f Filter) (due []Intent, next time.Time, err error)

	// Update writes next over the row that next.ID and next.Version name and,
	// where a is not nil, notes the attempt. It returns next with its new
	// Version. With next.Claimed the row stays with this handle; without, the
	// running call ends, even when the write fails; a call that was superseded
	// does not end the one that has the row now.
	//
	// It is [ErrBusy] if the row moved or another living handle owns it, except
	// that a final next of the same Key is accepted while the row is not final:
	// succeeded always, rejected only while no later attempt was counted, of
	// which a refusal says nothing.
	//
	// durable true returns when the write is on stable storage. durable false
	// posts it: it is visible at once to reads through this handle, written
	// without a wait for it, and synced with the next durable write. A process
	// that dies right then may lose it.
	//
	// What changes is the hot part: State, Doubt, HoldReason, Attempts,
	// FirstSent, Due, Wait, Expires, Settled, By, Note, Claimed, Prepared,
	// Notify, Deaths, Resumes, and Outcome once, with a final state.
	Update(ctx context.Context, next Intent, a *Attempt, durable bool) (Intent, error)

	// Lookup returns the newest generation, with its outcome's body where that
	// was kept, or [ErrNotFound].
	Lookup(ctx context.Context, scope, operation string) (Intent, error)

	// List returns intents oldest first, without bodies, one page at a time.
	List(ctx context.Context, f Filter) ([]Intent, error)

	// Attempts returns the attempts of in, by number.
	Attempts(ctx context.Context, in Intent) ([]Attempt, error)

	// Prune drops the bodies of rejected, succeeded and withdrawn rows that
	// were settled before the given instant, whose retention is over, and that
	// nobody has and nobody is owed, and removes the unnamed ones whole. IDs are
	// never given again. It returns how many rows it changed.
	Prune(ctx context.Context, before time.Time) (int, error)

	// Close flushes what was posted and gives up what is owned. Check its
	// error. It may be called twice.
	Close() error
}

// Filter chooses intents. The zero value means all of them, the first 100.
type Filter struct {
	Name   string  // of the transport that made them; empty: any (but see ClaimDue)
	Scope  string  // empty: any
	States []State // nil: any
	After  string  // ID of the last intent of the page before; empty: from the start
	Limit  int     // zero: 100
}

// State is where an intent stands. The text is the same in the API, the
// database and the logs.
type State string

const (
	// StatePending means journaled, and nothing can have executed: it was never
	// sent, or every attempt provably did not execute. It is sent when due.
	StatePending State = "pending"
	// StateInFlight means that an attempt began and has not finished. Only its
	// owner sends; once the owner is dead it is doubt.
	StateInFlight State = "in_flight"
	// StateUnknown means that an attempt may have taken effect. It is sent
	// again when due, under the same key with the same bytes. Never read it as
	// failed.
	StateUnknown State = "unknown"
	// StateHeld means that a person must decide; HoldReason says why. Nothing
	// is sent. Never read it as failed.
	StateHeld State = "held"
	// StateWithdrawn means given up with nothing executed, and the caller was
	// told so. Only a new call of the same operation sends it, under the same
	// key.
	StateWithdrawn State = "withdrawn"
	// StateSucceeded means that the provider said it took effect. Final.
	StateSucceeded State = "succeeded"
	// StateRejected means that the provider said it did not and will not take
	// effect. Final.
	StateRejected State = "rejected"
)

// Final reports whether s can never change again.
func (s State) Final() bool { return s == StateSucceeded || s == StateRejected }

// HoldReason says why an intent is held.
type HoldReason string

const (
	HoldExpired          HoldReason = "expired"           // the provider may have forgotten the key, so a resend could execute twice
	HoldStoredFailure    HoldReason = "stored_failure"    // the provider stored a failure and will only repeat it, or says so of sending again
	HoldExhausted        HoldReason = "exhausted"         // resume used up its attempts
	HoldPoison           HoldReason = "poison"            // its owners kept dying during the attempt
	HoldCredentials      HoldReason = "credentials"       // credentials are missing or refused
	HoldUnnamed          HoldReason = "unnamed"           // no operation name: the caller may have issued it again under another key
	HoldNoContract       HoldReason = "no_contract"       // the server is not known to honour keys
	HoldNotKept          HoldReason = "not_kept"          // the answer was handed over but broke, or could not be kept
	HoldBodyNotKept      HoldReason = "body_not_kept"     // the request's body is not in the journal: a call with the same request goes on
	HoldRedirect         HoldReason = "redirect"          // a redirect that proves nothing about the request
	HoldUnsettlingAnswer HoldReason = "unsettling_answer" // a refusal that does not say what became of an earlier attempt
	HoldCopied           HoldReason = "copied"            // the journal is a copy or a restored backup
	HoldClock            HoldReason = "clock"             // the wall clock ran backwards
	HoldChecksum         HoldReason = "checksum"          // the stored row is damaged
)

// Intent is the durable record that an operation is to take effect once.
// It is a value: changing it changes nothing in the journal.
type Intent struct {
	ID         string // names the row for ever
	Scope      string // namespace of Operation
	Operation  string // the caller's name for the effect; empty: unnamed
	Key        string // the idempotency key of this generation
	Generation int    // from 1
	Name       string // Transport.Name of the maker; only that one resumes it
	Provider   string // the contract's name; empty: no contract
	Method     string
	URL        string // without user info and query

	State      State
	Doubt      bool       // an attempt may have taken effect and nothing has settled it
	HoldReason HoldReason // empty unless held; in flight: held for it once the owner is dead
	Attempts   int        // sends so far, over the intent's whole life
	Deaths     int        // owners that died during an attempt, in a row
	Resumes    int        // attempts by resume since the last direct call or release

	Created   time.Time     // UTC, like every instant here
	FirstSent time.Time     // start of the first attempt that may have executed; zero: none yet
	Due       time.Time     // not sent before; zero: now
	Wait      time.Duration // length of the wait that led to Due
	Expires   time.Time     // last instant at which an automatic send is allowed; zero: not sent yet
	Settled   time.Time     // when it became final, held or withdrawn; zero: not yet

	Outcome  *Outcome // nil until final; empty where it was settled without an answer
	By, Note string   // of a person's decision
	Version  int64    // raised by every write

	Fingerprint []byte         // SHA-256 of what makes the request the same request
	Adopted     []byte         // digest that identifies a key set by the caller; nil: the key is ours
	Credential  []byte         // salted digest of the credential that came with an adopted key; nil: none
	Place       contract.Place // where the key goes; zero: nowhere
	Retention   time.Duration  // the contract's when the intent was made; zero: unknown
	Withheld    []string       // names of headers and query parameters not stored
	Renews      string         // key of the generation this one supersedes

	Claimed  bool // this handle has it
	Owned    bool // a living handle, or a running call of this one, has it (Begin: another one)
	Prepared bool // delivered whatever the first call's end
	Notify   bool // its settlement is still to be told

	// Request is what is sent, filled by Begin and ClaimDue only; nil means
	// not asked for, or pruned.
	Request *StoredRequest
}

// StoredRequest is a journaled request: everything an attempt sends, except
// the key and what was withheld.
type StoredRequest struct {
	URL    string      // without user info; a withheld value of its query is "\x1a"
	Host   string      // the Host header where it differs from the URL's; empty: the URL's
	Header http.Header // as given, without withheld headers and without the key's
	Body   []byte
}

// Outcome is the response that made an intent final.
type Outcome struct {
	StatusCode int // zero: settled by a person or a read
	Header     http.Header
	Body       []byte
	Complete   bool   // false: the body was streamed, pruned or never there to keep
	RequestID  string // the provider's own id of the request, if it named one
	Replayed   bool   // the provider answered from its store
}

// Attempt is one send.
type Attempt struct {
	Number         int // from 1, over the intent's whole life
	Started, Ended time.Time
	Phase          string // not_sent, maybe_sent or answered
	StatusCode     int    // zero: no answer
	// Decision is what was made of its end. Settled: succeeded, see_other,
	// already_done, replayed, streamed, rejected, mismatch (rejected, or held in
	// doubt). Not executed: not_sent, not_executed, try_later, redirect,
	// credentials_refused. Perhaps executed: no_answer, answer_cut,
	// server_error, in_flight, store_down, transient, retry, retry_advised,
	// stored_failure, stream_broken, and interrupted, when its process died.
	Decision string
	Error    string // without keys, bodies, queries and user info
}

// The phases of an attempt: how far it came.
const (
	phaseNotSent   = "not_sent"
	phaseMaybeSent = "maybe_sent"
	phaseAnswered  = "answered"
)
