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
	startPatience   = 50 * time.Millisecond
	skippedNotAsked = "" // not skipped
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

	suspected time.Time // since when one with deaths waits for the others; zero: none

	mu      sync.Mutex
	running int            // workers that are at an intent
	aside   int            // workers that are not
	at      map[string]int // attempts running, by destination
	report  Report
	err     error // of the journal
	thrown  any   // what a hook or Base panicked with
}

// sweep starts one, unless the client cannot.
func (c *Client) sweep(ctx context.Context, doing string) (*sweep, func(), error) {
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
	s := &sweep{
		c: c, t: t, ctx: ctx, going: ctx, starts: make(chan struct{}, 1), ended: make(chan struct{}, 1),
		at: map[string]int{}, report: Report{Skipped: map[string]int{}},
	}
	return s, leave, nil
}

// claim takes what is due, as much as there is room for.
func (s *sweep) claim(now time.Time) (due []Intent, next time.Time, err error) {
	limit := max(min(sweepPage, sweepAttempts-s.busy()), 1)
	return s.t.Journal.ClaimDue(s.ctx, now, Filter{Name: s.t.Name, Limit: limit})
}

// suspectPatience is how long a Run puts off those with deaths while there are
// others to send.
const suspectPatience = time.Minute

// work works through a page of claimed intents: those without deaths at the
// same time, the others alone, one after another, since each of them may be the
// one that kills the process. A steady sweep takes one of those only, and when
// nothing else is running, so that what becomes due meanwhile comes first. What
// it does not come to is given back. It reports whether there may be more to
// take at once.
func (s *sweep) work(page []Intent) (more bool) {
	left := page
	defer func() { // also when a hook panics
		for _, in := range left {
			s.giveBack(in, 0, skippedNotAsked)
		}
	}()
	for len(left) > 0 && s.goesOn() {
		in := left[0]
		if !in.Claimed || in.Deaths == 0 || in.State.Final() {
			left = left[1:]
			s.begin(in)
			continue
		}
		if s.steady && s.busy() > 0 && s.putsOff() || !s.alone() {
			return false
		}
		s.suspected = time.Time{}
		left = left[1:]
		s.begin(in)
		if s.alone() && s.steady {
			return true
		}
	}
	return len(page) == sweepPage
}

// putsOff reports whether those with deaths can wait for longer.
func (s *sweep) putsOff() bool {
	now := s.t.clock.Now()
	if s.suspected.IsZero() {
		s.suspected = now
	}
	return now.Sub(s.suspected) < suspectPatience
}

// begin starts the work on one claimed intent, or skips it.
func (s *sweep) begin(in Intent) {
	switch {
	case !in.Claimed: // the journal had to hold it
		s.t.Observer.ended(s.ctx, shown(in))
		s.add(func(r *Report) { r.Held = append(r.Held, shown(in)) })
		return
	case in.State.Final():
		if s.c.OnSettled == nil { // for a client that has one
			s.giveBack(in, s.t.Retry.maxBackoff(), skippedNoOnSettled)
			return
		}
		s.start("", func() { s.tell(in) })
		return
	}
	to, now := destination(in), s.t.clock.Now()
	g := s.t.gates.of(to, now)
	for s.runningAt(to) >= sweepPerGate {
		if s.steady {
			s.giveBack(in, g.busy(now, s.t.Retry), skippedBusy)
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
	s.start(to, func() { s.send(in, g) })
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
func (s *sweep) start(to string, do func()) {
	s.mu.Lock()
	s.at[to]++
	s.mu.Unlock()
	s.spawn(&s.running, func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.at[to]--; s.at[to] == 0 {
				delete(s.at, to)
			}
		}()
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
					slog.Any("panic", thrown), slog.String("stack", string(debug.Stack())))
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

// await waits until a worker ends, and reports false where there is none left
// or nothing new shall begin.
func (s *sweep) await() bool {
	if s.busy() == 0 || !s.goesOn() {
		return false
	}
	select {
	case <-s.ended:
	case <-s.going.Done():
	}
	return s.goesOn()
}

// alone waits until no worker is left.
func (s *sweep) alone() bool {
	for s.busy() > 0 && s.await() {
	}
	return s.goesOn()
}

// finish waits for the workers, whatever has happened, and passes on what one
// panicked with.
func (s *sweep) finish() {
	for s.busy()+s.beside() > 0 {
		<-s.ended
	}
	if s.thrown != nil { // nobody else is left
		panic(s.thrown)
	}
}

func (s *sweep) beside() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aside
}

func (s *sweep) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
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

// giveBack gives a claimed intent back without an attempt, to be due after
// wait. Called by anyone.
func (s *sweep) giveBack(in Intent, wait time.Duration, skipped string) {
	if !in.Claimed {
		return
	}
	if skipped != skippedNotAsked {
		s.add(func(r *Report) { r.Skipped[skipped]++ })
		in.Due, in.Wait = s.t.clock.Now().Add(wait), wait
	}
	in.Claimed = false
	x := &exchange{t: s.t, ctx: s.ctx}
	if _, err := x.record(in, nil, false); err != nil && !errors.Is(err, ErrBusy) {
		s.fail(err)
	}
}
