package sqlite

import (
	"context"
	"database/sql/driver"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plan is how SQLite runs a statement.
func (c *conn) plan(tb testing.TB, i statement) string {
	tb.Helper()
	var args []driver.NamedValue
	for n := range strings.Count(statements[i], "?") {
		args = append(args, driver.NamedValue{Ordinal: n + 1})
	}
	rows, err := c.db.(driver.QueryerContext).QueryContext(context.Background(), "EXPLAIN QUERY PLAN "+statements[i], args)
	require.NoError(tb, err)
	var steps []string
	values := make([]driver.Value, len(rows.Columns()))
	for rows.Next(values) == nil {
		steps = append(steps, text(values[3]))
	}
	require.NoError(tb, rows.Close())
	return strings.Join(steps, "\n")
}

// What ClaimDue costs must depend on what is due, not on what was ever done.
func TestClaimDueWalksWhatIsOpen(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	for i, due := range map[statement]string{selectDue: "due<?", selectDeadly: "due<?", selectNextDue: "due>?"} {
		plan := s.writer.plan(t, i)
		assert.Contains(t, plan, "SEARCH s USING INDEX status_open (open=? AND owner=? AND "+due+")")
		assert.Contains(t, plan, "SEARCH i USING INTEGER PRIMARY KEY (rowid=?)")
		assert.Contains(t, plan, "SEARCH e USING COVERING INDEX intent_operation (scope=? AND operation=? AND generation<?)")
		assert.Contains(t, plan, "SEARCH w USING INTEGER PRIMARY KEY (rowid=?)")
		assert.NotContains(t, plan, "SCAN")
		assert.Equal(t, i == selectDeadly, strings.Contains(plan, "TEMP B-TREE"), "only deaths are sorted: %s", plan)
	}
	assert.Equal(t, "SEARCH status USING INDEX status_open (open=? AND owner=?)", s.writer.plan(t, selectOwned))
}

// A statement that is planned anew at each use costs ten times what it does.
func TestStatementsArePlannedOnce(t *testing.T) {
	for i, text := range statements {
		if statement(i) == holdDoubt { // once, at Open
			continue
		}
		assert.NotRegexp(t, `LIMIT \?|IS \?`, text, "see the comment of statements")
	}
}

// content is a number that moves when another connection writes.
func (s *Store) content(tb testing.TB) int64 {
	tb.Helper()
	r := <-s.readers
	defer func() { s.readers <- r }()
	n, err := r.number("PRAGMA data_version")
	require.NoError(tb, err)
	return n
}

// A resume loop asks about once a second, in each process.
func TestIdleClaimDueWritesNothing(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	for i, state := range []string{held, succeeded, withdrawn, pending} {
		row, _, err := s.Begin(t.Context(), newRow(strconv.Itoa(i)))
		require.NoError(t, err)
		c := row.succeeds()
		c.Settled = time.Now().UnixNano() // or it would be pruned
		if c.State = state; state != succeeded {
			c.Outcome, c.Due = nil, 1000
		}
		if state == held {
			c.HoldReason, c.Notify = "poison", true
		}
		_, err = s.Update(t.Context(), c, true)
		require.NoError(t, err)
	}
	_, _, err := s.ClaimDue(t.Context(), 10, "", "", 10) // notes the clock, once a minute
	require.NoError(t, err)
	s.content(t)
	before, frames := s.content(t), s.chores.frames
	for range 100 {
		due, next, err := s.ClaimDue(t.Context(), 10, "", "", 10)
		require.NoError(t, err)
		assert.Empty(t, due)
		assert.Equal(t, int64(1000), next)
	}
	assert.Equal(t, before, s.content(t))
	assert.Equal(t, frames, s.chores.frames, "and does not count as written")
	due, _, err := s.ClaimDue(t.Context(), 1000, "", "", 10)
	require.NoError(t, err)
	assert.Len(t, due, 1)
	assert.NotEqual(t, before, s.content(t))
	assert.Greater(t, s.chores.frames, frames)
}

// Where the clock stands still, as it does in a group commit of a coarse one,
// no two attempts begin at once all the same.
func TestAttemptsBeginOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
		rows := map[string]*Row{}
		for _, operation := range []string{"a", "b", "c"} {
			row, _, err := s.Begin(t.Context(), newRow(operation))
			require.NoError(t, err)
			rows[operation] = row
		}
		begins := func(operation string, attempts int64) {
			r := rows[operation]
			c := &Change{ID: r.ID, Key: r.Key, Status: r.Status, Claimed: true}
			c.Attempts, c.Began = attempts, 0
			version, err := s.Update(t.Context(), c, true)
			require.NoError(t, err)
			r.Version = version
		}
		begins("b", 2)
		begins("a", 2)
		begins("c", 1) // a write, and no attempt
		s.running.rows = map[int64]int64{}
		due, _, err := s.ClaimDue(t.Context(), 1000, "", "", 10)
		require.NoError(t, err)
		var order []string
		for _, r := range due {
			order = append(order, r.Operation)
		}
		assert.Equal(t, []string{"c", "b", "a"}, order)
	})
}
