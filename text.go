package idem

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
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

// safe wraps err so that its text is one line of a bounded length, and holds
// neither the key, nor a credential of req, nor any URL's query and user info.
// A header's value is a credential by its name or among secrets.
func safe(err error, req *http.Request, key string, secrets ...string) error {
	if err == nil {
		return nil
	}
	whole := err.Error()
	text := whole
	if len(text) > longestRead {
		text = text[:longestRead]
	}
	text = visible(withoutURLParts(withoutParts(text, req, key, secrets)))
	if len(text) > longestText {
		text = strings.ToValidUTF8(text[:longestText], "") + "..."
	}
	if text == whole {
		return err
	}
	return &cause{err: err, text: text}
}

// withoutParts takes out what is known of the request.
func withoutParts(text string, req *http.Request, key string, secrets []string) string {
	hide := func(secret, name string, least int) {
		if len(secret) >= least {
			text = strings.ReplaceAll(text, secret, name)
		}
	}
	hide(key, "[key]", 1)
	if req == nil || req.URL == nil {
		return text
	}
	hide(req.URL.RawQuery, "[query]", 1)
	if user := req.URL.User; user != nil {
		hide(user.String(), "[user]", 1)
		password, _ := user.Password()
		for _, part := range []string{password, user.Username()} {
			hide(url.UserPassword("", part).String()[1:], "[user]", 4)
			hide(part, "[user]", 4)
		}
	}
	for name, values := range req.Header {
		if !isSecret(name, secrets) {
			continue
		}
		for _, value := range values {
			_, bare, _ := strings.Cut(value, " ") // "Bearer x"
			hide(value, "[credential]", 4)
			hide(bare, "[credential]", 4)
			// "a=x; b=y" of cookies, `Digest a="x", b="y"`
			for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(" ,;=\"", r) }) {
				hide(part, "[credential]", leastEcho)
			}
		}
	}
	if _, password, ok := req.BasicAuth(); ok {
		hide(password, "[credential]", 4)
	}
	for _, value := range credentialsOf(nil, &http.Request{URL: req.URL}, "", secrets) {
		hide(value, "[query]", leastEcho)
	}
	return text
}

// What is taken out of any text: a base transport may show what it added, or
// where a redirect led.
var (
	userInURL  = regexp.MustCompile(`://[^\s"'?#]*@`)
	queryInURL = regexp.MustCompile(`(://[^\s"'?#]*)[?#][^\s"'<>]+`)
	queryAlone = regexp.MustCompile(`[?#][^\s"'<>?#]*=[^\s"'<>]*`)
	credential = regexp.MustCompile(`(?i)\b(?:bearer|basic|token|negotiate|dpop)[ =:]+[a-z0-9._~+/-]{8,}=*`)
)

func withoutURLParts(text string) string {
	text = userInURL.ReplaceAllString(text, "://[user]@")
	text = queryInURL.ReplaceAllString(text, "$1?[query]")
	text = queryAlone.ReplaceAllString(text, "?[query]")
	return credential.ReplaceAllStringFunc(text, func(match string) string {
		at := strings.LastIndexAny(strings.TrimRight(match, "="), " =:") + 1
		if value := match[at:]; !strings.ContainsAny(value, "0123456789") && len(value) < 20 { // "basic authentication"
			return match
		}
		return match[:at] + "[credential]"
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
