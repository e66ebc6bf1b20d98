package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// wrongJournal is a journal with a mistake that shows only where two owners of
// one file call one operation at a time, as in TestCallsTogether.
type wrongJournal struct {
	name, promise, says string
	wrap                func(idem.Journal) idem.Journal
	effects             int // that the operation has then
}

var wrongJournals = []wrongJournal{
	{
		name: "begin = read, then insert", promise: promiseOneKey, says: " has key ", effects: 2,
		wrap: func(j idem.Journal) idem.Journal { return readsThenInserts{j} },
	},
	{ // with a correct provider this does no damage: the key is one
		name: "no lease", promise: promiseOneSender, says: "has claimed it, and ", effects: 1,
		wrap: func(j idem.Journal) idem.Journal { return nobodyOwns{j} },
	},
}

// readsThenInserts looks whether an operation is there, and makes it if not,
// without an index that would refuse a second one.
type readsThenInserts struct{ idem.Journal }

func (j readsThenInserts) Begin(ctx context.Context, want idem.Intent) (got idem.Intent, claimed bool, err error) {
	rows, err := j.List(ctx, idem.Filter{})
	if err != nil {
		return idem.Intent{}, false, err
	}
	operation := want.Operation
	want.Operation = operation + " " + want.Key
	if len(rows) > 0 {
		want.Operation = rows[0].Operation
	} else {
		time.Sleep(500 * time.Millisecond)
	}
	got, claimed, err = j.Journal.Begin(ctx, want)
	got.Operation = operation
	return got, claimed, err
}

// nobodyOwns claims what a living owner has.
type nobodyOwns struct{ idem.Journal }

func (j nobodyOwns) Begin(ctx context.Context, want idem.Intent) (idem.Intent, bool, error) {
	got, claimed, err := j.Journal.Begin(ctx, want)
	if err == nil && got.Owned && !got.State.Final() {
		got.State, got.Doubt, got.Request, got.Claimed, got.Owned = idem.StateUnknown, true, want.Request, true, false
		claimed = true
	}
	return got, claimed, err
}

func (j nobodyOwns) Update(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
	got, err := j.Journal.Update(ctx, next, a, durable)
	if errors.Is(err, idem.ErrBusy) {
		return next, nil
	}
	return got, err
}

// wrongGaps are the times after which the second owner calls too: so late that
// the first one is done, and earlier.
var wrongGaps = []time.Duration{10 * time.Second, 2 * time.Second, 700 * time.Millisecond, 200 * time.Millisecond}

// caught lets two owners call with smaller and smaller gaps, until the mistake
// is seen; without it none is.
func (w wrongJournal) caught(t *testing.T) {
	seen := false
	for i, gap := range wrongGaps {
		effects, found := twoOwners(t, gap, func(j idem.Journal) idem.Journal { return j })
		require.NoError(t, found, "without the mistake")
		require.Equal(t, 1, effects)
		if seen {
			continue
		}
		if effects, found = twoOwners(t, gap, w.wrap); found != nil {
			seen = true
			require.Positive(t, i, "calls one after the other")
			require.ErrorContains(t, found, w.says)
			require.Equal(t, w.effects, effects)
			t.Logf("wrong client: %s: caught by many callers after %d runs: %s: %v; %d effects", w.name, i+1, w.promise, found, effects)
		}
	}
	require.True(t, seen, "not caught")
}

// twoOwners lets two owners of one journal call one operation, the second one
// some time after the first. A send takes a second. It returns what is wrong
// with the history, and the effects.
func twoOwners(t *testing.T, gap time.Duration, wrap func(idem.Journal) idem.Journal) (effects int, found error) {
	t.Helper()
	dir := diskDir(t)
	notes, err := os.OpenFile(filepath.Join(dir, "notes"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	require.NoError(t, err)
	defer notes.Close()
	synctest.Test(t, func(t *testing.T) {
		ledger, err := faultinjection.OpenLedger("")
		require.NoError(t, err)
		defer ledger.Close()
		server := faultinjection.NewServer(killedContract(), ledger)
		server.Work = time.Second
		var calls sync.WaitGroup
		for number := range 2 {
			journal, err := idem.Open(filepath.Join(dir, "journal.db"), nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, journal.Close()) }()
			r := &recorder{Journal: wrap(journal), base: server.Transport(), life: &killedLife{Number: number, notes: notes}}
			client := idem.NewClient(&idem.Transport{
				Journal: r, Base: r, Contracts: killedContract(),
				Retry: idem.RetryPolicy{MaxAttempts: 1, MinBackoff: time.Millisecond, MaxBackoff: time.Minute},
			})
			calls.Go(func() {
				time.Sleep(time.Duration(number) * gap)
				assertAnswered(t, client)
			})
		}
		calls.Wait()
		effects, err = ledger.EffectsOf("order-1")
		require.NoError(t, err)
	})
	return effects, checkHistory(readDeeds(t, notes))
}

// assertAnswered calls the operation until it has its answer.
func assertAnswered(t *testing.T, client *idem.Client) {
	for range 100 {
		req := killedRequest(context.Background(), "http://provider.example", "order-1")
		req.Header.Set("X-Operation", "order-1")
		resp, err := client.Do("order-1", req)
		if err == nil {
			_ = resp.Body.Close()
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("no answer")
}

func readDeeds(t *testing.T, notes *os.File) (all []deed) {
	text, err := os.ReadFile(notes.Name())
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var d deed
		require.NoError(t, json.Unmarshal([]byte(line), &d), fmt.Sprintf("%q", line))
		all = append(all, d)
	}
	return all
}
