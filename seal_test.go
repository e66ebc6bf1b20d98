package idem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sealKeys are keys of these ids.
func sealKeys(ids ...string) map[string][]byte {
	keys := map[string][]byte{}
	for _, id := range ids {
		keys[id] = bytes.Repeat([]byte(id)[:1], 32)
	}
	return keys
}

// sealed are options with these keys, of which the last is the current one.
func sealed(tb testing.TB, ids ...string) *SQLiteOptions {
	tb.Helper()
	s, err := NewAESGCM(sealKeys(ids...), ids[len(ids)-1])
	require.NoError(tb, err)
	return &SQLiteOptions{Sealer: s}
}

// missealed has another key of the first id.
func missealed(tb testing.TB, ids ...string) *SQLiteOptions {
	tb.Helper()
	keys := sealKeys(ids...)
	current := ids[len(ids)-1]
	keys[ids[0]] = bytes.Repeat([]byte("?"), 32)
	s, err := NewAESGCM(keys, current)
	require.NoError(tb, err)
	return &SQLiteOptions{Sealer: s}
}

func TestNewAESGCM(t *testing.T) {
	good := bytes.Repeat([]byte{7}, 32)
	for name, c := range map[string]struct {
		keys    map[string][]byte
		current string
		text    string
	}{
		"no keys":      {nil, "a", `the current key "a" is not among the keys`},
		"no current":   {map[string][]byte{"a": good}, "b", `the current key "b" is not among the keys`},
		"short":        {map[string][]byte{"a": good[:16]}, "a", `key "a" has 16 bytes, not 32`},
		"long":         {map[string][]byte{"a": append(good[:32:32], 1)}, "a", `key "a" has 33 bytes, not 32`},
		"zero":         {map[string][]byte{"a": make([]byte, 32)}, "a", `key "a" is all zeros`},
		"an empty id":  {map[string][]byte{"": good}, "", `the key id "" has 0 bytes, not 1 to 64`},
		"a long id":    {map[string][]byte{strings.Repeat("a", 65): good}, "a", "has 65 bytes, not 1 to 64"},
		"one key, two": {map[string][]byte{"a": good, "b": bytes.Clone(good)}, "a", `the ids "a" and "b" have the same key`},
	} {
		_, err := NewAESGCM(c.keys, c.current)
		require.ErrorContains(t, err, c.text, name)
		assert.NotContains(t, err.Error(), string(good), name)
	}
	keys := sealKeys("a", "b")
	s, err := NewAESGCM(keys, "b")
	require.NoError(t, err)
	clear(keys["b"]) // it is not kept
	seen := map[string]bool{}
	for range 100 {
		id, value, err := s.Seal([]byte("plain"), []byte("of"))
		require.NoError(t, err)
		require.Equal(t, "b", id)
		require.False(t, seen[string(value)], "each has a nonce of its own")
		seen[string(value)] = true
		plain, err := s.Open(id, value, []byte("of"))
		require.NoError(t, err)
		require.Equal(t, "plain", string(plain))
		for _, wrong := range []func() ([]byte, error){
			func() ([]byte, error) { return s.Open("a", value, []byte("of")) },
			func() ([]byte, error) { return s.Open("b", value, []byte("other")) },
			func() ([]byte, error) { return s.Open("b", value[:5], []byte("of")) },
			func() ([]byte, error) { return s.Open("b", nil, []byte("of")) },
		} {
			_, err := wrong()
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrSealed)
		}
		_, err = s.Open("c", value, []byte("of"))
		require.ErrorIs(t, err, ErrSealed)
	}
}

// The parts of a sealed request and its answer that must not be found.
var sealMarkers = []string{
	"M-BODY", "M-QUERY", "M-HEADER", "M-HOST", "M-ANSWER", "M-REFUSAL", "M-HEADBACK", "M-SECRET", "M-USER", "M-SETCOOKIE",
}

// foundIn are the markers in the raw bytes of a folder.
func foundIn(tb testing.TB, root string) (found []string) {
	tb.Helper()
	var all []byte
	require.NoError(tb, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all = append(append(all, b...), path...)
		return err
	}))
	for _, m := range sealMarkers {
		if bytes.Contains(all, []byte(m)) || bytes.Contains(all, []byte(strings.ToLower(m))) {
			found = append(found, m)
		}
	}
	return found
}

