package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// An export is read a page at a time, at once, so that a slow writer keeps no
// transaction open. A page has one row at least.
const (
	exportRows  = 200
	exportBytes = 4 << 20
)

const (
	exportTail = `s.id, i.head_sum, i.withheld, i.request_sum, i.target, i.host, i.header, i.body, o.body_sum, o.body`
	exportPage = `SELECT ` + headColumns + `, ` + statusColumns + `, ` + outcomeColumns + `, ` + exportTail + `
		FROM intent i LEFT JOIN status s ON s.id = i.id LEFT JOIN outcome o ON o.id = i.id
		WHERE i.id > ? ORDER BY i.id LIMIT +?`
	seekIntent = `SELECT min(id) FROM intent WHERE id >= ?`
	seekStatus = `SELECT min(id) FROM status WHERE id >= ?`
)

// exportParts are the columns of exportPage, as far as each may be readable
// without the others.
var exportParts = []struct{ name, query string }{
	{"intent", `SELECT ` + headColumns + ` FROM intent i WHERE i.id = ?`},
	{"status", `SELECT ` + statusColumns + ` FROM status s WHERE s.id = ?`},
	{"outcome", `SELECT ` + outcomeColumns + ` FROM outcome o WHERE o.id = ?`},
	{"status", `SELECT s.id FROM status s WHERE s.id = ?`},
	{"intent", `SELECT i.head_sum, i.withheld FROM intent i WHERE i.id = ?`},
	{"request", `SELECT i.request_sum, i.target, i.host, i.header, i.body FROM intent i WHERE i.id = ?`},
	{"answer", `SELECT o.body_sum, o.body FROM outcome o WHERE o.id = ?`},
}

// Exported is a row with all that can be read of it, or what stands for rows
// that nothing tells of.
type Exported struct {
	*Row           // nil: all that had an ID from From to To
	From, To int64 // To zero: to the end
	Attempts []Attempt
	Damaged  []string // parts that cannot be read, or are not what was written
	Sealed   []string // parts to which no key is at hand

	shell bool
	err   error // the engine's, of the first part
}

func (x *Exported) damaged(part string, err error) {
	if !slices.Contains(x.Damaged, part) {
		x.Damaged = append(x.Damaged, part)
	}
	if x.err == nil {
		x.err = err
	}
}

// Export gives every row to each, by ID. A damaged row does not stop it: that
// there was one is told at the end.
func (s *Store) Export(ctx context.Context, each func(*Exported) error) error {
	if _, err := s.settleReads(ctx); err != nil {
		return err
	}
	last, rows, bad := int64(0), 0, 0
	var first error
	give := func(x *Exported) error {
		if x.shell {
			return nil
		}
		rows++
		if len(x.Damaged) > 0 {
			bad++
			if first == nil {
				first = x.err
			}
		}
		return each(x)
	}
	for more := true; more; {
		page, broken, err := s.exportPage(ctx, last)
		if err != nil {
			return err
		}
		more = len(page) > 0
		for _, x := range page {
			last = x.ID
			if err := give(x); err != nil {
				return err
			}
		}
		if !broken {
			continue
		}
		passed, x, err := s.exportNext(ctx, last) // over what cannot be read
		if err != nil {
			return err
		}
		if more = x != nil; more {
			last = x.ID
		}
		for _, x := range []*Exported{passed, x} {
			if x == nil {
				continue
			}
			if err := give(x); err != nil {
				return err
			}
		}
	}
	if bad == 0 {
		return nil
	}
	err := fmt.Errorf("%d of %d rows are damaged, as their lines say", bad, rows)
	if first != nil {
		err = fmt.Errorf("%w: %w", err, first)
	}
	return of(s.path, err)
}

// exportPage reads the rows after last. broken tells that it could not go on.
func (s *Store) exportPage(ctx context.Context, last int64) (page []*Exported, broken bool, err error) {
	queued := s.queuedUpdates()
	err = s.read(ctx, func(c *conn) error {
		page = nil
		return c.snapshot(func() error {
			size := 0
			err := c.ask(exportPage, func(v []driver.Value) error {
				x := c.scanExported(v)
				page = append(page, x)
				if size += x.size(); size >= exportBytes {
					return errEnough
				}
				return nil
			}, last, exportRows)
			if errors.Is(err, errEnough) {
				err = nil
			}
			if isBusy(err) {
				return err
			}
			for _, x := range page {
				if busy := c.addAttempts(x); busy != nil {
					return busy
				}
			}
			return err
		})
	})
	for _, x := range page {
		s.overlay(x.Row, queued)
	}
	if code(err) != 0 && ctx.Err() == nil { // read has taken another connection
		return page, true, nil
	}
	return page, false, err
}

