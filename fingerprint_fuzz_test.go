package idem

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// printed is a request, in what its fingerprint is to be made of.
type printed struct {
	method, scheme, host, path, query, as, body string // as: the Host header; empty: the URL's
	account, context                            string // scope headers; empty: absent
}

// printedContract has two scope headers, side by side.
func printedContract() *contract.Contract {
	c := contract.Keyed("Idempotency-Key", time.Hour)
	c.ScopeHeaders = []string{"X-Account", "X-Context"}
	return c
}

// request builds it; noise is what the fingerprint must not see.
func (p printed) request(noise bool) *http.Request {
	req := &http.Request{
		Method: p.method, Host: p.as, Header: http.Header{},
		URL: &url.URL{Scheme: p.scheme, Host: p.host, Path: p.path, RawQuery: p.query},
	}
	if req.Host == "" && noise {
		req.Host = p.host
	}
	set := func(name, value string) {
		if value == "" {
			return
		}
		if noise { // spelled as no canonical form does
			req.Header[strings.ToLower(name)] = []string{value}
			return
		}
		req.Header[name] = []string{value}
	}
	set("X-Account", p.account)
	set("X-Context", p.context)
	if noise {
		req.Header.Set("Idempotency-Key", "another key")
		req.Header.Set("Authorization", "Bearer fresh")
		req.Header.Set("X-Trace", "1")
		req.URL.User, req.URL.Fragment = url.UserPassword("u", "p"), "fragment"
		req.URL.Scheme, req.ContentLength = strings.ToUpper(p.scheme), 99
		if p.scheme == "https" && !strings.Contains(p.host, ":") {
			req.URL.Host += ":443"
			if p.as == "" {
				req.Host = req.URL.Host
			}
		}
	}
	return req
}

func (p printed) print(noise bool) []byte {
	return fingerprint(nil, p.request(noise), []byte(p.body), printedContract())
}

// field is one of the parts, to change it.
func (p *printed) field(n int) *string {
	return []*string{&p.method, &p.host, &p.path, &p.query, &p.as, &p.body, &p.account, &p.context}[n%8]
}

// canonical makes those parts equal that name one thing.
func (p printed) canonical() printed {
	p.host = strings.ToLower(p.host)
	p.scheme = strings.ToLower(p.scheme)
	if strings.EqualFold(p.as, p.host) {
		p.as = ""
	}
	return p
}

// checkPrints: what the fingerprint must not see changes nothing, each byte of
// what it must see changes it, and so does a byte that moves to a neighbour.
func checkPrints(t testing.TB, p printed, which, at, bit uint8) {
	if p.path = "/" + p.path; p.host == "" || strings.ContainsAny(p.host, ":[]@/") {
		p.host = "h"
	}
	p.scheme = []string{"http", "https"}[int(bit)%2]
	if (&url.URL{Host: p.host}).Port() != "" {
		return
	}
	first := p.print(false)
	require.Len(t, first, 32)
	require.Equal(t, first, p.print(false), "the same again")
	if p.as == "" {
		require.Equal(t, first, p.print(true), "what it must not see: %+v", p)
	}
	differs := func(q printed, how string) {
		if q.host == "" || strings.ContainsAny(q.host, ":[]@/") || q.canonical() == p.canonical() ||
			(&url.URL{Path: q.path}).EscapedPath() == (&url.URL{Path: p.path}).EscapedPath() && q.path != p.path {
			return
		}
		if bytes.Equal(first, q.print(false)) {
			require.Failf(t, "one fingerprint", "%s: %+v and %+v", how, p, q)
		}
	}
	changed := p
	if s := changed.field(int(which)); *s != "" {
		b := []byte(*s)
		b[int(at)%len(b)] ^= 1 << (bit % 8)
		*s = string(b)
		differs(changed, "a byte changed")
		for n := range 8 { // a byte moves
			moved := p
			from, to := moved.field(int(which)), moved.field(n)
			if from == to {
				continue
			}
			*from, *to = (*from)[:len(*from)-1], (*from)[len(*from)-1:]+*to
			differs(moved, "a byte moved to another field")
			swapped := p
			from, to = swapped.field(int(which)), swapped.field(n)
			*from, *to = *to, *from
			differs(swapped, "two fields change places")
		}
	}
	longer := p
	*longer.field(int(which)) += string([]byte{at})
	differs(longer, "a byte more")
	other := p
	other.scheme = []string{"https", "http"}[int(bit)%2]
	differs(other, "another scheme")
	require.NotEqual(t, first, fingerprint(nil, p.request(false), []byte(p.body), nil), "without scope headers it is another")
}

