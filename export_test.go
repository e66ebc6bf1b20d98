package idem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exported are the lines of an export, by ID, and those of rows that nothing
// tells of.
func exported(tb testing.TB, j *SQLiteJournal) (lines map[string]string, lost []string, err error) {
	tb.Helper()
	var b bytes.Buffer
	err = j.Export(tb.Context(), &b)
	lines = map[string]string{}
	for line := range strings.Lines(b.String()) {
		var row struct{ ID, From string }
		require.NoError(tb, json.Unmarshal([]byte(line), &row), line)
		require.NotContains(tb, lines, row.ID, "each row once")
		if row.ID == "" {
			lost = append(lost, line)
		} else {
			lines[row.ID] = line
		}
	}
	return lines, lost, err
}

func TestExport(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	in := mustBegin(t, j, newIntent("order-1"))
	next, a := succeed(in)
	mustUpdate(t, j, next, a, false) // posted: it is there all the same
	strange := newIntent("order\xff<2>")
	strange.Withheld, strange.Request.Body = []string{"Authorization", "X-Token"}, nil
	strange.Request.Header = http.Header{"X-Latin": {"caf\xe9", "ok"}}
	strange.State, strange.Attempts, strange.FirstSent = StatePending, 0, time.Time{}
	mustBegin(t, j, strange)
	lines, lost, err := exported(t, j)
	require.NoError(t, err)
	assert.Empty(t, lost)
	assert.JSONEq(t, `{"id":"1","scope":"acct","operation":"order-1","generation":1,"key":"key-order-1","state":"succeeded",
		"name":"main","provider":"acme","method":"POST","url":"https://api.example.com/charges","attempt_count":1,
		"created":"2026-11-29T12:00:00.123456789Z","first_sent":"2026-11-29T12:00:00.123456789Z","expires":"2026-11-30T11:00:00.123456789Z",
		"settled":"2026-11-29T12:00:01.123456789Z","version":2,"fingerprint_base64":"ZmluZ2VycHJpbnQtMDEyMzQ1Njc4OWFiY2RlZjAwMDA=",
		"place":"Idempotency-Key","retention":86400000000000,
		"request":{"host":"gateway.example.com","header":{"Content-Type":["application/json"]},"body_encoding":"base64","body":"eyJhbW91bnQiOjQyMDB9"},
		"outcome":{"status_code":201,"request_id":"req_1","complete":true,"header":{"Content-Type":["application/json"],"X-Two":["b","a"]},
			"body_encoding":"base64","body":"eyJpZCI6ImNoXzEifQ=="},
		"attempts":[{"number":1,"started":"2026-11-29T12:00:00.123456789Z","ended":"2026-11-29T12:00:01.123456789Z","phase":"answered",
			"status_code":201,"decision":"succeeded"}]}`, lines["1"])
	assert.JSONEq(t, `{"id":"2","scope":"acct","operation":{"base64":"b3JkZXL/PDI+"},"generation":1,"key":{"base64":"a2V5LW9yZGVy/zwyPg=="},"state":"pending",
		"name":"main","provider":"acme","method":"POST","url":"https://api.example.com/charges",
		"created":"2026-11-29T12:00:00.123456789Z","expires":"2026-11-30T11:00:00.123456789Z",
		"version":1,"fingerprint_base64":"ZmluZ2VycHJpbnQtMDEyMzQ1Njc4OWFiY2RlZjAwMDA=","place":"Idempotency-Key","retention":86400000000000,
		"withheld":["Authorization","X-Token"],
		"request":{"host":"gateway.example.com","header":{"X-Latin":[{"base64":"Y2Fm6Q=="},"ok"]},"body_encoding":"base64","body":""}}`, lines["2"])

	_, err = j.Prune(t.Context(), testNow.Add(time.Hour)) // retention is long over
	require.NoError(t, err)
	lines, _, err = exported(t, j)
	require.NoError(t, err)
	assert.Contains(t, lines["1"], `"outcome":{"status_code":201,"request_id":"req_1","header":{`)
	assert.NotContains(t, lines["1"], "body")
}

