package contract

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPointer(t *testing.T) {
	// The document of RFC 6901 5, and what else JSON can hold.
	const doc = ` {"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,
		"t":true,"f":false,"n":null,"o":{"x":{"y":[10,[20,{"z":"deep"}]]}},"e":"","big":1e3,
		"esc":"a\"b\\c\u00e9\n","\u0064up":"first","dup":"last","s\u0070ace" : "x" , "brackets":"}],{[", "arr":[] } `
	for _, tt := range []struct {
		pointer, value string
		want           bool
	}{
		{"/foo/0", "bar", true},
		{"/foo/1", "baz", true},
		{"/foo/2", "", false},
		{"/foo/-", "", false},
		{"/foo/00", "", false},
		{"/foo/01", "", false},
		{"/foo/+1", "", false},
		{"/foo/4294967296", "", false},
		{"/foo/99999999999999999999", "", false},
		{"/foo/", "", false},
		{"/foo", "", true},
		{"/foo", "bar", false},
		{"/", "0", true},
		{"/a~1b", "1", true},
		{"/a/b", "", false},
		{"/c%d", "2", true},
		{"/e^f", "3", true},
		{"/g|h", "4", true},
		{`/i\j`, "5", true},
		{`/k"l`, "6", true},
		{"/ ", "7", true},
		{"/m~0n", "8", true},
		{"/m~n", "8", false},
		{"/m~2n", "", false},
		{"/m~", "", false},
		{"/~01", "", false},
		{"/t", "true", true},
		{"/t", "TRUE", false},
		{"/f", "false", true},
		{"/n", "", false}, // null is nothing
		{"/n", "null", false},
		{"/o", "", true},
		{"/o/x/y/1/1/z", "deep", true},
		{"/o/x/y/0", "10", true},
		{"/o/x/y/0/0", "", false},
		{"/e", "", true},
		{"/big", "1e3", true},
		{"/big", "1000", false},
		{"/esc", "a\"b\\cé\n", true},
		{"/esc", `a\"b\\c\u00e9\n`, false},
		{"/dup", "last", true},
		{"/dup", "first", false},
		{"/space", "x", true},
		{"/brackets", "}],{[", true},
		{"/arr/0", "", false},
		{"/absent", "", false},
		{"foo", "", false},
	} {
		t.Run(tt.pointer+" "+tt.value, func(t *testing.T) {
			s := Signal{Pointer: tt.pointer, Value: tt.value}
			assert.Equal(t, tt.want, s.Matches(409, nil, []byte(doc)))
		})
	}
}

func TestBodiesThatAreNotJSON(t *testing.T) {
	s := Signal{Pointer: "/a", Value: "x"}
	require.True(t, s.Matches(500, nil, []byte(`{"a":"x"}`)))
	for name, body := range map[string]string{
		"empty": "", "space": "  ", "cut": `{"a":"x"`, "cut string": `{"a":"x`, "tail": `{"a":"x"} y`,
		"two": `{"a":"x"}{"a":"x"}`, "html": `<html>{"a":"x"}`, "mark": "\xef\xbb\xbf{\"a\":\"x\"}",
		"scalar": `"a"`, "null": "null", "array": `["a","x"]`,
		"deep": strings.Repeat("[", 1<<20), "deep and closed": strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000),
	} {
		assert.False(t, s.Matches(500, nil, []byte(body)), name)
	}
	assert.False(t, s.Matches(500, nil, nil))
}

func TestPointerBuildsNothing(t *testing.T) {
	body := []byte(`{"list":[` + strings.Repeat(`{"k":"v"},`, 1<<15) + `0],"error":{"code":"x"}}`)
	s := Signal{Pointer: "/error/code", Value: "x"}
	allocations := testing.AllocsPerRun(3, func() {
		if !s.Matches(409, nil, body) {
			t.Error("no match")
		}
	})
	// Not none: json.Valid has a pool, which the race detector empties at random.
	assert.Less(t, allocations, 8.0)
}

