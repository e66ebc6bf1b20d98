package idem_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// A server that takes keys and does not keep its contract is caught too.
func TestWrongServers(t *testing.T) {
	t.Run("no memory", wrong{
		name: "server without memory", breaks: []string{promiseOneEffect}, says: "2 effects", server: faultinjection.NoMemory,
	}.caught)
	t.Run("check-then-insert", checkThenInsert)
}

// checkThenInsert needs a request that is still running when the same one comes
// again, since its process was killed meanwhile.
func checkThenInsert(t *testing.T) {
	if raced {
		return // processes take too long to start, and share no memory
	}
	const work = 300 * time.Millisecond
	maxLife := idleLife(t)*3/2 + work
	world := func(broken faultinjection.Broken, lives int) *killing {
		k := &killing{killedWorld: newKilledWorld(t, rand.Uint64()), processes: 2, lives: lives, maxLife: maxLife}
		k.serve(broken, work)
		return k
	}
	k := world(faultinjection.CheckThenInsert, 60)
	k.judged = []string{oneEffect}
	report, err := k.run(t.Context())
	var found violation
	require.True(t, errors.As(err, &found), "not caught in %d lives: %v", report.Lives, err)
	require.Equal(t, oneEffect, found.rule)
	t.Logf("wrong server: check-then-insert: caught by kills after %d runs: %s: %s", report.Lives, promiseOneEffect, found.detail)

	k = world(0, 6)
	k.mustRun(t.Context())
	require.Positive(t, k.seen.Interrupted)
}

// serve puts another server in the place of the world's own.
func (w *killedWorld) serve(broken faultinjection.Broken, work time.Duration) {
	w.server = faultinjection.NewServer(killedContract(), w.ledger)
	w.server.Each(w.arrive)
	w.server.Effect, w.server.Broken, w.server.Work = w.effect, broken, work
	running, err := w.server.Listen()
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, running.Close()) })
	w.url = running.URL
}
