package idem

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// generation is one start of an operation, made a year ago and settled at
// testNow, with what is different about it.
type generation struct {
	state  State
	wanted func(*Intent) // of the row as it is made
	left   func(*Intent) // of the row as its call leaves it
}

// makeGenerations makes them all and returns the last one.
func makeGenerations(tb testing.TB, j Journal, operation string, all []generation) (in Intent) {
	tb.Helper()
	for i, g := range all {
		want := newIntent(operation)
		want.Created, want.FirstSent, want.Retention = testNow.AddDate(-1, 0, 0), testNow.AddDate(-1, 0, 0), time.Hour
		if i > 0 {
			want.Renews, want.Key = in.Key, in.Key+"+"
		}
		if g.wanted != nil {
			g.wanted(&want)
		}
		in = mustBegin(tb, j, want)
		require.Equal(tb, i+1, in.Generation)
		in = leftAs(in, g.state)
		if g.left != nil {
			g.left(&in)
		}
		in = mustUpdate(tb, j, in, &Attempt{Number: 1, Phase: phaseAnswered, Started: testNow}, true)
	}
	return in
}

var (
	forgetBefore = testNow.Add(time.Second)

	settledLate   = func(in *Intent) { in.Settled = forgetBefore }
	remembered    = func(in *Intent) { in.Retention = 1 << 62 }
	rememberedNow = func(in *Intent) { in.Retention, in.FirstSent = time.Hour, time.Now() }
	toldLater     = func(in *Intent) { in.Notify = true }
	dueLater      = func(in *Intent) { in.Due = time.Now().Add(time.Hour) }
	wasDue        = func(in *Intent) { in.Due = time.Now().Add(-time.Second) }

	rejection  = generation{state: StateRejected}
	withdrawal = generation{state: StateWithdrawn}
)

// forgettable are operations that go whole; unforgettable ones stay whole.
var (
	forgettable = map[string][]generation{
		"succeeded":          {{state: StateSucceeded}},
		"rejected":           {rejection},
		"withdrawn":          {withdrawal},
		"withdrawn, was due": {{state: StateWithdrawn, left: wasDue}},
		"final, a due left":  {{state: StateSucceeded, left: dueLater}},
		"three generations":  {rejection, withdrawal, {state: StateSucceeded}},
		"no retention known": {{state: StateSucceeded, wanted: func(in *Intent) { in.Retention = 0 }}},
	}
	unforgettable = map[string][]generation{
		"pending":                {{state: StatePending}},
		"unknown":                {{state: StateUnknown}},
		"held":                   {{state: StateHeld}},
		"in flight":              {{state: StateInFlight}},
		"settled late":           {{state: StateSucceeded, left: settledLate}},
		"remembered":             {{state: StateSucceeded, wanted: remembered}},
		"sent late":              {{state: StateRejected, left: rememberedNow}},
		"owed":                   {{state: StateSucceeded, left: toldLater}},
		"withdrawn, due later":   {{state: StateWithdrawn, left: dueLater}},
		"newest pending":         {rejection, {state: StatePending}},
		"newest unknown":         {withdrawal, {state: StateUnknown}},
		"newest held":            {rejection, rejection, {state: StateHeld}},
		"newest settled late":    {rejection, {state: StateSucceeded, left: settledLate}},
		"newest remembered":      {rejection, {state: StateSucceeded, wanted: remembered}},
		"newest owed":            {rejection, {state: StateRejected, left: toldLater}},
		"newest due later":       {rejection, {state: StateWithdrawn, left: dueLater}},
		"an older settled late":  {{state: StateRejected, left: settledLate}, {state: StateSucceeded}},
		"an older remembered":    {{state: StateRejected, wanted: remembered}, {state: StateSucceeded}},
		"an older owed":          {rejection, {state: StateRejected, left: toldLater}, {state: StateSucceeded}},
		"an older one due later": {{state: StateWithdrawn, left: dueLater}, {state: StateSucceeded}},
	}
)

func mustForget(tb testing.TB, j *SQLiteJournal) int {
	tb.Helper()
	n, err := j.Forget(tb.Context(), forgetBefore)
	require.NoError(tb, err)
	return n
}

