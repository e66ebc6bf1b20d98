package model

// step is one transition.
type step struct {
	to     state
	actor  string
	text   text
	broken Rules // by the step itself, or by the state it leads to
}

// text says what a step does. It is put together only for a trace.
type text struct {
	does   string
	whose  string // whose request the server is at, if any
	answer uint8  // how the attempt ended, where that matters
}

func (s *step) String() string {
	line := s.actor
	if s.text.whose != "" {
		line += ", for " + s.text.whose
	}
	line += ": " + s.text.does
	if s.text.answer != none {
		line += ": " + answerTexts[s.text.answer]
	}
	return line + "  [" + s.to.String() + "]"
}

// world is a state while a step changes it.
type world struct {
	state
	d      *Design
	broken Rules
}

// generator makes the steps of one state.
type generator struct {
	d     *Design
	from  state
	yield func(*step)
	step  step // the one that is yielded
}

// steps calls yield for each step that s allows, always in the same order.
func (d *Design) steps(s state, yield func(*step)) {
	g := generator{d: d, from: s, yield: yield}
	for p := range s.proc {
		g.client(p)
	}
	g.network()
	g.server()
	g.journal()
	g.deaths()
	g.time()
	g.decisions()
}

func (g *generator) world() world { return world{state: g.from, d: g.d} }

func (g *generator) take(w world, actor, does string) { g.say(&w, actor, text{does: does}) }

func (g *generator) say(w *world, actor string, t text) {
	if w.cuts == 0 { // no power cut can come: what is not on disk makes no difference
		w.disk = w.file
	}
	g.step = step{to: w.state, actor: actor, text: t, broken: w.broken | w.check()}
	g.yield(&g.step)
}

// put writes the row; by is the process that does, or -1. Posted writes and
// mere claims are not synced.
func (w *world) put(by int, next row, synced bool) {
	if final(w.file.state) && next.state != w.file.state {
		w.broken |= R7
	}
	w.file = next
	if synced || w.cuts == 0 {
		w.disk = next
	}
	for p := range w.proc {
		if p != by && (w.proc[p].calling() || w.proc[p].posted != 0) {
			w.proc[p].moved = true
		}
	}
}

// write is a process's own write over the row it claimed. It is refused where
// the row moved, except that a final answer of the same key is taken while the
// row is not final: a success always, a refusal while no other attempt was
// counted since. Then only what is final about it is written.
func (w *world) write(p int, next row, proven, synced bool) bool {
	me := &w.proc[p]
	if !me.moved || w.d.LateWriteWins {
		if me.moved {
			w.broken |= R12
		}
		w.vouch(next, proven)
		w.put(p, next, synced)
		return true
	}
	late := final(next.state) && !final(w.file.state) && w.file.key == me.key && w.file.state != absent
	if !late || next.state == rejected && me.passed && !w.d.LateRefusalWins {
		return false
	}
	w.vouch(next, proven)
	w.put(p, row{state: next.state, key: w.file.key}, synced)
	return true
}

// vouch looks for a record that calls something not executed although a
// request was or may yet be, and the provider's store did not say so.
func (w *world) vouch(next row, proven bool) {
	says := next.state == pending || next.state == withdrawn || next.state == rejected
	if says && !next.doubt && !proven && w.mayExecute() {
		w.broken |= P6
	}
}

// mint is a new key.
func (w *world) mint() (key uint8, ok bool) {
	if w.minted == maxKeys {
		return 0, false
	}
	w.minted++
	if w.minted > 1 {
		w.broken |= R1
	}
	return w.minted, true
}

// leave ends what the process is at. What it posted stays with it.
func (w *world) leave(p int) {
	me := &w.proc[p]
	next := process{at: idle, sends: me.sends, lost: me.lost}
	if me.posted != 0 {
		next.posted, next.key, next.moved, next.passed = me.posted, me.key, me.moved, me.passed
	}
	*me = next
}
