package idem

import (
	"net/http"
	"slices"
	"time"

	"github.com/idem-go/idem/contract"
)

// This file decides and does nothing else: admit says whether a call or a
// resume may send, settle what the end of an attempt means, conclude what the
// intent becomes when nothing more is sent in this call. All three are pure.

// ending is how one attempt ended.
type ending struct {
	status int         // zero: no answer
	header http.Header // of the answer
	body   []byte      // what was read of it
	cut    bool        // the body broke before its end
	stream bool        // the body is handed over while it arrives
	err    error       // why there is no answer
	phase  string      // how far the attempt came
	resent bool        // the trace shows more than one written request
	hop    bool        // a redirect that the next hop may follow under this key
	left   bool        // the caller stopped waiting
	final  bool        // the error would come again
}

// verdict is what an attempt's end means.
type verdict struct {
	state    State // pending, unknown, held, succeeded, rejected; in_flight: the answer is still arriving
	doubt    bool
	hold     HoldReason
	again    bool          // another send under the same key may settle it
	wait     time.Duration // asked for by the server; zero: nothing asked
	proven   bool          // from the provider's store, so that a lost record only means a replay
	replayed bool
	decision string
}

// settle judges one attempt's end. in is the intent as it was sent: its Doubt
// speaks of earlier attempts.
func settle(in Intent, c *contract.Contract, e ending) verdict {
	doubt := in.Doubt || e.resent
	v := judge(keyed(in, c), c, e, doubt)
	if v.again && v.state == StateUnknown && !keyed(in, c) {
		v.again = false
		v.state, v.hold = StateHeld, HoldNoContract
	}
	if e.left {
		v.again = false
	}
	return v
}

// keyed reports whether the server is known to honour in's key: its place was
// known when it was made, and the contract of today agrees.
func keyed(in Intent, c *contract.Contract) bool {
	return in.Place != (contract.Place{}) && c != nil && !c.NoKeys
}

func judge(keys bool, c *contract.Contract, e ending, doubt bool) verdict {
	if e.status == 0 {
		return judgeSilence(e, doubt)
	}
	if e.cut {
		return lost("answer_cut", doubt || !refusedUnread(e.status))
	}
	if keys {
		if v, ok := judgeSignals(c, e, doubt); ok {
			return v
		}
	}
	if e.status/100 == 2 {
		if e.stream {
			return verdict{state: StateInFlight, doubt: true, decision: "streaming"}
		}
		return verdict{state: StateSucceeded, proven: true, decision: "succeeded"}
	}
	if keys {
		if v, ok := judgeAdvice(c, e, doubt); ok {
			return v
		}
	}
	return judgeStatus(e, doubt)
}

// judgeSilence is for an attempt without an answer.
func judgeSilence(e ending, doubt bool) verdict {
	if e.phase != phaseNotSent {
		return verdict{state: StateUnknown, doubt: true, again: !e.final, decision: "no_answer"}
	}
	return open("not_sent", doubt, !e.final)
}

// open is the verdict of an attempt that added no doubt of its own.
func open(decision string, doubt, again bool) verdict {
	v := verdict{state: StatePending, doubt: doubt, again: again, decision: decision}
	if doubt {
		v.state = StateUnknown
	}
	return v
}

// lost is the verdict of an attempt that may have executed.
func lost(decision string, doubt bool) verdict { return open(decision, doubt, true) }

// judgeSignals looks for what the contract says in so many words.
func judgeSignals(c *contract.Contract, e ending, doubt bool) (verdict, bool) {
	is := func(signals []contract.Signal) bool { return contract.Any(signals, e.status, e.header, e.body) }
	switch {
	case is(c.AlreadyDone):
		return verdict{state: StateSucceeded, proven: true, replayed: true, decision: "already_done"}, true
	case is(c.InFlight):
		return lost("in_flight", true), true
	case is(c.Mismatch):
		return refused("mismatch", doubt), true
	case is(c.StoreDown):
		return lost("store_down", true), true
	case is(c.NotExecuted):
		return open("not_executed", doubt, true), true
	}
	if doubt && is(c.Overlap) {
		return lost("in_flight", true), true
	}
	if !c.Replayed.Matches(e.header) {
		if is(c.Proven) {
			return verdict{state: StateRejected, proven: true, decision: "rejected"}, true
		}
		return verdict{}, false
	}
	switch e.status / 100 {
	case 2:
		if e.stream {
			return verdict{state: StateInFlight, doubt: true, replayed: true, decision: "streaming"}, true
		}
		return verdict{state: StateSucceeded, proven: true, replayed: true, decision: "replayed"}, true
	case 4:
		return verdict{state: StateRejected, proven: true, replayed: true, decision: "replayed"}, true
	case 5:
		return verdict{state: StateHeld, doubt: true, hold: HoldStoredFailure, replayed: true, decision: "stored_failure"}, true
	}
	return verdict{}, false
}

