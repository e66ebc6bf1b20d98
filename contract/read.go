package contract

import (
	"net/http"
	"net/url"
	"strings"
)

// Read is a safe request that shows whether the effect of a key exists, where a
// provider offers one. It proves that the effect is there; that it is not found
// proves nothing.
type Read struct {
	// Path is the target, on the origin of the keyed request, escaped as it is to
	// be sent: "{path}" before a "?" stands for that one's path, "{key}" for the
	// key, which is escaped. Empty: no read
	// is known.
	Path string
	// Found is the answer that shows the effect. "{key}" in Value stands for the
	// key. It names its status.
	Found Signal
}

// Target is the URL to read by a GET for a request that was sent to u, under
// key. It has no user info. It returns nil where no read is known.
func (r Read) Target(u *url.URL, key string) *url.URL {
	if r.Path == "" {
		return nil
	}
	path, query, _ := strings.Cut(r.Path, "?")
	target := &url.URL{Scheme: u.Scheme, Host: u.Host}
	own := strings.TrimSuffix(u.EscapedPath(), "/")
	target.RawPath = strings.NewReplacer("{path}", own, "{key}", url.PathEscape(key)).Replace(path)
	target.Path, _ = url.PathUnescape(target.RawPath) // each part is well escaped
	target.RawQuery = strings.ReplaceAll(query, "{key}", escapeParam(key))
	return target
}

// Shows reports whether an answer to the read proves the effect of key.
func (r Read) Shows(key string, status int, header http.Header, body []byte) bool {
	found := r.Found
	found.Value = strings.ReplaceAll(found.Value, "{key}", key)
	return r.Path != "" && key != "" && found.Matches(status, header, body)
}
