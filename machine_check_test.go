package idem

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
)

// machinePast is what was seen of each row before. It needs no model.
type machinePast struct {
	rows map[string]Intent
}

// seen compares a row with what it was.
func (p *machinePast) seen(in Intent) error {
	was, ok := p.rows[in.ID]
	p.rows[in.ID] = in
	if !ok {
		return nil
	}
	status := func(in Intent) int {
		if in.Outcome == nil {
			return 0
		}
		return in.Outcome.StatusCode
	}
	switch {
	case in.Key != was.Key:
		return broken("R1", "the key of row %s was %q and is %q", in.ID, was.Key, in.Key)
	case in.Operation != was.Operation || in.Generation != was.Generation || string(in.Fingerprint) != string(was.Fingerprint):
		return broken("R5", "row %s is another request: %s, and was %s", in.ID, machineShown(in), machineShown(was))
	case was.State.Final() && (in.State != was.State || status(in) != status(was)):
		return broken("R7", "row %s was %s by %d and is %s by %d", in.ID, was.State, status(was), in.State, status(in))
	case in.Attempts < was.Attempts:
		return broken("R3", "row %s had %d attempts and has %d", in.ID, was.Attempts, in.Attempts)
	case was.Doubt && !in.Doubt && !in.State.Final():
		return broken("R7", "row %s was in doubt and is %s without", in.ID, in.State)
	case in.Version < was.Version:
		return broken("model", "the version of row %s went from %d to %d", in.ID, was.Version, in.Version)
	}
	return nil
}

// compare compares all that is stored of a row, and its version with the last.
func (m *machine) compare(r *machineRow, want, got Intent) error {
	got = machineNormal(got)
	if r.wrote && got.Version <= r.Version || !r.wrote && !r.may && got.Version != r.Version || got.Version < r.Version {
		return broken("model", "the version of row %s went from %d to %d; written: %t", r.ID, r.Version, got.Version, r.wrote)
	}
	r.Version, r.wrote, r.may = got.Version, false, false
	want.Version, want.Claimed, got.Claimed = got.Version, false, false
	want.ID = got.ID
	if r.State == StateHeld && !want.Settled.Equal(got.Settled) && want.Settled.Sub(got.Settled).Abs() < machineTick {
		r.Settled = got.Settled // the journal's own clock
		want.Settled = got.Settled
	}
	if reflect.DeepEqual(want, got) {
		return m.past.seen(got)
	}
	if err := m.past.seen(got); err != nil {
		return err
	}
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range w.NumField() {
		if !reflect.DeepEqual(w.Field(i).Interface(), g.Field(i).Interface()) {
			return broken("model", "%s of row %s is %+v and has to be %+v (%s)", w.Type().Field(i).Name, r.ID,
				shownField(g.Field(i)), shownField(w.Field(i)), machineShown(r.Intent))
		}
	}
	return broken("model", "row %s differs", r.ID)
}

func shownField(v reflect.Value) any {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		return v.Elem().Interface()
	}
	return v.Interface()
}

// check compares what is read after an act: by the handle that did it, and now
// and then by the other one.
func (m *machine) check(h *machineHand, a machineAct) error {
	if err := m.checkList(h, Filter{Scope: m.scope}); err != nil {
		return err
	}
	switch a.a / 16 % 8 {
	case 0:
		return m.checkPages(m.hands[1-h.slot], a)
	case 1:
		return m.checkRow(m.hands[1-h.slot], a.b)
	case 2, 3, 4:
		return m.checkRow(h, a.b)
	}
	return nil
}

