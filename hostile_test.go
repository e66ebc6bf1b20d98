package idem

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a server sends is taken as hostile: bounded where it is kept, escaped
// where it is shown.

// requireFit checks a text that is shown or stored.
func requireFit(t *testing.T, text string, longest int) {
	t.Helper()
	require.LessOrEqual(t, len(text), longest)
	for _, r := range text {
		require.True(t, unicode.IsPrint(r), "%q", text)
	}
}

func TestTextsAreFitToBeShown(t *testing.T) {
	req := mustRequest(t, t.Context(), "http://bob%21:pass%2Fw0rd@provider.example/charges?api_key=qsecret1&x=%22a%22", `{"a":"b"}`)
	req.Header.Set("Authorization", "Digest username=\"someone1\", response=\"0123456789ab\"")
	req.Header.Set("Cookie", "a=1; sid=cookievalue")
	req.Header.Set("X-Order", "order-header-1")
	req.Header.Set("X-Short-Key", "abc")
	for given, want := range map[string]string{
		"plain text":                                     "plain text",
		"basic authentication failed":                    "basic authentication failed",
		"token expired: bearer of bad news":              "token expired: bearer of bad news",
		"open key: permission denied":                    "open key: permission denied",
		"what? a=b, or #1":                               "what? a=b, or #1",
		"two\nlines\x1b[31m\x00\xff\u202e\u00e9":         `two\nlines\x1b[31m\x00\xff\u202eé`,
		"Get \"https://u:p@h.example/a?t=1#x\"":          `Get "https://[user]@h.example/a?[query]"`,
		"at //h/a?code=1&b=2 again":                      "at //h/a?[query] again",
		"at /cb#access_token=1 again":                    "at /cb?[query] again",
		"http://u:p/w@h/":                                "http://[user]@h/",
		"Authorization: Bearer abc.DEF-012345==":         "Authorization: Bearer [credential]",
		`{"access_token":"abcdefgh1","a":"b1234567890"}`: `{"access_token":"[credential]","a":"b1234567890"}`,
		"map[X-Api-Key:[sk_live_12345] X-Other:[v1]]":    "map[X-Api-Key:[[credential]] X-Other:[v1]]",
		"pass/w0rd and pass%2Fw0rd of bob! and bob%21":   "[user] and [user] of [user] and [user]",
		"sid cookievalue is old":                         "sid [credential] is old",
		"bad response 0123456789ab of someone1":          "bad response [credential] of [credential]",
		"qsecret1 is no key":                             "[query] is no key",
		"order-header-1 is unknown":                      "[header] is unknown",
		`cannot send {"a":"b"} nor "{\"a\":\"b\"}"`:      `cannot send [body] nor "[body]"`,
		"key-of-operation-1 is used":                     "[key] is used",
		"abc":                                            "abc", // too short to be looked for
	} {
		err := safe(errors.New(given), hidden{req: req, body: []byte(`{"a":"b"}`), key: "key-of-operation-1"})
		assert.Equal(t, want, err.Error())
		requireFit(t, err.Error(), longestText+3)
	}
	inner := &noisy{errors.New("https://u:p@h/\n" + strings.Repeat("é\x1b", 1<<20))}
	err := safe(fmt.Errorf("no luck: %w", inner), hidden{})
	requireFit(t, err.Error(), longestText+3)
	require.ErrorIs(t, err, inner.error)
	var found *noisy
	require.ErrorAs(t, err, &found, "by type")
	require.NoError(t, errors.Unwrap(err), "a logger that goes down the chain must not print what it stands for")
	assert.Nil(t, safe(nil, hidden{}))
	same := errors.New("as it is")
	assert.Same(t, same, safe(same, hidden{}))
}

type noisy struct{ error }

func (n *noisy) Unwrap() error { return n.error }

// hostileHeader is too much, and holds what must not be kept.
func hostileHeader(req *http.Request) http.Header {
	h := header("Content-Type", "text/plain", "X-Small", "kept", "Retry-After", "1", "Retry-After", "999999999999999999999999", "Retry-After", "-1",
		"X-Esc", "\x1b]0;title\a", "Request-Id", "\x1b[2J", "X-Request-Id", "req "+req.Header.Get("X-Api-Key"))
	h.Set("X-Echo-Key", "you sent "+req.Header.Get("X-Api-Key"))
	h.Set("Idempotency-Key", req.Header.Get("Idempotency-Key"))
	h.Set("X-Echo-Idempotency", "it was "+req.Header.Get("Idempotency-Key"))
	for i := range 40 {
		h.Set(fmt.Sprint("X-Large-", i), strings.Repeat("x", 8<<10))
	}
	for range 2000 {
		h.Add("X-Many", "twelve bytes")
	}
	return h
}

