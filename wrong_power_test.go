package idem_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection/diskfault"
)

// unsyncedCommits is a client whose commits reach the log only, which a power
// cut takes away: what was sent is not in the journal then, and called again it
// takes effect again, under another key. With the syncs that it has, nothing is
// missing in as many states and more.
func unsyncedCommits(t *testing.T) {
	const bad = "sent, and not in the journal"
	states, found := 0, ""
	p := recordPower(t, 2, powerDisk{lives: 1, synced: ourSyncs, hides: func(op diskfault.Op) bool {
		return strings.HasSuffix(op.File, "-wal")
	}})
	root := diskDir(t)
	for s := range p.recorder.States(p.seed, 1) {
		states++
		err := p.look(root, s, p.promises)
		if err == nil || !strings.Contains(err.Error(), bad) {
			continue
		}
		found = err.Error()
		_ = p.look(root, s, func(dir string, s diskfault.State, _ bool) (int, error) { return 0, p.resume(dir, s) })
		counts, err := p.provider.ledger.Counts()
		require.NoError(t, err)
		if counts.Duplicates > 0 {
			break
		}
		found = "" // of one that has no effect
	}
	require.NotEmpty(t, found, "not caught in %d states", states)
	t.Logf("wrong client: commit not synced + power loss: caught by power after %d states: %s: %s; called again: 2 effects", states, promiseKeyFirst, found)

	p = recordPower(t, 2, powerDisk{lives: 1, synced: ourSyncs})
	left := states + 50
	for s := range p.recorder.States(p.seed, 1) {
		require.NoError(t, p.look(root, s, p.promises), "without the mistake")
		if left--; left == 0 {
			return
		}
	}
	require.Less(t, left, 50, "states")
}

// look writes a state down for somebody to look at.
func (p *power) look(root string, s diskfault.State, at func(dir string, s diskfault.State, copied bool) (int, error)) error {
	dir := mustMkdir(filepath.Join(root, "state"))
	defer os.RemoveAll(dir)
	if err := s.WriteTo(dir); err != nil {
		return err
	}
	_, err := at(dir, s, false)
	return err
}
