package faultinjection

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/contract"
)

// withoutEffect is the answer to an arrival that was not executed.
func (s *Server) withoutEffect(q question, v verdict) answer {
	switch v.outcome {
	case OutcomeReplayed:
		return s.replay(v.stored)
	case OutcomeInFlight:
		out := signal(s.contract.InFlight, http.StatusConflict, "a request with this key is being worked on")
		wait := s.RetryAfter
		if wait <= 0 {
			wait = time.Second
		}
		s.askToWait(out.header, wait)
		return out
	case OutcomeMismatch:
		return signal(s.contract.Mismatch, http.StatusUnprocessableEntity, "this key was used with another request")
	case OutcomeBadKey:
		return problem(http.StatusBadRequest, "%s", q.badKey)
	}
	return s.planned(v.step)
}

// planned is what a step answers in front of the key store.
func (s *Server) planned(step Step) answer {
	if step.action == loseRequest {
		return answer{}
	}
	out := problem(step.status, "planned: %s", step)
	if step.location != "" {
		out.header.Set("Location", step.location)
	}
	if step.retryAfter > 0 {
		s.askToWait(out.header, step.retryAfter)
	}
	return out
}

// replay marks a stored answer.
func (s *Server) replay(stored answer) answer {
	marker := contract.Marker{Header: "Idempotent-Replayed"}
	if s.contract.Replayed.Header != "" {
		marker = s.contract.Replayed
	}
	if stored.header == nil {
		stored.header = http.Header{}
	}
	mark(stored.header, marker)
	return stored
}

// signal makes an answer that the first of the contract's signals matches.
func signal(known []contract.Signal, status int, detail string) answer {
	if len(known) == 0 {
		return problem(status, "%s", detail)
	}
	first := known[0]
	if first.Status != 0 {
		status = first.Status
	}
	out := problem(status, "%s", detail)
	switch {
	case first.Pointer != "":
		value := first.Value
		if value == "" {
			value = first.Text
		}
		doc := valueAt(strings.Split(first.Pointer, "/")[1:], value)
		if first.Also != "" {
			doc = merged(doc, valueAt(strings.Split(first.Also, "/")[1:], ""))
		}
		out.body, _ = json.Marshal(doc) // always encodes
		out.header.Set("Content-Type", "application/json")
	case first.Text != "":
		out.body = []byte(first.Text)
		out.header.Set("Content-Type", "text/plain")
	}
	mark(out.header, first.Header)
	return out
}

// merged is a JSON value with what both say, where both are objects.
func merged(a, b any) any {
	one, ok := a.(map[string]any)
	other, both := b.(map[string]any)
	if !ok || !both {
		return a
	}
	for name, value := range other {
		if had, has := one[name]; has {
			value = merged(had, value)
		}
		one[name] = value
	}
	return one
}

// mark sets a header so that the marker matches.
func mark(h http.Header, m contract.Marker) {
	value := m.Value
	if value == "" {
		value = "true"
	}
	switch {
	case m.Header == "":
	case m.Param != "":
		h.Set(m.Header, "<about:blank>; "+m.Param+`="`+value+`"`)
	default:
		h.Set(m.Header, value)
	}
}

// valueAt builds the JSON value in which a pointer's path leads to value.
func valueAt(path []string, value string) any {
	if len(path) == 0 {
		if value == "" {
			return true
		}
		return value
	}
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	inner := valueAt(path[1:], value)
	if name == "0" {
		return []any{inner}
	}
	return map[string]any{name: inner}
}

// askToWait writes a wait in the contract's header and unit.
func (s *Server) askToWait(h http.Header, d time.Duration) {
	wait := contract.Wait{Header: "Retry-After"}
	if s.contract != nil && len(s.contract.Waits) > 0 {
		wait = s.contract.Waits[0]
	}
	var n int64
	switch wait.Unit {
	case contract.Milliseconds:
		n = roundUp(d, time.Millisecond)
	case contract.UnixSeconds:
		n = s.now().Unix() + roundUp(d, time.Second)
	default:
		n = roundUp(d, time.Second)
	}
	h.Set(wait.Header, strconv.FormatInt(n, 10))
}

// roundUp counts units, so that nobody comes back too early.
func roundUp(d, unit time.Duration) int64 {
	return int64((d + unit - 1) / unit)
}
