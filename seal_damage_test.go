package idem

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// resum makes the checksums of a row fit what is stored, so that only the
// sealing can tell that it was changed.
func resum(tb testing.TB, db *sql.DB, id string) (changed int64) {
	tb.Helper()
	var texts [8]string
	var numbers [3]int64
	var adopted, credential, fingerprint []byte
	var target, host sql.NullString
	var header, body []byte
	require.NoError(tb, db.QueryRow(`SELECT scope, coalesce(operation, ''), key, name, method, url, place, encoding, generation, retention,
		created, adopted, credential, fingerprint, target, host, header, body FROM intent WHERE id = ?`, id).Scan(
		&texts[0], &texts[1], &texts[2], &texts[3], &texts[4], &texts[5], &texts[6], &texts[7], &numbers[0], &numbers[1],
		&numbers[2], &adopted, &credential, &fingerprint, &target, &host, &header, &body))
	var head, request []byte
	for _, s := range texts {
		head = sumText(head, s)
	}
	for _, n := range numbers {
		head = binary.LittleEndian.AppendUint64(head, uint64(n))
	}
	head = sumBlob(sumBlob(sumBlob(head, adopted), credential), fingerprint)
	request = sumBlob(sumBlob(sumText(sumText(nil, target.String), host.String), header), body)
	set := func(query string, values ...any) {
		r, err := db.Exec(query, append(values, id)...)
		require.NoError(tb, err)
		n, err := r.RowsAffected()
		require.NoError(tb, err)
		changed += n
	}
	set(`UPDATE intent SET head_sum = ?1 WHERE head_sum <> ?1 AND id = ?2`, sumOf(head))
	set(`UPDATE intent SET request_sum = ?1 WHERE request_sum <> ?1 AND target IS NOT NULL AND id = ?2`, sumOf(request))
	var status int64
	var requestID string
	err := db.QueryRow(`SELECT status_code, request_id, header, body FROM outcome WHERE id = ?`, id).Scan(&status, &requestID, &header, &body)
	if err == sql.ErrNoRows {
		return changed
	}
	require.NoError(tb, err)
	set(`UPDATE outcome SET head_sum = ?1 WHERE head_sum <> ?1 AND id = ?2`,
		sumOf(sumBlob(sumText(binary.LittleEndian.AppendUint64(nil, uint64(status)), requestID), header)))
	set(`UPDATE outcome SET body_sum = ?1 WHERE body_sum <> ?1 AND id = ?2`, sumOf(sumBlob(nil, body)))
	return changed
}

func sumText(b []byte, s string) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }

func sumBlob(b, p []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(p))), p...)
}

func sumOf(b []byte) int64 { return int64(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))) }

// tampering is a sealed journal in which somebody changes what is stored.
type tampering struct {
	*testing.T
	path string
	j    *SQLiteJournal
	db   *sql.DB
	rows int
}

func newTampering(t *testing.T) *tampering {
	x := &tampering{T: t, path: tempJournal(t)}
	x.j = mustOpen(t, x.path, sealed(t, "a"))
	x.db = inspect(t, x.path)
	t.Cleanup(func() { assert.NoError(t, x.db.Close()) })
	return x
}

// open makes a row that is to be sent again.
func (x *tampering) open() Intent {
	x.rows++
	in := mustBegin(x, x.j, newIntent(fmt.Sprint("open-", x.rows)))
	in.State, in.Doubt, in.Claimed = StateUnknown, true, false
	return mustUpdate(x, x.j, in, nil, true)
}

// final makes a row with an answer.
func (x *tampering) final() Intent {
	x.rows++
	next, a := succeed(mustBegin(x, x.j, newIntent(fmt.Sprint("final-", x.rows))))
	return mustUpdate(x, x.j, next, a, true)
}

func (x *tampering) get(table, column, id string) (v any) {
	x.Helper()
	require.NoError(x, x.db.QueryRow(`SELECT `+column+` FROM `+table+` WHERE id = ?`, id).Scan(&v))
	return v
}

