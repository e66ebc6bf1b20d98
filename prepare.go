package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Prepare journals req as the named operation and does not send it: a durable
// outbox. The intent is delivered by the next Resume, whatever happens to this
// process, and by Do with the same request, whose failure then says "not
// delivered yet" and never "not sent". Withdraw takes it back while nothing can
// have executed.
//
// An operation that the journal knows already, for the same request, becomes a
// prepared one where it is unfinished; final or held it is returned as it
// stands. One that a call is at is waited for, at most to the context's deadline
// or MaxBackoff, then it is [ErrBusy]. Requests that are not journaled (such as a GET) are
// refused, and so are those whose credentials would have to be withheld while
// no Authorize could supply them later. The body of req is read and closed.
func (c *Client) Prepare(operation string, req *http.Request) (Intent, error) {
	ctx := req.Context()
	leave, err := c.enter(ctx, operation)
	if err != nil {
		closeBody(req)
		return Intent{}, err
	}
	defer leave()
	x, err := c.preparation(operation, req)
	if err != nil {
		if x == nil || !x.bodyRead {
			closeBody(req)
		}
		return Intent{}, c.refuse(ctx, operation, err)
	}
	want := &x.want
	want.State, want.Attempts, want.Prepared = StatePending, 0, true
	want.Notify = x.t.listeners.Load() > 0
	want.FirstSent, want.Expires = time.Time{}, time.Time{} // nothing is sent yet
	got, claimed, err := x.outbox()
	switch {
	case err != nil:
		return Intent{}, x.noClaim(err).err
	case string(got.Fingerprint) != string(want.Fingerprint) || got.Operation != operation:
		return shown(got), x.unclaimed(got).err
	case !claimed && got.Owned && !got.Prepared:
		return shown(got), x.busy(got, errors.New("not prepared, another call has it still")).err
	case !claimed:
		return shown(got), nil
	}
	x.in = got
	next := got
	next.Claimed, next.Prepared, next.Notify = false, true, got.Notify || want.Notify
	if got.State == StateWithdrawn { // the caller wants it again
		next.State, next.Settled = StatePending, time.Time{}
	}
	recorded, err := x.record(next, nil, next.State != got.State || !got.Prepared) // to let it go need not outlive this process
	if err != nil {
		return shown(got), failed(got, ErrUnknownOutcome, journalError(err), "journaled, but it could not be let go; it will be delivered after a restart")
	}
	if got.Version == 1 {
		x.t.Observer.recorded(ctx, shown(recorded))
	}
	x.t.wake()
	return shown(recorded), nil
}

// outbox begins a prepared intent. A call that is at it, which may yet end with
// nothing executed, is waited for.
func (x *exchange) outbox() (got Intent, claimed bool, err error) {
	start := time.Now()
	for wait := minPoll; ; wait = min(2*wait, maxPoll) {
		x.t.pass(pointBegin)
		got, claimed, err = x.t.Journal.Begin(x.ctx, x.want)
		x.t.pass(pointBegun)
		waits := err == nil && !claimed && got.Owned && !got.Prepared && !got.State.Final() &&
			got.Operation == x.want.Operation && string(got.Fingerprint) == string(x.want.Fingerprint)
		if !waits || time.Since(start)+wait > x.t.Retry.maxBackoff() || !sleep(x.ctx, wait) {
			return got, claimed, err
		}
	}
}

// preparation describes the request of Prepare.
func (c *Client) preparation(operation string, req *http.Request) (*exchange, error) {
	t := c.Transport
	switch {
	case operation == "":
		return nil, ErrNoOperation
	case req.URL == nil:
		return nil, errors.New("request has no URL")
	case safeMethod(req.Method):
		return nil, fmt.Errorf("a %s is not journaled: just send it", req.Method)
	}
	if err := t.ready(); err != nil {
		return nil, err
	}
	ctx := context.WithValue(req.Context(), callKey{}, &call{operation: operation, explicit: true})
	x, err := t.newExchange(req.WithContext(ctx), t.contracts().Resolve(req))
	switch {
	case err != nil:
		return x, err
	case x.passes != nil:
		return x, errors.New("a request for a token is not journaled: just send it")
	case len(x.want.Withheld) > 0 && c.Authorize == nil:
		return x, fmt.Errorf("its credentials (%v) are not stored, and Client.Authorize is nil", x.want.Withheld)
	}
	return x, nil
}
