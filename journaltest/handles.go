package journaltest

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// uses are all the methods but Close.
func (e *exam) uses(ctx context.Context, j idem.Journal, in idem.Intent) map[string]error {
	errs := map[string]error{}
	_, _, errs["Begin"] = j.Begin(ctx, e.sending("late"))
	_, _, errs["ClaimDue"] = j.ClaimDue(ctx, e.now, ofMain)
	_, errs["Update"] = j.Update(ctx, e.ended(in, idem.StateSucceeded), e.answered(1), true)
	_, errs["Prune"] = j.Prune(ctx, e.now)
	return errs
}

var handleRules = []rule{
	{"two handles are two owners of one store", func(e *exam) {
		j, other := e.open(), e.open()
		mine, theirs := e.begin(j, e.sending("mine")), e.begin(other, e.sending("theirs"))
		require.True(e, e.refused(other, e.sending("mine")).Owned)
		require.True(e, e.refused(j, e.sending("theirs")).Owned)
		e.busy(other, e.ended(mine, idem.StateUnknown))
		e.busy(j, e.ended(theirs, idem.StateUnknown))
		require.Equal(e, []string{"mine", "theirs"}, e.listed(j, idem.Filter{}))
		require.Equal(e, []string{"mine", "theirs"}, e.listed(other, idem.Filter{}))
	}},
	{"Close gives up what is owned: pending stays pending, in_flight is doubt", func(e *exam) {
		j, other := e.open(), e.open()
		sending := e.begin(j, e.sending("sending"))
		e.begin(j, e.waiting("waiting"))
		e.left(j, "unknown", idem.StateUnknown)
		e.begin(j, e.sending("unknown"))
		require.NoError(e, j.Close())
		require.False(e, e.lookup(other, "sending").Owned)
		e.interrupted(other, sending, e.begin(other, e.sending("sending")))
		claimed, _ := e.claimDue(other, e.now, ofMain)
		require.ElementsMatch(e, []string{"waiting", "unknown"}, operations(claimed))
		for _, in := range claimed {
			require.Equal(e, in.Operation == "waiting", in.State == idem.StatePending)
			require.Zero(e, in.Deaths)
		}
	}},
	{"Close leaves other owners' rows alone", func(e *exam) {
		j, other := e.open(), e.open()
		in := e.begin(other, e.sending("a"))
		require.NoError(e, j.Close())
		require.True(e, e.refused(e.open(), e.sending("a")).Owned)
		e.update(other, e.ended(in, idem.StateSucceeded), nil)
	}},
	{"Close flushes what was posted, and the store outlives its handles", func(e *exam) {
		j := e.open()
		next := e.ended(e.begin(j, e.sending("a")), idem.StateSucceeded)
		e.post(j, next, e.answered(1))
		require.NoError(e, j.Close())
		j = e.open()
		e.same(next, e.refused(j, e.sending("a")))
		require.Equal(e, []idem.Attempt{*e.answered(1)}, e.attempts(j, next))
	}},
	{"Close may be called twice", func(e *exam) {
		j := e.open()
		e.begin(j, e.sending("a"))
		require.NoError(e, j.Close())
		require.NoError(e, j.Close())
	}},
	{"after Close every error matches ErrClosed and ErrJournal", func(e *exam) {
		j := e.open()
		in := e.begin(j, e.sending("a"))
		require.NoError(e, j.Close())
		errs := e.uses(e.Context(), j, in)
		_, errs["Update, posted"] = j.Update(e.Context(), e.ended(in, idem.StateSucceeded), nil, false)
		_, errs["Lookup"] = j.Lookup(e.Context(), "acct", "a")
		_, errs["List"] = j.List(e.Context(), idem.Filter{})
		_, errs["Attempts"] = j.Attempts(e.Context(), in)
		for method, err := range errs {
			require.ErrorIs(e, err, idem.ErrClosed, method)
			require.ErrorIs(e, err, idem.ErrJournal, method)
		}
		other := e.open()
		require.Equal(e, idem.StateInFlight, e.lookup(other, "a").State, "nothing was written")
		_, err := other.Lookup(e.Context(), "acct", "late")
		require.ErrorIs(e, err, idem.ErrNotFound)
	}},
	{"a context that ended before writes nothing, and says so", func(e *exam) {
		j, other := e.open(), e.open()
		in := e.begin(j, e.sending("a"))
		waiting := e.left(j, "waiting", idem.StateUnknown)
		old := e.old(j, "old", idem.StateSucceeded, 1)
		next := in
		next.Attempts = 2
		ctx, cancel := context.WithCancel(e.Context())
		cancel()
		errs := e.uses(ctx, j, waiting)
		_, errs["Update, claimed"] = j.Update(ctx, next, nil, true)
		for method, err := range errs {
			require.ErrorIs(e, err, context.Canceled, method)
			require.NotErrorIs(e, err, idem.ErrUnknownOutcome, "%s: nothing can have become durable", method)
		}
		_, err := other.Lookup(e.Context(), "acct", "late")
		require.ErrorIs(e, err, idem.ErrNotFound)
		require.False(e, e.lookup(other, "waiting").Owned, "nothing was claimed")
		for _, row := range []idem.Intent{in, waiting, old} {
			e.unwritten(other, row)
		}
		require.Len(e, e.attempts(other, waiting), 0)
		e.update(j, next, nil) // the call goes on
	}},
}
