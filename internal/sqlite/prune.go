package sqlite

import (
	"context"
	"database/sql/driver"
)

// pruneChunk is how many rows one transaction prunes: long enough to be cheap,
// short enough that nobody waits long for it (measured: 5 ms).
const pruneChunk = 100

// Prune drops the bodies of rows that were settled before the given instant
// and whose retention is over, and the unnamed ones whole. It returns how many
// rows it changed.
func (s *Store) Prune(ctx context.Context, before int64) (int, error) {
	changed := 0
	p := &pruneOp{before: before}
	for {
		p.item = item{op: p, size: 1 << 20}
		if err := s.submit(ctx, &p.item); err != nil {
			return changed, err
		}
		changed += p.changed
		if p.looked < pruneChunk {
			return changed, nil
		}
		p.ripe, p.id = p.lastRipe, p.lastID
	}
}

// pruneOp prunes one chunk, from the row after (ripe, id).
type pruneOp struct {
	item
	before   int64
	ripe, id int64

	looked, changed  int
	lastRipe, lastID int64
}

func (p *pruneOp) exec(t *transaction) error {
	p.looked, p.changed = 0, 0
	var named, unnamed []int64
	err := t.c.query(selectRipe, func(v []driver.Value) error {
		r := cursor{values: v}
		p.lastID, p.lastRipe = r.number(), r.number()
		p.looked++
		without, retention, since := r.bit(), r.number(), r.number()
		switch {
		case retention > 0 && since > t.now-retention: // the provider still remembers
		case without:
			unnamed = append(unnamed, p.lastID)
		default:
			named = append(named, p.lastID)
		}
		return nil
	}, p.ripe, p.id, p.before, pruneChunk)
	if err != nil {
		return err
	}
	if err := t.dropBodies(named); err != nil {
		return err
	}
	p.changed = len(named) + len(unnamed)
	if err := t.remove(unnamed); err != nil || p.changed == 0 {
		return err
	}
	return t.notePrune(p)
}

// dropBodies leaves the tombstones: they still answer or refuse a new call. They
// are written anew, all after all were deleted: SQLite gives a page back when
// what is on it is deleted, never when it is updated to be small.
func (t *transaction) dropBodies(ids []int64) error {
	for _, part := range []struct{ read, remove, write statement }{
		{selectTombstone, deleteIntent, insertTombstone},
		{selectOutcomeHead, deleteOutcome, insertOutcomeHead},
	} {
		var left [][]any
		for _, id := range ids {
			err := t.c.query(part.read, func(v []driver.Value) error {
				row := make([]any, len(v))
				for i := range v {
					row[i] = v[i]
				}
				left = append(left, row)
				return nil
			}, id)
			if err != nil {
				return err
			}
		}
		for _, id := range ids {
			if _, err := t.c.exec(part.remove, id); err != nil {
				return err
			}
		}
		for _, row := range left {
			if _, err := t.c.exec(part.write, row...); err != nil {
				return err
			}
		}
	}
	for _, id := range ids {
		if _, err := t.c.exec(pruneStatus, id); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes rows whole. Of the highest an empty shell stays until there
// is a higher one, since its id would be given again.
func (t *transaction) remove(ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	highest, err := t.highest()
	if err != nil {
		return err
	}
	for _, id := range ids {
		last := deleteIntent
		if id == highest {
			last = emptyIntent
		}
		for _, st := range []statement{deleteAttempts, deleteOutcome, deleteStatus, last} {
			if _, err := t.c.exec(st, id); err != nil {
				return err
			}
		}
	}
	_, err = t.c.exec(deleteShells, highest)
	return err
}

// highest is the highest id that was given.
func (t *transaction) highest() (id int64, err error) {
	err = t.c.query(highestID, func(v []driver.Value) error {
		id = number(v[0])
		return nil
	})
	return id, err
}
