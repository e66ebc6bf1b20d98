//go:build linux || darwin

package idem_test

import (
	"context"
	"database/sql"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection/diskfault"
)

// breaks makes each disk operation of a kind fail from now on, on files whose
// name ends so.
func (d *damage) breaks(kind, file string, code int32) (mend func()) {
	d.Helper()
	_, err := diskfault.Register()
	require.NoError(d, err)
	require.NoError(d, diskfault.SetHook(d.dir, func(op diskfault.Op) diskfault.Verdict {
		if (kind == "" || op.Kind == kind) && strings.HasSuffix(op.File, file) {
			return diskfault.Verdict{Code: code}
		}
		return diskfault.Verdict{}
	}))
	return func() { require.NoError(d, diskfault.SetHook(d.dir, nil)) }
}

// sqliteReadOnly is SQLITE_READONLY (sqlite.org/rescode.html, read 2026-11-30).
const sqliteReadOnly = 8

// damageDisk are disks that fail. The hook works on what is opened after it was
// registered.
func damageDisk() []damageRow {
	// While it is open: nothing is claimed, so nothing is sent; what needs no write
	// is answered; and it goes on by itself.
	open := func(kind string, code int32, why string) func(d *damage) {
		return func(d *damage) {
			_, err := diskfault.Register()
			require.NoError(d, err)
			d.mustOpen()
			d.base.up = true
			mend := d.breaks(kind, "", code)
			d.refuses(d.another(), why)
			d.refuses("lost-old", why)
			d.keeps()
			answer, err := damageCall(d.Context(), d.client, "plain-old")
			if err == nil { // it needs no write
				assert.Equal(d, `201 {"of":"plain-old"}`, answer)
			} else {
				require.ErrorIs(d, err, idem.ErrJournal)
			}
			assert.Zero(d, d.base.sent(""))
			mend()
			_, err = damageCall(d.Context(), d.client, d.another())
			require.NoError(d, err, "it goes on")
		}
	}
	// While Open runs: it fails, and leaves the journal as it was.
	opening := func(kind, file string, code int32) func(d *damage) func() {
		return func(d *damage) func() { return d.breaks(kind, file, code) }
	}
	const place = "must be writable"
	return []damageRow{
		{name: "disk full", check: open(diskfault.Write, diskfault.DiskFull, "disk is full (13)")},
		{name: "write fails", check: open(diskfault.Write, diskfault.WriteFailed, "disk I/O error (778)")},
		{name: "sync fails", check: open(diskfault.Sync, diskfault.SyncFailed, "disk I/O error (1034)")},
		{name: "remounted read-only", check: open(diskfault.Write, sqliteReadOnly, "readonly database (8)")},
		{name: "disk full at Open", harm: opening(diskfault.Write, "", diskfault.DiskFull), refused: "disk is full (13)"},
		{name: "write fails at Open", harm: opening(diskfault.Write, "", diskfault.WriteFailed), refused: "disk I/O error (778)"},
		{name: "sync fails at Open", harm: opening(diskfault.Sync, "", diskfault.SyncFailed), refused: "disk I/O error (1034)"},
		{name: "read-only at Open", harm: opening(diskfault.Write, "", sqliteReadOnly), refused: place},
		{name: "file cannot be opened", harm: opening(diskfault.Open, "", diskfault.OpenFailed), refused: place},
		{name: "-wal cannot be opened", harm: opening(diskfault.Open, "-wal", diskfault.OpenFailed), refused: place},
		{name: "disk full while it is made", check: damagedCreation(diskfault.Write, diskfault.DiskFull, "disk is full (13)")},
		{name: "delete fails while it is made", check: damagedCreation(diskfault.Delete, diskfault.DeleteFailed, "disk I/O error (2570)")},
		{name: "delete fails at Close", check: func(d *damage) {
			d.mustOpen()
			mend := d.breaks(diskfault.Delete, "", diskfault.DeleteFailed)
			_, err := damageCall(d.Context(), d.client, d.another())
			require.NoError(d, err)
			d.mustClose() // the log stays, and harms nobody
			mend()
		}},
		{name: "disk full after the send", check: damagedAfterSend},
	}
}

