package idem_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection/diskfault"
)

// backupRig is a journal with some operations, and a folder for its backups with
// a disk of its own.
type backupRig struct {
	*testing.T
	provider *diskProvider
	journal  *idem.SQLiteJournal
	client   *idem.Client
	dir      string
	calls    int
}

func newBackupRig(t *testing.T) *backupRig {
	_, err := diskfault.Register()
	require.NoError(t, err)
	b := &backupRig{T: t, provider: newDiskProvider(t), dir: diskDir(t)}
	b.journal, err = idem.Open(filepath.Join(diskDir(t), "journal.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.journal.Close() })
	b.client = b.provider.client(b.journal)
	for range 5 {
		b.call()
	}
	return b
}

// call runs another operation.
func (b *backupRig) call() {
	b.Helper()
	b.calls++
	end, err := diskDo(b.client, "http://provider.example", fmt.Sprint(diskPlain, "-", b.calls))
	require.NoError(b, err)
	require.Equal(b, endSucceeded, end.word)
}

func (b *backupRig) names() (names []string) {
	b.Helper()
	entries, err := os.ReadDir(b.dir)
	require.NoError(b, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// holds checks that the copy has so many operations, each with its answer.
func (b *backupRig) holds(to string, operations int) {
	b.Helper()
	journal, err := idem.Open(to, &idem.SQLiteOptions{MustExist: true})
	require.NoError(b, err)
	defer func() { require.NoError(b, journal.Close()) }()
	list, err := journal.List(b.Context(), idem.Filter{Limit: 1000})
	require.NoError(b, err)
	require.Len(b, list, operations)
	for _, in := range list {
		assert.Equal(b, idem.StateSucceeded, in.State)
	}
}

// Whichever disk operation of a backup fails, it says so, nothing is left of it,
// and the journal goes on: the disk of the backups is not the journal's.
func TestBackupOntoABrokenDisk(t *testing.T) {
	b := newBackupRig(t)
	to := filepath.Join(b.dir, "saved.db")
	for _, kind := range []struct {
		name string
		code int32
	}{{diskfault.Write, diskfault.DiskFull}, {diskfault.Sync, diskfault.SyncFailed}, {diskfault.Truncate, diskfault.TruncateFailed}, {diskfault.Open, diskfault.OpenFailed}} {
		failures, done := 0, false
		for n := int64(1); !done; n++ {
			require.Less(t, n, int64(200))
			var failed atomic.Bool
			fail := diskfault.FailNth(kind.name, n, kind.code, true)
			mustHook(t, b.dir, func(op diskfault.Op) diskfault.Verdict {
				v := fail(op)
				if v.Code != 0 {
					failed.Store(true)
				}
				return v
			})
			err := b.journal.Backup(t.Context(), to)
			require.NoError(t, diskfault.SetHook(b.dir, nil))
			if done = !failed.Load(); done {
				require.NoError(t, err)
				break
			}
			failures++
			require.ErrorIs(t, err, idem.ErrJournal, "%s %d", kind.name, n)
			require.Empty(t, b.names(), "%s %d", kind.name, n)
		}
		t.Logf("%s: %d failures", kind.name, failures)
		b.call()
		b.holds(to, b.calls-1)
		for _, name := range b.names() {
			require.NoError(t, os.RemoveAll(filepath.Join(b.dir, name)))
		}
		if kind.name == diskfault.Write {
			require.Greater(t, failures, 5)
		}
	}
}

// While a backup is at its slowest, callers write, at other handles too. Its
// context ends it, with nothing left over.
func TestBackupKeepsNobodyWaiting(t *testing.T) {
	for _, end := range []string{"goes on", "cancelled", "closed"} {
		t.Run(end, func(t *testing.T) {
			b := newBackupRig(t)
			to := filepath.Join(b.dir, "saved.db")
			writing, release := make(chan struct{}), make(chan struct{})
			var writes atomic.Int64
			mustHook(t, b.dir, func(op diskfault.Op) diskfault.Verdict {
				if op.Kind == diskfault.Write && writes.Add(1) == 3 {
					close(writing)
					<-release
				}
				return diskfault.Verdict{}
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			made := make(chan error, 1)
			go func() { made <- b.journal.Backup(ctx, to) }()
			select {
			case <-writing:
			case err := <-made:
				require.NoError(t, err, "before it has written")
			}
			before := b.calls
			for range 20 {
				b.call()
			}
			require.NoError(t, b.journal.Flush(t.Context()))
			require.Empty(t, made)
			closed := make(chan error, 1)
			switch end {
			case "cancelled":
				cancel()
			case "closed":
				go func() { closed <- b.journal.Close() }()
				require.Eventually(t, func() bool { return b.journal.Flush(t.Context()) != nil }, 10*time.Second, time.Millisecond)
			}
			close(release)
			err := <-made
			if end == "goes on" {
				require.NoError(t, err)
				b.holds(to, before)
				return
			}
			require.Empty(t, b.names())
			if end == "cancelled" {
				require.ErrorIs(t, err, context.Canceled)
				b.call()
				return
			}
			require.ErrorIs(t, err, idem.ErrClosed)
			require.NoError(t, <-closed)
		})
	}
}
