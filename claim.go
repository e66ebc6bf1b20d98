package idem

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// claim makes or finds the intent and makes it this exchange's own. It returns
// an answer where there is nothing to send.
func (x *exchange) claim() *answer {
	start := time.Now()
	for wait := minPoll; ; wait = min(2*wait, maxPoll) {
		x.t.pass(pointBegin)
		got, claimed, err := x.t.Journal.Begin(x.ctx, x.want)
		if err != nil {
			return x.noClaim(err)
		}
		if claimed {
			return x.claimed(got)
		}
		if a := x.unclaimed(got); a != nil {
			return a
		}
		// Another living call has it.
		if time.Since(start)+wait > x.t.Retry.maxBackoff() {
			return x.busy(got, errors.New("another call has it still"))
		}
		if !sleep(x.ctx, wait) {
			return x.busy(got, context.Cause(x.ctx))
		}
	}
}

// How often another owner's intent is looked at.
const (
	minPoll = 5 * time.Millisecond
	maxPoll = 250 * time.Millisecond
)

func (x *exchange) claimed(got Intent) *answer {
	x.in = got
	x.fresh = got.State == StateInFlight
	x.t.pass(pointBegun)
	if why := x.otherCredential(got); why != "" {
		next := x.in
		next.Claimed = false
		if _, err := x.record(next, nil, false); err != nil {
			return x.noClaim(err)
		}
		return x.mismatch(got, why)
	}
	return nil
}

// otherCredential says that the key was first used under another visible
// credential, where that makes it another key; empty: it was not.
func (x *exchange) otherCredential(got Intent) string {
	switch {
	case x.req == nil || x.contract == nil:
	case x.pinned(got, x.req):
		return "nothing was sent: the operation is in doubt, and the provider knows its key under another credential only: call it with that one"
	case x.want.Adopted != nil && got.Adopted != nil && got.Operation == "" && !x.contract.RotatingCredentials &&
		!sameCredential(x.req, got.Place.Header, x.t.Secrets, got.Credential):
		return "the key came with another credential before: if another account is meant, give it a scope of its own (WithScope)"
	}
	return ""
}

// pinned reports that in may have been executed under a key which the provider
// knows under the credential of its first send only, and req has another one.
func (x *exchange) pinned(in Intent, req *http.Request) bool {
	return in.Doubt && len(in.Credential) > 0 && x.contract != nil && x.contract.CredentialPinned &&
		!sameCredential(req, in.Place.Header, x.t.Secrets, in.Credential)
}

// unclaimed answers from an intent that may not be sent; nil means that another
// call has it, so wait.
func (x *exchange) unclaimed(got Intent) *answer {
	settled := got.State.Final() || got.State == StateWithdrawn
	switch {
	case x.want.Renews != "" && got.Key == x.want.Renews && !settled && !got.Owned:
		return x.open(got, "not renewed, since the generation with this key may have been executed ("+string(got.State)+"): settle it first")
	case got.Operation != x.want.Operation || got.Scope != x.want.Scope:
		return x.mismatch(got, fmt.Sprintf("nothing was sent: the key that came with the request belongs to operation %q", got.Operation))
	case got.State == StateHeld && got.HoldReason == HoldChecksum && !got.Owned: // its fingerprint may be what is damaged
		return x.open(got, "not sent by this call; "+heldText(got.HoldReason))
	case string(got.Fingerprint) != string(x.want.Fingerprint):
		return x.mismatch(got, fmt.Sprintf("nothing was sent: the name stands for %s, which is %s; this call is %s; %s",
			requestText(got, x.t.salt), got.State, requestText(x.want, x.t.salt), x.differs(got)))
	case x.otherCredential(got) != "":
		return x.mismatch(got, x.otherCredential(got))
	case got.State.Final():
		return x.replay(got)
	case got.Owned: // a stream's, too
		return nil
	case got.State == StateHeld:
		return x.open(got, "not sent by this call; "+heldText(got.HoldReason))
	case got.State == StateWithdrawn && x.want.ID != "": // found by its ID, and not claimed
		return x.mismatch(got, "nothing was sent: a later generation has taken its place (WithRenewal)")
	case x.want.Renews != "":
		return x.mismatch(got, "not renewed: no generation has the key that WithRenewal names, or an earlier one has the new key; nothing was sent")
	}
	return nil
}

// open refuses a call of an operation whose outcome is open.
func (x *exchange) open(got Intent, text string) *answer {
	failure := failed(got, ErrUnknownOutcome, nil, text)
	if got.State == StateHeld {
		failure.also = []error{ErrHeld}
	}
	return &answer{err: failure, result: Result{Intent: shown(got), err: failure}}
}

// requestText tells two requests apart without showing what they hold: a digest
// as it is would tell who guesses at a body whether that is it.
func requestText(in Intent, salt []byte) string {
	d := digest{hash: hmac.New(sha256.New, salt)}
	d.bytes(in.Fingerprint)
	return fmt.Sprintf("%s %s (%x)", in.Method, in.URL, d.hash.Sum(nil)[:4])
}

