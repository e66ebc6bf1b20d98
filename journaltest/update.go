package journaltest

import (
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
)

// answered is the note of an attempt that got an answer.
func (e *exam) answered(number int) *idem.Attempt {
	return &idem.Attempt{
		Number: number, Started: e.now, Ended: e.now.Add(time.Second), Phase: "answered", StatusCode: 402, Decision: "rejected",
	}
}

var updateRules = []rule{
	{"the hot part is written, and nothing else", func(e *exam) {
		j := e.open()
		made := e.begin(j, e.sending("a"))
		next := made
		next.State, next.Doubt, next.HoldReason = idem.StateHeld, true, idem.HoldPoison
		next.Attempts, next.Deaths, next.Resumes = 4, 2, 3
		next.FirstSent, next.Due, next.Wait = e.now.Add(1), e.now.Add(time.Hour), time.Hour
		next.Expires, next.Settled = e.now.Add(2*time.Hour), e.now.Add(time.Minute)
		next.By, next.Note, next.Prepared, next.Notify, next.Claimed = "ops", "seen", true, true, false
		wrote := e.update(j, next, nil)
		want := next
		want.Version = wrote.Version
		require.Equal(e, want, wrote, "next comes back with its new version")

		cold := wrote
		cold.Scope, cold.Operation, cold.Key, cold.Generation = "x", "x", "x", 7
		cold.Name, cold.Provider, cold.Method, cold.URL, cold.Created = "x", "x", "x", "x", e.now.Add(time.Hour)
		cold.Fingerprint, cold.Adopted, cold.Credential, cold.Renews = []byte("x"), []byte("x"), []byte("x"), "x"
		cold.Place, cold.Retention, cold.Withheld = contract.Place{Header: "X"}, time.Second, []string{"x"}
		cold.Request = &idem.StoredRequest{URL: "http://x/", Body: []byte("x")}
		e.update(j, cold, nil)
		e.same(next, e.refused(j, e.sending("a")))
	}},
	{"an outcome is written with a final state only", func(e *exam) {
		j := e.open()
		in := e.begin(j, e.sending("a"))
		in.Outcome = e.ended(in, idem.StateSucceeded).Outcome
		in = e.update(j, in, nil)
		in = e.post(j, in, nil)
		require.Nil(e, e.lookup(j, "a").Outcome)
		e.update(j, e.ended(in, idem.StateUnknown), nil)
		require.Nil(e, e.begin(j, e.sending("a")).Outcome)
	}},
	{"zero is written as well", func(e *exam) {
		j := e.open()
		want := e.sending("a")
		want.Deaths, want.Resumes, want.By, want.Note, want.Prepared = 2, 3, "b", "n", true
		want.Due, want.Wait = e.now.Add(time.Hour), time.Hour
		made := e.begin(j, want)
		next := e.ended(made, idem.StatePending)
		next.Attempts, next.Deaths, next.Resumes, next.By, next.Note, next.Prepared = 0, 0, 0, "", "", false
		next.FirstSent, next.Due, next.Wait, next.Expires = time.Time{}, time.Time{}, 0, time.Time{}
		e.update(j, next, nil)
		e.same(next, e.begin(j, e.sending("a")))
	}},
	{"a row that moved is ErrBusy, and stays", func(e *exam) {
		j := e.open()
		old := e.begin(j, e.sending("a"))
		next := old
		next.Attempts = 2
		current := e.update(j, next, nil)
		e.busy(j, next)
		e.unwritten(j, current)
		require.Empty(e, e.attempts(j, old), "what is refused is not noted")
		ahead := current
		ahead.Version++
		e.busy(j, ahead)
	}},
	{"another living owner's row is ErrBusy, and stays", func(e *exam) {
		j, other := e.open(), e.open()
		owned := e.begin(j, e.sending("a"))
		for _, state := range []idem.State{idem.StateUnknown, idem.StateWithdrawn, idem.StateHeld} {
			e.busy(other, e.ended(owned, state))
		}
		e.unwritten(j, owned)
		e.update(j, e.ended(owned, idem.StateUnknown), nil)
	}},
	{"a row that nobody has is written by whoever saw it last", func(e *exam) {
		j, other := e.open(), e.open()
		held := e.left(j, "a", idem.StateHeld)
		seen := e.lookup(other, "a")
		require.Equal(e, held.Version, seen.Version)
		seen.State, seen.HoldReason, seen.Settled, seen.By = idem.StatePending, "", time.Time{}, "ops"
		seen.Claimed = true
		released := e.update(other, seen, nil)
		require.True(e, e.refused(j, e.sending("a")).Owned, "with Claimed it is that handle's")
		e.busy(j, released)
		e.update(other, e.ended(released, idem.StatePending), nil)
		e.begin(j, e.sending("a"))
	}},
	{"a final answer of a former owner is taken, once", func(e *exam) {
		j, other := e.open(), e.open()
		former := e.begin(j, e.sending("a"))
		e.update(j, e.ended(former, idem.StateUnknown), nil)
		current := e.begin(other, e.sending("a"))
		wrote := e.update(j, e.ended(former, idem.StateRejected), e.answered(1))
		got := e.refused(other, e.sending("a"))
		require.False(e, got.Owned, "it is final: nobody has it")
		require.Equal(e, wrote.Version, got.Version)
		require.Greater(e, wrote.Version, current.Version, "no version stands for two contents")
		e.same(e.ended(former, idem.StateRejected), got)
		e.busy(j, e.ended(former, idem.StateRejected))
		e.busy(j, e.ended(former, idem.StateSucceeded))
		e.busy(other, e.ended(current, idem.StateSucceeded))
		e.unwritten(j, wrote)
	}},
	{"a final answer of a former owner sets nothing back that was counted or decided since", func(e *exam) {
		j, other := e.open(), e.open()
		former := e.begin(j, e.sending("a"))
		e.update(j, e.ended(former, idem.StateUnknown), nil)
		current := e.begin(other, e.sending("a"))
		current.State, current.Attempts, current.Resumes, current.Deaths = idem.StateInFlight, 2, 1, 1
		current.By, current.Note, current.Prepared = "ann", "once more", true
		current = e.update(other, current, nil)
		e.busy(j, e.ended(former, idem.StateRejected))
		e.unwritten(j, current)
		e.update(j, e.ended(former, idem.StateSucceeded), e.answered(1))
		got := e.lookup(j, "a")
		require.Equal(e, idem.StateSucceeded, got.State)
		require.Equal(e, [3]int{2, 1, 1}, [3]int{got.Attempts, got.Resumes, got.Deaths})
		require.Equal(e, [2]string{"ann", "once more"}, [2]string{got.By, got.Note})
		require.True(e, got.Prepared)
		require.Zero(e, got.Due)
		require.False(e, got.Owned)
	}},
	{"a final answer of another key is not", func(e *exam) {
		j, other := e.open(), e.open()
		former := e.begin(j, e.sending("a"))
		e.update(j, e.ended(former, idem.StateUnknown), nil)
		current := e.begin(other, e.sending("a"))
		next := e.ended(former, idem.StateSucceeded)
		next.Key = "another"
		e.busy(j, next)
		e.unwritten(other, current)
	}},
	{"what is final never changes its state", func(e *exam) {
		j := e.open()
		for _, state := range []idem.State{idem.StateSucceeded, idem.StateRejected} {
			final := e.left(j, string(state), state)
			for _, to := range []idem.State{
				idem.StatePending, idem.StateInFlight, idem.StateUnknown, idem.StateHeld, idem.StateWithdrawn,
				idem.StateSucceeded, idem.StateRejected,
			} {
				if to != state {
					e.busy(j, e.ended(final, to))
				}
			}
			e.unwritten(j, final)
		}
	}},
	{"the outcome is written once", func(e *exam) {
		j := e.open()
		final := e.left(j, "a", idem.StateSucceeded, owed)
		next := final
		next.Notify = false
		next.Outcome = &idem.Outcome{StatusCode: 200, Complete: true, Body: []byte("another"), Header: http.Header{"X": {"y"}}}
		e.update(j, next, nil)
		got := e.lookup(j, "a")
		require.False(e, got.Notify)
		got.Notify, got.Request = true, final.Request
		e.same(final, got)
	}},
	{"what was settled without an answer has an empty outcome", func(e *exam) {
		j := e.open()
		seen := e.left(j, "a", idem.StateHeld)
		seen.State, seen.HoldReason, seen.By, seen.Note = idem.StateSucceeded, "", "ops", "seen at the provider"
		e.update(j, seen, nil)
		got := e.refused(j, e.sending("a"))
		require.Equal(e, idem.StateSucceeded, got.State)
		require.Equal(e, "ops", got.By)
		require.Equal(e, "seen at the provider", got.Note)
		require.Equal(e, &idem.Outcome{}, got.Outcome)
	}},
	{"a row that is not there is ErrNotFound", func(e *exam) {
		j := e.open()
		made := e.begin(j, e.sending("a"))
		made.ID = "123456789"
		for _, durable := range []bool{true, false} {
			_, err := j.Update(e.Context(), e.ended(made, idem.StateSucceeded), nil, durable)
			require.ErrorIs(e, err, idem.ErrNotFound)
			require.NotErrorIs(e, err, idem.ErrJournal)
		}
	}},
}
