package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStatsCountsLargeJournalsNotEachTime(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	s.mustSettle(t, s.mustBegin(t, "a"), succeeded, true)
	s.copies(t, 100, 0)
	st := s.stats(t)
	assert.Equal(t, map[string]int64{succeeded: 101}, st.States)
	s.mustSettle(t, s.mustBegin(t, "b"), rejected, true)
	assert.Equal(t, map[string]int64{succeeded: 101, rejected: 1}, s.stats(t).States, "a small one is counted each time")

	s.copies(t, countChunk, 3*countChunk) // three chunks with nothing in them are passed over
	s.copies(t, countChunk, 1<<40)
	st = s.stats(t)
	assert.Equal(t, map[string]int64{succeeded: 101, rejected: 1 + 2*countChunk}, st.States)
	assert.Positive(t, s.books.closed.took)

	s.books.closed.took = time.Hour
	open := s.mustBegin(t, "c")
	s.mustSettle(t, s.mustBegin(t, "d"), succeeded, true)
	again := s.stats(t)
	assert.Equal(t, map[string]int64{succeeded: 101, rejected: 1 + 2*countChunk, inFlight: 1}, again.States, "what is open is counted each time")
	assert.Equal(t, st.Counted, again.Counted)
	assert.Equal(t, open.Created, again.Oldest)

	s.books.closed.at = s.books.closed.at.Add(-countRest * time.Hour)
	again = s.stats(t)
	assert.Equal(t, int64(102), again.States[succeeded])
	assert.Greater(t, again.Counted, st.Counted)
}

func TestStatsOfSyncAndPrune(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	st := s.stats(t)
	assert.Zero(t, st.Synced)
	assert.Zero(t, st.Pruned)
	before := time.Now().UnixNano()
	r := s.mustBegin(t, "a")
	first := s.stats(t).Synced
	assert.GreaterOrEqual(t, first, before)
	s.mustSettle(t, r, succeeded, false)
	assert.Equal(t, first, s.stats(t).Synced, "what is posted is not synced")
	require.NoError(t, s.Flush(t.Context()))
	assert.Greater(t, s.stats(t).Synced, first)

	s.copies(t, 2*pruneChunk+10, 0)
	n, err := s.Prune(t.Context(), before)
	require.NoError(t, err)
	assert.Equal(t, 2*pruneChunk+11, n)
	st = s.stats(t)
	assert.Equal(t, int64(n), st.PrunedRows, "of the whole pass")
	assert.Equal(t, int64(n), st.Tombstones)
	assert.GreaterOrEqual(t, st.Pruned, before)

	_, err = s.Prune(t.Context(), before) // nothing is left
	require.NoError(t, err)
	assert.Equal(t, st.Pruned, s.stats(t).Pruned)
	s.mustSettle(t, s.mustBegin(t, "b"), succeeded, true)
	_, err = s.Prune(t.Context(), before)
	require.NoError(t, err)
	assert.Equal(t, int64(1), s.stats(t).PrunedRows, "of the last one")
}
