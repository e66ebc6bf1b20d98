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
		err := c.snapshot(func() (err error) {
			if operation != "" {
				row, err = c.newest(scope, operation)
			} else {
				row, err = c.adopter(adopted)
			}
			return err
		})
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

// What is looked for only where no status was found.
const (
	intentByID      = `SELECT 1 FROM intent WHERE id = ? AND generation > 0` // 0: an empty shell
	intentByAdopted = `SELECT 1 FROM intent WHERE adopted = ?`
)

// newest finds the newest generation of an operation, or nil. Where that has
// lost its status nothing is found: an older one must not pass for it.
func (c *conn) newest(scope, operation string) (*Row, error) {
	row, err := c.find(selectByOperation, scope, operation)
	if err != nil {
		return nil, err
	}
	generation := int64(0)
	if row != nil {
		if generation = row.Generation; row.State != rejected && row.State != withdrawn { // only those are renewed
			return row, nil
		}
	}
	return row, c.notLost(statements[selectLater], scope, operation, generation)
}

// adopter finds who has an adopted key, or nil.
func (c *conn) adopter(key []byte) (*Row, error) {
	row, err := c.find(selectByAdopted, key)
	if err != nil || row != nil {
		return row, err
	}
	return nil, c.notLost(intentByAdopted, key)
}

// notLost reports damage if the query finds an intent whose status was looked
// for in vain, in the same transaction.
func (c *conn) notLost(query string, values ...any) error {
	found, err := c.finds(query, values...)
	if err == nil && found {
		err = c.failed(ErrDamaged)
	}
	return err
}

// find reads one whole row, or nil.
func (c *conn) find(by statement, values ...any) (row *Row, err error) {
	err = c.query(by, func(v []driver.Value) error {
		row = scanWhole(v)
		c.seal.open(row, c.sends)
		row.Request.sayNotKept()
		return nil
	}, values...)
	return row, err
}

// readClosed reads through a connection of its own.
func (s *Store) readClosed(find func(*conn) error) error {
	if err := s.files[0].check(); err != nil { // with the last connection the others go
		return of(s.path, err)
	}
	c, err := s.openReader()
	if err != nil {
		return err
	}
	return errors.Join(find(c), c.close())
}
