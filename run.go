package idem

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// How often Run looks for what nobody tells it of: owners that died, and what
// other processes leave. The longer there is nothing to do, the less often.
const (
	pollEvery   = time.Second
	pollLongest = 8 * time.Second
)

// Run resumes until ctx ends, or until Shutdown, and then returns nil. It is
// for a long-lived process: one goroutine that takes whatever is due, as
// [Client.Resume] does, when it becomes due; what a process left that died is
// found within ten seconds.
//
// Attempts start one after another, at random instants after a start and while
// a destination does not answer, so that many intents or many machines do not
// come as a herd. What would have to wait for its destination is put off, so
// that one that is slow, limited or down does not hold up the others.
//
// When ctx ends, running attempts are cut; they are in doubt then, and resumed
// later. Shutdown lets them finish. An error means that Run could not work at
// all: the client has no journal, or it was closed. While the journal fails, Run
// waits and tries again. Several Runs, here or in other processes, share the
// work.
func (c *Client) Run(ctx context.Context) error {
	s, leave, err := c.sweep(ctx, "run")
	if err != nil {
		return err
	}
	defer leave()
	s.steady = true
	return s.run()
}

// run is the loop of Run.
func (s *sweep) run() error {
	defer s.finish()
	verified := s.t.clock.Now()
	failures, poll := 0, pollEvery
	for {
		for s.goesOn() {
			now := s.t.clock.Now()
			if now.Sub(verified) >= verifyEvery && s.count(&s.aside) == 0 {
				verified = now
				s.spawn(&s.aside, func() { s.verifyHeld(now) })
			}
			due, next, err := s.claim(now)
			if err != nil {
				s.fail(err)
				break
			}
			failures = 0
			if len(due) > 0 {
				poll = pollEvery
			}
			if s.work(due) && s.busy() < sweepAttempts {
				continue
			}
			if !s.rest(now, next, poll) {
				poll = min(2*poll, pollLongest)
			}
		}
		err := s.failure()
		switch {
		case err == nil: // told to stop, or something panicked
			return nil
		case errors.Is(err, ErrClosed):
			return err
		}
		failures++
		wait := s.t.Retry.backoff(failures)
		s.t.journalFailed(s.ctx, "the journal failed, nothing is resumed for now",
			slog.String("err", err.Error()), slog.Duration("wait", wait))
		sleep(s.going, wait)
	}
}

// rest waits until something may be due: next, a call or a worker that ended
// (then it reports true), or time to look.
func (s *sweep) rest(now, next time.Time, poll time.Duration) bool {
	wait := poll
	if !next.IsZero() {
		wait = min(wait, max(next.Sub(now), 0))
	}
	full := s.busy() >= sweepAttempts
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-s.ended:
			return true
		case <-s.going.Done():
			return true
		case <-s.t.woken:
			if !full {
				return true
			}
		case <-timer.C:
			if !full {
				return false
			}
		}
	}
}

// wake tells a Run that something may be due, or owed.
func (t *Transport) wake() {
	select {
	case t.woken <- struct{}{}:
	default:
	}
}
