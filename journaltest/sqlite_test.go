package journaltest_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/journaltest"
)

// Handles of one process. A handle is dead to all others once its file in the
// owner folder is gone (missing means dead), which is how one is killed here.
// What it posted is written all the same: TestSQLiteProcesses kills for real.
func TestSQLite(t *testing.T) { examineSQLite(t, nil) }

// A sealed journal is like any other.
func TestSQLiteSealed(t *testing.T) {
	sealer, err := idem.NewAESGCM(map[string][]byte{"a": []byte("0123456789abcdef0123456789abcdef")}, "a")
	require.NoError(t, err)
	examineSQLite(t, &idem.SQLiteOptions{Sealer: sealer})
}

func examineSQLite(t *testing.T, opts *idem.SQLiteOptions) {
	journaltest.Run(t, func(t *testing.T) journaltest.Store {
		path := filepath.Join(t.TempDir(), "journal.db")
		files := map[idem.Journal]string{}
		s := journaltest.Store{
			Open: func() (idem.Journal, error) {
				before := owners(t, path)
				j, err := idem.Open(path, opts)
				if err != nil {
					return nil, err
				}
				for name := range owners(t, path) {
					if !before[name] {
						files[j] = name
					}
				}
				return j, nil
			},
			Kill: func(j idem.Journal) {
				require.NoError(t, os.Remove(files[j]))
				t.Cleanup(func() { j.Close() }) // frees its connections
			},
		}
		if runtime.GOOS == "windows" { // a locked file cannot be removed
			s.Kill = nil
		}
		return s
	})
}

// owners are the files of the owners, living or dead.
func owners(tb testing.TB, path string) map[string]bool {
	tb.Helper()
	found, err := filepath.Glob(path + "-owners/*.owner")
	require.NoError(tb, err)
	names := map[string]bool{}
	for _, name := range found {
		names[name] = true
	}
	return names
}
