package idem

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"time"
)

// The reference model of a journal: what DESIGN.md and the comments of Journal
// say, over a slice of rows. It knows no database, no versions to compare and
// no owner rows; a row is had by a living handle's call or by nobody.

// machineRow is one intent as it has to be. Its Version is the one last seen.
type machineRow struct {
	Intent
	has     *machineHand // whose running call has it; nil: nobody
	left    bool         // its last owner died with it, or gave up without a word
	stuck   *machineHand // gave up without a word: nobody's, but only that handle knows
	began   int          // order in which the last attempts began
	pruned  bool
	again   bool // claimed since it was pruned, without a request to take: pruning may count it again
	removed bool
	wrote   bool // the version must be a higher one now
	may     bool // the version may be a higher one now
	notes   map[int]Attempt
}

// machineModel is all rows of one file, by ID: the n-th row has the n-th ID,
// since none is ever given again.
type machineModel struct {
	rows  []*machineRow
	begun int
}

// machineReply is what an act has to answer.
type machineReply struct {
	row     *machineRow
	claimed bool
	err     error // ErrBusy or ErrNotFound
}

func (m *machineModel) alive() []*machineRow {
	return slices.DeleteFunc(slices.Clone(m.rows), func(r *machineRow) bool { return r.removed })
}

func (m *machineModel) byID(id string) *machineRow {
	for _, r := range m.rows {
		if r.ID == id && !r.removed {
			return r
		}
	}
	return nil
}

// generations are an operation's rows, the newest first.
func (m *machineModel) generations(scope, operation string) []*machineRow {
	var all []*machineRow
	for _, r := range m.alive() {
		if operation != "" && r.Scope == scope && r.Operation == operation {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *machineRow) int { return cmp.Compare(b.Generation, a.Generation) })
	return all
}

func (m *machineModel) holderOf(adopted []byte) *machineRow {
	for _, r := range m.alive() {
		if len(adopted) > 0 && bytes.Equal(r.Adopted, adopted) {
			return r
		}
	}
	return nil
}

// begin finds the row that want means, or makes it, and claims it for h.
func (m *machineModel) begin(h *machineHand, want Intent) machineReply {
	if want.ID != "" {
		r := m.byID(want.ID)
		if r == nil {
			return machineReply{err: ErrNotFound}
		}
		if all := m.generations(r.Scope, r.Operation); len(all) > 0 && all[0] != r {
			return machineReply{row: r} // a later generation has its place
		}
		return m.claim(h, r, want)
	}
	all := m.generations(want.Scope, want.Operation)
	switch {
	case len(all) > 0 && want.Renews == "":
		return m.claim(h, all[0], want)
	case len(all) > 0:
		newest := all[0]
		if newest.Key == want.Renews && (newest.State == StateRejected || newest.State == StateWithdrawn) && !newest.taken(h) {
			return m.insert(h, want, newest.Generation+1)
		}
		for _, r := range all[1:] {
			if r.Key == want.Renews && newest.Key != want.Renews {
				return m.claim(h, newest, want)
			}
		}
		return machineReply{row: newest}
	}
	if r := m.holderOf(want.Adopted); r != nil {
		if r.Operation != want.Operation || r.Scope != want.Scope {
			return machineReply{row: r}
		}
		return m.claim(h, r, want)
	}
	return m.insert(h, want, 1)
}

func (m *machineModel) insert(h *machineHand, want Intent, generation int) machineReply {
	r := &machineRow{Intent: want, has: h, notes: map[int]Attempt{}, wrote: true}
	r.Generation, r.Claimed = generation, false
	if r.State == StateInFlight {
		r.began = m.begins()
	}
	m.rows = append(m.rows, r)
	return machineReply{row: r, claimed: true}
}

func (m *machineModel) begins() int {
	m.begun++
	return m.begun
}

// claim gives a found row to h, unless somebody has it or nothing is to be done.
func (m *machineModel) claim(h *machineHand, r *machineRow, want Intent) machineReply {
	if r.taken(h) || r.State.Final() || r.State == StateHeld || !bytes.Equal(r.Fingerprint, want.Fingerprint) {
		return machineReply{row: r}
	}
	if r.doomed() {
		r.holdDoomed()
		return machineReply{row: r}
	}
	if r.State == StateWithdrawn && r.Request == nil && want.Request != nil {
		r.Request, r.pruned = want.Request, false
	}
	r.give(h)
	if want.Credential != nil && r.Adopted == nil && !r.Doubt && r.FirstSent.IsZero() {
		r.Credential = want.Credential
	}
	return machineReply{row: r, claimed: true}
}

