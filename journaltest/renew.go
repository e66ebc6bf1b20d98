package journaltest

import (
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// renewal is a want that supersedes key by another request.
func (e *exam) renewal(operation, key string) idem.Intent {
	in := e.sending(operation)
	in.Renews, in.Fingerprint, in.Request.Body = key, []byte("the second card"), []byte(`{"card":2}`)
	return in
}

var renewRules = []rule{
	{"a rejected or withdrawn generation is superseded by one made as wanted", func(e *exam) {
		j := e.open()
		for _, state := range []idem.State{idem.StateRejected, idem.StateWithdrawn} {
			first := e.left(j, string(state), state)
			want := e.renewal(string(state), first.Key)
			got := e.begin(j, want)
			want.ID, want.Generation = got.ID, 2
			require.NotEqual(e, first.ID, got.ID)
			e.same(want, got)
			require.Equal(e, got.ID, e.lookup(j, string(state)).ID)
			e.unwritten(j, first)
		}
	}},
	{"a generation that a later one has taken the place of is not claimed by its ID", func(e *exam) {
		j := e.open()
		first := e.left(j, "a", idem.StateWithdrawn)
		want := e.sending("a")
		want.ID = first.ID
		made := e.begin(j, e.renewal("a", first.Key))
		e.refused(j, want)
		e.unwritten(j, first)
		want.ID, want.Fingerprint = made.ID, made.Fingerprint
		e.update(j, e.ended(made, idem.StateWithdrawn), nil)
		require.Equal(e, made.Key, e.begin(j, want).Key)
	}},
	{"renewing again continues the generation that was made", func(e *exam) {
		j, other := e.open(), e.open()
		first := e.left(j, "a", idem.StateRejected)
		made := e.begin(j, e.renewal("a", first.Key))
		got := e.refused(other, e.renewal("a", first.Key))
		require.True(e, got.Owned)
		require.Equal(e, made.ID, got.ID)
		e.update(j, e.ended(made, idem.StateUnknown), nil)
		got = e.begin(other, e.renewal("a", first.Key))
		require.Equal(e, made.Key, got.Key)
		require.Equal(e, 2, got.Generation)
		last := e.update(other, e.ended(got, idem.StateRejected), nil)
		got = e.refused(j, e.renewal("a", first.Key))
		require.Equal(e, made.Key, got.Key, "rejected meanwhile: its key is not the one to supersede")
		e.unwritten(j, last)
		require.Equal(e, 3, e.begin(j, e.renewal("a", made.Key)).Generation)
		require.Equal(e, 3, e.refused(j, e.renewal("a", first.Key)).Generation, "the oldest key finds the newest, too")
	}},
	{"a continued generation keeps its request: another fingerprint is unclaimed", func(e *exam) {
		j := e.open()
		first := e.left(j, "a", idem.StateRejected)
		before := e.update(j, e.ended(e.begin(j, e.renewal("a", first.Key)), idem.StateUnknown), nil)
		want := e.renewal("a", first.Key)
		want.Fingerprint = []byte("the third card")
		require.Equal(e, before.ID, e.refused(j, want).ID)
		e.unwritten(j, before)
	}},
	{"what is not rejected or withdrawn is not superseded", func(e *exam) {
		j := e.open()
		for _, state := range []idem.State{
			idem.StatePending, idem.StateInFlight, idem.StateUnknown, idem.StateHeld, idem.StateSucceeded,
		} {
			first := e.left(j, string(state), state)
			got := e.refused(j, e.renewal(string(state), first.Key))
			require.Equal(e, first.ID, got.ID, state)
			require.Equal(e, 1, got.Generation)
			e.unwritten(j, first)
		}
	}},
	{"not even by the same request", func(e *exam) { // the newest has the key: it is not "found as above"
		j := e.open()
		first := e.left(j, "a", idem.StateUnknown)
		want := e.sending("a")
		want.Renews = first.Key
		require.Equal(e, first.ID, e.refused(j, want).ID)
		e.unwritten(j, first)
	}},
	{"a generation that a living call has is not superseded", func(e *exam) {
		j, other := e.open(), e.open()
		first := e.left(j, "a", idem.StateWithdrawn)
		owned := e.begin(j, e.sending("a"))
		for _, h := range []idem.Journal{other, j} {
			got := e.refused(h, e.renewal("a", first.Key))
			require.True(e, got.Owned)
			require.Equal(e, first.ID, got.ID)
		}
		e.unwritten(j, owned)
	}},
	{"a key of no generation supersedes nothing", func(e *exam) {
		j := e.open()
		for _, state := range []idem.State{idem.StateRejected, idem.StateWithdrawn, idem.StateUnknown} {
			first := e.left(j, string(state), state)
			require.Equal(e, first.ID, e.refused(j, e.renewal(string(state), "no such key")).ID)
			e.unwritten(j, first)
		}
	}},
	{"a renewal of nothing is the first generation", func(e *exam) {
		j := e.open()
		got := e.begin(j, e.renewal("a", "no such key"))
		require.Equal(e, 1, got.Generation)
		require.Equal(e, "no such key", e.lookup(j, "a").Renews)
	}},
	{"a renewal with a key that another operation holds gets that row", func(e *exam) {
		j := e.open()
		holder := e.sending("holder")
		holder.Adopted = []byte("digest")
		held := e.update(j, e.ended(e.begin(j, holder), idem.StateUnknown), nil)
		first := e.left(j, "a", idem.StateRejected)
		want := e.renewal("a", first.Key)
		want.Adopted = []byte("digest")
		require.Equal(e, held.ID, e.refused(j, want).ID)
		e.unwritten(j, held)
		require.Equal(e, 1, e.lookup(j, "a").Generation)
	}},
	{"a renewal never claims a superseded generation, though it comes with its adopted key", func(e *exam) {
		j := e.open()
		want := e.sending("a")
		want.Adopted = []byte("digest")
		first := e.update(j, e.ended(e.begin(j, want), idem.StateWithdrawn), nil)
		second := e.update(j, e.ended(e.begin(j, e.renewal("a", first.Key)), idem.StateRejected), nil)
		want = e.sending("a")
		want.Adopted, want.Renews = []byte("digest"), second.Key
		e.refused(j, want)
		e.unwritten(j, first)
		e.unwritten(j, second)
	}},
	{"superseded generations stay as they were", func(e *exam) {
		j := e.open()
		first := e.left(j, "a", idem.StateRejected)
		e.begin(j, e.renewal("a", first.Key))
		got := e.refused(j, idem.Intent{ID: first.ID, Fingerprint: first.Fingerprint})
		e.same(first, got)
		list, err := j.List(e.Context(), idem.Filter{})
		require.NoError(e, err)
		require.Len(e, list, 2)
	}},
}
