package idem

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

func TestNamesOfSecretParameters(t *testing.T) {
	for _, name := range []string{
		"api_key", "apiKey", "APIKEY", "access_token", "sig", "X-Amz-Signature", "X-Amz-Credential", "auth[token]", "userPin", "otp", "client_secret", "mine",
	} {
		assert.True(t, isSecret(name, []string{"MINE"}), name)
	}
	for _, name := range []string{
		"Idempotency-Key", "X-Idempotency-Key", "idempotencyKey", "idempotence_key", "customer", "design", "signal", "pinned", "Accept", "passage", "spin",
		"", "é", "[]", "a-b_c.d",
		"Accept-Encoding", "Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Request-Id", "Server", "User-Agent", "Vary",
	} {
		assert.False(t, isSecret(name, nil), name)
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		isSecret("X-Amz-Content-Sha256", nil)
		isSecret("Idempotency-Key", nil)
		isSecret("X-Customer-Reference", []string{"Mine"})
	}), "it is asked of each header several times a call")
}

func TestQueryIsWithheldValueByValue(t *testing.T) {
	for _, c := range []struct{ query, stored, names, shown string }{
		{"", "", "", ""},
		{"a=1&b=2", "a=1&b=2", "", "a=1&b=2"},
		{"token=x", "token=\x1a", "URL query token", ""},
		{"a=1&api_key=x%20y&b=%zz", "a=1&api_key=\x1a&b=%zz", "URL query api_key", "a=1&b=%zz"},
		{"to%6ben=x&token=&token=y&&token", "to%6ben=\x1a&token=&token=\x1a&&token", "URL query token", "token=&&token"},
		{"sig=a=b&Sig=c", "sig=\x1a&Sig=\x1a", "URL query sig URL query Sig", ""},
		{"key=kk&token=t", "key=kk&token=\x1a", "URL query token", "key=kk"}, // key is the idempotency key's place
		{"m%20y%0atoken=1", "m%20y%0atoken=\x1a", "URL query m+y%0Atoken", ""},
	} {
		u := &url.URL{RawQuery: c.query}
		stored, names := withhold(u, "key", nil)
		assert.Equal(t, c.stored, stored.RawQuery, c.query)
		assert.Equal(t, c.names, strings.Join(names, " "), c.query)
		assert.Equal(t, c.shown, withoutLeft(stored.RawQuery), c.query)
		assert.Equal(t, c.query, u.RawQuery, "the caller's is not touched")
		filled, missing := fill(stored.RawQuery, c.query)
		assert.Equal(t, c.query, filled)
		assert.Empty(t, missing)
	}
	filled, missing := fill("a=1&token=\x1a&b=2&token=\x1a&sig=\x1a", "sig=s&b=3&token=1&token=&token=2")
	assert.Equal(t, "a=1&token=1&b=2&token=2&sig=s", filled)
	assert.Empty(t, missing)
	_, missing = fill("token=\x1a&token=\x1a", "token=1&token=")
	assert.Equal(t, "token", missing, "two were sent")
}

// What is left out of any query is put back in as it was, and is not there
// before.
func TestQueryComesBackWhole_Fuzz(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 13))
	parts := []string{"a", "token", "%74oken", "=", "&", "=", "&", "", "x", "%", "%zz", "#", "?", "/", ";", "é", "\xff", "SECRET", "SECRET2", "+", "sig"}
	for range fuzzed() {
		var b strings.Builder
		for range rnd.IntN(12) {
			b.WriteString(parts[rnd.IntN(len(parts))])
		}
		query := b.String()
		stored, names := withhold(&url.URL{RawQuery: query}, "", nil)
		require.Equal(t, len(names) > 0, leaves(stored.RawQuery), query)
		filled, missing := fill(stored.RawQuery, query)
		require.Empty(t, missing, query)
		require.Equal(t, query, filled)
		require.False(t, leaves(withoutLeft(stored.RawQuery)), query)
		for pair := range strings.SplitSeq(stored.RawQuery, "&") {
			if name, value, _ := strings.Cut(pair, "="); value != "" && value != left {
				decoded, err := url.QueryUnescape(name)
				require.False(t, err == nil && isSecret(decoded, nil), query)
			}
		}
		back, err := parseStored(storedURL(&url.URL{Scheme: "http", Host: "h", Path: "/p", RawQuery: stored.RawQuery}))
		require.NoError(t, err)
		require.Equal(t, stored.RawQuery, back.RawQuery, "as it is stored")
	}
}

// secretQuery is a call that failed once, with a credential in its query.
func secretQuery(t *testing.T, opts *SQLiteOptions) *rig {
	t.Helper()
	r := newRig(t, faultinjection.Status(503))
	if opts != nil {
		require.NoError(t, r.journal.Close())
		r.path, r.options = tempJournal(t), opts
		r.open()
	}
	r.transport.Retry.MaxAttempts = 1
	_, err := r.client.Do("order-1", mustRequest(t, t.Context(), rigURL+"?a=1&api_key=first&b=2", orderBody(1)))
	requireUnknown(t, err, StateUnknown)
	return r
}

