package idem

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// This file says what is kept of an answer's header.

// hopByHop headers belong to a connection (RFC 9110 7.6.1), not to an answer.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// maxKeptHeader is how much of a header is kept, in bytes of names and values.
// net/http lets a server send 10 MiB of it (Transport.MaxResponseHeaderBytes).
const maxKeptHeader = 64 << 10

// keptHeader is the part of an answer's header that is kept: not what is secret,
// shows a credential of the request sent, or is a link with one. Its values are
// h's.
func keptHeader(h http.Header, sent *http.Request, keyHeader string, secrets []string) http.Header {
	var room [8]string
	credentials := credentialsOf(room[:0], sent, keyHeader, secrets)
	kept := make(http.Header, len(h))
	size := 0
	for name, values := range h {
		key := keyHeader != "" && strings.EqualFold(name, keyHeader)
		if slices.Contains(hopByHop, name) || isSecret(name, secrets) && !key {
			continue
		}
		if slices.ContainsFunc(values, func(v string) bool { return showsCredential(v, credentials, secrets) }) {
			continue
		}
		kept[name] = values
		size += sizeOf(name, values)
	}
	if size > maxKeptHeader {
		keepSmallest(kept)
	}
	return kept
}

func sizeOf(name string, values []string) int {
	n := len(name)
	for _, v := range values {
		n += len(v)
	}
	return n
}

// keepSmallest takes the largest ones out, until the rest is not too large.
func keepSmallest(h http.Header) {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(sizeOf(a, h[a]), sizeOf(b, h[b])), strings.Compare(a, b))
	})
	size := 0
	for _, name := range names {
		if size += sizeOf(name, h[name]); size > maxKeptHeader {
			delete(h, name)
		}
	}
}

// requestID is the provider's own id of a request, which is shown in lists.
func requestID(h http.Header, sent *http.Request, keyHeader string, secrets []string) string {
	for _, name := range []string{"Request-Id", "X-Request-Id"} {
		id := h.Get(name)
		if id == "" || len(id) > 256 || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
			continue
		}
		if !showsCredential(id, credentialsOf(nil, sent, keyHeader, secrets), secrets) {
			return id
		}
	}
	return ""
}
