package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

var backupSettings = []string{
	fullLevel, // of the copy too
	"PRAGMA cache_size=-4096",
	"PRAGMA trusted_schema=OFF",
}

// The copy is nobody else's yet, and is thrown away where anything fails.
var copySettings = []string{"PRAGMA journal_mode=MEMORY", fullLevel, "PRAGMA trusted_schema=OFF"}

// Backup writes a copy of the journal to path, where nothing may be. It has a
// connection of its own, so that nobody waits for it but Close, which ends it.
func (s *Store) Backup(ctx context.Context, path string) error {
	ctx, leave, err := s.longRead(ctx)
	if err != nil {
		return err
	}
	defer leave()
	target, err := freePath(path, s.place())
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = s.Flush(ctx)
	}
	if err == nil {
		err = s.backup(ctx, target)
	}
	if err != nil && ctx.Err() != nil { // what was interrupted says only that
		err = context.Cause(ctx)
	}
	if err != nil {
		err = fmt.Errorf("to %q: %w", path, err)
	}
	return err
}

// longRead counts a read that Close ends and waits for: the last connection has
// to be the writer's, which empties the log.
func (s *Store) longRead(ctx context.Context) (_ context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s.helpers.Go(func() {
		select {
		case <-s.done:
			cancel(ErrClosed)
		case <-ctx.Done():
		}
	})
	s.helpers.Add(1)
	return ctx, func() { cancel(nil); s.helpers.Done() }, nil
}

// freePath is the path without links, if nothing is there that would be taken
// for the copy or for a part of it.
func freePath(path string, place place) (string, error) {
	target, _, err := locate(path)
	if err != nil {
		return "", err
	}
	if err := place.checkDirectory(filepath.Dir(target)); err != nil {
		return "", err
	}
	for _, side := range []string{"", "-wal", "-shm", "-journal"} {
		if _, err := os.Lstat(target + side); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				err = fmt.Errorf("%q: %w", filepath.Base(target+side), fs.ErrExist)
			}
			return "", bare(err)
		}
	}
	return target, nil
}

func (s *Store) backup(ctx context.Context, target string) error {
	draft := target + "." + randomHex()[:16] + ".part"
	defer func() {
		for _, side := range []string{"", "-journal", "-wal", "-shm"} {
			os.Remove(draft + side)
		}
	}()
	id, err := s.copyInto(ctx, draft)
	if err == nil {
		err = finishCopy(ctx, draft, id)
	}
	if err == nil {
		err = syncFile(draft)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return bare(err)
	}
	return bare(put(draft, target, os.Link))
}

// copyInto copies what is committed now, and returns the journal's id.
func (s *Store) copyInto(ctx context.Context, draft string) (id string, err error) {
	c, err := open(s.path, "ro", backupSettings)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for end := time.Now().Add(setupPatience); ; s.nap() {
		if err := makePrivate(draft); err != nil {
			return "", err
		}
		err := c.long(ctx, "VACUUM INTO ?", draft)
		if err == nil {
			break
		}
		if !isBusy(err) || ctx.Err() != nil || time.Now().After(end) {
			return "", err
		}
		if err := os.Remove(draft); err != nil {
			return "", err
		}
	}
	if err := s.inPlace(); err != nil { // or it is a copy of another file
		return "", err
	}
	return c.fact("journal")
}

// finishCopy checks the copy, and gives it an epoch that no owner folder has, so
// that it is noticed as a copy wherever it is opened, in place of the original
// too.
func finishCopy(ctx context.Context, draft, id string) (err error) {
	c, err := connect(dataSource(draft, "rw"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, setting := range copySettings {
		if err := c.text(setting); err != nil {
			return err
		}
	}
	if err := c.recognise(); err != nil {
		return fmt.Errorf("the copy: %w", err)
	}
	copied, err := c.fact("journal")
	if err == nil && copied != id {
		err = errors.New("the copy is of another journal")
	}
	if err != nil {
		return err
	}
	if err := c.quickCheck(ctx); err != nil {
		return err
	}
	return c.atomically(func() error {
		for _, name := range []string{"epoch", "next"} {
			if _, err := c.exec(setFact, name, randomHex()); err != nil {
				return err
			}
		}
		return nil
	})
}

// quickCheck reads the whole copy. A row that cannot be was there before, and is
// for whoever opens the copy: it must not keep the others from being saved.
func (c *conn) quickCheck(ctx context.Context) error {
	rows, err := c.db.(driver.QueryerContext).QueryContext(ctx, "PRAGMA quick_check(1)", nil)
	if err != nil {
		return err
	}
	dest := make([]driver.Value, len(rows.Columns()))
	err = rows.Next(dest)
	if err = errors.Join(err, rows.Close()); err != nil {
		return err
	}
	said := text(dest[0])
	for _, fine := range []string{"ok", "CHECK constraint failed in ", "NULL value in ", "non-"} {
		if strings.HasPrefix(said, fine) {
			return nil
		}
	}
	return fmt.Errorf("the copy is damaged: %s", said)
}

// long runs a statement that ctx ends. The connection is of no use then.
func (c *conn) long(ctx context.Context, query string, values ...any) error {
	_, err := c.db.(driver.ExecerContext).ExecContext(ctx, query, c.bind(values))
	return c.failed(err)
}

// fact is one of the facts of the file; empty: it has none of that name.
func (c *conn) fact(name string) (value string, err error) {
	err = c.query(selectFacts, func(v []driver.Value) error {
		if text(v[0]) == name {
			value = text(v[1])
		}
		return nil
	})
	return value, err
}

// put moves the draft to its name, which must be free: a rename would take the
// place of what has come there meanwhile. Where there are no links it must do.
func put(draft, target string, link func(from, to string) error) error {
	err := link(draft, target)
	if err != nil {
		_, there := os.Lstat(target)
		if errors.Is(err, fs.ErrExist) || there == nil {
			return fmt.Errorf("%q: %w", filepath.Base(target), fs.ErrExist)
		}
		if err := os.Rename(draft, target); err != nil {
			return err
		}
	} else if err := os.Remove(draft); err != nil {
		return errors.Join(err, os.Remove(target))
	}
	if err := syncDir(filepath.Dir(target)); err != nil {
		return errors.Join(err, os.Remove(target))
	}
	return nil
}

// makePrivate makes an empty file for this user alone, whatever the umask.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return bare(err)
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}