// judgeAdvice follows the provider's own word on whether to send again.
func judgeAdvice(c *contract.Contract, e ending, doubt bool) (verdict, bool) {
	mayHaveRun := doubt || !refusedUnread(e.status)
	if c.Transient.Matches(e.header) {
		return lost("transient", mayHaveRun), true
	}
	switch advice := e.header.Get(c.ShouldRetry.Header); {
	case c.ShouldRetry.Header == "" || advice == "":
	case advice == c.ShouldRetry.Yes:
		return lost("retry_advised", mayHaveRun), true
	case advice == c.ShouldRetry.No:
		v := judgeStatus(e, doubt)
		v.again = false
		if e.status >= 500 && (v.state == StateUnknown || c.StoresServerErrors) { // more sends would not help
			v = verdict{state: StateHeld, doubt: true, hold: HoldStoredFailure, decision: "stored_failure"}
		}
		return v, true
	}
	switch {
	case slices.Contains(c.RetryStatuses, e.status):
		return lost("retry", mayHaveRun), true
	case slices.Contains(c.FinalStatuses, e.status):
		v := judgeStatus(e, doubt)
		v.again = false
		return v, true
	}
	return verdict{}, false
}

// judgeStatus is the table for an answer that nothing else explains.
func judgeStatus(e ending, doubt bool) verdict {
	switch s := e.status; {
	case s == http.StatusSeeOther:
		return verdict{state: StateSucceeded, proven: true, decision: "see_other"}
	case e.hop:
		return open("redirect", doubt, false)
	case s < 400:
		return verdict{state: StateHeld, doubt: doubt || !refusedUnread(s), hold: HoldRedirect, decision: "redirect"}
	case !doubt && credentialsRefused(s):
		return open("credentials_refused", false, false)
	case refusedUnread(s):
		return open("try_later", doubt, true)
	case worthAnotherSend(s):
		return lost("server_error", true)
	case s >= 500 && s != http.StatusNotImplemented && s != http.StatusHTTPVersionNotSupported:
		return verdict{state: StateUnknown, doubt: true, decision: "server_error"}
	}
	return refused("rejected", doubt)
}

// refused is a refusal by status alone. In doubt it proves nothing about the
// earlier attempt (P6).
func refused(decision string, doubt bool) verdict {
	if doubt {
		return verdict{state: StateHeld, doubt: true, hold: HoldUnsettlingAnswer, decision: decision}
	}
	return verdict{state: StateRejected, decision: decision}
}

func credentialsRefused(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusProxyAuthRequired
}

// credentialTries is how many attempts of a resume may be refused for their
// credentials before the intent is held.
const credentialTries = 3

// withOtherCredentials is the verdict of a resume that can have other
// credentials the next time: a few refusals prove nothing yet.
func withOtherCredentials(in Intent, v verdict, status int) verdict {
	if !credentialsRefused(status) || v.proven || v.replayed || in.Resumes >= credentialTries {
		return v
	}
	return open("credentials_refused", v.doubt, true)
}

// refusedUnread reports the statuses by which a server says that it did not
// act on the request (RFC 9110 15.4.8, 15.4.9, 15.5.20; RFC 8470 5.2; RFC 6585 4).
func refusedUnread(status int) bool {
	switch status {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusMisdirectedRequest,
		http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}

// worthAnotherSend reports the statuses after which the same request may do
// better, though this one may have executed. 520 to 527, 529 and 530 are what
// proxies in front of a server say when it fell silent.
func worthAnotherSend(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout, 529, 530:
		return true
	}
	return status >= 520 && status <= 527
}

// retryable reports every status that is sent again by itself where nothing
// but the status is known.
func retryable(status int) bool {
	return worthAnotherSend(status) ||
		refusedUnread(status) && status != http.StatusTemporaryRedirect && status != http.StatusPermanentRedirect
}

// The retention stop (P7).
const (
	maxUnknownRetention = time.Hour        // resends under a key whose life is not known
	maxRetention        = 720 * time.Hour  // of a key that never expires: then a person looks
	maxMargin           = 10 * time.Minute // before the end of a known one
	minMargin           = 30 * time.Second
)

// expiry is the last instant at which a key first sent at the given instant
// may be sent by itself. kept is zero where unknown.
func expiry(firstSent time.Time, kept time.Duration) time.Time {
	if firstSent.IsZero() {
		return time.Time{}
	}
	if kept <= 0 {
		return firstSent.Add(maxUnknownRetention)
	}
	return firstSent.Add(kept - margin(kept))
}

// margin is what is kept of a key's life for clocks that differ.
func margin(kept time.Duration) time.Duration { return max(min(maxMargin, kept/10), minMargin) }

// retention is how long a key of c is trusted; zero: not known.
func retention(c *contract.Contract) time.Duration {
	if c.Retention == 0 && c.AfterExpiry == contract.NeverExpires {
		return maxRetention
	}
	return c.Retention
}

