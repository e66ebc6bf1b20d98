package contract

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// quotedLimit is the longest string that every structured-field parser must
// take (RFC 9651 3.3.3, read 2026-11-29).
const quotedLimit = 1024

// Validate returns an error that names the field and the value of all that
// cannot be right in c, or nil. It finds what is impossible or contradicts
// itself; whether the server keeps the contract it cannot know.
func (c *Contract) Validate() error {
	if c == nil {
		return errors.New("contract: it is nil")
	}
	v := &validation{name: c.Name}
	if !isPrintable(c.Name) {
		v.add("Name", c.Name, "has a character that does not belong into a log")
	}
	v.routes(c)
	v.key(c)
	v.noKeys(c)
	v.scopeHeaders(c)
	v.durations(c)
	v.answers(c)
	v.advice(c)
	v.statuses(c)
	if c.Checked != "" {
		if _, err := time.Parse(time.DateOnly, c.Checked); err != nil {
			v.add("Checked", c.Checked, "is not a date written YYYY-MM-DD")
		}
	}
	return errors.Join(v.problems...)
}

// validation gathers the problems of one contract.
type validation struct {
	name     string
	problems []error
}

// add notes a field, its value, and what is wrong with it.
func (v *validation) add(field string, value any, reason string, args ...any) {
	if _, isText := value.(string); isText {
		value = fmt.Sprintf("%q", value)
	}
	v.problems = append(v.problems,
		fmt.Errorf("contract %q: %s %+v %s", v.name, field, value, fmt.Sprintf(reason, args...)))
}

// routes checks Hosts, Paths and Methods.
func (v *validation) routes(c *Contract) {
	v.list("Hosts", c.Hosts, strings.ToLower, hostProblem)
	v.list("Paths", c.Paths, nil, pathProblem)
	v.list("Methods", c.Methods, nil, methodProblem)
}

// list checks a list that, if it is not nil, must have members, each right and
// none twice.
func (v *validation) list(field string, list []string, same func(string) string, problem func(string) string) {
	if list != nil && len(list) == 0 && field != "ScopeHeaders" {
		v.add(field, list, "is an empty list, which takes nothing; leave it nil for no restriction")
	}
	seen := make(map[string]bool, len(list))
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if reason := problem(item); reason != "" {
			v.add(at, item, "%s", reason)
		}
		if same != nil {
			item = same(item)
		}
		if seen[item] {
			v.add(at, item, "is listed twice")
		}
		seen[item] = true
	}
}

// key checks Key, Form and MaxLength.
func (v *validation) key(c *Contract) {
	switch c.Key.Encoding {
	case Raw, Quoted:
	default:
		v.add("Key.Encoding", string(c.Key.Encoding), "is neither Raw nor Quoted")
	}
	switch c.Form {
	case Visible, UUID:
	default:
		v.add("Form", string(c.Form), "is neither Visible nor UUID")
	}
	switch {
	case c.NoKeys:
		return
	case c.Key.Header == "":
		v.add("Key.Header", "", "is empty: name the header that carries the key, or set NoKeys")
	case !isToken(c.Key.Header):
		v.add("Key.Header", c.Key.Header, "is not a header name (RFC 9110 5.6.2)")
	case isReserved(c.Key.Header):
		v.add("Key.Header", c.Key.Header, "has another meaning in HTTP and cannot carry a key")
	}
	switch {
	case c.MaxLength != 0 && c.MaxLength < uuidLength:
		v.add("MaxLength", c.MaxLength, "is less than the %d bytes of a minted UUID", uuidLength)
	case c.Key.Encoding == Quoted && c.MaxLength > quotedLimit:
		v.add("MaxLength", c.MaxLength, "with Key.Encoding \"quoted\" is more than the %d bytes that a parser of quoted strings must take", quotedLimit)
	}
	if c.Replayed.Header != "" && strings.EqualFold(c.Replayed.Header, c.Key.Header) {
		v.add("Replayed.Header", c.Replayed.Header, "is Key.Header too: an echo of the key is no proof of a replay")
	}
}

// noKeys checks that nothing is said about a key that is not sent.
func (v *validation) noKeys(c *Contract) {
	if !c.NoKeys {
		return
	}
	for _, f := range []struct {
		name  string
		value any
		set   bool
	}{
		{"Key.Header", c.Key.Header, c.Key.Header != ""},
		{"Key.Encoding", string(c.Key.Encoding), c.Key.Encoding != Raw},
		{"Form", string(c.Form), c.Form != Visible},
		{"MaxLength", c.MaxLength, c.MaxLength != 0},
		{"Retention", c.Retention, c.Retention != 0},
		{"RotatingCredentials", c.RotatingCredentials, c.RotatingCredentials},
		{"Replayed.Header", c.Replayed.Header, c.Replayed.Header != ""},
		{"InFlight", c.InFlight, len(c.InFlight) > 0},
		{"Mismatch", c.Mismatch, len(c.Mismatch) > 0},
		{"AlreadyDone", c.AlreadyDone, len(c.AlreadyDone) > 0},
		{"StoreDown", c.StoreDown, len(c.StoreDown) > 0},
		{"Proven", c.Proven, len(c.Proven) > 0},
		{"StoresServerErrors", c.StoresServerErrors, c.StoresServerErrors},
		{"RetryStatuses", c.RetryStatuses, len(c.RetryStatuses) > 0},
	} {
		if f.set {
			v.add(f.name, f.value, "contradicts NoKeys: it is about a key, and none is sent")
		}
	}
}

func (v *validation) scopeHeaders(c *Contract) {
	v.list("ScopeHeaders", c.ScopeHeaders, http.CanonicalHeaderKey, func(name string) string {
		switch {
		case !isToken(name):
			return "is not a header name (RFC 9110 5.6.2)"
		case strings.EqualFold(name, c.Key.Header):
			return "is Key.Header too: a key cannot separate key spaces"
		case isCredential(name):
			return "is a credential, which changes: name an account header, or use a scope"
		}
		return ""
	})
}

// durations checks Retention and what must be shorter.
func (v *validation) durations(c *Contract) {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"Retention", c.Retention}, {"MinDelay", c.MinDelay}, {"AttemptTimeout", c.AttemptTimeout},
	} {
		switch {
		case f.value < 0:
			v.add(f.name, f.value, "is negative")
		case f.name != "Retention" && c.Retention > 0 && f.value >= c.Retention:
			v.add(f.name, f.value, "is not less than Retention %v: no resend could ever be in time", c.Retention)
		}
	}
}

// statuses checks RetryStatuses and FinalStatuses.
func (v *validation) statuses(c *Contract) {
	for _, f := range []struct {
		name string
		list []int
	}{
		{"RetryStatuses", c.RetryStatuses}, {"FinalStatuses", c.FinalStatuses},
	} {
		for i, status := range f.list {
			at := fmt.Sprintf("%s[%d]", f.name, i)
			if status < 400 || status > 599 {
				v.add(at, status, "is not a status from 400 to 599; the others cannot be overruled")
			}
			if slices.Contains(f.list[:i], status) {
				v.add(at, status, "is listed twice")
			}
		}
	}
	for i, status := range c.FinalStatuses {
		if slices.Contains(c.RetryStatuses, status) {
			v.add(fmt.Sprintf("FinalStatuses[%d]", i), status, "is in RetryStatuses too")
		}
	}
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
