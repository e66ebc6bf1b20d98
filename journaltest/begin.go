package journaltest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

var beginRules = []rule{
	{"a new operation is made exactly as wanted, and claimed", func(e *exam) {
		j := e.open()
		want := e.sending("a")
		got := e.begin(j, want)
		require.Equal(e, 1, got.Generation)
		require.Positive(e, got.Version)
		want.ID, want.Generation = got.ID, 1
		e.same(want, got)
		for _, reader := range []idem.Journal{j, e.open()} {
			found := e.lookup(reader, "a")
			require.True(e, found.Owned, "a call has it")
			require.Equal(e, got.Version, found.Version)
			want.Request = nil
			e.same(want, found)
		}
	}},
	{"the first attempt may be counted at once, or not", func(e *exam) {
		j := e.open()
		e.begin(j, e.sending("counted"))
		e.begin(j, e.waiting("not"))
		counted, not := e.lookup(j, "counted"), e.lookup(j, "not")
		require.Equal(e, idem.StateInFlight, counted.State)
		require.Equal(e, 1, counted.Attempts)
		require.Equal(e, idem.StatePending, not.State)
		require.Zero(e, not.Attempts)
		require.Empty(e, e.attempts(j, counted), "an attempt is noted when it ends")
	}},
	{"pending, unknown and withdrawn rows come back claimed, their state unchanged", func(e *exam) {
		j, other := e.open(), e.open()
		for _, state := range []idem.State{idem.StatePending, idem.StateUnknown, idem.StateWithdrawn} {
			before := e.left(j, string(state), state)
			want := e.sending(string(state))
			want.Request.Body = []byte("never mind")
			got := e.begin(other, want)
			require.Greater(e, got.Version, before.Version, "a claim is a write")
			e.same(before, got) // with the old key and the old bytes
			require.True(e, e.lookup(j, string(state)).Owned)
			e.unwritten(j, got)
		}
	}},
	{"held and final rows come back unclaimed and unwritten, with their outcome", func(e *exam) {
		j := e.open()
		for _, state := range []idem.State{idem.StateHeld, idem.StateSucceeded, idem.StateRejected} {
			before := e.left(j, string(state), state)
			got := e.refused(j, e.sending(string(state)))
			require.False(e, got.Owned)
			require.Equal(e, before.Version, got.Version)
			e.same(before, got)
			e.unwritten(j, before)
		}
	}},
	{"a living owner's row comes back Owned, unclaimed and unwritten", func(e *exam) {
		j, other := e.open(), e.open()
		for _, state := range []idem.State{idem.StatePending, idem.StateUnknown, idem.StateWithdrawn, idem.StateInFlight} {
			operation := string(state)
			owned := e.begin(j, e.sending(operation))
			if state != idem.StateInFlight {
				e.update(j, e.ended(owned, state), nil)
				owned = e.begin(j, e.sending(operation))
			}
			for _, h := range []idem.Journal{other, j} { // another call of this handle is another, too
				got := e.refused(h, e.sending(operation))
				require.True(e, got.Owned, state)
				require.Equal(e, state, got.State)
				require.Equal(e, owned.Version, got.Version)
				e.unwritten(h, owned)
			}
		}
	}},
	{"another fingerprint's row comes back unclaimed and unwritten", func(e *exam) {
		j := e.open()
		for _, state := range []idem.State{idem.StatePending, idem.StateUnknown, idem.StateWithdrawn, idem.StateInFlight} {
			before := e.left(j, string(state), state)
			want := e.sending(string(state))
			want.Fingerprint = []byte("another")
			got := e.refused(j, want)
			require.False(e, got.Owned)
			e.same(before, got)
			e.unwritten(j, before)
		}
	}},
	{"an in_flight row that its call gave up comes back unknown, in doubt", func(e *exam) {
		j, other := e.open(), e.open()
		before := e.left(j, "a", idem.StateInFlight)
		require.False(e, e.lookup(j, "a").Owned)
		got := e.begin(other, e.sending("a"))
		e.interrupted(other, before, got)
		require.Greater(e, got.Version, before.Version)
		found := e.lookup(j, "a")
		require.Equal(e, idem.StateUnknown, found.State)
		require.True(e, found.Doubt)
		require.Equal(e, 1, found.Deaths)
	}},
	{"an in_flight row with a HoldReason that its call gave up becomes held, unclaimed", func(e *exam) {
		j, other := e.open(), e.open()
		before := e.left(j, "a", idem.StateInFlight, doomed)
		got := e.refused(other, e.sending("a"))
		e.doomed(other, before, got)
	}},
}