var printedSeeds = []printed{
	{method: "POST", host: "api.example.com", path: "charges", query: "a=1&b=2", body: `{"amount":4200}`, account: "acct_1", context: "ctx"},
	{method: "PUT", host: "h", path: "a/b c%2F", body: "x"},
	{method: "POST", host: "h", path: "", query: "", as: "gateway", body: "\x00\x00\x00\x00\x00\x00\x00\x01"},
	{method: "P", host: "Ä.example", path: "ü?#%", query: "%zz;=", as: "H", body: "\xff", account: "\x00", context: "\x00\x00"},
}

func FuzzFingerprint(f *testing.F) {
	for i, p := range printedSeeds {
		for n := range uint8(8) {
			f.Add(p.method, p.host, p.path, p.query, p.as, p.body, p.account, p.context, n, uint8(i), n)
		}
	}
	f.Fuzz(func(t *testing.T, method, host, path, query, as, body, account, context string, which, at, bit uint8) {
		checkPrints(t, printed{
			method: method, host: host, path: path, query: query, as: as, body: body, account: account, context: context,
		}, which, at, bit)
	})
}

func TestFingerprintFuzz_PseudoRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 2026))
	text := func(alphabet string) string {
		b := make([]byte, r.IntN(5))
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	seen := map[string]printed{}
	for range 20_000 {
		p := printed{ // few bytes, so that what differs differs in little
			method: "P" + text("PU"), host: "h" + text("hi"), path: text("ab/%"), query: text("ab=&"), as: text("hi"), body: text("ab\x00\x01"),
			account: text("a\x00"), context: text("a\x00"),
		}
		checkPrints(t, p, uint8(r.UintN(8)), uint8(r.UintN(256)), uint8(r.UintN(256)))
		p.path, p.scheme = "/"+p.path, "http"
		sum := string(p.print(false))
		if q, ok := seen[sum]; ok {
			require.Equal(t, q.canonical(), p.canonical(), "two requests, one fingerprint")
		}
		seen[sum] = p
	}
	assert.Greater(t, len(seen), 15_000)
}

// Two scope headers are two fields: a value is not taken for the next one's
// name.
func TestFingerprint_ScopeHeadersAreApart(t *testing.T) {
	for _, c := range []*contract.Contract{contract.StripeV1, printedContract()} {
		a, b := c.ScopeHeaders[0], c.ScopeHeaders[1]
		value := strings.ToLower(b)
		first := &http.Request{Method: "POST", URL: &url.URL{Scheme: "https", Host: "h", Path: "/"}, Header: http.Header{a: {value}}}
		second := &http.Request{Method: "POST", URL: first.URL, Header: http.Header{b: {value}}}
		assert.False(t, bytes.Equal(fingerprint(nil, first, nil, c), fingerprint(nil, second, nil, c)),
			fmt.Sprintf("%s: %s and %s: %s are two requests", a, value, b, value))
		assert.False(t, bytes.Equal(adoptedIdentity("s", first, "k", c), adoptedIdentity("s", second, "k", c)), "and two adopted keys")
	}
}

// The key is not part of what is the same request, wherever the contract has it.
func TestFingerprint_KeyIsBlankedWhereverItIs(t *testing.T) {
	inBody, inQuery := printedContract(), printedContract()
	inBody.Key, inQuery.Key = contract.Place{Pointer: "/meta/key"}, contract.Place{Param: "key"}
	post := func(query string) *http.Request {
		return &http.Request{
			Method: "POST", URL: &url.URL{Scheme: "https", Host: "h", Path: "/", RawQuery: query}, Header: http.Header{"Content-Type": {"application/json"}},
		}
	}
	r := rand.New(rand.NewPCG(16, 2026))
	body := func(key string, amount int) []byte {
		return fmt.Appendf(nil, `{"amount":%d,"meta":{"key":%q,"note":"n"}}`, amount, key)
	}
	for range 1000 {
		k1, k2, n := fmt.Sprint("k", r.Uint32()), fmt.Sprint("l", r.Uint32()), int(r.Uint32())
		assert.Equal(t, fingerprint(nil, post(""), body(k1, n), inBody), fingerprint(nil, post(""), body(k2, n), inBody))
		assert.NotEqual(t, fingerprint(nil, post(""), body(k1, n), inBody), fingerprint(nil, post(""), body(k1, n+1), inBody))
		q := fmt.Sprintf("a=%d&key=", n)
		assert.Equal(t, fingerprint(nil, post(q+k1), nil, inQuery), fingerprint(nil, post(q+k2), nil, inQuery))
		assert.NotEqual(t, fingerprint(nil, post(q+k1), nil, inQuery), fingerprint(nil, post("b"+q+k1), nil, inQuery))
	}
}