func TestSignal(t *testing.T) {
	body, header := []byte(`{"code":"x"}`), http.Header{"Retry-After": {"1"}}
	after := Marker{Header: "Retry-After"}
	for name, tt := range map[string]struct {
		s    Signal
		want bool
	}{
		"zero":                     {Signal{}, false},
		"status":                   {Signal{Status: 409}, true},
		"other status":             {Signal{Status: 410}, false},
		"body, any status":         {Signal{Pointer: "/code", Value: "x"}, true},
		"presence":                 {Signal{Pointer: "/code"}, true},
		"header, any status":       {Signal{Header: after}, true},
		"all":                      {Signal{Status: 409, Pointer: "/code", Value: "x", Header: after}, true},
		"all but status":           {Signal{Status: 410, Pointer: "/code", Value: "x", Header: after}, false},
		"all but body":             {Signal{Status: 409, Pointer: "/code", Value: "y", Header: after}, false},
		"all but header":           {Signal{Status: 409, Pointer: "/code", Value: "x", Header: Marker{Header: "X"}}, false},
		"value without a pointer":  {Signal{Status: 409, Value: "x"}, false},
		"header value, no header":  {Signal{Status: 409, Header: Marker{Value: "1"}}, false},
		"pointer without a slash":  {Signal{Status: 409, Pointer: "code"}, false},
		"pointer, value elsewhere": {Signal{Pointer: "/other", Value: "x"}, false},
	} {
		assert.Equal(t, tt.want, tt.s.Matches(409, header, body), name)
	}
	assert.False(t, Any(nil, 409, header, body))
	assert.False(t, Any([]Signal{{}, {Status: 410}}, 409, header, body))
	assert.True(t, Any([]Signal{{Status: 410}, {Status: 409}}, 409, header, body))
}

