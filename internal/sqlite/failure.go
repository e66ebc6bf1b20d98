package sqlite

import (
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// FileError is a failure of the journal's storage. Its text leaves out which
// journal that is, for whoever says what was being done with it.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// of says which journal an error is about. Nil stays nil.
func of(path string, err error) error {
	if err == nil {
		return nil
	}
	return &FileError{Path: path, Err: err}
}

// code returns the primary result code of an error of the engine, or zero.
func code(err error) int {
	var e *sqlite3.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func isBusy(err error) bool { return code(err) == lib.SQLITE_BUSY }

// harmless reports whether err is one statement's own fault, so that the rest
// of the batch may be written without it.
func harmless(err error) bool {
	if errors.Is(err, ErrDamaged) || errors.Is(err, errSeal) {
		return true
	}
	switch code(err) {
	case lib.SQLITE_CONSTRAINT, lib.SQLITE_TOOBIG, lib.SQLITE_MISMATCH, lib.SQLITE_RANGE:
		return true
	}
	return false
}

// explained says what SQLite's short answers to a place it cannot write mean.
func explained(err error) error {
	switch code(err) {
	case lib.SQLITE_CANTOPEN, lib.SQLITE_READONLY:
		return fmt.Errorf("the file and its directory must be writable, since -wal and -shm are made beside it: %w", err)
	}
	return err
}
