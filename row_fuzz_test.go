package idem

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// flipColumn is a column of a stored row, and what a damaged byte in it does.
type flipColumn struct {
	table, name string
	kind        flipKind
}

type flipKind int

const (
	flipSent     flipKind = iota // identifies or is sent: the row is held, nothing of it is sent
	flipAnswered                 // of the answer: nothing of it is told
	flipAnswerBody
	flipOpen // no checksum is over it
)

// flipColumns are all columns with bytes of their own. What no checksum is over
// is here too: nothing may panic, and no other row may suffer.
var flipColumns = []flipColumn{
	{"intent", "scope", flipSent}, {"intent", "operation", flipSent}, {"intent", "key", flipSent}, {"intent", "adopted", flipSent},
	{"intent", "credential", flipSent}, {"intent", "name", flipSent}, {"intent", "method", flipSent}, {"intent", "url", flipSent},
	{"intent", "fingerprint", flipSent}, {"intent", "place", flipSent}, {"intent", "encoding", flipSent}, {"intent", "generation", flipSent},
	{"intent", "retention", flipSent}, {"intent", "created", flipSent}, {"intent", "head_sum", flipSent}, {"intent", "request_sum", flipSent},
	{"intent", "target", flipSent}, {"intent", "host", flipSent}, {"intent", "header", flipSent}, {"intent", "body", flipSent},
	{"outcome", "status_code", flipAnswered}, {"outcome", "request_id", flipAnswered}, {"outcome", "header", flipAnswered},
	{"outcome", "head_sum", flipAnswered}, {"outcome", "body", flipAnswerBody}, {"outcome", "body_sum", flipAnswerBody},
	{"intent", "provider", flipOpen}, {"intent", "renews", flipOpen}, {"intent", "withheld", flipOpen},
	{"outcome", "complete", flipOpen}, {"outcome", "replayed", flipOpen},
	{"status", "state", flipOpen}, {"status", "doubt", flipOpen}, {"status", "hold_reason", flipOpen}, {"status", "attempts", flipOpen},
	{"status", "deaths", flipOpen}, {"status", "resumes", flipOpen}, {"status", "first_sent", flipOpen}, {"status", "due", flipOpen},
	{"status", "wait", flipOpen}, {"status", "expires", flipOpen}, {"status", "settled", flipOpen}, {"status", "decider", flipOpen}, {"status", "note", flipOpen},
}

// flipping is one file in which bytes of rows are changed.
type flipping struct {
	j    *SQLiteJournal
	db   *sql.DB
	rows int
}

func newFlipping(tb testing.TB) *flipping {
	path := filepath.Join(machineDir(tb), "x.db")
	j, err := Open(path, nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, j.Close()) })
	db := inspect(tb, path)
	tb.Cleanup(func() { assert.NoError(tb, db.Close()) })
	_, err = db.Exec(`PRAGMA ignore_check_constraints = ON`)
	require.NoError(tb, err)
	return &flipping{j: j, db: db}
}

// row makes a row with something in every column, open or final.
func (f *flipping) row(tb testing.TB, final bool) (want, in Intent) {
	f.rows++
	want = newIntent("op")
	want.Scope = fmt.Sprintf("scope-%d", f.rows)
	want.Adopted, want.Credential = []byte("adopted "+want.Scope), []byte("credential")
	want.Withheld, want.Renews = []string{"Authorization"}, "earlier"
	want.Place, want.By, want.Note = contract.Place{Header: "Idempotency-Key", Encoding: contract.Quoted}, "ann", "note"
	in = mustBegin(tb, f.j, want)
	if final {
		next, a := succeed(in)
		next.Notify = true
		return want, mustUpdate(tb, f.j, next, a, true)
	}
	in.State, in.Doubt, in.Claimed = StateUnknown, true, false
	return want, mustUpdate(tb, f.j, in, nil, true)
}

