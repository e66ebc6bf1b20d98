package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// jsonHas reports whether the body has something at the pointer, and, where want
// is not empty, whether that is a string, number or bool with this text. Null
// is nothing: many servers write "error": null on success.
func jsonHas(body []byte, pointer, want string) bool {
	if !json.Valid(body) {
		return false
	}
	value, ok := valueAt(trimSpace(body), pointer)
	if !ok || value[0] == 'n' {
		return false
	}
	if want == "" {
		return true
	}
	switch value[0] {
	case '{', '[':
		return false
	case '"':
		return stringIs(value, want)
	}
	return string(value) == want
}

// valueAt follows an RFC 6901 pointer. Here and below, b is valid JSON without
// space in front; it is walked, not decoded, so that a hostile body cannot make
// us build a large tree.
func valueAt(b []byte, pointer string) ([]byte, bool) {
	for pointer != "" {
		rest, ok := strings.CutPrefix(pointer, "/")
		if !ok {
			return nil, false
		}
		end := strings.IndexByte(rest, '/')
		if end < 0 {
			end = len(rest)
		}
		name, err := unescapeToken(rest[:end])
		if err != nil {
			return nil, false
		}
		if b, ok = child(b, name); !ok {
			return nil, false
		}
		pointer = rest[end:]
	}
	return b, true
}

// unescapeToken decodes ~1 and ~0 (RFC 6901 3).
func unescapeToken(token string) (string, error) {
	if !strings.Contains(token, "~") {
		return token, nil
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '~' {
			b.WriteByte(token[i])
			continue
		}
		i++
		switch {
		case i < len(token) && token[i] == '0':
			b.WriteByte('~')
		case i < len(token) && token[i] == '1':
			b.WriteByte('/')
		default:
			return "", errors.New("a ~ that is neither ~0 nor ~1")
		}
	}
	return b.String(), nil
}

func child(b []byte, name string) ([]byte, bool) {
	switch b[0] {
	case '{':
		return member(b, name)
	case '[':
		if index, ok := arrayIndex(name); ok {
			return element(b, index)
		}
	}
	return nil, false
}

// member returns the value of the last member with this name, as encoding/json
// would.
func member(b []byte, name string) (value []byte, found bool) {
	for b = trimSpace(b[1:]); b[0] != '}'; {
		end := stringEnd(b)
		key := b[:end]
		b = trimSpace(trimSpace(b[end:])[1:]) // the colon
		end = valueEnd(b)
		if stringIs(key, name) {
			value, found = b[:end], true
		}
		b = nextItem(b[end:])
	}
	return value, found
}

func element(b []byte, index int) ([]byte, bool) {
	for b = trimSpace(b[1:]); b[0] != ']'; index-- {
		end := valueEnd(b)
		if index == 0 {
			return b[:end], true
		}
		b = nextItem(b[end:])
	}
	return nil, false
}

// arrayIndex takes digits without a leading zero; "-" is past the end.
func arrayIndex(token string) (int, bool) {
	if token == "" || len(token) > 9 || len(token) > 1 && token[0] == '0' {
		return 0, false
	}
	for i := range len(token) {
		if token[i] < '0' || token[i] > '9' {
			return 0, false
		}
	}
	index, err := strconv.Atoi(token)
	return index, err == nil
}

// nextItem goes from the end of an item to the next one, or to the bracket.
func nextItem(b []byte) []byte {
	b = trimSpace(b)
	if b[0] == ',' {
		b = trimSpace(b[1:])
	}
	return b
}

// valueEnd returns the length of the value that b begins with.
func valueEnd(b []byte) int {
	switch b[0] {
	case '"':
		return stringEnd(b)
	case '{', '[':
		return nestedEnd(b)
	}
	for i, c := range b {
		switch c {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return i
		}
	}
	return len(b)
}

func nestedEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += stringEnd(b[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}

func stringEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// stringIs compares a JSON string with its decoded text.
func stringIs(quoted []byte, want string) bool {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == want
	}
	var text string
	return json.Unmarshal(quoted, &text) == nil && text == want
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 {
		switch b[0] {
		case ' ', '\t', '\r', '\n':
			b = b[1:]
		default:
			return b
		}
	}
	return b
}
