package sqlite

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (s *Store) mustBegin(tb testing.TB, operation string) *Row {
	tb.Helper()
	r, claimed, err := s.Begin(tb.Context(), newRow(operation))
	require.NoError(tb, err)
	require.True(tb, claimed)
	return r
}

func (s *Store) mustSettle(tb testing.TB, r *Row, state string, durable bool) {
	tb.Helper()
	c := &Change{ID: r.ID, Key: r.Key, Status: r.Status}
	c.Status.State, c.Status.Settled = state, 1
	_, err := s.Update(tb.Context(), c, durable)
	require.NoError(tb, err)
}

func (s *Store) stats(tb testing.TB) Stats {
	tb.Helper()
	st, err := s.Stats(tb.Context())
	require.NoError(tb, err)
	return st
}

// copies makes so many rows like the one with the highest ID, after a gap.
func (s *Store) copies(tb testing.TB, n int, gap int64) {
	tb.Helper()
	c, err := openWriter(s.path)
	require.NoError(tb, err)
	defer c.close()
	statusOnly := `version, state, doubt, hold_reason, owner, attempts, deaths, resumes, began, prepared, notify,
		first_sent, due, wait, expires, settled, decider, note, kept`
	require.NoError(tb, c.text(fmt.Sprintf(`CREATE TEMP TABLE made AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		SELECT i + %d + (SELECT max(id) FROM intent) AS id, (SELECT max(id) FROM intent) AS model FROM n;
		BEGIN IMMEDIATE;
		INSERT INTO intent SELECT m.id, scope, operation || '/' || m.id, generation, key || m.id, adopted, credential, name, provider, method, url,
			fingerprint, place, encoding, retention, renews, withheld, created, head_sum, request_sum, target, host, header, body
			FROM made m JOIN intent i ON i.id = m.model;
		INSERT INTO status (id, %s) SELECT m.id, %s FROM made m JOIN status s ON s.id = m.model;
		COMMIT`, n, gap, statusOnly, statusOnly)))
}

// What is in a state that does not exist is not lost from the sum.
func TestStatsOfDamagedStates(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	s.mustSettle(t, s.mustBegin(t, "a"), succeeded, true)
	s.copies(t, 2, 0)
	require.NoError(t, s.writer.text("PRAGMA ignore_check_constraints=ON; UPDATE status SET state = 'succeedee' WHERE id = 2"))
	defer func() {
		require.NoError(t, s.writer.text("UPDATE status SET state = 'succeeded' WHERE id = 2; PRAGMA ignore_check_constraints=OFF"))
	}()
	st := s.stats(t)
	assert.Equal(t, map[string]int64{succeeded: 2, held: 1}, st.States)
	assert.Equal(t, map[string]int64{holdChecksum: 1}, st.Held)
}

// A page of an export is as large as it may be in bytes, and one row at least.
func TestExportIsReadInPages(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	for i := range 6 {
		r := newRow(fmt.Sprint(i))
		r.Request.Body = bytes.Repeat([]byte("x"), exportBytes/3)
		if i == 5 {
			r.Request.Body = bytes.Repeat([]byte("x"), 2*exportBytes)
		}
		_, _, err := s.Begin(t.Context(), r)
		require.NoError(t, err)
	}
	var sizes []int
	for last := int64(0); ; {
		page, broken, err := s.exportPage(t.Context(), last)
		require.NoError(t, err)
		require.False(t, broken)
		if len(page) == 0 {
			break
		}
		sizes, last = append(sizes, len(page)), page[len(page)-1].ID
	}
	assert.Equal(t, []int{3, 3}, sizes)
	s.mustBegin(t, "small")
	s.copies(t, 2*exportRows, 0)
	page, _, err := s.exportPage(t.Context(), 6)
	require.NoError(t, err)
	assert.Len(t, page, exportRows)
}

// Where neither table tells, the next row is searched for.
func TestExportSearchesForTheNextRow(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	s.mustBegin(t, "a")
	s.copies(t, 5, 0)
	s.copies(t, 5, 1000)
	var ids []int64
	err := s.read(t.Context(), func(c *conn) error {
		id, lost := c.next(0)
		for ; id != 0 && lost == nil; id, lost = c.next(id) {
			ids = append(ids, id)
		}
		return lost
	})
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 2, 3, 4, 5, 6, 1007, 1008, 1009, 1010, 1011}, ids)
}
