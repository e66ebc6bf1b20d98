package idem

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Every error about an operation that is not final matches exactly one of
// these two. Errors about a final operation and a mismatch match neither: their
// State says what became of the operation.
var (
	// ErrNotSent means that nothing was executed, and nothing will be without
	// another call of the same operation.
	ErrNotSent = errors.New("not sent")
	// ErrUnknownOutcome means anything else: it may have executed, or may yet.
	// Never read it as failed. Call again, resume, look it up, or decide. Together
	// with ErrJournal, where Lookup has no such operation, only calling again
	// goes on with it: it may not be recorded.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// These say why.
var (
	ErrHeld        = errors.New("held for a decision")          // nothing is sent until a person decides: see Client.Release
	ErrBusy        = errors.New("busy in another call")         // another living owner has the operation
	ErrMismatch    = errors.New("not the same request")         // the operation, or the key, stands for another request
	ErrJournal     = errors.New("journal failed")               // the intent or its outcome could not be stored
	ErrNotKept     = errors.New("answer not kept")              // final, but its body cannot be given again
	ErrNoOperation = errors.New("operation has no name")        // a name is required here
	ErrNotFound    = errors.New("operation not in the journal") // never begun, or forgotten
	ErrClosed      = errors.New("closed")                       // the client or the journal was shut
)

// OperationError tells how a call of an operation ended without a final
// answer, or why it was refused. It matches the sentinels above by errors.Is
// and unwraps to the cause.
type OperationError struct {
	Scope, Operation string
	Key              string // never part of the text
	State            State  // as recorded; empty: no intent was made
	HoldReason       HoldReason
	Attempts         int
	Due              time.Time      // not sent before; zero: now
	Response         *http.Response // the last answer, buffered; only from Do and Continue
	Err              error          // the cause

	class error   // ErrNotSent or ErrUnknownOutcome; nil where it is known what became of it
	also  []error // further sentinels it matches
	text  string
}

// Error names the operation, what was not done, why, and what would help.
func (e *OperationError) Error() string {
	var b strings.Builder
	b.WriteString("idem: ")
	if e.Operation != "" {
		fmt.Fprintf(&b, "operation %q: ", e.Operation)
	}
	switch {
	case e.text != "":
		b.WriteString(e.text)
	case e.class != nil:
		b.WriteString(e.class.Error())
	default:
		b.WriteString("refused")
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the sentinels and the cause.
func (e *OperationError) Unwrap() []error {
	all := make([]error, 0, len(e.also)+2)
	for _, err := range append([]error{e.class, e.Err}, e.also...) {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// Timeout reports whether the cause was a timeout.
func (e *OperationError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// failed is an error about in, of the given class.
func failed(in Intent, class, why error, text string, also ...error) *OperationError {
	return &OperationError{
		Scope: in.Scope, Operation: in.Operation, Key: in.Key,
		State: in.State, HoldReason: in.HoldReason, Attempts: in.Attempts, Due: in.Due,
		Err: unclassed(why), class: class, also: also, text: text,
	}
}

// unclassed is why without its own word on whether anything was executed: a
// journal or a base transport speaks of its part only.
func unclassed(why error) error {
	if errors.Is(why, ErrNotSent) || errors.Is(why, ErrUnknownOutcome) {
		return &part{why}
	}
	return why
}

type part struct{ err error }

func (p *part) Error() string  { return p.err.Error() }
func (p *part) As(to any) bool { return errors.As(p.err, to) }
func (p *part) Is(target error) bool {
	return target != ErrNotSent && target != ErrUnknownOutcome && errors.Is(p.err, target)
}

// explain is the error that tells of the state an intent was left in.
func explain(in Intent, why error) *OperationError {
	attempts := fmt.Sprintf("after %d attempts", in.Attempts)
	if in.Attempts == 1 {
		attempts = "after 1 attempt"
	}
	again := "it is called again"
	if !in.Due.IsZero() {
		again += ", not before " + in.Due.Format(time.RFC3339)
	}
	switch in.State {
	case StateWithdrawn:
		return failed(in, ErrNotSent, why, "nothing was executed "+attempts+", and nothing will be unless "+again+" (same key)")
	case StateHeld:
		return failed(in, ErrUnknownOutcome, why, heldText(in.HoldReason), ErrHeld)
	case StatePending:
		return failed(in, ErrUnknownOutcome, why, "not delivered yet "+attempts+"; it will be, under the same key")
	}
	return failed(in, ErrUnknownOutcome, why, "outcome unknown "+attempts+
		": it may have been executed; call it again or resume it, which sends the same key")
}

// heldText says that an intent is held, why, and what would help.
func heldText(why HoldReason) string {
	return "outcome unknown, held (" + string(why) + "): " + holdText[why]
}

// holdText says of each reason why nothing is sent, and what would help.
var holdText = map[HoldReason]string{
	HoldExpired:          "the provider may have forgotten the key, so that sending again could execute twice; look at the provider's side, then decide",
	HoldStoredFailure:    "the provider stored a failure under this key and would only repeat it, or says that sending again does not help; look at the provider's side, then decide",
	HoldExhausted:        "resume has used up its attempts (RetryPolicy.ResumeAttempts); release it to go on",
	HoldPoison:           "its processes kept dying during the attempt (RetryPolicy.MaxDeaths); find out why, then release it",
	HoldCredentials:      "credentials are missing or were refused; supply new ones (Client.Authorize), then release it",
	HoldUnnamed:          "it has no operation name, so the caller may have issued it again under another key; set Transport.ResumeUnnamed only if that never happens",
	HoldNoContract:       "the server is not known to honour idempotency keys, so sending again could execute twice; if it does honour them, say so with a contract (contract.Keyed) for the next operation",
	HoldNotKept:          "the answer was handed over but did not end cleanly; look at the provider's side, then decide",
	HoldBodyNotKept:      "the journal keeps no request bodies; call the operation with the same request, which goes on under the same key, or look at the provider's side and decide",
	HoldRedirect:         "it was answered by a redirect that proves nothing; look at the provider's side, then decide",
	HoldUnsettlingAnswer: "the last answer is a refusal that does not say what became of an earlier attempt; look at the provider's side, then decide",
	HoldCopied:           "the journal is a copy or a restored backup; make sure that only one is in use, then decide",
	HoldClock:            "the wall clock ran backwards, so that the key's age is not known; set the clock, then decide",
	HoldChecksum:         "its stored row is damaged and is never sent; look at the provider's side, then decide",
}
