package idem

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/contract"
)

// machineDeeds is what can happen to a journal, and how often.
var machineDeeds []machineDeed

type machineDeed struct {
	name   string
	weight int
	do     func(m *machine, h *machineHand, a machineAct) error
}

func init() { // here, for the deeds are printed by their names
	machineDeeds = []machineDeed{
		{"begin", 18, (*machine).doBegin},
		{"renew", 6, (*machine).doRenew},
		{"send", 16, (*machine).doSend},
		{"end", 16, (*machine).doEnd},
		{"let go", 2, (*machine).doLetGo},
		{"deny", 5, (*machine).doDeny},
		{"late", 5, (*machine).doLate},
		{"due", 10, (*machine).doDue},
		{"decide", 6, (*machine).doDecide},
		{"die", 2, (*machine).doDie},
		{"reopen", 1, (*machine).doReopen},
		{"wait", 6, (*machine).doWait},
		{"prune", 3, (*machine).doPrune},
		{"forget", 2, (*machine).doForget},
	}
}

// machineNow is an instant as a journal gives it back.
func machineNow() time.Time { return time.Now().UTC().Round(0) }

// broken names the invariant of RELIABILITY.md that does not hold, or "model".
func broken(invariant, format string, args ...any) error {
	return fmt.Errorf(invariant+": "+format, args...)
}

func (m *machine) say(format string, args ...any) { m.did = fmt.Sprintf(format, args...) }

// saw counts what came out, so that a test can tell that it was tried.
func (m *machine) saw(what string) { m.counts[what]++ }

