package idem

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file makes texts of errors fit to be shown and stored.

// cause is an error whose text shows nothing that a text must not show. What it
// stands for is found by errors.Is and errors.As, and not by Unwrap: loggers
// that walk down a chain would print it.
type cause struct {
	err  error
	text string
}

func (c *cause) Error() string        { return c.text }
func (c *cause) Is(target error) bool { return errors.Is(c.err, target) }
func (c *cause) As(to any) bool       { return errors.As(c.err, to) }

// The bounds of a text, in bytes.
const (
	longestText = 512
	longestRead = 64 << 10 // of what it is made from
)

// hidden is what an error's text must not show. The zero value is of nothing in
// particular.
type hidden struct {
	req     *http.Request // its headers, query and user info; nil: of none
	body    []byte        // of the request
	key     string
	secrets []string // further names of secret headers
}

// hidden is what the texts of this exchange must not show of a request.
func (x *exchange) hidden(req *http.Request) hidden {
	h := hidden{req: req, body: x.body, key: x.in.Key, secrets: x.t.Secrets}
	if x.in.Request != nil {
		h.body = x.in.Request.Body
	}
	return h
}

// safe wraps err so that its text is one line of a bounded length, and shows
// nothing that is hidden, nor any URL's query and user info.
func safe(err error, hide hidden) error {
	if err == nil {
		return nil
	}
	whole := err.Error()
	text := whole
	if len(text) > longestRead {
		text = text[:longestRead]
	}
	text = visible(withoutURLParts(hide.from(text)))
	if len(text) > longestText {
		text = strings.ToValidUTF8(text[:longestText], "") + "..."
	}
	if text == whole {
		return err
	}
	return &cause{err: err, text: text}
}

// leastBody is how long a body must be to be looked for in a text.
const leastBody = 4

// from takes out of a text what is hidden.
func (h hidden) from(text string) string {
	take := func(secret, name string, least int) {
		if len(secret) < least || secret == "" || len(secret) > len(text) {
			return
		}
		text = strings.ReplaceAll(text, secret, name)
		if quoted := strconv.Quote(secret); len(quoted) > len(secret)+2 { // as in %q
			text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], name)
		}
	}
	take(h.key, "[key]", 1)
	take(string(h.body), "[body]", leastBody)
	if h.req == nil || h.req.URL == nil {
		return text
	}
	take(h.req.URL.RawQuery, "[query]", 1)
	if user := h.req.URL.User; user != nil {
		take(user.String(), "[user]", 1)
		password, _ := user.Password()
		for _, part := range []string{password, user.Username()} {
			take(url.UserPassword("", part).String()[1:], "[user]", 4)
			take(part, "[user]", 4)
		}
	}
	for name, values := range h.req.Header {
		for _, value := range values {
			switch {
			case isSecret(name, h.secrets):
				_, bare, _ := strings.Cut(value, " ") // "Bearer x"
				take(value, "[credential]", 4)
				take(bare, "[credential]", 4)
				// "a=x; b=y" of cookies, `Digest a="x", b="y"`
				for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(" ,;", r) }) {
					if _, after, found := strings.Cut(part, "="); found {
						part = strings.Trim(after, `"`)
					}
					take(part, "[credential]", leastEcho)
				}
			case name != "Content-Type" && !slices.Contains(tellNothing, name):
				take(value, "[header]", leastEcho)
			}
		}
	}
	if _, password, ok := h.req.BasicAuth(); ok {
		take(password, "[credential]", 4)
	}
	for _, value := range credentialsOf(nil, &http.Request{URL: h.req.URL}, "", h.secrets) {
		take(value, "[query]", leastEcho)
	}
	return text
}

// What is taken out of any text: a base transport may show what it added, or
// where a redirect led.
var (
	userInURL  = regexp.MustCompile(`://[^\s"'?#]*@`)
	queryInURL = regexp.MustCompile(`(://[^\s"'?#]*)[?#][^\s"'<>]+`)
	queryAlone = regexp.MustCompile(`[?#][^\s"'<>?#]*=[^\s"'<>]*`)
	bearer     = regexp.MustCompile(`(?i)\b((?:bearer|basic|token|negotiate|dpop)[ =:]+)([a-z0-9._~+/-]{8,}=*)`)
	named      = regexp.MustCompile(`(?i)\b([a-z][a-z0-9_.-]*"?\]? ?[:=] ?\[?"?)([a-z0-9._~+/%-]{8,}=*)`)
)

func withoutURLParts(text string) string {
	text = userInURL.ReplaceAllString(text, "://[user]@")
	text = queryInURL.ReplaceAllString(text, "$1?[query]")
	text = queryAlone.ReplaceAllString(text, "?[query]")
	text = hideMatches(text, bearer)
	return hideMatches(text, named)
}

// hideMatches takes values out that stand behind a name that is secret, and
// that look like a credential and not like a word.
func hideMatches(text string, pattern *regexp.Regexp) string {
	return pattern.ReplaceAllStringFunc(text, func(match string) string {
		parts := pattern.FindStringSubmatch(match)
		name, value := strings.TrimRight(parts[1], `"] :=[`), parts[2]
		if !strings.ContainsAny(value, "0123456789") && len(value) < 20 || pattern == named && !secretByName(name) {
			return match
		}
		return parts[1] + "[credential]"
	})
}

// visible is the text with everything escaped that is not to be seen, such as a
// new line or a terminal's commands.
func visible(text string) string {
	if !strings.ContainsFunc(text, unseen) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if unseen(r) {
			quoted := strconv.Quote(text[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

func unseen(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
