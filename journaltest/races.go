package journaltest

import (
	"errors"
	"strconv"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

const racers = 16

// race runs do on many goroutines, in turn through two handles, and returns
// what they return.
func (e *exam) race(do func(j idem.Journal, n int) ([]idem.Intent, error)) (all []idem.Intent) {
	e.Helper()
	handles := []idem.Journal{e.open(), e.open()}
	results := make([][]idem.Intent, racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for n := range racers {
		wg.Go(func() {
			<-start
			got, err := do(handles[n%2], n)
			assert.NoError(e, err)
			results[n] = got
		})
	}
	close(start)
	wg.Wait()
	for _, r := range results {
		all = append(all, r...)
	}
	return all
}

// claimedOnce demands that all saw the same row, and one of them has it.
func (e *exam) claimedOnce(all []idem.Intent) {
	e.Helper()
	require.Len(e, all, racers)
	claims := 0
	for _, in := range all {
		require.Equal(e, all[0].ID, in.ID)
		require.Equal(e, all[0].Key, in.Key)
		require.NotEqual(e, in.Claimed, in.Owned)
		if in.Claimed {
			claims++
		}
	}
	require.Equal(e, 1, claims, "claims of one row")
}

var raceRules = []rule{
	{"of many who begin one operation, one makes it and has it", func(e *exam) {
		wants := make([]idem.Intent, racers)
		for n := range wants {
			wants[n] = e.sending("a")
		}
		all := e.race(func(j idem.Journal, n int) ([]idem.Intent, error) {
			got, claimed, err := j.Begin(e.Context(), wants[n])
			got.Claimed = claimed
			return []idem.Intent{got}, err
		})
		e.claimedOnce(all)
		require.Equal(e, []string{"a"}, e.listed(e.open(), idem.Filter{}))
	}},
	{"of many who begin with one adopted key, one makes it and has it", func(e *exam) {
		want := e.sending("")
		want.Adopted = []byte("digest")
		e.claimedOnce(e.race(func(j idem.Journal, _ int) ([]idem.Intent, error) {
			got, _, err := j.Begin(e.Context(), want)
			return []idem.Intent{got}, err
		}))
	}},
	{"of many who continue one operation, one has it", func(e *exam) {
		e.left(e.open(), "a", idem.StateUnknown)
		want := e.sending("a")
		e.claimedOnce(e.race(func(j idem.Journal, _ int) ([]idem.Intent, error) {
			got, _, err := j.Begin(e.Context(), want)
			return []idem.Intent{got}, err
		}))
	}},
	{"of many who renew one generation, one makes the next", func(e *exam) {
		j := e.open()
		first := e.left(j, "a", idem.StateRejected)
		wants := make([]idem.Intent, racers)
		for n := range wants {
			wants[n] = e.renewal("a", first.Key)
		}
		all := e.race(func(j idem.Journal, n int) ([]idem.Intent, error) {
			got, _, err := j.Begin(e.Context(), wants[n])
			return []idem.Intent{got}, err
		})
		e.claimedOnce(all)
		require.Equal(e, 2, all[0].Generation)
		require.Equal(e, []string{"a", "a"}, e.listed(j, idem.Filter{}))
	}},
	{"many who claim what is due share no row and leave none", func(e *exam) {
		j := e.open()
		const rows = 40
		for i := range rows {
			e.left(j, strconv.Itoa(i), idem.StateUnknown)
		}
		all := e.race(func(j idem.Journal, _ int) ([]idem.Intent, error) {
			due, _, err := j.ClaimDue(e.Context(), e.now, idem.Filter{Name: "main", Limit: 3})
			return due, err
		})
		seen := map[string]bool{}
		for _, in := range all {
			require.False(e, seen[in.ID], "claimed twice")
			seen[in.ID] = true
		}
		require.Len(e, seen, rows)
	}},
	{"of many updates of one version, one is taken", func(e *exam) {
		seen := e.left(e.open(), "a", idem.StateHeld)
		all := e.race(func(j idem.Journal, n int) ([]idem.Intent, error) {
			next := e.ended(seen, idem.StateUnknown)
			next.HoldReason, next.Note = "", strconv.Itoa(n)
			got, err := j.Update(e.Context(), next, nil, n%4 < 2)
			if errors.Is(err, idem.ErrBusy) {
				return nil, nil
			}
			return []idem.Intent{got}, err
		})
		require.Len(e, all, 1)
		require.Equal(e, all[0].Note, e.lookup(e.open(), "a").Note)
	}},
	{"of many final answers of former owners, one is taken", func(e *exam) {
		former := e.begin(e.open(), e.sending("a"))
		all := e.race(func(j idem.Journal, n int) ([]idem.Intent, error) {
			next := e.ended(former, []idem.State{idem.StateSucceeded, idem.StateRejected}[n/2%2])
			next.Outcome.RequestID = strconv.Itoa(n)
			got, err := j.Update(e.Context(), next, e.answered(1), n%4 < 2)
			if errors.Is(err, idem.ErrBusy) {
				return nil, nil
			}
			return []idem.Intent{got}, err
		})
		require.Len(e, all, 1)
		found := e.lookup(e.open(), "a")
		require.Equal(e, all[0].State, found.State)
		require.Equal(e, all[0].Outcome.RequestID, found.Outcome.RequestID)
	}},
	{"different operations do not disturb each other", func(e *exam) {
		wants := make([]idem.Intent, racers)
		for n := range wants {
			wants[n] = e.sending(strconv.Itoa(n))
		}
		e.race(func(j idem.Journal, n int) ([]idem.Intent, error) {
			in, claimed, err := j.Begin(e.Context(), wants[n])
			assert.True(e, claimed)
			if err != nil {
				return nil, err
			}
			if _, err = j.Update(e.Context(), e.ended(in, idem.StateSucceeded), e.answered(1), n%4 < 2); err != nil {
				return nil, err
			}
			got, err := j.Lookup(e.Context(), in.Scope, in.Operation)
			assert.Equal(e, idem.StateSucceeded, got.State)
			assert.Equal(e, in.Key, got.Key)
			return nil, err
		})
		require.Len(e, e.listed(e.open(), idem.Filter{States: []idem.State{idem.StateSucceeded}}), racers)
	}},
}
