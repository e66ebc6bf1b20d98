package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// The command starts its own executable as provider and worker: here, this test
// binary.
func TestMain(m *testing.M) {
	beChild()
	os.Exit(m.Run())
}

func newRun(t *testing.T) (*run, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &run{ctx: t.Context(), out: out, dir: t.TempDir(), rounds: 1, round: 60 * time.Millisecond, work: time.Millisecond}, out
}

func few() kills {
	return kills{
		orders: 30, callers: 4, kills: 3, minLife: 50 * time.Millisecond, maxLife: 150 * time.Millisecond,
		seed: 17, faults: 0.2, work: 40 * time.Millisecond, atOnce: 8, limit: time.Minute,
	}
}

func TestSpeeds(t *testing.T) {
	t.Parallel()
	r, out := newRun(t)
	require.NoError(t, r.head())
	require.NoError(t, r.speedTables("4"))
	t.Log("\n" + out.String())
	for _, k := range chosen(func(k kind) bool { return k.speed }) {
		assert.Equal(t, 1, strings.Count(out.String(), "\n| "+k.name+" "), k.name)
		assert.NotContains(t, out.String(), k.module+" unknown")
	}
	require.Error(t, r.speedTables("1,x"))
}

// What each has to come to, and that the trial can tell one from the other.
func TestKills(t *testing.T) {
	t.Parallel()
	r, out := newRun(t)
	k := few()
	// River finds what a dead process left after some 20 s: see TestRiver.
	rows, err := r.kill(k, chosen(func(k kind) bool { return k.kills && !strings.HasPrefix(k.name, "River") }))
	require.NoError(t, err)
	r.printKills(k, rows)
	t.Log("\n" + out.String())
	byName := map[string]killed{}
	for _, row := range rows {
		byName[row.kind.name] = row
		assert.Positive(t, row.again.kills, row.kind.name)
		assert.Positive(t, row.once.kills, row.kind.name)
		assert.Zero(t, row.again.lost+row.again.unknown, "%s: what is brought until it is answered is not lost", row.kind.name)
	}

	ours := byName["idem"]
	assert.Zero(t, ours.again.duplicates)
	assert.Zero(t, ours.once.duplicates)
	assert.Zero(t, ours.once.lost+ours.once.unknown)
	assert.Equal(t, k.orders, ours.once.charges)

	naive := byName["http.Client"]
	assert.Positive(t, naive.again.duplicates, "no duplicates: the trial proves nothing")
	assert.Positive(t, naive.once.lost+naive.once.unknown, "no losses: the trial proves nothing")
	assert.Positive(t, byName["DBOS, key minted in the step"].once.duplicates)

	// What docs/comparison.md says of the others.
	assert.Zero(t, byName["go-retryablehttp, key of the order"].again.duplicates)
	assert.Zero(t, byName["DBOS, key is the workflow's id"].again.duplicates)
	assert.Zero(t, byName["DBOS, key is the workflow's id"].once.lost)
}

// The duplicates of the naive client come of the kills: there are some without
// other faults, and without kills there are none.
func TestKillsAloneMakeDuplicates(t *testing.T) {
	t.Parallel()
	for _, count := range []int{3, 0} {
		r, _ := newRun(t)
		k := few()
		k.faults, k.kills = 0, count
		end, err := r.oneKill(r.ctx, k, "http.Client", "alone", false)
		require.NoError(t, err)
		assert.Equal(t, count > 0, end.kills > 0)
		assert.Equal(t, count > 0, end.duplicates > 0, "%d kills, %d duplicates", end.kills, end.duplicates)
	}
}

// River works through faults, here without kills.
func TestRiver(t *testing.T) {
	t.Parallel()
	r, _ := newRun(t)
	k := few()
	k.kills, k.orders = 0, 12
	rows, err := r.kill(k, chosen(func(k kind) bool { return k.name == "River, key in the job's args" }))
	require.NoError(t, err)
	require.Len(t, rows, 1)
	for _, end := range []ending{rows[0].again, rows[0].once} {
		assert.Equal(t, k.orders, end.charges)
		assert.Zero(t, end.duplicates+end.lost+end.unknown)
	}
}

// A worker that cannot work is an error, and not started for ever.
func TestWorkerFails(t *testing.T) {
	t.Parallel()
	r, _ := newRun(t)
	_, err := r.oneKill(r.ctx, few(), "nothing", "bad", false)
	require.ErrorContains(t, err, `nothing is named "nothing"`)
}

func TestOrderOf(t *testing.T) {
	assert.Equal(t, "order-1", orderOf([]byte(body("order-1"))))
	assert.Equal(t, "order-1", orderOf([]byte(url.Values{"amount": {"1"}, "metadata[order]": {"order-1"}}.Encode())))
	assert.Empty(t, orderOf([]byte("amount=1")))
}

func TestFaultsDependOnTheArrivalOnly(t *testing.T) {
	kinds, other := map[string]int{}, 0
	for n := range 1000 {
		step := fault(17, 0.5, "order-1", n)
		assert.Equal(t, step, fault(17, 0.5, "order-1", n))
		kinds[step.String()]++
		if step != fault(17, 0.5, "order-2", n) {
			other++
		}
	}
	assert.Len(t, kinds, 6, "%v", kinds)
	assert.InDelta(t, 500, kinds["run"], 60)
	assert.Greater(t, other, 400)
}

// count tells a duplicate, an order that was never charged, and one of which
// nobody knows.
func TestCount(t *testing.T) {
	ledger, err := faultinjection.OpenLedger("")
	require.NoError(t, err)
	defer ledger.Close()
	running, err := newServer(ledger, 0).Listen()
	require.NoError(t, err)
	bare, err := openBare(site{url: running.URL})
	require.NoError(t, err)
	for _, n := range []int{1, 1, 1, 2, 4} {
		require.NoError(t, bare.ask(fmt.Sprintf("order-%d", n)))
	}
	require.NoError(t, bare.close())
	require.NoError(t, running.Close())
	l := &lives{k: kills{orders: 4}, killed: 7, made: map[string]bool{"order-1": true, "order-3": true, "order-4": true}}
	var end ending
	require.NoError(t, end.count(ledger, l))
	assert.Equal(t, ending{kills: 7, charges: 5, duplicates: 2, lost: 1, unknown: 1}, end)
}
