package sqlite

import (
	"database/sql"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lib "modernc.org/sqlite/lib"
)

// misleads makes the index of what is open wrong about a row, as a flipped bit in
// its leaf does. Nobody has the journal open.
func misleads(t *testing.T, path string, id int64) {
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	var name, table, text string
	var root int
	require.NoError(t, db.QueryRow(`SELECT name, tbl_name, rootpage, sql FROM sqlite_schema WHERE name = 'status_open'`).
		Scan(&name, &table, &root, &text))
	for _, step := range []struct {
		query  string
		values []any
	}{
		{`PRAGMA writable_schema = ON`, nil},
		{`DELETE FROM sqlite_schema WHERE name = ?`, []any{name}},
		{`PRAGMA writable_schema = RESET`, nil},
		{`UPDATE status SET due = due + 1000 WHERE id = ?`, []any{id}},
		{`PRAGMA writable_schema = ON`, nil},
		{`INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('index', ?, ?, ?, ?)`, []any{name, table, root, text}},
		{`PRAGMA writable_schema = RESET`, nil},
	} {
		_, err := db.Exec(step.query, step.values...)
		require.NoError(t, err, step.query)
	}
	require.NoError(t, db.Close())
}

// A row that the index does not know as it is cannot be written: a call of it is
// told so, and those that are written with it are.
func TestDamagedIndexDoesNotHurtABatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s, err := Open(path, Options{PruneAfter: time.Hour})
	require.NoError(t, err)
	var damaged int64
	for i := range 6 {
		row, _, err := s.Begin(t.Context(), newRow(strconv.Itoa(i)))
		require.NoError(t, err)
		c := &Change{ID: row.ID, Key: row.Key, Status: row.Status}
		c.State, c.Doubt = unknown, true
		_, err = s.Update(t.Context(), c, true)
		require.NoError(t, err)
		if i == 3 {
			damaged = row.ID
		}
	}
	require.NoError(t, s.Close())
	checkFile(t, path)
	misleads(t, path, damaged)
	s, err = Open(path, Options{PruneAfter: time.Hour})
	require.NoError(t, err)
	defer s.Close()

	s.mu.Lock()
	s.busy = true // until all of them wait
	s.mu.Unlock()
	var calls sync.WaitGroup
	for i := range 6 {
		calls.Go(func() {
			_, claimed, err := s.Begin(t.Context(), newRow(strconv.Itoa(i)))
			if i == 3 {
				assert.Equal(t, lib.SQLITE_CORRUPT, code(err), "%v", err)
				assert.ErrorIs(t, err, ErrNothingWritten)
				return
			}
			assert.True(t, err == nil && claimed, "%v", err)
		})
	}
	for waiting := 0; waiting < 6; runtime.Gosched() {
		s.mu.Lock()
		waiting = len(s.queue)
		s.mu.Unlock()
	}
	s.handOver(nil)
	calls.Wait()
}

// Whoever waits while what was posted cannot be written is told so at once, also
// where that is tried by itself.
func TestWhoWaitsForWhatCannotBeWrittenIsTold(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	row, _, err := s.Begin(t.Context(), newRow("a"))
	require.NoError(t, err)
	s.mu.Lock()
	s.busy = true // until all of them wait
	s.mu.Unlock()
	_, err = s.Update(t.Context(), row.succeeds(), false)
	require.NoError(t, err)
	var call sync.WaitGroup
	call.Go(func() { _, _, err = s.Begin(t.Context(), newRow("b")) })
	for waiting := 0; waiting < 1; runtime.Gosched() {
		s.mu.Lock()
		waiting = len(s.queue)
		s.mu.Unlock()
	}
	s.posted[0].alone = true
	s.failNext(t, updateStatus, false)
	s.handOver(nil)
	call.Wait()
	require.ErrorIs(t, err, ErrNothingWritten)
	assert.Equal(t, succeeded, s.lookUp(t, "a").State)
}