// checkList compares the rows of this sequence.
func (m *machine) checkList(h *machineHand, f Filter) error {
	list, err := h.List(m.tb.Context(), f)
	if err != nil {
		return broken("R4", "list: %w", err)
	}
	var rows []*machineRow
	for _, r := range m.model.alive() {
		if r.Scope == f.Scope && (len(f.States) == 0 || slices.Contains(f.States, r.State)) {
			rows = append(rows, r)
		}
	}
	for i, r := range rows {
		if i >= len(list) || list[i].ID != r.ID {
			return broken("R4", "%s is not listed", machineShown(r.Intent))
		}
		if err := m.compare(r, r.listed(h), list[i]); err != nil {
			return err
		}
	}
	if len(list) > len(rows) {
		return broken("R4", "%s is listed, and has to be gone", machineShown(list[len(rows)]))
	}
	return nil
}

// checkPages compares lists by state, and page by page.
func (m *machine) checkPages(h *machineHand, a machineAct) error {
	states := []State{StatePending, StateInFlight, StateUnknown, StateHeld, StateWithdrawn, StateSucceeded, StateRejected}
	from := a.b % uint(len(states))
	if err := m.checkList(h, Filter{Scope: m.scope, States: states[from:min(int(from)+3, len(states))]}); err != nil {
		return err
	}
	var ids []string
	f := Filter{Scope: m.scope, Name: "main", Limit: 2}
	for {
		page, err := h.List(m.tb.Context(), f)
		if err != nil {
			return broken("R4", "list a page: %w", err)
		}
		for _, in := range page {
			ids = append(ids, in.ID)
			f.After = in.ID
		}
		if len(page) == 0 {
			break
		}
	}
	var want []string
	for _, r := range m.model.alive() {
		if r.Scope == m.scope {
			want = append(want, r.ID)
		}
	}
	if !slices.Equal(want, ids) {
		return broken("R4", "the pages have %v, and not %v", ids, want)
	}
	return nil
}

// checkRow compares one operation as it is looked up, and one row's attempts.
func (m *machine) checkRow(h *machineHand, n uint) error {
	name := "op-" + strconv.Itoa(int(n%4))
	in, err := h.Lookup(m.tb.Context(), m.scope, name)
	all := m.model.generations(m.scope, name)
	switch {
	case len(all) == 0 && !errors.Is(err, ErrNotFound):
		return broken("R4", "what is not there is looked up: %s, %w", machineShown(in), err)
	case len(all) == 0:
	case err != nil:
		return broken("R4", "look up %s: %w", machineShown(all[0].Intent), err)
	default:
		want := all[0].whole(h)
		want.Request = nil
		if err := m.compare(all[0], want, in); err != nil {
			return err
		}
	}
	r := m.pick(n, func(*machineRow) bool { return true })
	if r == nil {
		return nil
	}
	return m.checkAttempts(h, r)
}

func (m *machine) checkAttempts(h *machineHand, r *machineRow) error {
	got, err := h.Attempts(m.tb.Context(), r.Intent)
	if err != nil {
		return broken("R3", "attempts: %w", err)
	}
	last := 0
	for _, a := range got {
		want, ok := r.notes[a.Number]
		if !ok || a.Decision != want.Decision || a.Phase != want.Phase || a.StatusCode != want.StatusCode || !a.Ended.Equal(want.Ended) {
			return broken("R3", "attempt %+v of row %s has to be %+v", a, r.ID, want)
		}
		if a.Number <= last || a.Number > r.Attempts {
			return broken("R3", "attempt %d of row %s after %d, of %d counted", a.Number, r.ID, last, r.Attempts)
		}
		last = a.Number
	}
	if len(got) != len(r.notes) {
		return broken("R3", "row %s has %d attempts noted, and not %d", r.ID, len(got), len(r.notes))
	}
	return nil
}

// checkAll compares everything of this sequence, as one handle sees it.
func (m *machine) checkAll(h *machineHand) error {
	if err := m.checkList(h, Filter{Scope: m.scope}); err != nil {
		return err
	}
	for n := range uint(4) {
		if err := m.checkRow(h, n); err != nil {
			return err
		}
	}
	for _, r := range m.model.alive() {
		if r.Scope == m.scope {
			if err := m.checkAttempts(h, r); err != nil {
				return err
			}
		}
	}
	return nil
}
