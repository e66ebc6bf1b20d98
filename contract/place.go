package contract

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Place is where a key goes in the request: exactly one of Header, Pointer and
// Param. The zero value means nowhere.
type Place struct {
	// Header is the header's name.
	Header string
	// Pointer is an RFC 6901 JSON pointer to a member of the JSON body, such as
	// "/idempotency_key", or to a GraphQL variable, such as
	// "/variables/input/idempotencyKey". The object around it must be there.
	Pointer string
	// Param is the name of a form parameter where the body is
	// application/x-www-form-urlencoded, else of a query parameter.
	Param string
	// Encoding is how the key is written there. Zero means raw.
	Encoding Encoding
}

// String returns the header's name, the pointer (which begins with "/"), or "?"
// and the parameter's name; empty where the key goes nowhere. [ParsePlace] is
// its inverse.
func (p Place) String() string {
	switch {
	case p.Pointer != "":
		return p.Pointer
	case p.Param != "":
		return "?" + p.Param
	}
	return p.Header
}

// ParsePlace reads what [Place.String] wrote. No text is no place.
func ParsePlace(text string, e Encoding) (Place, error) {
	p := Place{Encoding: e}
	switch {
	case e != Raw && e != Quoted:
		return Place{}, fmt.Errorf("contract: place %q: unknown encoding %q", text, string(e))
	case text == "":
	case text[0] == '/':
		if reason := pointerProblem(text); reason != "" {
			return Place{}, fmt.Errorf("contract: place %q %s", text, reason)
		}
		p.Pointer = text
	case text[0] == '?' && len(text) > 1:
		p.Param = text[1:]
	case isToken(text):
		p.Header = text
	default:
		return Place{}, fmt.Errorf("contract: place %q is neither a header name, a JSON pointer nor \"?\" and a parameter", text)
	}
	return p, nil
}

// Find returns the key that the request has already. In a body or a query, null
// and an empty text count as absent: many SDKs write them for what was not set.
// The caller's values are not changed.
//
// It is an error if the key is there more than once or is no text, and, for a
// Pointer, if the body cannot carry a key. The error shows nothing of the
// request's.
func (p Place) Find(header http.Header, u *url.URL, body []byte) (key string, found bool, err error) {
	contentType := firstLine(header, "Content-Type")
	text := ""
	switch {
	case p.Pointer != "":
		if coding := firstLine(header, "Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
			err = errors.New("the body is compressed (Content-Encoding) and cannot carry a key")
			break
		}
		text, found, err = findMember(p.Pointer, contentType, body)
	case p.Param != "":
		text, found, err = findParam(p.Param, u, contentType, body)
	default:
		text, found, err = findHeader(p.Header, header)
	}
	if err != nil {
		return "", false, p.wrap(err)
	}
	if !found {
		return "", false, nil
	}
	key, err = p.Parse(text)
	return key, err == nil, err
}

func findHeader(name string, header http.Header) (string, bool, error) {
	if name == "" {
		return "", false, nil
	}
	values := linesOf(header, name)
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	}
	return "", false, fmt.Errorf("it is there %d times", len(values))
}

// linesOf finds a header in any spelling of its name, as it would be sent.
func linesOf(header http.Header, name string) []string {
	var values []string
	for have, lines := range header {
		if strings.EqualFold(have, name) {
			values = append(values, lines...)
		}
	}
	return values
}

func firstLine(header http.Header, name string) string {
	if lines := linesOf(header, name); len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// Put writes the key into the URL or the body by the smallest edit of their
// bytes: a value that is there is replaced, else a member is put in front of its
// object's first one, or a parameter behind the last one. Every other byte
// stays. The caller's URL and body are not changed; what needed no edit is
// returned as it is. A header is written by the caller, with [Place.Format].
//
// It is an error if the body cannot carry the key: for a Pointer, if it is empty,
// a form, no valid JSON in UTF-8, no object, or without the object that the key
// belongs into.
func (p Place) Put(u *url.URL, contentType string, body []byte, key string) (newURL *url.URL, newBody []byte, err error) {
	switch {
	case key == "":
		err = errors.New("the key is empty")
	case p.Pointer != "":
		newURL = u
		newBody, err = putMember(p.Pointer, contentType, body, p.Format(key))
	case p.Param != "":
		newURL, newBody, err = putParam(p.Param, u, contentType, body, p.Format(key))
	default:
		err = errors.New("its place is not in the URL or the body")
	}
	if err != nil {
		return nil, nil, p.wrap(err)
	}
	return newURL, newBody, nil
}

// Blank returns the URL and the body without the key, so that two requests that
// differ in the key alone become the same bytes, whether the key is there or
// not: the member or the parameter goes, with the comma or the "&" that came
// with it. What cannot carry a key is returned as it is. The caller's URL and
// body are not changed.
func (p Place) Blank(u *url.URL, contentType string, body []byte) (blankURL *url.URL, blankBody []byte) {
	switch {
	case p.Pointer != "":
		return u, blankMember(p.Pointer, contentType, body)
	case p.Param != "":
		return blankParam(p.Param, u, contentType, body)
	}
	return u, body
}

func (p Place) wrap(err error) error {
	if p.String() == "" {
		return fmt.Errorf("contract: key: %w", err)
	}
	return fmt.Errorf("contract: key in %s: %w", p, err)
}

// mediaType is a Content-Type without its parameters.
func mediaType(contentType string) string {
	bare, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(bare))
}

// splice returns b with the bytes from start to end replaced, in new memory.
func splice(b []byte, start, end int, with string) []byte {
	return slices.Concat(b[:start], []byte(with), b[end:])
}
