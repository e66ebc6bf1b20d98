package idem

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// This file says what of a request is secret, and what is stored in its place.

// These in the name of a header or of a query parameter say that its value is a
// credential: the first anywhere in it, the second as a word of it. They are by
// their first letter, so that a name is read once.
var (
	secretParts = [26][]string{
		0:         {"auth", "assertion"}, // a
		'b' - 'a': {"bearer"},
		'c' - 'a': {"cookie", "credential"},
		'h' - 'a': {"hmac"},
		'j' - 'a': {"jwt"},
		'k' - 'a': {"key"},
		'p' - 'a': {"passw", "passphrase"},
		's' - 'a': {"secret", "signature", "session"},
		't' - 'a': {"token"},
	}
	secretWords = [26][]string{
		'c' - 'a': {"cert"},
		'd' - 'a': {"dpop"},
		'o' - 'a': {"otp"},
		'p' - 'a': {"pass", "pin"},
		's' - 'a': {"sign", "sig"},
	}
)

// isSecret reports that the value under this name is a credential. An
// idempotency key is none, whoever set it: it must be the same on each send. It
// makes no garbage, being asked of each header several times a call.
func isSecret(name string, further []string) bool {
	if secretByName(name) {
		return true
	}
	for _, s := range further {
		if strings.EqualFold(s, name) {
			return true
		}
	}
	return false
}

func secretByName(name string) bool {
	found := false
	for i := range len(name) {
		first := name[i] | 0x20 - 'a'
		if first > 'z'-'a' {
			continue
		}
		if rest := name[i:]; first == 'i'-'a' && startsWith(rest, "idempoten") {
			return false
		} else if !found {
			found = startsWithOne(rest, secretParts[first]) || startsWord(name, i) && isWord(rest, secretWords[first])
		}
	}
	return found
}

// startsWith is strings.HasPrefix for whatever letter case.
func startsWith(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

func startsWithOne(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if startsWith(s, p) {
			return true
		}
	}
	return false
}

func isWord(s string, words []string) bool {
	for _, w := range words {
		if startsWith(s, w) && (len(s) == len(w) || startsWord(s, len(w))) {
			return true
		}
	}
	return false
}

// startsWord reports that a word begins at i, or that one ends before it: at
// the ends of the letters, and at the hump of a camelCase.
func startsWord(name string, i int) bool {
	return i == 0 || !letter(name[i]) || !letter(name[i-1]) || name[i]&0x20 == 0 && name[i-1]&0x20 != 0
}

func letter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// identifies reports a secret header that says who is calling, and not only
// that this one request, or this session, is genuine.
func identifies(name string, further []string) bool {
	if !isSecret(name, further) {
		return false
	}
	lower := strings.ToLower(name)
	return !slices.ContainsFunc([]string{"sign", "hmac", "cookie", "session", "dpop", "otp"}, func(part string) bool {
		return strings.Contains(lower, part)
	})
}

// The names under which credentials in the URL are withheld.
const (
	userInfo   = "URL user info"
	queryParam = "URL query " // and the parameter's name, escaped
)

// splitHeader divides the caller's header into what is stored and the names of
// what is withheld; the key's own header is neither.
func splitHeader(req *http.Request, keyHeader string, secrets []string) (stored http.Header, withheld []string) {
	for name, values := range req.Header {
		switch {
		case keyHeader != "" && strings.EqualFold(name, keyHeader):
		case isSecret(name, secrets):
			withheld = append(withheld, name)
		default:
			if stored == nil {
				stored = make(http.Header, len(req.Header))
			}
			stored[name] = values
		}
	}
	ownValues(stored)
	if req.URL.User != nil {
		withheld = append(withheld, userInfo)
	}
	slices.Sort(withheld)
	return stored, withheld
}

// shownURL is the URL as it may stand in texts: without user info and query.
func shownURL(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return shown.String()
}

// storedURL is the whole URL without user info, which is a credential.
func storedURL(u *url.URL) string {
	stored := *u
	stored.User, stored.Fragment, stored.RawFragment = nil, "", ""
	return stored.String()
}

// parseStored is the URL that storedURL wrote. Its query is what it was, not
// what a URL may hold: http.Request sends a "#" in it as it is.
func parseStored(stored string) (*url.URL, error) {
	address, query, has := strings.Cut(stored, "?")
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	u.RawQuery, u.ForceQuery = query, has && query == ""
	return u, nil
}

// left stands for a parameter's value that was left out of a stored query. No
// query that is sent can hold it: checkRequest refuses it, and so does net/http.
const left = "\x1a"