// set changes a column, with sums that fit.
func (x *tampering) set(table, column, id string, v any) {
	x.Helper()
	_, err := x.db.Exec(`UPDATE `+table+` SET `+column+` = ? WHERE id = ?`, v, id)
	require.NoError(x, err)
	resum(x, x.db, id)
}

// held demands that nothing of the row can be sent: whoever asks for it first
// finds it held.
func (x *tampering) held(in Intent, name string) {
	x.Helper()
	if x.rows%2 == 0 {
		got, claimed, err := x.j.Begin(x.Context(), newIntent(in.Operation))
		require.NoError(x, err, name)
		require.False(x, claimed, name)
		require.Nil(x, got.Request, name)
		require.Equal(x, HoldChecksum, got.HoldReason, name)
		require.Equal(x, StateHeld, got.State, name)
	} else {
		due, _, err := x.j.ClaimDue(x.Context(), testNow, Filter{Name: "main"})
		require.NoError(x, err, name)
		require.Len(x, due, 1, name)
		require.Equal(x, in.ID, due[0].ID, name)
		require.False(x, due[0].Claimed, name)
		require.Nil(x, due[0].Request, name)
		require.Equal(x, HoldChecksum, due[0].HoldReason, name)
	}
	stored, err := x.j.List(x.Context(), Filter{States: []State{StateHeld}, Limit: 1_000_000})
	require.NoError(x, err, name)
	require.True(x, slices.ContainsFunc(stored, func(s Intent) bool { return s.ID == in.ID }), "%s: is not stored as held", name)
}

// kept demands that the row is as it was.
func (x *tampering) kept(in Intent) {
	x.Helper()
	got, claimed, err := x.j.Begin(x.Context(), newIntent(in.Operation))
	require.NoError(x, err)
	require.Equal(x, !in.State.Final(), claimed)
	require.Equal(x, newIntent(in.Operation).Request, got.Request)
	if claimed {
		got.Claimed, got.State, got.Settled, got.Doubt = false, StateWithdrawn, testNow, false
		mustUpdate(x, x.j, got, nil, true)
	} else {
		require.Equal(x, in.Outcome, got.Outcome)
	}
}

func (x *tampering) flips(table, column, id string, each func(name string)) {
	x.Helper()
	was := x.get(table, column, id).([]byte)
	last := len(was) - 1
	for _, at := range []int{0, 1, 3, 4, 16, 20, last / 2, last - 15, last} { // marker, id, nonce, content, tag
		for _, bit := range []byte{0x01, 0x80} {
			b := slices.Clone(was)
			b[at] ^= bit
			x.set(table, column, id, b)
			each(fmt.Sprintf("%s.%s: bit %#x of byte %d", table, column, bit, at))
		}
	}
	for _, cut := range [][]byte{{}, was[:1], was[:3], was[:last], append(slices.Clone(was), 0)} {
		x.set(table, column, id, cut)
		each(fmt.Sprintf("%s.%s: %d of %d bytes", table, column, len(cut), len(was)))
	}
	x.set(table, column, id, was)
}

// Whatever is changed in what is sealed, or in what it is bound to, the row is
// held and nothing of it is sent, though its checksums fit.
func TestSealedRequestsAreNotChanged(t *testing.T) {
	x := newTampering(t)
	in := x.open()
	require.Zero(t, resum(t, x.db, in.ID), "the checksums are those of the journal")
	x.kept(in)
	state := x.get("status", "state", in.ID)
	for _, column := range []string{"header", "body", "fingerprint"} {
		in := x.open()
		x.flips("intent", column, in.ID, func(name string) {
			x.rows++ // the other way to ask
			keyID := column != "fingerprint" && x.get("intent", column, in.ID) != nil && x.unknownKey(in, column)
			if keyID {
				x.noKey(in, name)
			} else {
				x.held(in, name)
			}
			x.again(in)
		})
		x.kept(in)
	}
	require.NotEmpty(t, state)
	for column, v := range map[string]any{
		"target": "http://elsewhere.example/", "host": "elsewhere.example", "method": "PUT", "url": "https://api.example.com/refunds",
		"key": "another", "name": "other", "provider": "other", "place": "header X-Key", "encoding": "quoted", "retention": 7, "created": 7,
		"renews": "another", "withheld": `["Cookie"]`, "adopted": []byte("a"),
	} {
		in := x.open()
		was := x.get("intent", column, in.ID)
		x.set("intent", column, in.ID, v)
		x.rows += x.rows % 2 // by its operation: ClaimDue may not know its name
		x.held(in, column)
		x.set("intent", column, in.ID, was)
		x.again(in)
		x.kept(in)
	}
}

