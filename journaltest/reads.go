package journaltest

import (
	"strconv"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// listed returns the operations of all pages.
func (e *exam) listed(j idem.Journal, f idem.Filter) (names []string) {
	e.Helper()
	for range 1000 { // a page that repeats must not hang us
		page, err := j.List(e.Context(), f)
		require.NoError(e, err)
		if len(page) == 0 {
			return names
		}
		if f.Limit > 0 {
			require.LessOrEqual(e, len(page), f.Limit)
		}
		names = append(names, operations(page)...)
		f.After = page[len(page)-1].ID
	}
	require.Fail(e, "the pages have no end")
	return nil
}

// mixed makes 20 operations, 0 to 19: each third of scope "other", each fourth
// of no name, in turn withdrawn, held, unknown, succeeded and pending.
func (e *exam) mixed(j idem.Journal) {
	states := []idem.State{idem.StateWithdrawn, idem.StateHeld, idem.StateUnknown, idem.StateSucceeded, idem.StatePending}
	for i := range 20 {
		want := e.sending(strconv.Itoa(i))
		if i%3 == 0 {
			want.Scope = "other"
		}
		if i%4 == 0 {
			want.Name = ""
		}
		e.update(j, e.ended(e.begin(j, want), states[i%5]), nil)
	}
}

// numbers are the operations of mixed that fit.
func numbers(fits func(i int) bool) (names []string) {
	for i := range 20 {
		if fits(i) {
			names = append(names, strconv.Itoa(i))
		}
	}
	return names
}

var readRules = []rule{
	{"Lookup returns the newest generation, with its outcome's body, without its request", func(e *exam) {
		j := e.open()
		first := e.left(j, "a", idem.StateRejected)
		e.left(j, "b", idem.StateSucceeded)
		second := e.update(j, e.ended(e.begin(j, e.renewal("a", first.Key)), idem.StateSucceeded), nil)
		second.Request = nil
		got := e.lookup(j, "a")
		require.Equal(e, second.Version, got.Version)
		require.Equal(e, 2, got.Generation)
		e.same(second, got)
	}},
	{"Lookup of what is not there is ErrNotFound", func(e *exam) {
		j := e.open()
		e.begin(j, e.sending("a"))
		e.begin(j, e.sending(""))
		for _, of := range [][2]string{{"acct", "b"}, {"other", "a"}, {"", "a"}, {"acct", ""}} {
			_, err := j.Lookup(e.Context(), of[0], of[1])
			require.ErrorIs(e, err, idem.ErrNotFound, "%q", of)
			require.NotErrorIs(e, err, idem.ErrJournal)
		}
	}},
	{"Owned says whether a living owner has it", func(e *exam) {
		j, other := e.open(), e.open()
		in := e.begin(j, e.sending("a"))
		for _, reader := range []idem.Journal{j, other} {
			require.True(e, e.lookup(reader, "a").Owned)
			require.True(e, e.find(reader, in.ID).Owned)
		}
		e.update(j, e.ended(in, idem.StateUnknown), nil)
		for _, reader := range []idem.Journal{j, other} {
			require.False(e, e.lookup(reader, "a").Owned)
			require.False(e, e.find(reader, in.ID).Owned)
		}
	}},
	{"List returns all, oldest first, without bodies", func(e *exam) {
		j := e.open()
		e.mixed(j)
		require.Equal(e, numbers(func(int) bool { return true }), e.listed(j, idem.Filter{}))
		list, err := j.List(e.Context(), idem.Filter{})
		require.NoError(e, err)
		for _, in := range list {
			require.Nil(e, in.Request)
			if in.State == idem.StateSucceeded {
				require.NotNil(e, in.Outcome)
				require.Empty(e, in.Outcome.Body)
				require.Equal(e, 402, in.Outcome.StatusCode)
			}
		}
	}},
	{"List pages by the last ID, however small the page", func(e *exam) {
		j := e.open()
		e.mixed(j)
		for _, limit := range []int{1, 7, 20, 21} {
			require.Equal(e, numbers(func(int) bool { return true }), e.listed(j, idem.Filter{Limit: limit}))
		}
	}},
	{"List filters by name, scope and states, and by all of them at once", func(e *exam) {
		j := e.open()
		e.mixed(j)
		require.Equal(e, numbers(func(i int) bool { return i%4 != 0 }), e.listed(j, ofMain))
		require.Equal(e, numbers(func(i int) bool { return i%3 == 0 }), e.listed(j, idem.Filter{Scope: "other", Limit: 2}))
		for i, states := range [][]idem.State{
			{idem.StateWithdrawn}, {idem.StateHeld}, {idem.StateUnknown}, {idem.StateSucceeded}, {idem.StatePending},
		} {
			require.Equal(e, numbers(func(n int) bool { return n%5 == i }), e.listed(j, idem.Filter{States: states, Limit: 3}))
		}
		open := []idem.State{idem.StateUnknown, idem.StateHeld}
		require.Equal(e, numbers(func(i int) bool { return i%5 == 1 || i%5 == 2 }), e.listed(j, idem.Filter{States: open, Limit: 3}))
		mixed := []idem.State{idem.StateHeld, idem.StateSucceeded}
		require.Equal(e, numbers(func(i int) bool { return i%3 == 0 && i%4 != 0 && (i%5 == 1 || i%5 == 3) }),
			e.listed(j, idem.Filter{Name: "main", Scope: "other", States: mixed, Limit: 1}))
		require.Empty(e, e.listed(j, idem.Filter{States: []idem.State{idem.StateRejected}}))
		require.Empty(e, e.listed(j, idem.Filter{Name: "no such"}))
	}},
	{"List returns every generation", func(e *exam) {
		j := e.open()
		first := e.left(j, "a", idem.StateRejected)
		second := e.begin(j, e.renewal("a", first.Key))
		list, err := j.List(e.Context(), idem.Filter{})
		require.NoError(e, err)
		require.Len(e, list, 2)
		require.Equal(e, []string{first.ID, second.ID}, []string{list[0].ID, list[1].ID})
	}},
	{"a limit of zero is 100", func(e *exam) {
		j := e.open()
		for i := range 101 {
			e.begin(j, e.waiting(strconv.Itoa(i)))
		}
		list, err := j.List(e.Context(), idem.Filter{})
		require.NoError(e, err)
		require.Len(e, list, 100)
		require.Len(e, e.listed(j, idem.Filter{}), 101)
	}},
	{"an empty journal lists nothing", func(e *exam) {
		require.Empty(e, e.listed(e.open(), idem.Filter{}))
	}},
	{"reads write nothing", func(e *exam) {
		j, other := e.open(), e.open()
		before := e.left(j, "a", idem.StateInFlight) // a claim would turn it into doubt
		for _, reader := range []idem.Journal{j, other} {
			found := e.lookup(reader, "a")
			require.Equal(e, before.Version, found.Version)
			require.Equal(e, idem.StateInFlight, found.State)
			require.Empty(e, e.attempts(reader, before))
			e.unwritten(reader, before)
		}
	}},
}
