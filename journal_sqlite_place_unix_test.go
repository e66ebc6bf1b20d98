//go:build unix

package idem

import (
	"io"
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
	require.NoError(t, os.Chmod(dir, 0o777))
	assert.Equal(t, "opened\n", openUnprivileged(t, path))
	require.NoError(t, os.Chmod(dir, 0o555))
	assert.NotContains(t, openUnprivileged(t, path), "opened")

	// A file that cannot, in a directory that can.
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.Chmod(path, 0o400))
	assert.Contains(t, openUnprivileged(t, path), "readonly")
}
