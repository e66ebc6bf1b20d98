package idem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// journalPatience bounds a journal write that no caller's context bounds any
// more.
const journalPatience = 10 * time.Second

// lastingContext is a context that ends journalPatience after somebody waits for its
// end, which a posted write does not. Of the caller's it has the values only.
type lastingContext struct {
	context.Context
	mu    sync.Mutex
	inner context.Context // nil: nobody has waited yet
	stop  context.CancelFunc
}

func (p *lastingContext) timed() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inner == nil {
		p.inner, p.stop = context.WithTimeout(context.WithoutCancel(p.Context), journalPatience)
	}
	return p.inner
}

func (p *lastingContext) Deadline() (time.Time, bool) { return p.timed().Deadline() }
func (p *lastingContext) Done() <-chan struct{}       { return p.timed().Done() }

func (p *lastingContext) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inner == nil {
		return nil
	}
	return p.inner.Err()
}

// over frees what it holds.
func (p *lastingContext) over() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
}

// record writes next over the claimed row. A caller that left does not stop
// the record of what happened.
func (x *exchange) record(next Intent, a *Attempt, durable bool) (Intent, error) {
	ctx := &x.lasting
	if x.lasted {
		ctx = &lastingContext{}
	}
	x.lasted, ctx.Context = true, x.ctx
	defer ctx.over()
	if a == nil {
		return x.t.Journal.Update(ctx, next, nil, durable)
	}
	x.t.pass(pointRecord)
	defer x.t.pass(pointRecorded)
	return x.t.Journal.Update(ctx, next, a, durable)
}

// shown is the intent without the stored request, as results and hooks have it.
func shown(in Intent) Intent {
	in.Request = nil
	return in
}

// conclude ends the exchange with what its last attempt means.
func (x *exchange) conclude(in Intent, v verdict, done *Attempt, s sent) *answer {
	t, now := x.t, x.t.clock.Now()
	if s.hop {
		room := orDefault(t.Retry.attemptTimeout(x.contract), defaultAttemptTimeout)
		in.Due, in.Wait = now.Add(room), room
	}
	if v.state == StateInFlight {
		return x.stream(v, done, s)
	}
	next := conclude(in, x.contract, v, t.Retry, x.resumed, now)
	if next.State.Final() {
		next.Outcome = x.outcome(s, v)
		next.Notify = x.owes(next)
	}
	recorded, err := x.record(next, done, mustSync(next, x.contract, v, now))
	a := &x.answers
	*a = answer{resp: s.resp, body: s.body, broken: s.broken, open: s.open, left: s.left}
	if s.hop {
		a.request = x.in.Request
	}
	if err != nil {
		return x.withoutRecord(a, next, s, v, err)
	}
	x.ended(recorded, *done)
	a.result = Result{Intent: shown(recorded), Recorded: true, FromProvider: v.replayed}
	if !recorded.State.Final() {
		a.result.err = explain(recorded, x.leftOr(x.causeOf(s)))
	}
	if s.resp == nil {
		a.err = a.result.err
	}
	return a
}

// causeOf is why an attempt did not settle the intent, fit for a text.
func (x *exchange) causeOf(s sent) (cause error) {
	switch {
	case s.err != nil:
		cause = safe(s.err, x.hidden(s.req))
	case s.broken != nil:
		cause = fmt.Errorf("answer %d was cut: %w", s.status, safe(s.broken, x.hidden(s.req)))
	default:
		cause = fmt.Errorf("the server answered %d", s.status)
	}
	if s.unpaid != nil {
		cause = fmt.Errorf("%w; %w", cause, s.unpaid)
	}
	return cause
}

// ended tells observer and log what was recorded.
func (x *exchange) ended(in Intent, done Attempt) {
	t := x.t
	if done.Number > 0 {
		t.Observer.attempted(x.ctx, shown(in), done)
	}
	t.Observer.ended(x.ctx, shown(in))
	level, message := slog.LevelDebug, "operation settled"
	switch {
	case in.State == StateHeld:
		level, message = slog.LevelWarn, "operation held for a decision"
	case !in.State.Final():
		level, message = slog.LevelWarn, "operation not settled"
	}
	t.log().LogAttrs(x.ctx, level, message, slog.String("operation", in.Operation), slog.String("id", in.ID), slog.String("provider", in.Provider),
		slog.Int("attempt", done.Number), slog.Int("status", done.StatusCode), slog.String("state", string(in.State)),
		slog.String("reason", string(in.HoldReason)), slog.String("err", done.Error))
	if in.Notify || !in.State.Final() {
		t.wake()
	}
}

