package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/contract"
)

// Release lets a held intent go on: back to pending, or to unknown where an
// attempt may have executed, with fresh ResumeAttempts. It is refused in doubt
// where sending again is not safe: past the key's life (see ReleaseExpired), or
// at a server that is not known to honour keys.
//
// The client needs the contracts of the application that made the intent.
//
// Like every decision it names the intent as it was seen, such as by List, and
// who decides and why; if the intent moved meanwhile, nothing is done and the
// error matches [ErrBusy]. It returns the intent as recorded, durably.
func (c *Client) Release(ctx context.Context, seen Intent, by, note string) (Intent, error) {
	return c.decide(ctx, seen, by, note, func(next *Intent, rules *contract.Contract, now time.Time) string {
		switch {
		case seen.State != StateHeld:
			return "it is not held"
		case seen.HoldReason == HoldBodyNotKept:
			return "the journal has no body to send; a call with the same request goes on as it is"
		case seen.Doubt && !keyed(seen, rules):
			return "an attempt may have executed, and this client's Transport.Contracts has no contract by which the server honours keys: use the application's own, or resolve it"
		case seen.Doubt && !now.Before(lastSend(seen, rules)):
			return "an attempt may have executed, and the provider may have forgotten the key; resolve it, or ReleaseExpired"
		}
		release(next)
		return ""
	})
}

// ReleaseExpired lets an intent go on that is held: expired, or unknown and as
// old, as a call that was refused for it has left it, and restarts the key's
// life. The provider may have forgotten the key, so this MAY EXECUTE A SECOND
// TIME: look at the provider's side first.
func (c *Client) ReleaseExpired(ctx context.Context, seen Intent, by, note string) (Intent, error) {
	return c.decide(ctx, seen, by, note, func(next *Intent, rules *contract.Contract, now time.Time) string {
		held := seen.State == StateHeld && seen.HoldReason == HoldExpired
		old := seen.State == StateUnknown && keyed(seen, rules) && !now.Before(lastSend(seen, rules))
		switch {
		case !held && !old:
			return fmt.Sprintf("it is %s (%s) and not held for expired: Release is for the rest", seen.State, seen.HoldReason)
		case !keyed(seen, rules):
			return "this client's Transport.Contracts has no contract by which the server honours keys: use the application's own"
		}
		release(next)
		next.FirstSent = now
		next.Expires = lastSend(*next, rules)
		return ""
	})
}

func release(next *Intent) {
	next.State, next.HoldReason = StatePending, ""
	if next.Doubt {
		next.State = StateUnknown
	}
	next.Resumes, next.Deaths = 0, 0
	next.Settled, next.Due, next.Wait = time.Time{}, time.Time{}, 0
}

// Resolve records what a person found out at the provider: to is
// StateSucceeded or StateRejected. It is final. A later call of the operation
// is told so, without an answer ([ErrNotKept]). OnSettled is told where the
// intent was prepared by a client with one, or where this client has one. See Release for seen, by and
// note.
func (c *Client) Resolve(ctx context.Context, seen Intent, to State, by, note string) (Intent, error) {
	return c.decide(ctx, seen, by, note, func(next *Intent, _ *contract.Contract, now time.Time) string {
		switch {
		case !to.Final():
			return "it can be resolved to succeeded or rejected only"
		case seen.State == StateWithdrawn:
			return "it is withdrawn: nothing was executed"
		}
		next.State, next.HoldReason, next.Doubt = to, "", false
		next.Settled, next.Due, next.Wait = now, time.Time{}, 0
		next.Outcome, next.Notify = &Outcome{}, next.Notify || c.Transport.listeners.Load() > 0
		return ""
	})
}

// Withdraw gives an intent up of which nothing can have executed. It is
// refused in doubt. A new call of the operation sends it all the same, under
// the same key. See Release for seen, by and note.
func (c *Client) Withdraw(ctx context.Context, seen Intent, by, note string) (Intent, error) {
	return c.decide(ctx, seen, by, note, func(next *Intent, _ *contract.Contract, now time.Time) string {
		switch {
		case seen.Doubt || seen.State == StateInFlight:
			return "an attempt may have executed; resolve it instead"
		case seen.State == StateWithdrawn:
			return "it is withdrawn already"
		}
		next.State, next.HoldReason, next.Notify = StateWithdrawn, "", false
		next.Settled, next.Due, next.Wait = now, time.Time{}, 0
		return ""
	})
}

// decide records a person's decision, unless change says why not.
func (c *Client) decide(ctx context.Context, seen Intent, by, note string, change func(*Intent, *contract.Contract, time.Time) string) (Intent, error) {
	if err := c.usable(); err != nil {
		return seen, err
	}
	t := c.Transport
	if err := t.ready(); err != nil {
		return seen, t.unusable(ctx, seen.Operation, err)
	}
	var class error
	if !seen.State.Final() {
		class = ErrUnknownOutcome
	}
	refuse := func(text string, why error, also ...error) (Intent, error) {
		return seen, failed(seen, class, why, "decision refused, nothing was changed: "+text, also...)
	}
	req, err := t.asRequest(ctx, seen)
	switch {
	case by == "":
		return refuse("who decides must be named", nil)
	case seen.State.Final():
		return refuse("it is "+string(seen.State)+", which is final", nil)
	case err != nil:
		return refuse("its request cannot be read", err)
	case seen.Owned || seen.Claimed:
		return refuse("a call is at it", ErrBusy)
	}
	next := seen
	if text := change(&next, t.contracts().Resolve(req), t.clock.Now()); text != "" {
		return refuse(text, nil)
	}
	next.By, next.Note, next.Claimed = by, note, false
	recorded, err := c.decided(ctx, seen, next)
	switch {
	case errors.Is(err, ErrBusy):
		return refuse("it has moved since it was seen, or a call is at it", err, ErrBusy)
	case err != nil:
		return seen, failed(seen, class, journalError(err), "the decision could not be recorded")
	}
	t.Observer.ended(ctx, shown(recorded))
	t.wake()
	return recorded, nil
}

// decided records a decision over the intent as it was seen. A final one claims
// it first, since a journal takes a final write for a true answer, which wins
// over whatever has moved.
func (c *Client) decided(ctx context.Context, seen, next Intent) (Intent, error) {
	journal := c.Transport.Journal
	if !next.State.Final() {
		return journal.Update(ctx, next, nil, true)
	}
	seen.Claimed = true
	claimed, err := journal.Update(ctx, seen, nil, false)
	if err != nil {
		return seen, err
	}
	next.Version = claimed.Version
	return journal.Update(context.WithoutCancel(ctx), next, nil, true)
}
