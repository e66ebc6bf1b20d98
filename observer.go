package idem

import (
	"context"
	"time"
)

// Observer is told what happens, as it happens. Any field may be nil. The
// hooks are called by the goroutine that does the work, so they should be
// quick; they cannot change what happens, and they never see keys' uses,
// bodies, queries or credentials beyond the intent's public fields. They may
// be called concurrently. Calls that send nothing are not told of: those that
// were refused, or answered from the journal.
type Observer struct {
	// Recorded is called when an intent was made and is durable, before its
	// first send.
	Recorded func(context.Context, Intent)
	// Attempted is called when an attempt ended, with the intent as recorded.
	Attempted func(context.Context, Intent, Attempt)
	// Waiting is called before a wait between two attempts.
	Waiting func(context.Context, Intent, time.Duration)
	// Settled is called when an intent became final.
	Settled func(context.Context, Intent)
	// Held is called when an intent became held.
	Held func(context.Context, Intent)
}

func (o *Observer) recorded(ctx context.Context, in Intent) {
	if o != nil && o.Recorded != nil {
		o.Recorded(ctx, in)
	}
}

func (o *Observer) attempted(ctx context.Context, in Intent, a Attempt) {
	if o != nil && o.Attempted != nil {
		o.Attempted(ctx, in, a)
	}
}

func (o *Observer) waiting(ctx context.Context, in Intent, wait time.Duration) {
	if o != nil && o.Waiting != nil {
		o.Waiting(ctx, in, wait)
	}
}

// ended reports a state that a call or a resume left the intent in.
func (o *Observer) ended(ctx context.Context, in Intent) {
	switch {
	case o == nil:
	case in.State.Final() && o.Settled != nil:
		o.Settled(ctx, in)
	case in.State == StateHeld && o.Held != nil:
		o.Held(ctx, in)
	}
}
