package sqlite

import (
	"context"
	"database/sql/driver"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watched is a prepared query that tells of its uses.
type watched struct {
	driver.Stmt
	used func(args []driver.NamedValue)
}

func (w watched) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	w.used(args)
	return w.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// fill makes settled operations, many at a time.
func (s *Store) fill(tb testing.TB, operations int, renews bool, keep func(int) bool) {
	tb.Helper()
	var wg sync.WaitGroup
	for g := range 50 {
		wg.Go(func() {
			for i := g; i < operations; i += 50 {
				want := newRow(strconv.Itoa(i))
				if renews {
					want.Renews, want.Key = want.Key, "second-"+want.Operation
				}
				row, claimed, err := s.Begin(tb.Context(), want)
				assert.NoError(tb, err)
				assert.True(tb, claimed)
				c := row.succeeds()
				if c.State = rejected; keep(i) {
					c.Settled = 100
				}
				_, err = s.Update(tb.Context(), c, true)
				assert.NoError(tb, err)
			}
		})
	}
	wg.Wait()
}

func TestForgetWalksAllChunks(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	const operations = 2*pruneChunk + 1
	s.fill(t, operations, false, func(int) bool { return false })
	s.fill(t, operations, true, func(i int) bool { return i%3 == 0 }) // the generations are in other chunks

	// Others write in between, and Forget does not run after what they make.
	var until []int64
	st, err := s.writer.stmt(selectSettled)
	require.NoError(t, err)
	var begun sync.WaitGroup
	s.writer.stmts[selectSettled] = watched{Stmt: st, used: func(args []driver.NamedValue) {
		until = append(until, args[1].Value.(int64))
		assert.Equal(t, int64(pruneChunk), args[2].Value)
		begun.Go(func() {
			_, _, err := s.Begin(t.Context(), newRow("new-"+strconv.Itoa(len(until))))
			assert.NoError(t, err)
		})
		for waiting := 0; waiting < 1; runtime.Gosched() { // so that it is written before the next chunk
			s.mu.Lock()
			waiting = len(s.queue)
			s.mu.Unlock()
		}
	}}
	n, err := s.Forget(t.Context(), 100)
	require.NoError(t, err)
	begun.Wait()
	s.writer.stmts[selectSettled] = st
	forgotten := 2 * operations / 3
	assert.Equal(t, 2*forgotten, n)
	// Two chunks of first generations, and one of what is left behind them.
	assert.Equal(t, []int64{2 * operations, 2 * operations, 2 * operations}, until)
	left, err := s.List(t.Context(), "", "", nil, 0, 10*operations)
	require.NoError(t, err)
	assert.Len(t, left, 2*(operations-forgotten)+len(until))

	n, err = s.Forget(t.Context(), 100)
	require.NoError(t, err)
	assert.Zero(t, n)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Forget(ended, 100)
	require.ErrorIs(t, err, ErrNothingWritten)
}

// A removed row must not come back with a power cut, since its operation may
// have begun anew in another journal by then.
func TestForgetIsSynced(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	s.fill(t, 1, false, func(int) bool { return false })
	_, _, err := s.ClaimDue(t.Context(), 1, "", "", 1)
	require.NoError(t, err)
	require.False(t, s.writer.full)
	n, err := s.Forget(t.Context(), 100)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.True(t, s.writer.full)
}