func queries(r *rig) (all []string) {
	for _, a := range r.arrivals() {
		all = append(all, a.URI[strings.IndexByte(a.URI, '?')+1:])
	}
	return all
}

// supplyKey is an Authorize that sets the withheld parameter; empty: it does not.
func supplyKey(t *testing.T, query string) func(*http.Request, Intent) error {
	return func(req *http.Request, in Intent) error {
		assert.Equal(t, "a=1&b=2", req.URL.RawQuery, "what Authorize sees")
		assert.Equal(t, []string{"URL query api_key"}, in.Withheld)
		q := req.URL.Query()
		if query != "" {
			q.Set("api_key", query)
		}
		q.Set("a", "changed") // not taken
		req.URL.RawQuery = q.Encode()
		return nil
	}
}

// A request whose query was withheld is sent with a new value in the old place,
// or not at all.
func TestWithheldQueryIsNeverSentBlank(t *testing.T) {
	t.Run("the call itself", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := secretQuery(t, nil)
			_, err := r.client.Do("order-1", mustRequest(t, t.Context(), rigURL+"?a=1&api_key=first&b=2", orderBody(1)))
			require.NoError(t, err)
			assert.Equal(t, []string{"a=1&api_key=first&b=2", "a=1&api_key=first&b=2"}, queries(r))
		})
	})
	t.Run("resumed", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := secretQuery(t, nil)
			r.client.Authorize = supplyKey(t, "")
			r.transport.Retry.ResumeAttempts = 2
			for range 3 {
				_, err := r.client.Resume(t.Context())
				require.NoError(t, err)
				require.True(t, sleep(t.Context(), time.Minute))
			}
			in := r.lookup("order-1")
			assert.Equal(t, HoldCredentials, in.HoldReason)
			_, err := r.client.Release(t.Context(), in, "ops", "")
			require.NoError(t, err)
			_, err = r.client.Continue(t.Context(), "order-1")
			require.ErrorContains(t, err, `the query parameter "api_key" is not stored and was not supplied: Client.Authorize sets it`)
			r.client.Authorize = nil
			_, err = r.client.Continue(t.Context(), "order-1")
			require.ErrorContains(t, err, "credentials are needed anew (URL query api_key): set Client.Authorize")
			assert.Len(t, r.arrivals(), 1, "nothing was sent")
			r.client.Authorize = supplyKey(t, "second+%26")
			requireResumed(t, r, "order-1")
			assert.Equal(t, []string{"a=1&api_key=first&b=2", "a=1&api_key=second%2B%2526&b=2"}, queries(r))
			assert.Equal(t, 1, r.effects())
		})
	})
	t.Run("sealed", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := secretQuery(t, sealed(t, "a"))
			assert.Empty(t, r.lookup("order-1").Withheld)
			requireResumed(t, r, "order-1")
			assert.Equal(t, []string{"a=1&api_key=first&b=2", "a=1&api_key=first&b=2"}, queries(r))
		})
	})
	t.Run("a query that holds the sign", func(t *testing.T) {
		r := newRig(t)
		req := mustRequest(t, context.Background(), rigURL, orderBody(1))
		req.URL.RawQuery = "token=\x1a"
		_, err := r.client.Do("order-1", req)
		require.ErrorIs(t, err, ErrNotSent)
		require.ErrorContains(t, err, "control character in its query")
	})
}

func TestWithheldQueryOfAPreparedRequest(t *testing.T) {
	t.Run("prepared", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			prepare := func() error {
				_, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL+"?a=1&api_key=first&b=2", orderBody(1)))
				return err
			}
			require.ErrorContains(t, prepare(), "its credentials ([URL query api_key]) are not stored")
			r.client.Authorize = supplyKey(t, "second")
			require.NoError(t, prepare())
			requireResumed(t, r, "order-1")
			assert.Equal(t, []string{"a=1&api_key=second&b=2"}, queries(r))
		})
	})
	t.Run("the key is no credential", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			c := rigContract()
			c.Key = contract.Place{Param: "request_key"}
			r := newRigFor(t, c, faultinjection.Status(503))
			r.transport.Retry.MaxAttempts = 1
			_, err := r.client.Do("order-1", mustRequest(t, t.Context(), rigURL+"?a=1", orderBody(1)))
			requireUnknown(t, err, StateUnknown)
			assert.Empty(t, r.lookup("order-1").Withheld)
			requireResumed(t, r, "order-1")
			r.sameKeyAndBytes(2)
		})
	})
}
