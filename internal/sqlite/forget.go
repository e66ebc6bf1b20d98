package sqlite

import (
	"context"
	"database/sql/driver"
)

// Forget removes operations whole, tombstones included, of which every
// generation was settled before the given instant, and unnamed rows likewise.
// It returns how many rows went. That is durable on return.
func (s *Store) Forget(ctx context.Context, before int64) (int, error) {
	removed := 0
	f := &forgetOp{before: before}
	for {
		f.item = item{op: f, durable: true, size: 512}
		if err := s.submit(ctx, &f.item); err != nil {
			return removed, err
		}
		removed += f.removed
		if f.looked < pruneChunk {
			return removed, nil
		}
		f.after, f.until = f.last, f.highest
	}
}

// forgetOp looks at one chunk: at the rows after one, up to the highest that
// was there at the beginning, or it might run after new rows for ever.
type forgetOp struct {
	item
	before       int64
	after, until int64 // until is 0 in the first chunk

	looked, removed int
	last, highest   int64
}

func (f *forgetOp) exec(t *transaction) (err error) {
	f.looked, f.removed, f.highest = 0, 0, f.until
	if f.highest == 0 {
		if f.highest, err = t.highest(); err != nil {
			return err
		}
	}
	var chunk []settledRow
	err = t.c.query(selectSettled, func(v []driver.Value) error {
		r := scanSettled(v)
		f.looked++
		f.last = r.id
		chunk = append(chunk, r)
		return nil
	}, f.after, f.highest, pruneChunk)
	if err != nil {
		return err
	}
	var ids []int64
	for _, r := range chunk {
		if r.generation > 1 { // the first one decides for all
			continue
		}
		all, err := f.forgotten(t, r)
		if err != nil {
			return err
		}
		ids = append(ids, all...)
	}
	f.removed = len(ids)
	return t.remove(ids)
}

// forgotten are the rows that go with r. They go together, or an older
// generation would be the newest, and would be answered from or sent again.
func (f *forgetOp) forgotten(t *transaction, r settledRow) (ids []int64, err error) {
	if over, err := f.over(t, r); !over || err != nil {
		return nil, err
	}
	if !r.named {
		return []int64{r.id}, nil
	}
	var all []settledRow
	err = t.c.query(selectGenerations, func(v []driver.Value) error {
		all = append(all, scanSettled(v))
		return nil
	}, r.id)
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		if over, err := f.over(t, g); !over || err != nil {
			return nil, err
		}
		ids = append(ids, g.id)
	}
	return ids, nil
}

// over reports whether nothing can become of the row any more, and nobody
// waits for it.
func (f *forgetOp) over(t *transaction, r settledRow) (bool, error) {
	switch {
	case !final(r.state) && r.state != withdrawn, r.settled >= f.before, r.owed:
		return false, nil
	case r.retention > 0 && r.since > t.now-r.retention: // the provider still remembers
		return false, nil
	case r.state == withdrawn && r.due > t.now: // a new call would be sent before its time
		return false, nil
	}
	living, err := t.living(r.owner, r.id)
	return !living, err
}

// settledRow is what Forget decides by.
type settledRow struct {
	id, generation      int64
	named, owed         bool
	state               string
	owner, settled, due int64
	retention, since    int64
}

func scanSettled(values []driver.Value) settledRow {
	c := cursor{values: values}
	return settledRow{
		id: c.number(), generation: c.number(), named: c.bit(), owed: c.bit(), state: c.text(), owner: c.number(),
		settled: c.number(), due: c.number(), retention: c.number(), since: c.number(),
	}
}
