//go:build linux || darwin

package idem_test

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// varint is SQLite's, of which only short ones are met here.
func varint(b []byte) (n, size int) {
	for {
		n = n<<7 | int(b[size]&0x7f)
		size++
		if b[size-1] < 0x80 {
			return n, size
		}
	}
}

// stored is how many bytes a value of that type takes in a record.
func stored(serial int) int {
	switch {
	case serial >= 12:
		return (serial - 12) / 2
	case serial == 5:
		return 6
	case serial == 6 || serial == 7:
		return 8
	case serial < 5:
		return serial
	}
	return 0
}

// column is where a value of an operation's row is in the file, and its size.
func (d *damage) column(table, name, operation string) (at, size int) {
	d.Helper()
	var id, number, columns int
	d.query(func(db *sql.DB) {
		require.NoError(d, db.QueryRow(`SELECT id FROM intent WHERE operation = ?`, operation).Scan(&id))
		require.NoError(d, db.QueryRow(`SELECT cid FROM pragma_table_info(?) WHERE name = ?`, table, name).Scan(&number))
		require.NoError(d, db.QueryRow(`SELECT count(*) FROM pragma_table_info(?)`, table).Scan(&columns))
	})
	d.change("", func(b []byte) []byte {
		for page := pageSize; page < len(b); page += pageSize {
			p := b[page : page+pageSize]
			if p[0] != 0x0d { // no leaf of a table
				continue
			}
			for cell := range int(binary.BigEndian.Uint16(p[3:])) {
				if i, n := field(p[binary.BigEndian.Uint16(p[8+2*cell:]):], id, number, columns); n > 0 {
					at, size = page+int(binary.BigEndian.Uint16(p[8+2*cell:]))+i, n
				}
			}
		}
		return append(b, 0) // change wants a change
	})()
	require.NotZero(d, size, "%s.%s is not in the file", table, name)
	return at, size
}

// field finds the n-th field in a cell, if it is of that row and as wide.
func field(cell []byte, id, n, columns int) (at, size int) {
	_, i := varint(cell)
	row, k := varint(cell[i:])
	if row != id {
		return 0, 0
	}
	i += k
	head, k := varint(cell[i:])
	at = i + head
	seen := 0
	for j := i + k; j < i+head; seen++ {
		serial, k := varint(cell[j:])
		if j += k; seen < n {
			at += stored(serial)
		} else if seen == n {
			size = stored(serial)
		}
	}
	if seen != columns {
		return 0, 0
	}
	return at, size
}

// flipped changes the last byte of a value; undo puts it back where it is by
// then.
func flipped(table, name, operation string) func(d *damage) func() {
	return func(d *damage) func() {
		at, size := d.column(table, name, operation)
		d.change("", flip(at+size-1))
		return func() { d.change("", flip(at+size-1)) }
	}
}

// damagePayloads are single bits of what is stored, which SQLite does not
// notice.
func damagePayloads() []damageRow {
	const victim = "lost-old"
	request := func(d *damage) {
		d.mustOpen()
		d.base.up = true
		report, err := d.client.Resume(d.Context())
		require.NoError(d, err)
		require.Len(d, report.Held, 1)
		assert.Equal(d, idem.HoldChecksum, report.Held[0].HoldReason)
		assert.Positive(d, report.Settled, "the others go on")
		_, err = damageCall(d.Context(), d.client, victim)
		if !errors.Is(err, idem.ErrMismatch) { // where the damage is in what is compared first
			require.ErrorIs(d, err, idem.ErrHeld)
			require.ErrorIs(d, err, idem.ErrUnknownOutcome)
			assert.ErrorContains(d, err, "its stored row is damaged")
		}
		assert.Zero(d, d.base.sent(victim))
		in, err := d.journal.Lookup(d.Context(), damageScope, victim)
		require.NoError(d, err)
		assert.Equal(d, idem.StateHeld, in.State)
	}
	// What is damaged is not sent again before a person has looked, and then under
	// its own key.
	released := func(d *damage) {
		d.mustOpen()
		in, err := d.journal.Lookup(d.Context(), damageScope, victim)
		require.NoError(d, err)
		_, err = d.client.Release(d.Context(), in, "ann", "the disk is mended")
		require.NoError(d, err)
		d.mustClose()
	}
	var rows []damageRow
	add := func(table, victim string, check, after func(d *damage), names ...string) {
		for _, name := range names {
			rows = append(rows, damageRow{
				name: "byte of " + table + "." + name, closed: true,
				harm: flipped(table, name, victim), check: check, after: after,
			})
		}
	}
	add("intent", victim, request, released, "key", "operation", "method", "url", "fingerprint", "place",
		"retention", "created", "head_sum", "request_sum", "target", "host", "header", "body", "withheld")
	add("intent", victim, damagedUnseen, released, "name")
	add("intent", victim, nil, nil, "provider") // nothing is decided by it
	add("outcome", "plain-old", damagedAnswer, nil, "status_code", "head_sum", "body_sum", "header", "body")
	rows = append(rows, damagedStatus(victim)...)
	rows = append(rows, damageRow{name: "byte of the epoch", closed: true, harm: func(d *damage) func() {
		var epoch string
		d.query(func(db *sql.DB) {
			require.NoError(d, db.QueryRow(`SELECT value FROM meta WHERE name = 'epoch'`).Scan(&epoch))
		})
		d.change("", func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(epoch), []byte(strings.Repeat("0", len(epoch))))
		})
		return nil
	}, check: damagedEpoch})
	for table, victim := range map[string]string{"intent": victim, "status": victim, "outcome": "plain-old"} {
		rows = append(rows, damageRow{name: "each byte of a row of " + table, closed: true, check: damagedBytes(table, victim)})
	}
	return rows
}

