package contract

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// answers checks the markers and signals.
func (v *validation) answers(c *Contract) {
	v.marker("Replayed", c.Replayed)
	v.marker("Transient", c.Transient)
	if c.Replayed != (Marker{}) && c.Replayed == c.Transient {
		v.add("Transient.Header", c.Transient.Header, "is Replayed too: an answer cannot be stored and not stored")
	}
	lists := []struct {
		name    string
		signals []Signal
	}{ // in the order of judgement
		{"AlreadyDone", c.AlreadyDone}, {"InFlight", c.InFlight}, {"Mismatch", c.Mismatch},
		{"StoreDown", c.StoreDown}, {"NotExecuted", c.NotExecuted}, {"Proven", c.Proven},
		{"Overlap", c.Overlap},
	}
	for n, list := range lists {
		for i, s := range list.signals {
			at := fmt.Sprintf("%s[%d]", list.name, i)
			v.signal(at, s, c.ErrorsInside200)
			if list.name == "Proven" && s == (Signal{Status: s.Status}) && s.Status != 0 {
				v.add(at, s, "has only a status, which proves nothing: add Pointer and Value, or Header")
			}
			if slices.Contains(list.signals[:i], s) {
				v.add(at, s, "is listed twice")
			}
			for _, earlier := range lists[:n] {
				if k := slices.IndexFunc(earlier.signals, s.within); k >= 0 {
					v.add(at, s, "never counts: %s[%d] matches the same answers and is judged first", earlier.name, k)
				}
			}
		}
	}
}

// within reports whether wide matches every answer that s matches.
func (s Signal) within(wide Signal) bool {
	return wide != Signal{} &&
		(wide.Status == 0 || wide.Status == s.Status) &&
		(wide.Pointer == "" || wide.Pointer == s.Pointer && (wide.Value == "" || wide.Value == s.Value)) &&
		(wide.Text == "" || wide.Pointer == s.Pointer && strings.Contains(s.Text, wide.Text)) &&
		(wide.Also == "" || wide.Also == s.Also) &&
		(wide.Header == Marker{} || wide.Header == s.Header)
}

func (v *validation) signal(at string, s Signal, inside200 bool) {
	if s == (Signal{}) {
		v.add(at, s, "is empty and matches nothing")
		return
	}
	if s.Status != 0 && (s.Status < 200 || s.Status > 599) {
		v.add(at+".Status", s.Status, "is not a final status from 200 to 599")
	}
	if s.Value != "" && s.Pointer == "" {
		v.add(at+".Value", s.Value, "has no Pointer that says where it stands")
	}
	if s.Value != "" && s.Text != "" {
		v.add(at+".Text", s.Text, "stands beside Value %q, which is the whole text already", s.Value)
	}
	for _, body := range []struct{ name, text, problem string }{
		{".Pointer", s.Pointer, pointerProblem(s.Pointer)}, {".Also", s.Also, pointerProblem(s.Also)}, {".Text", s.Text, ""},
	} {
		if body.problem != "" {
			v.add(at+body.name, body.text, "%s", body.problem)
		}
		if body.text != "" && s.Status/100 == 2 && !inside200 {
			v.add(at+body.name, body.text, "with Status %d is never looked at: set ErrorsInside200", s.Status)
			break
		}
	}
	v.marker(at+".Header", s.Header)
}

// read checks Read: its answer must prove this key and no other.
func (v *validation) read(c *Contract) {
	r := c.Read
	if r == (Read{}) {
		return
	}
	if !strings.HasPrefix(r.Path, "/") && !strings.HasPrefix(r.Path, "{path}") {
		v.add("Read.Path", r.Path, "begins neither with \"/\" nor with \"{path}\"")
	}
	path, query, _ := strings.Cut(strings.NewReplacer("{path}", "", "{key}", "").Replace(r.Path), "?")
	_, err := url.PathUnescape(path)
	if u, parseErr := url.ParseRequestURI("/" + path + "?" + query); err != nil || parseErr != nil || strings.ContainsAny(r.Path, " #") || u.RawQuery != query {
		v.add("Read.Path", r.Path, "is not written as a request has it: escape it")
	}
	if _, query, _ := strings.Cut(r.Path, "?"); strings.Contains(query, "{path}") {
		v.add("Read.Path", r.Path, "has \"{path}\" behind the \"?\", where it is not replaced")
	}
	if c.NoKeys {
		v.add("Read.Path", r.Path, "asks for a key, and the server takes none")
	}
	if !strings.Contains(r.Found.Value, "{key}") {
		v.add("Read.Found.Value", r.Found.Value, "does not have \"{key}\" in it, so that another key's effect would be taken for this one's")
	}
	if r.Found.Status == 0 {
		v.add("Read.Found.Status", 0, "is not named")
	}
	v.signal("Read.Found", r.Found, true)
}

func (v *validation) marker(at string, m Marker) {
	switch {
	case m == Marker{}:
	case m.Header == "":
		v.add(at+".Header", "", "is empty beside Value %q and Param %q", m.Value, m.Param)
	case !isToken(m.Header):
		v.add(at+".Header", m.Header, "is not a header name (RFC 9110 5.6.2)")
	}
	if m.Param != "" && !isToken(m.Param) {
		v.add(at+".Param", m.Param, "is not a parameter name (RFC 9110 5.6.6)")
	}
}

// advice checks ShouldRetry and Waits.
func (v *validation) advice(c *Contract) {
	a := c.ShouldRetry
	switch {
	case a == Advice{}:
	case !isToken(a.Header):
		v.add("ShouldRetry.Header", a.Header, "is not a header name (RFC 9110 5.6.2)")
	case a.Yes == "":
		v.add("ShouldRetry.Yes", a.Yes, "is empty; both values are needed")
	case a.No == "":
		v.add("ShouldRetry.No", a.No, "is empty; both values are needed")
	case strings.EqualFold(a.Yes, a.No):
		v.add("ShouldRetry.No", a.No, "is the same as Yes %q", a.Yes)
	}
	seen := make(map[string]bool, len(c.Waits))
	for i, w := range c.Waits {
		at := fmt.Sprintf("Waits[%d]", i)
		if !isToken(w.Header) {
			v.add(at+".Header", w.Header, "is not a header name (RFC 9110 5.6.2)")
		}
		switch w.Unit {
		case Seconds, Milliseconds, UnixSeconds:
		default:
			v.add(at+".Unit", string(w.Unit), "is neither Seconds, Milliseconds nor UnixSeconds")
		}
		v.marker(at+".When", w.When)
		name := http.CanonicalHeaderKey(w.Header)
		if seen[name] {
			v.add(at+".Header", w.Header, "is listed twice")
		}
		seen[name] = true
	}
}
