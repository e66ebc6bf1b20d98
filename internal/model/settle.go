package model

// verdict is what an attempt's end means, as in package idem.
type verdict struct {
	state  uint8 // pending, unknown, held, succeeded or rejected
	doubt  bool
	again  bool // another send may settle it
	proven bool // from the provider's store: to lose the record only means a replay
}

// open is the verdict where nothing more can have executed than before.
func open(doubt bool) verdict {
	if doubt {
		return verdict{state: unknown, doubt: true}
	}
	return verdict{state: pending}
}

// settle judges the end of an attempt; doubt is that of earlier ones.
func (d *Design) settle(answer uint8, doubt bool) verdict {
	switch answer {
	case done:
		return verdict{state: succeeded, proven: true}
	case refusedBy:
		return verdict{state: rejected, proven: true}
	case failedBy:
		if d.FailureIsFinal {
			return verdict{state: rejected, proven: true}
		}
		return verdict{state: held, doubt: true}
	case refused:
		if doubt && !d.RefusalSettlesDoubt {
			return verdict{state: held, doubt: true}
		}
		return verdict{state: rejected}
	case later:
		v := open(doubt)
		v.again = true
		return v
	case conflict:
		if d.ConflictIsFinal {
			return verdict{state: rejected}
		}
		if d.ConflictIsDone {
			return verdict{state: succeeded}
		}
		return verdict{state: unknown, doubt: true, again: true}
	case left:
		if d.CancelWithdraws {
			return open(doubt)
		}
		return verdict{state: unknown, doubt: true}
	}
	return verdict{state: unknown, doubt: true, again: true}
}

var answerTexts = [...]string{
	silence: "no answer", left: "the caller has left", done: "200", refusedBy: "4xx out of the provider's store",
	failedBy: "a stored 500", refused: "4xx that proves nothing", later: "429, not executed", conflict: "409, in flight",
}

// end judges the end of an attempt: the call goes on, or ends with it.
func (g *generator) end(p int) {
	me := g.from.proc[p]
	v := g.d.settle(me.answer, me.doubt)
	if me.answer == failedBy && g.d.NewKeyAfterFailure && me.role == call {
		w := g.world()
		key, ok := w.mint()
		if !ok {
			return
		}
		w.proc[p].key = key
		w.again(p, verdict{state: pending, again: true})
		g.take(w, name(p), "takes a new key, since the old one only repeats the 500")
		return
	}
	w := g.world()
	w.conclude(p, v)
	g.say(&w, name(p), text{does: "ends", answer: me.answer})

	lasts := !v.doubt || g.from.age == young
	if v.again && me.role == call && me.sends > 0 && lasts {
		w := g.world()
		w.again(p, v)
		g.say(&w, name(p), text{does: "records the end of the attempt and goes on", answer: me.answer})
	}
}

// again records an attempt that did not settle the row and keeps the claim.
func (w *world) again(p int, v verdict) {
	me := &w.proc[p]
	next := row{state: v.state, owner: ownerA + uint8(p), key: me.key, doubt: v.doubt}
	if me.lost { // no claim may be written: the call ends in doubt
		w.write(p, row{state: unknown, key: me.key, doubt: true}, false, true)
		w.leave(p)
		return
	}
	if me.answer == failedBy {
		w.broken |= R9
	}
	w.acknowledged = true
	if !w.write(p, next, false, true) {
		w.leave(p)
		return
	}
	me.at, me.answer, me.doubt = claimed, none, v.doubt
}

// conclude records the end of a call or a resume and tells whoever waits.
func (w *world) conclude(p int, v verdict) {
	me := &w.proc[p]
	next := row{state: v.state, key: me.key, doubt: v.doubt}
	switch v.state {
	case pending:
		switch {
		case me.role == call && !w.d.Outbox:
			next.state = withdrawn
		case me.role == resume && me.sends == 0:
			next.state = held // exhausted
		}
	case unknown:
		if w.age != young && !w.d.LeavesExpired || me.role == resume && me.sends == 0 {
			next.state = held // expired, exhausted
		}
		if w.d.DeletesOnGiveUp && me.role == call {
			next = row{}
		}
	}
	if final(next.state) {
		w.finality(me)
	}
	if next.state == unknown && me.answer != none && w.age != young {
		w.broken |= R11
	}
	w.record(p, next, v)
	w.leave(p)
}

// finality looks at what is about to be taken for an outcome.
func (w *world) finality(me *process) {
	if me.at != ended {
		w.broken |= R6
	}
	switch me.answer {
	case done, refusedBy, refused:
	case failedBy:
		w.broken |= R9
	default:
		w.broken |= R8
	}
}

// record writes or posts the end, and tells.
func (w *world) record(p int, next row, v verdict) {
	me := &w.proc[p]
	failed := next.state == rejected || next.state == withdrawn
	posts := v.proven && w.age == young && final(next.state) && !w.d.SyncOutcomes
	if w.d.PostsRefusals && failed {
		posts = true
	}
	if posts && !me.moved && w.file.state != absent {
		w.vouch(next, v.proven)
		me.posted = next.state
		w.toldFailed = w.toldFailed || failed
		return
	}
	w.acknowledged = w.acknowledged || next.state != absent
	if !w.write(p, next, v.proven, true) {
		return // told unknown, or the answer, marked as not recorded
	}
	if w.d.OutboxSaysNotSent && next.state == pending && me.role == call {
		failed = true
	}
	w.toldFailed = w.toldFailed || failed
}
