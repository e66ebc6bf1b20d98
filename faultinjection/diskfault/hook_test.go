package diskfault_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sqlite3 "modernc.org/sqlite"

	"github.com/idem-go/idem/faultinjection/diskfault"
)

const childEnv = "DISKFAULT_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		childDies(path)
	}
	os.Exit(m.Run())
}

// opened is a toy in a folder of its own, with a hook.
func opened(t *testing.T, mode string, hook func(diskfault.Op) diskfault.Verdict) (*toy, string) {
	t.Helper()
	_, err := diskfault.Register()
	require.NoError(t, err)
	path := filepath.Join(fastDir(t), "toy.db")
	j, err := openToy(path, mode, "FULL")
	require.NoError(t, err)
	require.NoError(t, j.begin("before"))
	require.NoError(t, diskfault.SetHook(path, hook))
	t.Cleanup(func() {
		require.NoError(t, diskfault.SetHook(path, nil))
		_ = j.db.Close()
	})
	return j, path
}

func codeOf(err error) int32 {
	var e *sqlite3.Error
	if !errors.As(err, &e) {
		return 0
	}
	return int32(e.Code())
}

// A fault that is asked for reaches the program, once or for good, and what was
// there before stays.
func TestFailNth(t *testing.T) {
	for _, c := range []struct {
		mode, kind string
		code       int32
	}{
		{"WAL", diskfault.Write, diskfault.WriteFailed},
		{"WAL", diskfault.Write, diskfault.DiskFull},
		{"WAL", diskfault.Sync, diskfault.SyncFailed},
		{"DELETE", diskfault.Open, diskfault.OpenFailed},
		{"DELETE", diskfault.Delete, diskfault.DeleteFailed},
		{"TRUNCATE", diskfault.Truncate, diskfault.TruncateFailed},
	} {
		for _, sticky := range []bool{false, true} {
			t.Run(fmt.Sprint(c.mode, " ", c.kind, " ", c.code, " ", sticky), func(t *testing.T) {
				j, path := opened(t, c.mode, diskfault.FailNth(c.kind, 1, c.code, sticky))
				assert.Equal(t, c.code&0xff, codeOf(j.begin("first"))&0xff)
				again := j.begin("second")
				if sticky {
					assert.Equal(t, c.code&0xff, codeOf(again)&0xff)
				} else {
					assert.NoError(t, again)
				}
				require.NoError(t, diskfault.SetHook(path, nil))
				require.NoError(t, j.begin("third"))
				assert.NoError(t, j.check([]string{"sent before", "sent third"}))
			})
		}
	}
}

// The operations of a commit come as SQLite is documented to do them.
func TestOpsOfACommit(t *testing.T) {
	var mu sync.Mutex
	var kinds, files []string
	j, path := opened(t, "DELETE", func(op diskfault.Op) diskfault.Verdict {
		mu.Lock()
		defer mu.Unlock()
		assert.EqualValues(t, len(kinds)+1, op.N)
		kinds = append(kinds, op.Kind)
		files = append(files, filepath.Base(op.File))
		if op.Kind == diskfault.Sync {
			assert.Equal(t, !slices.Contains(kinds[:len(kinds)-1], diskfault.Sync), op.Dir, "the first sync of a new journal takes the directory along")
		}
		return diskfault.Verdict{}
	})
	require.NoError(t, j.begin("one"))
	assert.Equal(t, []string{"open", "write", "sync", "write", "sync", "write", "sync", "delete"}, slices.Compact(slices.Clone(kinds)))
	assert.Equal(t, []string{"toy.db-journal", "toy.db", "toy.db-journal"}, slices.Compact(slices.Clone(files)))
	n := len(kinds)
	require.NoError(t, diskfault.SetHook(path, nil))
	require.NoError(t, j.begin("two"))
	assert.Len(t, kinds, n, "a hook that was removed is not asked")
}

