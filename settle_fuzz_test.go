package idem

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/contract"
)

// judgedCase is one situation, in what a fuzzer can vary.
type judgedCase struct {
	who, today            uint8
	status                uint16
	flags                 uint32
	age, later, due, wait int64 // ns; age: since the first attempt that may have executed
	header, body          string
}

const (
	judgedDoubt = 1 << iota
	judgedResent
	judgedCut
	judgedStream
	judgedHop
	judgedLeft
	judgedFinal
	judgedSilent   // no answer
	judgedMaybe    // and it may have been written
	judgedResumed  // no caller waits
	judgedPrepared // from here on: of the intent
	judgedUnnamed
	judgedAdopted
	judgedDecided
	judgedBare      // made without a contract
	judgedNeverSent // FirstSent is zero
	judgedAuthorize
	judgedResumeUnnamed
	judgedStrict                // a policy that allows little
	judgedDeaths                // two bits
	_                           //
	judgedResumes               // the rest
	judgedUsual   = judgedMaybe // nothing out of the ordinary
)

// judgedScene is the situation.
type judgedScene struct {
	in      Intent // as it was sent
	stored  *contract.Contract
	today   *contract.Contract
	e       ending
	p       RetryPolicy
	resumed bool
	unnamed bool // Transport.ResumeUnnamed
	now     time.Time
	later   time.Time
	due     time.Time
	wait    time.Duration
	keys    bool
	doubt   bool
	proved  bool // the provider's store speaks
	flags   uint32
}

func (jc judgedCase) scene() *judgedScene {
	is := func(flag uint32) bool { return jc.flags&flag != 0 }
	s := &judgedScene{
		now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC), resumed: is(judgedResumed), unnamed: is(judgedResumeUnnamed), flags: jc.flags,
		wait: time.Duration(jc.wait),
	}
	s.later, s.due = s.now.Add(time.Duration(jc.later)), s.now.Add(time.Duration(jc.due))
	s.stored = judgedContracts[int(jc.who)%len(judgedContracts)].c
	s.today = judgedToday(jc.who, jc.today)
	if is(judgedStrict) {
		s.p = RetryPolicy{ResumeAttempts: 2, MaxDeaths: 1}
	}
	s.in = Intent{
		ID: "1", Operation: "order-1", Key: "k", State: StateInFlight, Doubt: is(judgedDoubt), Attempts: 3, Prepared: is(judgedPrepared),
		FirstSent: s.now.Add(-time.Duration(jc.age)), Deaths: int(jc.flags / judgedDeaths % 4), Resumes: int(jc.flags / judgedResumes % 32), Claimed: true,
	}
	if s.stored != nil && !s.stored.NoKeys && !is(judgedBare) {
		s.in.Place, s.in.Retention = s.stored.Key, lifeOf(s.stored)
	}
	if is(judgedNeverSent) {
		s.in.FirstSent = time.Time{}
	}
	if is(judgedUnnamed) {
		s.in.Operation = ""
	}
	if is(judgedAdopted) {
		s.in.Adopted = []byte{1}
	}
	if is(judgedDecided) {
		s.in.By = "ann"
	}
	s.e = ending{resent: is(judgedResent), left: is(judgedLeft)}
	if is(judgedSilent) || jc.status == 0 {
		s.e.phase, s.e.err, s.e.final = phaseNotSent, errors.New("reset"), is(judgedFinal)
		if is(judgedMaybe) {
			s.e.phase = phaseMaybeSent
		}
	} else {
		s.e.status, s.e.header, s.e.body, s.e.phase = int(jc.status), headerLines(jc.header), []byte(jc.body), phaseAnswered
		s.e.cut, s.e.stream = is(judgedCut), is(judgedStream) && s.e.status/100 == 2
		s.e.hop = is(judgedHop) && (s.e.status == 307 || s.e.status == 308)
	}
	s.keys = s.in.Place != (contract.Place{}) && s.today != nil && !s.today.NoKeys
	s.doubt = s.in.Doubt || s.e.resent
	s.proved = s.keys && provedByStore(s.today, s.e)
	return s
}