// differs says by what a call is another request than the one that its name
// stands for, and what would help.
func (x *exchange) differs(got Intent) string {
	own := "another effect needs another name"
	if got.State == StateRejected {
		own += ", and another try at this one a renewal (WithRenewal)"
	}
	switch {
	case got.Method != x.want.Method:
		return "the method differs; " + own
	case got.URL != x.want.URL:
		return "the URL differs; " + own
	}
	help := "if both mean the same, give it the same bytes each time, or say what counts of a body (Transport.Fingerprint); if not, " + own
	was, err := x.t.asRequest(x.ctx, got)
	if got.Request == nil || x.want.Request == nil || err != nil {
		return "the body differs, or the query or a header that counts; " + help
	}
	asked, body := blanked(x.req.URL, x.req.Header, x.body, x.contract)
	stored, kept := blanked(was.URL, was.Header, got.Request.Body, x.contract)
	if !x.t.seals() { // what is withheld is not there to be compared
		asked, _ = withhold(asked, x.want.Place.Param, x.t.Secrets)
		asked = &url.URL{RawQuery: withoutLeft(asked.RawQuery)}
	}
	if asked.RawQuery != stored.RawQuery {
		return "the query differs; " + own
	}
	body, err = x.t.compared(x.req, body)
	if kept, errKept := x.t.compared(was, kept); err == nil && errKept == nil && string(body) == string(kept) {
		return "a header that counts differs (Host, or one of Contract.ScopeHeaders); " + own
	}
	return "the body differs; " + help
}

// mismatch refuses a call whose name or key stands for another request.
func (x *exchange) mismatch(got Intent, text string) *answer {
	failure := failed(got, nil, ErrMismatch, text)
	failure.Scope, failure.Operation = x.want.Scope, x.want.Operation
	return &answer{err: failure, result: Result{Intent: shown(got), err: failure}}
}

// busy gives up waiting for another call of the same operation.
func (x *exchange) busy(got Intent, why error) *answer {
	failure := failed(got, ErrUnknownOutcome, why, "not sent by this call, another one is at it; look it up or call again", ErrBusy)
	return &answer{err: failure, left: x.ctx.Err() != nil, result: Result{Intent: shown(got), err: failure}}
}

// noClaim ends a call that could not claim its intent.
func (x *exchange) noClaim(err error) *answer {
	err = x.leftOrJournal(err)
	if x.ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		x.t.journalFailed(x.ctx, "an operation could not be journaled, and was not sent",
			slog.String("operation", x.want.Operation), slog.String("provider", x.want.Provider), slog.String("err", err.Error()))
	}
	return x.unsent(err)
}

// unsent ends a call that has claimed nothing: nothing was sent by it.
func (x *exchange) unsent(err error) *answer {
	in, class := x.t.standing(x.ctx, x.want)
	if x.hop != nil && in.State == "" { // a redirect's, that cannot be found by a name
		if in = *x.hop; in.Doubt {
			class = ErrUnknownOutcome
		}
	}
	if errors.Is(err, ErrUnknownOutcome) {
		class = ErrUnknownOutcome
	}
	failure := refusal(in, class, err)
	return &answer{err: failure, left: x.ctx.Err() != nil, result: Result{Intent: in, err: failure}}
}

func (x *exchange) leftOrJournal(err error) error {
	err = journalError(err)
	if x.ctx.Err() != nil && !errors.Is(err, x.ctx.Err()) {
		return fmt.Errorf("%w: %w", context.Cause(x.ctx), err)
	}
	return err
}

// identity is what makes two exchanges the same operation. The zero value is
// that of an exchange like no other.
type identity struct{ scope, operation, adopted, renews string }

func (x *exchange) identity() identity {
	switch {
	case x.hop != nil: // is what the call before it was
		return x.same
	case x.want.Operation != "":
		return identity{scope: x.want.Scope, operation: x.want.Operation, renews: x.want.Renews}
	case x.want.Adopted != nil:
		return identity{adopted: string(x.want.Adopted)}
	}
	return identity{}
}

// flightID is what two callers must have in common to share an answer.
type flightID struct {
	identity
	credential string // of an adopted key
}

// flights are the operations that a call of this transport is at.
type flights struct {
	mu  sync.Mutex
	all map[flightID]*flight
}

// flight is one running exchange that others may wait for.
type flight struct {
	fingerprint []byte
	done        chan struct{} // made by the first who waits
	answer      *answer       // set before done is closed; nil: nothing to share
}

// enter joins the flight of id or starts x's own.
func (f *flights) enter(id flightID, x *exchange) (*flight, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if running, ok := f.all[id]; ok {
		if running.done == nil {
			running.done = make(chan struct{})
		}
		return running, false
	}
	if f.all == nil {
		f.all = map[flightID]*flight{}
	}
	x.flight = flight{fingerprint: x.want.Fingerprint}
	f.all[id] = &x.flight
	return &x.flight, true
}

func (f *flights) leave(id flightID, ended *flight, a *answer) {
	if a != nil && a.shareable() {
		ended.answer = a
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, id)
	if ended.done != nil {
		close(ended.done)
	}
}

// join runs the exchange, or waits for the one that is at the same operation
// and shares its answer. When the one in front leaves, a joiner takes over.
func (x *exchange) join() *answer {
	id := flightID{identity: x.identity()}
	if id == (flightID{}) {
		return x.run()
	}
	if id.adopted != "" && x.req != nil {
		id.credential = string(credentialDigest(x.req, x.want.Place.Header, x.t.Secrets, x.t.salt))
	}
	for {
		running, leads := x.t.flights.enter(id, x)
		if leads {
			return x.lead(id, running)
		}
		if !bytes.Equal(running.fingerprint, x.want.Fingerprint) {
			return x.run() // to be refused
		}
		select {
		case <-running.done:
			if running.answer != nil {
				return running.answer
			}
		case <-x.ctx.Done():
			return x.busy(x.want, context.Cause(x.ctx))
		}
	}
}

func (x *exchange) lead(id flightID, f *flight) (a *answer) {
	defer func() { x.t.flights.leave(id, f, a) }() // also when Base panics: then a is nil
	return x.run()
}
