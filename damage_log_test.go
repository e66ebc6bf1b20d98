//go:build linux || darwin

package idem_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection/diskfault"
)

// killed is what a process finds that starts after this one was killed now.
func (d *damage) killed() *damage {
	d.Helper()
	k := newDamage(d.T, d.template)
	require.NoError(d, copyJournal(d.dir, k.dir))
	return k
}

// logHarms are what others do to the log while the journal is open. undo puts
// back what can be.
var logHarms = map[string]func(d *damage) (named string, undo func()){
	"-wal deleted": func(d *damage) (string, func()) {
		require.NoError(d, os.Remove(d.file("-wal")))
		return "-wal", nil
	},
	"-wal and -shm deleted": func(d *damage) (string, func()) {
		require.NoError(d, os.Remove(d.file("-wal")))
		require.NoError(d, os.Remove(d.file("-shm")))
		return "-wal", nil
	},
	"-shm deleted": func(d *damage) (string, func()) {
		require.NoError(d, os.Remove(d.file("-shm")))
		return "-shm", nil
	},
	"-wal moved away": func(d *damage) (string, func()) {
		require.NoError(d, os.Rename(d.file("-wal"), d.file("-wal.away")))
		return "-wal", func() { require.NoError(d, os.Rename(d.file("-wal.away"), d.file("-wal"))) }
	},
	"-wal replaced": func(d *damage) (string, func()) {
		require.NoError(d, os.Rename(d.file("-wal"), d.file("-wal.away")))
		require.NoError(d, os.WriteFile(d.file("-wal"), nil, 0o600))
		return "-wal", func() { require.NoError(d, os.Rename(d.file("-wal.away"), d.file("-wal"))) }
	},
	"-shm replaced": func(d *damage) (string, func()) {
		require.NoError(d, os.Rename(d.file("-shm"), d.file("-shm.away")))
		require.NoError(d, os.WriteFile(d.file("-shm"), make([]byte, 1<<15), 0o600))
		return "-shm", func() { require.NoError(d, os.Rename(d.file("-shm.away"), d.file("-shm"))) }
	},
}

// Where the log is not the one that is open, nothing is claimed or sent: it would
// be forgotten with the process. The error says which file it is, and what to do.
// What was in a deleted log before is not lost.
func TestDamage_LogWhileOpen(t *testing.T) {
	m := newDamageTemplate(t)
	for name, harm := range logHarms {
		t.Run(name, func(t *testing.T) {
			d := newDamage(t, m)
			require.NoError(t, copyJournal(m.crashed, d.dir))
			d.mustOpen()
			d.base.up = true
			const before = "plain-before"
			_, err := damageCall(t.Context(), d.client, before)
			require.NoError(t, err)
			require.NoError(t, d.journal.Flush(t.Context()))
			m := &damageTemplate{keys: map[string]string{before: d.base.arrivals[before][0]}}
			for o, key := range d.template.keys {
				m.keys[o] = key
			}
			d.template = m
			sent := d.base.sent("")

			named, undo := harm(d)
			for _, o := range []string{d.another(), "lost-old", d.another()} {
				err := d.refuses(o, strconv.Quote(d.file(named))+": the file was deleted or replaced while it was open")
				assert.ErrorContains(t, err, "close the journal and open it again")
				assert.Equal(t, o == "lost-old", errors.Is(err, idem.ErrUnknownOutcome), "%v", err)
			}
			_, err = d.client.Resume(t.Context())
			require.ErrorIs(t, err, idem.ErrJournal)
			require.Equal(t, sent, d.base.sent(""))
			if undo != nil {
				undo()
				_, err := damageCall(t.Context(), d.client, d.another())
				require.NoError(t, err, "it goes on")
				d.mustClose()
			} else {
				k := d.killed()
				k.mustOpen()
				k.keeps()
				k.mustClose()
				k.works()
				k.oneKey()
				require.ErrorIs(t, d.journal.Close(), idem.ErrJournal)
			}
			d.works()
			d.oneKey()
		})
	}
}

// A log that is deleted between the last call and Close is not lost either, and
// Close says what it met.
func TestDamage_LogDeletedBeforeClose(t *testing.T) {
	m := newDamageTemplate(t)
	d := newDamage(t, m)
	require.NoError(t, copyJournal(m.crashed, d.dir))
	d.mustOpen()
	require.NoError(t, os.Remove(d.file("-wal")))
	err := d.journal.Close()
	require.ErrorIs(t, err, idem.ErrJournal)
	assert.ErrorContains(t, err, strconv.Quote(d.file("-wal")))
	d.works()
	d.oneKey()
}

// While a handle is open, its -wal and -shm stay what they are, whoever else
// opens, closes, dies and checkpoints; and where the last of others goes.
func TestDamage_LogStaysInPlace(t *testing.T) {
	m := newDamageTemplate(t)
	for name, from := range map[string]string{"closed before": m.closed, "after a crash": m.crashed} {
		t.Run(name, func(t *testing.T) {
			d := newDamage(t, m)
			require.NoError(t, copyJournal(from, d.dir))
			d.mustOpen()
			d.base.up = true
			writes := func() {
				t.Helper()
				for range 5 {
					_, err := damageCall(t.Context(), d.client, d.another())
					require.NoError(t, err)
				}
			}
			done := make(chan error)
			children := [2]*exec.Cmd{}
			for round := range 4 {
				for i := range children {
					calls := []string{fmt.Sprint("plain-child", round, i), "plain-children"}
					children[i] = damageLife{Calls: calls}.command(d, d.path)
					require.NoError(t, children[i].Start())
					go func() { done <- children[i].Wait() }()
				}
				for left := len(children); left > 0; {
					writes()
					select {
					case err := <-done:
						require.NoError(t, err)
						left--
					default:
					}
				}
				writes()
			}
			for _, mode := range []string{"PASSIVE", "FULL", "RESTART", "TRUNCATE"} {
				d.query(func(db *sql.DB) {
					_, err := db.Exec("PRAGMA wal_checkpoint(" + mode + ")")
					require.NoError(t, err)
				})
				writes()
			}
			cut := damageLife{Calls: []string{"plain-cut"}}.command(d, d.path) // dies as it comes
			require.NoError(t, cut.Start())
			time.AfterFunc(20*time.Millisecond, func() { _ = cut.Process.Kill() })
			for range 10 {
				writes()
			}
			_ = cut.Wait()
			beside, err := idem.Open(d.path, nil) // in this process
			require.NoError(t, err)
			writes()
			require.NoError(t, beside.Close())
			writes()
			d.mustClose()
			d.works()
		})
	}
}

