package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Stats is a look at the journal. Instants are Unix nanoseconds, zero for none.
type Stats struct {
	States     map[string]int64 // rows; one in a state that does not exist counts as held
	Held       map[string]int64 // by reason
	Tombstones int64            // rows whose bodies were pruned
	Counted    int64            // when the closed rows were counted
	Oldest     int64            // when the first of the unfinished rows was made

	File, Free, Log int64 // bytes: the main file, what of it is to be used again, the -wal

	Synced     int64 // this handle's last commit that was synced
	Pruned     int64 // whichever handle did it
	PrunedRows int64
}

// What is closed may be millions of rows, and no index counts them. Up to
// countChunk are counted by every call; more only so often that it takes a
// twentieth of the time.
const (
	countChunk = 20_000 // rows of one read: some milliseconds
	countRest  = 20
)

// The statements of Stats. It is called too rarely to keep them.
const (
	// Walks what is open, and nothing else.
	countOpen = `SELECT s.state, s.hold_reason, count(*), min(s.id) FROM status s INDEXED BY status_open
		WHERE s.open IS NOT NULL GROUP BY s.state, s.hold_reason`
	// The next countChunk ids, from the first that there is.
	countClosed = `SELECT (SELECT min(id) FROM status WHERE id > ?1), (SELECT max(id) FROM status), count(*),
			count(*) FILTER (WHERE state = 'succeeded'), count(*) FILTER (WHERE state = 'rejected'),
			count(*) FILTER (WHERE state = 'withdrawn'), count(*) FILTER (WHERE kept = 0),
			count(*) FILTER (WHERE state = 'pending' OR state = 'in_flight' OR state = 'unknown' OR state = 'held')
		FROM status WHERE id > ?1 AND id < (SELECT min(id) FROM status WHERE id > ?1) + ?2`
	selectCreated = `SELECT created FROM intent WHERE id = ?`
	selectPruned  = `SELECT value FROM meta WHERE name = 'pruned'`
	freeBytes     = `SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size`
)

// books are what Stats knows from before.
type books struct {
	synced atomic.Int64

	mu     sync.Mutex
	open   openCount
	closed closedCount
}

// counted says when rows were counted, and what that took.
type counted struct {
	rows int64
	at   time.Time // for the pace: not the clock, which may step
	took time.Duration
}

func (n *counted) fresh() bool {
	return n.rows > countChunk && time.Since(n.at) < countRest*n.took
}

type openCount struct {
	counted
	states, held map[string]int64
	oldest       int64
}

type closedCount struct {
	counted
	wall, last                     int64
	succeeded, rejected, withdrawn int64
	stateless, tombstones          int64
}

// committed notes a commit. A batch that wrote nothing is not synced.
func (b *books) committed(full bool, batch []*item, now time.Time) {
	for _, it := range batch {
		if full && !it.idle {
			b.synced.Store(now.UnixNano())
			return
		}
	}
}

// notePrune notes a chunk. The chunks of one pass are one prune.
func (t *transaction) notePrune(p *pruneOp) error {
	rows := int64(p.changed)
	if p.ripe != 0 || p.id != 0 {
		_, before, err := t.c.pruned()
		if err != nil {
			return err
		}
		rows += before
	}
	_, err := t.c.exec(setFact, "pruned", fmt.Sprintf("%d %d", t.now, rows))
	return err
}

// pruned reads what notePrune wrote. Nothing depends on it, so it may be
// damaged.
func (c *conn) pruned() (at, rows int64, err error) {
	err = c.ask(selectPruned, func(v []driver.Value) error {
		if n, _ := fmt.Sscanf(text(v[0]), "%d %d", &at, &rows); n != 2 {
			at, rows = 0, 0
		}
		return nil
	})
	return at, rows, err
}

