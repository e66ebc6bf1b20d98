//go:build unix

package idem

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// openUnprivileged opens path in a process to which file modes apply, which
// they do not to root.
func openUnprivileged(t *testing.T, path string) (answer string) {
	t.Helper()
	program := os.Args[0]
	cmd := exec.Command(program)
	if os.Geteuid() == 0 {
		program = filepath.Join(t.TempDir(), "program")
		copyFile(t, os.Args[0], program)
		cmd = exec.Command(program)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		for _, dir := range []string{filepath.Dir(program), filepath.Dir(path)} {
			require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // t.TempDir makes it 0700
		}
	}
	cmd.Env = append(os.Environ(), childEnv+"=journal/open", childPath+"="+path)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
}

func TestOpenWhereNothingCanBeWritten(t *testing.T) { // O-54
	path := tempJournal(t)
	dir := filepath.Dir(path)
	require.NoError(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { os.Chmod(dir, 0o755) })
	assert.Contains(t, openUnprivileged(t, path), "permission denied")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, files, "nothing half made")

	// A file that can be written, in a directory that cannot.
	require.NoError(t, os.Chmod(dir, 0o755))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir, 65534, 65534))
	}
	assert.Equal(t, "opened\n", openUnprivileged(t, path))
	require.NoError(t, os.Chmod(dir, 0o555))
	assert.NotContains(t, openUnprivileged(t, path), "opened")

	// A file that cannot, in a directory that can.
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(path, 0o400))
	assert.Contains(t, openUnprivileged(t, path), "readonly")
}

// A link is another's word on where the journal is. What it leads to is left as
// it is, and nothing is made.
func TestOpenRefusesLinks(t *testing.T) {
	for _, side := range []string{"", "-wal", "-shm", "-journal", "-owners"} {
		for _, there := range []bool{true, false} {
			dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
			path := filepath.Join(dir, "test.db")
			if there && side == "-owners" {
				require.NoError(t, os.Mkdir(target, 0o755))
			} else if there {
				require.NoError(t, os.WriteFile(target, []byte("theirs"), 0o644))
			}
			require.NoError(t, os.Symlink(target, path+side))
			_, err := Open(path, nil)
			require.ErrorIs(t, err, ErrJournal, side)
			require.ErrorIs(t, err, fs.ErrPermission, side)
			require.ErrorContains(t, err, "is a symbolic link")
			assert.Equal(t, []string{"test.db" + side}, namesIn(t, dir))
			info, err := os.Stat(target)
			if !there {
				require.ErrorIs(t, err, fs.ErrNotExist)
				continue
			}
			require.NoError(t, err)
			if !info.IsDir() {
				assert.Equal(t, fs.FileMode(0o644), info.Mode().Perm())
				assert.EqualValues(t, len("theirs"), info.Size())
			} else {
				assert.Empty(t, namesIn(t, target))
			}
		}
	}
	path := tempJournal(t)
	require.NoError(t, syscall.Mkfifo(path+"-wal", 0o600)) // it would be waited for
	_, err := Open(path, nil)
	require.ErrorIs(t, err, ErrJournal)
	require.ErrorContains(t, err, "it is not a regular file")
}

// Where everybody may take files away and put others there, there is no journal.
func TestOpenInASharedDirectory(t *testing.T) {
	for mode, fine := range map[fs.FileMode]bool{
		0o777: false, 0o773: false, 0o702: false, 0o777 | fs.ModeSticky: true, 0o775: true, 0o755: true, 0o700: true,
	} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, mode))
		j, err := Open(filepath.Join(dir, "test.db"), nil)
		if fine {
			require.NoError(t, err, mode)
			require.NoError(t, j.Close())
			continue
		}
		require.ErrorIs(t, err, fs.ErrPermission, mode)
		require.ErrorIs(t, err, ErrJournal)
		require.ErrorContains(t, err, "world-writable")
		assert.Empty(t, namesIn(t, dir))

		safe := mustOpen(t, tempJournal(t), nil) // nor a backup
		require.ErrorIs(t, safe.Backup(t.Context(), filepath.Join(dir, "saved.db")), fs.ErrPermission)
		assert.Empty(t, namesIn(t, dir))
	}
}

// A journal that was put there with other modes, such as by a restore, is
// private from its next Open on. What is no journal keeps its modes.
func TestOpenTakesModesFromOthers(t *testing.T) {
	path := tempJournal(t)
	j := mustOpened(t, path, nil)
	mustBegin(t, j, newIntent("a"))
	require.NoError(t, copyJournalFiles(path, path+".crashed")) // with a log
	require.NoError(t, j.Close())
	path += ".crashed"
	for _, side := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.Chmod(path+side, 0o666))
	}
	require.NoError(t, os.Mkdir(path+"-owners", 0o777))
	require.NoError(t, os.Chmod(path+"-owners", 0o777))
	mustOpen(t, path, nil)
	for _, side := range []string{"", "-wal", "-shm", "-owners"} {
		info, err := os.Stat(path + side)
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, side)
	}
	foreign := filepath.Join(t.TempDir(), "foreign.db")
	require.NoError(t, os.WriteFile(foreign, []byte("no journal, but of somebody"), 0o644))
	_, err := Open(foreign, nil)
	require.ErrorIs(t, err, ErrJournal)
	info, err := os.Stat(foreign)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o644), info.Mode().Perm())
}

func copyJournalFiles(from, to string) error {
	for _, side := range []string{"", "-wal", "-shm"} {
		b, err := os.ReadFile(from + side)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to+side, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