// What is withheld from the journal is not in its export either.
func TestExportHasNoSecrets(t *testing.T) {
	r := newRig(t)
	req := mustRequest(t, t.Context(), "http://ann:pa55@provider.example/charges?api_key=s3cret", orderBody(1))
	req.Header.Set("Authorization", "Bearer t0ken")
	req.Header.Set("Cookie", "sid=c00kie")
	resp, err := r.client.Do("order-1", req)
	require.NoError(t, err)
	readAndClose(t, resp)
	lines, _, err := exported(t, r.journal)
	require.NoError(t, err)
	require.Len(t, lines, 1)
	for _, secret := range []string{"ann", "pa55", "s3cret", "t0ken", "c00kie", "Bearer"} {
		assert.NotContains(t, lines["1"], secret)
	}
	assert.Contains(t, lines["1"], `"url":"http://provider.example/charges"`)
	assert.Contains(t, lines["1"], `"withheld":["Authorization","Cookie","URL user info","URL query api_key"]`)
}

// failingWriter takes some lines.
type failingWriter struct{ lines int }

var errFull = errors.New("no room")

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.lines--; w.lines < 0 || p[len(p)-1] != '\n' {
		return 0, errFull
	}
	return len(p), nil
}

func TestExportEnds(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	for i := range 5 {
		mustBegin(t, j, newIntent(fmt.Sprint(i)))
	}
	err := j.Export(t.Context(), &failingWriter{lines: 3})
	require.ErrorIs(t, err, errFull)
	assert.NotErrorIs(t, err, ErrJournal)
	require.NoError(t, j.Export(t.Context(), &failingWriter{lines: 5}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, j.Export(ctx, &failingWriter{}), context.Canceled)
	require.NoError(t, j.Close())
	err = j.Export(t.Context(), &failingWriter{lines: 9})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, err, ErrJournal)
}

// Any page of the file may be lost. What is not on it is exported as it was.
func TestExportOfADamagedFile(t *testing.T) {
	for name, options := range map[string]*SQLiteOptions{"clear": nil, "sealed": sealed(t, "a")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exportDamaged(t, options)
		})
	}
}

func exportDamaged(t *testing.T, options *SQLiteOptions) {
	path := tempJournal(t)
	j, err := Open(path, options)
	require.NoError(t, err)
	const rows = 45
	for i := range rows {
		want := newIntent(fmt.Sprintf("order-%d", i))
		want.Request.Body = bytes.Repeat([]byte("b"), []int{100, 700, 9000}[i%3])
		next, a := succeed(mustBegin(t, j, want))
		mustUpdate(t, j, next, a, false)
	}
	sound, _, err := exported(t, j)
	require.NoError(t, err)
	require.Len(t, sound, rows)
	require.NoError(t, j.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	opened, told, parts := 0, 0, map[string]int{}
	for page := 1; page < len(whole)/4096; page += raceStep { // without the first there is no database
		broken := bytes.Clone(whole)
		copy(broken[page*4096:], bytes.Repeat([]byte{byte(-(page & 1))}, 4096)) // 0 or 255
		require.NoError(t, os.WriteFile(path, broken, 0o600))
		j, err := Open(path, options)
		if err != nil { // it says so
			require.ErrorIs(t, err, ErrJournal)
			continue
		}
		opened++
		lines, lost, err := exported(t, j)
		damaged := len(lost)
		for id, line := range lines {
			var row struct{ Damaged []string }
			require.NoError(t, json.Unmarshal([]byte(line), &row))
			if len(row.Damaged) == 0 {
				require.Equal(t, sound[id], line, "page %d", page)
				continue
			}
			damaged++
			for _, part := range row.Damaged {
				parts[part]++
			}
		}
		if damaged > 0 {
			told++
			require.ErrorIs(t, err, ErrJournal, "page %d", page)
			require.ErrorContains(t, err, fmt.Sprintf("%d of %d rows are damaged", damaged, len(lines)+len(lost)))
			require.ErrorContains(t, err, path)
		} else {
			require.NoError(t, err, "page %d", page)
		}
		if len(lost) == 0 {
			require.Len(t, lines, rows, "page %d: no row is passed over in silence", page)
		}
		_ = j.Close() // the file is damaged
		for _, side := range []string{"-wal", "-shm"} {
			_ = os.Remove(path + side)
		}
	}
	t.Logf("%d opened, %d told of damage: %v", opened, told, parts)
	require.Positive(t, told)
}