// lastSend is the expiry under the stricter of the stored and today's contract.
func lastSend(in Intent, c *contract.Contract) time.Time {
	last := expiry(in.FirstSent, in.Retention)
	if c == nil {
		return last
	}
	if today := expiry(in.FirstSent, retention(c)); today.Before(last) {
		return today
	}
	return last
}

// admission is whether a send may go out.
type admission struct {
	send bool
	wait time.Duration // first, where send
	hold HoldReason    // what the intent becomes, where not send and it is not refused only
	why  HoldReason    // why it is refused
	err  error         // what was in the way, if anything
}

// admit judges a claimed intent before a send. A refused direct call changes
// nothing; what a resume may not send is held. So is what a direct call may not
// send whose last attempt ended with its process: that call ends here, as it would
// have ended there.
func admit(in Intent, c *contract.Contract, p RetryPolicy, resumed, resumeUnnamed bool, now time.Time) admission {
	refuse := func(why HoldReason) admission {
		if resumed || in.Deaths > 0 {
			return admission{hold: why, why: why}
		}
		return admission{why: why}
	}
	switch {
	case in.State.Final():
		return admission{}
	case in.State == StateHeld:
		return admission{why: in.HoldReason}
	case in.Doubt && !keyed(in, c):
		return refuse(HoldNoContract)
	case in.Doubt && in.FirstSent.After(now.Add(min(margin(in.Retention), margin(retention(c))))): // the clock was ahead then, or is behind
		return refuse(HoldClock)
	case in.Doubt && !now.Add(remaining(in, now)).Before(lastSend(in, c)): // when it would be sent
		return refuse(HoldExpired)
	case in.Deaths >= p.maxDeaths():
		return refuse(HoldPoison)
	case resumed && in.Operation == "" && in.Adopted == nil && in.By == "" && !resumeUnnamed:
		return refuse(HoldUnnamed)
	case resumed && in.Resumes >= p.resumeAttempts():
		return refuse(HoldExhausted)
	}
	return admission{send: true, wait: remaining(in, now)}
}

// remaining is what is left of a wait: the stored length bounds it, so that a
// clock that stepped back does not stretch it.
func remaining(in Intent, now time.Time) time.Duration {
	left := in.Due.Sub(now)
	if in.Due.IsZero() || left <= 0 {
		return 0
	}
	if in.Wait > 0 {
		return min(left, in.Wait)
	}
	return left
}

// conclude is what the intent becomes when the call, or the pass of a resume,
// ends with v. next's outcome is the caller's to fill in.
func conclude(in Intent, c *contract.Contract, v verdict, p RetryPolicy, resumed bool, now time.Time) Intent {
	next := afterAttempt(in, v)
	next.Claimed = false
	switch v.state {
	case StatePending:
		if !resumed && !in.Prepared && v.decision != "redirect" {
			next.State = StateWithdrawn
		}
		if resumed || in.Prepared {
			holdPending(&next, v, p)
		}
	case StateUnknown:
		switch {
		case !keyed(in, c):
			next.State, next.HoldReason = StateHeld, HoldNoContract
		case !now.Before(lastSend(next, c)):
			next.State, next.HoldReason = StateHeld, HoldExpired
		case resumed && in.Resumes >= p.resumeAttempts():
			next.State, next.HoldReason = StateHeld, HoldExhausted
		}
	}
	switch next.State {
	case StateSucceeded, StateRejected:
		next.Doubt = false
		next.Settled, next.Due, next.Wait = now, time.Time{}, 0
	case StateHeld:
		next.Settled, next.Due, next.Wait = now, time.Time{}, 0
	case StateWithdrawn:
		next.Settled = now
		if v.wait == 0 { // nobody named a time
			next.Due, next.Wait = time.Time{}, 0
		}
	}
	return next
}

// afterAttempt is the intent with what an attempt's end says of it. The key's
// age counts from the first attempt that may have executed.
func afterAttempt(in Intent, v verdict) Intent {
	in.State, in.Doubt, in.HoldReason, in.Deaths = v.state, v.doubt, v.hold, 0
	if !v.doubt && !v.state.Final() {
		in.FirstSent, in.Expires = time.Time{}, time.Time{}
	}
	return in
}

// holdPending keeps what cannot get on by itself from being tried for ever.
func holdPending(next *Intent, v verdict, p RetryPolicy) {
	switch {
	case v.decision == "credentials_refused" && !v.again:
		next.State, next.HoldReason = StateHeld, HoldCredentials
	case next.Resumes >= p.resumeAttempts():
		next.State, next.HoldReason = StateHeld, HoldExhausted
	}
}

// mustSync reports whether losing the record of next to a power cut would
// contradict what the caller is told, or lead to a send that is not safe.
func mustSync(next Intent, c *contract.Contract, v verdict, now time.Time) bool {
	if !next.State.Final() || !v.proven || !keyed(next, c) || next.Retention <= 0 {
		return true
	}
	return lastSend(next, c).Sub(now) < next.Retention/10
}
