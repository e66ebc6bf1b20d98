package contract

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const jsonType = "application/json; charset=utf-8"

func TestPlaceText(t *testing.T) {
	for text, want := range map[string]Place{
		"":                               {},
		"Idempotency-Key":                {Header: "Idempotency-Key"},
		"/idempotency_key":               {Pointer: "/idempotency_key"},
		"/a~1b/c":                        {Pointer: "/a~1b/c"},
		"?ClientToken":                   {Param: "ClientToken"},
		"??":                             {Param: "?"},
		"/variables/input/idempotencyId": {Pointer: "/variables/input/idempotencyId"},
	} {
		for _, e := range []Encoding{Raw, Quoted} {
			want.Encoding = e
			got, err := ParsePlace(text, e)
			require.NoError(t, err, text)
			assert.Equal(t, want, got, text)
			assert.Equal(t, text, got.String())
		}
	}
	for text, want := range map[string]string{
		"?": "neither a header", "a b": "neither a header", "/a~2": "not a JSON pointer", "\x00": "neither a header",
	} {
		_, err := ParsePlace(text, Raw)
		require.ErrorContains(t, err, want, text)
	}
	_, err := ParsePlace("K", "base64")
	require.ErrorContains(t, err, `unknown encoding "base64"`)
}

// TestPlaceInJSON: what is found in a body, what Put makes of it, and what is
// left when the key is blanked.
func TestPlaceInJSON(t *testing.T) {
	for _, tt := range []struct {
		name, pointer, body string
		found               string
		put                 string // with the key K
		blank               string // empty: as body
	}{
		{"absent", "/k", `{"a":1}`, "", `{"k":"K","a":1}`, ""},
		{"empty object", "/k", `{}`, "", `{"k":"K"}`, ""},
		{"empty object with space", "/k", " {\t} \n", "", " {\t\"k\":\"K\"} \n", ""},
		{"space before the first", "/k", "{\r\n  \"a\" : 1\r\n}\r\n", "", "{\r\n  \"k\":\"K\",\"a\" : 1\r\n}\r\n", ""},
		{"first", "/k", `{"k":"x", "a":1}`, "x", `{"k":"K", "a":1}`, `{"a":1}`},
		{"middle", "/k", `{"a":1 , "k" : "x" , "b":2}`, "x", `{"a":1 , "k" : "K" , "b":2}`, `{"a":1 , "b":2}`},
		{"last", "/k", `{"a":1, "k":"x" }`, "x", `{"a":1, "k":"K" }`, `{"a":1 }`},
		{"alone", "/k", `{ "k":"x" }`, "x", `{ "k":"K" }`, `{  }`},
		{"null", "/k", `{"a":1,"k":null}`, "", `{"a":1,"k":"K"}`, `{"a":1}`},
		{"empty text", "/k", `{"k":"","a":1}`, "", `{"k":"K","a":1}`, `{"a":1}`},
		{"escaped value", "/k", `{"k":"x\u0079\/\"é"}`, `xy/"é`, `{"k":"K"}`, `{}`},
		{"escaped name", "/k", `{"\u006b":"x"}`, "x", `{"\u006b":"K"}`, `{}`},
		{"name with a slash", "/a~1b", `{"a\/b":"x","a":1}`, "x", `{"a\/b":"K","a":1}`, `{"a":1}`},
		{"name with a tilde, absent", "/a~0~1b", `{"a":1}`, "", `{"a~/b":"K","a":1}`, ""},
		{"name with a quote, absent", `/a"\`, `{}`, "", `{"a\"\\":"K"}`, ""},
		{"empty name", "/", `{"":"x"}`, "x", `{"":"K"}`, `{}`},
		{"unicode name", "/é", `{"\u00e9":"x"}`, "x", `{"\u00e9":"K"}`, `{}`},
		{"other case is another name", "/k", `{"K":"x"}`, "", `{"k":"K","K":"x"}`, ""},
		{"a member below is not it", "/k", `{"a":{"k":"x"}}`, "", `{"k":"K","a":{"k":"x"}}`, ""},
		{"all else stays", "/k", `{"n":1.0e+40000,"d":1,"d":2,"s":"\ud83d\ude00\/ {\"k\":1}"}`, "",
			`{"k":"K","n":1.0e+40000,"d":1,"d":2,"s":"\ud83d\ude00\/ {\"k\":1}"}`, ""},
		{"nested", "/v/i/k", `{"q":"m","v":{"i":{"a":[1,{"k":2}]}}}`, "", `{"q":"m","v":{"i":{"k":"K","a":[1,{"k":2}]}}}`, ""},
		{"nested, there", "/v/i/k", `{"v":{"x":{"k":"y"},"i":{"k":"x"}},"k":"z"}`, "x", `{"v":{"x":{"k":"y"},"i":{"k":"K"}},"k":"z"}`,
			`{"v":{"x":{"k":"y"},"i":{}},"k":"z"}`},
		{"brackets in strings", "/k", `{"a":"}{][\\\"","k":"x"}`, "x", `{"a":"}{][\\\"","k":"K"}`, `{"a":"}{][\\\""}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, before := Place{Pointer: tt.pointer}, tt.body
			body := []byte(tt.body)
			key, found, err := p.Find(http.Header{"content-type": {jsonType}}, nil, body)
			require.NoError(t, err)
			assert.Equal(t, tt.found != "", found)
			assert.Equal(t, tt.found, key)
			_, put, err := p.Put(nil, jsonType, body, "K")
			require.NoError(t, err)
			assert.Equal(t, tt.put, string(put))
			if tt.blank == "" {
				tt.blank = tt.body
			}
			for _, b := range [][]byte{body, put} {
				_, blank := p.Blank(nil, jsonType, b)
				assert.Equal(t, tt.blank, string(blank))
			}
			assert.Equal(t, before, string(body), "the caller's bytes")
		})
	}
}

