//go:build linux || darwin

package idem_test

import (
	"bytes"
	"database/sql"
	"errors"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// The shared memory holds nothing that the log does not.
func damageShm() []damageRow {
	return []damageRow{
		{name: "nothing"},
		{name: "-shm missing", harm: func(d *damage) func() { d.remove("-shm"); return nil }},
		{name: "-shm zero", harm: func(d *damage) func() {
			d.change("-shm", func(b []byte) []byte { return make([]byte, len(b)) })
			return nil
		}},
		{name: "-shm empty", harm: func(d *damage) func() {
			d.change("-shm", func([]byte) []byte { return nil })
			return nil
		}},
		{name: "-shm garbage", harm: func(d *damage) func() {
			d.change("-shm", func(b []byte) []byte { return bytes.Repeat([]byte{0xa5, 0x5a, 0x01}, len(b)/3) })
			return nil
		}},
	}
}

// logHeader and logFrame are the sizes of the headers in a -wal.
const (
	logHeader = 32
	logFrame  = 24
	pageSize  = 4096
)

// flip changes one bit.
func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		if at < 0 {
			at += len(b)
		}
		b[at] ^= 0x10
		return b
	}
}

// cut keeps the first n bytes.
func cut(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:n] } }

// damageLog are logs that lost what was in them: operations newer than the file
// are gone, as with a restored backup, and cannot be told from ones that never
// were. What the file has of unfinished ones is held: copied, since nothing
// shows what became of them.
func damageLog() []damageRow {
	lost := func(d *damage) {
		d.mustOpen()
		d.goneWithTheLog()
		_, err := d.client.Resume(d.Context())
		require.NoError(d, err)
		for _, o := range []string{"lost-old"} {
			in, err := d.journal.Lookup(d.Context(), damageScope, o)
			require.NoError(d, err)
			assert.Equal(d, idem.StateHeld, in.State, o)
			assert.Equal(d, idem.HoldCopied, in.HoldReason, o)
			d.held[o] = true
		}
		assert.Zero(d, d.base.sent(""), "sent by itself")
	}
	var rows []damageRow
	for name, harm := range map[string]func(d *damage) func(){
		"-wal missing":             func(d *damage) func() { return d.remove("-wal") },
		"-wal empty":               func(d *damage) func() { return d.change("-wal", cut(0)) },
		"-wal first frame flipped": func(d *damage) func() { return d.change("-wal", flip(logHeader+logFrame+100)) },
		"-wal header flipped":      func(d *damage) func() { return d.change("-wal", flip(12)) },
	} {
		rows = append(rows, damageRow{name: name, harm: func(d *damage) func() { harm(d); return nil }, check: lost})
	}
	// A log that is cut has what is before the cut. Power cuts cut only what was
	// not synced, and of that nothing was sent.
	short := func(d *damage) {
		d.mustOpen()
		d.goneWithTheLog()
		assert.NotEmpty(d, d.all())
		d.keeps()
	}
	return append(rows,
		damageRow{name: "-wal half", harm: func(d *damage) func() {
			d.change("-wal", func(b []byte) []byte { return b[:len(b)/2] })
			return nil
		}, check: short},
		damageRow{name: "-wal last frame torn", harm: func(d *damage) func() {
			d.change("-wal", func(b []byte) []byte { return b[:len(b)-pageSize/2] })
			return nil
		}, check: short},
		damageRow{name: "-wal last frame flipped", harm: func(d *damage) func() {
			d.change("-wal", flip(-100))
			return nil
		}, check: short},
	)
}

// goneWithTheLog notes which operations are not there any more. Those of the
// file are.
func (d *damage) goneWithTheLog() {
	d.Helper()
	for _, o := range d.all() {
		_, err := d.journal.Lookup(d.Context(), damageScope, o)
		if errors.Is(err, idem.ErrNotFound) {
			require.True(d, strings.HasSuffix(o, damageNew), "%s was in the file", o)
			d.gone[o] = true
			continue
		}
		require.NoError(d, err, o)
	}
}