func TestMarker(t *testing.T) {
	problem := Marker{Header: "content-type", Value: "application/problem+json"}
	replayed := Marker{Header: "Idempotent-Replayed", Value: "true"}
	described := Marker{Header: "Link", Param: "rel", Value: "describedby"}
	for _, tt := range []struct {
		name  string
		m     Marker
		lines []string
		want  bool
	}{
		{"zero", Marker{}, []string{"x"}, false},
		{"value without a header", Marker{Value: "x"}, []string{"x"}, false},
		{"absent", replayed, nil, false},
		{"present", Marker{Header: "X"}, []string{""}, true},
		{"value", replayed, []string{"true"}, true},
		{"case and space", replayed, []string{" TRUE "}, true},
		{"other value", replayed, []string{"false"}, false},
		{"part of a value", replayed, []string{"true, false"}, false},
		{"twice the same", replayed, []string{"true", "true"}, true},
		{"contradiction", replayed, []string{"true", "false"}, false},
		{"parameters left aside", problem, []string{"Application/Problem+JSON ; charset=utf-8"}, true},
		{"parameters asked for", Marker{Header: "X", Value: "a; b=c"}, []string{"a; b=c"}, true},
		{"other type", problem, []string{"application/json"}, false},
		{"longer type", problem, []string{"application/problem+json2"}, false},

		{"rel", described, []string{`<https://h/doc>; rel="describedby"; type="text/html"`}, true},
		{"rel as token", described, []string{`<https://h>;REL=DescribedBy`}, true},
		{"one word of rel", described, []string{`<x>; rel="help describedby"`}, true},
		{"second member", described, []string{`<a,b;c>; rel=next, <d>; rel=describedby`}, true},
		{"second line", described, []string{`<a>; rel=next`, `<d>; rel=describedby`}, true},
		{"escaped quote", described, []string{`<a>; title="x\"; rel=describedby; y="`}, false},
		{"inside another parameter", described, []string{`<a>; title="; rel=describedby"; rel=next`}, false},
		{"inside the target", described, []string{`<https://h/;rel=describedby>; rel=next`}, false},
		{"longer word", described, []string{`<a>; rel=describedbyx`}, false},
		{"other parameter", described, []string{`<a>; rev=describedby`}, false},
		{"no parameter", described, []string{`describedby`}, false},
		{"parameter present", Marker{Header: "Link", Param: "rel"}, []string{`<a>; rel=x`}, true},
		{"parameter absent", Marker{Header: "Link", Param: "rel"}, []string{`<a>; title=rel`}, false},
		{"unclosed", described, []string{`<a; rel=describedby`, `<a>; rel="describedby`, `;;,,;`, `"`, `\`}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			for _, line := range tt.lines {
				name := tt.m.Header
				if name == "" {
					name = "X"
				}
				h.Add(name, line)
			}
			assert.Equal(t, tt.want, tt.m.Matches(h))
		})
	}
	assert.False(t, replayed.Matches(nil))
}

// decoded follows a pointer through a decoded tree, the plain way.
func decoded(body []byte, pointer string) (any, bool) {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	var at any
	if !json.Valid(body) || d.Decode(&at) != nil || pointer != "" && pointer[0] != '/' {
		return nil, false
	}
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(token), "~") {
			return nil, false
		}
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch tree := at.(type) {
		case map[string]any:
			next, ok := tree[token]
			if !ok {
				return nil, false
			}
			at = next
		case []any:
			index, ok := arrayIndex(token)
			if !ok || index >= len(tree) {
				return nil, false
			}
			at = tree[index]
		default:
			return nil, false
		}
	}
	return at, true
}

// FuzzPointer holds the walk against encoding/json.
func FuzzPointer(f *testing.F) {
	f.Add([]byte(`{"error":{"code":"x"}}`), "/error/code", "x")
	f.Add([]byte(`[1,[2,{"a~/b":null}]]`), "/1/1/a~0~1b", "")
	f.Add([]byte(`{"\u0061":"\ud800","a":"}"}`), "/a", "}")
	f.Add([]byte(` {"":{"":[ true , -1.5e+3 ]}} `), "///1", "-1.5e+3")
	f.Add([]byte(`{"a":[[[[`), "/a/0/0", "")
	f.Add([]byte("\"x\""), "/", "x")
	f.Fuzz(func(t *testing.T, body []byte, pointer, value string) {
		// A "*" is no name; TestWildcards has it.
		if pointer == "" || !utf8.Valid(body) || strings.Contains(pointer+"/", "/*/") {
			Signal{Pointer: pointer, Value: value}.Matches(400, nil, body)
			return
		}
		tree, found := decoded(body, pointer)
		want := found && tree != nil
		if value != "" {
			switch v := tree.(type) {
			case string:
				want = v == value
			case json.Number:
				want = v.String() == value
			case bool:
				want = value == "true" && v || value == "false" && !v
			default:
				want = false
			}
		}
		assert.Equal(t, want, Signal{Pointer: pointer, Value: value}.Matches(400, nil, body))
	})
}

// FuzzMarker looks for panics and for a parameter that the text cannot hold.
func FuzzMarker(f *testing.F) {
	f.Add(`<https://h/doc>; rel="describedby"; type="text/html", <x>; rel=next`)
	f.Add(`a;b="c\"d";e=<f>,`)
	f.Add(`;rel=describedby`)
	f.Fuzz(func(t *testing.T, line string) {
		h := http.Header{"Link": {line}}
		matched := Marker{Header: "Link", Param: "rel", Value: "describedby"}.Matches(h)
		if matched {
			bare := strings.ToLower(strings.ReplaceAll(line, `\`, ""))
			assert.Contains(t, bare, "rel")
			assert.Contains(t, bare, "describedby")
			assert.True(t, Marker{Header: "Link", Param: "rel"}.Matches(h), "a value without presence")
		}
	})
}
