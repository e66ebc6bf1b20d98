package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// The job starts its own executable as the worker: here, this test binary.
func TestMain(m *testing.M) {
	if isWorker() {
		os.Exit(workerMain())
	}
	os.Exit(m.Run())
}

// mustBePrivate sends everything temporary to a directory that has to be empty
// in the end.
func mustBePrivate(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir) // Windows
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		assert.NoError(t, err)
		assert.Empty(t, left, "the job left files behind")
	})
}

func small() config {
	return config{
		orders: 8, seed: 17, kills: 5, minLife: 60 * time.Millisecond, maxLife: 200 * time.Millisecond,
		seedRequests: 100, limit: time.Minute,
	}
}

func TestCheckout(t *testing.T) {
	mustBePrivate(t)
	c := small()
	var out bytes.Buffer
	r, err := run(t.Context(), c, &out)
	t.Log("\n" + out.String())
	require.NoError(t, err)

	assert.Empty(t, r.disagreements)
	assert.Equal(t, c.orders, r.idem.charges)
	assert.Zero(t, r.idem.duplicates)
	assert.Zero(t, r.idem.lost)
	assert.Positive(t, r.idem.kills)
	assert.LessOrEqual(t, r.idem.kills, c.kills)
	assert.GreaterOrEqual(t, r.idem.arrivals, c.orders)

	assert.Positive(t, r.naive.duplicates)
	assert.Equal(t, c.orders+r.naive.duplicates-r.naive.lost, r.naive.charges)
	assert.Positive(t, r.naive.kills)

	assert.Positive(t, r.broken.Duplicates)
	assert.Equal(t, 1, r.atomic.Effects)
	assert.Contains(t, out.String(), "\nok: 8 of 8 orders charged once")

	t.Run("check finds what is wrong", func(t *testing.T) { testCheck(t, c, r) })
}

// testCheck spoils a good report in one place at a time.
func testCheck(t *testing.T, c config, good report) {
	for name, test := range map[string]struct {
		spoil func(r *report)
		says  string
	}{
		"duplicate": {func(r *report) { r.idem.charges++; r.idem.duplicates++ }, "idem: 9 charges for 8 orders"},
		"lost":      {func(r *report) { r.idem.lost++ }, "1 lost"},
		"kind":      {func(r *report) { r.naive.duplicates = 0 }, "too kind"},
		"no kills":  {func(r *report) { r.idem.kills = 0 }, "no restart was tested"},
		"no race":   {func(r *report) { r.broken.Duplicates = 0 }, "check, then insert: no duplicates"},
		"no claim":  {func(r *report) { r.atomic.Effects = 2 }, "atomic claim: 2 effects"},
		"answers":   {func(r *report) { r.atomic.Answers = 2 }, "2 different answers"},
		"missing":   {func(r *report) { r.books.entries = r.books.entries[1:] }, "order-1: not in the journal"},
		"unfinished": {func(r *report) { r.books.entries[0].intent.State = idem.StateUnknown },
			"order-1: the journal says unknown"},
		"doubt": {func(r *report) { r.books.entries[0].intent.Doubt = true }, "doubt true"},
		"attempts": {func(r *report) { r.books.entries[0].attempts = nil },
			"attempts and lists 0"},
		"unannounced": {func(r *report) {
			r.books.entries[0].intent.Attempts, r.books.entries[0].attempts = 0, nil
		}, "but only 0 attempts"},
		"key": {func(r *report) { r.books.entries[0].intent.Key = "other" },
			"order-1: charged under another key"},
		"key on the wire": {func(r *report) { r.books.arrivals[0].Keys = []string{"other"} },
			"arrival 1 came with another key"},
		"charged twice": {func(r *report) { r.books.effects = append(r.books.effects, r.books.effects[0]) },
			"the ledger has 2 charges"},
		"not charged": {func(r *report) { r.books.effects = r.books.effects[1:] }, "the ledger has 0 charges"},
		"no answer":   {func(r *report) { r.books.entries[0].intent.Outcome = nil }, "the journal has no answer"},
		"not replayed": {func(r *report) { r.books.answers = nil },
			"the provider has no answer"},
		"body": {func(r *report) {
			other := *r.books.entries[0].intent.Outcome
			other.Body = []byte("other")
			r.books.entries[0].intent.Outcome = &other
		}, "is not the provider's"},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			r.books.entries = append([]entry(nil), good.books.entries...)
			r.books.arrivals = append([]faultinjection.Arrival(nil), good.books.arrivals...)
			r.books.effects = append([]faultinjection.Effect(nil), good.books.effects...)
			test.spoil(&r)
			r.disagreements = check(c, r)
			require.NotEmpty(t, r.disagreements)
			assert.Contains(t, strings.Join(r.disagreements, "\n"), test.says)

			var out bytes.Buffer
			r.print(&out, c)
			assert.Contains(t, out.String(), "\nFAILED:\n")
			assert.NotContains(t, out.String(), "\nok:")
		})
	}
}

// Ctrl-C, or a run that takes too long: the worker goes, and so do the files.
func TestCheckoutEndsEarly(t *testing.T) {
	mustBePrivate(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	c := small()
	c.orders = 1000
	// The first line of progress comes when work is going on.
	out := writerFunc(func(line []byte) (int, error) {
		if bytes.Contains(line, []byte("kills")) {
			cancel(io.ErrClosedPipe)
		}
		return len(line), nil
	})
	_, err := run(ctx, c, out)
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A worker that cannot work says why, and is not started for ever.
func TestCheckoutWorkerFails(t *testing.T) {
	p, err := startProvider(t.TempDir(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.close()) })
	for _, mode := range []string{modeNaive, modeIdem} {
		t.Run(mode, func(t *testing.T) {
			l := lives{c: small(), provider: p, progress: progress{out: io.Discard, start: time.Now()}}
			l.work = assignment{Mode: mode, Dir: filepath.Join(t.TempDir(), "missing"), URL: p.running.URL, Orders: 1}
			l.c.kills = 0
			if mode == modeIdem { // Open makes directories, but not in the place of a file
				require.NoError(t, os.WriteFile(l.work.Dir, nil, 0o600))
			}
			err := l.all(t.Context())
			require.ErrorContains(t, err, "the worker failed with exit status 3")
		})
	}
}

func TestFaultsDependOnTheArrivalOnly(t *testing.T) {
	kinds, other := map[string]int{}, 0
	for n := 1; n <= 1000; n++ {
		step := fault(17, "order-1", n)
		assert.Equal(t, step, fault(17, "order-1", n))
		kind, _, _ := strings.Cut(step.String(), " ")
		kinds[kind]++
		if step != fault(17, "order-2", n) {
			other++
		}
	}
	assert.Len(t, kinds, 7, "%v", kinds)
	assert.InDelta(t, 1000*faultShare, 1000-kinds["run"], 60)
	assert.Greater(t, other, 500)
}
