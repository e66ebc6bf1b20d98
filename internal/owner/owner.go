// Package owner tells living journal handles from dead ones without a clock.
//
// A handle holds an exclusive lock on a file of its own for as long as it
// lives. It is dead exactly when that lock can be taken, or when the file is
// gone. The lock is flock(2) or LockFileEx: both belong to the open file, so
// two handles of one process are two owners, and both end with the process.
package owner

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	suffix    = ".owner"
	setupName = "setup.lock"
)

// ErrGone means that the file by which others see this owner alive is no
// longer there, so that its rows may have been taken already.
var ErrGone = errors.New("the owner file was removed")

// Folder holds the owner files of one journal.
type Folder string

// Create makes the folder, private to the user, if it is not there.
func (f Folder) Create() (made bool, err error) {
	err = os.Mkdir(string(f), 0o700)
	if err == nil {
		return true, os.Chmod(string(f), 0o700) // whatever the umask
	}
	if errors.Is(err, fs.ErrExist) {
		info, err := os.Lstat(string(f))
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%q is not a directory", string(f))
		}
		return false, err
	}
	return false, err
}

// Setup takes the lock under which one process at a time creates, checks and
// migrates the journal. It waits at most the given time. The caller must call
// unlock.
func (f Folder) Setup(wait time.Duration) (unlock func() error, err error) {
	if err := private(filepath.Join(string(f), setupName)); err != nil {
		return nil, fmt.Errorf("make %q: %w", setupName, err)
	}
	l := flock.New(filepath.Join(string(f), setupName), flock.SetPermissions(0o600))
	for end := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		ok, err := l.TryLock()
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", setupName, err)
		}
		if ok {
			return l.Unlock, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("another process has held %q for %s", setupName, wait)
		}
	}
}

// private makes an empty file for this user alone, whatever the umask, if there
// is none.
func private(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Chmod(0o600), file.Close())
}

// Owner is one living handle.
type Owner struct {
	Token string // 128 random bits in hex; the name of the file

	path string
	info os.FileInfo
	lock *flock.Flock
}

// Register makes an owner file and locks it.
func (f Folder) Register() (*Owner, error) {
	for range 100 {
		o, err := f.register()
		if o != nil || err != nil {
			return o, err
		}
	}
	return nil, errors.New("register owner: the file was taken away each time")
}

// register returns nil where somebody who clears dead files came between the
// creation and the lock: the file is then theirs, and a new name is needed.
func (f Folder) register() (*Owner, error) {
	var token [16]byte
	rand.Read(token[:]) // never fails
	o := &Owner{Token: hex.EncodeToString(token[:])}
	o.path = f.path(o.Token)
	o.lock = flock.New(o.path, flock.SetFlag(os.O_CREATE|os.O_EXCL|os.O_RDWR), flock.SetPermissions(0o600))
	ok, err := o.lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("register owner: %w", err)
	}
	if !ok {
		return nil, nil
	}
	if o.info, err = o.lock.Stat(); err == nil && o.Check() == nil {
		return o, os.Chmod(o.path, 0o600) // whatever the umask
	}
	return nil, errors.Join(err, o.lock.Unlock())
}

// Check reports [ErrGone] unless the file at the owner's path is the one it
// holds.
func (o *Owner) Check() error {
	info, err := os.Stat(o.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at the owner file: %w", err)
	}
	if err != nil || !os.SameFile(info, o.info) {
		return ErrGone
	}
	return nil
}

// Release ends the ownership: whatever still names this owner is a dead
// owner's. With remove the file goes too, which is right only when nothing
// names it.
func (o *Owner) Release(remove bool) error {
	if !remove || o.Check() != nil {
		return o.lock.Unlock()
	}
	removed := os.Remove(o.path) // under the lock
	err := o.lock.Unlock()
	if removed != nil { // Windows does not remove open files
		removed = os.Remove(o.path)
	}
	if errors.Is(removed, fs.ErrNotExist) {
		removed = nil
	}
	return errors.Join(err, removed)
}

// Dead reports whether the owner of that token can no longer act. The probe
// shares its lock, so that probes do not take each other for the owner.
func (f Folder) Dead(token string) (bool, error) {
	l := flock.New(f.path(token), flock.SetFlag(os.O_RDWR))
	ok, err := l.TryRLock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("probe owner: %w", err)
	case !ok:
		return false, nil
	}
	return true, l.Unlock()
}

// Bury removes a dead owner's file, under its lock. Only for owners that
// nothing names. A living owner's file stays.
func (f Folder) Bury(token string) error {
	l := flock.New(f.path(token), flock.SetFlag(os.O_RDWR))
	ok, err := l.TryLock()
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ok {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clear dead owner: %w", err)
	}
	removed := os.Remove(f.path(token))
	err = l.Unlock()
	if removed != nil {
		removed = os.Remove(f.path(token))
	}
	if errors.Is(removed, fs.ErrNotExist) {
		removed = nil
	}
	return errors.Join(err, removed)
}

// Tokens lists at most limit owner files, the living among them.
func (f Folder) Tokens(limit int) ([]string, error) {
	d, err := os.Open(string(f))
	if err != nil {
		return nil, fmt.Errorf("list owners: %w", err)
	}
	defer d.Close()
	names, _ := d.Readdirnames(limit) // what cannot be listed is not cleared
	tokens := names[:0]
	for _, n := range names {
		if t, ok := strings.CutSuffix(n, suffix); ok {
			tokens = append(tokens, t)
		}
	}
	return tokens, nil
}

func (f Folder) path(token string) string {
	return filepath.Join(string(f), token+suffix)
}
