package idem

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The places where something of a request or an answer may come to be seen.
const (
	inFiles  = "files"  // the raw bytes of the journal and of all that lies beside it
	inLog    = "log"    // Transport.Logger, at debug
	inErrors = "errors" // Error, %+v, wrapped, and all down the chain
	inHooks  = "hooks"  // Observer, Authorize, Verify, OnSettled
	inLists  = "lists"  // Lookup, List, Attempts, Report, Result, Stats
	inExport = "export" // Export, bodies decoded
)

var surfaces = []string{inFiles, inLog, inErrors, inHooks, inLists, inExport}

// marks are a unique text for each part of a call that a journal, or a text,
// might hold, and where it must be found in a journal without a Sealer; it must
// be found nowhere else. With a Sealer it must not be found in the files either.
var marks = map[string][]string{
	// The request's secret headers.
	"authorization": nil,
	"proxyauth":     nil,
	"cookie":        nil,
	"apikey":        nil,
	"authtoken":     nil,
	"clientsecret":  nil,
	"passwordhead":  nil,
	"signature":     nil,
	"sessionid":     nil,
	"jwt":           nil,
	"declared":      nil, // Transport.Secrets

	// Its URL.
	"username":      nil,
	"password":      nil,
	"querykey":      nil,
	"querysig":      nil,
	"querydeclared": nil,
	"query":         {inFiles},
	"host":          {inFiles, inExport},

	// What a base transport adds, shows in its errors, and panics with.
	"oauthbearer":  nil,
	"oauthadded":   nil,
	"proxyuser":    nil,
	"proxypass":    nil,
	"proxyquery":   nil,
	"panic":        nil,
	"authorizeerr": nil,

	// The answers.
	"setcookie":     nil,
	"answertoken":   nil,
	"answersession": nil,
	"locationuser":  nil,
	"locationquery": nil,
	"fragment":      nil,
	"hopquery":      nil, // of a redirect that is followed
	"awayquery":     nil, // of one that is not
	"receiptquery":  nil, // of one that a GET follows
	"passing":       nil, // in the body of an answer that settles nothing
	"cut":           nil, // in one that broke

	// What is kept.
	"header":       {inFiles, inExport},
	"body":         {inFiles, inExport},
	"answerheader": {inFiles, inHooks, inLists, inExport},
	"answer":       {inFiles, inHooks, inLists, inExport},
	"refusal":      {inFiles, inHooks, inLists, inExport},
	"requestid":    {inFiles, inHooks, inLists, inExport},

	// What is readable by design.
	"operation": {inFiles, inLog, inErrors, inHooks, inLists, inExport},
	"scope":     {inFiles, inHooks, inLists, inExport},
	"path":      {inFiles, inLog, inErrors, inHooks, inLists, inExport},
	"note":      {inFiles, inLists, inExport},
}

// readable are those that a Sealer leaves in the files.
var readable = []string{"operation", "scope", "path", "note", "requestid"}

// mark is the text. It is the same in a URL, a header, JSON and lower case.
func mark(name string) string {
	if _, known := marks[name]; !known {
		panic("no mark " + name)
	}
	return "m7" + name + "q9"
}

// holdsMark reports that the text holds the mark, as it is or in base64.
func holdsMark(text []byte, name string) bool {
	text = bytes.ToLower(text)
	if bytes.Contains(text, []byte(mark(name))) {
		return true
	}
	for at := range 3 { // its bytes begin anywhere in a group of three
		padded := append(make([]byte, at), mark(name)...)
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			whole := e.EncodeToString(padded)
			if bytes.Contains(text, []byte(strings.ToLower(whole[(at*8+5)/6:len(padded)*8/6]))) {
				return true
			}
		}
	}
	return false
}

func TestHoldsMarkFindsWhatIsEncoded(t *testing.T) {
	for before := range 4 {
		text := strings.Repeat("x", before) + mark("password") + "tail"
		assert.True(t, holdsMark([]byte(text), "password"))
		assert.True(t, holdsMark([]byte(base64.StdEncoding.EncodeToString([]byte(text))), "password"), before)
		assert.True(t, holdsMark([]byte(strings.ToUpper(text)), "password"))
		assert.False(t, holdsMark([]byte(base64.StdEncoding.EncodeToString([]byte(text))), "passwordhead"), before)
	}
}

// seen are the bytes of one place.
func (w *markWorld) seen(surface string) []byte {
	w.t.Helper()
	root := w.told
	if surface == inFiles {
		root = filepath.Dir(w.path)
	}
	var all []byte
	files := 0
	require.NoError(w.t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || surface != inFiles && d.Name() != surface {
			return err
		}
		b, err := os.ReadFile(path)
		all = append(append(all, b...), path...)
		files++
		return err
	}))
	if surface == inFiles {
		require.GreaterOrEqual(w.t, files, 2, "the journal, and its owner or its log")
	}
	return all
}

// expected are the places where the mark is to be found.
func (w *markWorld) expected(name string) []string {
	where := marks[name]
	if w.options != nil && !slices.Contains(readable, name) {
		where = slices.DeleteFunc(slices.Clone(where), func(s string) bool { return s == inFiles })
	}
	return where
}

// requireNone checks that no mark is where it must not be.
func (w *markWorld) requireNone(step string) {
	w.t.Helper()
	for _, s := range surfaces {
		seen := w.seen(s)
		for name := range marks {
			if !slices.Contains(w.expected(name), s) {
				assert.False(w.t, holdsMark(seen, name), "%s: %s in %s: %s", step, name, s, around(seen, name))
			}
		}
	}
}

// requireAll checks that every mark is where it must be: else the test would not
// see it where it must not be.
func (w *markWorld) requireAll(step string) {
	w.t.Helper()
	for _, s := range surfaces {
		seen := w.seen(s)
		for name := range marks {
			if slices.Contains(w.expected(name), s) {
				assert.True(w.t, holdsMark(seen, name), "%s: %s is not in %s", step, name, s)
			}
		}
	}
}

func around(text []byte, name string) string {
	at := bytes.Index(text, []byte(mark(name)))
	if at < 0 {
		return "encoded"
	}
	return strings.ToValidUTF8(string(text[max(at-120, 0):min(at+60, len(text))]), "?")
}

// decoded is a line of an export with the bodies as they are.
func decoded(tb testing.TB, line string) string {
	tb.Helper()
	var row struct {
		Request, Outcome struct{ Body []byte }
	}
	require.NoError(tb, json.Unmarshal([]byte(line), &row))
	return line + string(row.Request.Body) + string(row.Outcome.Body)
}
