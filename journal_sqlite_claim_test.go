package idem

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// end writes in as given up by its call in that state.
func end(tb testing.TB, j Journal, in Intent, state State) Intent {
	tb.Helper()
	return mustUpdate(tb, j, leftAs(in, state), nil, true)
}

// leftAs is what a call leaves in that state.
func leftAs(in Intent, state State) Intent {
	in.State, in.Claimed, in.Doubt = state, false, state == StateUnknown
	switch state {
	case StateWithdrawn, StateRejected, StateSucceeded:
		in.Settled = testNow
	case StateHeld:
		in.Settled, in.HoldReason = testNow, HoldExpired
	}
	if state.Final() {
		in.Outcome = &Outcome{StatusCode: 402, Body: []byte("{}"), Complete: true}
	}
	return in
}

func TestBeginFinds(t *testing.T) {
	for _, c := range []struct {
		state         State
		claimed       bool
		otherRequest  bool
		wantUnchanged bool
	}{
		{state: StatePending, claimed: true},
		{state: StateUnknown, claimed: true},
		{state: StateWithdrawn, claimed: true},
		{state: StateHeld},
		{state: StateRejected},
		{state: StateSucceeded},
		{state: StatePending, otherRequest: true},
		{state: StateUnknown, otherRequest: true},
		{state: StateWithdrawn, otherRequest: true},
	} {
		t.Run(string(c.state)+"/"+strconv.FormatBool(c.otherRequest), func(t *testing.T) {
			j := mustOpen(t, tempJournal(t), nil)
			made := mustBegin(t, j, newIntent("a"))
			before := end(t, j, made, c.state)
			want := newIntent("a")
			if c.otherRequest {
				want.Fingerprint = []byte("another")
			}
			got, claimed, err := j.Begin(t.Context(), want)
			require.NoError(t, err)
			assert.Equal(t, c.claimed, claimed)
			assert.Equal(t, c.claimed, got.Claimed)
			assert.False(t, got.Owned)
			assert.Equal(t, c.state, got.State)
			assert.Equal(t, made.Request, got.Request)
			if !claimed {
				assert.Equal(t, before.Version, got.Version, "no write")
			}
			byID, claimed, err := j.Begin(t.Context(), Intent{ID: made.ID, Fingerprint: want.Fingerprint})
			require.NoError(t, err)
			assert.False(t, claimed && c.claimed, "owned now, or not to be had")
			assert.Equal(t, c.claimed, byID.Owned)
		})
	}
	j := mustOpen(t, tempJournal(t), nil)
	_, _, err := j.Begin(t.Context(), Intent{ID: "77", Fingerprint: []byte("f")})
	assert.ErrorIs(t, err, ErrNotFound)
	_, _, err = j.Begin(t.Context(), Intent{ID: "x"})
	assert.ErrorIs(t, err, ErrNotFound)
}

func TestBeginOwnRowWithoutRunningCall(t *testing.T) {
	j := mustOpen(t, tempJournal(t), nil)
	in := mustBegin(t, j, newIntent("a"))
	in.Claimed = false // the call ends, though in flight
	in = mustUpdate(t, j, in, nil, true)
	got := mustBegin(t, j, newIntent("a"))
	assert.Equal(t, StateUnknown, got.State)
	assert.Equal(t, 1, got.Deaths)

	// A failed write ends the running call all the same.
	stale := got
	stale.Version--
	stale.Claimed = false
	_, err := j.Update(t.Context(), stale, nil, true)
	require.ErrorIs(t, err, ErrBusy)
	_, claimed, err := j.Begin(t.Context(), newIntent("a"))
	require.NoError(t, err)
	assert.False(t, claimed, "another call's failure ends nothing")
}

func TestBeginUnnamedNeverFinds(t *testing.T) {
	j := mustOpen(t, tempJournal(t), nil)
	a, b := mustBegin(t, j, newIntent("")), mustBegin(t, j, newIntent(""))
	assert.NotEqual(t, a.ID, b.ID)
	end(t, j, a, StateUnknown)
	end(t, j, b, StateUnknown)
}

