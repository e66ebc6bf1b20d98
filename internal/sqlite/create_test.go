package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection/diskfault"
)

// A disk error while a journal is made is told, and does not spoil its path: once
// the disk works again, the journal is made.
func TestCreationThatMeetsADiskErrorIsDoneAgain(t *testing.T) {
	_, err := diskfault.Register()
	require.NoError(t, err)
	for kind, code := range map[string]int32{
		diskfault.Write: diskfault.WriteFailed, diskfault.Sync: diskfault.SyncFailed, diskfault.Truncate: diskfault.TruncateFailed,
	} {
		for n, refused := int64(1), 0; ; n++ {
			path := filepath.Join(t.TempDir(), "journal.db")
			fired := false
			fail := diskfault.FailNth(kind, n, code, false)
			require.NoError(t, diskfault.SetHook(path, func(op diskfault.Op) diskfault.Verdict {
				v := fail(op)
				fired = fired || v.Code != 0
				return v
			}))
			s, err := Open(path, Options{})
			if err == nil {
				err = s.Close()
			}
			if err != nil {
				refused++
			}
			require.NoError(t, diskfault.SetHook(path, nil))
			s, err = Open(path, Options{})
			require.NoError(t, err, "%s %d", kind, n)
			require.NoError(t, s.Close())
			if !fired {
				assert.Greater(t, n, int64(1), "no %s was failed", kind)
				t.Logf("%s: %d failed, %d told", kind, n-1, refused)
				break
			}
		}
	}
}
