package idem

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

func TestRowsComeBackAsTheyWere(t *testing.T) {
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	for name, change := range map[string]func(*Intent){
		"plain":        func(*Intent) {},
		"unicode":      func(in *Intent) { in.Scope, in.Operation, in.Key = "Größe", "注文-42/💳", "k" },
		"nul":          func(in *Intent) { in.Operation, in.Request.URL = "a\x00b", "https://h/\x00" },
		"not utf-8":    func(in *Intent) { in.Operation = "a\xff\xfe" },
		"quotes":       func(in *Intent) { in.Operation = `'); DROP TABLE intent; --` },
		"binary body":  func(in *Intent) { in.Request.Body = binary },
		"empty body":   func(in *Intent) { in.Request.Body = nil },
		"large body":   func(in *Intent) { in.Request.Body = bytes.Repeat(binary, 20_000) },
		"no request":   func(in *Intent) { in.Request = nil },
		"no header":    func(in *Intent) { in.Request.Header = nil },
		"empty header": func(in *Intent) { in.Request.Header = http.Header{} },
		"odd headers": func(in *Intent) {
			in.Request.Header = http.Header{"x-lower": {"b", "a", "b"}, "X-Lower": {"c"}, "X-Nil": nil, "X-Empty": {}, "X-Blank": {""}}
		},
		"everything": func(in *Intent) {
			in.Place = contract.Place{Header: "idempotency-key", Encoding: contract.Quoted}
			in.Adopted, in.Credential = []byte{0}, []byte{1, 0}
			in.Withheld = []string{"Authorization", "X, Y"}
			in.Prepared, in.Notify = true, true
			in.Due, in.Wait = testNow.Add(time.Hour), time.Hour
			in.Deaths, in.Resumes, in.By, in.Note = 2, 3, "b", "n"
			in.Renews = "earlier"
			in.Doubt = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := tempJournal(t)
			j := mustOpen(t, path, nil)
			want := newIntent("op")
			change(&want)
			made := mustBegin(t, j, want)
			second := mustOpen(t, path, nil)
			got, claimed, err := second.Begin(t.Context(), want)
			require.NoError(t, err)
			require.False(t, claimed)
			made.Claimed, made.Owned = false, true
			assert.Equal(t, made, got)

			next, a := succeed(made)
			next.Outcome.Header, next.Outcome.Body = http.Header{"x-odd": {"1", ""}}, binary
			next.Notify = false
			done := mustUpdate(t, j, next, a, false)
			found, err := j.Lookup(t.Context(), want.Scope, want.Operation)
			require.NoError(t, err)
			done.Request, done.Owned = nil, false
			assert.Equal(t, done, found)
		})
	}
}

func TestOutcomeBodyThatWasNotKept(t *testing.T) {
	j := mustOpen(t, tempJournal(t), nil)
	for name, o := range map[string]Outcome{
		"empty":    {StatusCode: 204, Complete: true, Body: []byte{}},
		"streamed": {StatusCode: 200},
		"kept":     {StatusCode: 200, Complete: true, Body: []byte("x"), Replayed: true},
	} {
		next, a := succeed(mustBegin(t, j, newIntent(name)))
		next.Outcome = &o
		mustUpdate(t, j, next, a, false)
		got, err := j.Lookup(t.Context(), "acct", name)
		require.NoError(t, err)
		assert.Equal(t, o, *got.Outcome, name)
	}
}