func TestPlaceRefusesBodies(t *testing.T) {
	for _, tt := range []struct{ name, pointer, contentType, body, want string }{
		{"empty", "/k", jsonType, "", "is empty"},
		{"only space", "/k", jsonType, " \r\n", "is empty"},
		{"array", "/k", jsonType, `["secret"]`, "is not a JSON object"},
		{"string", "/k", jsonType, `"secret"`, "is not a JSON object"},
		{"null", "/k", jsonType, `null`, "is not a JSON object"},
		{"cut", "/k", jsonType, `{"secret":`, "is not valid JSON"},
		{"two", "/k", jsonType, `{"secret":1}{}`, "is not valid JSON"},
		{"trailing comma", "/k", jsonType, `{"secret":1,}`, "is not valid JSON"},
		{"byte order mark", "/k", jsonType, "\ufeff{\"secret\":1}", "byte order mark"},
		{"not UTF-8", "/k", jsonType, "{\"secret\":\"\xff\"}", "is not valid UTF-8"},
		{"compressed", "/k", jsonType, "\x1f\x8b\x08\x00secret", "is not valid UTF-8"},
		{"multipart", "/k", "Multipart/form-data; boundary=secret", `{"secret":1}`, "is multipart/form-data, not JSON"},
		{"form", "/k", "application/x-www-form-urlencoded", "secret=1", "not JSON"},
		{"number", "/k", jsonType, `{"k":4242}`, "not as a JSON string"},
		{"object", "/k", jsonType, `{"k":{"secret":1}}`, "not as a JSON string"},
		{"bool", "/k", jsonType, `{"k":true}`, "not as a JSON string"},
		{"twice", "/k", jsonType, `{"k":"secret","k":"secret"}`, "more than one member at /k"},
		{"twice, escaped", "/k", jsonType, `{"k":"secret","\u006b":null}`, "more than one member at /k"},
		{"parent twice", "/v/k", jsonType, `{"v":{},"v":{"k":"secret"}}`, "more than one member at /v"},
		{"parent is an array", "/v/k", jsonType, `{"v":["secret"]}`, "something at /v that is not an object"},
		{"parent is a string", "/v/k/l", jsonType, `{"v":{"k":"secret"}}`, "something at /v/k that is not an object"},
		{"too deep", "/k", jsonType, strings.Repeat(`{"secret":`, 20000) + "1" + strings.Repeat("}", 20000), "is not valid JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Place{Pointer: tt.pointer}
			_, _, err := p.Find(http.Header{"Content-Type": {tt.contentType}}, nil, []byte(tt.body))
			_, _, putErr := p.Put(nil, tt.contentType, []byte(tt.body), "K")
			for _, err := range []error{err, putErr} {
				require.ErrorContains(t, err, tt.want)
				assert.ErrorContains(t, err, "contract: key in "+tt.pointer+": ")
				assert.NotContains(t, err.Error(), "secret")
				assert.NotContains(t, err.Error(), "4242")
			}
			_, blank := p.Blank(nil, tt.contentType, []byte(tt.body))
			assert.Equal(t, tt.body, string(blank))
		})
	}
	// A parent that is not there holds no key, and none can be put in.
	for _, body := range []string{`{"a":1}`, `{"v":null}`, `{"v":{"i":null}}`, `{"v":{}}`} {
		p := Place{Pointer: "/v/i/k"}
		_, found, err := p.Find(nil, nil, []byte(body))
		require.NoError(t, err)
		assert.False(t, found)
		_, _, err = p.Put(nil, jsonType, []byte(body), "K")
		require.ErrorContains(t, err, "the body has no object at /v")
	}
	p := Place{Pointer: "/k"}
	_, _, err := p.Find(http.Header{"Content-Encoding": {"gzip"}}, nil, []byte("{}"))
	require.ErrorContains(t, err, "compressed")
	_, _, err = p.Put(nil, jsonType, []byte("{}"), "\xff")
	require.ErrorContains(t, err, "not valid UTF-8")
	_, _, err = p.Put(nil, jsonType, []byte("{}"), "")
	require.ErrorContains(t, err, "empty")
	_, _, err = Place{Header: "K"}.Put(nil, jsonType, []byte("{}"), "K")
	require.ErrorContains(t, err, "contract: key in K: its place is not in the URL or the body")
}