// damagedStatus: of a row that cannot stand where it seems to, or that the index
// knows otherwise, nothing is sent. Resume tells of it and settles the others.
func damagedStatus(victim string) []damageRow {
	resumed := func(d *damage) {
		d.mustOpen()
		d.base.up = true
		for want := range 2 {
			report, err := d.client.Resume(d.Context())
			require.NoError(d, err)
			require.Len(d, report.Held, 1-want, "told of once")
			if want == 0 {
				assert.Equal(d, idem.HoldChecksum, report.Held[0].HoldReason)
				assert.Equal(d, d.template.keys[victim], report.Held[0].Key)
				assert.Positive(d, report.Settled, "the others go on")
			}
		}
		assert.Zero(d, d.base.sent(victim))
		list, err := d.journal.List(d.Context(), idem.Filter{})
		require.NoError(d, err)
		assert.Len(d, list, len(d.template.keys))
	}
	const indexed = "SELECT count(*) FROM status INDEXED BY status_open WHERE open = 1"
	return []damageRow{{
		name: "byte of status.state", closed: true, harm: func(d *damage) func() {
			flipped("status", "state", victim)(d)
			return nil
		}, check: func(d *damage) {
			resumed(d)
			_, err := damageCall(d.Context(), d.client, victim)
			require.ErrorIs(d, err, idem.ErrHeld)
			require.ErrorIs(d, err, idem.ErrUnknownOutcome)
		}, after: func(d *damage) {
			d.query(func(db *sql.DB) { // it still names what was open
				_, err := db.Exec("REINDEX")
				require.NoError(d, err)
			})
			d.mustOpen()
			in, err := d.journal.Lookup(d.Context(), damageScope, victim)
			require.NoError(d, err)
			_, err = d.client.Release(d.Context(), in, "ann", "looked at")
			require.NoError(d, err)
			d.mustClose()
		},
	}, {
		name: "byte of status.due", closed: true, broken: true,
		harm: flipped("status", "due", victim), check: func(d *damage) {
			var open int
			d.query(func(db *sql.DB) { require.NoError(d, db.QueryRow(indexed).Scan(&open)) })
			require.Positive(d, open)
			resumed(d)
		},
	}}
}

// damagedAnswer: an answer that is not what was recorded is not given again, and
// the operation is not sent for that.
func damagedAnswer(d *damage) {
	const victim = "plain-old"
	d.mustOpen()
	_, err := damageCall(d.Context(), d.client, victim)
	require.ErrorIs(d, err, idem.ErrNotKept)
	assert.NotErrorIs(d, err, idem.ErrNotSent)
	assert.NotErrorIs(d, err, idem.ErrUnknownOutcome)
	in, err := d.journal.Lookup(d.Context(), damageScope, victim)
	require.NoError(d, err)
	assert.Equal(d, idem.StateSucceeded, in.State)
	assert.False(d, in.Outcome.Complete)
	assert.Nil(d, in.Outcome.Body)
	assert.Zero(d, d.base.sent(""))
}

// damagedUnseen: a damaged name or scope makes the row one that Resume of this
// client does not look for. Calls meet it all the same.
func damagedUnseen(d *damage) {
	const victim = "lost-old"
	d.mustOpen()
	d.base.up = true
	report, err := d.client.Resume(d.Context())
	require.NoError(d, err)
	assert.Positive(d, report.Settled, "the others go on")
	sends, err := d.calls(victim)
	require.ErrorIs(d, err, idem.ErrHeld)
	require.ErrorIs(d, err, idem.ErrUnknownOutcome)
	assert.Zero(d, sends)
}