func TestBeginRenews(t *testing.T) {
	renewal := func(renews string) Intent {
		in := newIntent("a")
		in.Key, in.Renews, in.Fingerprint = "key-2", renews, []byte("second card")
		return in
	}
	for _, state := range []State{StateRejected, StateWithdrawn} {
		j := mustOpen(t, tempJournal(t), nil)
		first := end(t, j, mustBegin(t, j, newIntent("a")), state)
		got := mustBegin(t, j, renewal(first.Key))
		assert.Equal(t, 2, got.Generation)
		assert.Equal(t, "key-2", got.Key)
		assert.Equal(t, int64(1), got.Version)

		again, claimed, err := j.Begin(t.Context(), renewal(first.Key))
		require.NoError(t, err)
		assert.False(t, claimed)
		assert.True(t, again.Owned, "the same generation, never a third")
		assert.Equal(t, 2, again.Generation)

		end(t, j, got, StateUnknown)
		again = mustBegin(t, j, renewal(first.Key))
		assert.Equal(t, 2, again.Generation)
		latest, err := j.Lookup(t.Context(), "acct", "a")
		require.NoError(t, err)
		assert.Equal(t, 2, latest.Generation)
	}
	for _, state := range []State{StateSucceeded, StateUnknown, StateHeld, StatePending} {
		j := mustOpen(t, tempJournal(t), nil)
		first := end(t, j, mustBegin(t, j, newIntent("a")), state)
		got, claimed, err := j.Begin(t.Context(), renewal(first.Key))
		require.NoError(t, err)
		assert.False(t, claimed, state)
		assert.Equal(t, 1, got.Generation)
	}
	j := mustOpen(t, tempJournal(t), nil)
	end(t, j, mustBegin(t, j, newIntent("a")), StateRejected)
	got, claimed, err := j.Begin(t.Context(), renewal("no such key"))
	require.NoError(t, err)
	assert.False(t, claimed)
	assert.Equal(t, 1, got.Generation)
}

func TestBeginAdoptedKey(t *testing.T) {
	adopted := func(operation string) Intent {
		in := newIntent(operation)
		in.Key, in.Adopted, in.Credential = "theirs", []byte("digest"), []byte("salted")
		return in
	}
	j := mustOpen(t, tempJournal(t), nil)
	made := mustBegin(t, j, adopted(""))
	end(t, j, made, StateUnknown)
	got := mustBegin(t, j, adopted(""))
	assert.Equal(t, made.ID, got.ID)
	assert.Equal(t, []byte("salted"), got.Credential)
	end(t, j, got, StateUnknown)

	other, claimed, err := j.Begin(t.Context(), adopted("named"))
	require.NoError(t, err)
	assert.False(t, claimed, "another operation holds the key")
	assert.Equal(t, made.ID, other.ID)
	_, err = j.Lookup(t.Context(), "acct", "named")
	assert.ErrorIs(t, err, ErrNotFound)

	// Named and keyed: the first key stays, a fresh one of the SDK finds the row.
	in := newIntent("charge")
	in.Adopted = []byte("first")
	end(t, j, mustBegin(t, j, in), StateUnknown)
	in.Adopted, in.Key = []byte("fresh"), "fresh"
	got = mustBegin(t, j, in)
	assert.Equal(t, "key-charge", got.Key)
}

