package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Report is what one pass of Resume did.
type Report struct {
	Sent    int            // attempts that went out
	Settled int            // intents that became final
	Waiting int            // intents of this pass that are left for later
	Held    []Intent       // intents that became held, in this pass
	Skipped map[string]int // intents not looked at, by reason
	Next    time.Time      // when the first of what is not due yet is due; zero: nothing waits
}

// resumePage is how many intents one claim takes: they are claimed together,
// so the number is what a dead process can hold up.
const resumePage = 16

// Resume is one pass over all that is due now and was left by a call that
// ended, or by a process that died: one attempt each, under the same key with
// the same bytes, as long as the provider remembers the key. It takes only
// intents of the transport's Name. What may not be sent is held.
//
// It returns an error only where the journal failed or ctx ended; the Report
// says then what was done until there.
func (c *Client) Resume(ctx context.Context) (Report, error) {
	report := Report{Skipped: map[string]int{}}
	leave, err := c.enter(ctx, "")
	if err != nil {
		return report, err
	}
	defer leave()
	t := c.Transport
	if err := t.ready(); err != nil {
		return report, fmt.Errorf("idem: resume: %w", err)
	}
	if t.Journal == nil {
		return report, fmt.Errorf("idem: resume: %w: Transport.Journal is nil", ErrJournal)
	}
	now := t.clock.now()
	for {
		due, next, err := t.Journal.ClaimDue(ctx, now, Filter{Name: t.Name, Limit: resumePage})
		if err != nil {
			return report, err
		}
		report.Next = next
		if len(due) == 0 {
			return report, nil
		}
		if err := c.resumeAll(ctx, due, &report); err != nil {
			return report, err
		}
		if ctx.Err() != nil {
			return report, fmt.Errorf("idem: resume: %w", context.Cause(ctx))
		}
	}
}

// resumeAll makes one attempt of each claimed intent. What it does not come to
// is given back.
func (c *Client) resumeAll(ctx context.Context, due []Intent, report *Report) (err error) {
	left := due
	defer func() { // also when something below panics
		for _, in := range left {
			x := &exchange{t: c.Transport, ctx: ctx}
			in.Claimed = false
			_, _ = x.record(in, nil, false)
		}
	}()
	for len(left) > 0 && err == nil {
		in := left[0]
		left = left[1:]
		err = c.resume(ctx, in, report)
	}
	return err
}

// resume makes one attempt of a claimed intent. An error means that the
// journal does not take what happened, so that going on is no use.
func (c *Client) resume(ctx context.Context, in Intent, report *Report) error {
	t := c.Transport
	x := &exchange{t: t, ctx: ctx, in: in, want: in, call: &call{}, authorize: c.Authorize, resumed: true}
	before := in.Attempts
	var a *answer
	if req, err := t.asRequest(ctx, in); err != nil {
		a = x.refused(admission{hold: HoldChecksum, why: HoldChecksum})
	} else {
		x.contract = t.contracts().Resolve(req)
		a = x.pursue()
	}
	if a.open {
		t.readOut(a.resp.Body)
	}
	after := x.in
	if a.result.Intent.Version >= after.Version {
		after = a.result.Intent
	}
	report.Sent += max(after.Attempts-before, 0)
	switch {
	case after.State.Final():
		report.Settled++
	case after.State == StateHeld:
		report.Held = append(report.Held, after)
	default:
		report.Waiting++
	}
	if failure := a.result.err; failure != nil && errors.Is(failure, ErrJournal) {
		return fmt.Errorf("idem: resume: %w", failure.Err)
	}
	return nil
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
	target, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the stored URL cannot be read")
	}
	req := (&http.Request{Method: in.Method, URL: target, Header: http.Header{}}).WithContext(ctx)
	if in.Request != nil && in.Request.Header != nil {
		req.Header = in.Request.Header.Clone()
	}
	return req, nil
}
