package sqlite

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// locate returns the path of the journal without links on the way, so that two
// names of one file share an owner folder, and whether there is anything. A missing directory is
// an error: it is more often a mistake than a wish.
func locate(path string) (real string, exists bool, err error) {
	if path == "" {
		return "", false, errors.New("the path is empty")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", false, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", false, fmt.Errorf("the directory must exist: %w", bare(err))
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", false, bare(err)
	}
	if !info.IsDir() {
		return "", false, fmt.Errorf("%q is not a directory", filepath.Base(dir))
	}
	real = filepath.Join(dir, filepath.Base(abs))
	if _, err := os.Lstat(real); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, bare(err)
	} else if err != nil {
		return real, false, nil
	}
	return real, true, nil
}

// inspect looks at what is at path, without opening it: closing any descriptor
// of the file would drop the locks of every connection in this process.
func inspect(path string) (exists bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if w, err := os.Stat(path + "-wal"); err == nil && w.Size() > 0 {
			return false, errors.New("the file is missing, but its -wal is there: they belong together")
		}
		return false, nil
	}
	switch {
	case err != nil:
		return false, bare(err)
	case info.IsDir():
		return false, errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return false, errors.New("it is not a regular file")
	case info.Size() == 0:
		return false, errors.New("the file is empty: it was cut off, or never was a journal")
	}
	return true, nil
}

// longestPath is how many bytes of a path the engine takes (MAX_PATHNAME of
// modernc.org/sqlite 1.62 for all but Windows, read 2026-11-30). It counts the
// -journal that it would make.
const longestPath = 512

// checkLength refuses a path that the engine would refuse, before anything is
// made. A journal that is still to be made has a longer one until it is whole.
func checkLength(path, folder string, exists bool) error {
	if runtime.GOOS == "windows" { // the system takes less
		return nil
	}
	longest := path
	if !exists {
		longest = draftPath(folder)
	}
	if most := longestPath - len("-journal") - (len(longest) - len(path)); len(path) > most {
		return fmt.Errorf("the path has %d bytes: with what goes beside it, SQLite takes no more than %d", len(path), most)
	}
	return nil
}

func draftPath(folder string) string { return filepath.Join(folder, "draft.db") }

// create makes a whole journal under another name and moves it into place, so
// that the path never names half of one. The caller has the set-up lock.
func create(path, folder string) error {
	draft := draftPath(folder)
	for _, side := range []string{"", "-wal", "-shm", "-journal"} { // of a creation that was cut
		if err := os.Remove(draft + side); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return bare(err)
		}
	}
	if err := makePrivate(draft); err != nil { // the side files take its mode
		return err
	}
	if err := fill(draft); err != nil {
		return err
	}
	if err := syncFile(draft); err != nil {
		return err
	}
	if err := os.Rename(draft, path); err != nil {
		return bare(err)
	}
	return syncDir(filepath.Dir(path))
}

// fill writes the schema. Closing checkpoints, so that schema and identity are
// in the main file before anything depends on them.
func fill(path string) (err error) {
	c, err := connect(dataSource(path, "rw"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.configure(writerSettings); err != nil {
		return err
	}
	if err := c.text(fmt.Sprintf("PRAGMA application_id=%d", applicationID)); err != nil {
		return err
	}
	if err := c.migrate(); err != nil {
		return err
	}
	err = c.text(`INSERT INTO meta (name, value) VALUES ('journal', '` + randomHex() + `'), ('salt', '` + randomHex() + `')`)
	if err != nil {
		return err
	}
	busy, err := c.number("PRAGMA wal_checkpoint(TRUNCATE)") // closing would do it, and tell nobody where it fails
	if err == nil && busy != 0 {
		err = errors.New("the log could not be copied into the file")
	}
	return err
}

func randomHex() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// bare takes the path out of an error whose text will name it anyway.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
