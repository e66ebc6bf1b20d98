package journaltest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// next makes the next generation of in, and leaves it rejected.
func (e *exam) next(j idem.Journal, in idem.Intent, changes ...func(*idem.Intent)) idem.Intent {
	e.Helper()
	want := e.renewal(in.Operation, in.Key)
	want.Scope = in.Scope
	next := e.ended(e.begin(j, want), idem.StateRejected)
	require.Equal(e, in.Generation+1, next.Generation)
	for _, change := range changes {
		change(&next)
	}
	return e.update(j, next, nil)
}

// told ends a claim: the notification was given, or could not be.
func (e *exam) told(j idem.Journal, in idem.Intent, given bool) {
	e.Helper()
	in.Claimed, in.Notify = false, !given
	e.update(j, in, nil)
}

// tells demands that just that generation of "a" is claimed.
func (e *exam) tells(j idem.Journal, generation int) idem.Intent {
	e.Helper()
	claimed, _ := e.claimDue(j, e.now, ofMain)
	require.Equal(e, []string{"a"}, operations(claimed))
	require.Equal(e, generation, claimed[0].Generation)
	return claimed[0]
}

var tellRules = []rule{
	{"an owed notification is due until it was given, with its outcome", func(e *exam) {
		j := e.open()
		before := e.left(j, "a", idem.StateSucceeded, owed)
		claimed, _ := e.claimDue(j, e.now, ofMain)
		require.Len(e, claimed, 1)
		e.same(before, claimed[0])
		e.told(j, claimed[0], false)
		claimed, _ = e.claimDue(j, e.now, ofMain)
		require.Len(e, claimed, 1)
		e.told(j, claimed[0], true)
		claimed, next := e.claimDue(j, e.now, ofMain)
		require.Empty(e, claimed)
		require.Zero(e, next)
		require.False(e, e.lookup(j, "a").Notify)
	}},
	{"an operation tells of one generation at a time, the oldest first", func(e *exam) {
		j, other := e.open(), e.open()
		second := e.next(j, e.left(j, "a", idem.StateRejected, owed), owed)
		e.next(j, second, owed)
		first := e.tells(j, 1)
		for _, h := range []idem.Journal{j, other} {
			claimed, next := e.claimDue(h, e.now, ofMain)
			require.Empty(e, operations(claimed), "a living owner tells of the first")
			require.Zero(e, next)
		}
		e.told(j, first, false)
		e.told(other, e.tells(other, 1), true)
		e.told(other, e.tells(other, 2), false)
		e.told(j, e.tells(j, 2), true)
		e.told(j, e.tells(j, 3), true)
		claimed, _ := e.claimDue(j, e.now, ofMain)
		require.Empty(e, operations(claimed))
	}},
	{"it waits for no other operation, and for nothing that is never told", func(e *exam) {
		j := e.open()
		e.left(j, "first", idem.StateRejected, owed)
		e.left(j, "", idem.StateSucceeded, owed)
		e.left(j, "", idem.StateRejected, owed)
		e.next(j, e.left(j, "told", idem.StateRejected), owed)
		e.next(j, e.left(j, "withdrawn", idem.StateWithdrawn, owed), owed)
		want := e.sending("first") // of another account
		want.Scope = "other"
		e.next(j, e.update(j, e.ended(e.begin(j, want), idem.StateRejected), nil), owed)
		claimed, _ := e.claimDue(j, e.now, ofMain)
		require.ElementsMatch(e, []string{"first", "", "", "told", "withdrawn", "first"}, operations(claimed))
	}},
	{"next is when the oldest generation's notification is due", func(e *exam) {
		j := e.open()
		hour, minute := e.now.Add(time.Hour), e.now.Add(time.Minute)
		first := e.left(j, "a", idem.StateRejected, owed, dueAt(hour))
		e.next(j, e.next(j, first, owed), owed, dueAt(minute))
		claimed, next := e.claimDue(j, e.now, ofMain)
		require.Empty(e, claimed)
		require.Equal(e, hour, next, "what cannot be had yet is not waited for")
		claimed, next = e.claimDue(j, hour, ofMain)
		require.Len(e, claimed, 1)
		require.Equal(e, first.ID, claimed[0].ID)
		require.Zero(e, next)
		e.told(j, claimed[0], true)
		e.told(j, e.tells(j, 2), true)
		claimed, next = e.claimDue(j, e.now, ofMain)
		require.Empty(e, claimed)
		require.Equal(e, minute, next)
	}},
}

var tellForTheDeadRules = []rule{
	{"a notification that the dead did not give is due again, before the next generation's", func(e *exam) {
		j, other := e.open(), e.open()
		e.next(j, e.left(j, "a", idem.StateRejected, owed), owed)
		e.tells(j, 1)
		e.kill(j)
		again := e.tells(other, 1)
		require.Equal(e, idem.StateRejected, again.State)
		require.Zero(e, again.Deaths)
		e.told(other, again, true)
		e.tells(other, 2)
	}},
}