var identityRules = []rule{
	{"an ID finds its row, of an earlier generation too", func(e *exam) {
		j := e.open()
		first := e.left(j, "a", idem.StateRejected)
		renewal := e.sending("a")
		renewal.Renews = first.Key
		second := e.begin(j, renewal)
		unnamed := e.left(j, "", idem.StateUnknown)
		require.Equal(e, first.Key, e.refused(j, idem.Intent{ID: first.ID, Fingerprint: first.Fingerprint}).Key)
		require.True(e, e.refused(j, idem.Intent{ID: second.ID, Fingerprint: second.Fingerprint}).Owned)
		got := e.begin(j, idem.Intent{ID: unnamed.ID, Fingerprint: unnamed.Fingerprint})
		require.Equal(e, unnamed.Key, got.Key)
		e.same(unnamed, got)
	}},
	{"an ID of no row is ErrNotFound, and makes none", func(e *exam) {
		j := e.open()
		want := e.sending("a")
		want.ID = "123456789"
		_, claimed, err := j.Begin(e.Context(), want)
		require.ErrorIs(e, err, idem.ErrNotFound)
		require.NotErrorIs(e, err, idem.ErrJournal)
		require.False(e, claimed)
		_, err = j.Lookup(e.Context(), "acct", "a")
		require.ErrorIs(e, err, idem.ErrNotFound)
	}},
	{"an operation finds its newest generation", func(e *exam) {
		j := e.open()
		first := e.left(j, "a", idem.StateWithdrawn)
		renewal := e.sending("a")
		renewal.Renews = first.Key
		e.update(j, e.ended(e.begin(j, renewal), idem.StateUnknown), nil)
		require.Equal(e, 2, e.begin(j, e.sending("a")).Generation)
	}},
	{"the same name in another scope is another operation", func(e *exam) {
		j := e.open()
		e.begin(j, e.sending("a"))
		other := e.sending("a")
		other.Scope = ""
		got := e.begin(j, other)
		require.Equal(e, 1, got.Generation)
		found, err := j.Lookup(e.Context(), "", "a")
		require.NoError(e, err)
		require.Equal(e, got.ID, found.ID)
	}},
	{"what has neither operation nor adopted key is always new", func(e *exam) {
		j := e.open()
		one, two := e.left(j, "", idem.StateUnknown), e.left(j, "", idem.StateUnknown)
		require.NotEqual(e, one.ID, two.ID)
		_, err := j.Lookup(e.Context(), "acct", "")
		require.ErrorIs(e, err, idem.ErrNotFound)
	}},
	{"an adopted key finds its row", func(e *exam) {
		j := e.open()
		want := e.sending("")
		want.Adopted, want.Credential = []byte("digest"), []byte("salted")
		made := e.update(j, e.ended(e.begin(j, want), idem.StateUnknown), nil)
		again := e.sending("")
		again.Adopted = []byte("digest")
		got := e.begin(j, again)
		e.same(made, got)
		require.True(e, e.refused(j, again).Owned)
	}},
	{"a key that another operation holds brings that row back, and makes none", func(e *exam) {
		j := e.open()
		adopted := func(operation, digest string) idem.Intent {
			in := e.sending(operation)
			in.Adopted = []byte(digest)
			return in
		}
		unnamed := e.update(j, e.ended(e.begin(j, adopted("", "of the unnamed")), idem.StateUnknown), nil)
		named := e.update(j, e.ended(e.begin(j, adopted("named", "of the named")), idem.StateUnknown), nil)
		for _, c := range []struct {
			want idem.Intent
			held idem.Intent
		}{
			{adopted("a", "of the unnamed"), unnamed},
			{adopted("a", "of the named"), named},
			{adopted("", "of the named"), named},
		} {
			got := e.refused(j, c.want)
			require.Equal(e, c.held.ID, got.ID)
			e.unwritten(j, c.held)
		}
		_, err := j.Lookup(e.Context(), "acct", "a")
		require.ErrorIs(e, err, idem.ErrNotFound)
	}},
	{"a credential is that of the first send that the provider may have seen", func(e *exam) {
		j := e.open()
		want := e.sending("a")
		want.Credential = []byte("refused")
		made := e.begin(j, want)
		gone := e.ended(made, idem.StateWithdrawn)
		gone.FirstSent = time.Time{}
		e.update(j, gone, nil)
		want.Credential = []byte("first")
		got := e.begin(j, want)
		assert.Equal(e, []byte("first"), got.Credential)
		e.update(j, e.ended(got, idem.StateUnknown), nil)
		want.Credential = []byte("second")
		got = e.begin(j, want)
		assert.Equal(e, []byte("first"), got.Credential)
		found, err := j.Lookup(e.Context(), "acct", "a")
		require.NoError(e, err)
		assert.Equal(e, []byte("first"), found.Credential)
	}},
	{"a known operation keeps its key, whatever key comes with the call", func(e *exam) {
		j := e.open()
		want := e.sending("a")
		want.Adopted = []byte("first")
		made := e.update(j, e.ended(e.begin(j, want), idem.StateUnknown), nil)
		want.Adopted, want.Key = []byte("fresh"), "fresh"
		got := e.begin(j, want)
		assert.Equal(e, made.Key, got.Key)
		assert.Equal(e, made.Adopted, got.Adopted)
	}},
	{"a made row needs no adopted key, retention or expiry", func(e *exam) {
		j := e.open()
		want := idem.Intent{
			Operation: "a", State: idem.StatePending, Created: e.now, Method: "POST", URL: "http://h/",
			Fingerprint: []byte("f"), Request: &idem.StoredRequest{URL: "http://h/"},
		}
		made := e.begin(j, want)
		want.ID, want.Generation = made.ID, 1
		e.same(want, made)
		e.update(j, e.ended(made, idem.StatePending), nil)
		due, next := e.claimDue(j, e.now, idem.Filter{})
		require.Len(e, due, 1)
		require.Equal(e, time.Time{}, next)
		e.same(want, due[0])
	}},
}
