package idem

import (
	"log/slog"
	"math/rand/v2"
	"time"
)

// owes reports whether a settlement is to be told to OnSettled: it was so when
// the intent was prepared, or a living client of the transport has one, and the
// settlement is that of a prepared intent or was not returned by the call that
// asked for it.
func (x *exchange) owes(next Intent) bool {
	return next.Notify || x.t.listeners.Load() > 0 && (x.resumed || next.Prepared)
}

// tell tells OnSettled of a settlement. The next try is put off before, so that
// a hook that kills the process does not come first again. Called by its
// worker.
func (s *sweep) tell(in Intent) {
	t := s.t
	x := &exchange{t: t, ctx: s.ctx}
	wait := t.Retry.untold().longer(in.Wait)
	tried := in
	tried.Due, tried.Wait = t.clock.Now().Add(wait), wait
	tried, err := x.record(tried, nil, true)
	if err != nil {
		s.fail(err)
		return
	}
	next := tried
	next.Claimed = false
	defer func() { // also when it panics
		if _, err := x.record(next, nil, true); err != nil {
			s.fail(err)
		}
	}()
	t.pass(pointTell)
	err = s.c.OnSettled(s.ctx, shown(in))
	t.pass(pointTold)
	if err != nil {
		s.add(func(r *Report) { r.Waiting++ })
		t.log().LogAttrs(s.ctx, slog.LevelWarn, "OnSettled failed, it will be told again",
			slog.String("operation", in.Operation), slog.String("err", safe(err, hidden{key: in.Key}).Error()), slog.Duration("wait", wait))
		return
	}
	next.Notify, next.Due, next.Wait = false, time.Time{}, 0
	s.add(func(r *Report) { r.Notified++ })
}

// untold is the policy of the waits between two calls of OnSettled for one
// settlement: nobody waits for it but the application itself.
func (p RetryPolicy) untold() RetryPolicy {
	p.MaxBackoff = min(10*p.maxBackoff(), longestWait)
	return p
}

// longer is the wait after one of the given length: about twice as long, within
// [MinBackoff, MaxBackoff]. Zero is no wait yet.
func (p RetryPolicy) longer(wait time.Duration) time.Duration {
	low, high := p.minBackoff(), p.maxBackoff()
	if wait <= 0 {
		return p.backoff(1)
	}
	wait = min(wait, high)
	return min(max(wait+wait/2+rand.N(wait), low), high)
}
