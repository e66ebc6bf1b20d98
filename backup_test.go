//go:build linux || darwin

package idem_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// backups are the ways to copy a journal that is in use: its three files between
// two writes, by another program, SQLite's own way, and ours.
var backups = map[string]func(d *damage, to string){
	"three files": func(d *damage, to string) {
		require.NoError(d, damageLife{Copy: to}.command(d, d.path).Run())
	},
	"VACUUM INTO": func(d *damage, to string) {
		d.query(func(db *sql.DB) {
			_, err := db.Exec(`VACUUM INTO ?`, to)
			require.NoError(d, err)
		})
	},
	"Backup": func(d *damage, to string) {
		require.NoError(d, d.journal.Backup(d.Context(), to))
	},
}

// A backup has all that was acknowledged when it was made. Opened elsewhere, or
// put back in place of the journal after a crash, it answers what is final, and
// holds what is not: somebody else may have gone on with it.
func TestBackupAndRestore(t *testing.T) {
	for name, backup := range backups {
		t.Run(name, func(t *testing.T) {
			live := newDamage(t, &damageTemplate{keys: map[string]string{}})
			require.NoError(t, os.Mkdir(live.dir, 0o700))
			saved, crashed := filepath.Join(filepath.Dir(live.dir), "saved.db"), live.dir+"-crashed"
			for _, age := range []string{damageOld, damageNew} {
				live.mustOpen()
				live.base.onSend = func(operation string) {
					switch operation {
					case damageFlight + "-" + damageOld: // it is in flight
						backup(live, saved)
					case damageFlight + "-" + damageNew:
						require.NoError(t, copyJournal(live.dir, crashed))
					}
				}
				for _, kind := range damageKinds {
					_, _ = damageCall(t.Context(), live.client, kind+"-"+age)
				}
				if age == damageOld {
					elsewhere := live.restored(saved, filepath.Join(live.dir+"-elsewhere", damageFile))
					elsewhere.isACopy() // while the original is open
				}
				live.mustClose()
			}
			elsewhere := live.restored(saved, filepath.Join(crashed, damageFile)) // over it
			elsewhere.isACopy()

			original := live.restored("", live.path)
			original.works() // has nothing of all that
			original.oneKey()
		})
	}
}

// restored is the journal at a path, with the files of a backup where there is
// one. What came to its provider so far is what was sent.
func (d *damage) restored(backup, path string) *damage {
	d.Helper()
	r := newDamage(d.T, &damageTemplate{keys: map[string]string{}})
	r.dir, r.path = filepath.Dir(path), path
	for o, keys := range d.base.arrivals {
		if r.template.keys[o] = keys[0]; strings.HasSuffix(o, damageNew) && backup != "" {
			r.gone[o] = true // it is newer
		}
	}
	if backup == "" {
		return r
	}
	require.NoError(d, os.MkdirAll(r.dir, 0o700))
	for _, side := range []string{"", "-wal", "-shm"} { // they belong together
		require.NoError(d, os.RemoveAll(path+side))
		data, err := os.ReadFile(backup + side)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		require.NoError(d, err)
		require.NoError(d, os.WriteFile(path+side, data, 0o600))
	}
	return r
}

// isACopy checks that it has all that is not gone, and sends nothing of it
// before a person decides.
func (d *damage) isACopy() {
	d.Helper()
	d.mustOpen()
	d.base.up = true
	d.keeps()
	_, err := d.client.Resume(d.Context())
	require.NoError(d, err)
	want := map[string]idem.State{
		diskPlain: idem.StateSucceeded, diskReject: idem.StateRejected, diskRefused: idem.StateWithdrawn,
		diskLost: idem.StateHeld, damageMoved: idem.StateHeld, damageFlight: idem.StateHeld,
	}
	for _, o := range d.all() {
		in, err := d.journal.Lookup(d.Context(), damageScope, o)
		require.NoError(d, err, o)
		kind, _, _ := strings.Cut(o, "-")
		assert.Equal(d, want[kind], in.State, o)
		if kind == diskLost || kind == damageFlight {
			assert.Equal(d, idem.HoldCopied, in.HoldReason, o)
			assert.True(d, in.Doubt, o)
			d.held[o] = true
		}
	}
	assert.Zero(d, d.base.sent(""))
	d.mustClose()
	d.works()
	d.mustOpen()
	in, err := d.journal.Lookup(d.Context(), damageScope, "lost-old")
	require.NoError(d, err)
	_, err = d.client.Release(d.Context(), in, "ann", "only this one is in use")
	require.NoError(d, err)
	_, err = damageCall(d.Context(), d.client, "lost-old")
	require.NoError(d, err)
	d.mustClose()
	d.sound()
	d.oneKey()
}
