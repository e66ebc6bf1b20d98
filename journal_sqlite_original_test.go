package idem

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unfinished makes one row of each kind and closes the journal.
func unfinished(t *testing.T, path string) {
	t.Helper()
	j, err := Open(path, nil)
	require.NoError(t, err)
	mustBegin(t, j, newIntent("in flight"))
	for _, state := range []State{StatePending, StateUnknown, StateHeld, StateWithdrawn, StateSucceeded} {
		end(t, j, mustBegin(t, j, newIntent(string(state))), state)
	}
	require.NoError(t, j.Close())
}

func holdReasons(t *testing.T, j Journal) map[string]HoldReason {
	t.Helper()
	list, err := j.List(t.Context(), Filter{})
	require.NoError(t, err)
	reasons := map[string]HoldReason{}
	for _, in := range list {
		reasons[in.Operation] = in.HoldReason
		assert.Equal(t, in.HoldReason != "", in.State == StateHeld)
	}
	return reasons
}

func TestCopiedJournalIsHeld(t *testing.T) {
	path := tempJournal(t)
	unfinished(t, path)
	backup, err := os.ReadFile(path)
	require.NoError(t, err)

	same := mustOpen(t, path, nil)
	reasons := holdReasons(t, same)
	assert.Empty(t, reasons["unknown"], "opened again in its place")
	require.NoError(t, same.Close())

	want := map[string]HoldReason{
		"in flight": HoldCopied, "pending": HoldCopied, "unknown": HoldCopied,
		"held": HoldExpired, "withdrawn": "", "succeeded": "",
	}
	clone := filepath.Join(t.TempDir(), "clone.db")
	require.NoError(t, os.WriteFile(clone, backup, 0o600))
	j := mustOpen(t, clone, nil)
	assert.Equal(t, want, holdReasons(t, j), "no folder beside a used database")
	got, err := j.Lookup(t.Context(), "acct", "in flight")
	require.NoError(t, err)
	assert.True(t, got.Doubt)
	got, err = j.Lookup(t.Context(), "acct", "pending")
	require.NoError(t, err)
	assert.False(t, got.Doubt)

	require.NoError(t, os.WriteFile(path, backup, 0o600))
	restored := mustOpen(t, path, nil)
	assert.Equal(t, want, holdReasons(t, restored), "the folder has moved on")
}

func TestCrashWhileTheEpochIsRenewed(t *testing.T) {
	path := tempJournal(t)
	unfinished(t, path)
	folder := path + "-owners"
	old, err := os.ReadFile(filepath.Join(folder, "epoch"))
	require.NoError(t, err)
	db := inspect(t, path) // as after the first commit
	_, err = db.Exec(`UPDATE meta SET value = 'coming' WHERE name = 'next'`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for _, epoch := range []string{string(old), "coming\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "epoch"), []byte(epoch), 0o600))
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		j := mustOpen(t, path, nil)
		assert.Empty(t, holdReasons(t, j)["unknown"], "either value matches")
		require.NoError(t, j.Close())
		require.NoError(t, os.WriteFile(path, before, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "epoch"), old, 0o600))
}

func TestClockThatWasSetBack(t *testing.T) { // O-50
	path := tempJournal(t)
	unfinished(t, path)
	set := func(by time.Duration) {
		db := inspect(t, path)
		defer db.Close()
		_, err := db.Exec(`UPDATE meta SET value = ? WHERE name = 'clock'`, time.Now().Add(by).UnixNano())
		require.NoError(t, err)
	}
	set(-time.Hour)
	require.NoError(t, mustOpen(t, path, nil).Close())
	behind := count(t, path, `SELECT ? - value FROM meta WHERE name = 'clock'`, time.Now().UnixNano())
	assert.Less(t, time.Duration(behind), time.Minute, "the mark is kept up")

	set(time.Second)
	j := mustOpen(t, path, nil)
	assert.Empty(t, holdReasons(t, j)["unknown"], "within the margin")
	require.NoError(t, j.Close())

	set(time.Hour)
	j = mustOpen(t, path, nil)
	assert.Equal(t, map[string]HoldReason{
		"in flight": HoldClock, "unknown": HoldClock, "held": HoldExpired, "pending": "", "withdrawn": "", "succeeded": "",
	}, holdReasons(t, j))
	end(t, j, mustBegin(t, j, newIntent("new")), StateUnknown)
	require.NoError(t, j.Close())
	j = mustOpen(t, path, nil)
	assert.Empty(t, holdReasons(t, j)["new"], "the mark went back with the clock")
}