func TestDamagedRowsAreHeld(t *testing.T) {
	for name, harm := range map[string]string{
		"body":        `UPDATE intent SET body = CAST(replace(CAST(body AS TEXT), '42', '43') AS BLOB)`,
		"key":         `UPDATE intent SET key = 'kez'`,
		"url":         `UPDATE intent SET target = target || '0'`,
		"header":      `UPDATE intent SET header = x'0100'`,
		"fingerprint": `UPDATE intent SET fingerprint = x'00'`,
		"place":       `UPDATE intent SET place = 'Other'`,
		"withheld":    `UPDATE intent SET withheld = '["Authoriz'`,
	} {
		t.Run(name, func(t *testing.T) {
			path := tempJournal(t)
			j := mustOpen(t, path, nil)
			end(t, j, mustBegin(t, j, newIntent("a")), StateUnknown)
			db := inspect(t, path)
			_, err := db.Exec(harm)
			require.NoError(t, err)
			require.NoError(t, db.Close())

			due, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
			require.NoError(t, err)
			require.Len(t, due, 1)
			assert.Equal(t, StateHeld, due[0].State)
			assert.Equal(t, HoldChecksum, due[0].HoldReason)
			assert.False(t, due[0].Claimed)
			assert.Nil(t, due[0].Request, "what is damaged is not to be sent")
			due, _, err = j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
			require.NoError(t, err)
			assert.Empty(t, due, "it is shown once")
			got, claimed, err := j.Begin(t.Context(), newIntent("a"))
			require.NoError(t, err)
			assert.False(t, claimed)
			assert.Equal(t, StateHeld, got.State)
			assert.Equal(t, HoldChecksum, got.HoldReason)
			assert.True(t, got.Doubt, "it stays what it was")
			assert.False(t, got.Settled.IsZero())
			list, err := j.List(t.Context(), Filter{})
			require.NoError(t, err)
			assert.Len(t, list, 1)
		})
	}
}

