package contract

import (
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// The functions below say what is wrong with a text; empty means nothing.

func hostProblem(pattern string) string {
	switch {
	case pattern == "":
		return "is empty"
	case strings.Contains(pattern, "://"):
		return "has a scheme: give the host alone, as in \"api.example.com\" or \"127.0.0.1:8080\""
	case strings.ContainsAny(pattern, "/?#@ \t"):
		return "is more than a host and a port"
	case !isPrintable(pattern):
		return "is not ASCII: give the name's xn-- form"
	}
	name, port := splitHost(pattern)
	bracketed := strings.HasPrefix(pattern, "[")
	if bracketed || strings.Contains(name, ":") {
		if _, err := netip.ParseAddr(name); err != nil || !strings.Contains(name, ":") {
			return "is not an IPv6 address, written as in \"[::1]:8080\""
		}
		if bracketed && pattern != "["+name+"]" && pattern != "["+name+"]:"+port {
			return "is not an IPv6 address, written as in \"[::1]:8080\""
		}
	} else if reason := nameProblem(name); reason != "" {
		return reason
	}
	if port == "" && (strings.HasSuffix(pattern, "]:") || pattern == name+":") {
		return "has an empty port"
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return "has a port that is not a number from 1 to 65535"
	}
	return ""
}

// nameProblem checks a host name, with a star in front or without.
func nameProblem(name string) string {
	rest, wild := strings.CutPrefix(name, "*")
	if wild {
		if rest == "" || rest[0] != '.' && rest[0] != '-' {
			return "has a * that is not followed by \".\" or \"-\""
		}
		rest = "x" + rest // what the star stands for
	}
	rest = strings.TrimSuffix(rest, ".")
	if len(rest) == 0 || len(rest) > 253 {
		return "is not a host name"
	}
	for label := range strings.SplitSeq(rest, ".") {
		if label == "" || strings.ContainsFunc(label, func(r rune) bool { return !isNameRune(r) }) {
			if strings.Contains(rest, "*") {
				return "has a * that is not in front"
			}
			return "is not a host name"
		}
	}
	return ""
}

func isNameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

func pathProblem(prefix string) string {
	_, err := url.PathUnescape(prefix)
	switch {
	case !strings.HasPrefix(prefix, "/"):
		return "does not begin with \"/\""
	case strings.ContainsAny(prefix, "?#"):
		return "is more than a path"
	case hasHalfStar(prefix):
		return "has a * that is not a whole segment"
	case err != nil || !isPrintable(prefix) || strings.Contains(prefix, " "):
		return "is not written in its escaped form"
	case hasDotSegment(prefix):
		return "has a \".\" or \"..\" segment, which takes no request"
	}
	return ""
}

// hasHalfStar reports whether a "*" is not a segment of its own.
func hasHalfStar(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment != "*" && strings.Contains(segment, "*") {
			return true
		}
	}
	return false
}

func methodProblem(method string) string {
	switch {
	case !isToken(method) || method != strings.ToUpper(method):
		return "is not an upper-case method"
	case method == http.MethodGet, method == http.MethodHead, method == http.MethodOptions,
		method == http.MethodTrace, method == http.MethodConnect:
		return "is a method without an effect, which is sent without a key"
	}
	return ""
}

func pointerProblem(pointer string) string {
	if pointer == "" {
		return ""
	}
	if pointer[0] != '/' {
		return "is not a JSON pointer: it does not begin with \"/\" (RFC 6901)"
	}
	if _, err := unescapeToken(pointer); err != nil {
		return "is not a JSON pointer: it has " + err.Error() + " (RFC 6901)"
	}
	return ""
}

// isToken follows RFC 9110 5.6.2, read 2026-11-29.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return false
		}
		return !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

func isCredential(header string) bool {
	switch http.CanonicalHeaderKey(header) {
	case "Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie":
		return true
	}
	return false
}

// isReserved names the headers that net/http, proxies or servers act on: a key
// in one of them would not arrive, or would change what the request means.
func isReserved(header string) bool {
	if isCredential(header) {
		return true
	}
	switch http.CanonicalHeaderKey(header) {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te",
		"Trailer", "Upgrade", "Proxy-Connection", "Expect", "Http2-Settings",
		"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control",
		"Content-Encoding", "Content-Language", "Content-Location", "Content-Range",
		"Content-Type", "Date", "Forwarded", "From", "If-Match", "If-Modified-Since",
		"If-None-Match", "If-Range", "If-Unmodified-Since", "Location", "Max-Forwards",
		"Origin", "Pragma", "Range", "Referer", "Retry-After", "Traceparent", "Tracestate",
		"User-Agent", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
		return true
	}
	return false
}
