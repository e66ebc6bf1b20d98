package contract

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Resolve returns c if it is bound to the request's host, path and method, else
// nil. It looks at req.URL and req.Method only. A nil c takes nothing.
func (c *Contract) Resolve(req *http.Request) *Contract {
	if c == nil || req == nil || req.URL == nil {
		return nil
	}
	if !c.takesMethod(req.Method) || !c.takesHost(req.URL) || !c.takesPath(req.URL) {
		return nil
	}
	return c
}

// At returns a copy of c that is bound to these hosts instead of its own, each
// written as in [Contract.Hosts]. It is for a test double, a gateway, or a
// server of your own:
//
//	contract.StripeV1.At("127.0.0.1:12111")
//
// Everything else stays, Paths too: a double of api.stripe.com serves /v1 as the
// original does. For a gateway that serves under another prefix, set Paths on
// the copy.
//
// A request to a host that no contract is bound to goes out without a key. A
// transport for one server alone leaves At out, so that a mistyped host cannot.
//
// Without hosts the copy takes no request at all, so that an empty setting does
// not bind it to every server. A host that is none is found by
// [Contract.Validate].
func (c *Contract) At(hosts ...string) *Contract {
	if c == nil {
		return nil
	}
	bound := c.Clone()
	bound.Hosts = make([]string, len(hosts))
	for i, host := range hosts {
		bound.Hosts[i] = strings.ToLower(host)
	}
	return bound
}

// Clone returns a copy that shares nothing with c, to be changed.
func (c *Contract) Clone() *Contract {
	if c == nil {
		return nil
	}
	clone := *c
	for _, list := range []*[]string{
		&clone.Hosts, &clone.Paths, &clone.Methods, &clone.ScopeHeaders, &clone.Sources,
	} {
		*list = slices.Clone(*list)
	}
	for _, list := range []*[]Signal{
		&clone.InFlight, &clone.Mismatch, &clone.AlreadyDone,
		&clone.StoreDown, &clone.NotExecuted, &clone.Overlap, &clone.Proven,
	} {
		*list = slices.Clone(*list)
	}
	clone.Companions = slices.Clone(clone.Companions)
	clone.Waits = slices.Clone(clone.Waits)
	clone.RetryStatuses = slices.Clone(clone.RetryStatuses)
	clone.FinalStatuses = slices.Clone(clone.FinalStatuses)
	return &clone
}

func (c *Contract) takesMethod(method string) bool {
	if c.Methods != nil {
		return slices.Contains(c.Methods, method)
	}
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

func (c *Contract) takesHost(u *url.URL) bool {
	if c.Hosts == nil {
		return true
	}
	name, port := canonicalHost(u.Hostname()), portOf(u)
	if name == "" {
		return false
	}
	for _, pattern := range c.Hosts {
		if hostMatches(pattern, name, port) {
			return true
		}
	}
	return false
}

func (c *Contract) takesPath(u *url.URL) bool {
	if c.Paths == nil {
		return true
	}
	// An opaque URL is sent as it is, whatever its Path says.
	if u.Opaque != "" {
		return false
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	if hasDotSegment(path) {
		return false
	}
	for _, prefix := range c.Paths {
		if pathUnder(path, prefix, c.ExactPaths) {
			return true
		}
	}
	return false
}

// hostMatches compares a pattern of Hosts with a canonical name and its port.
func hostMatches(pattern, name, port string) bool {
	wantName, wantPort := splitHost(pattern)
	if wantPort != "" && strings.TrimLeft(wantPort, "0") != port {
		return false
	}
	suffix, wild := strings.CutPrefix(wantName, "*")
	if !wild {
		want := canonicalHost(wantName)
		return want != "" && want == name
	}
	// "*example.com" would take evilexample.com as well.
	if suffix == "" || suffix[0] != '.' && suffix[0] != '-' {
		return false
	}
	suffix = canonicalHost(suffix)
	return len(name) > len(suffix) && strings.HasSuffix(name, suffix)
}

// splitHost cuts a pattern into its name, without brackets, and its port.
func splitHost(pattern string) (name, port string) {
	if inner, ok := strings.CutPrefix(pattern, "["); ok {
		name, rest, _ := strings.Cut(inner, "]")
		return name, strings.TrimPrefix(rest, ":")
	}
	if strings.Count(pattern, ":") == 1 {
		name, port, _ = strings.Cut(pattern, ":")
		return name, port
	}
	return pattern, ""
}

// canonicalHost writes a host name so that equal hosts have equal text.
func canonicalHost(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if strings.Contains(name, ":") {
		if address, err := netip.ParseAddr(name); err == nil {
			return address.String()
		}
	}
	return name
}

// portOf returns the port that the URL leads to; empty if that is not known.
func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return strings.TrimLeft(port, "0")
	}
	switch {
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	case strings.EqualFold(u.Scheme, "http"):
		return "80"
	}
	return ""
}

// pathUnder reports whether path is prefix or, where that is not to be exact,
// lies below it.
func pathUnder(path, prefix string, exact bool) bool {
	if !strings.HasPrefix(prefix, "/") {
		return false
	}
	prefix = strings.TrimRight(prefix, "/")
	for prefix != "" {
		if !strings.HasPrefix(path, "/") {
			return false
		}
		var want, got string
		want, prefix = firstSegment(prefix)
		got, path = firstSegment(path)
		if want != got && (want != "*" || got == "") {
			return false
		}
	}
	return path == "" || path[0] == '/' && (!exact || path == "/")
}

// firstSegment cuts a path that begins with "/".
func firstSegment(path string) (segment, rest string) {
	path = path[1:]
	if end := strings.IndexByte(path, '/'); end >= 0 {
		return path[:end], path[end:]
	}
	return path, ""
}

// hasDotSegment reports whether a segment of the escaped path is "." or "..",
// plain or escaped.
func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if len(segment) == 0 || len(segment) > len("%2e%2e") {
			continue
		}
		switch strings.ToLower(segment) {
		case ".", "..", "%2e", ".%2e", "%2e.", "%2e%2e":
			return true
		}
	}
	return false
}