// damagedEpoch: what shows that the file is the original is gone, so it may be a
// copy.
func damagedEpoch(d *damage) {
	d.mustOpen()
	_, err := d.client.Resume(d.Context())
	require.NoError(d, err)
	for _, o := range d.all() {
		in, err := d.journal.Lookup(d.Context(), damageScope, o)
		require.NoError(d, err, o)
		if in.State == idem.StateHeld {
			d.held[o] = true
		}
		require.NotContains(d, []idem.State{idem.StatePending, idem.StateInFlight, idem.StateUnknown}, in.State, o)
	}
	assert.True(d, d.held["lost-old"])
	assert.Zero(d, d.base.sent(""))
}

// damagedBytes flips a bit of each byte of one row: of its values and of what
// tells their types and sizes. Whatever that makes of it, it is sent under its
// own key or not at all, and nobody is told what is not so.
func damagedBytes(table, victim string) func(d *damage) {
	return func(d *damage) {
		first, last := d.record(table, victim)
		start, bits := rand.N(damageStep), rand.N(8)
		d.Logf("each %d. byte from %d on, bits from %d on", damageStep, start, bits)
		bytes := make(chan int)
		var workers sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			workers.Go(func() {
				for at := range bytes {
					assert.NoError(d, d.damagedByte(at, byte(1)<<((bits+at)%8), victim), "byte %d of the file, %d to %d is the row", at, first, last)
				}
			})
		}
		for at := first + start; at < last; at += damageStep {
			bytes <- at
		}
		close(bytes)
		workers.Wait()
		assert.Greater(d, last-first, 60)
	}
}

func (d *damage) damagedByte(at int, bit byte, victim string) (err error) {
	c := &damage{
		T: d.T, template: d.template, dir: filepath.Join(filepath.Dir(d.dir), fmt.Sprint(at)),
		base: &damageBase{arrivals: map[string][]string{}, up: true},
	}
	c.path = filepath.Join(c.dir, damageFile)
	if err := copyJournal(d.template.closed, c.dir); err != nil {
		return err
	}
	c.change("", func(b []byte) []byte { b[at] ^= bit; return b })
	if err := c.open(); err != nil {
		return fmt.Errorf("no page is damaged: %w", err)
	}
	_, err = c.client.Resume(c.Context())
	if err != nil && !errors.Is(err, idem.ErrJournal) {
		return err
	}
	answer, failure := damageCall(c.Context(), c.client, victim)
	switch {
	case failure == nil && answer != fmt.Sprintf(`201 {"of":%q}`, victim):
		return fmt.Errorf("another answer: %s", answer)
	case errors.Is(failure, idem.ErrNotSent):
		return fmt.Errorf("it was sent: %w", failure)
	case failure == nil, errors.Is(failure, idem.ErrJournal), errors.Is(failure, idem.ErrHeld),
		errors.Is(failure, idem.ErrMismatch), errors.Is(failure, idem.ErrNotKept):
	default:
		return failure
	}
	if failure != nil && c.base.sent(victim) > 0 {
		return fmt.Errorf("sent: %w", failure)
	}
	for _, key := range c.base.arrivals[victim] {
		if key != c.template.keys[victim] {
			return errors.New("sent under another key")
		}
	}
	if err := c.journal.Close(); err != nil && !errors.Is(err, idem.ErrJournal) {
		return err
	}
	return os.RemoveAll(c.dir)
}

// record is where the record of a row is in the file.
func (d *damage) record(table, operation string) (first, last int) {
	d.Helper()
	var id, columns int
	d.query(func(db *sql.DB) {
		require.NoError(d, db.QueryRow(`SELECT id FROM intent WHERE operation = ?`, operation).Scan(&id))
		require.NoError(d, db.QueryRow(`SELECT count(*) FROM pragma_table_info(?)`, table).Scan(&columns))
	})
	d.change("", func(b []byte) []byte {
		for page := pageSize; page < len(b); page += pageSize {
			p := b[page : page+pageSize]
			if p[0] != 0x0d { // no leaf of a table
				continue
			}
			for cell := range int(binary.BigEndian.Uint16(p[3:])) {
				at := int(binary.BigEndian.Uint16(p[8+2*cell:]))
				if i, _ := field(p[at:], id, 0, columns); i > 0 {
					size, n := varint(p[at:])
					_, k := varint(p[at+n:])
					first, last = page+at+n+k, page+at+n+k+size
				}
			}
		}
		return append(b, 0)
	})()
	require.NotZero(d, first)
	return first, last
}
