package idem

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	children["owner with a child"] = childOwnsAndSpawns
	children["just lives"] = func() { childArgs(); fmt.Println("lives"); select {} }
}

// childOwnsAndSpawns begins an operation, starts a process that outlives it,
// and hangs.
func childOwnsAndSpawns() {
	path := childArgs()[0]
	journal := orExit(Open(path, nil))
	_, claimed, err := journal.Begin(context.Background(), newIntent("order-1"))
	orExit(claimed, err)
	heir := exec.Command(orExit(os.Executable()))
	heir.Env = append(os.Environ(), childEnv+"=just lives")
	heir.Stdin, heir.Stdout = os.Stdin, os.Stdout
	orExit(0, heir.Start())
	select {}
}

// An owner dies with its process, and does not live on in a process that it
// started.
func TestOwnerDoesNotLiveOnInAChild(t *testing.T) {
	r := newRig(t)
	owner := startChild(t, "owner with a child", r.path)
	owner.awaitLine("lives")
	held, err := r.journal.Lookup(t.Context(), newIntent("order-1").Scope, "order-1")
	require.NoError(t, err)
	require.True(t, held.Owned)

	require.NoError(t, owner.cmd.Process.Kill())
	_, err = owner.cmd.Process.Wait()
	require.NoError(t, err)
	got, claimed, err := r.journal.Begin(t.Context(), newIntent("order-1"))
	require.NoError(t, err)
	assert.True(t, claimed)
	assert.True(t, got.Doubt)
	assert.Equal(t, StateUnknown, got.State)
}
