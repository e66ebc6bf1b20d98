package diskfault_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection/diskfault"
)

// left are the folders that a power cut after the last mark could leave, as
// text.
func left(r *diskfault.Recorder) []string {
	found := map[string]bool{}
	for s := range r.States(1, 60) {
		if s.Point < r.Points() {
			continue
		}
		var files []string
		for _, name := range slices.Sorted(maps.Keys(s.Files)) {
			files = append(files, name+"="+string(s.Files[name]))
		}
		found[fmt.Sprint(strings.Join(append(s.Dirs, files...), " "))] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// Files that the program makes by itself are in the states too: for certain
// where it syncs them, else older, empty, missing or there.
func TestRecorderSeesOtherFiles(t *testing.T) {
	for _, synced := range []bool{true, false} {
		t.Run(fmt.Sprint(synced), func(t *testing.T) {
			dir := fastDir(t)
			path := func(name string) string { return filepath.Join(dir, name) }
			require.NoError(t, os.WriteFile(path("old"), []byte("1"), 0o600))
			require.NoError(t, os.WriteFile(path("x.db-shm"), []byte("never"), 0o600))
			r, err := diskfault.NewRecorder(dir)
			require.NoError(t, err)
			r.Synced = func(string) bool { return synced }
			r.Mark("nothing yet")
			assert.Equal(t, []string{"old=1"}, left(r))

			require.NoError(t, os.Mkdir(path("d"), 0o700))
			require.NoError(t, os.Rename(path("old"), path("d/moved")))
			r.Mark("moved")
			if synced {
				assert.Equal(t, []string{"d d/moved=1"}, left(r))
			} else {
				assert.Subset(t, left(r), []string{"d d/moved=1", "d old=1", "old=1"})
			}

			require.NoError(t, os.WriteFile(path("new"), []byte("22"), 0o600))
			require.NoError(t, os.Remove(path("d/moved")))
			r.Mark("made and removed")
			if synced {
				assert.Equal(t, []string{"d new=22"}, left(r))
			} else {
				assert.Subset(t, left(r), []string{"d new=22", "old=1", "d d/moved=1", "d new=", "d d/moved=1 new=22"})
			}

			require.NoError(t, os.WriteFile(path("new"), []byte("333"), 0o600))
			r.Mark("written again")
			if synced {
				assert.Equal(t, []string{"d new=333"}, left(r))
			} else {
				assert.Subset(t, left(r), []string{"d new=22", "d new=333"})
			}
			assert.NotContains(t, strings.Join(left(r), " "), "never")
		})
	}
}

// What a fault kept from being done is not in the states, and of a short write
// its first part only.
func TestRecorderWithFaults(t *testing.T) {
	dir := fastDir(t)
	path := filepath.Join(dir, "toy.db")
	_, err := diskfault.Register()
	require.NoError(t, err)
	j, err := openToy(path, "WAL", "FULL")
	require.NoError(t, err)
	require.NoError(t, j.db.Close())
	r, err := diskfault.NewRecorder(dir)
	require.NoError(t, err)
	r.Fault = func(op diskfault.Op) diskfault.Verdict {
		if op.Kind == diskfault.Write && len(op.Data) == 4096 {
			return diskfault.Verdict{Code: diskfault.WriteFailed, Short: 10}
		}
		return diskfault.Verdict{}
	}
	require.NoError(t, diskfault.SetHook(path, r.Hook))
	j, err = openToy(path, "WAL", "FULL")
	require.NoError(t, err)
	require.Error(t, j.begin("lost"))
	r.Mark("after it")
	require.NoError(t, diskfault.SetHook(path, nil))
	now, err := os.ReadFile(path + "-wal")
	require.NoError(t, err)
	require.Len(t, now, 32+24+10)
	whole := false
	for s := range r.States(1, 20) {
		log := s.Files["toy.db-wal"]
		assert.LessOrEqual(t, len(log), len(now))
		whole = whole || bytes.Equal(log, now)
	}
	assert.True(t, whole)
	require.NoError(t, j.db.Close())
}
