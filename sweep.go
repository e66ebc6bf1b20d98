package idem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// The bounds of one Resume or Run.
const (
	sweepPage       = 16 // intents that are claimed at once
	sweepAttempts   = 32 // attempts at a time
	sweepPerGate    = 8  // of them at one destination
	sweepTold       = 8  // calls of OnSettled at a time
	startPatience   = 50 * time.Millisecond
	skippedNotAsked = "" // not skipped
)

// How long a Run puts off those with deaths: while there are others to send,
// and at first in any case, since others may be due in a moment.
const (
	suspectPatience = time.Minute
	suspectCalm     = 2 * time.Second
)

// sweep is a Resume or a Run at work. Its methods belong to the goroutine that
// claims, except where they say otherwise; each claimed intent is worked on by
// a goroutine of its own.
type sweep struct {
	c      *Client
	t      *Transport
	ctx    context.Context // of the attempts
	going  context.Context // ends with ctx, or by Shutdown: nothing new then
	steady bool            // a Run: what would have to wait is given back, so that nothing waits behind it

	starts chan struct{} // held by the attempt that is about to go out
	ended  chan struct{} // told when a worker ended

	suspected   time.Time // since when those with deaths wait for the others
	suspectSeen time.Time // when one of them was last put off

	mu      sync.Mutex
	running int            // attempts
	telling int            // calls of OnSettled
	aside   int            // reads of what is held
	deadly  int            // attempts of those with deaths
	at      map[string]int // attempts, by destination
	report  Report
	err     error // of the journal
	thrown  any   // what a hook or Base panicked with
}

