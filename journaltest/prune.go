package journaltest

import (
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
)

// old makes an operation ten days ago and leaves it nine days ago.
func (e *exam) old(j idem.Journal, operation string, state idem.State, retention time.Duration, changes ...func(*idem.Intent)) idem.Intent {
	e.Helper()
	want := e.sending(operation)
	want.Created, want.FirstSent, want.Retention = e.now.AddDate(0, 0, -10), e.now.AddDate(0, 0, -10), retention
	next := e.ended(e.begin(j, want), state)
	if !next.Settled.IsZero() {
		next.Settled = e.now.AddDate(0, 0, -9)
	}
	for _, change := range changes {
		change(&next)
	}
	return e.update(j, next, e.answered(1))
}

// pruned prunes what was settled before yesterday, and demands the number.
func (e *exam) pruned(j idem.Journal, want int) {
	e.Helper()
	n, err := j.Prune(e.Context(), e.now.AddDate(0, 0, -1))
	require.NoError(e, err)
	require.Equal(e, want, n)
}

// kept demands that the row has its request, and its outcome if it is final.
func (e *exam) kept(j idem.Journal, in idem.Intent) {
	e.Helper()
	got, _, err := j.Begin(e.Context(), idem.Intent{ID: in.ID, Fingerprint: []byte("only to look")})
	require.NoError(e, err)
	require.NotNil(e, got.Request)
	e.same(in, got)
}