// unknownKey: what was changed is the id of the key.
func (x *tampering) unknownKey(in Intent, column string) bool {
	b := x.get("intent", column, in.ID).([]byte)
	if column == "header" {
		if len(b) == 0 || b[0] != 2 {
			return false
		}
		b = b[1:]
	}
	return len(b) > 0 && b[0] > 0 && b[0] <= longestID && len(b) > int(b[0]) && string(b[1:1+b[0]]) != "a"
}

// noKey demands a typed error that leaves the row as it is.
func (x *tampering) noKey(in Intent, name string) {
	x.Helper()
	_, claimed, err := x.j.Begin(x.Context(), newIntent(in.Operation))
	require.ErrorIs(x, err, ErrSealed, name)
	require.ErrorIs(x, err, ErrJournal, name)
	require.ErrorIs(x, err, ErrNotSent, name)
	require.False(x, claimed, name)
	require.Equal(x, "unknown", x.get("status", "state", in.ID), name)
}

// again puts the row back to where it is to be sent.
func (x *tampering) again(in Intent) {
	x.Helper()
	_, err := x.db.Exec(`UPDATE status SET state = 'unknown', hold_reason = '', doubt = 1, settled = 0, owner = NULL WHERE id = ?`, in.ID)
	require.NoError(x, err)
}

// Whatever is changed in a sealed answer, nothing of it is told.
func TestSealedAnswersAreNotChanged(t *testing.T) {
	x := newTampering(t)
	in := x.final()
	require.Zero(t, resum(t, x.db, in.ID), "the checksums are those of the journal")
	x.kept(in)
	untold := func(name string) {
		got, claimed, err := x.j.Begin(t.Context(), newIntent(in.Operation))
		require.NoError(t, err, name)
		require.False(t, claimed, name)
		require.True(t, got.State.Final(), name)
		require.False(t, got.Outcome.Complete, name)
		require.Nil(t, got.Outcome.Body, name)
		found, err := x.j.Lookup(t.Context(), "acct", in.Operation)
		require.NoError(t, err, name)
		require.False(t, found.Outcome.Complete, name)
		require.Nil(t, found.Outcome.Body, name)
	}
	for _, column := range []string{"header", "body"} {
		x.flips("outcome", column, in.ID, func(name string) {
			if column == "body" && len(x.get("outcome", column, in.ID).([]byte)) == 0 {
				return // it is not kept
			}
			untold(name)
		})
	}
	x.kept(in)
	for column, v := range map[string]any{"status_code": 200, "request_id": "req_2", "replayed": 1} {
		was := x.get("outcome", column, in.ID)
		x.set("outcome", column, in.ID, v)
		untold(column)
		got, err := x.j.Lookup(t.Context(), "acct", in.Operation)
		require.NoError(t, err)
		require.Zero(t, got.Outcome.StatusCode, column)
		x.set("outcome", column, in.ID, was)
	}
	x.set("status", "state", in.ID, "rejected")
	untold("a success that becomes a refusal")
	x.set("status", "state", in.ID, "succeeded")
	x.kept(in)
}

