package journaltest

import (
	"context"
	"strconv"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// cutShort writes next with a context that has ended, which must fail.
func (e *exam) cutShort(j idem.Journal, next idem.Intent) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	_, err := j.Update(ctx, next, nil, true)
	require.ErrorIs(e, err, context.Canceled)
}

// callRules are about running calls, posted writes and notes of attempts.
var callRules = []rule{
	{"a call that keeps its claim goes on", func(e *exam) {
		j, other := e.open(), e.open()
		in := e.begin(j, e.waiting("a"))
		for n := range 3 {
			in.State, in.Attempts = idem.StateInFlight, n+1
			in = e.update(j, in, nil)
			require.True(e, in.Claimed)
			require.True(e, e.lookup(j, "a").Owned)
			require.True(e, e.refused(other, e.sending("a")).Owned)
		}
		e.update(j, e.ended(in, idem.StateSucceeded), e.answered(3))
	}},
	{"a call that gives its claim up ends: anybody may go on", func(e *exam) {
		j, other := e.open(), e.open()
		before := e.left(j, "a", idem.StateUnknown)
		require.False(e, e.lookup(j, "a").Owned)
		require.False(e, e.lookup(other, "a").Owned)
		got := e.begin(other, e.sending("a"))
		require.Zero(e, got.Deaths)
		e.same(before, got)
		e.update(other, e.ended(got, idem.StateUnknown), nil)
		e.begin(j, e.sending("a"))
	}},
	{"a call ends even when its last write fails: the row is a dead owner's", func(e *exam) {
		j := e.open()
		sending, waiting := e.begin(j, e.sending("sending")), e.begin(j, e.waiting("waiting"))
		e.cutShort(j, e.ended(sending, idem.StateSucceeded))
		e.cutShort(j, e.ended(waiting, idem.StateWithdrawn))
		found := e.lookup(j, "sending")
		require.False(e, found.Owned)
		require.Equal(e, idem.StateInFlight, found.State, "a read writes nothing")
		got := e.begin(j, e.sending("sending"))
		e.interrupted(j, sending, got)
		claimed, _ := e.claimDue(j, e.now, ofMain)
		require.Equal(e, []string{"waiting"}, operations(claimed))
		require.Equal(e, idem.StatePending, claimed[0].State)
	}},
	{"a failed write that would keep the claim ends nothing", func(e *exam) {
		j := e.open()
		in := e.begin(j, e.sending("a"))
		next := in
		next.Attempts = 2
		e.cutShort(j, next)
		require.True(e, e.refused(j, e.sending("a")).Owned)
		e.unwritten(j, in)
		e.update(j, next, nil)
	}},
	{"an earlier call's failed write does not end the call that has the row now", func(e *exam) {
		j := e.open()
		old := e.begin(j, e.sending("a"))
		e.update(j, e.ended(old, idem.StateUnknown), nil)
		current := e.begin(j, e.sending("a"))
		e.busy(j, e.ended(old, idem.StateUnknown))
		require.True(e, e.refused(j, e.sending("a")).Owned)
		e.update(j, e.ended(current, idem.StateUnknown), nil)
	}},
	{"what is posted is seen at once through the handle", func(e *exam) {
		j := e.open()
		for i := range 20 {
			operation := strconv.Itoa(i)
			in := e.begin(j, e.sending(operation))
			next := e.ended(in, idem.StateSucceeded)
			e.post(j, next, e.answered(1))
			var got idem.Intent
			switch i % 4 {
			case 0:
				got = e.lookup(j, operation)
				got.Request = next.Request
			case 1:
				got = e.find(j, in.ID)
				got.Request, got.Outcome.Body = next.Request, next.Outcome.Body
			case 2:
				require.Equal(e, []idem.Attempt{*e.answered(1)}, e.attempts(j, in))
				continue
			case 3:
				got = e.refused(j, e.sending(operation))
			}
			require.False(e, got.Owned)
			e.same(next, got)
		}
	}},
	{"what is posted may be posted over", func(e *exam) {
		j := e.open()
		in := e.begin(j, e.sending("a"))
		for n := 2; n < 6; n++ {
			in.Attempts = n
			in = e.post(j, in, nil)
		}
		e.post(j, e.ended(in, idem.StateUnknown), nil)
		got := e.begin(j, e.sending("a"))
		require.Equal(e, 5, got.Attempts)
		require.Equal(e, idem.StateUnknown, got.State)
	}},
	{"what was posted is there for others after a durable write", func(e *exam) {
		j, other := e.open(), e.open()
		next := e.ended(e.begin(j, e.sending("a")), idem.StateSucceeded)
		e.post(j, next, e.answered(1))
		e.begin(j, e.sending("b"))
		e.same(next, e.refused(other, e.sending("a")))
		require.Len(e, e.attempts(other, next), 1)
	}},
	{"attempts are noted, and come by number", func(e *exam) {
		j := e.open()
		in := e.begin(j, e.sending("a"))
		want := make([]idem.Attempt, 3)
		for _, n := range []int{2, 1, 3} {
			a := e.answered(n)
			a.Phase, a.StatusCode, a.Decision, a.Error = "maybe_sent", 0, "retry", "connection reset"
			want[n-1] = *a
			in.Attempts = 3
			in = e.update(j, in, a)
		}
		in = e.update(j, in, nil)
		require.Equal(e, want, e.attempts(j, in))
		require.Equal(e, want, e.attempts(e.open(), in))
	}},
	{"the late answer of an attempt that was noted as interrupted is taken, and noted", func(e *exam) {
		j, other := e.open(), e.open()
		former := e.begin(j, e.sending("a"))
		e.update(j, e.ended(former, idem.StateInFlight), nil)
		e.interrupted(other, former, e.begin(other, e.sending("a")))
		e.update(j, e.ended(former, idem.StateRejected), e.answered(1))
		require.Equal(e, idem.StateRejected, e.lookup(other, "a").State)
		require.Equal(e, []idem.Attempt{*e.answered(1)}, e.attempts(other, former))
	}},
}