// FuzzSettle: whatever a server answers, the promises about an intent are kept.
func FuzzSettle(f *testing.F) {
	for i, j := range judgedContracts {
		for n, a := range judgedAnswers(j.c) {
			if a.header+a.body == "" && j.c != judgedContracts[0].c { // a plain status is soon tried by a fuzzer itself
				continue
			}
			flags := uint32(judgedUsual | n%2*judgedDoubt | n/2%2*judgedResumed)
			f.Add(uint8(i), uint8(0), uint16(a.status), flags, int64(time.Hour), int64(time.Minute), int64(0), int64(time.Second), a.header, a.body)
		}
	}
	f.Fuzz(func(t *testing.T, who, today uint8, status uint16, flags uint32, age, later, due, wait int64, header, body string) {
		jc := judgedCase{who, today, status, flags, age, later, due, wait, header, body}
		(&settling{t: t, of: jc, judgedScene: jc.scene(), seen: map[string]int{}}).all()
	})
}

// The same without a fuzzer: always the same cases.
func TestSettleFuzz_PseudoRandom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 2026))
	answers := make([][]judgedAnswer, len(judgedContracts))
	for i, j := range judgedContracts {
		answers[i] = judgedAnswers(j.c)
	}
	seen := map[string]int{}
	for range 20_000 {
		jc := drawnCase(r, answers)
		(&settling{t: t, of: jc, judgedScene: jc.scene(), seen: seen}).all()
	}
	for _, what := range judgedSights {
		assert.Positive(t, seen[what], "never seen: %s", what)
	}
}

// settling checks one situation.
type settling struct {
	t  testing.TB
	of judgedCase
	*judgedScene
	seen map[string]int

	// What is checked now.
	v    verdict
	next Intent
	at   time.Time
	asks *contract.Contract
}

// judgedSights must be seen, or the promises are kept by nobody trying.
var judgedSights = []string{
	"sent in doubt", "sent without doubt", "sent after a wait", "rejected in doubt, by the store", "rejected without doubt",
	"succeeded in doubt", "again", "not synced", "pending", "withdrawn", "unknown", "stream", "other credentials",
	"held: expired", "held: no_contract", "held: exhausted", "held: credentials", "held: stored_failure", "held: redirect",
	"held: unsettling_answer", "refused: expired", "refused: no_contract", "refused: clock", "refused: poison", "refused: unnamed",
	"refused: exhausted",
}

func (s *settling) must(ok bool, promise string) {
	if !ok {
		s.t.Helper()
		s.t.Fatalf("%s\n%#v\nintent %+v\nending %+v\nverdict %+v\nnext %+v\nasked at %v of %+v", promise, s.of, s.in, s.e, s.v, s.next, s.at, s.asks)
	}
}

func (s *settling) saw(what string) { s.seen[what]++ }

func (s *settling) is(flag uint32) bool { return s.flags&flag != 0 }

// all is the way of one attempt: judged, waited for, concluded, and asked for
// again at any time.
func (s *settling) all() {
	v := settle(s.in, s.today, s.e)
	v.wait = askedWait(s.e.header, s.today, s.now)
	s.verdict(v)
	if !s.keys {
		alone := settle(s.in, nil, s.e)
		alone.wait = v.wait
		s.must(v == alone, "without a key on the wire the contract says nothing")
	}
	if s.resumed && s.is(judgedAuthorize) {
		if v = withOtherCredentials(s.in, v, s.e.status); v.decision == "credentials_refused" && v.again {
			s.saw("other credentials")
		}
		s.sticky(v.state, v.doubt)
	}
	wait := s.waits(v)
	sent := s.in
	sent.Due, sent.Wait = s.now.Add(wait), wait
	if v.again {
		s.saw("again")
		next := afterAttempt(sent, v)
		s.must(next.State == StatePending || next.State == StateUnknown, "only what is open goes on")
		s.same(next)
		s.asked(next)
	}
	for _, v := range s.ends(v) {
		next := conclude(sent, s.today, v, s.p, s.resumed, s.now)
		s.concluded(v, next)
		s.same(next)
		s.asked(next)
	}
	idle := conclude(sent, s.today, open("cancelled", s.in.Doubt, false), s.p, s.resumed, s.now)
	s.must(!s.in.Doubt || idle.Doubt && idle.State != StatePending && idle.State != StateWithdrawn, "an end without an attempt keeps the doubt")
	s.asked(idle)
	for _, state := range []State{StatePending, StateUnknown, StateWithdrawn, StateHeld} { // as a journal may have it
		next := s.in
		next.State, next.Due, next.Wait = state, s.due, s.wait
		if state == StateHeld {
			next.HoldReason = HoldCopied
		}
		s.asked(next)
	}
}