// pick is one of the rows of this sequence that fit.
func (m *machine) pick(n uint, fits func(*machineRow) bool) *machineRow {
	var all []*machineRow
	for _, r := range m.model.alive() {
		if r.Scope == m.scope && fits(r) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[n%uint(len(all))]
}

// want is a call as a transport begins it: named, or with a key of its own, or
// with neither.
func (m *machine) want(a, b uint) Intent {
	m.keys++
	now := machineNow()
	in := Intent{
		Scope: m.scope, Key: m.scope + "-key-" + strconv.Itoa(m.keys), Name: "main", Provider: "acme", Method: "POST", URL: "https://h/charges",
		State: StateInFlight, Attempts: 1, Created: now, FirstSent: now, Expires: now.Add(50 * time.Minute),
		Place: contract.Place{Header: "Idempotency-Key"}, Retention: []time.Duration{time.Hour, 24 * time.Hour, 0}[b%3],
	}
	switch n := a % 8; {
	case n < 4:
		in.Operation = "op-" + strconv.Itoa(int(n))
	case n < 6:
		in.Adopted = []byte(m.scope + " adopted " + strconv.Itoa(int(n)))
	case n == 6: // another operation with the same adopted key
		in.Operation, in.Adopted = "op-adopts", []byte(m.scope+" adopted 4")
	}
	what := in.Operation + string(in.Adopted)
	in.Fingerprint = []byte("fingerprint of " + what)
	in.Request = &StoredRequest{URL: "https://h/charges?for=" + what, Header: http.Header{"X-What": {what}}, Body: []byte("body of " + what)}
	if b/3%8 == 0 {
		in.Fingerprint = append(in.Fingerprint, '2')
		in.Request.Body = append(in.Request.Body, '2')
	}
	if b/24%3 == 0 { // the outbox
		in.Prepared, in.State, in.Attempts, in.FirstSent, in.Expires = true, StatePending, 0, time.Time{}, time.Time{}
	}
	if b/72%3 == 0 {
		in.Credential = []byte("credential " + strconv.Itoa(m.keys))
	}
	if b/216%6 == 0 && in.State == StateInFlight {
		in.HoldReason = HoldNoContract
	}
	return in
}

func (m *machine) doBegin(h *machineHand, a machineAct) error {
	want := m.want(a.a, a.b)
	if r := m.pick(a.b, func(r *machineRow) bool { return true }); r != nil && a.a/8%8 == 0 { // as a resume of one row does
		want = Intent{ID: r.ID, Fingerprint: r.Fingerprint}
	}
	return m.begin(h, want)
}

func (m *machine) doRenew(h *machineHand, a machineAct) error {
	want := m.want(a.a%4, a.b)
	all := m.model.generations(m.scope, want.Operation)
	if len(all) == 0 {
		return nil
	}
	want.Renews = all[(a.a/4)%uint(len(all))].Key
	if a.a/256%8 == 0 {
		want.Renews = "another"
	}
	return m.begin(h, want)
}

// begin begins, and compares the answer with the model's.
func (m *machine) begin(h *machineHand, want Intent) error {
	before, doom := len(m.model.rows), m.dooms(h)
	exp := m.model.begin(h, want)
	got, claimed, err := h.Begin(m.tb.Context(), want)
	m.say("begin %s%s %q renews %q: %s claimed %t, %v", want.Operation, want.Adopted, want.State, want.Renews, machineShown(got), claimed, err)
	if exp.err != nil {
		m.saw("begin: not found")
		return refusedAs(exp.err, err)
	}
	if err != nil {
		return broken("R4", "begin of what can be begun: %w", err)
	}
	r := exp.row
	if len(m.model.rows) > before {
		m.saw("begin: made")
		if slices.ContainsFunc(m.model.rows, func(r *machineRow) bool { return r.ID == got.ID }) {
			return broken("R1", "the ID %s is given again", got.ID)
		}
		r.ID = got.ID
	}
	if claimed && !exp.claimed && r.has != nil {
		return broken("R12", "row %s is claimed by handle %d while a call of handle %d has it", r.ID, h.slot, r.has.slot)
	}
	if claimed != exp.claimed {
		return broken("model", "claimed is %t of row %s, %s in the model", claimed, r.ID, machineShown(r.Intent))
	}
	if claimed && r.Doubt {
		m.saw("begin: claimed in doubt")
	}
	if got.Request == nil && doom[r] && r.State == StateHeld { // it is not to be sent
		m.saw("begin: doomed")
		got.Request = r.Request
	}
	return m.handed(h, r, got, claimed)
}

// dooms are the rows that a claim by h holds.
func (m *machine) dooms(h *machineHand) map[*machineRow]bool {
	doom := map[*machineRow]bool{}
	for _, r := range m.model.rows {
		doom[r] = !r.taken(h) && r.doomed()
	}
	return doom
}

// handed compares a row that Begin or ClaimDue gave.
func (m *machine) handed(h *machineHand, r *machineRow, got Intent, claimed bool) error {
	want := r.whole(h)
	if claimed {
		want.Owned = false
	}
	if got.Claimed != claimed {
		return broken("model", "Claimed is %t in what was claimed: %t", got.Claimed, claimed)
	}
	m.old = append(m.old, got)
	return m.compare(r, want, got)
}

// mine picks a row that h has.
func (m *machine) mine(h *machineHand, n uint, fits func(*machineRow) bool) *machineRow {
	return m.pick(n, func(r *machineRow) bool { return r.has == h && fits(r) })
}

// seen is the row as the caller that has it knows it.
func (r *machineRow) seen() Intent {
	in := r.Intent
	in.Claimed = r.has != nil
	return in
}

// doSend counts the next attempt before it begins.
func (m *machine) doSend(h *machineHand, a machineAct) error {
	r := m.mine(h, a.a, func(r *machineRow) bool { return !r.State.Final() && r.State != StateHeld })
	if r == nil {
		return nil
	}
	next := r.seen()
	if next.State == StateInFlight && a.b%2 == 0 { // the attempt before it is done
		next.Doubt = true
	}
	next.State, next.Claimed, next.Settled = StateInFlight, true, time.Time{}
	next.Attempts++
	if next.FirstSent.IsZero() {
		next.FirstSent = machineNow()
	}
	return m.update(h, next, nil, true)
}

// doEnd is what a call or a resume leaves: the answer, and what it means.
func (m *machine) doEnd(h *machineHand, a machineAct) error {
	r := m.mine(h, a.a, func(r *machineRow) bool { return r.State == StateInFlight })
	if r == nil {
		if r = m.mine(h, a.a, func(r *machineRow) bool { return r.State.Final() }); r != nil { // it was told
			next := r.seen()
			next.Claimed, next.Notify = false, false
			m.saw("end: told")
			return m.update(h, next, nil, true)
		}
		return nil
	}
	next, note := machineEnded(r.seen(), a.b)
	durable := next.State != StateSucceeded || a.b/64%2 == 0
	return m.update(h, next, note, durable)
}

// machineEnded is what becomes of an attempt.
func machineEnded(in Intent, n uint) (Intent, *Attempt) {
	now := machineNow()
	note := &Attempt{Number: in.Attempts, Started: now, Ended: now, Phase: phaseAnswered, StatusCode: 201, Decision: "succeeded"}
	in.Claimed, in.Deaths, in.HoldReason = false, 0, ""
	switch ends := n % 8; {
	case ends < 3:
		in = machineSettled(in, StateSucceeded, 201)
		in.Notify = in.Prepared
	case ends == 3:
		in = machineSettled(in, StateRejected, 402)
		note.StatusCode, note.Decision = 402, "rejected"
	case ends == 4:
		in.State, in.Doubt, in.HoldReason, in.Settled = StateHeld, true, HoldStoredFailure, now
		note.StatusCode, note.Decision = 500, "stored_failure"
	case ends == 5 && !in.Doubt && in.Prepared:
		in.State, in.Due, in.Wait = StatePending, now.Add(time.Minute), time.Minute
		note.StatusCode, note.Decision = 429, "try_later"
	case ends == 5 && !in.Doubt:
		in.State, in.Settled = StateWithdrawn, now
		note.Phase, note.StatusCode, note.Decision = phaseNotSent, 0, "not_sent"
	default:
		in.State, in.Doubt, in.Wait = StateUnknown, true, time.Duration(n/8%3)*time.Hour
		in.Due = now.Add(in.Wait)
		in.Resumes++
		note.Phase, note.StatusCode, note.Decision = phaseMaybeSent, 0, "no_answer"
	}
	return in, note
}

func machineSettled(in Intent, to State, status int) Intent {
	in.State, in.Doubt, in.HoldReason, in.Settled, in.Due, in.Wait = to, false, "", machineNow(), time.Time{}, 0
	in.Outcome = &Outcome{
		StatusCode: status, Header: http.Header{"X-Id": {in.Key}}, Body: []byte("answer to " + in.Key), Complete: true, RequestID: "req-" + in.Key,
	}
	return in
}

// doLetGo ends a call before it sends.
func (m *machine) doLetGo(h *machineHand, a machineAct) error {
	r := m.mine(h, a.a, func(r *machineRow) bool { return r.State != StateInFlight && !r.State.Final() })
	if r == nil {
		return nil
	}
	next := r.seen()
	next.Claimed = false
	return m.update(h, next, nil, true)
}

// update writes, and compares whether it was taken.
func (m *machine) update(h *machineHand, next Intent, a *Attempt, durable bool) error {
	r := m.model.byID(next.ID)
	late := r != nil && r.Version != next.Version
	exp := m.model.update(h, next, a)
	got, err := h.Update(m.tb.Context(), next, a, durable)
	m.say("update %s durable %t: %v", machineShown(next), durable, err)
	m.saw("update: " + string(next.State))
	if exp != nil {
		m.saw("update: refused")
		return refusedAs(exp, err)
	}
	if err != nil {
		return broken("model", "an update that is due is refused: %w", err)
	}
	if got.Version <= r.Version {
		return broken("model", "the version of row %s went from %d to %d", r.ID, r.Version, got.Version)
	}
	r.Version, r.wrote = got.Version, false
	if late { // got is what the caller knew, not what the row has become
		m.saw("update: late answer")
		return nil
	}
	m.old = append(m.old, got)
	return nil
}

func refusedAs(want, err error) error {
	switch {
	case err == nil:
		return broken("model", "done, though it has to be refused: %w", want)
	case !errors.Is(err, want):
		return broken("model", "refused as %w, and not as %w", err, want)
	case errors.Is(err, ErrJournal):
		return broken("model", "a refusal is no failure of storage: %w", err)
	}
	return nil
}

// doDeny tries what a living owner's row must refuse to others.
func (m *machine) doDeny(h *machineHand, a machineAct) error {
	r := m.pick(a.a, func(r *machineRow) bool { return r.has != nil && r.has != h })
	if r == nil {
		return nil
	}
	if err := m.begin(h, Intent{ID: r.ID, Fingerprint: r.Fingerprint}); err != nil {
		return err
	}
	next := r.seen()
	if r.State.Final() {
		return nil
	}
	next.State, next.Doubt, next.HoldReason, next.Claimed = StateUnknown, true, "", a.b%2 == 0
	next.Settled = time.Time{}
	m.saw("denied")
	return m.update(h, next, nil, a.b%4 < 2)
}

// doLate is a caller that comes back with what it saw long ago.
func (m *machine) doLate(h *machineHand, a machineAct) error {
	if len(m.old) == 0 {
		return nil
	}
	in := m.old[a.a%uint(len(m.old))]
	in.Outcome, in.Request = nil, nil
	to := []State{StateSucceeded, StateRejected, StateUnknown, StateHeld}[a.b%4]
	switch {
	case to.Final():
		in = machineSettled(in, to, 200)
		in.Outcome.Body = []byte("late")
	case in.State.Final():
		return nil
	default:
		in.State, in.Doubt, in.HoldReason, in.Settled = StateUnknown, true, "", time.Time{}
		if to == StateHeld {
			in.State, in.HoldReason, in.Settled = to, HoldExpired, machineNow()
		}
	}
	in.Claimed, in.Notify = false, false
	m.saw("late: " + string(to))
	return m.update(h, in, nil, true)
}

func (m *machine) doDue(h *machineHand, a machineAct) error {
	f := Filter{Name: "main", Scope: m.scope, Limit: int(1 + a.a%4)}
	if a.a/4%16 == 0 {
		f.Name = ""
	}
	now := machineNow().Add(time.Duration(a.b%3) * 30 * time.Minute)
	rows, wait := m.model.due(h, now, f)
	due, next, err := h.ClaimDue(m.tb.Context(), now, f)
	m.say("due at most %d: %d, next %s, %v", f.Limit, len(due), next, err)
	if err != nil {
		return broken("R13", "claim what is due: %w", err)
	}
	for _, in := range due {
		m.did += "\n\t\t" + machineShown(in)
	}
	for i, got := range due {
		if r := m.model.byID(got.ID); r != nil && r.has != nil {
			return broken("R12", "row %s is due for handle %d while a call of handle %d has it", r.ID, h.slot, r.has.slot)
		}
		if i >= len(rows) || rows[i].ID != got.ID {
			return broken("model", "number %d of %d is row %s; due are %s", i+1, len(due), got.ID, machineIDs(rows))
		}
	}
	if len(due) < len(rows) {
		return broken("R13", "%d are due, and not only %d: %s", len(rows), len(due), machineIDs(rows))
	}
	if !next.Equal(wait) {
		return broken("R13", "the next is due at %s, and not at %s", wait, next)
	}
	for i, r := range rows {
		doomed := r.doomed()
		if doomed {
			m.saw("due: doomed")
			r.holdDoomed()
		} else {
			m.saw("due: " + string(r.State))
			r.give(h)
		}
		got := due[i]
		if doomed {
			if got.Request != nil {
				return broken("R17", "row %s is held and comes with its request", r.ID)
			}
			got.Request = r.Request
		}
		if err := m.handed(h, r, got, !doomed); err != nil {
			return err
		}
	}
	return nil
}

func machineIDs(rows []*machineRow) string {
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	return fmt.Sprint(ids)
}

// machineShown is an intent in one line.
func machineShown(in Intent) string {
	return fmt.Sprintf("row %s %s%s/%d %s doubt %t attempts %d version %d", in.ID, in.Operation, in.Adopted, in.Generation, in.State, in.Doubt, in.Attempts, in.Version)
}

// doDecide is a person, or a verifier, with the list before them.
func (m *machine) doDecide(h *machineHand, a machineAct) error {
	list, err := h.List(m.tb.Context(), Filter{Scope: m.scope, States: []State{StateHeld, StateUnknown, StatePending, StateInFlight, StateWithdrawn}})
	if err != nil {
		return broken("R4", "list what is open: %w", err)
	}
	if len(list) == 0 {
		return nil
	}
	in := list[a.a%uint(len(list))]
	if held := slices.IndexFunc(list, func(in Intent) bool { return in.State == StateHeld }); held >= 0 && a.a/256%2 == 0 {
		in = list[held]
	}
	in.Claimed, in.By, in.Note = false, "ann", "decided"
	switch {
	case a.b%4 == 0:
		in = machineSettled(in, StateSucceeded, 0)
		in.Outcome, in.Notify = &Outcome{}, a.b/4%2 == 0
		m.saw("decide: resolve")
	case a.b%4 == 1:
		in = machineSettled(in, StateRejected, 0)
		in.Outcome = &Outcome{}
		m.saw("decide: resolve")
	case in.State != StateHeld:
		return nil
	case in.Doubt:
		in.State, in.HoldReason, in.Settled, in.Resumes, in.Deaths = StateUnknown, "", time.Time{}, 0, 0
		if a.b%4 == 3 { // ReleaseExpired
			in.FirstSent = machineNow()
			in.Expires = in.FirstSent.Add(time.Hour)
		}
		m.saw("decide: release")
	default:
		in.State, in.HoldReason, in.Settled, in.Resumes = StatePending, "", time.Time{}, 0
		m.saw("decide: release")
	}
	return m.update(h, in, nil, true)
}

func (m *machine) doWait(_ *machineHand, a machineAct) error {
	d := []time.Duration{time.Second, 40 * time.Minute, 61 * time.Minute, 25 * time.Hour}[a.a%4]
	time.Sleep(d)
	m.say("%s later", d)
	return nil
}

// settlePosts lets what was posted be written.
func settlePosts() { synctest.Wait() }
