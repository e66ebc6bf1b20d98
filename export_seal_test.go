package idem

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fillForExport makes a row of each kind: with an answer, refused, to be sent
// again, without a body, and with an answer whose body was not kept.
func fillForExport(tb testing.TB, j *SQLiteJournal, prefix string) {
	tb.Helper()
	next, a := succeed(mustBegin(tb, j, newIntent(prefix+"-done")))
	mustUpdate(tb, j, next, a, false)
	next, a = succeed(mustBegin(tb, j, newIntent(prefix+"-refused")))
	next.State, next.Outcome.StatusCode = StateRejected, 402
	mustUpdate(tb, j, next, a, true)
	open := mustBegin(tb, j, newIntent(prefix+"-open"))
	open.State, open.Doubt, open.Claimed = StateUnknown, true, false
	mustUpdate(tb, j, open, nil, true)
	empty := newIntent(prefix + "-empty")
	empty.Request.Body, empty.Request.Header = nil, nil
	mustBegin(tb, j, empty)
	next, a = succeed(mustBegin(tb, j, newIntent(prefix+"-streamed")))
	next.Outcome.Body, next.Outcome.Complete = nil, false
	mustUpdate(tb, j, next, a, true)
}

// exportedRow is what the tests look at in a line.
type exportedRow struct {
	Operation       string
	Damaged, Sealed []string
	Fingerprint     string `json:"fingerprint_base64"`
	Request         map[string]any
	Outcome         map[string]any
}

func exportedRows(tb testing.TB, j *SQLiteJournal) (rows map[string]exportedRow, err error) {
	tb.Helper()
	lines, lost, err := exported(tb, j)
	require.Empty(tb, lost)
	rows = map[string]exportedRow{}
	for _, line := range lines {
		var r exportedRow
		require.NoError(tb, json.Unmarshal([]byte(line), &r))
		rows[r.Operation] = r
	}
	return rows, err
}

// With the key at hand the lines of a sealed journal are those of one in clear
// text.
func TestExportOfASealedJournal(t *testing.T) {
	want := map[string]string{}
	for _, options := range []*SQLiteOptions{nil, sealed(t, "a")} {
		path := tempJournal(t)
		if options != nil { // what was there before stays in clear text
			options.SyncOutcomes = true
		}
		j := mustOpened(t, path, nil)
		fillForExport(t, j, "before")
		require.NoError(t, j.Close())
		j = mustOpen(t, path, options)
		fillForExport(t, j, "after")
		lines, lost, err := exported(t, j)
		require.NoError(t, err)
		require.Empty(t, lost)
		require.Len(t, lines, 10)
		if options == nil {
			want = lines
			continue
		}
		require.Equal(t, 5, count(t, path, `SELECT count(*) FROM intent WHERE substr(header, 1, 1) = x'02'`))
		require.Equal(t, want, lines)
	}
}

// What is sealed under a key that is gone is said to be so. It is no damage, and
// nothing of it is in the line.
func TestExportWithoutAnOldKey(t *testing.T) {
	path := tempJournal(t)
	j := mustOpened(t, path, sealed(t, "a"))
	fillForExport(t, j, "old")
	require.NoError(t, j.Close())
	j = mustOpened(t, path, sealed(t, "a", "b"))
	fillForExport(t, j, "new")
	whole, err := exportedRows(t, j)
	require.NoError(t, err)
	require.NoError(t, j.Close())

	j = mustOpen(t, path, sealed(t, "b"))
	rows, err := exportedRows(t, j)
	require.NoError(t, err)
	require.Len(t, rows, 10)
	for operation, row := range rows {
		assert.Equal(t, whole[operation].Fingerprint, row.Fingerprint, operation)
		if strings.HasPrefix(operation, "new") {
			assert.Equal(t, whole[operation], row)
			continue
		}
		want := []string{"request", "outcome", "answer"}
		switch operation {
		case "old-open", "old-empty":
			want = want[:1]
		case "old-streamed":
			want = want[:2]
		}
		assert.Equal(t, want, row.Sealed, operation)
		assert.Empty(t, row.Damaged, operation)
		assert.Empty(t, row.Request, operation)
		for name := range row.Outcome {
			assert.Contains(t, []string{"status_code", "request_id", "complete"}, name, operation)
		}
	}
	assert.EqualValues(t, 402, rows["old-refused"].Outcome["status_code"])

	// Damage stays damage, with the key and without.
	_, err = inspectedExec(t, path, `UPDATE intent SET body = CAST(substr(body, 1, length(body) - 1) || x'00' AS BLOB) WHERE operation = 'old-open'`,
		`UPDATE outcome SET header = CAST(x'0201ff' || substr(header, 4) AS BLOB) WHERE id = (SELECT id FROM intent WHERE operation = 'old-done')`)
	require.NoError(t, err)
	rows, err = exportedRows(t, j)
	require.ErrorIs(t, err, ErrJournal)
	require.ErrorContains(t, err, "2 of 10 rows are damaged")
	assert.Equal(t, []string{"request"}, rows["old-open"].Damaged)
	assert.Empty(t, rows["old-open"].Sealed)
	assert.Equal(t, []string{"outcome"}, rows["old-done"].Damaged)
	assert.Equal(t, []string{"request"}, rows["old-done"].Sealed)
}