func TestClaimDue(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	make := func(operation string, change func(*Intent)) Intent {
		in := mustBegin(t, j, newIntent(operation))
		in.State, in.Doubt, in.Claimed = StateUnknown, true, false
		if change != nil {
			change(&in)
		}
		return mustUpdate(t, j, in, nil, true)
	}
	deaths := make("deaths", func(in *Intent) { in.Deaths = 1 })
	late := make("late", func(in *Intent) { in.Due = testNow.Add(-time.Second) })
	now := make("now", nil)
	pending := make("pending", func(in *Intent) { in.State, in.Doubt = StatePending, false })
	make("later", func(in *Intent) { in.Due = testNow.Add(time.Minute) })
	make("much later", func(in *Intent) { in.Due = testNow.Add(time.Hour) })
	make("held", func(in *Intent) { in.State, in.HoldReason, in.Settled = StateHeld, HoldPoison, testNow })
	make("withdrawn", func(in *Intent) { in.State, in.Doubt, in.Settled = StateWithdrawn, false, testNow })
	mustBegin(t, j, newIntent("running"))
	owed := make("owed", func(in *Intent) {
		in.State, in.Doubt, in.Settled, in.Notify = StateSucceeded, false, testNow, true
		in.Outcome = &Outcome{StatusCode: 201, Complete: true, Body: []byte("x")}
	})
	other := newIntent("other name")
	other.Name = ""
	end(t, j, mustBegin(t, j, other), StateUnknown)

	due, next, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main", Limit: 2})
	require.NoError(t, err)
	require.Len(t, due, 2)
	due2, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	due = append(due, due2...)
	var ids []string
	for _, in := range due {
		ids = append(ids, in.ID)
		assert.True(t, in.Claimed)
		assert.NotNil(t, in.Request)
	}
	assert.ElementsMatch(t, []string{late.ID, now.ID, pending.ID, owed.ID, deaths.ID}, ids)
	assert.Equal(t, deaths.ID, ids[4], "those with deaths come last")
	assert.Equal(t, testNow.Add(time.Minute), next)
	for _, in := range due {
		if in.ID == owed.ID {
			assert.Equal(t, owed.Outcome, in.Outcome)
			in.Notify, in.Claimed = false, false
			mustUpdate(t, j, in, nil, true)
		}
	}

	due, next, err = j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	assert.Empty(t, due, "all of them are running now")
	assert.Equal(t, testNow.Add(time.Minute), next)
	due, next, err = j.ClaimDue(t.Context(), testNow, Filter{})
	require.NoError(t, err)
	assert.Len(t, due, 1, "an empty name is a name")
	assert.Zero(t, next)
	due, _, err = j.ClaimDue(t.Context(), testNow, Filter{Name: "main", Scope: "another"})
	require.NoError(t, err)
	assert.Empty(t, due)

	// Another handle on the file is another owner.
	second := mustOpen(t, path, nil)
	due, _, err = second.ClaimDue(t.Context(), testNow.Add(time.Minute), Filter{Name: "main"})
	require.NoError(t, err)
	assert.Len(t, due, 1)
	got, err := j.Lookup(t.Context(), "acct", "later")
	require.NoError(t, err)
	assert.True(t, got.Owned)
	require.NoError(t, second.Close())
	got, err = j.Lookup(t.Context(), "acct", "later")
	require.NoError(t, err)
	assert.False(t, got.Owned)
}

func TestCloseGivesUpRows(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	second := mustOpen(t, path, nil)
	mustBegin(t, second, newIntent("in flight"))
	waiting := newIntent("pending")
	waiting.State, waiting.Attempts = StatePending, 0
	mustBegin(t, second, waiting)
	require.NoError(t, second.Close())

	got := mustBegin(t, j, newIntent("in flight"))
	assert.Equal(t, StateUnknown, got.State, "nobody knows what became of it")
	assert.Equal(t, 1, got.Deaths)
	got = mustBegin(t, j, waiting)
	assert.Equal(t, StatePending, got.State)
	assert.Zero(t, got.Deaths)
}

