//go:build unix

package sqlite

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const stranger = 4242

// theirs says that the files with that name's end are a stranger's.
func theirs(end string) func(fs.FileInfo) (int, bool) {
	return func(info fs.FileInfo) (int, bool) {
		if strings.HasSuffix(info.Name(), end) {
			return stranger, true
		}
		return os.Geteuid(), true
	}
}

// What is another user's is refused before anything is written.
func TestForeignFilesAreRefused(t *testing.T) {
	for _, side := range []string{"", "-wal", "-shm", "-journal", "-owners"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "test.db")
		if side == "-owners" {
			require.NoError(t, os.Mkdir(path+side, 0o700))
		} else {
			require.NoError(t, os.WriteFile(path+side, []byte("theirs"), 0o600))
		}
		_, err := Open(path, Options{owner: theirs("test.db" + side)})
		require.ErrorIs(t, err, fs.ErrPermission, side)
		require.ErrorContains(t, err, "belongs to user 4242, and this process is user")
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1, "nothing is made")
		if side != "-owners" {
			content, err := os.ReadFile(path + side)
			require.NoError(t, err)
			assert.Equal(t, "theirs", string(content))
		}
	}
}

// A log that somebody has made between the look and the opening is found before a
// row is written into it.
func TestForeignFilesMadeMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	_, err := Open(path, Options{owner: theirs("-wal")}) // it is made by Open: so it was not there at first
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, `"test.db-wal" belongs to user 4242`)
	s, err := Open(path, Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// In a directory that everybody can write, the sticky bit keeps others from our
// files, but not the directory's owner.
func TestForeignSharedDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		mode fs.FileMode
		uid  int
		fine bool
	}{
		"root's": {0o777 | fs.ModeSticky, 0, true}, "ours": {0o777 | fs.ModeSticky, os.Geteuid(), true},
		"a stranger's": {0o777 | fs.ModeSticky, stranger, false}, "a stranger's, for a group": {0o775, stranger, true},
	} {
		dir := filepath.Join(t.TempDir(), "shared")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chmod(dir, c.mode))
		s, err := Open(filepath.Join(dir, "test.db"), Options{owner: func(info fs.FileInfo) (int, bool) {
			if info.Name() == "shared" {
				return c.uid, true
			}
			return os.Geteuid(), true
		}})
		if c.fine {
			require.NoError(t, err, name)
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorIs(t, err, fs.ErrPermission, name)
		require.ErrorContains(t, err, "belongs to user 4242, who may replace files in it")
	}
}

// The system's own answer is the one that is asked.
func TestOwnerOf(t *testing.T) {
	info, err := os.Stat(t.TempDir())
	require.NoError(t, err)
	uid, known := ownerOf(info)
	assert.True(t, known)
	assert.Equal(t, os.Geteuid(), uid)
}
