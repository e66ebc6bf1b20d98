package journaltest

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/idem-go/idem"
)

// row is one stored intent. Nothing in it is shared with a caller: what comes
// in and what goes out is copied.
type row struct {
	idem.Intent // Request and Outcome point to the fields below, and have no header

	owner    *handle // who has it; nil: nobody
	running  bool    // a call of the owner is at it
	began    time.Time
	pruned   bool
	older    *row // the generation before
	attempts []idem.Attempt

	request       idem.StoredRequest
	outcome       idem.Outcome
	requestHeader []byte // see headerOf
	outcomeHeader []byte
}

func (m *room) newRow(want *idem.Intent) *row {
	r := &m.fresh.take(1)[0]
	r.Intent = *want
	r.Claimed, r.Owned, r.Request, r.Outcome = false, false, nil, nil
	r.Fingerprint, r.Adopted, r.Credential = m.keep(want.Fingerprint), m.keep(want.Adopted), m.keep(want.Credential)
	r.Withheld = slices.Clone(want.Withheld)
	r.keepInstants()
	if want.Request != nil {
		m.keepRequest(r, want.Request)
	}
	if r.State.Final() {
		m.keepOutcome(r, want.Outcome)
	}
	return r
}

// instant is t as every instant comes back: UTC, without a monotonic reading.
func instant(t time.Time) time.Time { return t.Round(0).UTC() }

func (r *row) keepInstants() {
	for _, t := range []*time.Time{&r.Created, &r.FirstSent, &r.Due, &r.Expires, &r.Settled} {
		*t = instant(*t)
	}
}

func (m *room) keepRequest(r *row, q *idem.StoredRequest) {
	r.request = idem.StoredRequest{URL: q.URL, Host: q.Host, Body: m.keep(q.Body)}
	r.requestHeader = m.header(q.Header)
	r.Request = &r.request
}

// keepOutcome keeps the first outcome; nil: settled by a person or a read.
func (m *room) keepOutcome(r *row, o *idem.Outcome) {
	switch {
	case r.Outcome != nil:
		return
	case o != nil:
		r.outcome = *o
		r.outcome.Header, r.outcome.Body = nil, m.keep(o.Body)
		r.outcomeHeader = m.header(o.Header)
	}
	r.Outcome = &r.outcome
}

// late is the row as the final answer of an attempt that lost its claim leaves
// it.
func (r *row) late(next *idem.Intent) idem.Intent {
	in := r.Intent
	in.State, in.Doubt, in.HoldReason, in.Claimed = next.State, false, "", false
	in.Attempts, in.Notify = max(in.Attempts, next.Attempts), in.Notify || next.Notify
	in.Settled, in.Due, in.Wait, in.Outcome = next.Settled, time.Time{}, 0, next.Outcome
	if in.FirstSent.IsZero() {
		in.FirstSent = next.FirstSent
	}
	in.By = cmp.Or(next.By, in.By)
	return in
}

// write takes the hot part of next over.
func (m *room) write(r *row, next *idem.Intent) {
	r.State, r.Doubt, r.HoldReason = next.State, next.Doubt, next.HoldReason
	r.Attempts, r.Deaths, r.Resumes = next.Attempts, next.Deaths, next.Resumes
	r.FirstSent, r.Due, r.Wait, r.Expires, r.Settled = next.FirstSent, next.Due, next.Wait, next.Expires, next.Settled
	r.By, r.Note, r.Prepared, r.Notify = next.By, next.Note, next.Prepared, next.Notify
	r.keepInstants()
	r.Version++
	if r.State.Final() {
		m.keepOutcome(r, next.Outcome)
	}
}

// note keeps an attempt in its place; a later note of the same one is truer.
func (m *room) note(r *row, a idem.Attempt) {
	a.Started, a.Ended = instant(a.Started), instant(a.Ended)
	i, found := slices.BinarySearchFunc(r.attempts, a.Number, func(b idem.Attempt, n int) int { return b.Number - n })
	switch {
	case found:
		r.attempts[i] = a
	case r.attempts == nil:
		r.attempts = m.attempts.take(1)
		r.attempts[0] = a
	default:
		r.attempts = slices.Insert(r.attempts, i, a)
	}
}

// owned reports whether a living owner has the row. One without a running call
// counts as dead.
func (r *row) owned() bool { return r.owner != nil && r.owner.gone == nil && r.running }

// waits reports whether ClaimDue may claim the row once it is due.
func (r *row) waits() bool {
	switch r.State {
	case idem.StatePending, idem.StateUnknown, idem.StateInFlight:
		return true
	}
	return r.State.Final() && r.Notify
}

// tellsLater reports whether an earlier generation owes a notification, too.
func (r *row) tellsLater() bool {
	for e := r.older; r.State.Final() && e != nil; e = e.older {
		if e.State.Final() && e.Notify {
			return true
		}
	}
	return false
}

// deaths counts the one that a claim would add.
func (r *row) deaths() int {
	if r.State == idem.StateInFlight {
		return r.Deaths + 1
	}
	return r.Deaths
}

// inTurn orders rows as they are claimed; equals stay in the order of their IDs.
func inTurn(a, b *row) int {
	if c := cmp.Compare(a.deaths(), b.deaths()); c != 0 {
		return c
	}
	if a.deaths() == 0 {
		return a.Due.Compare(b.Due)
	}
	return a.began.Compare(b.began)
}

// doomed reports whether the row is held once its owner is dead.
func (r *row) doomed() bool { return r.State == idem.StateInFlight && r.HoldReason != "" }

func (r *row) hold() {
	r.State, r.Doubt, r.Settled = idem.StateHeld, true, instant(time.Now())
	r.owner = nil
	r.Version++
}

// superseded reports whether a renewal of key makes the next generation.
func (r *row) superseded(key string) bool {
	return r.Key == key && (r.State == idem.StateRejected || r.State == idem.StateWithdrawn) && !r.owned()
}

func (r *row) hasEarlier(key string) bool {
	for r = r.older; r != nil; r = r.older {
		if r.Key == key {
			return true
		}
	}
	return false
}

func (r *row) prunable(before, now time.Time) bool {
	if !r.State.Final() && r.State != idem.StateWithdrawn || r.pruned || r.owned() || r.Notify {
		return false
	}
	since := r.Created
	if r.FirstSent.After(since) {
		since = r.FirstSent
	}
	return r.Settled.Before(before) && (r.Retention <= 0 || !since.Add(r.Retention).After(now))
}

func (r *row) dropBodies() {
	r.pruned = true
	r.Request, r.request, r.requestHeader = nil, idem.StoredRequest{}, nil
	r.outcome.Body, r.outcome.Complete = nil, false
	r.Version++
}

// listed is a copy without bodies.
func (r *row) listed() idem.Intent {
	in := r.Intent
	in.Owned, in.Request = r.owned(), nil
	in.Fingerprint, in.Adopted, in.Credential = bytes.Clone(r.Fingerprint), bytes.Clone(r.Adopted), bytes.Clone(r.Credential)
	in.Withheld = slices.Clone(r.Withheld)
	if r.Outcome != nil {
		o := r.outcome
		o.Header, o.Body = headerOf(r.outcomeHeader), nil
		in.Outcome = &o
	}
	return in
}

// whole is a copy with both bodies.
func (r *row) whole() idem.Intent {
	in := r.listed()
	if in.Outcome != nil {
		in.Outcome.Body = bytes.Clone(r.outcome.Body)
	}
	if r.Request != nil {
		q := r.request
		q.Header, q.Body = headerOf(r.requestHeader), bytes.Clone(q.Body)
		in.Request = &q
	}
	return in
}