// What is sealed belongs to its row and its column.
func TestSealedValuesAreNotSwapped(t *testing.T) {
	x := newTampering(t)
	swap := func(table, column string, a, b Intent) (undo func()) {
		was := [2]any{x.get(table, column, a.ID), x.get(table, column, b.ID)}
		x.set(table, column, a.ID, was[1])
		x.set(table, column, b.ID, was[0])
		return func() {
			x.set(table, column, a.ID, was[0])
			x.set(table, column, b.ID, was[1])
		}
	}
	for _, columns := range [][]string{{"header"}, {"body"}, {"fingerprint"}, {"header", "body"}, {"header", "body", "fingerprint"}} {
		a, b := x.open(), x.open()
		var undo []func()
		for _, column := range columns {
			undo = append(undo, swap("intent", column, a, b))
		}
		x.rows += x.rows % 2
		x.held(a, fmt.Sprint(columns))
		x.held(b, fmt.Sprint(columns))
		for _, u := range undo {
			u()
		}
		x.again(a)
		x.again(b)
		x.kept(a)
		x.kept(b)
	}
	for _, column := range []string{"header", "body"} {
		a, b := x.final(), x.final()
		undo := swap("outcome", column, a, b)
		for _, in := range []Intent{a, b} {
			got, err := x.j.Lookup(t.Context(), "acct", in.Operation)
			require.NoError(t, err)
			require.False(t, got.Outcome.Complete)
			require.Nil(t, got.Outcome.Body)
		}
		undo()
		x.kept(a)
	}
	in := x.open() // what was sealed for another column of the row
	x.set("intent", "body", in.ID, x.get("intent", "header", in.ID).([]byte)[1:])
	x.rows += x.rows % 2
	x.held(in, "a header as a body")
	in = x.final()
	x.set("outcome", "body", in.ID, x.get("outcome", "header", in.ID).([]byte)[1:])
	found, err := x.j.Lookup(t.Context(), "acct", in.Operation)
	require.NoError(t, err)
	require.Nil(t, found.Outcome.Body)
	in = x.final() // an answer in place of a request
	x.set("intent", "body", in.ID, x.get("outcome", "body", in.ID))
	got, claimed, err := x.j.Begin(t.Context(), newIntent(in.Operation))
	require.NoError(t, err)
	require.False(t, claimed)
	require.Nil(t, got.Request)
}

// A row in clear text is taken for what was there before the sealing only.
func TestUnsealedRowsAreNotSlippedIn(t *testing.T) {
	path := tempJournal(t)
	plain := mustOpened(t, path, nil)
	in := mustBegin(t, plain, newIntent("before"))
	in.State, in.Doubt, in.Claimed = StateUnknown, true, false
	mustUpdate(t, plain, in, nil, true)
	final, a := succeed(mustBegin(t, plain, newIntent("done before")))
	final = mustUpdate(t, plain, final, a, true)
	require.NoError(t, plain.Close())

	x := &tampering{T: t, path: path, j: mustOpen(t, path, sealed(t, "a")), db: inspect(t, path)}
	defer x.db.Close()
	after, answered := x.open(), x.final()
	for _, column := range []string{"fingerprint", "target", "host", "header", "body"} {
		x.set("intent", column, after.ID, x.get("intent", column, in.ID))
	}
	x.rows += x.rows % 2
	x.held(after, "a request in clear text")
	for _, column := range []string{"header", "body"} {
		x.set("outcome", column, answered.ID, x.get("outcome", column, final.ID))
	}
	got, err := x.j.Lookup(t.Context(), "acct", answered.Operation)
	require.NoError(t, err)
	require.Nil(t, got.Outcome.Body)
	x.kept(final)

	again := mustBegin(t, x.j, newIntent("before")) // goes on, and its answer is sealed
	require.Equal(t, newIntent("before").Request, again.Request)
	next, attempt := succeed(again)
	next = mustUpdate(t, x.j, next, attempt, true)
	require.Equal(t, byte(2), x.get("outcome", "header", next.ID).([]byte)[0])
	x.kept(next)
	wrong := newIntent("before")
	wrong.Fingerprint = []byte("another")
	got, claimed, err := x.j.Begin(t.Context(), wrong)
	require.NoError(t, err)
	require.False(t, claimed)
	require.Equal(t, newIntent("before").Fingerprint, got.Fingerprint)
}