// sweep starts one, unless the client cannot.
func (c *Client) sweep(ctx context.Context, doing string) (s *sweep, end func(), err error) {
	leave, err := c.enter(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	t := c.Transport
	switch err = t.ready(); {
	case err != nil:
		err = fmt.Errorf("idem: %s: %w", doing, err)
	case t.Journal == nil:
		err = fmt.Errorf("idem: %s: %w: Transport.Journal is nil", doing, ErrJournal)
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	going, stop := context.WithCancel(ctx)
	watch := context.AfterFunc(c.stopped(), stop)
	s = &sweep{
		c: c, t: t, ctx: ctx, going: going, starts: make(chan struct{}, 1), ended: make(chan struct{}, 1),
		at: map[string]int{}, report: Report{Skipped: map[string]int{}},
	}
	return s, func() { watch(); stop(); leave() }, nil
}

// claim takes what is due, as much as there is room for.
func (s *sweep) claim(now time.Time) (due []Intent, next time.Time, err error) {
	limit := max(min(sweepPage, sweepAttempts-s.busy()), 1)
	return s.t.Journal.ClaimDue(s.ctx, now, Filter{Name: s.t.Name, Limit: limit})
}

// work works through a page of claimed intents: those without deaths at the
// same time, the others alone, one after another, since each of them may be the
// one that kills the process. A steady sweep takes one of those only, so that
// what becomes due meanwhile comes first. What it does not come to is given
// back. It reports whether there may be more to take at once.
func (s *sweep) work(page []Intent) (more bool) {
	left, wait, why := page, time.Duration(0), skippedNotAsked
	defer func() { // also when a hook panics
		for _, in := range left {
			s.giveBack(in, wait, why)
		}
	}()
	for len(left) > 0 && s.goesOn() {
		in := left[0]
		if !suspect(in) {
			left = left[1:]
			s.begin(in)
			continue
		}
		switch {
		case s.steady && s.putsOff():
			wait, why = time.Second, skippedAlone
			return false
		case !s.steady && !s.alone():
			return false
		}
		left = left[1:]
		s.begin(in)
		if s.over(); s.steady {
			return true
		}
	}
	return len(page) == sweepPage
}

// suspect reports an intent whose process died during its attempt.
func suspect(in Intent) bool { return in.Claimed && in.Deaths > 0 && !in.State.Final() }

// putsOff reports whether those with deaths can wait for longer.
func (s *sweep) putsOff() bool {
	now := s.t.clock.Now()
	if now.Sub(s.suspectSeen) > suspectPatience { // the last ones are done
		s.suspected = now
	}
	s.suspectSeen = now
	waited := now.Sub(s.suspected)
	return waited < suspectCalm || s.busy() > 0 && waited < suspectPatience
}

// over waits until the attempt that has just begun is over. A Run does not wait
// for one that does not end: then others go out beside it.
func (s *sweep) over() {
	if !s.steady {
		s.alone()
		return
	}
	limit := time.NewTimer(s.t.Retry.maxBackoff() + orDefault(s.t.Retry.AttemptTimeout, defaultAttemptTimeout))
	defer limit.Stop()
	for s.suspects() > 0 {
		select {
		case <-s.ended:
		case <-s.going.Done():
			return
		case <-limit.C:
			return
		}
	}
}

// begin starts the work on one claimed intent, or skips it.
func (s *sweep) begin(in Intent) {
	switch {
	case !in.Claimed: // the journal had to hold it
		s.t.Observer.ended(s.ctx, shown(in))
		if !s.steady {
			s.add(func(r *Report) { r.Held = append(r.Held, shown(in)) })
		}
		return
	case in.State.Final():
		s.beginToTell(in)
		return
	}
	to, now := destination(in), s.t.clock.Now()
	g := s.t.gates.of([]byte(to), now)
	for s.runningAt(to) >= sweepPerGate {
		if s.steady {
			s.giveBack(in, g.busy(now, in, s.t.Retry), skippedBusy)
			return
		}
		if !s.await() {
			s.giveBack(in, 0, skippedNotAsked)
			return
		}
	}
	if skipped, wait := g.enter(now, s.t.Retry); skipped != "" {
		s.giveBack(in, wait, skipped)
		return
	}
	s.start(to, suspect(in), func() { s.send(in, g) })
}

// beginToTell starts the telling of a settlement. Those that hang hold up
// neither sends nor, for long, each other.
func (s *sweep) beginToTell(in Intent) {
	if s.c.OnSettled == nil { // for a client that has one
		s.giveBack(in, min(max(2*in.Wait, s.t.Retry.maxBackoff()), longestUntold), skippedNoOnSettled)
		return
	}
	for s.count(&s.telling) >= sweepTold {
		if s.steady {
			s.giveBack(in, s.t.Retry.longer(in.Wait), skippedTelling)
			return
		}
		if !s.awaits(&s.telling) {
			s.giveBack(in, 0, skippedNotAsked)
			return
		}
	}
	s.spawn(&s.telling, func() { s.tell(in) })
}

// send makes one attempt of the intent. Called by its worker.
func (s *sweep) send(in Intent, g *gate) {
	if s.steady && !sleep(s.going, g.spread(s.t.Retry)) {
		s.giveBack(in, 0, skippedNotAsked)
		return
	}
	// One start after another: the last one to begin before the process dies is
	// the likeliest to have killed it.
	s.starts <- struct{}{}
	release := sync.OnceFunc(func() { <-s.starts })
	defer release()
	over := time.AfterFunc(startPatience, release)
	defer over.Stop()
	s.c.resume(s, in, release)
}

// start runs do as a worker at an intent that goes to the destination.
func (s *sweep) start(to string, suspect bool, do func()) {
	count := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.at[to] += n; s.at[to] == 0 {
			delete(s.at, to)
		}
		if suspect {
			s.deadly += n
		}
	}
	count(1)
	s.spawn(&s.running, func() {
		defer count(-1)
		do()
	})
}

// spawn runs do as a worker that counts in n.
func (s *sweep) spawn(n *int, do func()) {
	s.mu.Lock()
	*n++
	s.mu.Unlock()
	go func() {
		defer func() {
			thrown := recover()
			if thrown != nil {
				s.t.log().LogAttrs(s.ctx, slog.LevelError, "panic in a resumed attempt or a hook",
					slog.String("panic", fmt.Sprintf("%T", thrown)), slog.String("stack", string(debug.Stack()))) // its text may hold anything
			}
			s.mu.Lock()
			*n--
			if s.thrown == nil {
				s.thrown = thrown
			}
			s.mu.Unlock()
			select {
			case s.ended <- struct{}{}:
			default:
			}
		}()
		do()
	}()
}

// await waits until an attempt ends, and reports false where there is none left
// or nothing new shall begin.
func (s *sweep) await() bool { return s.awaits(&s.running) }

// awaits is await for those that count in n.
func (s *sweep) awaits(n *int) bool {
	if s.count(n) == 0 || !s.goesOn() {
		return false
	}
	select {
	case <-s.ended:
	case <-s.going.Done():
	}
	return s.goesOn()
}

// alone waits until no attempt is left.
func (s *sweep) alone() bool {
	for s.busy() > 0 && s.await() {
	}
	return s.goesOn()
}

// finish waits for the workers, whatever has happened, and passes on what one
// panicked with.
func (s *sweep) finish() {
	for s.busy()+s.count(&s.telling)+s.count(&s.aside) > 0 {
		<-s.ended
	}
	if s.thrown != nil { // nobody else is left
		panic(s.thrown)
	}
}

func (s *sweep) busy() int     { return s.count(&s.running) }
func (s *sweep) suspects() int { return s.count(&s.deadly) }

func (s *sweep) count(n *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *n
}

func (s *sweep) runningAt(to string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[to]
}

// goesOn reports whether something new may begin.
func (s *sweep) goesOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && s.thrown == nil && s.going.Err() == nil
}

// add writes into the report. Called by anyone.
func (s *sweep) add(do func(*Report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.report)
}

// fail notes that the journal does not take what happened. Called by anyone.
func (s *sweep) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// failure takes the journal's error.
func (s *sweep) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	s.err = nil
	return err
}

// dueGrid brings those together that were sent away, so that they come back as
// pages and not one by one.
const dueGrid = 100 * time.Millisecond

// giveBack gives a claimed intent back without an attempt, to be due after
// wait. Called by anyone.
func (s *sweep) giveBack(in Intent, wait time.Duration, skipped string) {
	if !in.Claimed {
		return
	}
	if skipped != skippedNotAsked {
		s.add(func(r *Report) { r.Skipped[skipped]++ })
		now := s.t.clock.Now()
		in.Due = now.Add(wait).Truncate(dueGrid).Add(dueGrid)
		in.Wait = in.Due.Sub(now)
	}
	in.Claimed = false
	x := &exchange{t: s.t, ctx: s.ctx}
	if _, err := x.record(in, nil, false); err != nil && !errors.Is(err, ErrBusy) {
		s.fail(err)
	}
}
