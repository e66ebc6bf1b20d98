package idem

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustStats(tb testing.TB, j *SQLiteJournal) Stats {
	tb.Helper()
	st, err := j.Stats(tb.Context())
	require.NoError(tb, err)
	return st
}

func TestStats(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	st := mustStats(t, j)
	assert.Empty(t, st.Rows)
	assert.Empty(t, st.Held)
	assert.Zero(t, st.Unfinished)
	assert.Zero(t, st.Oldest)
	assert.Zero(t, st.Tombstones)
	assert.Zero(t, st.LastPrune)

	at := func(operation string, age time.Duration) Intent {
		want := newIntent(operation)
		want.Created = testNow.Add(-age)
		return mustBegin(t, j, want)
	}
	settle := func(in Intent, state State, why HoldReason) {
		in.State, in.HoldReason, in.Claimed, in.Settled = state, why, false, testNow
		mustUpdate(t, j, in, nil, false) // posted, and counted
	}
	settle(at("old", 5*time.Hour), StateSucceeded, "")
	settle(at("held", 4*time.Hour), StateHeld, HoldExpired)
	unknown := at("unknown", 3*time.Hour)
	unknown.Doubt = true
	settle(at("rejected", 2*time.Hour), StateRejected, "")
	settle(at("held too", time.Hour), StateHeld, HoldPoison)
	at("in flight", 0)
	settle(at("withdrawn", 0), StateWithdrawn, "")
	unknown.State, unknown.Claimed = StateUnknown, false
	mustUpdate(t, j, unknown, nil, true)
	st = mustStats(t, j)
	assert.Equal(t, map[State]int{
		StateSucceeded: 1, StateHeld: 2, StateUnknown: 1, StateRejected: 1, StateInFlight: 1, StateWithdrawn: 1,
	}, st.Rows)
	assert.Equal(t, map[HoldReason]int{HoldExpired: 1, HoldPoison: 1}, st.Held)
	assert.Equal(t, 2, st.Unfinished)
	assert.Equal(t, testNow.Add(-3*time.Hour), st.Oldest, "what is held waits for a person")
	assert.WithinDuration(t, time.Now(), st.Counted, time.Minute)
	for side, size := range map[string]int64{"": st.FileBytes, "-wal": st.WALBytes} {
		info, err := os.Stat(path + side)
		require.NoError(t, err)
		assert.Equal(t, info.Size(), size)
	}
	n, err := j.Prune(t.Context(), testNow.Add(time.Hour))
	require.NoError(t, err)
	assert.Equal(t, n, mustStats(t, j).Tombstones)
	assert.Equal(t, 3, n)
}

func TestStatsWhileAnotherProcessWrites(t *testing.T) {
	t.Parallel()
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	p := spawn(t, "journal/record", path)
	require.NoError(t, p.in.Close())
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	for last, done := 0, false; !done || last < 100; {
		select {
		case err := <-ended:
			require.NoError(t, err)
			done = true
		default:
		}
		st := mustStats(t, j)
		rows := 0
		for _, n := range st.Rows {
			rows += n
		}
		require.GreaterOrEqual(t, rows, last)
		require.Equal(t, rows, st.Unfinished)
		require.False(t, done && rows != 100, "%d rows", rows)
		last = rows
	}
}

func TestStatsOfWhatIsNotThere(t *testing.T) {
	path := tempJournal(t)
	j, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, os.Rename(path, path+".away"))
	_, err = j.Stats(t.Context())
	require.ErrorIs(t, err, ErrJournal)
	require.ErrorContains(t, err, "deleted or replaced")
	require.NoError(t, os.Rename(path+".away", path))
	mustStats(t, j)
	require.NoError(t, j.Close())
	_, err = j.Stats(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, err, ErrJournal)
}
