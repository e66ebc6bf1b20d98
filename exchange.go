package idem

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/idem-go/idem/contract"
)

// exchange is the work of one RoundTrip, Continue or resumed intent: claim the
// intent, count an attempt, send, settle, wait, and again.
type exchange struct {
	t        *Transport
	ctx      context.Context
	req      *http.Request // the caller's; nil: the stored request is all there is
	contract *contract.Contract
	call     *call
	want     Intent
	passes   func(*http.Request) (*http.Response, error) // not journaled: goes this way instead
	body     []byte                                      // of req
	bodyRead bool                                        // and closed

	authorize  func(*http.Request, Intent) error            // credentials where req is nil
	verify     func(context.Context, Intent) (State, error) // asked before a resend
	resumed    bool                                         // no caller waits: one attempt
	sent       func()                                       // told when the attempt is on the wire; nil: nobody
	hop        *Intent                                      // the intent as the redirect left it
	same       identity                                     // of a hop: the first request's
	target     *url.URL                                     // where the hop goes; nil: the stored URL
	targetHost string                                       // the Host header there, where it is not the URL's
	hops       int                                          // followed by ourselves
	at         time.Time                                    // when this attempt was made

	in    Intent // as claimed
	ours  bool   // nobody asked for the wait that it is in
	fresh bool   // Begin counted the first attempt already
	paid  bool   // this resend is out of the retry budget already
	spent int    // what this call took out of it
	kept  *gate  // of the destination, once it was asked for

	// Most exchanges need one of each of these. They are in the exchange's own
	// piece of memory, since what is asked of the memory for an operation is a
	// good part of what the transport costs.
	plain    string            // the stored URL, where that is what it looks like; see plainURL
	print    [sha256.Size]byte // the fingerprint
	stored   StoredRequest
	closing  onceBody
	tries    try // the first
	tried    bool
	now      *try // the current
	lasting  lastingContext
	lasted   bool
	outcomes Outcome
	answers  answer
	flight   flight
}

// try is what one attempt needs. What net/http still holds of it when the attempt
// has ended is not used again.
type try struct {
	wire    wire
	marked  attemptContext
	request http.Request
	url     url.URL
	body    bytes.Reader
	key     [1]string
	done    Attempt
}

// another is the next attempt's.
func (x *exchange) another() *try {
	if x.now = &x.tries; x.tried {
		x.now = &try{}
	}
	x.tried = true
	return x.now
}

// run is the exchange itself.
func (x *exchange) run() *answer {
	if x.made() >= x.t.Retry.maxAttempts() && (x.hop == nil || x.hop.State == StateWithdrawn) {
		if last := x.call.last(x.budget(), x.want.Fingerprint); last != nil {
			return last
		}
	}
	if a := x.heed(); a != nil {
		return a
	}
	if a := x.claim(); a != nil {
		return a
	}
	return x.pursue()
}

// pursue sends the claimed intent until it is settled or the call ends.
func (x *exchange) pursue() *answer {
	settled := false
	defer func() {
		if !settled { // a panic below us: it may have executed, and goes on up
			next := x.in
			next.Claimed, next.State, next.Doubt = false, StateUnknown, true
			_, _ = x.record(next, nil, true)
		}
	}()
	if x.fresh {
		x.t.Observer.recorded(x.ctx, shown(x.in))
	}
	a := x.attempts()
	settled = true
	x.call.keep(x.budget(), x.in.Fingerprint, a)
	return a
}

// budget names what the attempts of a call are counted for.
func (x *exchange) budget() budgetID { return budgetID{x.t, x.identity()} }

// made is the number of attempts that this call has made.
func (x *exchange) made() int { return x.call.made(x.budget()) }

// attempts sends until the intent is settled or this call ends.
func (x *exchange) attempts() *answer {
	if a := x.verified(); a != nil {
		return a
	}
	if x.in.Request == nil {
		return x.end("request_not_kept", errors.New("its request was pruned, or its body never stored: call the operation with its request"))
	}
	for {
		if a := x.admit(); a != nil {
			return a
		}
		x.at = x.t.clock.Now()
		req, err := x.build()
		if err != nil {
			return x.lacksCredentials(err)
		}
		if x.pinned(x.in, req) {
			return x.otherPinned()
		}
		if may := x.mayResend(); !x.fresh && !may.send { // the wait and Authorize took their time
			return x.refused(may)
		}
		if a := x.count(); a != nil {
			return a
		}
		x.t.pass(pointSend)
		started := x.t.clock.Now()
		s := x.t.send(x.ctx, req, x)
		x.t.pass(pointAnswered)
		s.hop = x.followed(s.resp)
		v := settle(x.in, x.contract, s.ending)
		v.wait = askedWait(s.header, x.contract, s.at)
		if x.resumed && x.authorize != nil {
			v = withOtherCredentials(x.in, v, s.status)
		}
		done := &x.now.done
		*done = Attempt{
			Number: x.in.Attempts, Started: started, Ended: x.t.clock.Now(), Phase: s.phase,
			StatusCode: s.status, Decision: v.decision,
		}
		if err := cmp.Or(s.err, s.broken); err != nil {
			done.Error = safe(err, x.hidden(req)).Error()
		}
		x.learn(v, s.status, done.Ended.Sub(started))
		if a := x.next(s, v, done); a != nil {
			return a
		}
	}
}