// taken reports whether somebody has the row, as far as h can know.
func (r *machineRow) taken(h *machineHand) bool {
	return r.has != nil || r.stuck != nil && r.stuck != h
}

// doomed reports a dead owner's row that is held instead of claimed.
func (r *machineRow) doomed() bool { return r.State == StateInFlight && r.HoldReason != "" }

func (r *machineRow) holdDoomed() {
	r.State, r.Doubt, r.Settled = StateHeld, true, time.Now().UTC().Round(0)
	r.wrote, r.left, r.stuck = true, false, nil
}

// give makes the row h's. What a dead owner was sending is doubt.
func (r *machineRow) give(h *machineHand) {
	if r.State == StateInFlight {
		r.notes[r.Attempts] = Attempt{Number: r.Attempts, Phase: phaseMaybeSent, Decision: "interrupted"}
		r.State, r.Doubt = StateUnknown, true
		r.Deaths++
	}
	r.has, r.stuck, r.wrote, r.left, r.again = h, nil, true, false, r.pruned
}

// due are the rows that a claim of at most limit takes, in their order, and when
// the first of the others is due.
func (m *machineModel) due(h *machineHand, now time.Time, f Filter) (due []*machineRow, next time.Time) {
	for _, r := range m.alive() {
		switch {
		case r.Name != f.Name || r.Scope != f.Scope || r.taken(h) || !r.waits() || m.tellsLater(r):
		case !r.Due.After(now):
			due = append(due, r)
		case next.IsZero() || r.Due.Before(next):
			next = r.Due
		}
	}
	slices.SortStableFunc(due, func(a, b *machineRow) int {
		if c := cmp.Compare(a.deaths(), b.deaths()); c != 0 {
			return c
		}
		if a.deaths() == 0 {
			return a.Due.Compare(b.Due)
		}
		return cmp.Compare(a.began, b.began)
	})
	return due[:min(len(due), f.Limit)], next
}

func (r *machineRow) waits() bool {
	switch r.State {
	case StatePending, StateUnknown, StateInFlight:
		return true
	}
	return r.State.Final() && r.Notify
}

// tellsLater reports whether an earlier generation is to be told of first.
func (m *machineModel) tellsLater(r *machineRow) bool {
	return r.State.Final() && slices.ContainsFunc(m.generations(r.Scope, r.Operation), func(e *machineRow) bool {
		return e.Generation < r.Generation && e.State.Final() && e.Notify
	})
}

// deaths counts the one that a claim would add.
func (r *machineRow) deaths() int {
	if r.State == StateInFlight {
		return r.Deaths + 1
	}
	return r.Deaths
}

// update writes next over the version that it names.
func (m *machineModel) update(h *machineHand, next Intent, a *Attempt) error {
	r := m.byID(next.ID)
	if r == nil {
		return ErrNotFound
	}
	seen := next.Version == r.Version
	answer := next.State.Final() && !r.State.Final() && next.Key == r.Key && (next.State == StateSucceeded || next.Attempts >= r.Attempts)
	mine := seen && (r.has == h || !r.taken(h)) && (!r.State.Final() || next.State == r.State)
	if !answer && !mine {
		if r.has == h && seen && !next.Claimed {
			r.has, r.left, r.stuck = nil, true, h // the call ends even when its write fails
		}
		return ErrBusy
	}
	if next.State == StateInFlight && (r.State != StateInFlight || next.Attempts != r.Attempts) {
		r.began = m.begins()
	}
	if seen {
		r.write(next)
	} else {
		r.answerLate(next)
	}
	if r.State.Final() && r.Outcome == nil {
		r.Outcome = next.Outcome
	}
	if a != nil {
		r.notes[a.Number] = *a
	}
	r.has, r.stuck, r.wrote, r.left = nil, nil, true, false
	if next.Claimed {
		r.has = h
	}
	return nil
}