// Whatever is changed in a sealed column is told as the damage of that part, by
// the checksum or, where that was made to fit, by the seal. The other parts are
// what they were.
func TestExportOfChangedSealedColumns(t *testing.T) {
	for _, c := range []struct{ column, part string }{
		{"intent.header", "request"}, {"intent.body", "request"}, {"outcome.header", "outcome"}, {"outcome.body", "answer"},
		{"intent.fingerprint", "intent"},
	} {
		t.Run(c.column, func(t *testing.T) {
			x := newTampering(t)
			in, other := x.final(), x.open()
			sound, err := exportedRows(t, x.j)
			require.NoError(t, err)
			table, column, _ := strings.Cut(c.column, ".")
			var stored []byte
			require.NoError(t, x.db.QueryRow(fmt.Sprintf(`SELECT %s FROM %s WHERE id = ?`, column, table), in.ID).Scan(&stored))
			for at := 0; at < len(stored); at += 1 + len(stored)/9 {
				for _, fits := range []bool{false, true} {
					bad := append([]byte{}, stored...)
					bad[at] ^= 1
					_, err := x.db.Exec(fmt.Sprintf(`UPDATE %s SET %s = ? WHERE id = ?`, table, column), bad, in.ID)
					require.NoError(t, err)
					if fits {
						resum(t, x.db, in.ID)
					}
					rows, err := exportedRows(t, x.j)
					row, was := rows[in.Operation], sound[in.Operation]
					key := fits && c.part != "intent" && keyIDAt(c.column, at)
					if key { // says that it is under another key, which nothing contradicts
						require.NoError(t, err)
						require.Equal(t, []string{c.part}, row.Sealed, "byte %d", at)
					} else {
						require.ErrorIs(t, err, ErrJournal, "byte %d", at)
						require.Equal(t, []string{c.part}, row.Damaged, "byte %d", at)
						require.Empty(t, row.Sealed)
					}
					if c.part != "request" {
						require.Equal(t, was.Request, row.Request)
					}
					require.NotContains(t, row.Request, map[string]any{"body": was.Request["body"]})
					require.Equal(t, sound[other.Operation], rows[other.Operation])
					_, err = x.db.Exec(fmt.Sprintf(`UPDATE %s SET %s = ? WHERE id = ?`, table, column), stored, in.ID)
					require.NoError(t, err)
					resum(t, x.db, in.ID)
				}
			}
		})
	}
}

// keyIDAt reports whether the byte is the key's id in a sealed column.
func keyIDAt(column string, at int) bool {
	if strings.HasSuffix(column, "header") {
		return at == 2
	}
	return at == 1
}

// Where a status is lost, the answer is still opened, by either end that it can
// have had.
func TestExportOpensAnswersWithoutAStatus(t *testing.T) {
	path := tempJournal(t)
	j := mustOpened(t, path, sealed(t, "a"))
	fillForExport(t, j, "x")
	sound, err := exportedRows(t, j)
	require.NoError(t, err)
	require.NoError(t, j.Close())
	_, err = inspectedExec(t, path, `PRAGMA foreign_keys = OFF`, `DELETE FROM status`)
	require.NoError(t, err)
	j = mustOpened(t, path, sealed(t, "a"))
	rows, err := exportedRows(t, j)
	require.ErrorContains(t, err, "5 of 5 rows are damaged")
	for operation, row := range rows {
		assert.Equal(t, []string{"status"}, row.Damaged, operation)
		assert.Equal(t, sound[operation].Outcome, row.Outcome, operation)
		assert.Equal(t, sound[operation].Request, row.Request, operation)
	}
	_ = j.Close()
}

// A sealer that fails is no damage of the file's, and does not pass for sound.
func TestExportWithASealerThatFails(t *testing.T) {
	path := tempJournal(t)
	s := &failingOpener{Sealer: sealed(t, "a").Sealer}
	j := mustOpen(t, path, &SQLiteOptions{Sealer: s})
	fillForExport(t, j, "x")
	s.err = fmt.Errorf("%w: the vault is shut", ErrSealed)
	rows, err := exportedRows(t, j)
	require.NoError(t, err)
	assert.Equal(t, []string{"request", "outcome", "answer"}, rows["x-done"].Sealed)
	s.err = errors.New("the vault is on fire")
	rows, err = exportedRows(t, j)
	require.ErrorIs(t, err, ErrJournal)
	assert.Equal(t, []string{"request", "outcome", "answer"}, rows["x-done"].Damaged)
	s.err = nil
	_, err = exportedRows(t, j)
	require.NoError(t, err)
}

// failingOpener opens nothing while err is set.
type failingOpener struct {
	Sealer
	err error
}

func (s *failingOpener) Open(key string, sealed, associated []byte) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.Sealer.Open(key, sealed, associated)
}
