package idem

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// double is a provider that reads requests with the standard library only, and
// loses as many answers as it is told to.
type double struct {
	*httptest.Server
	mu   sync.Mutex
	lose int
	got  []doubled
}

// doubled is one arrival as it came off the wire.
type doubled struct {
	method, uri, body string
	header            http.Header
}

func newDouble(t *testing.T, lose int) *double {
	d := &double{lose: lose}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		d.mu.Lock()
		d.got = append(d.got, doubled{r.Method, r.RequestURI, string(body), r.Header.Clone()})
		lost := len(d.got) <= d.lose
		d.mu.Unlock()
		if lost {
			panic(http.ErrAbortHandler) // the connection is cut, after the effect
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *double) arrivals() []doubled {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]doubled(nil), d.got...)
}

func (d *double) host() string { return strings.TrimPrefix(d.URL, "http://") }

// client is a client of d under c, over a new journal.
func (d *double) client(t *testing.T, c *contract.Contract) *Client {
	t.Helper()
	journal, err := Open(filepath.Join(t.TempDir(), "journal.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, journal.Close()) })
	return NewClient(&Transport{
		Journal: journal, Contracts: c.At(d.host()),
		Retry: RetryPolicy{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
	})
}

// keyPlaces are the places where a key can go, each with a request that has
// none, and how a provider finds it.
var keyPlaces = []struct {
	name, path, contentType, body string
	contract                      contract.Contract
	find                          func(t *testing.T, a doubled) string
	blank                         func(key string) (path, body string) // the request with the key put in
}{
	{
		name: "header", path: "/charges", contentType: "application/json", body: `{"amount":4200}`,
		contract: contract.Contract{Key: contract.Place{Header: "X-Request-Id"}},
		find:     func(_ *testing.T, a doubled) string { return a.header.Get("X-Request-Id") },
		blank:    func(string) (string, string) { return "/charges", `{"amount":4200}` },
	},
	{
		name: "structured-field string", path: "/charges", contentType: "application/json", body: `{"amount":4200}`,
		contract: contract.Contract{Key: contract.Place{Header: "Idempotency-Key", Encoding: contract.Quoted}},
		find: func(t *testing.T, a doubled) string {
			var key string // the characters of a UUID are the same in JSON and in RFC 9651
			require.NoError(t, json.Unmarshal([]byte(a.header.Get("Idempotency-Key")), &key))
			return key
		},
		blank: func(string) (string, string) { return "/charges", `{"amount":4200}` },
	},
	{
		name: "JSON member", path: "/charges", contentType: "application/json", body: "{\n  \"amount\": 42.00\n}",
		contract: contract.Contract{Key: contract.Place{Pointer: "/idempotency_key"}},
		find: func(t *testing.T, a doubled) string {
			var body struct {
				Key    string `json:"idempotency_key"`
				Amount json.Number
			}
			require.NoError(t, json.Unmarshal([]byte(a.body), &body))
			require.Equal(t, "42.00", body.Amount.String())
			return body.Key
		},
		blank: func(key string) (string, string) {
			return "/charges", "{\n  \"idempotency_key\":\"" + key + "\",\"amount\": 42.00\n}"
		},
	},
	{
		name: "GraphQL variable", path: "/graphql", contentType: "application/json",
		body:     `{"query":"mutation($input: Charge!){charge(input:$input){id}}","variables":{"input":{"amount":42}}}`,
		contract: contract.Contract{Key: contract.Place{Pointer: "/variables/input/idempotencyKey"}},
		find: func(t *testing.T, a doubled) string {
			var body struct {
				Variables struct {
					Input struct{ IdempotencyKey string }
				}
			}
			require.NoError(t, json.Unmarshal([]byte(a.body), &body))
			return body.Variables.Input.IdempotencyKey
		},
		blank: func(key string) (string, string) {
			return "/graphql", `{"query":"mutation($input: Charge!){charge(input:$input){id}}","variables":{"input":{"idempotencyKey":"` +
				key + `","amount":42}}}`
		},
	},
	{
		name: "form parameter", path: "/charges", contentType: "application/x-www-form-urlencoded", body: "amount=42&note=a+b%20c",
		contract: contract.Contract{Key: contract.Place{Param: "ClientToken"}},
		find: func(t *testing.T, a doubled) string {
			form, err := url.ParseQuery(a.body)
			require.NoError(t, err)
			return form.Get("ClientToken")
		},
		blank: func(key string) (string, string) { return "/charges", "amount=42&note=a+b%20c&ClientToken=" + key },
	},
	{
		name: "query parameter", path: "/charges?b=%7e&a=1", contentType: "application/octet-stream", body: "\x00\xff",
		contract: contract.Contract{Key: contract.Place{Param: "requestId"}},
		find: func(t *testing.T, a doubled) string {
			u, err := url.ParseRequestURI(a.uri)
			require.NoError(t, err)
			return u.Query().Get("requestId")
		},
		blank: func(key string) (string, string) { return "/charges?b=%7e&a=1&requestId=" + key, "\x00\xff" },
	},
}

func placed(tb testing.TB, base, path, contentType, body string) *http.Request {
	tb.Helper()
	req, err := http.NewRequest(http.MethodPost, base+path, strings.NewReader(body))
	require.NoError(tb, err)
	req.Header.Set("Content-Type", contentType)
	return req
}

// The answer is lost twice, so that the request goes out three times: the same
// bytes, with the same key where the provider looks for it, and nothing else of
// the request has moved.
func TestPlaces_LostAnswer(t *testing.T) {
	for _, p := range keyPlaces {
		t.Run(p.name, func(t *testing.T) {
			c := p.contract
			c.Name, c.Retention = "double", 24*time.Hour
			d := newDouble(t, 2)
			client := d.client(t, &c)
			resp, err := client.Do("order-1", placed(t, d.URL, p.path, p.contentType, p.body))
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, resp.StatusCode)
			readAndClose(t, resp)

			all := d.arrivals()
			require.Len(t, all, 3)
			key := p.find(t, all[0])
			require.Len(t, key, 36)
			path, body := p.blank(key)
			for _, a := range all {
				assert.Equal(t, path, a.uri)
				assert.Equal(t, body, a.body)
				assert.Equal(t, key, p.find(t, a))
			}
			in, err := client.Lookup(context.Background(), "order-1")
			require.NoError(t, err)
			assert.Equal(t, key, in.Key)
			assert.Equal(t, c.Key, in.Place)

			// Called again it is the same request, with or without a key of its own.
			resp, err = client.Do("order-1", placed(t, d.URL, p.path, p.contentType, p.body))
			require.NoError(t, err)
			readAndClose(t, resp)
			require.Len(t, d.arrivals(), 3)
		})
	}
}

// An SDK mints a key into the body or the URL: it is adopted the first time, and
// the journaled one wins over the fresh one of the next process.
func TestPlaces_KeyOfAnSDK(t *testing.T) {
	const first, second = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	for _, p := range keyPlaces {
		if p.contract.Key.Header != "" {
			continue // see TestO12
		}
		t.Run(p.name, func(t *testing.T) {
			c := p.contract
			c.Name, c.Retention = "double", 24*time.Hour
			d := newDouble(t, 3)
			client := d.client(t, &c)
			client.Transport.Retry.MaxAttempts = 3
			path, body := p.blank(first)
			_, err := client.Do("order-1", placed(t, d.URL, path, p.contentType, body))
			require.ErrorIs(t, err, ErrUnknownOutcome)
			path, body = p.blank(second)
			resp, err := client.Do("order-1", placed(t, d.URL, path, p.contentType, body))
			require.NoError(t, err)
			readAndClose(t, resp)
			require.Len(t, d.arrivals(), 4)
			for _, a := range d.arrivals() {
				assert.Equal(t, first, p.find(t, a))
				assert.Equal(t, d.arrivals()[0].body, a.body)
				assert.Equal(t, d.arrivals()[0].uri, a.uri)
			}

			// Without a name, the key is the identity, and nothing goes out again.
			var result Result
			path, body = p.blank(first)
			req := placed(t, d.URL, path, p.contentType, body)
			_, err = client.HTTPClient().Do(req.WithContext(WithResult(context.Background(), &result)))
			require.ErrorIs(t, err, ErrMismatch, "the named operation has this key")
			path, body = p.blank("33333333-3333-4333-8333-333333333333")
			for range 2 {
				req := placed(t, d.URL, path, p.contentType, body)
				resp, err := client.HTTPClient().Do(req.WithContext(WithResult(context.Background(), &result)))
				require.NoError(t, err)
				readAndClose(t, resp)
			}
			require.True(t, result.Recorded)
			require.Len(t, d.arrivals(), 5)
		})
	}
}

// What cannot carry the key is refused before an intent exists, and the reason
// says which place it is.
func TestPlaces_Refused(t *testing.T) {
	pointer := contract.Place{Pointer: "/idempotency_key"}
	const jsonType, formType = "application/json", "application/x-www-form-urlencoded"
	for _, tt := range []struct {
		name, contentType, body, says string
		place                         contract.Place
		form                          contract.Form
		header                        http.Header
		path                          string
	}{
		{name: "no body", place: pointer, contentType: jsonType, says: "/idempotency_key"},
		{name: "an array", place: pointer, contentType: jsonType, body: `[1]`, says: "/idempotency_key"},
		{name: "no JSON", place: pointer, contentType: jsonType, body: `{"a":`, says: "/idempotency_key"},
		{name: "a form", place: pointer, contentType: formType, body: `a=1`, says: "/idempotency_key"},
		{name: "compressed", place: pointer, contentType: jsonType, body: `{}`, header: http.Header{"Content-Encoding": {"gzip"}}, says: "compressed"},
		{name: "no object around it", place: contract.Place{Pointer: "/variables/input/key"}, contentType: jsonType, body: `{"variables":{}}`, says: "/variables/input"},
		{name: "twice", place: pointer, contentType: jsonType, body: `{"idempotency_key":"aaaa","idempotency_key":"bbbb"}`, says: "more than one"},
		{name: "no text", place: pointer, contentType: jsonType, body: `{"idempotency_key":{"a":1}}`, says: "/idempotency_key"},
		{name: "not a UUID", place: pointer, form: contract.UUID, contentType: jsonType, body: `{"idempotency_key":"order-1"}`, says: "not a UUID"},
		{name: "a parameter twice", place: contract.Place{Param: "key"}, contentType: formType, body: `key=1&key=2`, says: "more than once"},
		{name: "in the form and the query", place: contract.Place{Param: "key"}, contentType: formType, body: `key=1`, path: "?key=2", says: "more than once"},
		{name: "an issued key is missing", place: pointer, form: contract.Issued, contentType: jsonType, body: `{"a":1}`, says: "issued"},
		{name: "a digest of the body", place: pointer, contentType: jsonType, body: `{}`, header: http.Header{"Content-Digest": {"sha-256=:AAAA:"}}, says: "Content-Digest"},
		{name: "a signature over it", place: contract.Place{Param: "ClientToken"}, contentType: formType, body: `a=1`, header: http.Header{"Authorization": {"AWS4-HMAC-SHA256 Credential=x"}}, says: "Authorization"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDouble(t, 0)
			client := d.client(t, &contract.Contract{Name: "double", Key: tt.place, Form: tt.form})
			req := placed(t, d.URL, "/charges"+tt.path, tt.contentType, tt.body)
			for name, values := range tt.header {
				req.Header[name] = values
			}
			_, err := client.Do("order-1", req)
			require.ErrorIs(t, err, ErrNotSent)
			require.ErrorContains(t, err, tt.says)
			require.NotContains(t, err.Error(), "bbbb")
			require.Empty(t, d.arrivals())
			_, err = client.Lookup(context.Background(), "order-1")
			require.ErrorIs(t, err, ErrNotFound)
		})
	}
}

// An issued key says what the request is about: another one is another request.
func TestPlaces_IssuedKey(t *testing.T) {
	d := newDouble(t, 1)
	client := d.client(t, &contract.Contract{
		Name: "double", Key: contract.Place{Pointer: "/authorization_id"}, Form: contract.Issued, Retention: time.Hour,
	})
	resp, err := client.Do("payout-1", placed(t, d.URL, "/transfer/create", "application/json", `{"authorization_id":"auth-1"}`))
	require.NoError(t, err)
	readAndClose(t, resp)
	_, err = client.Do("payout-1", placed(t, d.URL, "/transfer/create", "application/json", `{"authorization_id":"auth-2"}`))
	require.ErrorIs(t, err, ErrMismatch)
	require.Len(t, d.arrivals(), 2)
	require.Equal(t, d.arrivals()[0].body, d.arrivals()[1].body)
}

// A redirect's target gets the key into its query, in place of whatever is there.
func TestPlaces_RedirectedParameter(t *testing.T) {
	var uris []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uris = append(uris, r.RequestURI)
		if len(uris) == 1 {
			http.Redirect(w, r, "/moved?requestId=other&x=1", http.StatusTemporaryRedirect)
		}
	}))
	defer server.Close()
	d := &double{Server: server}
	client := d.client(t, &contract.Contract{Name: "double", Key: contract.Place{Param: "requestId"}, Retention: time.Hour})
	resp, err := client.Do("order-1", placed(t, server.URL, "/charges", "application/json", `{}`))
	require.NoError(t, err)
	readAndClose(t, resp)
	in, err := client.Lookup(context.Background(), "order-1")
	require.NoError(t, err)
	require.Equal(t, []string{"/charges?requestId=" + in.Key, "/moved?requestId=" + in.Key + "&x=1"}, uris)
}