// without stands for an attempt that did not come to be, and why.
func (x *exchange) without(why error) (none Attempt) {
	if why != nil {
		none.Error = safe(why, x.hidden(nil)).Error()
	}
	return none
}

// outcome is what is kept of a final answer.
func (x *exchange) outcome(s sent, v verdict) *Outcome {
	out := &x.outcomes
	*out = Outcome{
		StatusCode: s.status,
		Header:     keptHeader(s.header, s.req, x.in.Place.Header, x.t.Secrets),
		RequestID:  requestID(s.header, s.req, x.in.Place.Header, x.t.Secrets),
		Replayed:   v.replayed,
	}
	if s.open { // the caller has the response
		ownValues(out.Header)
	} else {
		out.Body, out.Complete = s.body, true
		if out.Body == nil {
			out.Body = []byte{}
		}
	}
	return out
}

// withoutRecord ends an exchange whose end could not be stored (P11): the
// caller gets the answer, and the intent stays as it was before it, in doubt.
func (x *exchange) withoutRecord(a *answer, next Intent, s sent, v verdict, err error) *answer {
	x.t.journalFailed(x.ctx, "the end of an attempt could not be recorded",
		slog.String("operation", next.Operation), slog.String("provider", next.Provider), slog.Int("attempt", next.Attempts),
		slog.Int("status", s.status), slog.String("state", string(next.State)), slog.String("err", err.Error()))
	a.result = Result{Intent: shown(next), FromProvider: v.replayed}
	if next.State != StateSucceeded {
		a.result.Intent = shown(x.in)
		a.result.Intent.State, a.result.Intent.Doubt = StateUnknown, true
		a.result.err = explain(a.result.Intent, fmt.Errorf("the end of the attempt could not be recorded: %w", journalError(err)))
	}
	if s.resp == nil {
		a.err = a.result.err
	}
	return a
}

// journalError makes sure that an error of the journal matches ErrJournal.
func journalError(err error) error {
	if errors.Is(err, ErrJournal) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrJournal, err)
}

// unrecorded ends a call between two attempts because the journal failed.
func (x *exchange) unrecorded(s sent, err error) *answer {
	release := x.in
	release.Claimed, release.State, release.Doubt = false, StateUnknown, true
	_, _ = x.record(release, nil, true) // ends the running call even where it fails
	a := &answer{resp: s.resp, body: s.body, broken: s.broken, open: s.open, left: s.left}
	return x.withoutRecord(a, release, s, verdict{}, err)
}

// end ends the exchange without an attempt: why says what was in the way.
func (x *exchange) end(decision string, why error) *answer {
	next := conclude(x.in, x.contract, open(decision, x.in.Doubt, false), x.t.Retry, x.resumed, x.t.clock.Now())
	if next.State == StateWithdrawn && !x.ours {
		next.Due, next.Wait = x.in.Due, x.in.Wait
	}
	next.Deaths = x.in.Deaths // only a finished attempt ends a row of deaths
	if x.fresh {              // Begin counted an attempt that did not come to be
		next.Attempts--
	}
	recorded, err := x.record(next, nil, true)
	a := &answer{left: x.ctx.Err() != nil}
	if err != nil {
		in := x.in
		in.State, in.Doubt = StateUnknown, true
		a.result = Result{Intent: shown(in)}
		a.result.err = explain(in, fmt.Errorf("%w; and that could not be recorded: %w", why, journalError(err)))
		a.err = a.result.err
		return a
	}
	x.ended(recorded, x.without(why))
	a.result = Result{Intent: shown(recorded), Recorded: true, err: explain(recorded, why)}
	a.err = a.result.err
	if last := x.call.last(x.budget(), x.in.Fingerprint); decision == "attempts_used_up" && last != nil {
		a.resp, a.body, a.broken, a.err = last.resp, last.body, last.broken, nil
	}
	return a
}

// refused gives a claimed intent back that may not be sent. A call changes
// nothing by being refused, unless it ends one that died; what a resume may not
// send is held (admit).
func (x *exchange) refused(may admission) *answer {
	next := x.in
	next.Claimed = false
	if may.hold != "" {
		next.State, next.HoldReason = StateHeld, may.hold
		next.Settled, next.Due, next.Wait = x.t.clock.Now(), time.Time{}, 0
		if x.verify != nil && next.Doubt { // it was read just now
			next.Due, next.Wait = next.Settled.Add(verifyEvery), verifyEvery
		}
	}
	recorded, err := x.record(next, nil, may.hold != "")
	if err != nil {
		recorded = x.in
	} else if may.hold != "" {
		x.ended(recorded, x.without(may.err))
	}
	failure := failed(recorded, ErrUnknownOutcome, may.err, "not sent by this call; "+heldText(may.why), ErrHeld)
	if err != nil {
		failure.Err = journalError(err)
	}
	return &answer{err: failure, result: Result{Intent: shown(recorded), err: failure}}
}

