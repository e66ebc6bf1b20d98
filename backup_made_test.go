package idem

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// namesIn are the names in a folder.
func namesIn(tb testing.TB, dir string) (names []string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(tb, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A backup has what was posted a moment ago, is whole in one file, and changes
// nothing in the original. Opened, it answers what is final and sends nothing.
func TestBackup(t *testing.T) {
	for name, options := range map[string]*SQLiteOptions{"clear": nil, "sealed": sealed(t, "a")} {
		t.Run(name, func(t *testing.T) {
			path, to := tempJournal(t), filepath.Join(t.TempDir(), "saved.db")
			j := mustOpen(t, path, options)
			open := mustBegin(t, j, newIntent("open"))
			prepared := newIntent("prepared")
			prepared.State, prepared.Attempts, prepared.Prepared = StatePending, 0, true
			prepared.FirstSent, prepared.Expires = time.Time{}, time.Time{}
			pending := mustBegin(t, j, prepared)
			pending.Claimed = false
			mustUpdate(t, j, pending, nil, true)
			done, a := succeed(mustBegin(t, j, newIntent("done")))
			mustUpdate(t, j, done, a, false) // posted
			require.NoError(t, j.Backup(t.Context(), to))
			assert.Equal(t, []string{"saved.db"}, namesIn(t, filepath.Dir(to)))
			require.Equal(t, 3, count(t, to, `SELECT count(*) FROM intent`))
			assert.Equal(t, 0, count(t, to, `SELECT count(*) FROM pragma_freelist_count WHERE freelist_count > 0`))

			next, a := succeed(open) // the original goes on
			mustUpdate(t, j, next, a, true)

			copied := mustOpen(t, to, options)
			got, err := copied.Lookup(t.Context(), "acct", "done")
			require.NoError(t, err)
			assert.Equal(t, done.Outcome, got.Outcome)
			for _, operation := range []string{"open", "prepared"} {
				got, claimed, err := copied.Begin(t.Context(), newIntent(operation))
				require.NoError(t, err)
				assert.False(t, claimed)
				assert.Equal(t, StateHeld, got.State, operation)
				assert.Equal(t, HoldCopied, got.HoldReason, operation)
				assert.Equal(t, operation == "open", got.Doubt, operation)
			}
			due, _, err := copied.ClaimDue(t.Context(), testNow.Add(time.Hour), Filter{Name: "main"})
			require.NoError(t, err)
			assert.Empty(t, due)
		})
	}
}

// Put back in place of the original, beside an owner folder that nobody has
// touched since, it is noticed as a copy all the same.
func TestBackupIsNoticedInPlaceOfTheOriginal(t *testing.T) {
	path := tempJournal(t)
	saved := path + ".saved"
	j := mustOpened(t, path, nil)
	in := mustBegin(t, j, newIntent("open"))
	require.NoError(t, j.Backup(t.Context(), saved))
	next, a := succeed(in) // it is newer
	mustUpdate(t, j, next, a, true)
	require.NoError(t, j.Close())
	require.NoError(t, os.Rename(saved, path))
	j = mustOpen(t, path, nil)
	got, err := j.Lookup(t.Context(), "acct", "open")
	require.NoError(t, err)
	assert.Equal(t, HoldCopied, got.HoldReason)
	assert.True(t, got.Doubt)
}

// What is at the path is left as it is, and so is all beside it.
func TestBackupRefuses(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	mustBegin(t, j, newIntent("a"))
	dir := t.TempDir()
	for _, name := range []string{"there.db", "log.db-wal", "shared.db-shm", "rollback.db-journal"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o640))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.db"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(dir, "there.db"), filepath.Join(dir, "link.db")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "nowhere.db"), filepath.Join(dir, "dangling.db")))
	before := namesIn(t, dir)
	for _, name := range []string{"there.db", "log.db", "shared.db", "rollback.db", "folder.db"} {
		err := j.Backup(t.Context(), filepath.Join(dir, name))
		require.ErrorIs(t, err, fs.ErrExist, name)
		require.ErrorIs(t, err, ErrJournal, name)
		require.ErrorContains(t, err, filepath.Join(dir, name))
	}
	require.ErrorIs(t, j.Backup(t.Context(), path), fs.ErrExist)
	for _, to := range []string{"", filepath.Join(dir, "link.db"), filepath.Join(dir, "dangling.db"), filepath.Join(dir, "none", "x.db"), filepath.Join(dir, strings.Repeat("x", 300))} {
		require.ErrorIs(t, j.Backup(t.Context(), to), ErrJournal, to)
	}
	assert.Equal(t, before, namesIn(t, dir))
	content, err := os.ReadFile(filepath.Join(dir, "there.db"))
	require.NoError(t, err)
	assert.Equal(t, "mine", string(content))

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errFull)
	require.ErrorIs(t, j.Backup(ctx, filepath.Join(dir, "a.db")), errFull)
	closed := mustOpened(t, tempJournal(t), nil)
	require.NoError(t, closed.Close())
	err = closed.Backup(t.Context(), filepath.Join(dir, "a.db"))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, err, ErrJournal)
	assert.Equal(t, before, namesIn(t, dir))
}

func TestBackupIsPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		return
	}
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	mustBegin(t, j, newIntent("a"))
	for _, mask := range []int{0, 0o22, 0o77, 0o177, 0o777} {
		to := fmt.Sprintf("%s.%o", path, mask)
		old := setUmask(mask)
		err := j.Backup(t.Context(), to)
		setUmask(old)
		require.NoError(t, err)
		info, err := os.Stat(to)
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), "umask %o", mask)
	}
}

// A sealed journal stays sealed.
func TestO03_BackupOfASealedJournal(t *testing.T) {
	for name, options := range map[string]*SQLiteOptions{"clear": nil, "sealed": sealed(t, "a")} {
		t.Run(name, func(t *testing.T) {
			r := &rig{tb: t, path: tempJournal(t), options: options, transport: &Transport{
				Contracts: rigContract(), Retry: RetryPolicy{MinBackoff: time.Millisecond, MaxAttempts: 2}, Base: markedProvider(),
			}}
			r.open()
			for i := range 3 {
				if resp, err := r.client.Do(fmt.Sprint("order-", i), markedRequest(t, i)); err == nil {
					readAndClose(t, resp)
				}
			}
			to := filepath.Join(t.TempDir(), "saved.db")
			require.NoError(t, r.journal.Backup(t.Context(), to))
			found := foundIn(t, filepath.Dir(to))
			if options == nil {
				assert.Subset(t, found, []string{"M-BODY", "M-QUERY", "M-HEADER", "M-ANSWER"})
				return
			}
			assert.Empty(t, found)
			_, err := Open(to, nil)
			require.ErrorIs(t, err, ErrSealed)
			copied := mustOpen(t, to, options)
			in, err := copied.Lookup(t.Context(), "", "order-0")
			require.NoError(t, err)
			assert.Equal(t, "M-ANSWER", string(in.Outcome.Body))
		})
	}
}

// Of many at once to one path, one makes it. Meanwhile others write.
func TestBackupsAtOnce(t *testing.T) {
	path := tempJournal(t)
	j, other := mustOpen(t, path, nil), mustOpen(t, path, nil)
	to := filepath.Join(t.TempDir(), "saved.db")
	var calls sync.WaitGroup
	made := make(chan error, 8)
	for i := range cap(made) {
		calls.Go(func() {
			handle := j
			if i%2 == 1 {
				handle = other
			}
			_, claimed, err := handle.Begin(t.Context(), newIntent(fmt.Sprint(i)))
			assert.NoError(t, err)
			assert.True(t, claimed)
			made <- handle.Backup(t.Context(), to)
		})
	}
	calls.Wait()
	good := 0
	for range cap(made) {
		if err := <-made; err == nil {
			good++
		} else {
			assert.ErrorIs(t, err, fs.ErrExist)
		}
	}
	assert.Equal(t, 1, good)
	assert.Equal(t, []string{"saved.db"}, namesIn(t, filepath.Dir(to)))
	checkFile(t, to)
}

// A row that cannot be does not keep the others from being saved; it is shown as
// held in the copy as in the original. A file that was replaced is not saved.
func TestBackupOfADamagedJournal(t *testing.T) {
	path := tempJournal(t)
	j := mustOpened(t, path, nil)
	done, a := succeed(mustBegin(t, j, newIntent("done")))
	mustUpdate(t, j, done, a, true)
	open := mustBegin(t, j, newIntent("open"))
	open.State, open.Doubt, open.Claimed = StateUnknown, true, false
	mustUpdate(t, j, open, nil, true)
	_, err := inspectedExec(t, path, `PRAGMA ignore_check_constraints = 1; UPDATE status SET state = 'odd' WHERE id = `+open.ID)
	require.NoError(t, err)
	to := path + ".saved"
	require.NoError(t, j.Backup(t.Context(), to))
	copied := mustOpened(t, to, nil)
	for operation, want := range map[string]State{"done": StateSucceeded, "open": StateHeld} {
		got, err := copied.Lookup(t.Context(), "acct", operation)
		require.NoError(t, err)
		assert.Equal(t, want, got.State, operation)
	}
	_ = copied.Close()

	elsewhere := mustOpened(t, filepath.Join(t.TempDir(), "other.db"), nil)
	require.NoError(t, elsewhere.Backup(t.Context(), path+".other"))
	require.NoError(t, elsewhere.Close())
	require.NoError(t, os.Rename(path+".other", path))
	err = j.Backup(t.Context(), path+".again")
	require.ErrorIs(t, err, ErrJournal)
	require.ErrorContains(t, err, "replaced")
	assert.NoFileExists(t, path+".again")
	_ = j.Close()
}
