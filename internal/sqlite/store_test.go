package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustOpen(tb testing.TB, path string) *Store {
	tb.Helper()
	s, err := Open(path, Options{PruneAfter: time.Hour})
	require.NoError(tb, err)
	tb.Cleanup(func() {
		require.NoError(tb, s.Close())
		checkFile(tb, path)
	})
	return s
}

func checkFile(tb testing.TB, path string) {
	tb.Helper()
	c, err := openReader(path)
	require.NoError(tb, err)
	defer c.close()
	ok, err := c.value("PRAGMA integrity_check")
	require.NoError(tb, err)
	require.Equal(tb, "ok", ok)
	bad, err := c.number("SELECT count(*) FROM pragma_foreign_key_check")
	require.NoError(tb, err)
	require.Zero(tb, bad)
}

func newRow(operation string) *Row {
	return &Row{
		Scope: "s", Operation: operation, Key: "k-" + operation, Fingerprint: []byte("f"), Created: 1,
		Request: &Request{Target: "https://example.com/", Body: []byte("body")},
		Status:  Status{State: inFlight, Attempts: 1, FirstSent: 1},
	}
}

func (s *Store) lookUp(tb testing.TB, operation string) *Row {
	tb.Helper()
	r, err := s.Lookup(tb.Context(), "s", operation)
	require.NoError(tb, err)
	return r
}

func settings(tb testing.TB, c *conn) [4]any {
	tb.Helper()
	var got [4]any
	for i, name := range []string{"busy_timeout", "synchronous", "journal_mode", "trusted_schema"} {
		v, err := c.value("PRAGMA " + name)
		require.NoError(tb, err)
		got[i] = v
	}
	return got
}

// Eight connections at once, each as the handles made it: writers and readers.
func TestO42_SyncLevelIsFullOnEveryConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	connections := 0
	for range 3 {
		s := mustOpen(t, path)
		readers := []*conn{<-s.readers, <-s.readers}
		for _, c := range append(readers, s.writer) {
			assert.Equal(t, [4]any{int64(0), int64(3), "wal", int64(0)}, settings(t, c))
			connections++
		}
		defer func() {
			for _, c := range readers {
				s.readers <- c
			}
		}()
		// Also when the writer was discarded, and after a batch that was not synced.
		s.discardWriter()
		require.NoError(t, s.begin(false))
		require.NoError(t, s.write(nil))
		assert.Equal(t, int64(1), settings(t, s.writer)[1])
		require.NoError(t, s.begin(true))
		assert.Equal(t, int64(3), settings(t, s.writer)[1])
		require.NoError(t, s.write(nil))
	}
	assert.GreaterOrEqual(t, connections, 8)
}

func TestReadersCannotWrite(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	r := <-s.readers
	assert.Error(t, r.text("DELETE FROM intent"))
	s.readers <- r
}

func TestO24_ModesThatDidNotTakeAreErrors(t *testing.T) {
	c, err := connect("file::memory:") // answers "memory" when asked for WAL
	require.NoError(t, err)
	defer c.close()
	assert.ErrorContains(t, c.configure(writerSettings), "write-ahead mode did not take")

	path := filepath.Join(t.TempDir(), "x.db")
	require.NoError(t, mustOpen(t, path).Close())
	c, err = connect(dataSource(path, "rw"))
	require.NoError(t, err)
	defer c.close()
	assert.ErrorContains(t, c.configure([]string{"PRAGMA synchronous=NORMAL"}), "full sync did not take")
}

func TestO24_NetworkFilesystemsAreRefused(t *testing.T) {
	if runtime.GOOS != "linux" {
		return
	}
	path := filepath.Join(t.TempDir(), "x.db")
	for kind, name := range map[uint32]string{0x6969: "nfs", 0x65735546: "fuse", 0x01021997: "9p", 0xff534d42: "cifs"} {
		_, err := Open(path, Options{statfs: func(string) (uint32, error) { return kind, nil }})
		require.ErrorContains(t, err, "the filesystem is "+name)
	}
	_, err := Open(path, Options{statfs: func(string) (uint32, error) { return 0, errors.New("no answer") }})
	require.Error(t, err)
	assert.NoFileExists(t, path)
	assert.NoDirExists(t, path+"-owners")
}

// failing is a prepared statement that answers with an error instead, or after
// it did its work.
type failing struct {
	driver.Stmt
	after bool
	err   error
}

func (f failing) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if f.after {
		if _, err := f.Stmt.(driver.StmtExecContext).ExecContext(ctx, args); err != nil {
			return nil, err
		}
	}
	return nil, f.err
}