// flip changes one bit of a column of a row. It reports false where the column
// is empty or the change would make another row of it.
func (f *flipping) flip(tb testing.TB, c flipColumn, id string, at, bit uint) (func(), bool) {
	var was any
	get := fmt.Sprintf(`SELECT %s FROM %s WHERE id = ?`, c.name, c.table)
	if err := f.db.QueryRow(get, id).Scan(&was); errors.Is(err, sql.ErrNoRows) {
		return nil, false
	}
	var is any
	switch v := was.(type) {
	case int64:
		is = v ^ 1<<(bit%62)
	case string:
		if v == "" {
			return nil, false
		}
		b := []byte(v)
		b[at%uint(len(b))] ^= 1 << (bit % 8)
		is = string(b)
	case []byte:
		if len(v) == 0 {
			return nil, false
		}
		b := slices.Clone(v)
		b[at%uint(len(b))] ^= 1 << (bit % 8)
		is = b
	default:
		return nil, false
	}
	set := fmt.Sprintf(`UPDATE %s SET %s = ? WHERE id = ?`, c.table, c.name)
	if _, err := f.db.Exec(set, is, id); err != nil {
		return nil, false // STRICT, or a unique index
	}
	return func() {
		_, err := f.db.Exec(set, was, id)
		require.NoError(tb, err)
	}, true
}

// check changes one bit and asks for the row in every way. The sound row beside
// it is there whatever is asked.
func (f *flipping) check(t testing.TB, column, at, bit uint, final bool) (seen bool) {
	c := flipColumns[column%uint(len(flipColumns))]
	if c.table == "outcome" {
		final = true
	}
	want, in := f.row(t, final)
	undo, ok := f.flip(t, c, in.ID, at, bit)
	if !ok {
		return false
	}
	defer undo()
	ctx, how := t.Context(), fmt.Sprintf("%s.%s, byte %d, bit %d, final %t", c.table, c.name, at, bit, final)

	list, err := f.j.List(ctx, Filter{After: before(in.ID), Limit: 1})
	require.NoError(t, err, "listed: %s", how)
	require.Len(t, list, 1, how)
	require.Equal(t, in.ID, list[0].ID, "it stays listed: %s", how)

	found, err := f.j.Lookup(ctx, want.Scope, want.Operation)
	if c.name != "scope" && c.name != "operation" { // under which name it stands now is not known
		require.NoError(t, err, "looked up: %s", how)
		f.answered(t, c, in, found, how)
	}
	got, claimed, err := f.j.Begin(ctx, Intent{ID: in.ID, Fingerprint: want.Fingerprint})
	if c.kind == flipOpen && err != nil { // such a row cannot be, says the schema
		require.ErrorIs(t, err, ErrJournal, how)
		return true
	}
	require.NoError(t, err, "begun: %s", how)
	f.answered(t, c, in, got, how)
	if c.kind == flipSent {
		require.False(t, claimed, "nothing of it is sent: %s", how)
		require.Nil(t, got.Request, how)
		if !final {
			require.Equal(t, StateHeld, got.State, how)
			require.Equal(t, HoldChecksum, got.HoldReason, how)
		}
	}
	if claimed && c.kind != flipOpen {
		require.Equal(t, want.Request, got.Request, "what is sent is what was stored: %s", how)
	}
	return true
}

// answered compares the answer that a final row gives.
func (f *flipping) answered(t testing.TB, c flipColumn, in, got Intent, how string) {
	if in.Outcome == nil || got.Outcome == nil {
		return
	}
	switch c.kind {
	case flipAnswered:
		require.Equal(t, &Outcome{}, got.Outcome, "nothing of it is told: %s", how)
	case flipAnswerBody:
		require.Nil(t, got.Outcome.Body, "a damaged answer is not given again: %s", how)
		require.False(t, got.Outcome.Complete, how)
	case flipSent:
		require.Equal(t, in.Outcome, got.Outcome, how)
	}
}

// before is the ID before one.
func before(id string) string {
	n, _ := rowID(id)
	if n <= 1 {
		return ""
	}
	return fmt.Sprint(n - 1)
}

func FuzzStoredRow(f *testing.F) {
	for i := range flipColumns {
		f.Add(uint(i), uint(0), uint(0), false)
		f.Add(uint(i), uint(7), uint(7), true)
	}
	file := newFlipping(f)
	f.Fuzz(func(t *testing.T, column, at, bit uint, final bool) { file.check(t, column, at, bit, final) })
}

