package idem

import (
	"maps"
	"time"
)

// doDie ends a handle as kill -9 would end its process, and opens another in
// its place. Right before it may have posted an outcome, which may be lost; one
// that was posted before a durable write must not be.
func (m *machine) doDie(h *machineHand, a machineAct) error {
	r := m.mine(h, a.a, func(r *machineRow) bool { return r.State == StateInFlight })
	var before, after machineRow
	mode := a.b % 4
	if r != nil && mode > 0 {
		before = *r
		before.notes = maps.Clone(r.notes)
		next, note := machineEnded(r.seen(), 0)
		if err := m.update(h, next, note, false); err != nil {
			return err
		}
		after = *r
		m.saw("die: after posting")
	}
	said := m.did
	switch mode {
	case 2:
		want := m.want(a.a/8%4, a.b)
		if err := m.begin(h, want); err != nil { // durable where it makes or claims a row
			return err
		}
		said += "; " + m.did
		settlePosts()
	case 3:
		settlePosts()
	}
	h.store.store.Die()
	h.gone = true
	m.say("%s; dead", said)
	m.model.leave(h, true)
	if err := m.open(h.slot); err != nil {
		return broken("R13", "open after a death: %w", err)
	}
	if r == nil || mode != 1 {
		return nil
	}
	list, err := m.hands[h.slot].List(m.tb.Context(), Filter{Scope: m.scope})
	if err != nil {
		return broken("R4", "list: %w", err)
	}
	for _, in := range list {
		if in.ID == r.ID && !in.State.Final() { // the post was lost: then nothing of it is there
			*r = before
			r.has, r.stuck, r.left = nil, nil, true
			m.saw("die: post lost")
			return nil
		}
	}
	after.has, after.left = nil, false
	*r = after
	return nil
}

// doReopen closes a handle and opens another. What it posted is there.
func (m *machine) doReopen(h *machineHand, a machineAct) error {
	said := "nothing posted"
	if r := m.mine(h, a.a, func(r *machineRow) bool { return r.State == StateInFlight }); r != nil && a.b%4 > 0 {
		next, note := machineEnded(r.seen(), a.b%4-1)
		if err := m.update(h, next, note, !next.State.Final()); err != nil {
			return err
		}
		said = m.did
		m.saw("reopen: after posting")
	}
	if err := h.Close(); err != nil {
		return broken("model", "close: %w", err)
	}
	h.gone = true
	m.say("%s; closed", said)
	m.model.leave(h, false)
	if err := m.open(h.slot); err != nil {
		return broken("R13", "open again: %w", err)
	}
	return nil
}

func (m *machine) doPrune(h *machineHand, a machineAct) error {
	now := machineNow()
	before := now.Add(-[]time.Duration{0, 30 * time.Minute, 24 * time.Hour}[a.a%3])
	fewest, most, left := m.model.prune(h, before, now)
	n, err := h.Prune(m.tb.Context(), before)
	m.say("prune before %s: %d, %v", before, n, err)
	if err != nil {
		return broken("model", "prune: %w", err)
	}
	if n < fewest || n > most {
		return broken("R4", "%d rows pruned, and not %d to %d", n, fewest, most)
	}
	if n > 0 {
		m.saw("pruned")
	}
	if n == fewest { // those that their owners died with wait
		return nil
	}
	for _, r := range left {
		list, err := h.List(m.tb.Context(), Filter{Scope: r.Scope, Limit: 1000})
		if err != nil {
			return broken("R4", "list: %w", err)
		}
		kept := false
		for _, in := range list {
			kept = kept || in.ID == r.ID && in.Version == r.Version
		}
		if !kept {
			r.drop()
		}
	}
	return nil
}

func (m *machine) doForget(h *machineHand, a machineAct) error {
	now := machineNow()
	before := now.Add(-[]time.Duration{0, 30 * time.Minute, 24 * time.Hour}[a.a%3])
	want := m.model.forget(h, before, now)
	n, err := h.store.Forget(m.tb.Context(), before)
	m.say("forget before %s: %d, %v", before, n, err)
	if err != nil {
		return broken("model", "forget: %w", err)
	}
	if n != want {
		return broken("R4", "%d rows forgotten, and not %d", n, want)
	}
	if n > 0 {
		m.saw("forgotten")
	}
	return nil
}
