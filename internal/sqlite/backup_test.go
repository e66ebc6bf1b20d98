package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A backup takes no other file's place, on a filesystem without links either.
func TestPutTakesNoPlace(t *testing.T) {
	noLinks := func(string, string) error { return errors.ErrUnsupported }
	for name, link := range map[string]func(string, string) error{"links": os.Link, "no links": noLinks} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			draft, target := filepath.Join(dir, "draft"), filepath.Join(dir, "target")
			require.NoError(t, os.WriteFile(draft, []byte("new"), 0o600))
			require.NoError(t, put(draft, target, link))
			content, err := os.ReadFile(target)
			require.NoError(t, err)
			assert.Equal(t, "new", string(content))
			assert.NoFileExists(t, draft)

			require.NoError(t, os.WriteFile(draft, []byte("newer"), 0o600))
			require.ErrorIs(t, put(draft, target, link), fs.ErrExist)
			content, err = os.ReadFile(target)
			require.NoError(t, err)
			assert.Equal(t, "new", string(content))

			missing := filepath.Join(dir, "missing")
			require.Error(t, put(missing, target+"2", link))
			assert.NoFileExists(t, target+"2")
		})
	}
}
