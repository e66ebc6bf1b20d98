package idem

import (
	"context"
	"errors"
	"time"
)

// standingPatience bounds the look at the journal that a refused call takes.
const standingPatience = 50 * time.Millisecond

// standing is what the journal knows of an operation whose call is refused
// before it could claim anything, and what the caller may be told: "not sent"
// is never said of an operation that an earlier call may have executed.
func (t *Transport) standing(ctx context.Context, want Intent) (Intent, error) {
	none := shown(want)
	none.State, none.Attempts, none.Key = "", 0, ""
	none.FirstSent, none.Expires = time.Time{}, time.Time{}
	if want.Operation == "" && want.Adopted == nil || t.Journal == nil {
		return none, ErrNotSent
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), standingPatience)
	defer cancel()
	var found Intent
	err := errors.ErrUnsupported
	if j, ok := t.Journal.(interface {
		known(context.Context, Intent) (Intent, error)
	}); ok {
		found, err = j.known(ctx, want)
	} else if want.Operation != "" {
		found, err = t.Journal.Lookup(ctx, want.Scope, want.Operation)
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return none, ErrNotSent
	case err != nil:
		return none, ErrUnknownOutcome
	case found.State.Final():
		return shown(found), nil
	case found.State == StateWithdrawn:
		return shown(found), ErrNotSent
	}
	return shown(found), ErrUnknownOutcome
}

// refusal is the error of a call that sent nothing and claimed nothing.
func refusal(in Intent, class, why error) *OperationError {
	text := "refused, nothing was sent"
	switch {
	case class == ErrUnknownOutcome && in.State == "":
		text = "nothing was sent by this call, and whether the operation is recorded could not be read from the journal: call it again"
	case class == ErrUnknownOutcome:
		text = "refused, this call sent nothing; but the operation is " + string(in.State) + ", and may have been executed"
	case class == nil:
		text = "refused, this call sent nothing; the operation is " + string(in.State)
	}
	return failed(in, class, why, text)
}