// A second idem layer below passes the attempt through, wherever the key is.
func TestPlaces_NestedLayers(t *testing.T) {
	d := newDouble(t, 1)
	c := &contract.Contract{Name: "double", Key: contract.Place{Pointer: "/key"}, Retention: time.Hour}
	client, below := d.client(t, c), d.client(t, c)
	client.Transport.Base = below.Transport
	resp, err := client.Do("order-1", placed(t, d.URL, "/charges", "application/json", `{}`))
	require.NoError(t, err)
	readAndClose(t, resp)
	require.Len(t, d.arrivals(), 2)
	list, err := below.Transport.Journal.List(context.Background(), Filter{})
	require.NoError(t, err)
	require.Empty(t, list)
}

// What is not journaled gets the body back that was read in search of a key.
func TestPlaces_PassesUnjournaled(t *testing.T) {
	d := newDouble(t, 0)
	client := d.client(t, &contract.Contract{
		Name: "double", Key: contract.Place{Pointer: "/key"}, Methods: []string{http.MethodPut, http.MethodPost},
	})
	req := placed(t, d.URL, "/things/1", "application/json", `{"a":1}`)
	req.Method = http.MethodPut
	resp, err := client.HTTPClient().Do(req)
	require.NoError(t, err)
	require.Same(t, req, resp.Request)
	readAndClose(t, resp)
	resp, err = client.HTTPClient().Do(placed(t, d.URL, "/token", "application/x-www-form-urlencoded", `grant_type=client_credentials`))
	require.NoError(t, err)
	readAndClose(t, resp)
	all := d.arrivals()
	require.Len(t, all, 2)
	require.Equal(t, `{"a":1}`, all[0].body)
	require.Equal(t, `grant_type=client_credentials`, all[1].body)
	list, err := client.Transport.Journal.List(context.Background(), Filter{})
	require.NoError(t, err)
	require.Empty(t, list)
}