func TestHeadersOfAnAnswerAreBounded(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Base = answering(func(req *http.Request) *http.Response {
			return &http.Response{StatusCode: 402, Header: hostileHeader(req), Body: io.NopCloser(strings.NewReader("no")), ContentLength: 2}
		})
		send := func() *http.Response {
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			req.Header.Set("X-Api-Key", "sk_live_1234567890")
			resp, err := r.client.Do("order-1", req)
			require.NoError(t, err)
			require.Equal(t, "no", readAndClose(t, resp))
			return resp
		}
		assert.Len(t, send().Header["X-Many"], 2000, "the caller gets it all")
		in := r.lookup("order-1")
		size := 0
		for name, values := range in.Outcome.Header {
			size += sizeOf(name, values)
			for _, v := range values {
				assert.NotContains(t, v, "sk_live_1234567890", name)
			}
		}
		assert.LessOrEqual(t, size, maxKeptHeader)
		assert.Greater(t, size, maxKeptHeader/2, "and not thrown away whole")
		assert.Equal(t, "kept", in.Outcome.Header.Get("X-Small"))
		assert.Equal(t, in.Key, in.Outcome.Header.Get("Idempotency-Key"))
		assert.Empty(t, in.Outcome.RequestID, "neither a terminal's command nor a credential")
		assert.Equal(t, "kept", send().Header.Get("X-Small"), "from the journal")
		var b bytes.Buffer
		require.NoError(t, r.journal.Export(t.Context(), &b))
		assert.NotContains(t, b.String(), "\x1b")
		assert.NotContains(t, b.String(), "sk_live")
	})
}

func TestLinksWithCredentialsAreNotKept(t *testing.T) {
	for value, kept := range map[string]bool{
		"/charges/1":                           true,
		"https://api.example/charges?expand=a": true,
		"https://api.example/@bob":             true,
		"<https://a.example/?page=2>; rel=\"next\", <https://a.example/?token=x>; rel=\"last\"": false,
		"https://u:p@api.example/":          false,
		"https://user@api.example":          false,
		"/charges/1?a=b&access_token=x":     false,
		"/charges/1?token=":                 true,
		"/cb#id_token=x":                    false,
		"0;url=https://a.example/?s%69g=xy": false,
	} {
		got := keptHeader(header("Location", value), nil, "", nil)
		assert.Equal(t, kept, got.Get("Location") == value, value)
		assert.Equal(t, kept, len(got) == 1, value)
	}
}

// A body that unfolds to a thousand times its size costs no memory.
func TestCompressedBombIsBounded(t *testing.T) {
	const unfolded = 64 << 20
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range unfolded / len(zeros) {
		_, err := z.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	for _, status := range []int{201, 402, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				w.WriteHeader(status)
				_, _ = w.Write(bomb.Bytes())
			}))
			defer server.Close()
			r := newRig(t)
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			r.transport.Base = base
			r.transport.Retry = RetryPolicy{MinBackoff: time.Millisecond, MaxAttempts: 2}
			n := int64(0)
			resp, err := r.client.Do("order-1", mustRequest(t, t.Context(), server.URL, orderBody(1)))
			if status == 503 {
				var failure *OperationError
				require.ErrorAs(t, err, &failure)
				resp = failure.Response
			} else {
				require.NoError(t, err)
			}
			n, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, resp.Body.Close())
			in := r.lookup("order-1")
			if status == 503 {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.LessOrEqual(t, n, int64(defaultMaxBody), "an error holds no more than is kept")
				require.Nil(t, in.Outcome)
				return
			}
			require.NoError(t, err)
			require.Equal(t, int64(unfolded), n, "it passes through")
			require.False(t, in.Outcome.Complete)
			require.Empty(t, in.Outcome.Body)
			stats, err := r.journal.Stats(t.Context())
			require.NoError(t, err)
			require.Less(t, stats.FileBytes+stats.WALBytes, int64(1<<20))
		})
	}
}

// Names are the caller's, who may have them from others.
func TestHostileNamesAreEscaped(t *testing.T) {
	virtually(t, func(t *testing.T) {
		name := "order-1\n\x1b[2J\u202e\"'; DROP TABLE intent; --\xff\x00\r\nlevel=INFO msg=forged " + strings.Repeat("n", 2000)
		r := newRig(t)
		var log bytes.Buffer
		r.transport.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			closeBody(req)
			return nil, errors.New("broken\npipe\x1b[31m")
		})
		r.transport.Retry.MaxAttempts = 2
		_, _, err := r.do(t.Context(), name, orderBody(1))
		requireUnknown(t, err, StateUnknown)
		requireFit(t, err.Error(), 1<<16)
		_, _, err = r.do(t.Context(), name, orderBody(2))
		require.ErrorIs(t, err, ErrMismatch)
		requireFit(t, err.Error(), 1<<16)
		for line := range strings.Lines(log.String()) {
			requireFit(t, strings.TrimSuffix(line, "\n"), 1<<16)
			require.True(t, strings.HasPrefix(line, "time="), "no line of its own: %s", line)
		}
		require.NotContains(t, log.String(), "\nlevel=")
		in := r.lookup(name)
		assert.Equal(t, name, in.Operation, "as it was given")
		attempts, err := r.journal.Attempts(t.Context(), in)
		require.NoError(t, err)
		require.Len(t, attempts, 2)
		for _, a := range attempts {
			requireFit(t, a.Error, longestText+3)
		}
		var b bytes.Buffer
		require.NoError(t, r.journal.Export(t.Context(), &b))
		require.Equal(t, 1, strings.Count(b.String(), "\n"))
		require.True(t, json.Valid(b.Bytes()))
	})
}
