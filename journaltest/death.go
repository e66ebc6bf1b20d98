package journaltest

import (
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

var deathRules = []rule{
	{"what a dead owner was sending comes back from Begin unknown, in doubt, interrupted", func(e *exam) {
		j, other := e.open(), e.open()
		before := e.begin(j, e.sending("a"))
		require.True(e, e.refused(other, e.sending("a")).Owned)
		e.kill(j)
		got := e.begin(other, e.sending("a"))
		e.interrupted(other, before, got)
		require.Greater(e, got.Version, before.Version)
		require.NotNil(e, got.Request)
		found := e.lookup(other, "a")
		require.Equal(e, idem.StateUnknown, found.State)
		require.True(e, found.Doubt)
		require.Equal(e, 1, found.Deaths)
	}},
	{"and from ClaimDue", func(e *exam) {
		j, other := e.open(), e.open()
		before := e.begin(j, e.sending("a"))
		e.kill(j)
		claimed, _ := e.claimDue(other, e.now, ofMain)
		require.Len(e, claimed, 1)
		e.interrupted(other, before, claimed[0])
		require.NotNil(e, claimed[0].Request)
	}},
	{"and by its ID and its adopted key", func(e *exam) {
		j, other := e.open(), e.open()
		want := e.sending("")
		want.Adopted = []byte("digest")
		adopted, named := e.begin(j, want), e.begin(j, e.sending("a"))
		e.kill(j)
		e.interrupted(other, adopted, e.begin(other, want))
		e.interrupted(other, named, e.begin(other, idem.Intent{ID: named.ID, Fingerprint: named.Fingerprint}))
	}},
	{"with a HoldReason it becomes held instead, while a living owner's stays in flight", func(e *exam) {
		j, other := e.open(), e.open()
		want := e.sending("a")
		doomed(&want)
		before := e.begin(j, want)
		require.Equal(e, idem.StateInFlight, e.refused(other, want).State)
		e.unwritten(other, before)
		e.kill(j)
		e.doomed(other, before, e.refused(other, want))
	}},
	{"and so it does in ClaimDue, which shows it once", func(e *exam) {
		j, other := e.open(), e.open()
		want := e.sending("a")
		doomed(&want)
		before := e.begin(j, want)
		due, _ := e.claimDue(other, e.now, ofMain)
		require.Empty(e, operations(due))
		e.kill(j)
		due, _ = e.claimDue(other, e.now, ofMain)
		require.Equal(e, []string{"a"}, operations(due))
		e.doomed(other, before, due[0])
	}},
	{"a new handle sees the death, too", func(e *exam) {
		j := e.open()
		before := e.begin(j, e.sending("a"))
		e.kill(j)
		other := e.open()
		e.interrupted(other, before, e.begin(other, e.sending("a")))
	}},
	{"reads of a dead owner's row write nothing", func(e *exam) {
		j, other := e.open(), e.open()
		before := e.begin(j, e.sending("a"))
		e.kill(j)
		found := e.lookup(other, "a")
		require.False(e, found.Owned)
		require.False(e, e.find(other, before.ID).Owned)
		require.Equal(e, idem.StateInFlight, found.State)
		require.Empty(e, e.attempts(other, before))
		e.unwritten(other, before)
	}},
	{"another fingerprint's call does not touch it", func(e *exam) {
		j, other := e.open(), e.open()
		before := e.begin(j, e.sending("a"))
		e.kill(j)
		want := e.sending("a")
		want.Fingerprint = []byte("another")
		got := e.refused(other, want)
		require.False(e, got.Owned)
		require.Equal(e, idem.StateInFlight, got.State)
		e.unwritten(other, before)
	}},
	{"pending, unknown and withdrawn rows of the dead stay what they are", func(e *exam) {
		j, other := e.open(), e.open()
		for _, state := range []idem.State{idem.StatePending, idem.StateUnknown, idem.StateWithdrawn} {
			e.left(j, string(state), state)
			e.begin(j, e.sending(string(state)))
		}
		e.begin(j, e.waiting("never sent"))
		e.kill(j)
		for _, operation := range []string{"pending", "unknown", "withdrawn", "never sent"} {
			before := e.lookup(other, operation)
			got := e.begin(other, e.sending(operation))
			require.Zero(e, got.Deaths, "a death is charged only to an attempt that had started")
			require.Equal(e, before.State, got.State)
			require.Equal(e, before.Doubt, got.Doubt)
			require.Empty(e, e.attempts(other, got))
		}
	}},
	{"pending and unknown rows of the dead are due", func(e *exam) {
		j, other := e.open(), e.open()
		e.begin(j, e.waiting("pending"))
		e.left(j, "unknown", idem.StateUnknown)
		e.left(j, "withdrawn", idem.StateWithdrawn)
		e.begin(j, e.sending("withdrawn"))
		claimed, _ := e.claimDue(j, e.now, ofMain)
		require.Len(e, claimed, 1)
		e.kill(j)
		claimed, next := e.claimDue(other, e.now, ofMain)
		require.ElementsMatch(e, []string{"pending", "unknown"}, operations(claimed))
		require.Zero(e, next)
		for _, in := range claimed {
			require.Zero(e, in.Deaths, "a claim is no attempt")
			require.Empty(e, e.attempts(other, in))
		}
	}},
	{"every death counts, and its attempt is noted", func(e *exam) {
		maker := e.open()
		before := e.begin(maker, e.waiting("a"))
		e.update(maker, e.ended(before, idem.StatePending), nil)
		for n := 1; n <= 3; n++ {
			j := e.open()
			claimed, _ := e.claimDue(j, e.now, ofMain)
			require.Len(e, claimed, 1)
			if n > 1 {
				e.interrupted(j, before, claimed[0])
			}
			next := claimed[0]
			next.State, next.Attempts = idem.StateInFlight, n
			before = e.update(j, next, nil)
			e.kill(j)
		}
		j := e.open()
		got := e.begin(j, e.sending("a"))
		require.Equal(e, 3, got.Deaths)
		attempts := e.attempts(j, got)
		require.Len(e, attempts, 3)
		for i, a := range attempts {
			require.Equal(e, i+1, a.Number)
			require.Equal(e, "interrupted", a.Decision)
		}
	}},
	{"a person may decide over a dead owner's row", func(e *exam) {
		j, other := e.open(), e.open()
		e.begin(j, e.sending("a"))
		e.kill(j)
		seen := e.lookup(other, "a")
		seen.State, seen.Settled, seen.By = idem.StateRejected, e.now, "ops"
		e.update(other, seen, nil)
		require.Equal(e, "ops", e.refused(e.open(), e.sending("a")).By)
	}},
	{"the death of one handle is not another's", func(e *exam) {
		j, other, third := e.open(), e.open(), e.open()
		e.begin(j, e.sending("dead"))
		living := e.begin(other, e.sending("living"))
		e.kill(j)
		claimed, _ := e.claimDue(third, e.now, ofMain)
		require.Equal(e, []string{"dead"}, operations(claimed))
		require.True(e, e.refused(third, e.sending("living")).Owned)
		e.busy(third, e.ended(living, idem.StateUnknown))
		e.unwritten(third, living)
		e.update(other, e.ended(living, idem.StateSucceeded), nil)
	}},
	{"what was durable is there, and what was posted before it", func(e *exam) {
		j, other := e.open(), e.open()
		posted := e.ended(e.begin(j, e.sending("posted")), idem.StateSucceeded)
		e.post(j, posted, e.answered(1))
		durable := e.ended(e.begin(j, e.sending("durable")), idem.StateWithdrawn)
		e.update(j, durable, e.answered(1))
		e.kill(j)
		e.same(posted, e.refused(other, e.sending("posted")))
		e.same(durable, e.begin(other, e.sending("durable")))
		require.Len(e, e.attempts(other, posted), 1)
	}},
	{"a dead owner's withdrawn row can be superseded", func(e *exam) {
		j, other := e.open(), e.open()
		first := e.left(j, "a", idem.StateWithdrawn)
		e.begin(j, e.sending("a"))
		e.kill(j)
		require.Equal(e, 2, e.begin(other, e.renewal("a", first.Key)).Generation)
	}},
	{"a dead owner's in_flight row cannot", func(e *exam) {
		j, other := e.open(), e.open()
		first := e.begin(j, e.sending("a"))
		e.kill(j)
		require.Equal(e, first.ID, e.refused(other, e.renewal("a", first.Key)).ID)
		e.unwritten(other, first)
	}},
}
