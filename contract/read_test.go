package contract_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/idem-go/idem/contract"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const readKey = "8e03978e-40d5-43dd-bc93-6894a57f9324"

func mustURL(tb testing.TB, target string) *url.URL {
	tb.Helper()
	u, err := url.Parse(target)
	require.NoError(tb, err)
	return u
}

func TestReadTarget(t *testing.T) {
	for _, tt := range []struct {
		name, path, sent, key string
		want                  string // as it goes out
	}{
		{"no read", "", "https://a.example/v1/x", "k", ""},
		{"a path of its own", "/lookup/{key}", "https://a.example/v1/x", "k-1", "https://a.example/lookup/k-1"},
		{"without the key in it", "/last", "https://a.example/v1/x", "k-1", "https://a.example/last"},
		{"below the path", "{path}/{key}", "https://a.example/v1/x", "k-1", "https://a.example/v1/x/k-1"},
		{"final slash", "{path}/{key}", "https://a.example/v1/x/", "k", "https://a.example/v1/x/k"},
		{"no path at all", "{path}/{key}", "https://a.example", "k", "https://a.example/k"},
		{"root", "{path}/{key}", "https://a.example/", "k", "https://a.example/k"},
		{"in the query", "{path}?key={key}", "https://a.example/v1/x", "k-1", "https://a.example/v1/x?key=k-1"},
		{"in the query of the root", "{path}?key={key}", "https://a.example/", "k", "https://a.example?key=k"},
		{"beside other parameters", "/x?a=%7e&key={key}&limit=1", "https://a.example/y", "k", "https://a.example/x?a=%7e&key=k&limit=1"},
		{"twice", "/{key}?key={key}", "https://a.example/y", "k", "https://a.example/k?key=k"},

		{"the request's own query stays", "{path}?key={key}", "https://a.example/x?a=1&secret=2", "k", "https://a.example/x?key=k"},
		{"and its fragment", "{path}/{key}", "https://a.example/x#part", "k", "https://a.example/x/k"},
		{"and its user info", "{path}/{key}", "https://ann:hush@a.example/x", "k", "https://a.example/x/k"},
		{"and a bare user", "{path}/{key}", "https://sk_live_1@a.example/x", "k", "https://a.example/x/k"},
		{"port and scheme", "{path}/{key}", "http://a.example:8080/x", "k", "http://a.example:8080/x/k"},
		{"IPv6", "{path}/{key}", "http://[::1]:8080/x", "k", "http://[::1]:8080/x/k"},

		{"escapes of the path", "{path}/{key}", "https://a.example/a%2Fb/c%20d/%e2%82%ac", "k", "https://a.example/a%2Fb/c%20d/%e2%82%ac/k"},
		{"a question mark in the path", "{path}/{key}", "https://a.example/a%3Fb", "k", "https://a.example/a%3Fb/k"},
		{"key of separators, in the path", "{path}/{key}", "https://a.example/x", "a/b?c#d%e", "https://a.example/x/a%2Fb%3Fc%23d%25e"},
		{"key of separators, in the query", "/x?key={key}", "https://a.example/x", "a/b?c#d%e&f=g+h;i j", "https://a.example/x?key=a%2Fb%3Fc%23d%25e%26f%3Dg%2Bh%3Bi%20j"},
		{"a key that looks like a place", "{path}/{key}", "https://a.example/x", "{path}", "https://a.example/x/%7Bpath%7D"},
		{"and one in the query", "/x?key={key}&again={key}", "https://a.example/x", "{key}", "https://a.example/x?key=%7Bkey%7D&again=%7Bkey%7D"},
		{"a path that looks like one", "{path}/{key}", "https://a.example/%7Bkey%7D", "k", "https://a.example/%7Bkey%7D/k"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sent := mustURL(t, tt.sent)
			before := *sent
			target := contract.Read{Path: tt.path}.Target(sent, tt.key)
			assert.Equal(t, before, *sent, "what was sent is not touched")
			if tt.want == "" {
				require.Nil(t, target)
				return
			}
			require.NotNil(t, target)
			assert.Equal(t, tt.want, target.String())
			assert.Nil(t, target.User)
			assert.Empty(t, target.Fragment)
			assert.Equal(t, sent.Host, target.Host)

			// The server reads the key as it is.
			_, query, _ := strings.Cut(tt.path, "?")
			if strings.Contains(query, "key={key}") {
				assert.Equal(t, tt.key, target.Query().Get("key"))
			}
			path, _, _ := strings.Cut(tt.path, "?")
			if strings.HasSuffix(path, "/{key}") {
				segments := strings.Split(target.EscapedPath(), "/")
				last, err := url.PathUnescape(segments[len(segments)-1])
				require.NoError(t, err)
				assert.Equal(t, tt.key, last, "one segment")
			}
		})
	}
}

