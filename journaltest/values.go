package journaltest

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
)

// allBytes is every byte there is.
func allBytes() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// roundTrip demands that want comes back as it is in every way it can, and an
// outcome like it, too.
func (e *exam) roundTrip(want idem.Intent) {
	e.Helper()
	j, other := e.open(), e.open()
	made := e.begin(j, want)
	want.ID, want.Generation = made.ID, made.Generation
	e.same(want, made)
	e.same(want, e.refused(other, want))
	next := e.ended(made, idem.StateUnknown)
	e.update(j, next, nil)
	claimed, _ := e.claimDue(other, e.now.AddDate(100, 0, 0), idem.Filter{Name: want.Name, Scope: want.Scope})
	require.Len(e, claimed, 1)
	e.same(next, claimed[0])
	final := e.ended(claimed[0], idem.StateSucceeded)
	final.Outcome.Header, final.Outcome.Body, final.Outcome.Replayed = want.Request.Header, want.Request.Body, true
	e.update(other, final, nil)
	e.same(final, e.refused(j, want))
	final.Request = nil
	found, err := j.Lookup(e.Context(), want.Scope, want.Operation)
	require.NoError(e, err)
	e.same(final, found)
	final.Outcome.Body = nil
	e.same(final, e.find(j, made.ID))
}

// scribble changes everything that a caller could share with a journal.
func scribble(in *idem.Intent) {
	in.Key, in.State = "scribbled", idem.StateRejected
	for _, b := range [][]byte{in.Fingerprint, in.Adopted, in.Credential} {
		fill(b)
	}
	for i := range in.Withheld {
		in.Withheld[i] = "scribbled"
	}
	if in.Request != nil {
		fill(in.Request.Body)
		scribbleHeader(in.Request.Header)
		in.Request.URL = "scribbled"
	}
	if in.Outcome != nil {
		fill(in.Outcome.Body)
		scribbleHeader(in.Outcome.Header)
		in.Outcome.StatusCode, in.Outcome.Complete = 999, false
	}
}

func fill(b []byte) {
	for i := range b {
		b[i] = '!'
	}
}

func scribbleHeader(h http.Header) {
	for _, values := range h {
		for i := range values {
			values[i] = "scribbled"
		}
	}
	h.Set("Scribbled", "too")
}

// copied is in with memory of its own.
func copied(in idem.Intent) idem.Intent {
	for _, b := range []*[]byte{&in.Fingerprint, &in.Adopted, &in.Credential} {
		*b = bytes.Clone(*b)
	}
	in.Withheld = slices.Clone(in.Withheld)
	if q := in.Request; q != nil {
		in.Request = &idem.StoredRequest{URL: q.URL, Host: q.Host, Header: q.Header.Clone(), Body: bytes.Clone(q.Body)}
	}
	if in.Outcome != nil {
		o := *in.Outcome
		o.Header, o.Body = o.Header.Clone(), bytes.Clone(o.Body)
		in.Outcome = &o
	}
	return in
}

// full is an operation with something in everything.
func (e *exam) full(operation string) idem.Intent {
	in := e.sending(operation)
	in.Adopted, in.Credential, in.Withheld = []byte("digest"), []byte("salted"), []string{"Authorization", "X, Y"}
	return in
}

