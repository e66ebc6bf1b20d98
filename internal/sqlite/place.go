package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// unsafePlace is why a journal is not kept where it is: somebody else could read
// or replace it. It matches [fs.ErrPermission].
type unsafePlace string

func (e unsafePlace) Error() string        { return string(e) }
func (e unsafePlace) Is(target error) bool { return target == fs.ErrPermission }

// place judges paths by whose they are.
type place struct {
	owner func(fs.FileInfo) (uid int, known bool)
	user  func() int
}

// The files that belong to a journal, beside the file itself.
var sideFiles = []string{"-wal", "-shm", "-journal"}

// check refuses what is not this user's own before anything is written. With
// private it also takes from others what they may do with what is.
func (p place) check(path, folder string, private bool) error {
	if err := p.checkDirectory(filepath.Dir(path)); err != nil {
		return err
	}
	for _, side := range append([]string{""}, sideFiles...) {
		if err := p.own(path+side, false, private); err != nil {
			return err
		}
	}
	return p.own(folder, true, private)
}

// own checks one path, if anything is there. It is never opened: see inspect.
func (p place) own(path string, directory, private bool) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG) {
		return nil
	}
	name, mode := filepath.Base(path), fs.FileMode(0o600)
	if directory {
		mode = 0o700
	}
	switch {
	case err != nil:
		return bare(err)
	case info.Mode()&fs.ModeSymlink != 0:
		return unsafePlace(fmt.Sprintf("%q is a symbolic link, which may lead to another's file: give the path that it leads to", name))
	case directory != info.IsDir(): // in the way, as whoever needs the name will say
		return nil
	case !directory && !info.Mode().IsRegular():
		return fmt.Errorf("%q: it is not a regular file", name)
	}
	if uid, known := p.owner(info); known && uid != p.user() {
		return unsafePlace(fmt.Sprintf("%q belongs to user %d, and this process is user %d: run as the owner, or move it away", name, uid, p.user()))
	}
	if !modesKept || !private || info.Mode().Perm()&^mode == 0 {
		return nil
	}
	return makeOwn(path, info.Mode().Perm()&mode)
}

// makeOwn gives a path its mode, which not every filesystem keeps.
func makeOwn(path string, mode fs.FileMode) error {
	err := os.Chmod(path, mode)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(path)
	}
	if errors.Is(err, fs.ErrNotExist) { // SQLite has removed it meanwhile
		return nil
	}
	if err != nil {
		return bare(err)
	}
	if is := info.Mode().Perm(); is&^mode != 0 {
		return unsafePlace(fmt.Sprintf("%q has mode %o, and cannot have %o: the filesystem keeps no modes", filepath.Base(path), is, mode))
	}
	return nil
}

// checkMade looks again, once all files are open and before a row is written:
// somebody may have made one of them in the meantime. It is a journal of ours by
// now, so that its modes may be changed.
func (s *Store) checkMade() error {
	return s.place().check(s.path, string(s.folder), true)
}

func (s *Store) place() place { return s.opts.place() }

func (o Options) place() place {
	p := place{owner: ownerOf, user: os.Geteuid}
	if o.owner != nil {
		p.owner = o.owner
	}
	return p
}

// writePrivate makes a file of this user alone, whatever the umask, or writes
// over it, and syncs it.
func writePrivate(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = f.Chmod(0o600)
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