// ends are the verdicts that the attempt can come to: a stream has two ends.
func (s *settling) ends(v verdict) []verdict {
	if v.state != StateInFlight {
		return []verdict{v}
	}
	s.saw("stream")
	return []verdict{
		{state: StateHeld, doubt: true, hold: HoldNotKept, decision: "stream_broken"},
		{state: StateSucceeded, decision: "streamed", replayed: v.replayed},
	}
}

// sticky is P6: once something may have executed, only the store's own answer
// makes it final, and nothing makes it a thing that was never sent.
func (s *settling) sticky(state State, doubt bool) {
	if !s.doubt {
		return
	}
	s.must(state != StatePending && state != StateWithdrawn, "what may have executed is not taken for unsent")
	s.must(doubt != state.Final(), "doubt stays until the end")
	if state == StateRejected {
		s.must(s.proved, "rejected in doubt without an answer of the store")
		s.saw("rejected in doubt, by the store")
	}
	if state == StateSucceeded {
		s.saw("succeeded in doubt")
	}
}

func (s *settling) verdict(v verdict) {
	s.v = v
	e, c := s.e, s.signals()
	s.sticky(v.state, v.doubt)
	s.must(v.decision != "", "every end has a name")
	s.must((v.hold != "") == (v.state == StateHeld), "held for a reason, and only then")
	s.must(!v.again || v.state == StatePending || v.state == StateUnknown, "held and final are never sent again")
	s.must(!v.again || !v.doubt || s.keys, "no blind resend")
	s.must(!v.again || !e.left, "nobody waits for another send")
	s.must(v.doubt != (v.state == StatePending) || v.state == StateHeld || v.state.Final(), "pending is without doubt, unknown with it")
	if v.state.Final() {
		s.must(e.status != 0 && !e.cut && !v.doubt, "a lost answer settles nothing")
	}
	done := e.status/100 == 2 || e.status == http.StatusSeeOther
	if v.state == StateSucceeded {
		s.must(done || s.says(c.AlreadyDone), "a failure is no success")
	}
	if v.state == StateRejected && !s.proved {
		s.must(!v.proven && !s.doubt, "a status alone proves nothing")
		s.must(!mayHaveExecuted(e) || s.says(c.Mismatch), "a server that fell over is no refusal")
	}
	if done && !e.cut && !s.says(c.InFlight, c.Mismatch, c.StoreDown, c.NotExecuted, c.Overlap, c.Proven) {
		s.must(!v.again && v.state == map[bool]State{false: StateSucceeded, true: StateInFlight}[e.stream], "a success is a success")
	}
	if mayHaveExecuted(e) && !s.says(c.NotExecuted) {
		s.must(v.doubt || v.state.Final(), "what may have executed is in doubt")
	}
	if e.phase == phaseNotSent {
		s.must(v.doubt == s.doubt, "what never left adds no doubt")
	}
	s.must(!v.replayed || s.proved || s.says(c.AlreadyDone), "replayed says only the store")
}

// signals are the contract whose signals count; one without any where no key
// was sent, or no whole answer came.
func (s *settling) signals() *contract.Contract {
	if !s.keys || s.e.status == 0 || s.e.cut {
		return &contract.Contract{}
	}
	return s.today
}

func (s *settling) says(lists ...[]contract.Signal) bool {
	return contract.Any(slices.Concat(lists...), s.e.status, s.e.header, s.e.body)
}

// mayHaveExecuted reports the ends that prove nothing about the effect.
func mayHaveExecuted(e ending) bool {
	switch {
	case e.status == 0:
		return e.phase != phaseNotSent
	case e.status == 307, e.status == 308, e.status == 421, e.status == 425, e.status == 429:
		return false
	}
	return e.cut || e.status == 408 || e.status >= 500 && e.status != 501 && e.status != 505
}

// waits checks the waits that the answer leads to, and returns the next one.
func (s *settling) waits(v verdict) time.Duration {
	s.must(v.wait >= 0 && v.wait <= longestWait, "a server asks for nothing or for a wait with an end")
	wait := s.p.pause(s.in.Resumes, v.wait, s.today)
	s.must(wait >= s.p.minBackoff() && wait >= v.wait && wait <= longestWait+longestWait/10, "the wait has a floor and an end")
	return wait
}

