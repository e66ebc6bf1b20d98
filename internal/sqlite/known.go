package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
)

// Known finds a row as Begin would, without a write and without waiting for the
// writer: by operation where that is set, else by adopted key. It works on a
// closed handle too, so that a refused call can still tell what became of an
// earlier one.
func (s *Store) Known(ctx context.Context, scope, operation string, adopted []byte) (*Row, error) {
	var row *Row
	queued := s.queuedUpdates()
	find := func(c *conn) error {
		row = nil
		found := func(v []driver.Value) error {
			row = scanWhole(v)
			return nil
		}
		var err error
		if operation != "" {
			err = c.query(selectByOperation, found, scope, operation)
		} else {
			err = c.query(selectByAdopted, found, adopted)
		}
		if err != nil || row == nil {
			return err
		}
		s.overlay(row, queued)
		row.Request = nil
		return s.look(c, row, nil)
	}
	err := s.read(ctx, find)
	if errors.Is(err, ErrClosed) {
		err = s.readClosed(find)
	}
	if err == nil && row == nil {
		err = ErrNotFound
	}
	return row, err
}

// readClosed reads through a connection of its own.
func (s *Store) readClosed(find func(*conn) error) error {
	if err := s.checkPath(); err != nil {
		return err
	}
	c, err := openReader(s.path)
	if err != nil {
		return err
	}
	return errors.Join(find(c), c.close())
}