// next ends the call after an attempt, or waits for another one and returns
// nil.
func (x *exchange) next(s sent, v verdict, done *Attempt) *answer {
	p, now := x.t.Retry, x.t.clock.Now()
	made := x.made()
	if x.resumed {
		made = x.in.Resumes
	}
	wait := p.pause(made, v.wait, x.contract)
	next := x.in
	next.Due, next.Wait = now.Add(wait), wait
	if x.req == nil && v.decision == "redirect" && x.hops < maxHops {
		return x.follow(next, s, v, done)
	}
	if !v.again || x.resumed || made >= p.maxAttempts() || !x.patient(wait) || !x.lasts(next, v) {
		return x.conclude(next, v, done, s)
	}
	if s.unpaid = x.overBudget(); s.unpaid != nil {
		return x.conclude(next, v, done, s)
	}
	x.paid = true
	next, err := x.record(afterAttempt(next, v), done, true)
	if err != nil {
		return x.unrecorded(s, err)
	}
	x.in, x.ours = next, v.wait == 0
	x.t.Observer.attempted(x.ctx, shown(next), *done)
	x.t.Observer.waiting(x.ctx, shown(next), wait)
	x.t.log().LogAttrs(x.ctx, slog.LevelInfo, "attempt did not settle the operation, sending again",
		slog.String("operation", next.Operation), slog.String("provider", next.Provider), slog.Int("attempt", done.Number),
		slog.Int("status", s.status), slog.String("state", string(next.State)), slog.Duration("wait", wait))
	if s.open {
		drain(s.resp.Body)
	}
	x.t.pass(pointWait)
	return nil
}

// patient reports whether the caller sits out the wait: not past its deadline,
// and not longer than MaxBackoff.
func (x *exchange) patient(wait time.Duration) bool {
	if wait > x.t.Retry.maxBackoff() {
		return false
	}
	deadline, ok := x.ctx.Deadline()
	return x.ctx.Err() == nil && (!ok || time.Until(deadline) > wait)
}

// lasts reports whether the key will still be good when next is due.
func (x *exchange) lasts(next Intent, v verdict) bool {
	return !v.doubt || next.Due.Before(lastSend(next, x.contract))
}

// sleep waits, and reports false when ctx ended first.
func sleep(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// admit asks whether the claimed intent may be sent now, and sits out what is
// left of a wait.
func (x *exchange) admit() *answer {
	if x.fresh {
		return x.stay()
	}
	may := x.mayResend()
	if x.hop != nil && x.in.Version <= x.hop.Version+1 || x.hops > 0 {
		may.wait = 0 // the due time was set to leave room for this very hop
	}
	switch {
	case !may.send:
		return x.refused(may)
	case x.hop != nil && origin(x.target) != origin(x.req.Response.Request.URL):
		return x.end("redirect_refused", fmt.Errorf("the key, the headers and the body stay home: %w",
			safe(fmt.Errorf("redirect to another origin, %s", origin(x.target)), hidden{})))
	case x.hop != nil && !x.aim():
		return x.end("redirect_refused", errors.New("redirect to a query that cannot carry the key"))
	case !x.resumed && x.made() >= x.t.Retry.maxAttempts():
		return x.end("attempts_used_up", errors.New("this call has used up its attempts (RetryPolicy.MaxAttempts)"))
	case !x.patient(may.wait):
		return x.end("parked", x.leftOr(fmt.Errorf("not before %s, which is longer than this call waits", x.in.Due.Format(time.RFC3339))))
	}
	if !x.paid {
		if err := x.overBudget(); err != nil {
			return x.end("over_budget", err)
		}
	}
	x.paid = false
	if !sleep(x.ctx, may.wait) {
		return x.stay()
	}
	return nil
}

func (x *exchange) mayResend() admission {
	return admit(x.in, x.contract, x.t.Retry, x.resumed, x.t.ResumeUnnamed, x.t.clock.Now())
}

// stay ends the exchange if its caller has left.
func (x *exchange) stay() *answer {
	if x.ctx.Err() == nil {
		return nil
	}
	return x.end("cancelled", context.Cause(x.ctx))
}

// leftOr is the caller's own reason to stop where there is one.
func (x *exchange) leftOr(err error) error {
	if x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	return err
}

// count notes the attempt durably before it starts.
func (x *exchange) count() *answer {
	x.call.count(x.budget())
	if x.fresh { // Begin did it
		x.fresh = false
		x.gate().first()
		return nil
	}
	next := x.in
	next.State, next.HoldReason = StateInFlight, ""
	next.Attempts++
	next.Resumes++
	if !x.resumed {
		next.Resumes = 0
	}
	if next.FirstSent.IsZero() {
		next.FirstSent = x.at // as its companion headers say
		next.Expires = lastSend(next, x.contract)
	}
	next.Settled, next.Due, next.Wait = time.Time{}, time.Time{}, 0
	x.t.pass(pointCount)
	next, err := x.record(next, nil, true)
	if err != nil {
		return x.end("not_sent", fmt.Errorf("the attempt could not be counted: %w", err))
	}
	x.in = next
	return nil
}
