package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// memberSpot is where a key's member stands in a body, by offsets.
type memberSpot struct {
	first   int // where the object's first member begins, or its bracket stands
	empty   bool
	found   bool
	before  int // the end of the member before it; 0: none
	name    int // where its name begins
	value   int
	end     int // the end of its value
	after   int // where the next member begins; 0: none
	missing string
}

func findMember(pointer, contentType string, body []byte) (string, bool, error) {
	m, err := locate(pointer, contentType, body)
	if err != nil || !m.found {
		return "", false, err
	}
	text := textOf(body[m.value:m.end])
	return text, text != "", nil
}

func putMember(pointer, contentType string, body []byte, text string) ([]byte, error) {
	m, err := locate(pointer, contentType, body)
	if err != nil {
		return nil, err
	}
	if m.missing != "" {
		return nil, fmt.Errorf("the body has no object at %s", m.missing)
	}
	value, err := quoteJSON(text)
	if err != nil {
		return nil, err
	}
	if m.found {
		return splice(body, m.value, m.end, value), nil
	}
	name, err := quoteJSON(lastName(pointer))
	if err != nil {
		return nil, err
	}
	edit := name + ":" + value
	if !m.empty {
		edit += ","
	}
	return splice(body, m.first, m.first, edit), nil
}

// blankMember takes the member out so that what putMember adds is what goes: of
// the first or a middle one, everything to the next member; of the last one,
// everything from the end of the member before.
func blankMember(pointer, contentType string, body []byte) []byte {
	m, err := locate(pointer, contentType, body)
	switch {
	case err != nil || !m.found:
		return body
	case m.after > 0:
		return splice(body, m.name, m.after, "")
	case m.before > 0:
		return splice(body, m.before, m.end, "")
	}
	return splice(body, m.name, m.end, "")
}

// locate finds the member that the pointer names. A null is found; anything else
// that is not a string is an error.
func locate(pointer, contentType string, body []byte) (memberSpot, error) {
	if err := checkJSON(contentType, body); err != nil {
		return memberSpot{}, err
	}
	at := len(body) - len(trimSpace(body))
	if body[at] != '{' {
		return memberSpot{}, errors.New("the body is not a JSON object")
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, token := range tokens {
		name, err := unescapeToken(token)
		if err != nil {
			return memberSpot{}, err
		}
		m, err := findIn(body, at, name)
		place := "/" + strings.Join(tokens[:i+1], "/")
		if err != nil {
			return memberSpot{}, fmt.Errorf("%w at %s", err, place)
		}
		if i == len(tokens)-1 {
			if m.found && body[m.value] != '"' && body[m.value] != 'n' {
				return memberSpot{}, errors.New("it is there, but not as a JSON string")
			}
			return m, nil
		}
		if !m.found || body[m.value] == 'n' {
			return memberSpot{missing: place}, nil
		}
		if at = m.value; body[at] != '{' {
			return memberSpot{}, fmt.Errorf("the body has something at %s that is not an object", place)
		}
	}
	return memberSpot{}, errors.New("the pointer is empty")
}

// findIn looks for a member of the object that begins at the offset.
func findIn(body []byte, at int, name string) (memberSpot, error) {
	offset := func(rest []byte) int { return len(body) - len(rest) }
	rest := trimSpace(body[at+1:])
	m := memberSpot{first: offset(rest), empty: rest[0] == '}'}
	for before := 0; rest[0] != '}'; {
		start, key := offset(rest), rest[:stringEnd(rest)]
		rest = trimSpace(trimSpace(rest[len(key):])[1:]) // the colon
		value := offset(rest)
		end := value + valueEnd(rest)
		rest = nextItem(body[end:])
		if stringIs(key, name) {
			if m.found {
				return memberSpot{}, errors.New("more than one member")
			}
			m.found, m.before, m.name, m.value, m.end = true, before, start, value, end
			if rest[0] != '}' {
				m.after = offset(rest)
			}
		}
		before = end
	}
	return m, nil
}

// checkJSON says why a body is not JSON to edit. Nothing of it is shown.
func checkJSON(contentType string, body []byte) error {
	switch media := mediaType(contentType); {
	case len(trimSpace(body)) == 0:
		return errors.New("the body is empty and cannot carry a key")
	case strings.HasPrefix(media, "multipart/"), media == formType:
		return fmt.Errorf("the body is %s, not JSON", media)
	case bytes.HasPrefix(body, []byte("\xef\xbb\xbf")):
		return errors.New("the body begins with a byte order mark, which JSON must not have")
	case !utf8.Valid(body):
		return errors.New("the body is not valid UTF-8")
	case !json.Valid(body):
		return errors.New("the body is not valid JSON")
	}
	return nil
}

// lastName is the decoded last segment of a pointer that locate has followed.
func lastName(pointer string) string {
	name, _ := unescapeToken(pointer[strings.LastIndexByte(pointer, '/')+1:])
	return name
}

// quoteJSON writes a JSON string without the escapes that only HTML needs.
func quoteJSON(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", errors.New("the key is not valid UTF-8")
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}
