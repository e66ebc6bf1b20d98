package model

import (
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// space is what is pinned of an explored space. A model that silently explores
// less, or other things, does not get there by chance.
type space struct {
	states, steps, depth int
	kinds                int // of steps that were taken
}

// deep asks for the large spaces as well: IDEM_MODEL=deep.
var deep = os.Getenv("IDEM_MODEL") == "deep"

// holds explores the whole space of d and demands that it breaks nothing of
// watch.
func holds(t *testing.T, d Design, watch Rules, want space) {
	t.Helper()
	begun := time.Now()
	r := Explore(d, watch, 2*want.states+1000)
	logTrace(t, r)
	t.Logf("%+v: %d states, %d steps, %d deep, %d kinds of steps, %v",
		d.Bounds, r.States, r.Steps, r.Depth, len(r.Taken), time.Since(begun).Round(time.Millisecond))
	require.Zero(t, r.Broken, "breaks %v", r.Broken)
	require.False(t, r.Cut, "many more states than there were")
	assert.Equal(t, want, space{r.States, r.Steps, r.Depth, len(r.Taken)})
}

func logTrace(t *testing.T, r Result) {
	t.Helper()
	for _, line := range r.Trace {
		t.Log(line)
	}
}

// TestIntendedDesignHolds: no state of the intended design breaks a rule, in an
// ordinary world and in worse ones.
func TestIntendedDesignHolds(t *testing.T) {
	for _, c := range []struct {
		name string
		d    Design
		deep bool
		want space
	}{
		{"kills", Design{Bounds: Bounds{Sends: 3, Kills: 2}}, false, space{151813, 699498, 39, 36}},
		// What was posted, and a mere claim, may be lost: it is sent again, and
		// the provider repeats its answer.
		{"a power cut", Design{Bounds: Bounds{Sends: 2, Kills: 1, Cuts: 1}}, false, space{90793, 433527, 30, 38}},
		{"a power cut, outcomes synced", Design{Bounds: Bounds{Sends: 2, Kills: 1, Cuts: 1}, SyncOutcomes: true}, false, space{83231, 405224, 30, 37}},
		{"an outbox", Design{Bounds: Bounds{Sends: 2, Kills: 1}, Outbox: true}, false, space{32577, 133149, 31, 36}},
		{"a living owner loses its lock", Design{Bounds: Bounds{Sends: 2, Locks: 1}}, false, space{230782, 1019922, 30, 38}},
		{"one send each", Design{Bounds: Bounds{Sends: 1, Kills: 2}}, false, space{10976, 47523, 19, 34}},

		{"more kills", Design{Bounds: Bounds{Sends: 4, Kills: 4}}, true, space{596547, 2938489, 53, 36}},
		{"many kills", Design{Bounds: Bounds{Sends: 6, Kills: 6}}, true, space{2580683, 13128803, 77, 36}},
		{"two power cuts", Design{Bounds: Bounds{Sends: 3, Kills: 2, Cuts: 2}}, true, space{689532, 3819429, 42, 38}},
		{"a power cut in an outbox", Design{Bounds: Bounds{Sends: 3, Kills: 2, Cuts: 1}, Outbox: true}, true, space{413340, 2180822, 44, 38}},
		{"a lost lock, a kill and a power cut", Design{Bounds: Bounds{Sends: 2, Kills: 1, Cuts: 1, Locks: 1}}, true, space{1713747, 9920601, 35, 42}},
		{"both lose their locks", Design{Bounds: Bounds{Sends: 2, Kills: 1, Locks: 2}}, true, space{1856842, 10057895, 36, 40}},
	} {
		if c.deep && !deep {
			continue
		}
		t.Run(c.name, func(t *testing.T) { holds(t, c.d, All, c.want) })
	}
}

// TestWorldsHaveWhatTheySay: what is to be survived does happen.
func TestWorldsHaveWhatTheySay(t *testing.T) {
	taken := map[string]int{}
	for _, d := range []Design{
		{Bounds: Bounds{Sends: 2, Kills: 1, Cuts: 1}}, {Bounds: Bounds{Sends: 1, Locks: 1}}, {Bounds: Bounds{Sends: 1}, Outbox: true},
	} {
		for does, n := range Explore(d, All, 200_000).Taken {
			taken[does] += n
		}
	}
	for _, does := range slices.Sorted(maps.Keys(taken)) {
		t.Logf("%8d  %s", taken[does], does)
	}
	for _, does := range []string{
		"is killed",
		"starts again, as a new owner",
		"is cut: both processes die, and what was not synced is gone",
		"writes what it had posted to the file, not synced",
		"gets no answer: the connection breaks or the attempt times out; the request may run later",
		"is cancelled by its caller; the request may run later",
		"gets a late request that nobody waits for, claims its key and begins to execute it",
		"answers from its store",
		"answers from its store, and the answer is lost on the way",
		"fails after the effect and stores the 500",
		"breaks off, takes everything back and says 503",
		"a gateway answers 4xx and passes nothing on",
		"loses the answer's body half way",
		"passes: the key is past the stop, inside the margin",
		"passes: the provider forgets the key",
		"may not send: the key is too old",
		"has no attempts left",
		"cannot count the attempt, since its claim is gone",
		"releases the row",
		"finds the effect and says succeeded",
		"finds no effect, long after, and says rejected",
		"prepares the operation: key and request are journaled and synced, nothing is sent",
	} {
		assert.NotZero(t, taken[does], does)
	}
}
