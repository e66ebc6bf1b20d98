package idem

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpenPathsAreTakenAsTheyAre(t *testing.T) {
	for _, name := range []string{"a?mode=memory", "b#fragment", "c%41", "d e", "ünïcode.db", "-x", "file:y", ":memory:", "s;p&q=1"} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" {
				name = strings.NewReplacer("?", "", ":", "").Replace(name)
			}
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			j := mustOpen(t, path, nil)
			mustBegin(t, j, newIntent("a"))
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.NotZero(t, info.Size())
			assert.FileExists(t, path+"-wal")
			assert.NoFileExists(t, filepath.Join(dir, "cA"))
		})
	}
}

func TestOpenTwoNamesOfOneFileShareOwners(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	mustBegin(t, j, newIntent("a"))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Dir(path), link))
	other := mustOpen(t, filepath.Join(link, filepath.Base(path)), nil)
	got, claimed, err := other.Begin(t.Context(), newIntent("a"))
	require.NoError(t, err)
	assert.False(t, claimed)
	assert.True(t, got.Owned)
	assert.DirExists(t, path+"-owners")
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	database := func(name string, script ...string) string {
		path := filepath.Join(dir, name)
		db := inspect(t, path)
		for _, s := range script {
			_, err := db.Exec(s)
			require.NoError(t, err)
		}
		require.NoError(t, db.Close())
		return path
	}
	newer := filepath.Join(dir, "newer.db")
	require.NoError(t, mustOpen(t, newer, nil).Close())
	database("newer.db", `PRAGMA user_version = 9`)
	t.Cleanup(func() { database("newer.db", `PRAGMA user_version = 1`) })
	cut := file("cut.db", "")
	orphan := filepath.Join(dir, "orphan.db")
	file("orphan.db-wal", "frames")

	for _, c := range []struct{ name, path, want string }{
		{"no path", "", `idem: open "": the path is empty`},
		{"a directory", dir, "it is a directory"},
		{"missing directory", filepath.Join(dir, "none", "x.db"), "the directory must exist"},
		{"below a file", filepath.Join(cut, "x.db"), "directory"},
		{"empty", cut, "the file is empty"},
		{"text", file("text.db", strings.Repeat("not a database. ", 100)), "file is not a database"},
		{"foreign", database("foreign.db", `CREATE TABLE t (a)`), "not a journal: application id 0x0"},
		{"newer", newer, `idem: open "` + newer + `": schema 9 is newer than 1`},
		{"missing, its log is there", orphan, "they belong together"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(c.path, nil)
			require.ErrorIs(t, err, ErrJournal)
			assert.ErrorContains(t, err, c.want)
		})
	}
	assert.NoDirExists(t, filepath.Join(dir, "none"))
	assert.NoDirExists(t, cut+"-owners", "nothing is made beside what is refused")
	assert.Equal(t, 0, count(t, filepath.Join(dir, "foreign.db"), `SELECT count(*) FROM sqlite_schema WHERE name = 'intent'`))
	db := inspect(t, filepath.Join(dir, "foreign.db"))
	defer db.Close()
	var mode string
	require.NoError(t, db.QueryRow(`PRAGMA journal_mode`).Scan(&mode))
	assert.Equal(t, "delete", mode, "a stranger's file is left as it was")

	_, err := Open(filepath.Join(dir, "none.db"), &SQLiteOptions{MustExist: true})
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.NoDirExists(t, filepath.Join(dir, "none.db-owners"))
	_, err = Open(filepath.Join(dir, "none.db"), &SQLiteOptions{PruneAfter: -time.Second})
	require.ErrorIs(t, err, ErrJournal)
}

func TestOpenFilesArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		return
	}
	for _, mask := range []int{0, 0o22, 0o77, 0o177, 0o277, 0o777} {
		path := tempJournal(t)
		old := setUmask(mask)
		j, err := Open(path, nil)
		if err == nil {
			mustBegin(t, j, newIntent("a"))
		}
		setUmask(old)
		require.NoError(t, err)
		for _, side := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + side)
			require.NoError(t, err)
			assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), side)
		}
		info, err := os.Stat(path + "-owners")
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
		owners, err := os.ReadDir(path + "-owners")
		require.NoError(t, err)
		assert.Len(t, owners, 3)
		for _, o := range owners {
			info, err := o.Info()
			require.NoError(t, err)
			assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
		}
		require.NoError(t, j.Close())
	}
}

func TestOpenLeavesOneFile(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	in := mustBegin(t, j, newIntent("a"))
	next, a := succeed(in)
	mustUpdate(t, j, next, a, false)
	require.NoError(t, j.Close())
	require.NoError(t, j.Close(), "twice is fine")
	assert.NoFileExists(t, path+"-wal", "checkpointed")
	assert.Equal(t, 0, count(t, path, `SELECT count(*) FROM owner`))
	files, err := os.ReadDir(path + "-owners")
	require.NoError(t, err)
	assert.Len(t, files, 2, "only the lock of the set-up and the epoch")

	again := mustOpen(t, path, &SQLiteOptions{MustExist: true})
	got, err := again.Lookup(t.Context(), "acct", "a")
	require.NoError(t, err)
	assert.Equal(t, StateSucceeded, got.State, "what was posted is there")
	assert.Equal(t, next.Outcome, got.Outcome)
}

func TestCloseRefusesWhatComesLater(t *testing.T) {
	j := mustOpen(t, tempJournal(t), nil)
	in := mustBegin(t, j, newIntent("a"))
	require.NoError(t, j.Close())

	_, _, err := j.Begin(t.Context(), newIntent("b"))
	for _, want := range []error{ErrClosed, ErrJournal, ErrNotSent} {
		assert.ErrorIs(t, err, want)
	}
	next, a := succeed(in)
	for _, durable := range []bool{true, false} {
		_, err = j.Update(t.Context(), next, a, durable)
		assert.ErrorIs(t, err, ErrClosed)
		assert.ErrorIs(t, err, ErrJournal)
	}
	_, err = j.Lookup(t.Context(), "acct", "a")
	assert.ErrorIs(t, err, ErrClosed)
	_, err = j.List(t.Context(), Filter{})
	assert.ErrorIs(t, err, ErrClosed)
	_, err = j.Attempts(t.Context(), in)
	assert.ErrorIs(t, err, ErrClosed)
	_, _, err = j.ClaimDue(t.Context(), testNow, Filter{})
	assert.ErrorIs(t, err, ErrClosed)
	_, err = j.Prune(t.Context(), testNow)
	assert.ErrorIs(t, err, ErrClosed)
	assert.ErrorIs(t, err, ErrJournal)
}

func TestJournalInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := tempJournal(t)
		j, err := Open(path, nil)
		require.NoError(t, err)
		begun := time.Now()
		for _, op := range []string{"a", "b", "c"} {
			go func() {
				in, claimed, err := j.Begin(t.Context(), newIntent(op))
				assert.NoError(t, err)
				assert.True(t, claimed)
				time.Sleep(time.Hour)
				next, a := succeed(in)
				_, err = j.Update(t.Context(), next, a, false)
				assert.NoError(t, err)
			}()
		}
		time.Sleep(2 * time.Hour)
		list, err := j.List(t.Context(), Filter{States: []State{StateSucceeded}})
		require.NoError(t, err)
		assert.Len(t, list, 3)
		assert.Equal(t, 2*time.Hour, time.Since(begun))
		require.NoError(t, j.Close())
	})
}