// damageHeads are databases that SQLite does not take, or that cannot be what
// was written. Open refuses them and changes nothing.
func damageHeads() []damageRow {
	at := func(offset int, bytes ...byte) func(d *damage) func() {
		return func(d *damage) func() {
			return d.change("", func(b []byte) []byte { copy(b[offset:], bytes); return b })
		}
	}
	to := func(change func([]byte) []byte) func(d *damage) func() {
		return func(d *damage) func() { return d.change("", change) }
	}
	return []damageRow{
		{name: "database empty, -wal left", harm: to(cut(0)), refused: "the file is empty"},
		{name: "database empty", closed: true, harm: to(cut(0)), refused: "the file is empty"},
		{name: "database deleted, -wal left", harm: func(d *damage) func() { return d.remove("") }, refused: "they belong together"},
		{name: "magic flipped", closed: true, harm: at(3, 'x'), refused: "file is not a database"},
		{name: "page size no power of two", closed: true, harm: at(16, 0x10, 0x01), refused: "file is not a database"},
		{name: "page size doubled", closed: true, harm: at(16, 0x20, 0x00), refused: "malformed"},
		{name: "format version flipped", closed: true, harm: at(18, 9, 9), refused: "file is not a database"},
		{name: "application id flipped", closed: true, harm: at(68, 0), refused: "not a journal"},
		{name: "text file", closed: true, harm: to(func(b []byte) []byte {
			return bytes.Repeat([]byte("not a database. "), len(b)/16)
		}), refused: "file is not a database"},
		{name: "cut to half", closed: true, harm: to(func(b []byte) []byte { return b[:len(b)/2] }), refused: "malformed"},
		{name: "cut to 100 bytes", closed: true, harm: to(cut(100)), refused: "malformed"},
	}
}

// damagePages are pages of the b-trees. What needs them fails, and the rest
// goes on.
func damagePages() []damageRow {
	tree := func(name string) func(d *damage) func() {
		return func(d *damage) func() {
			var page int
			d.query(func(db *sql.DB) {
				require.NoError(d, db.QueryRow(`SELECT rootpage FROM sqlite_schema WHERE name = ?`, name).Scan(&page))
			})
			var was []byte
			at := (page - 1) * pageSize
			d.change("", func(b []byte) []byte {
				was = bytes.Clone(b[at : at+8])
				copy(b[at:], "\xff\xff\xff\xff\xff\xff\xff\xff")
				return b
			})
			return func() { d.change("", func(b []byte) []byte { copy(b[at:], was); return b }) }
		}
	}
	var rows []damageRow
	add := func(check func(d *damage), names ...string) {
		for _, name := range names {
			rows = append(rows, damageRow{name: "root of " + name, closed: true, harm: tree(name), check: check, broken: true})
		}
	}
	add(damagedSetUp, "meta", "owner", "status_open")
	add(damagedClaims, "intent", "status", "intent_operation")
	add(damagedEnds, "outcome", "attempt", "status_ripe")
	add(damagedAdoption, "intent_adopted")
	return rows
}

// damagedSetUp: what Open itself needs.
func damagedSetUp(d *damage) {
	err := d.open()
	require.ErrorIs(d, err, idem.ErrJournal)
	assert.ErrorContains(d, err, "malformed")
	assert.ErrorContains(d, err, d.path)
}

// damagedClaims: nothing can be claimed, so nothing is sent. What can be read is
// true.
func damagedClaims(d *damage) {
	d.mustOpen()
	for _, o := range append(d.all(), d.another()) {
		d.refuses(o, "malformed")
	}
	for _, o := range d.all() {
		in, err := d.journal.Lookup(d.Context(), damageScope, o)
		if err == nil {
			require.Equal(d, d.template.keys[o], in.Key)
			continue
		}
		require.ErrorIs(d, err, idem.ErrJournal, o)
	}
	assert.Zero(d, d.base.sent(""))
}

// damagedEnds: what is claimed is sent, and its end cannot be recorded. The
// caller has the answer, the operation stays unfinished, and Close says so.
func damagedEnds(d *damage) {
	d.mustOpen()
	d.base.up = true
	sent, failed := 0, false
	for _, o := range append(d.all(), d.another()) {
		sends, err := d.calls(o)
		sent, failed = sent+sends, failed || errors.Is(err, idem.ErrJournal)
		require.LessOrEqual(d, sends, 1, o)
		require.False(d, err != nil && sends > 0, "%s: its answer was kept from the caller: %v", o, err)
	}
	assert.True(d, failed, "nobody met the damage")
	assert.Equal(d, 1, sent, "nothing is accepted while an end cannot be stored")
	require.ErrorIs(d, d.journal.Close(), idem.ErrJournal, "that end is lost")
	d.journal = nil
}

// damagedAdoption: a key that its caller chose cannot be looked for.
func damagedAdoption(d *damage) {
	d.mustOpen()
	req, err := diskRequest(d.Context(), errorURL, "plain-adopted")
	require.NoError(d, err)
	req.Header.Set("Idempotency-Key", "chosen-by-the-caller")
	_, err = d.client.Do("plain-adopted", req)
	require.ErrorIs(d, err, idem.ErrJournal)
	require.ErrorIs(d, err, idem.ErrNotSent)
	assert.ErrorContains(d, err, "malformed")
	assert.Zero(d, d.base.sent(""))
}