// Companions: one is frozen at the first send, however long ago that was, the
// other is that of the attempt; both take the caller's place.
func TestPlaces_Companions(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c := &contract.Contract{
			Name: "double", Key: contract.Place{Header: "Repeatability-Request-ID"}, Retention: 24 * time.Hour,
			Companions: []contract.Companion{
				{Header: "Repeatability-First-Sent", Value: contract.HTTPDate},
				{Header: "Webhook-Timestamp", Value: contract.UnixTime, PerAttempt: true},
			},
		}
		r := newRigFor(t, c)
		var firsts, attempts []string
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			firsts = append(firsts, req.Header["Repeatability-First-Sent"]...)
			attempts = append(attempts, req.Header["Webhook-Timestamp"]...)
			if len(firsts) < 3 {
				return nil, io.ErrUnexpectedEOF
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
		})
		r.transport.Retry.MaxAttempts = 2
		start := time.Now()
		request := func() *http.Request {
			req := mustRequest(t, context.Background(), rigURL, `{}`)
			req.Header["repeatability-first-sent"] = []string{"the caller's own"}
			return req
		}
		_, err := r.client.Do("order-1", request())
		require.ErrorIs(t, err, ErrUnknownOutcome)
		time.Sleep(3 * time.Hour)
		r.reopen()
		resp, err := r.client.Do("order-1", request())
		require.NoError(t, err)
		readAndClose(t, resp)
		frozen := start.UTC().Format(http.TimeFormat)
		require.Equal(t, []string{frozen, frozen, frozen}, firsts)
		require.Len(t, attempts, 3)
		require.NotEqual(t, attempts[0], attempts[2])
	})
}