func TestStoredRowFuzz_EveryColumn(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 2026))
	for i, c := range flipColumns {
		t.Run(c.table+"."+c.name, func(t *testing.T) {
			file := newFlipping(t)
			seen := 0
			for range 12 {
				if file.check(t, uint(i), r.UintN(64), r.UintN(64), r.IntN(2) == 0) {
					seen++
				}
			}
			if c.name != "hold_reason" { // which is empty here
				assert.Positive(t, seen, "no byte was changed")
			}
		})
	}
}

// One damaged row does not take the others with it: they are listed and
// claimed, and what is claimed is handed over.
func TestStoredRow_OneDamagedRowLeavesTheOthers(t *testing.T) {
	for _, c := range []struct{ column, set string }{
		{"place", "'\x01'"}, {"encoding", "'nothing'"}, {"withheld", "'{'"}, {"header", "x'01'"}, {"name", "'main'"},
	} {
		t.Run(c.column, func(t *testing.T) {
			file := newFlipping(t)
			_, bad := file.row(t, false)
			_, good := file.row(t, false)
			_, err := file.db.Exec(fmt.Sprintf(`UPDATE intent SET %s = %s WHERE id = ?`, c.column, c.set), bad.ID)
			require.NoError(t, err)
			list, err := file.j.List(t.Context(), Filter{})
			require.NoError(t, err)
			assert.Len(t, list, 2)
			due, _, err := file.j.ClaimDue(t.Context(), testNow.AddDate(1, 0, 0), Filter{Name: "main"})
			require.NoError(t, err)
			claimed := 0
			for _, in := range due {
				if in.ID == good.ID {
					claimed++
					assert.True(t, in.Claimed)
				}
			}
			assert.Equal(t, 1, claimed, "the sound row is handed over")
		})
	}
}

// A status that cannot be is shown as held, whatever is asked, and written so by
// the claim that meets it. It stops nobody else, and nothing of it is sent.
func TestStoredRow_OneDamagedStatusLeavesTheOthers(t *testing.T) {
	for _, c := range []struct {
		set   string
		unmet bool // by ClaimDue, which looks for what is open
	}{
		{set: "state = 'unknoqn'", unmet: true}, {set: "state = ''", unmet: true}, {set: "state = 'unknoqn', notify = 1"},
		{set: "state = 'pending'"}, {set: "state = 'in_flight', attempts = 0"}, {set: "hold_reason = 'checksun'"}, {set: "doubt = 0"}, {set: "doubt = 3"},
		{set: "attempts = -1"}, {set: "deaths = -1"}, {set: "deaths = -1, due = -4"}, {set: "resumes = -1"}, {set: "wait = -1"},
		{set: "due = -1"}, {set: "began = -1"}, {set: "first_sent = -1"}, {set: "expires = -1"}, {set: "settled = -1"},
		{set: "prepared = 2"}, {set: "notify = 8"}, {set: "version = -7"}, {set: "kept = 4"},
	} {
		t.Run(c.set, func(t *testing.T) {
			file, ctx := newFlipping(t), t.Context()
			want, bad := file.row(t, false)
			_, good := file.row(t, false)
			_, err := file.db.Exec("UPDATE status SET "+c.set+" WHERE id = ?", bad.ID)
			require.NoError(t, err)
			sound := c.set == "kept = 4" // nothing is decided by it
			held := func(in Intent, err error) {
				require.NoError(t, err)
				if sound {
					return
				}
				assert.Equal(t, StateHeld, in.State)
				assert.Equal(t, HoldChecksum, in.HoldReason)
				assert.True(t, in.Doubt)
				assert.False(t, in.FirstSent.IsZero(), "of what is in doubt, the age is known")
				assert.Nil(t, in.Request)
			}
			for _, f := range []Filter{{}, {States: []State{StateHeld}}, {States: []State{StateHeld, StateSucceeded}}} {
				list, err := file.j.List(ctx, f)
				require.NoError(t, err)
				i := slices.IndexFunc(list, func(in Intent) bool { return in.ID == bad.ID })
				if f.States == nil || c.unmet && slices.Contains(f.States, StateSucceeded) {
					require.GreaterOrEqual(t, i, 0, "it stays listed")
					held(list[i], nil)
				}
			}
			held(file.j.Lookup(ctx, want.Scope, want.Operation))
			got, claimed, err := file.j.Begin(ctx, Intent{ID: bad.ID, Fingerprint: want.Fingerprint})
			assert.Equal(t, sound, claimed)
			held(got, err)
			shown := map[string]int{}
			for range 3 {
				due, _, err := file.j.ClaimDue(ctx, testNow.AddDate(1, 0, 0), Filter{Name: "main", Limit: 1})
				require.NoError(t, err)
				for _, in := range due {
					shown[in.ID]++
					assert.Equal(t, in.ID == good.ID, in.Claimed)
				}
			}
			assert.Equal(t, 1, shown[good.ID], "the sound row is handed over")
			if !c.unmet && !sound {
				assert.Equal(t, 1, shown[bad.ID], "the damaged one is told of, this once")
				list, err := file.j.List(ctx, Filter{States: []State{StateHeld}})
				require.NoError(t, err)
				require.Len(t, list, 1, "and held for good")
				held(list[0], nil)
			}
		})
	}
}

