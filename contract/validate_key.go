package contract

import (
	"fmt"
	"net/http"
	"strings"
)

// key checks Key, Form, the lengths and the Companions.
func (v *validation) key(c *Contract) {
	switch c.Key.Encoding {
	case Raw, Quoted:
	default:
		v.add("Key.Encoding", string(c.Key.Encoding), "is neither Raw nor Quoted")
	}
	switch c.Form {
	case Visible, Printable, Word, WordSpace, UUID, UUID4, Issued:
	default:
		v.add("Form", string(c.Form), "is neither Visible, Printable, Word, WordSpace, UUID, UUID4 nor Issued")
	}
	if c.NoKeys {
		return
	}
	v.place(c.Key)
	v.lengths(c)
	v.companions(c)
	if c.Replayed.Header != "" && strings.EqualFold(c.Replayed.Header, c.Key.Header) {
		v.add("Replayed.Header", c.Replayed.Header, "is Key.Header too: an echo of the key is no proof of a replay")
	}
	if c.Echo != "" && !isToken(c.Echo) {
		v.add("Echo", c.Echo, "is not a header name (RFC 9110 5.6.2)")
	}
}

// place checks that the key has one place, and that it can go there.
func (v *validation) place(p Place) {
	switch {
	case p.Pointer != "" && p.Param != "":
		v.add("Key.Param", p.Param, "stands beside Pointer %q: the key has one place", p.Pointer)
	case p.Header != "" && p.Pointer+p.Param != "":
		v.add("Key.Header", p.Header, "stands beside %q: the key has one place", Place{Pointer: p.Pointer, Param: p.Param})
	}
	if p.Encoding == Quoted && p.Header == "" && p.Pointer+p.Param != "" {
		v.add("Key.Encoding", string(p.Encoding), "is for a header and not for %q", p)
	}
	switch {
	case p.Pointer != "":
		if reason := pointerProblem(p.Pointer); reason != "" {
			v.add("Key.Pointer", p.Pointer, "%s", reason)
		}
		if strings.Contains(p.Pointer+"/", "/*/") {
			v.add("Key.Pointer", p.Pointer, "has a *: the key has one place")
		}
	case p.Param != "":
		if !isPrintable(p.Param) {
			v.add("Key.Param", p.Param, "has a character that does not belong into a parameter's name")
		}
	case p.Header == "":
		v.add("Key.Header", "", "is empty: name the header that carries the key, or set NoKeys")
	case !isToken(p.Header):
		v.add("Key.Header", p.Header, "is not a header name (RFC 9110 5.6.2)")
	case isReserved(p.Header):
		v.add("Key.Header", p.Header, "has another meaning in HTTP and cannot carry a key")
	}
}

func (v *validation) lengths(c *Contract) {
	switch {
	case c.MaxLength < 0 || c.MaxLength != 0 && c.MaxLength < uuidLength && c.Form != Issued:
		v.add("MaxLength", c.MaxLength, "is less than the %d bytes of a minted UUID", uuidLength)
	case c.Key.Encoding == Quoted && c.MaxLength > quotedLimit:
		v.add("MaxLength", c.MaxLength, "with Key.Encoding \"quoted\" is more than the %d bytes that a parser of quoted strings must take", quotedLimit)
	}
	switch {
	case c.MinLength < 0:
		v.add("MinLength", c.MinLength, "is negative")
	case c.MinLength > uuidLength && c.Form != Issued:
		v.add("MinLength", c.MinLength, "is more than the %d bytes of a minted UUID", uuidLength)
	case c.MaxLength > 0 && c.MinLength > c.MaxLength:
		v.add("MinLength", c.MinLength, "is more than MaxLength %d", c.MaxLength)
	}
}

func (v *validation) companions(c *Contract) {
	seen := make(map[string]bool, len(c.Companions))
	for i, companion := range c.Companions {
		at := fmt.Sprintf("Companions[%d]", i)
		name := http.CanonicalHeaderKey(companion.Header)
		switch {
		case !isToken(companion.Header):
			v.add(at+".Header", companion.Header, "is not a header name (RFC 9110 5.6.2)")
		case isReserved(companion.Header):
			v.add(at+".Header", companion.Header, "has another meaning in HTTP")
		case strings.EqualFold(companion.Header, c.Key.Header):
			v.add(at+".Header", companion.Header, "is Key.Header too")
		case seen[name]:
			v.add(at+".Header", companion.Header, "is listed twice")
		}
		seen[name] = true
		switch companion.Value {
		case HTTPDate, UnixTime:
		default:
			v.add(at+".Value", string(companion.Value), "is neither HTTPDate nor UnixTime")
		}
	}
	for i, name := range c.ScopeHeaders {
		if seen[http.CanonicalHeaderKey(name)] {
			v.add(fmt.Sprintf("ScopeHeaders[%d]", i), name, "is a companion too: it would change what the request is")
		}
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
		{"Key.Pointer", c.Key.Pointer, c.Key.Pointer != ""},
		{"Key.Param", c.Key.Param, c.Key.Param != ""},
		{"Key.Encoding", string(c.Key.Encoding), c.Key.Encoding != Raw},
		{"Form", string(c.Form), c.Form != Visible},
		{"MinLength", c.MinLength, c.MinLength != 0},
		{"MaxLength", c.MaxLength, c.MaxLength != 0},
		{"Companions", c.Companions, len(c.Companions) > 0},
		{"Echo", c.Echo, c.Echo != ""},
		{"Retention", c.Retention, c.Retention != 0},
		{"AfterExpiry", string(c.AfterExpiry), c.AfterExpiry != ExpiryUnknown},
		{"RotatingCredentials", c.RotatingCredentials, c.RotatingCredentials},
		{"CredentialPinned", c.CredentialPinned, c.CredentialPinned},
		{"HostPinned", c.HostPinned, c.HostPinned},
		{"Replay", string(c.Replay), c.Replay != ReplayUnknown},
		{"Replayed.Header", c.Replayed.Header, c.Replayed.Header != ""},
		{"InFlight", c.InFlight, len(c.InFlight) > 0},
		{"Mismatch", c.Mismatch, len(c.Mismatch) > 0},
		{"AlreadyDone", c.AlreadyDone, len(c.AlreadyDone) > 0},
		{"StoreDown", c.StoreDown, len(c.StoreDown) > 0},
		{"Overlap", c.Overlap, len(c.Overlap) > 0},
		{"Proven", c.Proven, len(c.Proven) > 0},
		{"StoresClientErrors", c.StoresClientErrors, c.StoresClientErrors},
		{"FailOpen", c.FailOpen, c.FailOpen},
		{"StoresServerErrors", c.StoresServerErrors, c.StoresServerErrors},
		{"RetryStatuses", c.RetryStatuses, len(c.RetryStatuses) > 0},
	} {
		if f.set {
			v.add(f.name, f.value, "contradicts NoKeys: it is about a key, and none is sent")
		}
	}
}