func TestJournalForgetsWhatIsOver(t *testing.T) {
	for _, pruned := range []bool{false, true} {
		t.Run("pruned "+strconv.FormatBool(pruned), func(t *testing.T) {
			path := tempJournal(t)
			j := mustOpen(t, path, nil)
			rows := 0
			for operation, all := range forgettable {
				makeGenerations(t, j, operation, all)
				rows += len(all)
			}
			kept := mustList(t, j)[:0:0]
			for operation, all := range unforgettable {
				makeGenerations(t, j, operation, all)
			}
			for _, in := range mustList(t, j) {
				if unforgettable[in.Operation] != nil {
					kept = append(kept, in)
				}
			}
			last := makeGenerations(t, j, "the last of all", []generation{rejection}) // its id is the highest
			if pruned {
				_, err := j.Prune(t.Context(), forgetBefore)
				require.NoError(t, err)
				kept = versionless(kept)
			}

			n, err := j.Forget(t.Context(), testNow)
			require.NoError(t, err)
			require.Zero(t, n, "settled at that instant, not before")
			require.Equal(t, rows+1, mustForget(t, j))
			left := mustList(t, j)
			if pruned {
				left = versionless(left)
			}
			require.Equal(t, kept, left, "what stays is as it was")
			require.Zero(t, mustForget(t, j))
			for _, table := range []string{"outcome o ON o.id", "attempt o ON o.intent"} {
				require.Zero(t, count(t, path, `SELECT count(*) FROM intent i JOIN `+table+` = i.id
					WHERE NOT EXISTS (SELECT 1 FROM status s WHERE s.id = i.id)`), "nothing hangs on what went")
			}

			for operation := range forgettable {
				_, err := j.Lookup(t.Context(), "acct", operation)
				require.ErrorIs(t, err, ErrNotFound)
				want := newIntent(operation)
				want.Key, want.Fingerprint = "new-"+operation, []byte("another request")
				got := mustBegin(t, j, want)
				assert.Equal(t, 1, got.Generation, "a new operation")
				assert.Equal(t, "new-"+operation, got.Key)
				assert.Greater(t, must(strconv.Atoi(got.ID)), must(strconv.Atoi(last.ID)), "an id is never given twice")
			}
		})
	}
}

// versionless forgets what Prune changes.
func versionless(list []Intent) (changed []Intent) {
	for _, in := range list {
		in.Version = 0
		if in.Outcome != nil {
			o := *in.Outcome
			o.Complete = false
			in.Outcome = &o
		}
		changed = append(changed, in)
	}
	return changed
}

func mustList(tb testing.TB, j Journal) []Intent {
	tb.Helper()
	list, err := j.List(tb.Context(), Filter{Limit: 1000})
	require.NoError(tb, err)
	return list
}

func TestJournalForgetsUnnamedOnesSingly(t *testing.T) {
	j := mustOpen(t, tempJournal(t), nil)
	adopted := func(in *Intent) { in.Adopted = []byte("digest") }
	over := []generation{{state: StateRejected, wanted: adopted}}
	for _, one := range [][]generation{over, {{state: StateHeld}}, {{state: StateSucceeded, wanted: remembered}}, {withdrawal}} {
		makeGenerations(t, j, "", one)
	}
	before := mustList(t, j)
	require.Equal(t, 2, mustForget(t, j))
	require.Equal(t, before[1:3], mustList(t, j))
	got := makeGenerations(t, j, "", over) // its key is free
	assert.Equal(t, "5", got.ID)
}

// Nothing that somebody has goes away under him.
func TestJournalForgetsNobodysOnly(t *testing.T) {
	path := tempJournal(t)
	j, other := mustOpen(t, path, nil), mustOpen(t, path, nil)
	dead := must(Open(path, nil))
	for operation, owner := range map[string]*SQLiteJournal{"mine": j, "another's": other, "the dead one's": dead} {
		makeGenerations(t, j, operation, []generation{rejection, withdrawal})
		mustBegin(t, owner, newIntent(operation)) // withdrawn still
	}
	dead.store.Die()
	require.Equal(t, 2, mustForget(t, j))
	for operation, owner := range map[string]*SQLiteJournal{"mine": j, "another's": other} {
		got, err := j.Lookup(t.Context(), "acct", operation)
		require.NoError(t, err)
		require.True(t, got.Owned)
		mustUpdate(t, owner, leftAs(got, StateWithdrawn), nil, true)
	}
	require.Equal(t, 4, mustForget(t, j), "both gave theirs up")
	require.Empty(t, mustList(t, j))
	_, _, err := j.ClaimDue(t.Context(), testNow, Filter{})
	require.NoError(t, err)
	assert.Equal(t, 2, count(t, path, `SELECT count(*) FROM owner`), "nothing names the dead one any more")
}

func TestJournalForgetIsRefused(t *testing.T) {
	j := mustOpen(t, tempJournal(t), nil)
	makeGenerations(t, j, "a", []generation{rejection})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n, err := j.Forget(ctx, forgetBefore)
	require.ErrorIs(t, err, ErrJournal)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, n)
	require.Len(t, mustList(t, j), 1)
	require.NoError(t, j.Close())
	_, err = j.Forget(t.Context(), forgetBefore)
	require.ErrorIs(t, err, ErrClosed)
}
