package contract

import (
	"bytes"
	"net/http"
	"strings"
)

// Any reports whether one of the signals matches the answer.
func Any(signals []Signal, status int, header http.Header, body []byte) bool {
	for _, s := range signals {
		if s.Matches(status, header, body) {
			return true
		}
	}
	return false
}

// Matches reports whether the answer is this signal. A body that is not one
// whole JSON text matches no Pointer and no Also. The body may come from a hostile server:
// the work is linear in its length, and nothing of it is kept.
func (s Signal) Matches(status int, header http.Header, body []byte) bool {
	switch {
	case s == Signal{}:
		return false
	case s.Status != 0 && s.Status != status:
		return false
	case s.Header != Marker{} && !s.Header.Matches(header):
		return false
	case s.Status == 0 && status/100 == 2 && s.readsBody():
		return false // a success is believed unless its status is named
	case s.Also != "" && !jsonHas(body, s.Also, "", ""):
		return false
	case s.Pointer == "":
		return s.Value == "" && // a value without a place cannot be there
			(s.Text == "" || bytes.Contains(body, []byte(s.Text)))
	}
	return jsonHas(body, s.Pointer, s.Value, s.Text)
}

func (s Signal) readsBody() bool { return s.Pointer != "" || s.Text != "" || s.Also != "" }

// Matches reports whether the header says it.
func (m Marker) Matches(h http.Header) bool {
	if m.Header == "" {
		return false
	}
	lines := h.Values(m.Header)
	if len(lines) == 0 {
		return false
	}
	if m.Param != "" {
		for _, line := range lines {
			if paramHas(line, m.Param, m.Value) {
				return true
			}
		}
		return false
	}
	for _, line := range lines {
		if m.Value != "" && !valueIs(line, m.Value) {
			return false
		}
	}
	return true
}

// valueIs compares a header's value, with or without its parameters.
func valueIs(line, want string) bool {
	if strings.EqualFold(strings.TrimSpace(line), want) {
		return true
	}
	bare, _, _ := strings.Cut(line, ";")
	return strings.EqualFold(strings.TrimSpace(bare), want)
}

// paramHas looks for a parameter in the members of a list such as a Link
// header (RFC 8288 3), and for want among its words; empty want: any.
func paramHas(list, param, want string) bool {
	for len(list) > 0 {
		list = list[partEnd(list):] // the member's own value
		for len(list) > 0 && list[0] == ';' {
			end := 1 + partEnd(list[1:])
			name, value, _ := strings.Cut(list[1:end], "=")
			if strings.EqualFold(strings.TrimSpace(name), param) && hasWord(unquote(value), want) {
				return true
			}
			list = list[end:]
		}
		list = strings.TrimPrefix(list, ",")
	}
	return false
}

// partEnd returns where the first part of s ends: at a semicolon or comma that
// is not inside a quoted string or a <target>, else at the end.
func partEnd(s string) int {
	var closer byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case closer == '"' && c == '\\':
			i++
		case closer != 0:
			if c == closer {
				closer = 0
			}
		case c == '"':
			closer = '"'
		case c == '<':
			closer = '>'
		case c == ';' || c == ',':
			return i
		}
	}
	return len(s)
}

// unquote returns a parameter's value without its quotes.
func unquote(value string) string {
	value = strings.TrimSpace(value)
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return value
	}
	return strings.ReplaceAll(value[1:len(value)-1], `\`, "")
}

func hasWord(value, want string) bool {
	if want == "" {
		return true
	}
	for word := range strings.FieldsSeq(value) {
		if strings.EqualFold(word, want) {
			return true
		}
	}
	return false
}
