package sqlite

import (
	"encoding/hex"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// uriPath reads a file URI as sqlite.org/uri.html says: the name ends at the
// first "?" or "#", %HH is a byte, and a NUL ends what is read.
func uriPath(uri string) (path, query string, ok bool) {
	rest, ok := strings.CutPrefix(uri, "file:")
	if !ok || strings.HasPrefix(rest, "//") { // that would be an authority
		return "", "", false
	}
	var b []byte
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '?':
			return string(b), rest[i+1:], true
		case c == '#':
			return string(b), "", true
		case c == '%':
			if i+2 >= len(rest) {
				return "", "", false
			}
			one, err := hex.DecodeString(rest[i+1 : i+3])
			if err != nil || one[0] == 0 {
				return "", "", false
			}
			b, i = append(b, one[0]), i+2
		case c <= ' ' || c >= 0x7f:
			return "", "", false
		default:
			b = append(b, c)
		}
	}
	return string(b), "", true
}

// checkSource: the engine reads the very path, and our settings.
func checkSource(t testing.TB, path, mode string) {
	abs := filepath.Join("/", path) // as locate gives it
	if strings.ContainsRune(abs, 0) || runtime.GOOS == "windows" {
		return
	}
	got, query, ok := uriPath(dataSource(abs, mode))
	require.True(t, ok, "%q", dataSource(abs, mode))
	require.Equal(t, abs, got)
	values, err := url.ParseQuery(query)
	require.NoError(t, err)
	require.Equal(t, url.Values{"mode": {mode}, "_pragma": {"busy_timeout(0)"}, "_error_rc": {"true"}}, values)
}

func FuzzDataSource(f *testing.F) {
	for _, path := range []string{
		"", "a.db", "a?mode=memory", "a#f", "%41", "%", "%zz", "d e", "ünï", "\xff", "*", "//h/x", "file:x", ":memory:", `a\b`, "a&_pragma=x(1)", "a;b", "a+b", "\n", "~", "a=b", "[", "^", "|",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) { checkSource(t, path, "rw") })
}

func TestDataSourceFuzz_PseudoRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 2026))
	t.Log(fuzzed(), "inputs")
	for range fuzzed() {
		b := make([]byte, r.UintN(12))
		for i := range b {
			if b[i] = `?#%&=;:/\ 41fF+*~`[r.IntN(17)]; r.IntN(3) == 0 {
				b[i] = byte(1 + r.UintN(255))
			}
		}
		checkSource(t, string(b), []string{"rw", "ro"}[r.IntN(2)])
	}
}

// fuzzed is how many random inputs a test of that kind tries; more in .ci/run.
func fuzzed() int {
	if os.Getenv("IDEM_FAULTS") == "full" {
		return 200_000
	}
	return 20_000
}
