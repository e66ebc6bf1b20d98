package idem

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Why a resume leaves an intent for later without an attempt: the reasons in
// Report.Skipped.
const (
	skippedPaused      = "destination asked for a pause"
	skippedBudget      = "retry budget of the destination is used up"
	skippedBusy        = "destination has enough attempts running"
	skippedAlone       = "its process died: sent alone, when nothing else is"
	skippedNoOnSettled = "no OnSettled to tell of the settlement"
	skippedTelling     = "OnSettled is told of enough others"
)

// longestUntold is the longest wait of a settlement that is owed to an OnSettled
// that this client does not have.
const longestUntold = time.Hour

// The retry budget of one destination: a burst, a floor that comes back with
// time, and two for every resend that gets a definite answer. A destination that is
// down gets a resend a second; one that answers is held back no longer.
const (
	budgetBurst  = 32
	budgetEvery  = time.Second
	budgetReturn = 2
)

// maxGates bounds the destinations that are remembered.
const maxGates = 1024

// gates are what a transport knows of its destinations.
type gates struct {
	mu  sync.Mutex
	all map[string]*gate
}

// gate is what is known of one destination: scheme, host and port.
type gate struct {
	mu     sync.Mutex
	budget float64       // resends that may go out now
	filled time.Time     // when budget was right
	until  time.Time     // asked for by the server; zero: no pause
	calm   int           // definite answers since the last attempt that brought none
	slot   time.Time     // when the last one that was sent away may come back
	took   time.Duration // by an attempt, on average
	turn   time.Time     // when the last one that found it busy may come back
}

// of returns the gate of the destination, at now.
func (g *gates) of(destination string, now time.Time) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	if found := g.all[destination]; found != nil {
		return found
	}
	if len(g.all) >= maxGates {
		for name, known := range g.all {
			if known.idle(now) {
				delete(g.all, name)
			}
		}
	}
	made := &gate{budget: budgetBurst, filled: now}
	if len(g.all) >= maxGates { // all are in use: this one is not remembered
		return made
	}
	if g.all == nil {
		g.all = map[string]*gate{}
	}
	g.all[destination] = made
	return made
}

// idle reports a gate that a new one would equal.
func (g *gate) idle(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fill(now)
	return g.budget >= budgetBurst && !now.Before(g.until) && !now.Before(g.slot)
}

func (g *gate) fill(now time.Time) {
	if passed := now.Sub(g.filled); passed > 0 {
		g.budget = min(g.budget+passed.Seconds()/budgetEvery.Seconds(), budgetBurst)
		g.filled = now
	}
}

// enter takes one resend out of the budget, or says why not, and when to come
// again.
func (g *gate) enter(now time.Time, p RetryPolicy) (skipped string, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fill(now)
	switch {
	case now.Before(g.until):
		return skippedPaused, g.until.Sub(now) + rand.N(p.minBackoff())
	case g.budget < 1:
		return skippedBudget, g.later(now, p)
	}
	g.budget--
	return "", 0
}

// busy is when to come again to a destination that has enough to do: when it
// will have come to those before, at the pace that it has; where it brings no
// answers, after a wait that grows.
func (g *gate) busy(now time.Time, in Intent, p RetryPolicy) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calm == 0 {
		return p.longer(in.Wait)
	}
	if g.turn.Before(now) {
		g.turn = now
	}
	g.turn = g.turn.Add(g.took / sweepPerGate)
	return min(g.turn.Sub(now), p.maxBackoff())
}

// later gives those that are sent away one instant each to come back at, as the
// budget comes back, within four times MaxBackoff.
func (g *gate) later(now time.Time, p RetryPolicy) time.Duration {
	if g.slot.Before(now) {
		g.slot = now
	}
	g.slot = g.slot.Add(budgetEvery)
	high := min(4*p.maxBackoff(), longestWait)
	if wait := g.slot.Sub(now); wait < high {
		return wait
	}
	g.slot = now.Add(high)
	return high/2 + rand.N(high/2+1)
}

// pause keeps resumes away for as long as the server asked, at most MaxBackoff:
// one limited account must not stop the others for longer. What a direct call is
// told right after a pause is no news.
func (g *gate) pause(now time.Time, wait time.Duration, resumed bool, p RetryPolicy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !resumed && now.Before(g.until.Add(p.maxBackoff())) {
		return
	}
	if until := now.Add(min(wait, p.maxBackoff())); until.After(g.until) {
		g.until = until
	}
}

// answered notes how a resumed attempt ended: with an answer that stands, or
// with none.
func (g *gate) answered(definite bool, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !definite {
		g.calm = 0
		return
	}
	g.calm++
	g.took += (took - g.took) / 8
	g.budget = min(g.budget+budgetReturn, budgetBurst)
}

// spread is a random delay of a start, so that what became due in the same
// instant, here or on other machines, does not go out in the same instant. It
// shrinks as the destination answers.
func (g *gate) spread(p RetryPolicy) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	longest := p.minBackoff() >> min(g.calm/8, 62)
	if longest < time.Millisecond {
		return 0
	}
	return rand.N(longest)
}

// destination names where the intent goes.
func destination(in Intent) string {
	u, err := url.Parse(in.URL)
	if err != nil {
		return ""
	}
	return origin(u)
}

// learn tells the gate of the intent's destination what an attempt brought.
func (x *exchange) learn(v verdict, status int, took time.Duration) {
	asked := v.wait > 0 && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == 529)
	if !x.resumed && !asked {
		return
	}
	now := x.t.clock.Now()
	g := x.t.gates.of(destination(x.in), now)
	if asked {
		g.pause(now, v.wait, x.resumed, x.t.Retry)
	}
	if x.resumed {
		g.answered(v.state.Final() || status > 0 && !v.again, took)
	}
}