// markedRequest has a marker in every part.
func markedRequest(tb testing.TB, i int) *http.Request {
	tb.Helper()
	req := mustRequest(tb, tb.Context(), "http://M-USER:M-USER@provider.example/charges?customer=M-QUERY", `{"card":"M-BODY"}`)
	req.Host = "m-host.example"
	req.Header.Set("X-Customer", "M-HEADER")
	req.Header.Set("Authorization", "Bearer M-SECRET")
	req.Header.Set("Cookie", "s=M-SECRET")
	return req
}

// markedProvider fails once, then settles, refuses, and is not to be reached.
func markedProvider() http.RoundTripper {
	var n atomic.Int64
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, req.Body)
		closeBody(req)
		answer := &http.Response{
			StatusCode: 201, ProtoMajor: 1, ProtoMinor: 1, Request: req, ContentLength: -1, Body: io.NopCloser(strings.NewReader("M-ANSWER")),
			Header: header("X-Back", "M-HEADBACK", "Set-Cookie", "M-SETCOOKIE"),
		}
		switch n.Add(1) {
		case 1:
			answer.StatusCode = 503
		case 3:
			answer.StatusCode, answer.Body = 402, io.NopCloser(strings.NewReader("M-REFUSAL"))
		case 4:
			return nil, errors.New("connection reset")
		}
		return answer, nil
	})
}

func TestO03_SealedFilesHoldNothingOfRequestsAndAnswers(t *testing.T) {
	for name, options := range map[string]*SQLiteOptions{"clear": nil, "sealed": sealed(t, "a")} {
		t.Run(name, func(t *testing.T) {
			r := &rig{tb: t, path: tempJournal(t), options: options, transport: &Transport{
				Contracts: rigContract(), Retry: RetryPolicy{MinBackoff: time.Millisecond, MaxAttempts: 2}, Base: markedProvider(),
			}}
			r.open()
			answer := ""
			for i := range 3 {
				resp, err := r.client.Do(fmt.Sprint("order-", i), markedRequest(t, i))
				if err == nil {
					answer += readAndClose(t, resp)
				}
			}
			require.Contains(t, answer, "M-ANSWER")
			check := func(step string) {
				found := foundIn(t, filepath.Dir(r.path))
				if options != nil {
					assert.Empty(t, found, step)
				} else {
					assert.Subset(t, found, []string{"M-BODY", "M-QUERY", "M-HEADER", "M-HOST", "M-ANSWER", "M-HEADBACK"}, step)
				}
				for _, never := range []string{"M-SECRET", "M-USER", "M-SETCOOKIE"} {
					assert.NotContains(t, found, never, step)
				}
			}
			require.NoError(t, r.journal.Flush(t.Context()))
			check("open")
			r.reopen()
			check("reopened")
			resp, err := r.client.Do("order-0", markedRequest(t, 0)) // from the journal
			require.NoError(t, err)
			assert.Equal(t, "M-ANSWER", readAndClose(t, resp))
			assert.Equal(t, "M-HEADBACK", resp.Header.Get("X-Back"))
			_, err = r.journal.Prune(t.Context(), time.Now().Add(time.Hour))
			require.NoError(t, err)
			check("pruned")
			require.NoError(t, r.journal.Close())
			check("closed")
		})
	}
}

// Of two guesses at a body, the file does not say which one it is.
func TestSealedFingerprintsAreNoDigests(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, sealed(t, "a"))
	in := mustBegin(t, j, newIntent("a"))
	other := newIntent("b")
	mustBegin(t, j, other)
	require.Equal(t, newIntent("a").Fingerprint, in.Fingerprint)
	require.Zero(t, count(t, path, `SELECT count(*) FROM intent WHERE instr(fingerprint, ?)`, in.Fingerprint[:8]))
	require.Equal(t, 2, count(t, path, `SELECT count(DISTINCT fingerprint) FROM intent`), "one request, two rows")
	got, err := j.Lookup(t.Context(), "acct", "a")
	require.NoError(t, err)
	require.Equal(t, in.Fingerprint, got.Fingerprint)
}