func TestUpdateComparesAndSwaps(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	in := mustBegin(t, j, newIntent("a"))
	in.Attempts, in.Note, in.By = 2, "note", "me"
	in.Due, in.Wait = testNow.Add(time.Minute), time.Minute
	second := mustUpdate(t, j, in, nil, true)
	assert.Equal(t, in.Version+1, second.Version)

	_, err := j.Update(t.Context(), in, nil, true)
	require.ErrorIs(t, err, ErrBusy)
	_, err = j.Update(t.Context(), in, nil, false)
	require.ErrorIs(t, err, ErrBusy, "posting hears of it too")

	other := mustOpen(t, path, nil)
	_, err = other.Update(t.Context(), second, nil, true)
	require.ErrorIs(t, err, ErrBusy, "a living owner has it")

	// A true answer is taken from anybody, of the same key only.
	next, a := succeed(in)
	next.Key = "another"
	_, err = other.Update(t.Context(), next, a, true)
	require.ErrorIs(t, err, ErrBusy)
	next.Key = in.Key
	done := mustUpdate(t, other, next, a, true)
	assert.Equal(t, second.Version+1, done.Version)
	_, err = other.Update(t.Context(), next, a, true)
	require.ErrorIs(t, err, ErrBusy, "final is final")
	back := done
	back.State, back.Doubt = StateUnknown, true
	_, err = other.Update(t.Context(), back, nil, true)
	require.ErrorIs(t, err, ErrBusy)

	_, err = j.Update(t.Context(), Intent{ID: "99", State: StateUnknown, Doubt: true, Version: 1}, nil, true)
	require.ErrorIs(t, err, ErrNotFound)
	got, err := j.Lookup(t.Context(), "acct", "a")
	require.NoError(t, err)
	assert.Equal(t, StateSucceeded, got.State)
	assert.Equal(t, next.Outcome, got.Outcome)
}

func TestUpdateOfADeadOwnersRow(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	p := spawn(t, "journal/begin and hang", path)
	p.await("begun")
	p.kill()
	seen, err := j.Lookup(t.Context(), "acct", "dead-1")
	require.NoError(t, err)
	assert.False(t, seen.Owned)
	seen.State, seen.Settled, seen.By, seen.Note = StateRejected, testNow, "ops", "read in the dashboard"
	got := mustUpdate(t, j, seen, nil, true)
	found, err := j.Lookup(t.Context(), "acct", "dead-1")
	require.NoError(t, err)
	assert.Equal(t, got.Version, found.Version)
	assert.Equal(t, "ops", found.By)
	assert.Equal(t, &Outcome{}, found.Outcome)
}

func TestImpossibleRowsAreRefused(t *testing.T) {
	j := mustOpen(t, tempJournal(t), nil)
	for name, change := range map[string]func(*Intent){
		"held without a reason":      func(in *Intent) { in.State, in.Settled = StateHeld, testNow },
		"a reason without held":      func(in *Intent) { in.State, in.Doubt, in.HoldReason = StateUnknown, true, HoldPoison },
		"unknown without doubt":      func(in *Intent) { in.State, in.Doubt = StateUnknown, false },
		"withdrawn in doubt":         func(in *Intent) { in.State, in.Doubt, in.Settled = StateWithdrawn, true, testNow },
		"pending in doubt":           func(in *Intent) { in.State, in.Doubt = StatePending, true },
		"final without an instant":   func(in *Intent) { in.State = StateSucceeded },
		"final, owned, nothing owed": func(in *Intent) { in.State, in.Settled, in.Claimed = StateSucceeded, testNow, true },
		"in flight without attempt":  func(in *Intent) { in.Attempts = 0 },
		"no such state":              func(in *Intent) { in.State = "failed" },
	} {
		t.Run(name, func(t *testing.T) {
			in := mustBegin(t, j, newIntent(name))
			change(&in)
			for _, durable := range []bool{true, false} {
				_, err := j.Update(t.Context(), in, nil, durable)
				assert.ErrorIs(t, err, ErrJournal)
			}
			want := newIntent(name + "/begin")
			change(&want)
			_, _, err := j.Begin(t.Context(), want)
			assert.ErrorIs(t, err, ErrJournal)
			assert.ErrorIs(t, err, ErrNotSent)
		})
	}
}
