package idem

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// What is held in doubt is read again after a while: the effect may show late.
const (
	verifyEvery   = time.Minute   // at most, by Run; the first wait of each
	verifyLongest = 6 * time.Hour // between two reads of one intent
	verifyAtOnce  = 100           // reads of one pass
)

// byVerify is who settled an intent that a read proved.
const byVerify = "verify"

// verified asks Verify before a resend of what may have executed. It returns an
// answer where that ends the exchange.
func (x *exchange) verified() *answer {
	if x.verify == nil || !x.in.Doubt {
		return nil
	}
	// Put off before, so that a read that kills the process does not come first
	// again.
	later := x.in
	later.Wait = x.t.Retry.backoff(x.in.Resumes + 1)
	later.Due = x.t.clock.Now().Add(later.Wait)
	later, err := x.record(later, nil, true)
	if err != nil {
		return x.end("not_verified", err)
	}
	later.Due, later.Wait = time.Time{}, 0 // for this resend, if it comes to one
	x.in = later
	found, err := x.read()
	switch {
	case err == nil && found:
		return x.proven()
	case err == nil:
		return nil
	}
	if may := x.mayResend(); !may.send {
		return x.refused(may)
	}
	return x.tryLater("not_verified", err, HoldExhausted)
}

// read asks Verify whether the effect is there.
func (x *exchange) read() (found bool, err error) {
	ctx, cancel := context.WithTimeout(x.ctx, orDefault(x.t.Retry.AttemptTimeout, defaultAttemptTimeout))
	defer cancel()
	state, err := x.verify(ctx, shown(x.in))
	switch {
	case err != nil:
		return false, fmt.Errorf("verify: %w", safe(err, x.hidden(nil)))
	case state == StateSucceeded:
		return true, nil
	case state == StateUnknown:
		return false, nil
	}
	return false, fmt.Errorf("verify: Client.Verify returned state %q; a read proves %q, or it leaves %q", state, StateSucceeded, StateUnknown)
}

// proven settles the intent by a read that found its effect.
func (x *exchange) proven() *answer {
	next := x.in
	next.State, next.HoldReason, next.Doubt, next.Claimed = StateSucceeded, "", false, false
	next.Settled, next.Due, next.Wait = x.t.clock.Now(), time.Time{}, 0
	next.Outcome, next.By = &Outcome{}, byVerify
	next.Notify = x.owes(next)
	recorded, err := x.record(next, nil, true)
	if err != nil {
		in := x.in
		in.State, in.Doubt = StateUnknown, true
		a := &answer{result: Result{Intent: shown(in), err: explain(in, journalError(err))}}
		a.err = a.result.err
		return a
	}
	x.ended(recorded, Attempt{})
	return &answer{result: Result{Intent: shown(recorded), Recorded: true}}
}

// verifyHeld reads what is held in doubt and due for a read. Nobody claims it:
// a decision, or another read that is quicker, wins.
func (s *sweep) verifyHeld(now time.Time) {
	if s.c.Verify == nil {
		return
	}
	reads := 0
	f := Filter{Name: s.t.Name, States: []State{StateHeld}, Limit: defaultLimit}
	for s.going.Err() == nil && reads < verifyAtOnce {
		page, err := s.t.Journal.List(s.ctx, f)
		if err != nil {
			s.fail(err)
			return
		}
		for _, in := range page {
			if in.Name == s.t.Name && in.Doubt && in.HoldReason != HoldChecksum && remaining(in, now) == 0 && reads < verifyAtOnce {
				reads++
				s.verifyOne(in)
			}
		}
		if len(page) < f.Limit {
			return
		}
		f.After = page[len(page)-1].ID
	}
}

// verifyOne reads one held intent.
func (s *sweep) verifyOne(in Intent) {
	x := &exchange{t: s.t, ctx: s.ctx, in: in, want: in, verify: s.c.Verify, resumed: true}
	found, err := x.read()
	if err == nil && found {
		if a := x.proven(); a.err == nil {
			s.add(func(r *Report) { r.Settled++ })
		}
		return
	}
	if err != nil {
		s.t.log().LogAttrs(s.ctx, slog.LevelWarn, "a held operation could not be verified",
			slog.String("operation", in.Operation), slog.String("err", err.Error()))
	}
	in.Wait = min(max(2*in.Wait, verifyEvery), verifyLongest)
	in.Due = s.t.clock.Now().Add(in.Wait)
	_, _ = x.record(in, nil, false) // moved meanwhile: fine
}
