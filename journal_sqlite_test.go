package idem

import (
	"context"
	"database/sql"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// mustOpen opens a journal that is closed and checked when the test ends.
func mustOpen(tb testing.TB, path string, opts *SQLiteOptions) *SQLiteJournal {
	tb.Helper()
	j, err := Open(path, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		require.NoError(tb, j.Close())
		checkFile(tb, path)
	})
	return j
}

func tempJournal(tb testing.TB) (path string) {
	return filepath.Join(tb.TempDir(), "test.db")
}

// promises are what no row may break. Each names what it finds.
var promises = map[string]string{
	"a row without its status":            `SELECT count(*) FROM intent i LEFT JOIN status s ON s.id = i.id WHERE s.id IS NULL AND i.generation > 0`,
	"an owner that is not known":          `SELECT count(*) FROM status s LEFT JOIN owner o ON o.id = s.owner WHERE s.owner IS NOT NULL AND o.id IS NULL`,
	"P1: sent without key or request":     `SELECT count(*) FROM intent i JOIN status s ON s.id = i.id WHERE s.attempts > 0 AND s.kept = 1 AND (i.key = '' AND i.place <> '')`,
	"P2: one key, two generations":        `SELECT count(*) FROM (SELECT key FROM intent WHERE generation > 0 AND key <> '' GROUP BY scope, key HAVING count(DISTINCT operation || '/' || generation) > 1)`,
	"P5: unfinished without its request":  `SELECT count(*) FROM intent i JOIN status s ON s.id = i.id WHERE s.kept = 0 AND s.state NOT IN ('succeeded', 'rejected', 'withdrawn')`,
	"P6: doubt settled by giving up":      `SELECT count(*) FROM status WHERE state = 'withdrawn' AND doubt = 1`,
	"P9: closed without an instant":       `SELECT count(*) FROM status WHERE state IN ('succeeded', 'rejected', 'held', 'withdrawn') AND settled = 0`,
	"an outcome of what is not final":     `SELECT count(*) FROM outcome o JOIN status s ON s.id = o.id WHERE s.state NOT IN ('succeeded', 'rejected')`,
	"an attempt that was not counted":     `SELECT count(*) FROM attempt a JOIN status s ON s.id = a.intent WHERE a.number > s.attempts`,
	"a gap in an operation's generations": `SELECT count(*) FROM intent WHERE operation IS NOT NULL AND generation > 1 AND NOT EXISTS (SELECT 1 FROM intent e WHERE e.scope = intent.scope AND e.operation = intent.operation AND e.generation = intent.generation - 1)`,
}

// openRaw opens the file by itself, as an outsider would, on one connection.
func openRaw(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func inspect(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db, err := openRaw(path)
	require.NoError(tb, err)
	return db
}

// checkFile runs SQLite's own checks and the promises on a file.
func checkFile(tb testing.TB, path string) {
	tb.Helper()
	db := inspect(tb, path)
	defer db.Close()
	var answer string
	require.NoError(tb, db.QueryRow(`PRAGMA integrity_check`).Scan(&answer))
	require.Equal(tb, "ok", answer)
	rows, err := db.Query(`PRAGMA foreign_key_check`)
	require.NoError(tb, err)
	require.False(tb, rows.Next(), "foreign_key_check found a row")
	require.NoError(tb, rows.Close())
	for name, query := range promises {
		var n int
		require.NoError(tb, db.QueryRow(query).Scan(&n), name)
		assert.Zero(tb, n, name)
	}
}

// count runs a query of one number on the file, beside whoever has it open.
func count(tb testing.TB, path, query string, args ...any) int {
	tb.Helper()
	db := inspect(tb, path)
	defer db.Close()
	var n int
	require.NoError(tb, db.QueryRow(query, args...).Scan(&n))
	return n
}

var testNow = time.Date(2026, 11, 29, 12, 0, 0, 123456789, time.UTC)

// newIntent is a named operation that is about to be sent the first time.
func newIntent(operation string) Intent {
	return Intent{
		Scope: "acct", Operation: operation, Key: "key-" + operation, Name: "main", Provider: "acme",
		Method: "POST", URL: "https://api.example.com/charges", State: StateInFlight, Attempts: 1,
		Created: testNow, FirstSent: testNow, Expires: testNow.Add(23 * time.Hour),
		Fingerprint: []byte("fingerprint-0123456789abcdef0000"), Place: contract.Place{Header: "Idempotency-Key"},
		Retention: 24 * time.Hour,
		Request: &StoredRequest{
			URL: "https://api.example.com/charges?expand=1", Host: "gateway.example.com",
			Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"amount":4200}`),
		},
	}
}

func mustBegin(tb testing.TB, j Journal, want Intent) Intent {
	tb.Helper()
	got, claimed, err := j.Begin(tb.Context(), want)
	require.NoError(tb, err)
	require.True(tb, claimed)
	require.True(tb, got.Claimed)
	return got
}

// succeed is what a claimed intent becomes by a 201.
func succeed(in Intent) (next Intent, a *Attempt) {
	next = in
	next.State, next.Doubt, next.Claimed, next.Settled = StateSucceeded, false, false, testNow.Add(time.Second)
	next.Outcome = &Outcome{
		StatusCode: 201, Header: http.Header{"Content-Type": {"application/json"}, "X-Two": {"b", "a"}},
		Body: []byte(`{"id":"ch_1"}`), Complete: true, RequestID: "req_1",
	}
	return next, &Attempt{
		Number: in.Attempts, Started: testNow, Ended: testNow.Add(time.Second), Phase: phaseAnswered,
		StatusCode: 201, Decision: "succeeded",
	}
}

func mustUpdate(tb testing.TB, j Journal, next Intent, a *Attempt, durable bool) Intent {
	tb.Helper()
	got, err := j.Update(tb.Context(), next, a, durable)
	require.NoError(tb, err)
	return got
}

func TestJournalOneOperation(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	want := newIntent("order-1/charge")
	in := mustBegin(t, j, want)
	assert.Equal(t, "1", in.ID)
	assert.Equal(t, 1, in.Generation)
	assert.Equal(t, int64(1), in.Version)

	again, claimed, err := j.Begin(t.Context(), want)
	require.NoError(t, err)
	assert.False(t, claimed)
	assert.True(t, again.Owned)
	assert.Equal(t, want.Request, again.Request)

	next, a := succeed(in)
	done := mustUpdate(t, j, next, a, false)
	assert.Equal(t, int64(2), done.Version)

	got, err := j.Lookup(t.Context(), "acct", "order-1/charge")
	require.NoError(t, err)
	done.Request = nil
	assert.Equal(t, done, got)

	replay, claimed, err := j.Begin(t.Context(), want)
	require.NoError(t, err)
	assert.False(t, claimed)
	assert.False(t, replay.Owned)
	assert.Equal(t, done.Outcome, replay.Outcome)

	attempts, err := j.Attempts(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, []Attempt{*a}, attempts)

	list, err := j.List(t.Context(), Filter{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Nil(t, list[0].Outcome.Body)

	_, err = j.Lookup(context.Background(), "acct", "another")
	require.ErrorIs(t, err, ErrNotFound)
	assert.NotErrorIs(t, err, ErrJournal)
}
