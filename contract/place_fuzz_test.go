package contract

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzFind: nothing that a request holds makes it fail in another way than by an
// error, and what is found can be found again.
func FuzzFind(f *testing.F) {
	f.Add("/k", jsonType, `{"k":"x"}`, "a=1")
	f.Add("?k", formType, `k=x&b`, "k")
	f.Add("K", "", "", "")
	f.Add("/v/k", "", `{"v":{"k":null}}`, "%")
	f.Fuzz(func(t *testing.T, place, contentType, body, query string) {
		p, err := ParsePlace(place, Raw)
		if err != nil {
			return
		}
		require.Equal(t, place, p.String())
		header, u := http.Header{"Content-Type": {contentType}, "K": {body}}, &url.URL{RawQuery: query}
		key, found, err := p.Find(header, u, []byte(body))
		assert.Equal(t, found, key != "")
		if !found || err != nil || p.Header != "" {
			return
		}
		newURL, newBody, err := p.Put(u, contentType, []byte(body), key)
		require.NoError(t, err)
		again, _, err := p.Find(header, newURL, newBody)
		require.NoError(t, err)
		require.Equal(t, key, again)
	})
}

// FuzzPut: a key that was put in is found, JSON stays JSON with nothing else
// changed, and what was given is not touched.
func FuzzPut(f *testing.F) {
	f.Add("/k", jsonType, `{"a":[1,2.50]}`, "a=1", someUUID)
	f.Add("/v/i/k", jsonType, `{"v":{"i":{"k":"x","z":1e9}}}`, "", `"\`)
	f.Add("?k", formType, `b=%`, "a", "k")
	f.Add("?k", "", ``, "a&k=1&b", "ü ")
	f.Fuzz(func(t *testing.T, place, contentType, body, query, key string) {
		p, err := ParsePlace(place, Raw)
		if err != nil || p.Header != "" {
			return
		}
		given, u := []byte(body), &url.URL{RawQuery: query}
		newURL, newBody, err := p.Put(u, contentType, given, key)
		require.Equal(t, body, string(given))
		require.Equal(t, query, u.RawQuery)
		if err != nil {
			return
		}
		got, found, err := p.Find(http.Header{"Content-Type": {contentType}}, newURL, newBody)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, key, got)
		if p.Pointer != "" {
			require.True(t, json.Valid(newBody))
		}
	})
}

// FuzzBlank: requests that differ in the key alone are the same when it is
// blanked, be it absent, put in, or replaced; and blanking twice changes nothing.
func FuzzBlank(f *testing.F) {
	f.Add("/k", jsonType, "{ \"a\":1,\r\n\"k\":\"x\" , \"b\":2}", "a=1")
	f.Add("/k", jsonType, `{ }`, "")
	f.Add("/v/k", jsonType, `{"v":{"k":null}}`, "")
	f.Add("?k", formType, `&k&b=%`, "a")
	f.Add("?k", "", ``, "&&")
	f.Fuzz(func(t *testing.T, place, contentType, body, query string) {
		p, err := ParsePlace(place, Raw)
		if err != nil {
			return
		}
		u := &url.URL{RawQuery: query}
		wantURL, wantBody := p.Blank(u, contentType, []byte(body))
		againURL, again := p.Blank(wantURL, contentType, wantBody)
		require.Equal(t, wantURL.RawQuery, againURL.RawQuery)
		require.Equal(t, string(wantBody), string(again))
		for _, key := range []string{"x", someUUID} {
			newURL, newBody, err := p.Put(u, contentType, []byte(body), key)
			if err != nil {
				return
			}
			gotURL, got := p.Blank(newURL, contentType, newBody)
			require.Equal(t, wantURL.RawQuery, gotURL.RawQuery)
			require.Equal(t, string(wantBody), string(got))
		}
	})
}