// damagedCreation: a disk that fails while a journal is made leaves none.
func damagedCreation(kind string, code int32, why string) func(d *damage) {
	return func(d *damage) {
		mend := d.breaks(kind, "", code)
		path := filepath.Join(d.dir, "new.db")
		_, err := idem.Open(path, nil)
		require.ErrorIs(d, err, idem.ErrJournal)
		assert.ErrorContains(d, err, why)
		assert.ErrorContains(d, err, path)
		assert.NoFileExists(d, path)
		mend()
		journal, err := idem.Open(path, nil)
		require.NoError(d, err)
		_, err = damageCall(d.Context(), damageClient(journal, d.base), "plain-made")
		require.NoError(d, err)
		require.NoError(d, journal.Close())
	}
}

// damagedAfterSend: the answer is there and cannot be recorded. The caller has
// it all the same, and it is not taken for recorded.
func damagedAfterSend(d *damage) {
	_, err := diskfault.Register()
	require.NoError(d, err)
	d.mustOpen()
	d.base.up = true
	mend := func() {}
	d.base.onSend = func(string) { mend = d.breaks(diskfault.Write, "", diskfault.DiskFull) }
	var result idem.Result
	operation := d.another()
	answer, err := damageCall(idem.WithResult(d.Context(), &result), d.client, operation)
	require.NoError(d, err)
	assert.Contains(d, answer, "201")
	assert.Equal(d, 1, d.base.sent(operation))
	d.base.onSend = nil
	d.refuses(d.another(), "disk is full")
	mend()
	answer, err = damageCall(d.Context(), d.client, operation)
	require.NoError(d, err)
	assert.Contains(d, answer, "201")
	assert.LessOrEqual(d, d.base.sent(operation), 2, "under the same key")
}

// damageBeside is what others do to the files while the journal is open.
func damageBeside() []damageRow {
	// Where the file is not the one that is open, nothing is claimed or sent, and
	// Close says that what was posted may be lost.
	replaced := func(harm func(d *damage) (undo func())) func(d *damage) {
		return func(d *damage) {
			d.mustOpen()
			undo := harm(d)
			d.refuses(d.another(), "deleted or replaced")
			d.refuses("lost-old", "deleted or replaced")
			_, err := d.client.Resume(d.Context())
			require.ErrorIs(d, err, idem.ErrJournal)
			assert.Zero(d, d.base.sent(""))
			undo()
		}
	}
	rename := func(d *damage, side, to string) {
		require.NoError(d, os.Rename(d.file(side), d.file(side)+to))
	}
	return []damageRow{
		{name: "database deleted while open", broken: true, check: replaced(func(d *damage) func() {
			rename(d, "", ".away")
			return func() { require.NoError(d, os.Rename(d.file("")+".away", d.file(""))) }
		})},
		{name: "all files deleted while open", broken: true, check: replaced(func(d *damage) func() {
			for _, side := range []string{"", "-wal", "-shm"} {
				rename(d, side, ".away")
			}
			return func() {
				for _, side := range []string{"", "-wal", "-shm"} {
					require.NoError(d, os.Rename(d.file(side)+".away", d.file(side)))
				}
			}
		})},
		{name: "database replaced by rename while open", broken: true, check: replaced(func(d *damage) func() {
			rename(d, "", ".away")
			require.NoError(d, copyJournal(d.template.closed, d.dir+"-other"))
			require.NoError(d, os.Rename(filepath.Join(d.dir+"-other", damageFile), d.path))
			return func() { require.NoError(d, os.Rename(d.file("")+".away", d.file(""))) }
		})},
		{name: "owner folder deleted while open", broken: true, check: func(d *damage) {
			d.mustOpen()
			require.NoError(d, os.Rename(d.file("-owners"), d.file("-owners.away")))
			d.refuses(d.another(), "owner file was removed")
			d.refuses("lost-old", "owner file was removed")
			assert.Zero(d, d.base.sent(""))
			require.NoError(d, os.Rename(d.file("-owners.away"), d.file("-owners")))
		}},
		{name: "owner folder deleted", harm: func(d *damage) func() {
			require.NoError(d, os.RemoveAll(d.file("-owners")))
			return nil
		}, check: damagedEpoch},
		{name: "another writer", check: damagedLock},
	}
}