// exportNext reads the first row after last by its parts. passed is a stretch
// of IDs before it of which nothing tells. No row means that there is none.
func (s *Store) exportNext(ctx context.Context, last int64) (passed, x *Exported, err error) {
	queued := s.queuedUpdates()
	err = s.read(ctx, func(c *conn) error {
		passed, x = nil, nil
		id, lost := c.next(last)
		if isBusy(lost) {
			return lost
		}
		if lost != nil {
			passed = &Exported{From: last + 1, To: max(id-1, 0)}
			passed.damaged("rows", lost)
		}
		if id == 0 {
			return nil
		}
		var values []driver.Value
		x = &Exported{}
		for _, part := range exportParts {
			read := make([]driver.Value, strings.Count(part.query, ",")+1)
			err := c.ask(part.query, func(v []driver.Value) error {
				copy(read, v)
				return nil
			}, id)
			if isBusy(err) {
				return err
			}
			if err != nil {
				x.damaged(part.name, err)
				clear(read)
			}
			values = append(values, read...)
		}
		x.scan(values, c.seal)
		x.ID = id
		return c.addAttempts(x)
	})
	if x != nil {
		s.overlay(x.Row, queued)
	}
	return passed, x, err
}

// next is the ID of the first row after last, or zero. lost says why some may
// have been passed over that neither of two tables tells of.
func (c *conn) next(last int64) (id int64, lost error) {
	id, lost = c.seek(last + 1)
	if lost == nil {
		return id, nil
	}
	var low int64 // seeking from there fails
	high := last + 1
	for step := int64(1); ; step *= 2 {
		if high > math.MaxInt64-step {
			return 0, lost
		}
		low, high = high, high+step
		var err error
		if id, err = c.seek(high); err == nil {
			break
		}
	}
	for low+1 < high {
		middle := low + (high-low)/2
		if found, err := c.seek(middle); err == nil {
			id, high = found, middle
		} else {
			low = middle
		}
	}
	return id, lost
}

// seek is the first ID from there on, as far as one of the tables tells.
func (c *conn) seek(from int64) (id int64, err error) {
	var errs []error
	for _, table := range []string{seekIntent, seekStatus} {
		err := c.ask(table, func(v []driver.Value) error {
			if n := number(v[0]); n > 0 && (id == 0 || n < id) {
				id = n
			}
			return nil
		}, from)
		if isBusy(err) {
			return 0, err
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 2 {
		return 0, errs[0]
	}
	return id, nil
}

// addAttempts returns an error only for what is worth another try.
func (c *conn) addAttempts(x *Exported) error {
	err := c.query(listAttempts, func(v []driver.Value) error {
		r := cursor{values: v}
		x.Attempts = append(x.Attempts, Attempt{
			Number: r.number(), Started: r.number(), Ended: r.number(), Phase: r.text(),
			StatusCode: r.number(), Decision: r.text(), Error: r.text(),
		})
		return nil
	}, x.ID)
	if isBusy(err) {
		return err
	}
	if err != nil {
		x.damaged("attempts", err)
	}
	return nil
}

func (c *conn) scanExported(values []driver.Value) *Exported {
	x := &Exported{}
	x.scan(values, c.seal)
	return x
}

// scan reads the columns of exportPage, compares the checksums and opens what is
// sealed. The header of a damaged part is told of as far as it can be read.
func (x *Exported) scan(values []driver.Value, g *sealing) {
	c := cursor{values: values}
	r := scanListed(&c)
	x.Row = r
	status, head, withheld := c.value(), c.number(), c.text()
	x.shell = status == nil && head == 0 && r.Generation == 0 && r.Key == ""
	if head != r.headSum() || withheld != r.Withheld {
		x.damaged("intent", nil)
	}
	if status == nil || r.stored != nil {
		x.damaged("status", nil)
	}
	sum := c.number()
	if target := c.value(); target != nil {
		r.Request = &Request{Target: text(target), Host: c.text(), Header: c.blob(), Body: blob(c.blob())}
		if sum != r.Request.sum() {
			x.damaged("request", nil)
		}
	} else {
		c.next += 3
	}
	sum = c.number()
	if o := r.Outcome; o != nil {
		if o.damaged {
			x.damaged("outcome", nil)
		}
		if body := c.value(); body != nil {
			b, _ := body.([]byte)
			if o.Body = blob(b); sum != o.bodySum() {
				x.damaged("answer", nil)
			}
		}
	}
	x.unseal(g)
	if q := r.Request; q != nil {
		q.sayNotKept()
		if _, err := DecodeHeader(q.Header); err != nil {
			x.damaged("request", nil)
		}
	}
	if o := r.Outcome; o != nil {
		if _, err := DecodeHeader(o.Header); err != nil {
			x.damaged("outcome", nil)
		}
	}
}

// size is about what the row takes in memory.
func (x *Exported) size() int {
	n := 1 << 10
	if q := x.Request; q != nil {
		n += len(q.Header) + len(q.Body)
	}
	if o := x.Outcome; o != nil {
		n += len(o.Header) + len(o.Body)
	}
	return n
}
