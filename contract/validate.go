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
	v.memory(c)
	v.answers(c)
	v.advice(c)
	v.statuses(c)
	v.read(c)
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
	if c.ExactPaths && c.Paths == nil {
		v.add("ExactPaths", true, "is about Paths, and there are none")
	}
}

// list checks a list that, if it is not nil, must have members, each right and
// none twice.
func (v *validation) list(field string, list []string, same func(string) string, problem func(string) string) {
	if list != nil && len(list) == 0 && field != "ScopeHeaders" {
		v.add(field, list, "is an empty list, which takes nothing; bind a copy with At, or leave it nil for no restriction")
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

// memory checks what is said of the provider's store beside Retention.
func (v *validation) memory(c *Contract) {
	switch c.AfterExpiry {
	case ExpiryUnknown, ExecutesAgain, Refused, NeverExpires:
	default:
		v.add("AfterExpiry", string(c.AfterExpiry), "is neither ExpiryUnknown, ExecutesAgain, Refused nor NeverExpires")
	}
	switch c.Replay {
	case ReplayUnknown, ReplayVerbatim, ReplayCurrent, ReplayReworked, ReplayConflict:
	default:
		v.add("Replay", string(c.Replay), "is neither ReplayUnknown, ReplayVerbatim, ReplayCurrent, ReplayReworked nor ReplayConflict")
	}
	switch {
	case c.RotatingCredentials && c.CredentialPinned:
		v.add("CredentialPinned", true, "contradicts RotatingCredentials")
	case c.Replay == ReplayConflict && len(c.AlreadyDone) == 0 && !c.NoKeys:
		v.add("Replay", string(c.Replay), "needs AlreadyDone, which says how the conflict looks")
	case c.AfterExpiry == NeverExpires && c.Retention != 0:
		v.add("AfterExpiry", string(c.AfterExpiry), "contradicts Retention %v", c.Retention)
	}
}

// statuses checks RetryStatuses and FinalStatuses.
func (v *validation) statuses(c *Contract) {
	for _, f := range []struct {
		name   string
		list   []int
		lowest int
	}{
		{"RetryStatuses", c.RetryStatuses, 300}, {"FinalStatuses", c.FinalStatuses, 400},
	} {
		for i, status := range f.list {
			at := fmt.Sprintf("%s[%d]", f.name, i)
			if status < f.lowest || status > 599 {
				v.add(at, status, "is not a status from %d to 599; the others cannot be overruled", f.lowest)
			}
			switch status {
			case http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
				v.add(at, status, "is a redirect with a meaning of its own, which cannot be overruled")
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
