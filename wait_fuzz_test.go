package idem

import (
	"math/big"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// waitText is what RFC 9110 10.2.3 allows beside a date: digits. More than that
// is read, where it is a number.
var (
	waitDigits = regexp.MustCompile(`^[0-9]+$`)
	waitNumber = regexp.MustCompile(`^[+-]?([0-9]|\.[0-9]|0[xX]|[iI][nN][fF]|[nN][aA][nN])`)
)

// checkWait tries one answer: a wait is never negative or endless, what is no
// number and no date asks for nothing, and what is means what it says.
func checkWait(t testing.TB, unit uint8, value, date string, at int64) (kind string) {
	received := time.Unix(at%(1<<33), 0).UTC()
	units := []contract.Unit{contract.Seconds, contract.Milliseconds, contract.UnixSeconds}
	w := contract.Wait{Header: "Retry-After", Unit: units[int(unit)%len(units)]}
	h := http.Header{"Retry-After": {value}}
	server := received
	if date != "" {
		h.Set("Date", date)
		if d, err := http.ParseTime(date); err == nil {
			server = d
		}
	}
	got := headerWait(h, w, received)
	require.GreaterOrEqual(t, got, time.Duration(0), "%q", value)
	require.LessOrEqual(t, got, longestWait, "%q", value)
	require.Equal(t, got, askedWait(h, &contract.Contract{Waits: []contract.Wait{w}}, received))
	if server.Unix() >= 0 { // -1 is no time before all others
		h["Retry-After"] = []string{"junk", value, "-1", ""}
		require.Equal(t, got, headerWait(h, w, received), "junk beside it changes nothing: %q", value)
	}
	if w.Unit == contract.Seconds {
		h["Retry-After"] = []string{value}
		require.Equal(t, got, askedWait(h, nil, received), "the usual header")
	}

	then, err := http.ParseTime(value)
	switch {
	case waitDigits.MatchString(value):
		require.InDelta(t, waitOf(w.Unit, value, server), got, float64(time.Millisecond), "%s %q at %s", w.Unit, value, server)
		return "digits"
	case waitNumber.MatchString(value):
		return "number"
	case err == nil && w.Unit == contract.Seconds:
		require.Equal(t, min(max(then.Sub(server), 0), longestWait), got, "%q at %s", value, server)
		return "date"
	}
	require.Zero(t, got, "%q asks for nothing", value)
	return "junk"
}

// waitOf is what digits ask for, without a float.
func waitOf(unit contract.Unit, digits string, server time.Time) time.Duration {
	n, _ := new(big.Int).SetString(digits, 10)
	ms := big.NewInt(1)
	if unit != contract.Milliseconds {
		ms.SetInt64(1000)
	}
	n.Mul(n, ms)
	if unit == contract.UnixSeconds {
		n.Sub(n, new(big.Int).Mul(big.NewInt(server.Unix()), big.NewInt(1000)))
	}
	switch {
	case n.Sign() <= 0:
		return 0
	case n.Cmp(big.NewInt(longestWait.Milliseconds())) > 0:
		return longestWait
	}
	return time.Duration(n.Int64()) * time.Millisecond
}

var waitSeeds = []struct{ value, date string }{
	{"0", ""}, {"7", ""}, {"120", "Sun, 29 Nov 2026 12:00:00 GMT"}, {"-1", ""}, {"", ""}, {"NaN", ""}, {"Inf", ""}, {"1e300", ""}, {"1.5", ""},
	{"00000000000000000000000000000000007", ""}, {"99999999999999999999999999", ""}, {"31622400", ""}, {"31622401", ""}, {"0x10", ""},
	{"9223372036", ""}, {"9223372037", ""}, {"1764417700", "Sun, 29 Nov 2026 12:00:00 GMT"}, {" 7", ""}, {"7 ", ""}, {"7;q=1", ""}, {"soon", ""},
	{"Sun, 29 Nov 2026 12:00:03 GMT", "Sun, 29 Nov 2026 12:00:00 GMT"}, {"Sunday, 29-Nov-26 12:00:03 GMT", ""}, {"Sun Nov 29 12:00:03 2026", ""},
	{"Wed, 21 Oct 2015 07:28:00 GMT", ""}, {"Fri, 31 Dec 9999 23:59:59 GMT", ""}, {"Mon, 01 Jan 0001 00:00:00 GMT", ""}, {"Sun, 29 Nov 2026 12:00:03 PST", ""},
	{"Sun, 29 Nov 2026 25:00:03 GMT", ""}, {"2026-11-29T12:00:00Z", ""}, {"3", "yesterday"},
}

func FuzzWait(f *testing.F) {
	for i, s := range waitSeeds {
		f.Add(uint8(i), s.value, s.date, int64(1_795_953_600))
	}
	f.Fuzz(func(t *testing.T, unit uint8, value, date string, at int64) {
		checkWait(t, unit, value, date, at)
	})
}

func TestWaitFuzz_PseudoRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 2026))
	kinds := map[string]int{}
	layouts := []string{http.TimeFormat, time.RFC850, time.ANSIC, time.RFC3339}
	moment := func() string {
		return time.Unix(1_795_953_600+r.Int64N(1<<28)-1<<27, 0).UTC().Format(layouts[r.IntN(len(layouts))])
	}
	t.Log(fuzzed(), "inputs")
	for range fuzzed() {
		var value, date string
		switch r.IntN(5) {
		case 0:
			value = strconv.FormatUint(r.Uint64()>>r.UintN(64), 10)
		case 1:
			value = strings.Replace(moment(), "UTC", "GMT", 1)
		case 2:
			value = waitSeeds[r.IntN(len(waitSeeds))].value
		case 3:
			b := []byte(waitSeeds[r.IntN(len(waitSeeds))].value + "x")
			b[r.IntN(len(b))] ^= byte(1 << r.UintN(8))
			value = string(b)
		default:
			b := make([]byte, r.UintN(12))
			for i := range b {
				b[i] = "0123456789.-+eEx, GMTnaif_"[r.IntN(26)]
			}
			value = string(b)
		}
		if r.IntN(3) == 0 {
			date = strings.Replace(moment(), "UTC", "GMT", 1)
		}
		kinds[checkWait(t, uint8(r.UintN(3)), value, date, 1_795_953_600+r.Int64N(1<<20))]++
	}
	for _, kind := range []string{"digits", "number", "date", "junk"} {
		assert.Greater(t, kinds[kind], 500, kind)
	}
}

// A server whose clock is centuries off asks for no other wait than it says.
func TestWait_DateFarAway(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, date := range []string{"Fri, 31 Dec 9999 23:59:59 GMT", "Tue, 01 Jan 2300 00:00:00 GMT"} {
		h := http.Header{"X-Reset": {"1795953604"}, "Date": {date}}
		assert.Zero(t, headerWait(h, contract.Wait{Header: "X-Reset", Unit: contract.UnixSeconds}, now), "the reset is long past, by the Date %s", date)
	}
}