func TestReadShows(t *testing.T) {
	list := contract.Read{
		Path:  "/x?key={key}",
		Found: contract.Signal{Status: http.StatusOK, Pointer: "/data/*/key", Value: "{key}"},
	}
	prefixed := list
	prefixed.Found.Value = "ref-{key}"
	marked := list
	marked.Found.Header = contract.Marker{Header: "X-Store", Value: "primary"}
	settled := list
	settled.Found.Also = "/data/0/settled"
	none := contract.Read{Found: list.Found}
	header := http.Header{"X-Store": {"primary"}}
	for _, tt := range []struct {
		name   string
		read   contract.Read
		key    string
		status int
		header http.Header
		body   string
		want   bool
	}{
		{"there", list, "k", 200, nil, `{"data":[{"key":"k"}]}`, true},
		{"among others", list, "k", 200, nil, `{"data":[{"key":"j"},{"key":"k"},{}]}`, true},
		{"none there", list, "k", 200, nil, `{"data":[]}`, false},
		{"another one", list, "k", 200, nil, `{"data":[{"key":"j"}]}`, false},
		{"a longer one", list, "k", 200, nil, `{"data":[{"key":"k2"}]}`, false},
		{"a shorter one", list, "k2", 200, nil, `{"data":[{"key":"k"}]}`, false},
		{"other letters", list, "k", 200, nil, `{"data":[{"key":"K"}]}`, false},
		{"elsewhere", list, "k", 200, nil, `{"key":"k","data":[{"id":"k"}]}`, false},
		{"the place itself", list, "k", 200, nil, `{"data":[{"key":"{key}"}]}`, false},
		{"null", list, "k", 200, nil, `{"data":[{"key":null}]}`, false},
		{"another success", list, "k", 206, nil, `{"data":[{"key":"k"}]}`, false},
		{"a failure", list, "k", 404, nil, `{"data":[{"key":"k"}]}`, false},
		{"a failure of the server", list, "k", 500, nil, `{"data":[{"key":"k"}]}`, false},
		{"no answer", list, "k", 0, nil, ``, false},
		{"half of it", list, "k", 200, nil, `{"data":[{"key":"k"}`, false},
		{"two texts", list, "k", 200, nil, `{"data":[{"key":"k"}]}{}`, false},
		{"no body", list, "k", 200, nil, ``, false},
		{"no key", list, "", 200, nil, `{"data":[{"key":""}]}`, false},
		{"no read", none, "k", 200, nil, `{"data":[{"key":"k"}]}`, false},
		{"the zero read", contract.Read{}, "k", 200, nil, `{"data":[{"key":"k"}]}`, false},
		{"a number", list, "7", 200, nil, `{"data":[{"key":7}]}`, true},
		{"escaped in the body", list, `a"/b`, 200, nil, `{"data":[{"key":"a\"\/\u0062"}]}`, true},
		{"with a prefix", prefixed, "k", 200, nil, `{"data":[{"key":"ref-k"}]}`, true},
		{"without it", prefixed, "k", 200, nil, `{"data":[{"key":"k"}]}`, false},
		{"header too", marked, "k", 200, header, `{"data":[{"key":"k"}]}`, true},
		{"header missing", marked, "k", 200, nil, `{"data":[{"key":"k"}]}`, false},
		{"also there", settled, "k", 200, nil, `{"data":[{"key":"k","settled":true}]}`, true},
		{"also missing", settled, "k", 200, nil, `{"data":[{"key":"k"}]}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.read
			assert.Equal(t, tt.want, tt.read.Shows(tt.key, tt.status, tt.header, []byte(tt.body)))
			assert.Equal(t, before, tt.read, "the next key is looked for as well")
		})
	}
}

func TestValidateRead(t *testing.T) {
	found := contract.Signal{Status: http.StatusOK, Pointer: "/id", Value: "{key}"}
	with := func(path string, change func(*contract.Signal)) func(*c) {
		return func(c *c) {
			c.Read = contract.Read{Path: path, Found: found}
			if change != nil {
				change(&c.Read.Found)
			}
		}
	}
	checkChanges(t, []change{
		{"none", func(c *c) { c.Read = contract.Read{} }, ""},
		{"below the path", with("{path}/{key}", nil), ""},
		{"a path of its own", with("/x/{key}?a=b", nil), ""},
		{"the key in a longer value", with("/x", func(s *contract.Signal) { s.Value = "ref-{key}" }), ""},
		{"a header too", with("/x", func(s *contract.Signal) { s.Header.Header = "X-Store" }), ""},

		{"no path", with("", nil), `Read.Path "" begins neither with "/" nor with "{path}"`},
		{"path without a slash", with("x/{key}", nil), `Read.Path "x/{key}" begins neither`},
		{"another origin", with("https://b.example/{key}", nil), `Read.Path "https://b.example/{key}" begins neither`},
		{"query only", with("?key={key}", nil), `Read.Path "?key={key}" begins neither`},

		{"another key proves", with("/x", func(s *contract.Signal) { s.Value = "done" }), `Read.Found.Value "done" does not have "{key}" in it`},
		{"any value proves", with("/x", func(s *contract.Signal) { s.Value = "" }), `Read.Found.Value "" does not have "{key}" in it`},
		{"the key in its text", with("/x", func(s *contract.Signal) { s.Value, s.Text = "", "{key}" }), `Read.Found.Value "" does not have "{key}" in it`},
		{"no status", with("/x", func(s *contract.Signal) { s.Status = 0 }), `Read.Found.Status 0 is not named`},
		{"a status that is none", with("/x", func(s *contract.Signal) { s.Status = 1000 }), `Read.Found.Status 1000 is not a final status`},
		{"no place for the value", with("/x", func(s *contract.Signal) { s.Pointer = "" }), `Read.Found.Value "{key}" has no Pointer`},
		{"a pointer that is none", with("/x", func(s *contract.Signal) { s.Pointer = "id" }), `Read.Found.Pointer "id"`},
		{"a header that is none", with("/x", func(s *contract.Signal) { s.Header.Header = "X Store" }), `Read.Found.Header.Header "X Store" is not a header name`},
	})

	without := contract.Unsupported.Clone()
	require.NoError(t, without.Validate())
	without.Read = contract.Read{Path: "/x?key={key}", Found: found}
	require.ErrorContains(t, without.Validate(), `Read.Path "/x?key={key}" asks for a key, and the server takes none`)

	bare := contract.Keyed("Idempotency-Key", 0)
	bare.Read.Path = "/x/{key}" // two problems: what shows the effect, and under which status
	err := bare.Validate()
	require.ErrorContains(t, err, "Read.Found.Value")
	require.ErrorContains(t, err, "Read.Found.Status")
}

// The reads that providers publish, for requests that went out.
func TestKnownReads(t *testing.T) {
	for _, tt := range []struct {
		c                *contract.Contract
		sent, want       string
		shows, showsNone string
	}{
		{
			contract.Increase, "https://api.increase.com/account_transfers",
			"https://api.increase.com/account_transfers?idempotency_key=" + readKey,
			`{"data":[{"id":"account_transfer_1","idempotency_key":"` + readKey + `"}],"next_cursor":null}`,
			`{"data":[{"id":"account_transfer_2","idempotency_key":null}],"next_cursor":null}`,
		},
		{
			contract.Increase, "https://ann:hush@sandbox.increase.com/cards/?x=1",
			"https://sandbox.increase.com/cards?idempotency_key=" + readKey,
			`{"data":[{},{"idempotency_key":"` + readKey + `"}]}`, `{"data":[],"idempotency_key":"` + readKey + `"}`,
		},
		{
			contract.LithicPayments, "https://api.lithic.com/v1/payments",
			"https://api.lithic.com/v1/payments/" + readKey,
			`{"token":"` + readKey + `","status":"PENDING"}`, `{"message":"not found"}`,
		},
		{
			contract.LithicPayments, "https://sandbox.lithic.com/v1/book_transfers",
			"https://sandbox.lithic.com/v1/book_transfers/" + readKey,
			`{"token":"` + readKey + `"}`, `{"token":"00000000-40d5-43dd-bc93-6894a57f9324"}`,
		},
	} {
		t.Run(tt.c.Name+" "+tt.sent, func(t *testing.T) {
			require.Same(t, tt.c, contract.Known.Resolve(mustRequest(t, "POST", tt.sent)))
			target := tt.c.Read.Target(mustURL(t, tt.sent), readKey)
			require.NotNil(t, target)
			assert.Equal(t, tt.want, target.String())
			assert.Nil(t, contract.Known.Resolve(mustRequest(t, "GET", target.String())), "a read takes no key")
			assert.True(t, tt.c.Read.Shows(readKey, 200, nil, []byte(tt.shows)))
			assert.False(t, tt.c.Read.Shows(readKey, 200, nil, []byte(tt.showsNone)))
			assert.False(t, tt.c.Read.Shows(readKey, 404, nil, []byte(tt.shows)))
		})
	}
	// A copy reads as the original does.
	copied := contract.Increase.At("127.0.0.1:8080")
	assert.Equal(t, "http://127.0.0.1:8080/x?idempotency_key=k", copied.Read.Target(mustURL(t, "http://127.0.0.1:8080/x"), "k").String())
}

func TestReadPathIsWrittenAsItIsSent(t *testing.T) {
	for path, problem := range map[string]string{
		"/v1/{key}": "", "{path}?key={key}": "", "/a%20b/{key}": "",
		"/by key/{key}": "escape it", "/%zz/{key}": "escape it", "/v1/{key}#top": "escape it", "/v1?in={path}&key={key}": "not replaced",
	} {
		c := contract.Keyed("Idempotency-Key", 0)
		c.Read = contract.Read{Path: path, Found: contract.Signal{Status: 200, Pointer: "/key", Value: "{key}"}}
		err := c.Validate()
		if problem == "" {
			require.NoError(t, err, path)
		} else {
			require.ErrorContains(t, err, problem, path)
		}
	}
}
