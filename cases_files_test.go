//go:build unix

package idem

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever the umask is, nobody else can read the journal, its side files or the
// folder that is made beside it, at any step of their life.
func TestO28_FilesAreTheOwnersOnly(t *testing.T) {
	for _, umask := range []int{0o022, 0o000, 0o077} {
		t.Run(fmt.Sprintf("umask %03o", umask), func(t *testing.T) {
			root := t.TempDir() // the caller's; what is in it is ours
			old := syscall.Umask(umask)
			defer syscall.Umask(old)
			r := &rig{tb: t, path: filepath.Join(root, "journal.db"), transport: &Transport{
				Contracts: rigContract(), Base: answering(answerWith(201)),
			}}
			private := func(step string) {
				t.Helper()
				seen := map[string]bool{}
				require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
					if err != nil || path == root {
						return err
					}
					info, err := entry.Info()
					if err != nil {
						return err
					}
					want := fs.FileMode(0o600)
					if entry.IsDir() {
						want = 0o700
					}
					seen[entry.Name()] = true
					assert.Equal(t, want, info.Mode().Perm(), "%s: %s", step, path)
					return nil
				}))
				assert.True(t, seen["journal.db"], step)
				assert.True(t, seen["journal.db-owners"], step)
				assert.Equal(t, step != "closed", seen["journal.db-wal"], step)
			}
			r.open()
			private("opened")
			for i := range 3 {
				_, _, err := r.do(t.Context(), fmt.Sprint("order-", i), orderBody(i))
				require.NoError(t, err)
			}
			require.NoError(t, r.journal.Flush(t.Context()))
			private("written")
			require.NoError(t, r.journal.Close())
			private("closed")
			r.open()
			_, _, err := r.do(t.Context(), "order-9", orderBody(9))
			require.NoError(t, err)
			private("reopened and written")
		})
	}
}