// withhold leaves the values of secret parameters out of the query, except for
// the key's, and names them.
func withhold(u *url.URL, keyParam string, secrets []string) (*url.URL, []string) {
	var names []string
	query := eachParam(u.RawQuery, func(name, pair string) (string, bool) {
		rawName, value, _ := strings.Cut(pair, "=")
		if value == "" || keyParam != "" && name == keyParam || !isSecret(name, secrets) {
			return pair, true
		}
		if shown := queryParam + url.QueryEscape(name); !slices.Contains(names, shown) {
			names = append(names, shown)
		}
		return rawName + "=" + left, true
	})
	if names == nil {
		return u, nil
	}
	edited := *u
	edited.RawQuery = query
	return &edited, names
}

// leaves reports that values were left out of a stored query.
func leaves(query string) bool { return strings.Contains(query, left) }

// withoutLeft is the stored query without the parameters that were left out.
func withoutLeft(query string) string {
	if !leaves(query) {
		return query
	}
	return eachParam(query, func(_, pair string) (string, bool) { return pair, !isLeft(pair) })
}

func isLeft(pair string) bool {
	_, value, _ := strings.Cut(pair, "=")
	return value == left
}

// fill puts the values that were left out of a stored query back in, in their
// order, from another query. missing names a parameter that it has no value
// for.
func fill(stored, from string) (query, missing string) {
	if !leaves(stored) {
		return stored, ""
	}
	given := map[string][]string{}
	eachParam(from, func(name, pair string) (string, bool) {
		if _, value, _ := strings.Cut(pair, "="); value != "" {
			given[name] = append(given[name], value)
		}
		return pair, true
	})
	query = eachParam(stored, func(name, pair string) (string, bool) {
		if !isLeft(pair) {
			return pair, true
		}
		values := given[name]
		if len(values) == 0 {
			missing = name
			return pair, true
		}
		given[name] = values[1:]
		rawName, _, _ := strings.Cut(pair, "=")
		return rawName + "=" + values[0], true
	})
	return query, missing
}

// eachParam rewrites a query, pair by pair, of which edit gets the decoded name;
// false takes the pair out. It makes a new text only where something changes.
func eachParam(query string, edit func(name, pair string) (string, bool)) string {
	edited := make([]string, 0, 8)
	changed := false
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(name); err == nil {
			name = decoded
		}
		to, keep := edit(name, pair)
		changed = changed || !keep || to != pair
		if keep {
			edited = append(edited, to)
		}
	}
	if !changed {
		return query
	}
	return strings.Join(edited, "&")
}

// leastEcho is how long a credential must be to be looked for in what a server
// sends: a shorter one is found by chance.
const leastEcho = 8

// credentialsOf are the values of req by which an echo of a credential is known.
func credentialsOf(all []string, req *http.Request, keyHeader string, secrets []string) []string {
	if req == nil {
		return all
	}
	add := func(value string) {
		if len(value) >= leastEcho {
			all = append(all, value)
		}
	}
	for name, values := range req.Header {
		if keyHeader != "" && strings.EqualFold(name, keyHeader) || !isSecret(name, secrets) {
			continue
		}
		for _, value := range values {
			if _, bare, found := strings.Cut(value, " "); found { // "Bearer x"
				value = bare
			}
			add(value)
		}
	}
	if req.URL == nil {
		return all
	}
	if user := req.URL.User; user != nil {
		password, _ := user.Password()
		add(user.Username())
		add(password)
	}
	if req.URL.RawQuery != "" {
		eachParam(req.URL.RawQuery, func(name, pair string) (string, bool) {
			if _, value, _ := strings.Cut(pair, "="); isSecret(name, secrets) {
				add(value)
				if decoded, err := url.QueryUnescape(value); err == nil && decoded != value {
					add(decoded)
				}
			}
			return pair, true
		})
	}
	return all
}

// showsCredential reports a text that holds one of the credentials, or a URL
// with user info or with a secret parameter in its query or fragment.
func showsCredential(text string, credentials, secrets []string) bool {
	for _, c := range credentials {
		if strings.Contains(text, c) {
			return true
		}
	}
	if _, rest, found := strings.Cut(text, "://"); found {
		if authority, _, _ := strings.Cut(rest, "/"); strings.Contains(authority, "@") {
			return true
		}
	}
	at := strings.IndexAny(text, "?#")
	if at < 0 {
		return false
	}
	for part := range strings.FieldsFuncSeq(text[at:], func(r rune) bool { return strings.ContainsRune("?&#; ,<>\"", r) }) {
		name, value, _ := strings.Cut(part, "=")
		if value == "" {
			continue
		}
		if decoded, err := url.QueryUnescape(name); err == nil {
			name = decoded
		}
		if isSecret(name, secrets) {
			return true
		}
	}
	return false
}
