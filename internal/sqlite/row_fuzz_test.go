package sqlite

import (
	"bytes"
	"database/sql/driver"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// storedValues are the columns of two real rows, one open and one final.
func storedValues(tb testing.TB) [][]driver.Value {
	tb.Helper()
	s := mustOpen(tb, filepath.Join(tb.TempDir(), "x.db"))
	var all [][]driver.Value
	for _, operation := range []string{"open", "final"} {
		want := newRow(operation)
		want.Adopted, want.Credential, want.Withheld = []byte("adopted "+operation), []byte("credential"), `["Authorization"]`
		want.Name, want.Provider, want.Method, want.URL, want.Place, want.Encoding = "main", "acme", "POST", "https://h/", "Idempotency-Key", "quoted"
		want.Retention, want.Request.Host = 1<<40, "host"
		want.Request.Header = EncodeHeader(map[string][]string{"Content-Type": {"application/json"}, "X-Two": {"a", "b"}})
		row, _, err := s.Begin(tb.Context(), want)
		require.NoError(tb, err)
		if operation == "final" {
			c := row.succeeds()
			c.Outcome = &Outcome{StatusCode: 201, Complete: true, RequestID: "req", Header: want.Request.Header, Body: []byte("answer")}
			_, err = s.Update(tb.Context(), c, true)
			require.NoError(tb, err)
		}
	}
	r := <-s.readers
	defer func() { s.readers <- r }()
	for id := range int64(2) {
		require.NoError(tb, r.query(selectByID, func(v []driver.Value) error {
			values := slices.Clone(v)
			for i, v := range values {
				if b, ok := v.([]byte); ok {
					values[i] = slices.Clone(b)
				}
			}
			all = append(all, values)
			return nil
		}, id+1))
	}
	require.Len(tb, all, 2)
	return all
}

// wholeColumns are the names of wholeRow's columns.
func wholeColumns() []string {
	names := strings.Split(headColumns+", "+statusColumns+", "+outcomeColumns+", "+bodyColumns, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

// unsummed are the columns over which there is no checksum: what a row has
// become, which changes at every write, and what only tells people something.
var unsummed = []string{
	"i.id", "i.provider", "i.renews", "i.withheld", "s.version", "s.state", "s.doubt", "s.hold_reason", "s.owner", "s.attempts", "s.deaths",
	"s.resumes", "s.began", "s.prepared", "s.notify", "s.first_sent", "s.due", "s.wait", "s.expires", "s.settled", "s.decider", "s.note",
	"s.kept", "o.complete", "o.replayed",
}

// checkScan reads a row of which one value is another one. It never panics; and
// a value under a checksum is not believed.
func checkScan(t testing.TB, stored []driver.Value, column uint, is driver.Value) (caught bool) {
	names := wholeColumns()
	require.Len(t, stored, len(names))
	i := int(column % uint(len(names)))
	sound := scanWhole(stored)
	require.False(t, sound.Damaged)
	values := slices.Clone(stored)
	values[i] = is
	got := scanWhole(values)
	if got.Request != nil {
		_, err := DecodeHeader(got.Request.Header)
		require.NoError(t, err, "what is believed can be read: %s", names[i])
	}
	if same(stored[i], is) || slices.Contains(unsummed, names[i]) {
		return false
	}
	outcome := strings.HasPrefix(names[i], "o.")
	switch {
	case outcome && sound.Outcome == nil:
		return false
	case names[i] == "i.target" && is == nil: // no request is there, which is what a pruned row looks like
		require.Nil(t, got.Request)
	case !outcome:
		require.True(t, got.Damaged, "%s: %v instead of %v", names[i], is, stored[i])
		require.Nil(t, got.Request, names[i])
	case names[i] == "o.status_code" && is == nil: // no answer is there
		require.Nil(t, got.Outcome)
	case names[i] == "o.body" || names[i] == "o.body_sum":
		require.Nil(t, got.Outcome.Body, names[i])
		require.True(t, is == nil || !got.Outcome.Complete, names[i])
	default:
		require.Equal(t, &Outcome{damaged: true}, got.Outcome, "nothing of a damaged answer is told: %s", names[i])
	}
	return true
}

// same reports values that are read alike: STRICT keeps the types apart, and an
// empty blob is as good as none.
func same(a, b driver.Value) bool {
	switch x := a.(type) {
	case []byte:
		y, _ := b.([]byte)
		return bytes.Equal(x, y)
	case string:
		return x == text(b)
	case int64:
		return x == number(b)
	}
	switch y := b.(type) {
	case nil:
		return true
	case []byte:
		return len(y) == 0
	}
	return text(b) == "" && number(b) == 0
}

// changed is a value of the same type with a bit flipped, or cut, or another.
func changed(v driver.Value, how uint8, at, bit uint) driver.Value {
	switch v := v.(type) {
	case int64:
		return v ^ 1<<(bit%64)
	case string:
		b, _ := changed([]byte(v), how, at, bit).([]byte)
		return string(b)
	case []byte:
		b := slices.Clone(v)
		switch {
		case how%4 == 0 && len(b) > 0:
			return b[:at%uint(len(b))]
		case how%4 == 1:
			return append(b, byte(bit))
		case len(b) > 0:
			b[at%uint(len(b))] ^= 1 << (bit % 8)
		}
		return b
	}
	return v
}

func FuzzScanRow(f *testing.F) {
	stored := storedValues(f)
	for i := range wholeColumns() {
		f.Add(uint(i), uint8(2), uint(3), uint(1), []byte("{"), int64(7))
		f.Add(uint(i), uint8(i), uint(0), uint(7), []byte(`["a"]`), int64(-1))
	}
	f.Fuzz(func(t *testing.T, column uint, how uint8, at, bit uint, raw []byte, n int64) {
		for _, values := range stored {
			v := values[column%uint(len(values))]
			checkScan(t, values, column, changed(v, how, at, bit))
			switch v.(type) { // any other value of its type
			case string:
				checkScan(t, values, column, string(raw))
			case []byte:
				checkScan(t, values, column, raw)
			case int64:
				checkScan(t, values, column, n)
			}
			checkScan(t, values, column, nil)
		}
	})
}

func TestScanRowFuzz_PseudoRandom(t *testing.T) {
	stored := storedValues(t)
	r := rand.New(rand.NewPCG(18, 2026))
	caught := map[int]int{}
	names := wholeColumns()
	t.Log(fuzzed(), "inputs")
	for range fuzzed() {
		values := stored[r.IntN(2)]
		i := r.IntN(len(values))
		if checkScan(t, values, uint(i), changed(values[i], uint8(r.UintN(8)), r.UintN(64), r.UintN(64))) {
			caught[i]++
		}
	}
	for i, name := range names {
		if !slices.Contains(unsummed, name) {
			assert.Greater(t, caught[i], 50, "damage that was noticed in %s", name)
		}
	}
}
