//go:build linux || darwin

package idem_test

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// damagePlaces are paths that are none, and names that mean something to
// SQLite.
func damagePlaces() []damageRow {
	to := func(path func(d *damage) string) func(d *damage) func() {
		return func(d *damage) func() {
			was := d.path
			d.path = path(d)
			return func() { d.path = was }
		}
	}
	below := func(names ...string) func(d *damage) func() {
		return to(func(d *damage) string { return filepath.Join(append([]string{d.dir}, names...)...) })
	}
	nothingMade := func(d *damage) {
		assert.NoDirExists(d, d.path+"-owners")
		assert.NoFileExists(d, d.path+"-wal")
	}
	inTheWay := func(side string) func(d *damage) func() {
		return func(d *damage) func() {
			require.NoError(d, os.Mkdir(d.path+side, 0o700))
			return func() { require.NoError(d, os.Remove(d.path+side)) }
		}
	}
	rows := []damageRow{
		{name: "path is a directory", harm: below(damageFile + "-owners"), refused: "it is a directory", check: nothingMade},
		{name: "parent missing", harm: below("none", damageFile), refused: "the directory must exist", check: nothingMade},
		{name: "parent is a file", harm: below(damageFile, damageFile), refused: "directory", check: nothingMade},
		{name: "name too long", harm: below(strings.Repeat("n", 300)), refused: "file name too long", check: nothingMade},
		{name: "name too long for what goes beside it", harm: below(strings.Repeat("n", 250)), refused: "file name too long", check: nothingMade},
		{name: "link to nothing", harm: func(d *damage) func() {
			undo := below("link.db")(d)
			require.NoError(d, os.Symlink("nowhere.db", d.path))
			return undo
		}, refused: "is a symbolic link", check: nothingMade},
		{name: "a directory where -wal goes", closed: true, harm: inTheWay("-wal"), refused: "must be writable"},
		{name: "a directory where -shm goes", closed: true, harm: inTheWay("-shm"), refused: "must be writable"},
		{name: "missing, and it must exist", harm: below("other.db"), check: func(d *damage) {
			_, err := idem.Open(d.path, &idem.SQLiteOptions{MustExist: true})
			require.ErrorIs(d, err, idem.ErrJournal)
			require.ErrorIs(d, err, os.ErrNotExist)
			assert.ErrorContains(d, err, d.path)
			nothingMade(d)
		}},
	}
	for _, name := range []string{"a?mode=memory&x=1", "b#fragment", "c%41%00"} {
		rows = append(rows, damageRow{name: "path with " + name[1:2], harm: func(d *damage) func() {
			d.rename(name)
			return nil
		}, check: func(d *damage) {
			d.mustOpen()
			d.keeps()
			d.mustClose()
			entries, err := os.ReadDir(d.dir)
			require.NoError(d, err)
			for _, e := range entries {
				assert.True(d, strings.HasPrefix(e.Name(), name), "another file was made: %s", e.Name())
			}
		}})
	}
	return rows
}

// rename gives the journal another name, with all that belongs to it.
func (d *damage) rename(name string) {
	d.Helper()
	for _, side := range []string{"", "-wal", "-shm", "-owners"} {
		require.NoError(d, os.Rename(d.path+side, filepath.Join(d.dir, name)+side))
	}
	d.path = filepath.Join(d.dir, name)
}