// A wrong journal for a sealer, or the other way round, is an error of Open that
// changes nothing.
func TestSealerIsCheckedAtOpen(t *testing.T) {
	path := tempJournal(t)
	j, err := Open(path, sealed(t, "a"))
	require.NoError(t, err)
	mustBegin(t, j, newIntent("a"))
	require.NoError(t, j.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		options *SQLiteOptions
		text    string
	}{
		"none":      {nil, "the journal was made with a Sealer, and is opened without"},
		"no option": {&SQLiteOptions{}, "the journal was made with a Sealer, and is opened without"},
		"missing":   {sealed(t, "b"), `key "a" is not among the keys`},
		"wrong":     {missealed(t, "a"), "the Sealer has another key of that id"},
	} {
		_, err := Open(path, c.options)
		require.ErrorIs(t, err, ErrSealed, name)
		require.ErrorIs(t, err, ErrJournal, name)
		require.ErrorContains(t, err, c.text, name)
		require.ErrorContains(t, err, fmt.Sprintf("%q", path), name)
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after), "changed")

	require.NoError(t, mustOpened(t, path, sealed(t, "a", "b")).Close()) // b is current from now on
	for name, options := range map[string]*SQLiteOptions{
		"the newest is missing": sealed(t, "a"), "the newest is wrong": missealed(t, "b"), "an older one is wrong": missealed(t, "a", "b"),
	} {
		_, err := Open(path, options)
		require.ErrorIs(t, err, ErrSealed, name)
	}
	for _, options := range []*SQLiteOptions{sealed(t, "b", "a"), sealed(t, "b"), sealed(t, "a", "b")} { // not all have changed yet
		require.NoError(t, mustOpened(t, path, options).Close())
	}
	require.Equal(t, 2, count(t, path, `SELECT count(*) FROM meta WHERE name GLOB 'seal *'`))
	damage := inspect(t, path)
	defer damage.Close()
	for _, value := range []string{"", "no base64!", "AA==", "BQ=="} {
		_, err = damage.Exec(`UPDATE meta SET value = ? WHERE name = 'seal 2'`, value)
		require.NoError(t, err)
		_, err = Open(path, sealed(t, "a", "b"))
		require.ErrorIs(t, err, ErrJournal, value)
	}
}

func mustOpened(tb testing.TB, path string, opts *SQLiteOptions) *SQLiteJournal {
	tb.Helper()
	j, err := Open(path, opts)
	require.NoError(tb, err)
	return j
}

// While somebody writes in clear text a journal does not become a sealed one.
func TestSealingWaitsForUnsealedHandles(t *testing.T) {
	path := tempJournal(t)
	plain, err := Open(path, nil)
	require.NoError(t, err)
	_, err = Open(path, sealed(t, "a"))
	require.ErrorIs(t, err, ErrJournal)
	require.ErrorContains(t, err, "another handle has the journal open without a Sealer")
	mustBegin(t, plain, newIntent("a"))
	require.NoError(t, plain.Close())
	j := mustOpen(t, path, sealed(t, "a"))
	mustOpen(t, path, sealed(t, "a"))
	got, err := j.Lookup(t.Context(), "acct", "a")
	require.NoError(t, err)
	require.Equal(t, newIntent("a").Fingerprint, got.Fingerprint)
}

// kill and resume: what a dead process left sealed is finished by the next one.
func TestSealedKillAndResume(t *testing.T) {
	for _, die := range []string{"recorded", "answered"} {
		t.Run(die, func(t *testing.T) {
			r := newRealRig(t)
			r.path, r.options = tempJournal(t), sealed(t, "a", "b")
			p := startChild(t, "call sealed", r.path, r.url, "order-77/charge", orderBody(77), "1", die)
			p.killed()
			_, err := Open(r.path, nil)
			require.ErrorIs(t, err, ErrSealed)
			r.open()
			report, err := r.client.Resume(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, report.Settled)
			r.settledOnce()
			require.Equal(t, orderBody(77), string(r.arrivals()[0].Body))
		})
	}
}

// An error tells two requests apart, and nothing of their digests.
func TestMismatchShowsNoDigest(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		_, _, err := r.do(t.Context(), "order-1", `{"pin":1234}`)
		require.NoError(t, err)
		first := r.lookup("order-1").Fingerprint
		_, _, err = r.do(t.Context(), "order-1", `{"pin":1235}`)
		require.ErrorIs(t, err, ErrMismatch)
		require.NotContains(t, err.Error(), fmt.Sprintf("%x", first[:4]))
		require.Regexp(t, `POST http://provider.example/charges \([0-9a-f]{8}\), which is succeeded; this call is POST http://provider.example/charges \([0-9a-f]{8}\);`, err.Error())
		shown := regexp.MustCompile(`\(([0-9a-f]{8})\)`).FindAllStringSubmatch(err.Error(), -1)
		require.NotEqual(t, shown[0][1], shown[1][1])
	})
}