func TestPlaceInParams(t *testing.T) {
	for _, tt := range []struct {
		name, query, contentType, body string
		found                          string
		putQuery, putBody              string
		blankQuery, blankBody          string
	}{
		{"query", "a=1", "", "x", "", "a=1&k%3D=a%26K", "x", "a=1", "x"},
		{"no query", "", jsonType, "{}", "", "k%3D=a%26K", "{}", "", "{}"},
		{"first", "k%3d=old&a=1", "", "", "old", "k%3D=a%26K&a=1", "", "a=1", ""},
		{"middle", "b&k%3D=o+l%2bd&a=1", "", "", "o l+d", "b&k%3D=a%26K&a=1", "", "b&a=1", ""},
		{"empty value", "a=1&k%3D=", "", "", "", "a=1&k%3D=a%26K", "", "a=1", ""},
		{"no value", "k%3D", "", "", "", "k%3D=a%26K", "", "", ""},
		{"the rest stays", "%zz=1;b&&c=%", "", "", "", "%zz=1;b&&c=%&k%3D=a%26K", "", "%zz=1;b&&c=%", ""},
		{"form", "a=1", "Application/X-WWW-Form-Urlencoded; charset=utf-8", "b=2+3", "", "a=1", "b=2+3&k%3D=a%26K", "a=1", "b=2+3"},
		{"empty form", "", formType, "", "", "", "k%3D=a%26K", "", ""},
		{"there in a form", "", formType, "k%3D=old", "old", "", "k%3D=a%26K", "", ""},
		{"a form's query", "k%3D=old", formType, "b=2", "old", "k%3D=a%26K", "b=2", "", "b=2"},
		{"not a form", "", "text/plain", "k%3D=old", "", "k%3D=a%26K", "k%3D=old", "", "k%3D=old"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Place{Param: "k="}
			u, body := &url.URL{Scheme: "https", Host: "h", Path: "/p", RawQuery: tt.query}, []byte(tt.body)
			before := *u
			key, found, err := p.Find(http.Header{"Content-Type": {tt.contentType}}, u, body)
			require.NoError(t, err)
			assert.Equal(t, tt.found != "", found)
			assert.Equal(t, tt.found, key)
			newURL, newBody, err := p.Put(u, tt.contentType, body, "a&K")
			require.NoError(t, err)
			assert.Equal(t, tt.putQuery, newURL.RawQuery)
			assert.Equal(t, tt.putBody, string(newBody))
			for _, r := range []struct {
				u *url.URL
				b []byte
			}{{u, body}, {newURL, newBody}} {
				blankURL, blankBody := p.Blank(r.u, tt.contentType, r.b)
				assert.Equal(t, tt.blankQuery, blankURL.RawQuery)
				assert.Equal(t, tt.blankBody, string(blankBody))
			}
			assert.Equal(t, before, *u, "the caller's URL")
			assert.Equal(t, tt.body, string(body), "the caller's bytes")
		})
	}
	p := Place{Param: "k"}
	for query, want := range map[string]string{
		"k=secret&k=secret": "more than once", "k=%zzsecret": "badly escaped", "k&k": "more than once",
	} {
		u := &url.URL{RawQuery: query}
		_, _, err := p.Find(nil, u, nil)
		require.ErrorContains(t, err, "contract: key in ?k: it is there")
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
		_, _, err = p.Put(u, "", nil, "K")
		require.ErrorContains(t, err, want)
		blank, _ := p.Blank(u, "", nil)
		assert.Same(t, u, blank)
	}
	_, _, err := p.Find(http.Header{"Content-Type": {formType}}, &url.URL{RawQuery: "k=a"}, []byte("k=b"))
	require.ErrorContains(t, err, "more than once")
	_, _, err = p.Put(nil, "", nil, "K")
	require.ErrorContains(t, err, "no URL")
}

func TestPlaceInHeader(t *testing.T) {
	p := Place{Header: "Idempotency-Key", Encoding: Quoted}
	key, found, err := p.Find(http.Header{"idempotency-KEY": {`"k"`}}, nil, nil)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, "k", key)
	_, found, err = p.Find(http.Header{}, nil, nil)
	require.NoError(t, err)
	assert.False(t, found)
	for _, h := range []http.Header{
		{"Idempotency-Key": {`"secret"`, `"secret"`}}, {"Idempotency-Key": {"secret"}}, {"Idempotency-Key": {""}},
		{"Idempotency-Key": {`"secret"`}, "idempotency-key": {`"secret"`}},
	} {
		_, found, err = p.Find(h, nil, nil)
		require.ErrorContains(t, err, "contract: key in Idempotency-Key: ")
		assert.NotContains(t, err.Error(), "secret")
		assert.False(t, found)
	}
	_, found, err = Place{}.Find(http.Header{"": {"x"}}, nil, nil)
	require.NoError(t, err)
	assert.False(t, found)
}
