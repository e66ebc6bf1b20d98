package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// perWorld is how many lives one journal and one ledger are good for: looking at
// all that they left would take the most time otherwise.
const perWorld = 500

// inWorlds tries some worlds, as many at once as there are processors.
func inWorlds(t *testing.T, n int, try func(t *testing.T, world int)) {
	t.Run("worlds", func(t *testing.T) {
		for world := range n {
			t.Run(strconv.Itoa(world), func(t *testing.T) {
				t.Parallel()
				try(t, world)
			})
		}
	})
}

// Two processes share a journal and are killed at random moments, while they
// call, prepare and resume the same operations and others, at a provider that
// loses a tenth of the requests and a tenth of the answers. Whatever they were
// at, no operation had two effects, no key is another one, nothing is forgotten,
// and in the end the journal agrees with the provider row by row.
func TestKilledAtRandom(t *testing.T) {
	n, patience := kills(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("takes too long"))
	defer cancel()
	var mu sync.Mutex
	killed, total := 0, killedCounts{}
	inWorlds(t, (n+perWorld-1)/perWorld, func(t *testing.T, world int) {
		k := &killing{
			killedWorld: newKilledWorld(t, rand.Uint64()), processes: 2, lives: (min(perWorld, n-world*perWorld) + 1) / 2,
			maxLife: idleLife(t)*3/2 + 20*time.Millisecond,
		}
		report := k.mustRun(ctx)
		require.Equal(t, k.processes*k.lives, report.Killed, "nobody ends before")
		mu.Lock()
		defer mu.Unlock()
		killed += report.Killed
		total.add(k.seen)
	})
	t.Logf("%d kills, %+v", killed, total)
	assert.Greater(t, total.Works, n/4, "processes that came to work")
	assert.Greater(t, total.Operations, n/2, "operations")
	assert.Greater(t, total.Arrivals, total.Operations, "arrivals")
	assert.Greater(t, total.Interrupted, n/20, "attempts that a kill cut")
	assert.Greater(t, total.Resumed, n/20, "operations that a resume settled")
}

// A process dies at each named point, at its first pass and at later ones, alone
// and beside another one, which dies elsewhere.
func TestKilledAtEachPoint(t *testing.T) {
	const passes = 3
	n, patience := kills(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("takes too long"))
	defer cancel()
	var points []string
	for pass := range passes {
		for _, point := range idem.CrashPoints() {
			points = append(points, fmt.Sprint(point, ":", pass+1))
		}
	}
	var mu sync.Mutex
	killed, total, at := 0, killedCounts{}, map[string]int{}
	for i, share := range []int{n * 15 / 100, n * 85 / 100} { // and some more, since not all come to their point
		inWorlds(t, (share+perWorld-1)/perWorld, func(t *testing.T, world int) {
			k := &killing{killedWorld: newKilledWorld(t, rand.Uint64()), processes: i + 1, calls: 6}
			k.lives = (min(share-world*perWorld, perWorld)/k.processes + len(points) - 1) / len(points) * len(points)
			died := k.dieAt(points)
			report := k.mustRun(ctx)
			mu.Lock()
			defer mu.Unlock()
			killed += report.Killed
			total.add(k.seen)
			for point, times := range died() {
				at[point] += times
			}
		})
	}
	t.Logf("%d kills, %+v: %v", killed, total, at)
	assert.GreaterOrEqual(t, killed, n, "kills")
	assert.Greater(t, total.Operations, n/2, "operations")
	assert.Greater(t, total.Interrupted, n/4, "attempts that a kill cut")
	assert.Greater(t, total.Resumed, n/4, "operations that a resume settled")
	for _, point := range points {
		want := n / len(points) / 2
		if strings.HasPrefix(point, "wait:") { // which needs attempts that fail
			want /= 5
		}
		assert.GreaterOrEqual(t, at[point], want, "kills at %s", point)
	}
}

// dieAt gives each life one of the points, each point as often, in an order of
// their own. It returns who died where, to be asked afterwards: lives that did
// not end by themselves.
func (k *killing) dieAt(points []string) (died func() map[string]int) {
	random := rand.New(rand.NewPCG(k.seed, 0))
	var order []int
	var given []string
	k.point = func(life int) string {
		if len(order) == 0 {
			order = random.Perm(len(points))
		}
		given, order = append(given, points[order[0]]), order[1:]
		return given[life-1]
	}
	return func() map[string]int {
		at := map[string]int{}
		for i, point := range given {
			if !k.ended[strconv.Itoa(i+1)] {
				at[point]++
			}
		}
		return at
	}
}
