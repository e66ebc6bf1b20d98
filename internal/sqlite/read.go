package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// flushPatience is how long a read waits for what was posted before it. After
// that it shows the database with what is still queued laid over it.
const flushPatience = 100 * time.Millisecond

// settleReads makes what was posted visible, or returns what is still queued.
func (s *Store) settleReads(ctx context.Context) ([]*updateOp, error) {
	short, cancel := context.WithTimeout(ctx, flushPatience)
	defer cancel()
	err := s.flush(short)
	if err == nil || errors.Is(err, ErrClosed) {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, err
	}
	return s.queuedUpdates(), nil
}

// queuedUpdates are the posted updates that are not committed yet.
func (s *Store) queuedUpdates() []*updateOp {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []*updateOp
	for _, it := range slices.Concat(s.batch[:], s.posted) {
		if u, ok := it.op.(*updateOp); ok && it.posted {
			left = append(left, u)
		}
	}
	return left
}

// overlay lays queued updates over a row, in the order they will be written.
func (s *Store) overlay(r *Row, queued []*updateOp) {
	for _, u := range queued {
		if u.ID != r.ID || u.Version != r.Version {
			continue
		}
		was := r.Status
		r.Status = u.Status
		r.Version++
		if u.Began == 0 || was.State == inFlight && was.Attempts == u.Attempts {
			r.Began = was.Began // no attempt begins by it
		}
		if u.Claimed {
			r.Owner = s.id
		}
		if u.Outcome != nil && final(u.State) {
			o := *u.Outcome
			o.Body = bytes.Clone(o.Body)
			r.Outcome = &o
		}
	}
}

// Lookup returns the newest generation of an operation, or [ErrNotFound].
func (s *Store) Lookup(ctx context.Context, scope, operation string) (*Row, error) {
	queued, err := s.settleReads(ctx)
	if err != nil {
		return nil, err
	}
	var row *Row
	err = s.read(ctx, func(c *conn) error {
		row, err = c.find(selectByOperation, scope, operation)
		if err == nil && (row == nil || row.State == rejected || row.State == withdrawn) { // is it the newest?
			err = c.snapshot(func() (err error) {
				row, err = c.newest(scope, operation)
				return err
			})
		}
		if err != nil || row == nil {
			return err
		}
		s.overlay(row, queued)
		row.Request = nil
		return s.look(c, row, nil)
	})
	if err == nil && row == nil {
		err = ErrNotFound
	}
	return row, err
}

// look finds out whether a living owner has the row. Outside a transaction the
// answer may be old at once.
func (s *Store) look(c *conn, r *Row, known map[int64]bool) error {
	switch r.Owner {
	case 0:
		return nil
	case s.id:
		_, r.Owned = s.running.version(r.ID)
		return nil
	}
	dead, ok := known[r.Owner]
	if !ok {
		var err error
		if dead, err = s.probe(c, r.Owner); err != nil {
			return err
		}
		if known != nil {
			known[r.Owner] = dead
		}
	}
	r.Owned = !dead
	return nil
}

// List returns rows oldest first, without bodies. Empty texts and no states
// mean any.
func (s *Store) List(ctx context.Context, name, scope string, states []string, after int64, limit int) ([]*Row, error) {
	queued, err := s.settleReads(ctx)
	if err != nil {
		return nil, err
	}
	by, wanted := listAll, ""
	if len(states) > 0 && len(queued) == 0 { // else SQL does not know yet what is in which state
		wanted = "," + strings.Join(states, ",") + ","
		if !slices.ContainsFunc(states, closed) {
			by = listOpen
		}
	}
	var rows []*Row
	err = s.read(ctx, func(c *conn) error {
		rows = nil
		for last, more := after, true; more; {
			seen := 0
			err := c.query(by, func(v []driver.Value) error {
				r := scanListed(&cursor{values: v})
				c.seal.open(r, false)
				seen, last = seen+1, r.ID
				s.overlay(r, queued)
				if r.Outcome != nil {
					r.Outcome.Body = nil
				}
				if len(rows) < limit && r.among(states) {
					rows = append(rows, r)
				}
				return nil
			}, last, name, name, scope, scope, wanted, wanted, limit)
			if err != nil {
				return err
			}
			more = seen == limit && len(rows) < limit
		}
		known := map[int64]bool{}
		for _, r := range rows {
			if err := s.look(c, r, known); err != nil {
				return err
			}
		}
		return nil
	})
	return rows, err
}

// among reports whether the row is in one of the states; none means any. What
// is shown as held, since it is damaged, is found by what is stored too.
func (r *Row) among(states []string) bool {
	return len(states) == 0 || slices.Contains(states, r.State) || r.stored != nil && slices.Contains(states, r.stored.State)
}

// closed reports whether rows of that state may be outside the index of what
// is open.
func closed(state string) bool { return final(state) || state == withdrawn }

// Attempts returns the attempts of a row, by number.
func (s *Store) Attempts(ctx context.Context, row int64) ([]Attempt, error) {
	queued, err := s.settleReads(ctx)
	if err != nil {
		return nil, err
	}
	var attempts []Attempt
	err = s.read(ctx, func(c *conn) error {
		attempts = nil
		return c.query(listAttempts, func(v []driver.Value) error {
			r := cursor{values: v}
			attempts = append(attempts, Attempt{
				Number: r.number(), Started: r.number(), Ended: r.number(), Phase: r.text(),
				StatusCode: r.number(), Decision: r.text(), Error: r.text(),
			})
			return nil
		}, row)
	})
	if err != nil {
		return nil, fmt.Errorf("attempts: %w", err)
	}
	for _, u := range queued {
		if u.ID == row && u.Attempt != nil {
			attempts = append(attempts, *u.Attempt)
		}
	}
	return attempts, nil
}
