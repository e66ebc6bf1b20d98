package model

// client makes the steps of one process by itself. What happens to a request
// that is on its way is network's.
func (g *generator) client(p int) {
	switch me := g.from.proc[p]; me.at {
	case down:
		w := g.world()
		w.proc[p].at = idle
		g.take(w, name(p), "starts again, as a new owner")
	case idle:
		g.idle(p)
	case looked:
		w := g.world()
		if w.begin(p) {
			g.take(w, name(p), "inserts its row, since there was none when it looked")
		}
	case claimed:
		g.admission(p)
	case admitted:
		g.count(p)
	case counted:
		g.send(p)
	case heard:
		g.body(p)
	case ended:
		g.end(p)
	}
}

// idle is a process with nothing to do: it flushes, calls or resumes.
func (g *generator) idle(p int) {
	me := &g.from.proc[p]
	switch {
	case me.posted != 0:
		w := g.world()
		w.write(p, row{state: me.posted, key: me.key}, true, false)
		w.proc[p].posted = 0
		w.leave(p)
		g.take(w, name(p), "writes what it had posted to the file, not synced")
		return
	case me.lost:
		w := g.world()
		w.proc[p].lost = false
		g.take(w, name(p), "opens the journal anew, since its owner file is gone")
		return
	case g.from.file.state == absent && g.d.Outbox:
		w := g.world()
		if key, ok := w.mint(); ok {
			w.acknowledged = true
			w.put(-1, row{state: pending, key: key}, true)
			g.take(w, name(p), "prepares the operation: key and request are journaled and synced, nothing is sent")
		}
		return
	case g.from.file.state == absent:
		g.first(p)
		return
	}
	g.claim(p, call)
	g.claim(p, resume)
}

// first is a call of an operation that the journal does not know.
func (g *generator) first(p int) {
	w := g.world()
	if g.d.BeginReadsThenInserts {
		w.proc[p].at = looked
		g.take(w, name(p), "calls, looks into the journal and finds no row")
		return
	}
	if w.begin(p) {
		does := "calls: key and request are journaled and synced, the first attempt counted"
		switch {
		case g.d.JournalsAfterSend:
			does = "calls, and mints a key"
		case g.d.BeginNotSynced:
			does = "calls: key and request are journaled, but not synced"
		}
		g.take(w, name(p), does)
	}
}

// begin makes the row, with its first attempt counted.
func (w *world) begin(p int) bool {
	key, ok := w.mint()
	if !ok {
		return false
	}
	me := &w.proc[p]
	*me = process{at: counted, role: call, sends: me.sends, key: key}
	w.age, w.toldFailed = young, false
	if !w.d.JournalsAfterSend {
		w.acknowledged = true
		w.put(p, row{state: inFlight, owner: ownerA + uint8(p), key: key}, !w.d.BeginNotSynced)
	}
	return true
}

// claim is Begin over a row that is there (a call), or ClaimDue (a resume).
func (g *generator) claim(p int, role uint8) {
	w := g.world()
	next := w.file
	living := next.owner == ownerA || next.owner == ownerB || next.owner == undying
	if living && !(g.d.NoOwners && next.owner != ownerA+uint8(p)) {
		return
	}
	switch next.state {
	case pending, unknown:
		if role == resume && g.d.ResumesNoDoubt && next.doubt {
			return
		}
	case inFlight: // a dead owner's attempt may have executed
		next.state, next.doubt = unknown, true
		if g.d.DeathIsNoDoubt {
			next.state, next.doubt = pending, w.file.doubt
		}
	case withdrawn:
		if role == resume && !g.d.ResumesWithdrawn {
			return
		}
	case held:
		if role == call || !g.d.ResumesHeld {
			return
		}
	default: // a final row is answered from the journal
		return
	}
	if living {
		w.broken |= R12
	}
	next.owner = ownerA + uint8(p)
	w.put(p, next, role == call)
	me := &w.proc[p]
	*me = process{at: claimed, role: role, sends: me.sends, key: next.key, doubt: next.doubt}
	does := "resumes: claims the row"
	if role == call {
		w.toldFailed = false // whatever happens from here on is of another call
		does = "calls: finds the row and claims it"
	}
	g.take(w, name(p), does)
	if role == call && g.d.SendsOtherBytes {
		w.proc[p].other = true
		g.take(w, name(p), "calls with other bytes: finds the row and claims it")
	}
}

// admission is the check before an attempt.
func (g *generator) admission(p int) {
	me := &g.from.proc[p]
	late := me.doubt && g.from.age != young
	switch {
	case late && !g.d.SendsPastStop:
		w := g.world()
		w.refuse(p)
		g.take(w, name(p), "may not send: the key is too old")
		return
	case me.sends == 0:
		w := g.world()
		w.conclude(p, open(me.doubt))
		g.take(w, name(p), "has no attempts left")
		return
	}
	w := g.world()
	w.proc[p].at = admitted
	if late {
		w.broken |= R10
	}
	g.take(w, name(p), "may send, by the age of the key")

	w = g.world()
	w.conclude(p, open(me.doubt))
	g.take(w, name(p), "stops before it has sent")
}

// refuse gives a row back that may not be sent. A call changes nothing by being
// refused; what a resume may not send is held.
func (w *world) refuse(p int) {
	me := &w.proc[p]
	next := w.file
	next.owner = nobody
	if me.role == resume {
		next = row{state: held, key: me.key, doubt: true}
	}
	w.write(p, next, false, me.role == resume)
	w.leave(p)
}

// count notes the attempt durably before it starts.
func (g *generator) count(p int) {
	w := g.world()
	me := &w.proc[p]
	if me.moved || me.lost { // the journal refuses
		w.conclude(p, open(me.doubt))
		g.take(w, name(p), "cannot count the attempt, since its claim is gone")
		return
	}
	if w.file.state == held || final(w.file.state) {
		w.broken |= R11
	}
	if !me.doubt { // FirstSent is set anew
		w.age = young
	}
	me.at = counted
	w.put(p, row{state: inFlight, owner: ownerA + uint8(p), key: me.key, doubt: me.doubt}, true)
	if other := &w.proc[1-p]; other.moved {
		other.passed = true
	}
	g.take(w, name(p), "counts the attempt, synced")
}

// send lets the bytes go.
func (g *generator) send(p int) {
	w := g.world()
	me := &w.proc[p]
	does := "sends"
	if again := w.proc[0].sends+w.proc[1].sends < 2*g.d.Sends; again && g.d.MintsPerSend {
		key, ok := w.mint()
		if !ok {
			return
		}
		me.key = key
		does = "sends, under a new key"
	}
	if w.disk.state == absent || w.disk.key != me.key {
		w.broken |= R2
	}
	if me.other {
		w.broken |= R5
		does = "sends other bytes"
	}
	me.sends--
	me.at = waiting
	g.take(w, name(p), does)

	w = g.world()
	w.conclude(p, open(w.proc[p].doubt))
	g.take(w, name(p), "stops before a byte has left")
}

// body is the rest of an answer.
func (g *generator) body(p int) {
	me := g.from.proc[p]
	w := g.world()
	if g.d.OutcomeAtStatus {
		w.conclude(p, g.d.settle(me.answer, me.doubt))
		g.say(&w, name(p), text{does: "records the outcome by the status line", answer: me.answer})
		return
	}
	w.proc[p].at = ended
	g.say(&w, name(p), text{does: "has the whole answer", answer: me.answer})

	w = g.world()
	w.proc[p].at, w.proc[p].answer = ended, silence
	g.take(w, name(p), "loses the answer's body half way")
}