// A row whose id is damaged is not found, which does not make its operation one
// that was never sent.
func TestDamage_StatusLost(t *testing.T) {
	m := newDamageTemplate(t)
	d := newDamage(t, m)
	require.NoError(t, copyJournal(m.closed, d.dir))
	first, _ := d.record("status", "lost-old")
	undo := d.change("", func(b []byte) []byte { b[first-1] ^= 2; return b })
	d.mustOpen()
	d.base.up = true
	err := d.refuses("lost-old", "the file is damaged")
	assert.ErrorIs(t, err, idem.ErrUnknownOutcome)
	assert.NotErrorIs(t, err, idem.ErrNotSent)
	assert.NotErrorIs(t, err, idem.ErrNotFound)
	_, err = damageCall(t.Context(), d.client, d.another())
	require.NoError(t, err, "the others go on")
	require.NoError(t, d.journal.Close())
	assert.Zero(t, d.base.sent("lost-old"))
	_ = undo // what was written since is in the same pages
}

// An error in use says which journal it is, once, as that of Open does.
func TestDamage_ErrorsNameTheJournal(t *testing.T) {
	_, err := diskfault.Register()
	require.NoError(t, err)
	m := newDamageTemplate(t)
	d := newDamage(t, m)
	require.NoError(t, copyJournal(m.closed, d.dir))
	d.mustOpen()
	names := func(doing, why string, err error) {
		t.Helper()
		require.ErrorContains(t, err, "idem: "+doing+" "+strconv.Quote(d.path)+": ")
		require.ErrorContains(t, err, why)
		require.Equal(t, 1, strings.Count(err.Error(), d.path), "%v", err)
	}
	mend := d.breaks(diskfault.Write, "", diskfault.DiskFull)
	names("begin", "disk is full (13)", d.refuses(d.another(), "disk is full"))
	names("flush", "disk is full (13)", d.journal.Flush(t.Context()))
	mend()
	d.mustClose()
	d.mustOpen()
	require.NoError(t, os.Rename(d.file("-owners"), d.file("-owners.away")))
	names("begin", "owner file was removed", d.refuses(d.another(), "owner file was removed"))
	require.NoError(t, os.Rename(d.file("-owners.away"), d.file("-owners")))
	require.NoError(t, os.Rename(d.path, d.path+".away"))
	names("begin", "deleted or replaced", d.refuses(d.another(), "deleted or replaced"))
	err = d.journal.Close()
	require.NoError(t, os.Rename(d.path+".away", d.path))
	names("close", "deleted or replaced", err)
	names("open", "must be writable", func() error {
		defer d.breaks(diskfault.Open, "", diskfault.OpenFailed)()
		return d.open()
	}())
	d.mustOpen()
	_, err = d.journal.Lookup(t.Context(), damageScope, "none")
	require.ErrorIs(t, err, idem.ErrNotFound)
	require.Equal(t, "idem: look up: no such row", err.Error(), "an answer is no failure")
	d.mustClose()
}

// Where another process has made a new log in place of a deleted one, that is
// the journal's, and nothing is written over what it says.
func TestDamage_LogOfAnother(t *testing.T) {
	m := newDamageTemplate(t)
	d := newDamage(t, m)
	require.NoError(t, copyJournal(m.closed, d.dir))
	d.mustOpen()
	d.base.up = true
	for range 20 { // the old log is the longer one
		_, err := damageCall(t.Context(), d.client, d.another())
		require.NoError(t, err)
	}
	require.NoError(t, d.journal.Flush(t.Context()))
	d.query(func(db *sql.DB) {
		_, err := db.Exec("PRAGMA wal_checkpoint(FULL)")
		require.NoError(t, err)
	})
	require.NoError(t, os.Remove(d.file("-wal")))
	out, err := damageLife{Calls: []string{"plain-other", "plain-another"}}.command(d, d.path).Output()
	require.NoError(t, err)
	var end damageEnd
	require.NoError(t, json.Unmarshal(out, &end))
	require.Empty(t, end.Refused)
	require.Empty(t, end.Calls["plain-other"])
	d.refuses(d.another(), "deleted or replaced")
	d.sound() // as those see it who have it open meanwhile
	require.ErrorIs(t, d.journal.Close(), idem.ErrJournal)
	d.mustOpen()
	d.keeps()
	for _, o := range []string{"plain-other", "plain-another"} {
		in, err := d.journal.Lookup(t.Context(), damageScope, o)
		require.NoError(t, err, o)
		assert.Equal(t, end.Arrivals[o], []string{in.Key})
	}
	d.mustClose()
	d.works()
	d.oneKey()
}
