package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// The job starts its own executable as the shop: here, this test binary.
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
	return config{orders: 20, seed: 17, kills: 6, minLife: 200 * time.Millisecond, maxLife: 400 * time.Millisecond, limit: time.Minute}
}

func TestOutbox(t *testing.T) {
	mustBePrivate(t)
	c := small()
	var out bytes.Buffer
	r, err := run(t.Context(), c, &out)
	t.Log("\n" + out.String())
	require.NoError(t, err)
	assert.Empty(t, r.wrong)
	assert.Contains(t, out.String(), "\nok: 20 orders")

	t.Run("check finds what is wrong", func(t *testing.T) { testCheck(t, c, r) })
}

// testCheck spoils a good report in one place at a time.
func testCheck(t *testing.T, c config, good report) {
	spoiled := func(change func(*idem.Intent)) func(r *report) {
		return func(r *report) {
			in := r.books.intents["order-1/charge"]
			change(&in)
			r.books.intents["order-1/charge"] = in
		}
	}
	for name, test := range map[string]struct {
		spoil func(r *report)
		says  string
	}{
		"order lost":   {func(r *report) { delete(r.books.rows, "order-1") }, "order-1: not in the shop's database"},
		"charge lost":  {func(r *report) { delete(r.books.intents, "order-1/charge") }, "order-1: not in the journal"},
		"still open":   {func(r *report) { r.books.rows["order-1"] = row{1001, stateOpen, ""} }, "order-1: the shop has it as open"},
		"other amount": {func(r *report) { r.books.rows["order-1"] = row{1, statePaid, ""} }, "1 cents"},
		"other answer": {func(r *report) { r.books.rows["order-1"] = row{1001, statePaid, "other"} }, "is not that of the journal"},
		"paid, not refused": {func(r *report) { r.books.rows["order-10"] = row{10010, statePaid, ""} },
			"order-10: the shop has it as paid, not refused"},
		"unsettled":    {spoiled(func(in *idem.Intent) { in.State = idem.StateUnknown }), "order-1: the journal says unknown"},
		"in doubt":     {spoiled(func(in *idem.Intent) { in.Doubt = true }), "doubt true"},
		"not told":     {func(r *report) { delete(r.told, "order-1") }, "told 0 times"},
		"to be told":   {spoiled(func(in *idem.Intent) { in.Notify = true }), "still to be told: true"},
		"other key":    {spoiled(func(in *idem.Intent) { in.Key = "other" }), "order-1: charged under another key"},
		"unannounced":  {spoiled(func(in *idem.Intent) { in.Attempts = 0 }), "but only 0 attempts"},
		"paid twice":   {func(r *report) { r.books.effects = append(r.books.effects, r.books.effects[0]) }, "charged 2 times, not 1"},
		"not paid":     {func(r *report) { r.books.effects = r.books.effects[1:] }, "charged 0 times, not 1"},
		"other order":  {func(r *report) { r.books.effects[0].Operation = "order-99" }, "1 charges that no order asked for"},
		"key on wire":  {func(r *report) { r.books.arrivals[0].Keys = []string{"other"} }, "came with another key"},
		"not stopped":  {func(r *report) { delete(r.kills, stopPlacing) }, `no kill of the kind "placing"`},
		"not settling": {func(r *report) { delete(r.kills, stopSettling) }, `no kill of the kind "settling"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			r.kills, r.told = maps.Clone(good.kills), maps.Clone(good.told)
			r.books = books{
				maps.Clone(good.books.rows), maps.Clone(good.books.intents),
				slices.Clone(good.books.arrivals), slices.Clone(good.books.effects),
			}
			test.spoil(&r)
			r.wrong = check(c, r)
			assert.Contains(t, strings.Join(r.wrong, "\n"), test.says)
			var out bytes.Buffer
			r.print(&out, c)
			assert.Contains(t, out.String(), "\nFAILED:\n")
			assert.NotContains(t, out.String(), "\nok:")
		})
	}
}

// Ctrl-C, or a run that takes too long: the shop goes, and so do the files.
func TestOutboxEndsEarly(t *testing.T) {
	mustBePrivate(t)
	c := small()
	c.orders = 1000
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.ErrClosedPipe)
	defer cancel()
	_, err := run(ctx, c, io.Discard)
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

// A shop that cannot work says why, and is not started for ever.
func TestOutboxShopFails(t *testing.T) {
	p, err := startProvider(t.TempDir(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.close()) })
	c := small()
	c.kills = 0
	missing := filepath.Join(t.TempDir(), "missing")
	err = newLives(c, assignment{Dir: missing, URL: p.running.URL, Orders: 1}).all(t.Context())
	require.ErrorContains(t, err, "the shop failed with exit status 3")
}

// A settlement of an order that the shop does not have is an error, so that it
// stays in the journal until somebody looks.
func TestSettledKnowsItsOrders(t *testing.T) {
	s, err := openShop(t.TempDir(), "http://127.0.0.1:1", idem.RetryPolicy{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.close(context.Background())) })
	require.NoError(t, s.record(t.Context(), order{"order-1", 1000}))
	in := idem.Intent{Operation: "order-1/charge", State: idem.StateSucceeded, Outcome: &idem.Outcome{}}
	require.NoError(t, s.settled(t.Context(), in))
	require.NoError(t, s.settled(t.Context(), in), "told twice")
	in.Operation = "order-2/charge"
	require.ErrorContains(t, s.settled(t.Context(), in), `no order "order-2"`)
	in.Operation = "order-2/refund"
	require.ErrorContains(t, s.settled(t.Context(), in), "none of ours")
}
