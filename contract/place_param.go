package contract

import (
	"errors"
	"net/url"
	"strings"
)

const formType = "application/x-www-form-urlencoded"

// paramSpot is where a parameter's pair stands in a text of pairs, by offsets.
type paramSpot struct {
	start, end int
	count      int    // of pairs with this name
	text       string // decoded
	bad        bool   // its value cannot be decoded
}

func findParam(name string, u *url.URL, contentType string, body []byte) (string, bool, error) {
	inQuery, inForm := paramsOf(name, u, contentType, body)
	if err := checkParams(inQuery, inForm); err != nil {
		return "", false, err
	}
	text := inQuery.text + inForm.text // at most one of them is there
	return text, text != "", nil
}

// putParam replaces the parameter where it is, be it the query of a form's URL;
// else it goes to the end of the form, or of the query.
func putParam(name string, u *url.URL, contentType string, body []byte, text string) (*url.URL, []byte, error) {
	inQuery, inForm := paramsOf(name, u, contentType, body)
	if err := checkParams(inQuery, inForm); err != nil {
		return nil, nil, err
	}
	pair := escapeParam(name) + "=" + escapeParam(text)
	switch {
	case inQuery.count == 0 && mediaType(contentType) == formType:
		return u, []byte(putPair(string(body), inForm, pair)), nil
	case u == nil:
		return nil, nil, errors.New("the request has no URL")
	}
	edited := *u
	edited.RawQuery = putPair(u.RawQuery, inQuery, pair)
	return &edited, body, nil
}

func putPair(pairs string, at paramSpot, pair string) string {
	switch {
	case at.count > 0:
		return pairs[:at.start] + pair + pairs[at.end:]
	case pairs == "":
		return pair
	}
	return pairs + "&" + pair
}

func blankParam(name string, u *url.URL, contentType string, body []byte) (*url.URL, []byte) {
	inQuery, inForm := paramsOf(name, u, contentType, body)
	if checkParams(inQuery, inForm) != nil {
		return u, body
	}
	if inQuery.count > 0 {
		edited := *u
		edited.RawQuery = cutPair(u.RawQuery, inQuery)
		u = &edited
	}
	if inForm.count > 0 {
		body = []byte(cutPair(string(body), inForm))
	}
	return u, body
}

// cutPair takes a pair out with the "&" before it, or the one behind the first.
func cutPair(pairs string, at paramSpot) string {
	switch {
	case at.start > 0:
		return pairs[:at.start-1] + pairs[at.end:]
	case at.end < len(pairs):
		return pairs[at.end+1:]
	}
	return ""
}

func paramsOf(name string, u *url.URL, contentType string, body []byte) (inQuery, inForm paramSpot) {
	if u != nil {
		inQuery = locateParam(u.RawQuery, name)
	}
	if mediaType(contentType) == formType {
		inForm = locateParam(string(body), name)
	}
	return inQuery, inForm
}

func checkParams(inQuery, inForm paramSpot) error {
	switch {
	case inQuery.count+inForm.count > 1:
		return errors.New("it is there more than once")
	case inQuery.bad || inForm.bad:
		return errors.New("it is there, but badly escaped")
	}
	return nil
}

// locateParam finds a parameter by its decoded name. A pair whose name cannot be
// decoded is another one.
func locateParam(pairs, name string) paramSpot {
	var spot paramSpot
	for start := 0; start <= len(pairs); {
		end := len(pairs)
		if i := strings.IndexByte(pairs[start:], '&'); i >= 0 {
			end = start + i
		}
		rawName, rawText, _ := strings.Cut(pairs[start:end], "=")
		if got, err := url.QueryUnescape(rawName); err == nil && got == name && end > start {
			text, err := url.QueryUnescape(rawText)
			spot = paramSpot{start: start, end: end, count: spot.count + 1, text: text, bad: spot.bad || err != nil}
		}
		start = end + 1
	}
	return spot
}

// escapeParam writes a space as %20, which every server reads alike.
func escapeParam(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}