// What is final stays final, and is told to who waits for it.
func TestStoredRow_DamagedStatusOfWhatIsFinal(t *testing.T) {
	for _, set := range []string{"settled = 0", "attempts = -1", "doubt = 1", "hold_reason = 'x'", "wait = -9"} {
		t.Run(set, func(t *testing.T) {
			file := newFlipping(t)
			want, in := file.row(t, true)
			_, err := file.db.Exec("UPDATE status SET "+set+" WHERE id = ?", in.ID)
			require.NoError(t, err)
			due, _, err := file.j.ClaimDue(t.Context(), testNow.AddDate(1, 0, 0), Filter{Name: "main"})
			require.NoError(t, err)
			require.Len(t, due, 1)
			assert.True(t, due[0].Claimed)
			next := due[0]
			next.Claimed, next.Notify = false, false
			mustUpdate(t, file.j, next, nil, true)
			found, err := file.j.Lookup(t.Context(), want.Scope, want.Operation)
			require.NoError(t, err)
			assert.Equal(t, StateSucceeded, found.State)
			assert.Equal(t, in.Outcome, found.Outcome)
		})
	}
}

// A row that its checksums fit and that cannot be read all the same, as one of a
// version that knows more places, is held and not claimed.
func TestStoredRow_WhatCannotBeReadIsHeld(t *testing.T) {
	for _, how := range []string{"begun", "due"} {
		t.Run(how, func(t *testing.T) {
			file, ctx := newFlipping(t), t.Context()
			row, err := rowOf(&Intent{Scope: "s", Operation: "op", Key: "k", Name: "main", Created: testNow, State: StatePending})
			require.NoError(t, err)
			row.Place = "\x01"
			made, _, err := file.j.store.Begin(ctx, row)
			require.NoError(t, err)
			in, _ := intentOf(made)
			mustUpdate(t, file.j, in, nil, true) // given up
			var got Intent
			if how == "begun" {
				got, _, err = file.j.Begin(ctx, Intent{ID: in.ID})
			} else {
				var due []Intent
				due, _, err = file.j.ClaimDue(ctx, testNow, Filter{Name: "main"})
				require.Len(t, due, 1)
				got = due[0]
			}
			require.NoError(t, err)
			assert.False(t, got.Claimed)
			found, err := file.j.Lookup(ctx, "s", "op")
			require.NoError(t, err)
			assert.Equal(t, StateHeld, found.State)
			assert.Equal(t, HoldChecksum, found.HoldReason)
			assert.False(t, found.Owned, "nobody has it")
		})
	}
}

// Each passes over the body of a row whose name is damaged, and over no row.
func TestStoredRow_EachGoesOnAfterADamagedName(t *testing.T) {
	file := newFlipping(t)
	_, bad := file.row(t, true)
	_, _ = file.row(t, true)
	rows := 0
	require.NoError(t, file.j.Each(func(operation, _, _ string, _ int, _ []byte) error {
		if rows++; rows == 1 { // between the list and the look at it
			_, err := file.db.Exec(`UPDATE intent SET operation = 'oq', scope = 'x' WHERE id <> ?`, bad.ID)
			return err
		}
		return nil
	}))
	assert.Equal(t, 2, rows)
}