// A hook is on all files that belong to its name, and the longest name decides.
func TestHooksByName(t *testing.T) {
	j, path := opened(t, "WAL", nil)
	pass := func(diskfault.Op) diskfault.Verdict { return diskfault.Verdict{} }
	for i, c := range []struct {
		name string
		fits bool
	}{
		{filepath.Dir(path), true},
		{path, true},
		{path + "-wal", true},
		{path[:len(path)-1], false},
		{path + "-journal", false},
		{filepath.Join(filepath.Dir(path), "other.db"), false},
	} {
		require.NoError(t, diskfault.SetHook(c.name, diskfault.FailNth("", 1, diskfault.WriteFailed, true)))
		assert.Equal(t, c.fits, j.begin(fmt.Sprint(i)) != nil, c.name)
		if c.name != path+"-wal" {
			require.NoError(t, diskfault.SetHook(path+"-wal", pass))
			assert.NoError(t, j.begin(fmt.Sprint(i, " again")), c.name)
			require.NoError(t, diskfault.SetHook(path+"-wal", nil))
		}
		require.NoError(t, diskfault.SetHook(c.name, nil))
	}
}

// A short write leaves its first part.
func TestShortWrite(t *testing.T) {
	var cut []byte
	j, path := opened(t, "WAL", func(op diskfault.Op) diskfault.Verdict {
		if op.Kind != diskfault.Write || len(op.Data) < 4096 || cut != nil {
			return diskfault.Verdict{}
		}
		cut = bytes.Clone(op.Data)
		return diskfault.Verdict{Code: diskfault.WriteFailed, Short: 1000}
	})
	assert.Equal(t, diskfault.WriteFailed&0xff, codeOf(j.begin("one"))&0xff)
	log, err := os.ReadFile(path + "-wal")
	require.NoError(t, err)
	assert.True(t, bytes.HasSuffix(log, cut[:1000]))
}

func TestDelaySync(t *testing.T) {
	const delay = 20 * time.Millisecond
	j, _ := opened(t, "WAL", diskfault.DelaySync(delay))
	start := time.Now()
	for i := range 3 {
		require.NoError(t, j.begin(fmt.Sprint(i)))
	}
	assert.GreaterOrEqual(t, time.Since(start), 3*delay)
}

// The same seed fails the same operations.
func TestFailRandom(t *testing.T) {
	failed := func(seed uint64) (all []int) {
		hook := diskfault.FailRandom(seed, 0.05, diskfault.Write, diskfault.WriteFailed)
		for i := range 1000 {
			assert.Zero(t, hook(diskfault.Op{Kind: diskfault.Sync}))
			if hook(diskfault.Op{Kind: diskfault.Write, Data: make([]byte, 10)}).Code != 0 {
				all = append(all, i)
			}
		}
		return all
	}
	assert.Equal(t, failed(1), failed(1))
	assert.NotEqual(t, failed(1), failed(2))
	assert.InDelta(t, 50, len(failed(1)), 30)
}

// childDies is what the test binary does as another process: it writes row after
// row until it is killed.
func childDies(path string) {
	must := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	if diskfault.SetHook(path, diskfault.KillNth(1, false)) == nil {
		must(errors.New("a hook could be set before Register"))
	}
	_, err := diskfault.Register()
	must(err)
	j, err := openToy(path, "WAL", "FULL")
	must(err)
	// A row is two frames, of two writes each, and a sync: so this is the page
	// of a frame.
	must(diskfault.SetHook(path, diskfault.KillNth(5*rows+2, os.Getenv(withinEnv) != "")))
	for i := 0; ; i++ {
		must(j.begin(fmt.Sprint(i)))
		fmt.Println("sent", i)
	}
}

const (
	rows      = 5
	withinEnv = "DISKFAULT_TEST_WITHIN"
)

// A process that is killed at an operation leaves what it had done until then.
func TestKillNth(t *testing.T) {
	for _, within := range []string{"", "within"} {
		path := filepath.Join(fastDir(t), "toy.db")
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childEnv+"="+path, withinEnv+"="+within)
		out, err := child.Output()
		require.Error(t, err)
		require.NotContains(t, string(out), " could ")
		marks := strings.Split(strings.TrimSpace(string(out)), "\n")
		require.Len(t, marks, rows)
		log, err := os.Stat(path + "-wal")
		require.NoError(t, err)
		want := int64(24)
		if within != "" {
			want += 4096 / 2
		}
		assert.Equal(t, want, (log.Size()-32)%(24+4096), "of the last frame")
		db, err := sql.Open("sqlite", "file:"+path)
		require.NoError(t, err)
		assert.NoError(t, (&toy{db: db}).check(marks))
		require.NoError(t, db.Close())
	}
}
