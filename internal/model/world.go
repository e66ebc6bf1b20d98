package model

// journal makes the steps of the file by itself: what was only written becomes
// durable.
func (g *generator) journal() {
	if g.from.disk != g.from.file {
		w := g.world()
		w.disk = w.file
		g.take(w, "disk", "syncs the journal")
	}
}

// deaths makes the steps of kills, power cuts and owner files that go missing.
func (g *generator) deaths() {
	for p := range g.from.proc {
		if me := &g.from.proc[p]; me.at != down && g.from.kills > 0 {
			w := g.world()
			w.kills--
			w.die(p)
			g.take(w, name(p), "is killed")
		}
		mine := ownerA + uint8(p)
		if g.from.locks > 0 && g.from.proc[p].calling() && g.from.file.owner == mine && !g.from.proc[p].lost {
			w := g.world()
			w.locks--
			w.proc[p].lost = true
			w.file.owner = dead
			if w.disk.owner == mine {
				w.disk.owner = dead
			}
			g.say(&w, "somebody", text{does: "removes the owner file of " + name(p) + ", which lives on"})
		}
	}
	if g.from.cuts > 0 {
		w := g.world()
		w.cuts--
		w.die(0)
		w.die(1)
		w.file = w.disk
		g.take(w, "power", "is cut: both processes die, and what was not synced is gone")
	}
}

// die ends a process. Its lock is free from now on; its request goes on.
func (w *world) die(p int) {
	w.abandon(p)
	w.proc[p] = process{at: down, sends: w.proc[p].sends}
	for _, r := range []*row{&w.file, &w.disk} {
		if r.owner == ownerA+uint8(p) {
			r.owner = dead
			if w.d.OwnerOutlivesHolder {
				r.owner = undying
			}
		}
	}
}

// time makes the steps of the key's age. It counts from the first send that may
// have executed.
func (g *generator) time() {
	s := &g.from
	if s.proc[0].sends+s.proc[1].sends == 2*g.d.Sends { // nothing was sent yet
		return
	}
	w := g.world()
	switch {
	case s.age == young && !g.d.NoMargin:
		w.age = stopped
		g.take(w, "time", "passes: the key is past the stop, inside the margin")
	case s.age == young, s.age == stopped && g.marginIsOver():
		for k, m := range w.memory {
			if m == executing {
				return // a claim that is at work is not dropped
			}
			w.memory[k] = nothing
		}
		if !g.d.NoMargin {
			w.orphan = [maxKeys]uint8{}
		}
		w.age = forgotten
		g.take(w, "time", "passes: the provider forgets the key")
	}
}

// marginIsOver is what a margin that is long enough means: it is longer than
// the time from a check to its send and than the life of a request. So nothing
// that passed the check in time is still on its way.
func (g *generator) marginIsOver() bool {
	for p := range g.from.proc {
		if g.from.proc[p].sending() {
			return false
		}
	}
	return g.from.runs == [maxKeys]uint8{}
}

// person is the actor of decisions.
const person = "person"

// decisions makes the steps that a person takes. A person tells the truth: what took
// effect is seen at the provider, and what did not is only certain once the key
// is forgotten.
func (g *generator) decisions() {
	r := g.from.file
	if r.owner != nobody && r.owner != dead {
		return
	}
	decide := func(state uint8, doubt bool, does string) {
		w := g.world()
		w.put(-1, row{state: state, key: r.key, doubt: doubt}, true)
		w.toldFailed = w.toldFailed || state == rejected || state == withdrawn
		g.take(w, person, does)
	}
	switch {
	case r.state == held && !r.doubt:
		decide(pending, false, "releases the row")
	case r.state == held && g.from.age == young:
		decide(unknown, true, "releases the row")
	}
	open := r.state == held || r.state == unknown || r.state == pending
	switch {
	case open && r.doubt && g.from.effects > 0:
		decide(succeeded, false, "finds the effect and says succeeded")
	case open && r.doubt && g.from.age == forgotten:
		decide(rejected, false, "finds no effect, long after, and says rejected")
	case open && !r.doubt:
		decide(withdrawn, false, "gives the operation up")
	}
}
