//go:build !windows

package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The longest path that is taken is the longest that the engine takes: one byte
// more is refused by both, and then nothing is made. (Windows takes less.)
func TestPathLength_IsTheEnginesOwn(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	deep := filepath.Join(root, strings.Repeat("d", 190))
	deep = filepath.Join(deep, strings.Repeat("e", 340-len(deep)))
	require.NoError(t, os.MkdirAll(deep, 0o700))
	long := func(n int) string { return filepath.Join(deep, strings.Repeat("x", n-len(deep)-1)) }
	entries := func() (names []string) {
		all, err := os.ReadDir(deep)
		require.NoError(t, err)
		for _, e := range all {
			names = append(names, e.Name())
		}
		return names
	}
	most := longestPath - len("-journal") - len("-owners/draft.db")
	for _, n := range []int{most + 1, most + 2, most + 20, longestPath, longestPath + 60} {
		_, err := Open(long(n), Options{})
		require.ErrorContains(t, err, fmt.Sprintf("the path has %d bytes", n))
		require.Empty(t, entries(), n)
	}
	require.NoError(t, os.Mkdir(long(most+1)+"-owners", 0o700))
	require.Error(t, create(long(most+1), long(most+1)+"-owners"), "the engine takes more than that")
	require.NoError(t, os.RemoveAll(long(most+1)+"-owners"))

	s, err := Open(long(most), Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	// One that is there needs no draft.
	was := long(most)
	for _, n := range []int{longestPath - len("-journal"), longestPath - len("-journal") + 1} {
		for _, side := range []string{"", "-owners"} {
			require.NoError(t, os.Rename(was+side, long(n)+side))
		}
		was = long(n)
		s, err := Open(was, Options{MustExist: true})
		if n == longestPath-len("-journal") {
			require.NoError(t, err)
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorContains(t, err, "SQLite takes no more than 504")
		_, err = openReader(was)
		require.Error(t, err, "the engine takes more than that")
	}
	assert.Len(t, entries(), 2)
}