var valueRules = []rule{
	{"every field comes back", func(e *exam) {
		in := e.full("a")
		in.Place = contract.Place{Header: "idempotency-key", Encoding: contract.Quoted}
		in.Prepared, in.Doubt, in.By, in.Note, in.Renews = true, true, "by", "note", "earlier"
		in.Attempts, in.Deaths, in.Resumes = 7, 2, 3
		in.Due, in.Wait = e.now.Add(time.Hour+1), time.Hour+1
		in.Adopted, in.Credential = []byte{0}, []byte{1, 0, 255}
		e.roundTrip(in)
	}},
	{"instants come back to the nanosecond, in UTC", func(e *exam) {
		in := e.sending("a")
		zone := time.FixedZone("somewhere", 5400)
		in.Created = time.Date(2026, 3, 29, 1, 59, 59, 999_999_999, time.UTC)
		in.FirstSent = in.Created.Add(1)
		j := e.open()
		want, local := in, in
		local.Created, local.FirstSent = in.Created.In(zone), in.FirstSent.In(zone)
		want.ID, want.Generation = e.begin(j, local).ID, 1
		e.same(want, e.refused(j, local))
	}},
	{"a binary body comes back", func(e *exam) {
		in := e.sending("a")
		in.Request.Body = allBytes()
		e.roundTrip(in)
	}},
	{"a large body comes back", func(e *exam) {
		in := e.sending("a")
		in.Request.Body = bytes.Repeat(allBytes(), 8<<10) // 2 MiB
		e.roundTrip(in)
	}},
	{"an empty body is no body", func(e *exam) {
		in := e.sending("a")
		in.Request.Body, in.Request.Header, in.Request.Host = nil, nil, ""
		e.roundTrip(in)
	}},
	{"headers keep their spelling, order and values, and names without a value", func(e *exam) {
		in := e.sending("a")
		in.Request.Header = http.Header{
			"x-lower": {"b", "a", "b"}, "X-Lower": {"c"}, "X-Blank": {""}, "X-Nothing": nil,
			"X-Latin": {"Gr\xf6\xdfe"}, "X-Long": {strings.Repeat("0123456789", 400)},
		}
		e.roundTrip(in)
	}},
	{"names may hold any text", func(e *exam) {
		for _, text := range []string{"Größe", "注文-42/💳", `'); DROP TABLE intent; --`, " %_\\\n", strings.Repeat("x", 2000)} {
			in := e.sending(text)
			in.Scope, in.Name, in.Provider = text, text, text
			e.roundTrip(in)
		}
	}},
	{"an outcome tells an empty body from one that was not kept", func(e *exam) {
		j := e.open()
		for operation, o := range map[string]idem.Outcome{
			"empty":    {StatusCode: 204, Complete: true, Body: []byte{}},
			"streamed": {StatusCode: 200},
			"kept":     {StatusCode: 200, Complete: true, Body: []byte("x"), Replayed: true, RequestID: "r"},
		} {
			next := e.ended(e.begin(j, e.sending(operation)), idem.StateSucceeded)
			next.Outcome = &o
			e.post(j, next, nil)
			e.same(next, e.refused(j, e.sending(operation)))
		}
	}},
	{"changing what was passed changes nothing stored", func(e *exam) {
		j := e.open()
		passed := e.full("a")
		want := copied(passed)
		made, _, err := j.Begin(e.Context(), passed)
		require.NoError(e, err)
		want.ID, want.Generation = made.ID, 1
		scribble(&passed)
		e.same(want, e.refused(j, e.full("a")))

		for _, durable := range []bool{true, false} {
			operation := strconv.FormatBool(durable)
			next := e.ended(e.begin(j, e.sending(operation)), idem.StateSucceeded)
			want, note := copied(next), e.answered(1)
			_, err := j.Update(e.Context(), next, note, durable)
			require.NoError(e, err)
			scribble(&next)
			note.Decision = "scribbled"
			e.same(want, e.refused(j, e.sending(operation)))
			require.Equal(e, []idem.Attempt{*e.answered(1)}, e.attempts(j, next))
		}
	}},
	{"changing what was returned changes nothing stored", func(e *exam) {
		j := e.open()
		made := e.begin(j, e.full("a"))
		want := copied(made)
		scribble(&made)
		left := e.update(j, copied(e.ended(want, idem.StateUnknown)), nil)
		want = copied(left)
		scribble(&left)

		claimed, _ := e.claimDue(j, e.now, ofMain)
		require.Len(e, claimed, 1)
		e.same(want, claimed[0])
		want = copied(claimed[0])
		scribble(&claimed[0])
		e.same(want, e.refused(j, e.full("a")))

		want = e.ended(want, idem.StateRejected)
		returned := e.post(j, copied(want), e.answered(1))
		scribble(&returned)
		for _, read := range []func() idem.Intent{
			func() idem.Intent { return e.refused(j, e.full("a")) },
			func() idem.Intent { return e.lookup(j, "a") },
			func() idem.Intent { return e.find(j, want.ID) },
		} {
			got := read()
			scribble(&got)
		}
		e.attempts(j, want)[0].Decision = "scribbled"
		require.Equal(e, "rejected", e.attempts(j, want)[0].Decision)
		e.same(want, e.refused(j, e.full("a")))
	}},
}