// write takes the hot part over.
func (r *machineRow) write(next Intent) {
	r.State, r.Doubt, r.HoldReason, r.Attempts, r.Deaths, r.Resumes = next.State, next.Doubt, next.HoldReason, next.Attempts, next.Deaths, next.Resumes
	r.FirstSent, r.Due, r.Wait, r.Expires, r.Settled = next.FirstSent, next.Due, next.Wait, next.Expires, next.Settled
	r.By, r.Note, r.Prepared, r.Notify = next.By, next.Note, next.Prepared, next.Notify
}

// answerLate settles the row by an answer to an attempt that lost its claim:
// what was counted and decided since stays.
func (r *machineRow) answerLate(next Intent) {
	r.State, r.Doubt, r.HoldReason, r.Settled = next.State, false, "", next.Settled
	r.Due, r.Wait, r.Notify = time.Time{}, 0, r.Notify || next.Notify
	r.Attempts, r.By = max(r.Attempts, next.Attempts), cmp.Or(next.By, r.By)
	if r.FirstSent.IsZero() {
		r.FirstSent = next.FirstSent
	}
}

// over reports whether the row is settled since before that instant, is not
// remembered by the provider any more, and is nobody's and owed to nobody.
func (r *machineRow) over(h *machineHand, before, now time.Time) bool {
	since := r.Created
	if r.FirstSent.After(since) {
		since = r.FirstSent
	}
	closed := r.State.Final() || r.State == StateWithdrawn
	return closed && r.Settled.Before(before) && !r.Notify && !r.taken(h) && !since.Add(r.Retention).After(now)
}

// prune drops bodies, and unnamed rows whole. It returns the fewest and the most
// that may be told: a row that its owner died with may wait for the next claim.
func (m *machineModel) prune(h *machineHand, before, now time.Time) (fewest, most int, left []*machineRow) {
	for _, r := range m.alive() {
		switch {
		case r.pruned && !r.again || !r.over(h, before, now):
			continue
		case r.pruned:
			r.again, r.may = false, true
		case r.left:
			left = append(left, r)
		default:
			fewest++
			r.drop()
		}
		most++
	}
	return fewest, most, left
}

func (r *machineRow) drop() {
	r.wrote = true
	if r.Operation == "" {
		r.removed = true
		return
	}
	r.pruned, r.Request = true, nil
	if r.Outcome != nil {
		o := *r.Outcome
		o.Body, o.Complete = nil, false
		r.Outcome = &o
	}
}

// forget removes operations of which every generation is over, and unnamed rows.
func (m *machineModel) forget(h *machineHand, before, now time.Time) (removed int) {
	for _, r := range m.alive() {
		all := m.generations(r.Scope, r.Operation)
		if len(all) == 0 {
			all = []*machineRow{r}
		}
		stays := func(g *machineRow) bool {
			return !g.over(h, before, now) || g.State == StateWithdrawn && g.Due.After(now)
		}
		if r.removed || slices.ContainsFunc(all, stays) {
			continue
		}
		for _, g := range all {
			g.removed = true
		}
		removed += len(all)
	}
	return removed
}

// leave frees what a handle has: it was closed, or it died.
func (m *machineModel) leave(h *machineHand, died bool) {
	for _, r := range m.rows {
		if r.has == h || r.stuck == h {
			r.has, r.stuck, r.left = nil, nil, died
			r.may = !died
		}
	}
}

// listed is the row as List shows it to h.
func (r *machineRow) listed(h *machineHand) Intent {
	in := r.whole(h)
	in.Request = nil
	if in.Outcome != nil {
		in.Outcome.Body = nil
	}
	return in
}

// whole is the row with its bodies, in the form in which rows are compared.
func (r *machineRow) whole(h *machineHand) Intent {
	in := r.Intent
	in.Owned, in.Claimed = r.taken(h), false
	return machineNormal(in)
}

// machineNormal makes nothing and empty the same.
func machineNormal(in Intent) Intent {
	for _, b := range []*[]byte{&in.Fingerprint, &in.Adopted, &in.Credential} {
		if len(*b) == 0 {
			*b = nil
		}
	}
	header := func(h http.Header) http.Header {
		if len(h) == 0 {
			return nil
		}
		return h
	}
	if q := in.Request; q != nil {
		in.Request = &StoredRequest{URL: q.URL, Host: q.Host, Header: header(q.Header), Body: q.Body}
	}
	if in.Outcome != nil {
		o := *in.Outcome
		o.Header = header(o.Header)
		in.Outcome = &o
	}
	return in
}