// damagedLock: somebody else has the write lock. Calls wait as long as they may,
// send nothing, and say why.
func damagedLock(d *damage) {
	d.mustOpen()
	d.query(func(db *sql.DB) {
		_, err := db.Exec("BEGIN IMMEDIATE")
		require.NoError(d, err)
		var calls sync.WaitGroup
		for _, o := range []string{d.another(), d.another(), "lost-old", "plain-old"} {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(d.Context(), 50*time.Millisecond)
				defer cancel()
				_, err := damageCall(ctx, d.client, o)
				assert.ErrorIs(d, err, idem.ErrJournal, o)
				assert.ErrorIs(d, err, context.DeadlineExceeded, o)
				switch {
				case o == "plain-old": // it is known what became of it
				case o == "lost-old":
					assert.ErrorIs(d, err, idem.ErrUnknownOutcome, o)
				default:
					assert.ErrorIs(d, err, idem.ErrNotSent, o)
				}
			})
		}
		calls.Wait()
		d.keeps()
		assert.Zero(d, d.base.sent(""))
		_, err = db.Exec("ROLLBACK")
		require.NoError(d, err)
	})
}

// damageCalls are calls that are no usual ones.
func damageCalls() []damageRow {
	do := func(d *damage, operation string, change func(*http.Request) *http.Request) error {
		req, err := diskRequest(d.Context(), errorURL, operation)
		require.NoError(d, err)
		resp, err := d.client.Do(operation, change(req))
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(d, err)
		return resp.Body.Close()
	}
	body := func(b io.ReadCloser) func(d *damage) {
		return func(d *damage) {
			d.mustOpen()
			with := func(req *http.Request) *http.Request {
				req.Body, req.GetBody, req.ContentLength = b, nil, 0
				return req
			}
			require.ErrorIs(d, do(d, "lost-empty", with), idem.ErrUnknownOutcome)
			d.mustClose()
			d.mustOpen()
			d.base.up = true
			require.NoError(d, resumeAll(d.client))
			require.NoError(d, do(d, "lost-empty", with))
			in, err := d.journal.Lookup(d.Context(), damageScope, "lost-empty")
			require.NoError(d, err)
			assert.Equal(d, idem.StateSucceeded, in.State)
		}
	}
	return []damageRow{
		{name: "nil body", check: body(nil)},
		{name: "no body", check: body(http.NoBody)},
		{name: "duplicate key", check: func(d *damage) {
			d.mustOpen()
			keyed := func(req *http.Request) *http.Request {
				req.Header.Set("Idempotency-Key", "chosen-by-the-caller")
				return req
			}
			require.NoError(d, do(d, "plain-first", keyed))
			before := d.base.sent("")
			err := do(d, "plain-second", keyed)
			require.ErrorIs(d, err, idem.ErrMismatch)
			assert.ErrorContains(d, err, `belongs to operation "plain-first"`)
			assert.Equal(d, before, d.base.sent(""))
		}},
		{name: "cancelled context", check: func(d *damage) {
			d.mustOpen()
			ctx, cancel := context.WithCancel(d.Context())
			cancel()
			operation := d.another()
			_, err := damageCall(ctx, d.client, operation)
			require.ErrorIs(d, err, context.Canceled)
			require.ErrorIs(d, err, idem.ErrNotSent)
			_, err = d.journal.Lookup(d.Context(), damageScope, operation)
			require.ErrorIs(d, err, idem.ErrNotFound)
			_, err = damageCall(ctx, d.client, "lost-old")
			require.ErrorIs(d, err, context.Canceled)
			require.ErrorIs(d, err, idem.ErrUnknownOutcome, "it is in doubt from before")
			assert.Zero(d, d.base.sent(""))
		}},
		{name: "closed journal", check: func(d *damage) {
			d.mustOpen()
			require.NoError(d, d.journal.Close())
			err := d.refuses(d.another(), "closed")
			require.ErrorIs(d, err, idem.ErrClosed)
			require.ErrorIs(d, err, idem.ErrNotSent)
			err = d.refuses("lost-old", "closed")
			require.ErrorIs(d, err, idem.ErrClosed)
			require.ErrorIs(d, err, idem.ErrUnknownOutcome, "it is in doubt from before")
			_, err = d.client.Resume(d.Context())
			require.ErrorIs(d, err, idem.ErrClosed)
			_, err = d.journal.Lookup(d.Context(), damageScope, "lost-old")
			require.ErrorIs(d, err, idem.ErrClosed)
			require.ErrorIs(d, err, idem.ErrJournal)
			d.journal = nil
		}},
	}
}