// Stats looks at the journal, and writes nothing.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	if _, err := s.settleReads(ctx); err != nil {
		return Stats{}, err
	}
	book := &s.books
	st := Stats{Synced: book.synced.Load()}
	book.mu.Lock()
	open, closed := book.open, book.closed
	book.mu.Unlock()
	openToo, closedToo := !open.fresh(), !closed.fresh()
	more := false
	err := s.read(ctx, func(c *conn) error {
		return c.snapshot(func() (err error) { // what a small journal has is counted at one instant
			if openToo {
				if open, err = c.countOpen(); err != nil {
					return err
				}
			}
			if closedToo {
				closed = closedCount{counted: counted{at: time.Now()}, wall: s.Clock.Now().UnixNano()}
				if more, err = c.countClosed(&closed); err != nil {
					return err
				}
			}
			if st.Free, err = c.number(freeBytes); err != nil {
				return err
			}
			st.Pruned, st.PrunedRows, err = c.pruned()
			return err
		})
	})
	for err == nil && more { // between the chunks others read, and the log can start over
		err = s.read(ctx, func(c *conn) (err error) {
			more, err = c.countClosed(&closed)
			return err
		})
	}
	if err == nil {
		err = s.measure(&st)
	}
	if err != nil {
		return Stats{}, err
	}
	if closedToo {
		closed.took = time.Since(closed.at)
	}
	book.mu.Lock()
	book.open, book.closed = open, closed
	book.mu.Unlock()
	st.add(&open, &closed)
	return st, nil
}

// measure looks at the files, and never opens them: see inspect.
func (s *Store) measure(st *Stats) error {
	if err := s.inPlace(); err != nil {
		select {
		case <-s.done: // by Close
			return ErrClosed
		default:
			return err
		}
	}
	for path, size := range map[string]*int64{s.path: &st.File, s.path + "-wal": &st.Log} {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) { // gone since: the next call tells
			continue
		}
		if err != nil {
			return of(s.path, bare(err))
		}
		*size = info.Size()
	}
	return nil
}

func (st *Stats) add(open *openCount, closed *closedCount) {
	st.States, st.Held = map[string]int64{}, map[string]int64{}
	st.Counted, st.Oldest, st.Tombstones = closed.wall, open.oldest, closed.tombstones
	for state, n := range open.states {
		st.States[state] = n
	}
	for why, n := range open.held {
		st.Held[why] = n
	}
	for state, n := range map[string]int64{succeeded: closed.succeeded, rejected: closed.rejected, withdrawn: closed.withdrawn} {
		if n > 0 {
			st.States[state] = n
		}
	}
	if closed.stateless > 0 {
		st.States[held] += closed.stateless
		st.Held[holdChecksum] += closed.stateless
	}
}

func (c *conn) countOpen() (openCount, error) {
	n := openCount{counted: counted{at: time.Now()}, states: map[string]int64{}, held: map[string]int64{}}
	first := int64(0)
	err := c.ask(countOpen, func(v []driver.Value) error {
		r := cursor{values: v}
		state, why, rows, id := r.text(), r.text(), r.number(), r.number()
		n.rows += rows
		switch state {
		case held:
			n.held[why] += rows
		case pending, inFlight, unknown:
			if first == 0 || id < first {
				first = id
			}
		default: // closed, and still somebody's
			return nil
		}
		n.states[state] += rows
		return nil
	})
	if err == nil && first != 0 {
		err = c.ask(selectCreated, func(v []driver.Value) error {
			n.oldest = number(v[0])
			return nil
		}, first)
	}
	n.took = time.Since(n.at)
	return n, err
}

// countClosed counts the next chunk.
func (c *conn) countClosed(n *closedCount) (more bool, err error) {
	err = c.ask(countClosed, func(v []driver.Value) error {
		r := cursor{values: v}
		first, highest, rows := r.number(), r.number(), r.number()
		n.last, n.rows = first+countChunk-1, n.rows+rows
		more = n.last < highest
		yes, no, back := r.number(), r.number(), r.number()
		n.succeeded, n.rejected, n.withdrawn = n.succeeded+yes, n.rejected+no, n.withdrawn+back
		n.tombstones += r.number()
		n.stateless += rows - yes - no - back - r.number()
		return nil
	}, n.last, countChunk)
	return more, err
}

// ask is query for what is not worth keeping.
func (c *conn) ask(query string, each func([]driver.Value) error, values ...any) error {
	rows, err := c.db.(driver.QueryerContext).QueryContext(context.Background(), query, c.bind(values))
	clear(c.args)
	if err != nil {
		return c.failed(err)
	}
	dest := make([]driver.Value, len(rows.Columns()))
	for err == nil {
		switch err = rows.Next(dest); err {
		case nil:
			err = each(dest)
		case io.EOF:
		default:
			err = c.failed(err)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return errors.Join(err, rows.Close())
}