// lacksCredentials ends an exchange that has no credentials for its request.
// Where Authorize failed, which may pass, a resume tries again later.
func (x *exchange) lacksCredentials(err error) *answer {
	switch {
	case !x.resumed:
		return x.end("credentials_missing", err)
	case x.authorize == nil:
		return x.refused(admission{hold: HoldCredentials, why: HoldCredentials, err: err})
	}
	return x.tryLater("credentials_missing", err, HoldCredentials)
}

// otherPinned ends an exchange whose credentials, from Authorize, are not those
// under which the provider knows the key.
func (x *exchange) otherPinned() *answer {
	err := errors.New("the provider knows the key under another credential only (Contract.CredentialPinned), and the operation may have been executed")
	if x.resumed {
		return x.refused(admission{hold: HoldCredentials, why: HoldCredentials, err: err})
	}
	return x.end("credentials_missing", err)
}

// tryLater ends a resume that could not come to its attempt, as one of its
// ResumeAttempts; then the intent is held.
func (x *exchange) tryLater(decision string, why error, hold HoldReason) *answer {
	x.in.Resumes++
	if x.in.Resumes >= x.t.Retry.resumeAttempts() {
		return x.refused(admission{hold: hold, why: hold, err: why})
	}
	wait := x.t.Retry.backoff(x.in.Resumes)
	x.in.Due, x.in.Wait = x.t.clock.Now().Add(wait), wait
	return x.end(decision, why)
}

// stream hands a successful answer over while it arrives. From then on the
// request is never sent again by itself: it stays in flight until the body has
// ended, and is held if its owner dies before.
func (x *exchange) stream(v verdict, done *Attempt, s sent) *answer {
	next := x.in
	next.HoldReason = HoldNotKept
	recorded, err := x.record(next, nil, true)
	if err == nil {
		x.in = recorded
	}
	in := shown(x.in)
	s.header = s.header.Clone() // the caller has the response's from now on
	body := s.resp.Body.(*openBody)
	cancel := s.cancel
	body.ended = func(clean bool) {
		cancel(nil)
		x.streamEnded(clean, v, done, s)
	}
	return &answer{resp: s.resp, open: true, result: Result{Intent: in, Recorded: err == nil, FromProvider: v.replayed}}
}

// streamEnded records what became of a stream.
func (x *exchange) streamEnded(clean bool, v verdict, done *Attempt, s sent) {
	end := verdict{state: StateHeld, doubt: true, hold: HoldNotKept, decision: "stream_broken"}
	if clean {
		end = verdict{state: StateSucceeded, decision: "streamed", replayed: v.replayed}
	}
	done.Decision, done.Ended = end.decision, x.t.clock.Now()
	next := conclude(x.in, x.contract, end, x.t.Retry, x.resumed, done.Ended)
	if clean {
		next.Outcome = x.outcome(s, end)
		next.Notify = x.owes(next)
	}
	recorded, err := x.record(next, done, true)
	if err != nil {
		x.t.journalFailed(x.ctx, "the end of a stream could not be recorded",
			slog.String("operation", next.Operation), slog.String("err", err.Error()))
		return
	}
	x.in = recorded
	x.ended(recorded, *done)
}

// replay answers from the journal.
func (x *exchange) replay(in Intent) *answer {
	out := in.Outcome
	result := Result{Intent: shown(in), Recorded: true, FromJournal: true}
	if out != nil && out.StatusCode > 0 {
		result.FromProvider = out.Replayed
	}
	if out == nil || !out.Complete || out.StatusCode == 0 {
		status := "settled without an answer"
		if out != nil && out.StatusCode > 0 {
			status = fmt.Sprintf("answered %d %s", out.StatusCode, http.StatusText(out.StatusCode))
		}
		failure := failed(in, nil, ErrNotKept, fmt.Sprintf("%s, %s; its body was not kept, and it is never sent again", in.State, status))
		result.err = failure
		return &answer{err: failure, result: result}
	}
	return &answer{resp: storedAnswer(in), body: out.Body, result: result}
}
