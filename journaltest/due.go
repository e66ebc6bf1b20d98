package journaltest

import (
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

func operations(list []idem.Intent) (names []string) {
	for _, in := range list {
		names = append(names, in.Operation)
	}
	return names
}

func dueAt(at time.Time) func(*idem.Intent) { return func(in *idem.Intent) { in.Due = at } }

func owed(in *idem.Intent) { in.Notify = true }

// doomed is for a row in flight that is held once its owner is dead.
func doomed(in *idem.Intent) { in.HoldReason = idem.HoldNotKept }

// doomed demands that such a row was held.
func (e *exam) doomed(j idem.Journal, before, got idem.Intent) {
	e.Helper()
	require.Equal(e, before.ID, got.ID)
	require.Equal(e, idem.StateHeld, got.State)
	require.Equal(e, idem.HoldNotKept, got.HoldReason)
	require.True(e, got.Doubt, "what was being sent is in doubt")
	require.False(e, got.Settled.IsZero(), "the instant of its settlement")
	require.False(e, got.Owned)
	require.Greater(e, got.Version, before.Version)
	e.unwritten(j, got)
	claimed, _ := e.claimDue(j, e.now, ofMain)
	require.Empty(e, claimed, "held until a person decides")
}

var dueRules = []rule{
	{"pending, unknown, in_flight without a call and owed rows are claimed, and no others", func(e *exam) {
		j := e.open()
		before := map[string]idem.Intent{
			"pending":   e.left(j, "pending", idem.StatePending),
			"unknown":   e.left(j, "unknown", idem.StateUnknown),
			"in_flight": e.left(j, "in_flight", idem.StateInFlight),
			"succeeded": e.left(j, "succeeded", idem.StateSucceeded, owed),
			"rejected":  e.left(j, "rejected", idem.StateRejected, owed),
		}
		for _, state := range []idem.State{idem.StateHeld, idem.StateWithdrawn, idem.StateSucceeded, idem.StateRejected} {
			e.left(j, "not "+string(state), state)
		}
		claimed, next := e.claimDue(j, e.now, ofMain)
		require.Zero(e, next)
		require.ElementsMatch(e, []string{"pending", "unknown", "in_flight", "succeeded", "rejected"}, operations(claimed))
		for _, in := range claimed {
			was := before[in.Operation]
			require.NotNil(e, in.Request, "what is sent comes with it")
			require.Greater(e, in.Version, was.Version, "a claim is a write")
			if in.Operation == "in_flight" {
				e.interrupted(j, was, in)
			} else {
				e.same(was, in)
			}
			require.True(e, e.lookup(j, in.Operation).Owned)
		}
		claimed, _ = e.claimDue(e.open(), e.now, ofMain)
		require.Empty(e, claimed, "they have a living owner now")
	}},
	{"held and withdrawn rows are not claimed, whatever they owe", func(e *exam) {
		j := e.open()
		for _, state := range []idem.State{idem.StateHeld, idem.StateWithdrawn} {
			before := e.left(j, string(state), state, owed)
			claimed, next := e.claimDue(j, e.now, ofMain)
			require.Empty(e, operations(claimed))
			require.Zero(e, next)
			e.unwritten(j, before)
		}
	}},
	{"an in_flight row with a HoldReason and no call becomes held, and comes back once, unclaimed", func(e *exam) {
		j := e.open()
		before := e.left(j, "a", idem.StateInFlight, doomed)
		due, next := e.claimDue(j, e.now, ofMain)
		require.Equal(e, []string{"a"}, operations(due))
		require.Zero(e, next)
		e.doomed(j, before, due[0])
		e.same(e.lookup(j, "a"), due[0])
	}},
	{"what is not due yet stays, and next is the first of it", func(e *exam) {
		j := e.open()
		e.left(j, "now", idem.StateUnknown, dueAt(e.now))
		e.left(j, "hour", idem.StateUnknown, dueAt(e.now.Add(time.Hour)))
		e.left(j, "minute", idem.StatePending, dueAt(e.now.Add(time.Minute)))
		e.left(j, "held", idem.StateHeld, dueAt(e.now.Add(time.Second)))
		e.left(j, "withdrawn", idem.StateWithdrawn, dueAt(e.now.Add(time.Second)))
		claimed, next := e.claimDue(j, e.now, ofMain)
		require.Equal(e, []string{"now"}, operations(claimed), "due at now is due")
		require.Equal(e, e.now.Add(time.Minute), next)
		claimed, next = e.claimDue(j, e.now.Add(time.Minute-1), ofMain)
		require.Empty(e, claimed)
		require.Equal(e, e.now.Add(time.Minute), next)
		claimed, next = e.claimDue(j, e.now.Add(time.Minute), ofMain)
		require.Equal(e, []string{"minute"}, operations(claimed))
		require.Equal(e, e.now.Add(time.Hour), next)
		claimed, next = e.claimDue(j, e.now.Add(time.Hour), ofMain)
		require.Equal(e, []string{"hour"}, operations(claimed))
		require.Zero(e, next, "nothing waits")
	}},
	{"the name is exact, and empty is a name", func(e *exam) {
		j := e.open()
		for _, name := range []string{"main", "", "mai"} {
			want := e.waiting("of " + name)
			want.Name = name
			e.update(j, e.ended(e.begin(j, want), idem.StatePending), nil)
			want = e.waiting("later of " + name)
			want.Name = name
			later := e.ended(e.begin(j, want), idem.StatePending)
			later.Due = e.now.Add(time.Duration(len(name)+1) * time.Minute)
			e.update(j, later, nil)
		}
		for _, name := range []string{"", "main", "mai"} {
			claimed, next := e.claimDue(j, e.now, idem.Filter{Name: name})
			require.Equal(e, []string{"of " + name}, operations(claimed))
			require.Equal(e, e.now.Add(time.Duration(len(name)+1)*time.Minute), next, "next is of that name")
		}
	}},
	{"a scope narrows; states are ignored", func(e *exam) {
		j := e.open()
		want := e.waiting("elsewhere")
		want.Scope = "other"
		e.update(j, e.ended(e.begin(j, want), idem.StatePending), nil)
		e.left(j, "here", idem.StateUnknown)
		claimed, _ := e.claimDue(j, e.now, idem.Filter{Name: "main", Scope: "other", States: []idem.State{idem.StateHeld}})
		require.Equal(e, []string{"elsewhere"}, operations(claimed))
		claimed, _ = e.claimDue(j, e.now, idem.Filter{Name: "main", Scope: "no such"})
		require.Empty(e, claimed)
		claimed, _ = e.claimDue(j, e.now, ofMain)
		require.Equal(e, []string{"here"}, operations(claimed))
	}},
	{"a limit is kept, and zero is 100", func(e *exam) {
		j := e.open()
		for i := range 103 {
			e.begin(j, e.waiting(strconv.Itoa(i)))
		}
		require.NoError(e, j.Close()) // gives them all up
		j = e.open()
		claimed, _ := e.claimDue(j, e.now, idem.Filter{Name: "main", Limit: 2})
		require.Len(e, claimed, 2)
		claimed, _ = e.claimDue(j, e.now, ofMain)
		require.Len(e, claimed, 100)
		claimed, _ = e.claimDue(j, e.now, ofMain)
		require.Len(e, claimed, 1)
	}},
	{"living owners' rows are passed over", func(e *exam) {
		j, other := e.open(), e.open()
		sending := e.begin(j, e.sending("sending"))
		waiting := e.begin(j, e.waiting("waiting"))
		for _, h := range []idem.Journal{j, other} {
			claimed, _ := e.claimDue(h, e.now, ofMain)
			require.Empty(e, operations(claimed))
		}
		e.unwritten(other, sending)
		e.unwritten(other, waiting)
	}},
	{"a claim is no attempt", func(e *exam) {
		j := e.open()
		before := e.left(j, "a", idem.StateUnknown)
		for range 3 {
			claimed, _ := e.claimDue(j, e.now, ofMain)
			require.Len(e, claimed, 1)
			require.Equal(e, before.Attempts, claimed[0].Attempts)
			require.Zero(e, claimed[0].Deaths)
			require.Zero(e, claimed[0].Resumes)
			claimed[0].Claimed = false
			e.update(j, claimed[0], nil)
		}
		require.Empty(e, e.attempts(j, before))
	}},
	{"what Begin claimed is not due to others, and the other way round", func(e *exam) {
		j, other := e.open(), e.open()
		e.left(j, "a", idem.StateUnknown)
		claimed, _ := e.claimDue(other, e.now, ofMain)
		require.Len(e, claimed, 1)
		require.True(e, e.refused(j, e.sending("a")).Owned)
		e.update(other, e.ended(claimed[0], idem.StateUnknown), nil)
		e.begin(j, e.sending("a"))
		claimed, _ = e.claimDue(other, e.now, ofMain)
		require.Empty(e, claimed)
	}},
}