// concluded is what a call, or a pass of a resume, leaves behind.
func (s *settling) concluded(v verdict, next Intent) {
	s.next = next
	s.sticky(next.State, next.Doubt)
	s.must(!next.Claimed, "let go")
	s.must((next.HoldReason != "") == (next.State == StateHeld), "held for a reason, and only then")
	switch next.State {
	case StateUnknown:
		s.must(next.Doubt && s.keys, "unknown may be sent again")
		s.must(s.now.Before(stopOf(next, s.today)), "unknown has time left")
		s.must(!s.resumed || next.Resumes < s.p.resumeAttempts(), "resumes have an end")
	case StatePending:
		s.must(!next.Doubt && (s.resumed || next.Prepared || v.decision == "redirect"), "no caller was told that it was not sent")
	case StateWithdrawn:
		s.must(!next.Doubt && !s.resumed && !next.Prepared, "a caller was told that it was not sent")
	case StateHeld:
		s.saw("held: " + string(next.HoldReason))
	case StateSucceeded, StateRejected:
		s.must(!next.Doubt, "final is without doubt")
		if !s.doubt && next.State == StateRejected {
			s.saw("rejected without doubt")
		}
	default:
		s.must(false, "an end is a state that lasts")
	}
	if next.State == StateHeld || next.State.Final() {
		s.must(next.Due.IsZero() && next.Wait == 0 && next.Settled.Equal(s.now), "what has ended is not due")
	} else {
		s.saw(string(next.State))
	}
	if !mustSync(next, s.today, v, s.now) {
		s.saw("not synced")
		s.must(next.State == StateSucceeded || s.proved, "a lost record of a plain refusal would be sent again")
		s.must(s.keys && next.Retention > 0 && !s.now.After(stopOf(next, s.today).Add(-next.Retention/10)), "a lost record leaves time to ask again")
	}
}

// same checks what no end of an attempt changes.
func (s *settling) same(next Intent) {
	kept := next.Key == s.in.Key && next.Place == s.in.Place && next.Retention == s.in.Retention && next.Operation == s.in.Operation &&
		next.Attempts == s.in.Attempts && next.Resumes == s.in.Resumes && next.Prepared == s.in.Prepared && next.ID == s.in.ID
	s.must(kept, "an intent stays what it is")
	s.must(!next.Doubt || next.FirstSent.Equal(s.in.FirstSent), "the age of a key in doubt does not begin anew")
}

// asked asks for a send at any time, of a call and of a resume, whatever the
// contract is by then.
func (s *settling) asked(next Intent) {
	s.next = next
	for n := range uint8(3) {
		c := judgedToday(s.of.who, s.of.today+3*n)
		stop := stopOf(next, c)
		for _, now := range []time.Time{
			s.now, s.later, stop.Add(-1), stop, stop.Add(1), stop.Add(-next.Wait), next.FirstSent, next.FirstSent.Add(-time.Hour), s.now.AddDate(200, 0, 0), s.now.AddDate(-200, 0, 0),
		} {
			s.admitted(&next, c, now, true)
			s.admitted(&next, c, now, false)
		}
	}
}

func (s *settling) admitted(in *Intent, c *contract.Contract, now time.Time, resumed bool) {
	s.asks, s.at = c, now
	a := admit(*in, c, s.p, resumed, s.unnamed, now)
	s.must(a.wait >= 0 && (a.wait == 0 || a.send && now.Add(a.wait).Compare(in.Due) <= 0), "a wait ends when it is due")
	s.must(in.Wait <= 0 || a.wait <= in.Wait, "a clock does not stretch a wait")
	if !a.send {
		s.must(a.hold == "" || a.hold == a.why && (resumed || in.Deaths > 0), "a refused call changes nothing")
		s.must(a.why != "" || in.State.Final(), "a refusal says why")
		s.saw("refused: " + string(a.why))
		return
	}
	s.must(!in.State.Final() && in.State != StateHeld, "final and held are not sent")
	s.must(in.Deaths < s.p.maxDeaths(), "what kills is not sent")
	if resumed {
		s.must(in.Resumes < s.p.resumeAttempts(), "resumes have an end")
		s.must(in.Operation != "" || in.Adopted != nil || in.By != "" || s.unnamed, "what the caller may have issued again is not resumed")
	}
	if a.wait > 0 {
		s.saw("sent after a wait")
	}
	if !in.Doubt {
		s.saw("sent without doubt")
		return
	}
	s.saw("sent in doubt")
	s.must(in.Place != (contract.Place{}) && c != nil && !c.NoKeys, "no blind resend")
	s.must(now.Add(a.wait).Before(stopOf(*in, c)), "no send past the key's life")
	s.must(!in.FirstSent.After(now.Add(min(slackOf(in.Retention), slackOf(lifeOf(c))))), "no send by a clock that ran backwards")
}