func TestDamagedAnswersAreNotGivenAgain(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	next, a := succeed(mustBegin(t, j, newIntent("a")))
	next.Notify = true
	mustUpdate(t, j, next, a, true)
	db := inspect(t, path)
	for _, harm := range []string{`UPDATE outcome SET body = x'00'`, `UPDATE intent SET header = x'01', withheld = '{}'`} {
		_, err := db.Exec(harm)
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
	due, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	require.Len(t, due, 1, "that it is final is still to be told")
	assert.True(t, due[0].Claimed)
	assert.Nil(t, due[0].Request)
	assert.False(t, due[0].Outcome.Complete)
	due[0].Claimed, due[0].Notify = false, false
	mustUpdate(t, j, due[0], nil, true)
	got, _, err := j.Begin(t.Context(), newIntent("a"))
	require.NoError(t, err)
	assert.Equal(t, StateSucceeded, got.State)
	assert.False(t, got.Outcome.Complete, "a damaged answer is not given again")
	assert.Nil(t, got.Outcome.Body)
	assert.Equal(t, 201, got.Outcome.StatusCode)
}

func TestListPages(t *testing.T) {
	j := mustOpen(t, tempJournal(t), nil)
	for i := range 25 {
		in := newIntent(strconv.Itoa(i))
		if i%5 == 0 {
			in.Scope = "other"
		}
		if i == 7 {
			in.Name = ""
		}
		end(t, j, mustBegin(t, j, in), []State{StateSucceeded, StateHeld, StateUnknown, StateWithdrawn, StateRejected}[i%5])
	}
	list := func(f Filter) (operations []string) {
		for {
			page, err := j.List(t.Context(), f)
			require.NoError(t, err)
			if len(page) == 0 {
				return operations
			}
			for _, in := range page {
				assert.Nil(t, in.Request)
				operations = append(operations, in.Operation)
			}
			f.After = page[len(page)-1].ID
		}
	}
	assert.Len(t, list(Filter{}), 25)
	assert.Len(t, list(Filter{Limit: 4}), 25)
	assert.Equal(t, []string{"0", "5", "10", "15", "20"}, list(Filter{Scope: "other", Limit: 2}))
	assert.Equal(t, []string{"1", "2", "6", "7", "11", "12", "16", "17", "21", "22"},
		list(Filter{States: []State{StateHeld, StateUnknown}, Limit: 3}))
	assert.Len(t, list(Filter{States: []State{StateWithdrawn, StateHeld}}), 10)
	assert.Len(t, list(Filter{Name: "main"}), 24)
	assert.Empty(t, list(Filter{States: []State{StatePending}}))
	_, err := j.List(t.Context(), Filter{After: "x"})
	assert.Error(t, err)
}

func TestPrune(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	settled := func(operation string, state State, change func(*Intent)) Intent {
		want := newIntent(operation)
		want.Retention = time.Hour
		if change != nil {
			change(&want)
		}
		return end(t, j, mustBegin(t, j, want), state)
	}
	old := func(in *Intent) { in.Created, in.FirstSent = testNow.AddDate(-1, 0, 0), testNow.AddDate(-1, 0, 0) }
	settled("succeeded", StateSucceeded, old)
	settled("withdrawn", StateWithdrawn, old)
	settled("held", StateHeld, old)
	settled("unknown", StateUnknown, old)
	settled("remembered", StateRejected, func(in *Intent) { old(in); in.Retention = 1 << 62 })
	settled("", StateRejected, old)
	last := settled("", StateSucceeded, old)

	n, err := j.Prune(t.Context(), testNow)
	require.NoError(t, err)
	assert.Zero(t, n, "settled at that instant, not before")
	n, err = j.Prune(t.Context(), testNow.Add(1))
	require.NoError(t, err)
	assert.Equal(t, 4, n)
	n, err = j.Prune(t.Context(), testNow.Add(1))
	require.NoError(t, err)
	assert.Zero(t, n)

	list, err := j.List(t.Context(), Filter{})
	require.NoError(t, err)
	assert.Len(t, list, 5, "the unnamed ones go whole")
	got, err := j.Lookup(t.Context(), "acct", "succeeded")
	require.NoError(t, err)
	assert.Equal(t, StateSucceeded, got.State)
	assert.Equal(t, 402, got.Outcome.StatusCode)
	assert.False(t, got.Outcome.Complete)
	assert.Nil(t, got.Outcome.Body)
	got, err = j.Lookup(t.Context(), "acct", "remembered")
	require.NoError(t, err)
	assert.True(t, got.Outcome.Complete)
	for _, op := range []string{"held", "unknown"} {
		got, _, err = j.Begin(t.Context(), newIntent(op))
		require.NoError(t, err)
		assert.NotNil(t, got.Request)
	}

	// A withdrawn tombstone takes the bytes of the next call, if they fit.
	want := newIntent("withdrawn")
	want.Fingerprint = []byte("another")
	got, claimed, err := j.Begin(t.Context(), want)
	require.NoError(t, err)
	assert.False(t, claimed)
	assert.Nil(t, got.Request)
	want = newIntent("withdrawn")
	want.Key = "fresh"
	got = mustBegin(t, j, want)
	assert.Equal(t, "key-withdrawn", got.Key)
	assert.Equal(t, want.Request, got.Request)
	end(t, j, got, StateWithdrawn)
	got = mustBegin(t, j, newIntent("withdrawn"))
	assert.Equal(t, want.Request, got.Request, "and it was stored")

	fresh := mustBegin(t, j, newIntent(""))
	assert.Greater(t, must(strconv.Atoi(fresh.ID)), must(strconv.Atoi(last.ID)), "an id is never given twice")
	n, err = j.Prune(t.Context(), testNow.Add(1))
	require.NoError(t, err)
	assert.Zero(t, n)
}

func TestPruneWalksAllChunks(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	const rows = 1201
	var wg sync.WaitGroup
	for g := range 50 {
		wg.Go(func() {
			for i := g; i < rows; i += 50 {
				in := newIntent("op-" + strconv.Itoa(i))
				in.Created, in.FirstSent, in.Retention = testNow.AddDate(-1, 0, 0), testNow.AddDate(-1, 0, 0), time.Hour
				if i < 600 {
					in.Retention = 1 << 62
				}
				in, _, err := j.Begin(t.Context(), in)
				assert.NoError(t, err)
				next, a := succeed(in)
				if i < 600 {
					next.Settled = testNow // so that the first chunk has nothing to prune
				}
				_, err = j.Update(t.Context(), next, a, false)
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	n, err := j.Prune(t.Context(), testNow.Add(time.Hour))
	require.NoError(t, err)
	assert.Equal(t, rows-600, n)
	assert.Equal(t, 600, count(t, path, `SELECT count(*) FROM intent WHERE body IS NOT NULL`))
}