var pruneRules = []rule{
	{"bodies of final and withdrawn rows go, and are counted once", func(e *exam) {
		j := e.open()
		e.old(j, "succeeded", idem.StateSucceeded, time.Hour)
		e.old(j, "rejected", idem.StateRejected, time.Hour)
		e.old(j, "withdrawn", idem.StateWithdrawn, time.Hour)
		e.pruned(j, 3)
		e.pruned(j, 0)
		for _, operation := range []string{"succeeded", "rejected"} {
			got := e.refused(j, e.sending(operation))
			require.Nil(e, got.Request)
			require.Nil(e, got.Outcome.Body)
			require.False(e, got.Outcome.Complete)
		}
		want := e.sending("withdrawn")
		want.Fingerprint = []byte("another")
		require.Nil(e, e.refused(j, want).Request)
	}},
	{"pending, unknown, held and in_flight rows are kept", func(e *exam) {
		j := e.open()
		var rows []idem.Intent
		for _, state := range []idem.State{idem.StatePending, idem.StateUnknown, idem.StateHeld, idem.StateInFlight} {
			rows = append(rows, e.old(j, string(state), state, time.Hour))
		}
		e.pruned(j, 0)
		for _, in := range rows {
			e.kept(j, in)
		}
	}},
	{"what was settled at that instant or later is kept", func(e *exam) {
		j := e.open()
		in := e.old(j, "a", idem.StateSucceeded, time.Hour)
		n, err := j.Prune(e.Context(), in.Settled)
		require.NoError(e, err)
		require.Zero(e, n)
		e.kept(j, in)
		n, err = j.Prune(e.Context(), in.Settled.Add(1))
		require.NoError(e, err)
		require.Equal(e, 1, n)
	}},
	{"nothing goes before its retention is over", func(e *exam) {
		j := e.open()
		var rows []idem.Intent
		for _, state := range []idem.State{idem.StateSucceeded, idem.StateRejected, idem.StateWithdrawn} {
			rows = append(rows, e.old(j, string(state), state, 11*24*time.Hour), e.old(j, "", state, 11*24*time.Hour))
		}
		resent := e.old(j, "first sent late", idem.StateSucceeded, 9*24*time.Hour, func(in *idem.Intent) {
			in.FirstSent = e.now.AddDate(0, 0, -8) // the provider's clock begins with it
		})
		e.pruned(j, 0)
		for _, in := range append(rows, resent) {
			e.kept(j, in)
		}
	}},
	{"unnamed rows go whole", func(e *exam) {
		j := e.open()
		named := e.old(j, "a", idem.StateSucceeded, time.Hour)
		var last idem.Intent
		for _, state := range []idem.State{idem.StateRejected, idem.StateWithdrawn, idem.StateSucceeded} {
			last = e.old(j, "", state, time.Hour)
		}
		e.pruned(j, 4)
		list, err := j.List(e.Context(), idem.Filter{})
		require.NoError(e, err)
		require.Len(e, list, 1)
		require.Equal(e, named.ID, list[0].ID)
		require.Empty(e, e.attempts(j, last))
		_, _, err = j.Begin(e.Context(), idem.Intent{ID: last.ID, Fingerprint: last.Fingerprint})
		require.ErrorIs(e, err, idem.ErrNotFound)
	}},
	{"an ID is never given twice", func(e *exam) {
		j := e.open()
		old := e.old(j, "", idem.StateSucceeded, time.Hour)
		e.pruned(j, 1)
		require.NotEqual(e, old.ID, e.begin(j, e.sending("")).ID)
		require.NotEqual(e, old.ID, e.begin(e.open(), e.sending("")).ID)
	}},
	{"the adopted key of a removed row is free", func(e *exam) {
		j := e.open()
		want := e.sending("")
		want.Adopted, want.Created, want.FirstSent = []byte("digest"), e.now.AddDate(0, 0, -10), e.now.AddDate(0, 0, -10)
		next := e.ended(e.begin(j, want), idem.StateSucceeded)
		next.Settled = e.now.AddDate(0, 0, -9)
		e.update(j, next, nil)
		e.pruned(j, 1)
		again := e.sending("")
		again.Adopted = []byte("digest")
		require.NotEqual(e, next.ID, e.begin(j, again).ID)
	}},
	{"a named tombstone stays, and answers", func(e *exam) {
		j, other := e.open(), e.open()
		before := e.old(j, "a", idem.StateRejected, time.Hour)
		e.pruned(j, 1)
		want := before
		want.Request, want.Outcome = nil, &idem.Outcome{StatusCode: 402, Header: before.Outcome.Header, RequestID: "req_1"}
		for _, h := range []idem.Journal{j, other} {
			e.same(want, e.lookup(h, "a"))
			e.same(want, e.refused(h, e.sending("a")))
			require.Equal(e, []string{"a"}, e.listed(h, idem.Filter{}))
		}
		mismatch := e.sending("a")
		mismatch.Fingerprint = []byte("another")
		e.same(want, e.refused(j, mismatch))
		require.Equal(e, 2, e.begin(j, e.renewal("a", before.Key)).Generation, "a tombstone can be superseded")
	}},
	{"a withdrawn tombstone takes the new request if the fingerprint fits, under the old key", func(e *exam) {
		j := e.open()
		before := e.old(j, "a", idem.StateWithdrawn, time.Hour)
		e.pruned(j, 1)
		want := e.sending("a")
		want.Request.Body = []byte("the same, written otherwise")
		got := e.begin(j, want)
		require.Equal(e, idem.StateWithdrawn, got.State)
		require.Equal(e, before.Key, got.Key)
		before.Request = want.Request
		e.same(before, got)
		e.update(j, e.ended(got, idem.StateWithdrawn), nil)
		e.same(e.ended(before, idem.StateWithdrawn), e.begin(j, e.sending("a"))) // and it was stored
	}},
	{"what a tombstone takes has the old key, where that stands in the request", func(e *exam) {
		j := e.open()
		for operation, place := range map[string]contract.Place{"a": {Pointer: "/key"}, "b": {Param: "key"}} {
			keyed := func(key string) idem.Intent {
				want := e.sending(operation)
				want.Place, want.Key, want.Retention = place, key, time.Hour
				want.Created, want.FirstSent = e.now.AddDate(0, 0, -10), e.now.AddDate(0, 0, -10)
				want.Request = &idem.StoredRequest{URL: "http://provider.example/charges", Header: http.Header{"Content-Type": {"application/json"}}}
				if place.Param != "" {
					want.Request.URL += "?key=" + key
				} else {
					want.Request.Body = []byte(`{"key":"` + key + `"}`)
				}
				return want
			}
			old := keyed("first-" + operation)
			next := e.ended(e.begin(j, old), idem.StateWithdrawn)
			next.Settled = e.now.AddDate(0, 0, -9)
			e.update(j, next, e.answered(1))
			e.pruned(j, 1)
			got := e.begin(j, keyed("second-"+operation))
			require.Equal(e, old.Key, got.Key)
			require.Equal(e, old.Request, got.Request)
		}
	}},
	{"what a living call has is kept", func(e *exam) {
		j := e.open()
		before := e.old(j, "a", idem.StateWithdrawn, time.Hour)
		want := e.sending("")
		want.Adopted, want.Created, want.FirstSent, want.Retention = []byte("d"), before.Created, before.FirstSent, time.Hour
		unnamed := e.ended(e.begin(j, want), idem.StateWithdrawn)
		unnamed.Settled = before.Settled
		e.update(j, unnamed, nil)
		e.begin(j, e.sending("a"))
		unnamed = e.begin(j, want)
		e.pruned(e.open(), 0)
		e.kept(j, before)
		unnamed.State, unnamed.Settled, unnamed.Attempts = idem.StateInFlight, time.Time{}, 2
		e.update(j, unnamed, nil)
	}},
	{"what owes a notification is kept until it was given", func(e *exam) {
		j := e.open()
		rows := map[string]idem.Intent{}
		for _, operation := range []string{"a", ""} {
			rows[operation] = e.old(j, operation, idem.StateSucceeded, time.Hour, owed)
		}
		e.pruned(j, 0)
		claimed, _ := e.claimDue(j, e.now, ofMain)
		require.Len(e, claimed, 2)
		for _, in := range claimed {
			e.same(rows[in.Operation], in)
			in.Claimed, in.Notify = false, false
			e.update(j, in, nil)
		}
		e.pruned(j, 2)
	}},
}
