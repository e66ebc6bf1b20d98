package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// jsonHas reports whether the body has something at the pointer, and, where want
// is not empty, whether that is a string, number or bool with this text, and,
// where part is not empty, whether it is a string with this part. Null is
// nothing: many servers write "error": null on success.
func jsonHas(body []byte, pointer, want, part string) bool {
	if !json.Valid(body) {
		return false
	}
	return anyAt(trimSpace(body), pointer, func(value []byte) bool { return saysSo(value, want, part) })
}

func saysSo(value []byte, want, part string) bool {
	switch {
	case value[0] == 'n':
		return false
	case part != "" && (value[0] != '"' || !strings.Contains(textOf(value), part)):
		return false
	case want == "":
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

// anyAt reports whether is holds for a value that the pointer leads to. Here and
// below, b is valid JSON without space in front; it is walked, not decoded, so
// that a hostile body cannot make us build a large tree. A "*" in the pointer
// walks every item of one level, so that the work stays linear in b.
func anyAt(b []byte, pointer string, is func([]byte) bool) bool {
	for pointer != "" {
		rest, ok := strings.CutPrefix(pointer, "/")
		if !ok {
			return false
		}
		end := strings.IndexByte(rest, '/')
		if end < 0 {
			end = len(rest)
		}
		if rest[:end] == "*" {
			return anyItem(b, func(item []byte) bool { return anyAt(item, rest[end:], is) })
		}
		name, err := unescapeToken(rest[:end])
		if err != nil {
			return false
		}
		if b, ok = child(b, name); !ok {
			return false
		}
		pointer = rest[end:]
	}
	return is(b)
}

// anyItem reports whether is holds for a member's value or an element of b.
func anyItem(b []byte, is func([]byte) bool) bool {
	if b[0] != '{' && b[0] != '[' {
		return false
	}
	object := b[0] == '{'
	for b = trimSpace(b[1:]); b[0] != '}' && b[0] != ']'; {
		if object {
			b = trimSpace(trimSpace(b[stringEnd(b):])[1:]) // the name and the colon
		}
		end := valueEnd(b)
		if is(b[:end]) {
			return true
		}
		b = nextItem(b[end:])
	}
	return false
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
	return textOf(quoted) == want
}

// textOf decodes a JSON string.
func textOf(quoted []byte) string {
	var text string
	if json.Unmarshal(quoted, &text) != nil {
		return ""
	}
	return text
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