// fail makes the next use of a statement fail. The connection is reopened
// after that, with sound statements.
func (s *Store) failNext(tb testing.TB, i statement, after bool) {
	tb.Helper()
	st, err := s.writer.stmt(i)
	require.NoError(tb, err)
	s.writer.stmts[i] = failing{Stmt: st, after: after, err: errors.New("disk I/O error")}
}

func TestFailedCommitMayBeDurable(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(strconv.FormatBool(after), func(t *testing.T) {
			s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
			was := s.writer
			s.failNext(t, commit, after)
			_, _, err := s.Begin(t.Context(), newRow("a"))
			require.ErrorIs(t, err, ErrMayBeWritten)
			assert.NotErrorIs(t, err, ErrNothingWritten)
			assert.NotSame(t, was, s.writer, "the connection is not believed any more")

			got, claimed, err := s.Begin(t.Context(), newRow("a"))
			require.NoError(t, err)
			assert.True(t, claimed, "no running call of ours has it")
			if after {
				assert.Equal(t, unknown, got.State, "it was there")
			} else {
				assert.Equal(t, inFlight, got.State, "it was not")
			}
		})
	}
}

func TestFailureBeforeCommitWritesNothing(t *testing.T) {
	for _, at := range []statement{beginImmediate, insertIntent, insertStatus} {
		s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
		s.failNext(t, at, false)
		_, _, err := s.Begin(t.Context(), newRow("a"))
		require.ErrorIs(t, err, ErrNothingWritten)
		_, err = s.Lookup(t.Context(), "s", "a")
		require.ErrorIs(t, err, ErrNotFound)
		got, claimed, err := s.Begin(t.Context(), newRow("a"))
		require.NoError(t, err)
		assert.True(t, claimed)
		assert.Equal(t, inFlight, got.State)
	}
}

func (r *Row) succeeds() *Change {
	c := &Change{ID: r.ID, Key: r.Key, Status: r.Status, Outcome: &Outcome{StatusCode: 200, Complete: true, Body: []byte("ok")}}
	c.State, c.Doubt, c.Settled = succeeded, false, 2
	return c
}

func TestPostedUpdatesAreTriedAgain(t *testing.T) {
	for _, at := range []statement{beginImmediate, updateStatus, commit} {
		s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
		row, _, err := s.Begin(t.Context(), newRow("a"))
		require.NoError(t, err)
		s.failNext(t, at, false)
		version, err := s.Update(t.Context(), row.succeeds(), false)
		require.NoError(t, err)
		assert.Equal(t, int64(2), version)
		got := s.lookUp(t, "a") // with or without the overlay
		assert.Equal(t, succeeded, got.State)
		assert.Equal(t, []byte("ok"), got.Outcome.Body)
		_, _, err = s.Begin(t.Context(), newRow("b")) // its batch takes what was posted first
		require.NoError(t, err)
		assert.Equal(t, int64(2), s.lookUp(t, "a").Version)
	}
}

// One item whose statement fails must not take the others with it.
func TestBadItemDoesNotHurtItsBatch(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	s.mu.Lock()
	s.busy = true // hold the token until all of them wait
	s.mu.Unlock()
	bad := &badOp{}
	bad.item = item{op: bad, durable: true}
	var wg sync.WaitGroup
	results := make([]error, 6)
	for i := range results {
		wg.Go(func() {
			if i == 3 {
				results[i] = s.submit(t.Context(), &bad.item)
				return
			}
			_, _, results[i] = s.Begin(t.Context(), newRow(strconv.Itoa(i)))
		})
	}
	for waiting := 0; waiting < len(results); runtime.Gosched() {
		s.mu.Lock()
		waiting = len(s.queue)
		s.mu.Unlock()
	}
	s.handOver(nil)
	wg.Wait()
	for i, err := range results {
		if i == 3 {
			assert.ErrorIs(t, err, ErrNothingWritten)
			assert.ErrorContains(t, err, "CHECK constraint failed")
			continue
		}
		assert.NoError(t, err)
		assert.True(t, s.lookUp(t, strconv.Itoa(i)).Owned)
	}
}

type badOp struct{ item }

func (*badOp) exec(t *transaction) error {
	_, err := t.c.exec(insertOwner, "too short")
	return err
}

func TestOutcomesAreSyncedOnlyWhenAskedFor(t *testing.T) {
	for _, asked := range []bool{false, true} {
		s, err := Open(filepath.Join(t.TempDir(), "x.db"), Options{PruneAfter: time.Hour, SyncOutcomes: asked})
		require.NoError(t, err)
		row, _, err := s.Begin(t.Context(), newRow("a"))
		require.NoError(t, err)
		assert.True(t, s.writer.full, "an intent is synced always")
		_, err = s.Update(t.Context(), row.succeeds(), false)
		require.NoError(t, err)
		require.NoError(t, s.flush(t.Context()))
		assert.Equal(t, asked, s.writer.full)
		require.NoError(t, s.Close())
	}
}

func TestCreationThatWasCutIsDoneAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	require.NoError(t, os.Mkdir(path+"-owners", 0o700))
	for _, side := range []string{"", "-wal", "-shm", "-journal"} {
		require.NoError(t, os.WriteFile(filepath.Join(path+"-owners", "draft.db"+side), []byte("half"), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(path+"-owners", strings.Repeat("0", 32)+".owner"), nil, 0o600))
	s := mustOpen(t, path)
	_, _, err := s.Begin(t.Context(), newRow("a"))
	require.NoError(t, err)
	files, err := os.ReadDir(path + "-owners")
	require.NoError(t, err)
	assert.Len(t, files, 3, "the set-up lock, the epoch and this owner")
}

func TestPostingIsBounded(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	s.mu.Lock()
	s.busy = true
	s.mu.Unlock()
	ok, err := s.post(&item{op: &nothing{}, size: maxPosted - 1})
	require.NoError(t, err)
	assert.True(t, ok)
	ok, err = s.post(&item{op: &nothing{}, size: 2})
	require.NoError(t, err)
	assert.False(t, ok, "the caller has to wait now")
	s.handOver(nil)
	require.NoError(t, s.flush(t.Context()))
}

func TestLeavingTheQueue(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	s.mu.Lock()
	s.busy = true
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := s.Begin(ctx, newRow("a"))
		done <- err
	}()
	for waiting := 0; waiting < 1; runtime.Gosched() {
		s.mu.Lock()
		waiting = len(s.queue)
		s.mu.Unlock()
	}
	cancel()
	err := <-done
	require.ErrorIs(t, err, ErrNothingWritten)
	require.ErrorIs(t, err, context.Canceled)
	s.handOver(nil)
	_, err = s.Lookup(t.Context(), "s", "a")
	require.ErrorIs(t, err, ErrNotFound)
}

func TestChoresKeepTheLogShort(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	body := make([]byte, 20_000)
	for i := range 600 { // 12 MB through a log of about 4
		row := newRow(strconv.Itoa(i))
		row.Request.Body = body
		row, _, err := s.Begin(t.Context(), row)
		require.NoError(t, err)
		_, err = s.Update(t.Context(), row.succeeds(), false)
		require.NoError(t, err)
	}
	c, err := openReader(s.path)
	require.NoError(t, err)
	defer c.close()
	frames, err := c.column("PRAGMA wal_checkpoint(NOOP)", 1)
	require.NoError(t, err)
	assert.Less(t, frames, int64(2*checkpointFrames))
}

// Where callers share their commits, all of them wait for what is copied.
func TestChoresKeepASharedLogShorter(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	longest := func(callers int) (most float64) {
		for round := range 100 / callers {
			for free := false; !free; runtime.Gosched() { // after the chores of the last round
				s.mu.Lock()
				free = !s.busy
				s.busy = true
				s.mu.Unlock()
			}
			most = max(most, s.chores.frames)
			var calls sync.WaitGroup
			for caller := range callers {
				calls.Go(func() {
					row := newRow(fmt.Sprint(callers, "/", round, "/", caller))
					row.Request.Body = make([]byte, 100_000)
					_, _, err := s.Begin(t.Context(), row)
					assert.NoError(t, err)
				})
			}
			for waiting := 0; waiting < callers; runtime.Gosched() {
				s.mu.Lock()
				waiting = len(s.queue)
				s.mu.Unlock()
			}
			s.handOver(nil)
			calls.Wait()
		}
		return most
	}
	assert.Greater(t, longest(1), float64(2*sharedFrames), "who is alone pays for each sync of it alone")
	assert.Less(t, longest(2), float64(2*sharedFrames))
}

func TestChoresPrune(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	for i := range 3 * pruneEvery {
		row, _, err := s.Begin(t.Context(), newRow(strconv.Itoa(i)))
		require.NoError(t, err)
		_, err = s.Update(t.Context(), row.succeeds(), false) // settled in 1970
		require.NoError(t, err)
	}
	require.NoError(t, s.flush(t.Context()))
	r := <-s.readers
	defer func() { s.readers <- r }()
	pruned, err := r.number("SELECT count(*) FROM status WHERE kept = 0")
	require.NoError(t, err)
	assert.Positive(t, pruned)
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte{})
	f.Add(EncodeHeader(map[string][]string{"A": {"1", ""}, "b": nil, "": {}}))
	f.Add([]byte{1, 200, 200, 200, 200, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHeader(b) // never panics, never allocates without bound
		if err != nil {
			return
		}
		again, err := DecodeHeader(EncodeHeader(h))
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}
