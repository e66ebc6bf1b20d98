package model

// network makes the steps of requests that somebody waits for, until the server
// has them.
func (g *generator) network() {
	for p := range g.from.proc {
		me := &g.from.proc[p]
		if me.at != waiting && me.at != running {
			continue
		}
		g.cut(p, silence, "gets no answer: the connection breaks or the attempt times out; the request may run later")
		if me.role == call {
			g.cut(p, left, "is cancelled by its caller; the request may run later")
		}
		if me.at == running {
			continue
		}
		g.hear(p, refused, "a gateway answers 4xx and passes nothing on")
		g.hear(p, later, "a gateway answers 429 and passes nothing on")
		g.arrive(p)
	}
}

// cut ends an attempt from this side. Its request goes on without it.
func (g *generator) cut(p int, answer uint8, does string) {
	w := g.world()
	w.abandon(p)
	w.proc[p].at, w.proc[p].answer = ended, answer
	if answer == left && g.d.CancelWithdraws {
		w.conclude(p, g.d.settle(left, w.proc[p].doubt))
	}
	g.take(w, name(p), does)
}

// abandon makes an orphan of the request that a process waits for.
func (w *world) abandon(p int) {
	me := &w.proc[p]
	switch me.at {
	case waiting:
		w.orphan[me.key-1]++
	case running:
		w.runs[me.key-1]++
	}
}

// hear is an answer on its way to a process. What is judged by its status alone
// skips the body.
func (g *generator) hear(p int, answer uint8, does string) {
	w := g.world()
	w.answered(p, answer)
	g.say(&w, "server", text{does: does, whose: name(p)})
}

func (w *world) answered(p int, answer uint8) {
	me := &w.proc[p]
	me.at, me.answer = heard, answer
	if answer == later || answer == conflict || answer == silence {
		me.at = ended
	}
}

// arrive is the server's claim of a request's key, or its answer without one.
func (g *generator) arrive(p int) {
	key := g.from.proc[p].key - 1
	memory := g.from.memory[key]
	if memory == nothing || memory == executing && g.d.ServerChecksThenInserts {
		w := g.world()
		w.proc[p].at = running
		w.start(key)
		g.say(&w, "server", text{does: "claims the key and begins to execute", whose: name(p)})
		return
	}
	answer := [...]uint8{executing: conflict, didIt: done, failedIt: failedBy, refusedIt: refusedBy}[memory]
	w := g.world()
	w.answered(p, answer)
	g.say(&w, "server", text{does: "answers from its store", answer: answer, whose: name(p)})
	g.lose(g.world(), p, "answers from its store, and the answer is lost on the way")
}

func (w *world) start(key uint8) {
	if !w.d.ServerChecksThenInserts {
		w.memory[key] = executing
	}
}

func (g *generator) lose(w world, p int, does string) {
	w.answered(p, silence)
	g.say(&w, "server", text{does: does, whose: name(p)})
}

// server makes the steps of executions, and of requests that nobody waits for.
func (g *generator) server() {
	for p := range g.from.proc {
		if g.from.proc[p].at == running {
			g.finish(p, g.from.proc[p].key-1)
		}
	}
	for key := range uint8(maxKeys) {
		memory := g.from.memory[key]
		if g.from.orphan[key] > 0 && (memory == nothing || memory == executing && g.d.ServerChecksThenInserts) {
			w := g.world()
			w.orphan[key]--
			w.runs[key]++
			w.start(key)
			g.take(w, "server", "gets a late request that nobody waits for, claims its key and begins to execute it")
		}
		if g.from.runs[key] > 0 {
			g.finish(-1, key)
		}
	}
}

// outcomes is what an execution can come to: what is stored, whether there was
// an effect, and the answer.
var outcomes = [...]struct {
	memory, answer uint8
	effect         bool
	text           string
}{
	{didIt, done, true, "executes: stores effect and 200 together"},
	{failedIt, failedBy, true, "fails after the effect and stores the 500"},
	{failedIt, failedBy, false, "fails without an effect and stores the 500"},
	{refusedIt, refusedBy, false, "refuses without an effect and stores the 4xx"},
	{nothing, silence, false, "breaks off, takes everything back and says 503"},
}

// finish ends the execution for p, or one that nobody waits for.
func (g *generator) finish(p int, key uint8) {
	for _, o := range outcomes {
		w := g.world()
		if o.memory != nothing || !g.d.ServerChecksThenInserts {
			w.memory[key] = o.memory
		}
		if g.d.ServerHasNoMemory {
			w.memory[key] = nothing
		}
		if o.effect {
			w.effects = min(w.effects+1, 2)
		}
		if p < 0 {
			w.runs[key]--
			g.say(&w, "server", text{does: o.text, whose: "nobody"})
			continue
		}
		lost := w
		w.answered(p, o.answer)
		g.say(&w, "server", text{does: o.text, whose: name(p)})
		if o.answer != silence {
			lost.answered(p, silence)
			g.say(&lost, "server", text{does: o.text, whose: name(p) + ", who never gets the answer"})
		}
	}
}
