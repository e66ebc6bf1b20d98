package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Report is what one pass of Resume did.
type Report struct {
	Sent     int            // attempts that went out
	Settled  int            // intents that became final
	Waiting  int            // intents that were tried and are left for later, or told to OnSettled in vain
	Held     []Intent       // intents that became held in this pass
	Notified int            // settlements that OnSettled took
	Skipped  map[string]int // due intents that are left for later without an attempt, by reason
	Next     time.Time      // when the first of what is not due yet is due; zero: nothing waits
}

// Resume is one pass over all that is due now and was left by a call that
// ended, or by a process that died: one attempt each, under the same key with
// the same bytes, as long as the provider remembers the key. It takes only
// intents of the transport's Name. What may not be sent is held; what settled
// is told to OnSettled; what is held in doubt is read by Verify.
//
// At most 32 attempts run at a time, 8 of them at one destination (scheme, host
// and port). A destination that asked for a pause, or that used up its retry
// budget (RetryPolicy.Budget), is skipped,
// and its intents become due later. An intent whose process died during the
// attempt is sent alone, after all others.
//
// It returns an error only where the journal failed, ctx ended or the client was
// shut down ([ErrClosed]); the Report says then what was done until there.
func (c *Client) Resume(ctx context.Context) (Report, error) {
	s, leave, err := c.sweep(ctx, "resume")
	if err != nil {
		return Report{Skipped: map[string]int{}}, err
	}
	defer leave()
	err = s.once()
	return s.report, err
}

// once is one pass.
func (s *sweep) once() error {
	defer s.finish()
	now, read := s.t.clock.Now(), false
	for {
		idle := s.busy()+s.count(&s.telling) == 0 // what runs may yet leave a settlement to tell
		due, next, err := s.claim(now)
		if err != nil {
			return err
		}
		s.report.Next = next
		s.work(due)
		switch {
		case s.ctx.Err() != nil:
			return fmt.Errorf("idem: resume: %w", context.Cause(s.ctx))
		case s.going.Err() != nil:
			return fmt.Errorf("idem: resume: the client was shut down: %w", ErrClosed)
		case len(due) == 0 && idle && !read: // which may settle something, to be told
			read = true
			s.verifyHeld(now)
		case len(due) == 0 && idle:
			return s.failure()
		case len(due) == 0 && s.busy() == 0:
			s.awaits(&s.telling)
		case len(due) == 0 || s.busy() >= sweepAttempts:
			s.await()
		}
		if !s.goesOn() {
			return s.failure()
		}
	}
}

// resume makes one attempt of a claimed intent, and tells when it is on the
// wire. Called by its worker.
func (c *Client) resume(s *sweep, in Intent, sent func()) {
	t := c.Transport
	x := &exchange{
		t: t, ctx: s.ctx, in: in, want: in, call: &call{}, authorize: c.Authorize, verify: c.Verify,
		resumed: true, sent: sent,
	}
	before := in.Attempts
	judged := false
	defer func() {
		if !judged { // a panic before the attempt
			s.giveBack(x.in, 0, skippedNotAsked)
		}
	}()
	var a *answer
	if req, err := t.asRequest(s.ctx, in); err != nil {
		a = x.refused(admission{hold: HoldChecksum, why: HoldChecksum})
	} else {
		x.contract = t.contracts().Resolve(req)
		judged = true // from here on, pursue cares
		a = x.pursue()
	}
	judged = true
	if a.open {
		t.readOut(a.resp.Body)
	}
	after := x.in
	if a.result.Intent.Version >= after.Version {
		after = a.result.Intent
	}
	s.add(func(r *Report) {
		r.Sent += max(after.Attempts-before, 0)
		switch {
		case after.State.Final():
			r.Settled++
		case after.State != StateHeld:
			r.Waiting++
		case !s.steady: // a Run has nobody to give it to
			r.Held = append(r.Held, shown(after))
		}
	})
	if failure := a.result.err; failure != nil && errors.Is(failure, ErrJournal) {
		s.fail(fmt.Errorf("idem: resume: %w", failure.Err))
	}
}

// readOut reads an answer that nobody waits for to its end, which settles the
// intent, for as long as an attempt may take.
func (t *Transport) readOut(body io.ReadCloser) {
	limit := time.AfterFunc(orDefault(t.Retry.AttemptTimeout, defaultAttemptTimeout), func() { body.Close() })
	defer limit.Stop()
	_, _ = io.Copy(io.Discard, body)
	body.Close()
}

// asRequest is a stored request, to find its contract by and to hang its
// answer on.
func (t *Transport) asRequest(ctx context.Context, in Intent) (*http.Request, error) {
	address := in.URL
	if in.Request != nil {
		address = in.Request.URL
	}
	target, err := parseStored(address)
	if err != nil {
		return nil, errors.New("the stored URL cannot be read")
	}
	target.RawQuery = withoutLeft(target.RawQuery)
	req := (&http.Request{Method: in.Method, URL: target, Header: http.Header{}}).WithContext(ctx)
	if in.Request != nil && in.Request.Header != nil {
		req.Header = in.Request.Header.Clone()
	}
	return req, nil
}
