package idem

import (
	"errors"
	"fmt"
	"maps"
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

// The retry budget of one destination (RetryPolicy.Budget): a floor that comes
// back with time, a share of the first attempts, and for every definite answer
// what its call has taken, and two more. A destination that is down gets a resend a
// second, and one for ten first attempts; one that answers is held back no longer.
const (
	budgetEvery  = time.Second
	budgetShare  = 0.1
	budgetReturn = 2
)

// maxGates bounds the destinations that are remembered.
const maxGates = 1024

// gates are what a transport knows of its destinations.
type gates struct {
	mu    sync.Mutex
	all   map[string]*gate
	burst float64 // the budget of a destination that was not asked for long
}

// gate is what is known of one destination: scheme, host and port.
type gate struct {
	mu     sync.Mutex
	burst  float64       // the largest budget
	budget float64       // resends that may go out now
	filled time.Time     // when budget was right
	until  time.Time     // asked for by the server; zero: no pause
	calm   int           // definite answers since the last attempt that brought none
	slot   time.Time     // when the last one that was sent away may come back
	took   time.Duration // by an attempt, on average
	turn   time.Time     // when the last one that found it busy may come back

	accounts map[string]time.Time // of direct calls, to the end of the pause that each was asked for
}

// of returns the gate of the destination, at now.
func (g *gates) of(destination []byte, now time.Time) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	if found := g.all[string(destination)]; found != nil {
		return found
	}
	if len(g.all) >= maxGates {
		for name, known := range g.all {
			if known.idle(now) {
				delete(g.all, name)
			}
		}
	}
	made := &gate{burst: g.burst, budget: g.burst, filled: now}
	if len(g.all) >= maxGates { // all are in use: this one is not remembered
		return made
	}
	if g.all == nil {
		g.all = map[string]*gate{}
	}
	g.all[string(destination)] = made
	return made
}

// idle reports a gate that a new one would equal.
func (g *gate) idle(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fill(now)
	g.forget(now)
	return len(g.accounts) == 0 && g.budget >= g.burst && !now.Before(g.until) && !now.Before(g.slot)
}

func (g *gate) fill(now time.Time) {
	if passed := now.Sub(g.filled); passed > 0 {
		g.add(passed.Seconds() / budgetEvery.Seconds())
		g.filled = now
	}
}

func (g *gate) add(resends float64) { g.budget = min(g.budget+resends, g.burst) }

// first notes the first attempt of an operation.
func (g *gate) first() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.add(budgetShare)
}

// spend takes one resend of a direct call out of the budget, before it waits for
// its turn, so that those who wait count too.
func (g *gate) spend(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fill(now)
	if g.budget < 1 {
		return false
	}
	g.budget--
	return true
}

// maxAccounts bounds the accounts of one destination whose pause is remembered.
const maxAccounts = 256

// hush keeps the direct calls of one account away.
func (g *gate) hush(account string, now time.Time, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.accounts) >= maxAccounts {
		g.forget(now)
	}
	if len(g.accounts) >= maxAccounts {
		return
	}
	if g.accounts == nil {
		g.accounts = map[string]time.Time{}
	}
	if until := now.Add(wait); until.After(g.accounts[account]) {
		g.accounts[account] = until
	}
}

// forget drops the accounts whose pause is over.
func (g *gate) forget(now time.Time) {
	maps.DeleteFunc(g.accounts, func(_ string, until time.Time) bool { return !now.Before(until) })
}

// hushed is what is left of the pause of an account, which is asked for only
// where any is paused.
func (g *gate) hushed(now time.Time, account func() string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.accounts) == 0 {
		return 0
	}
	who := account()
	until := g.accounts[who]
	if !now.Before(until) {
		delete(g.accounts, who)
		return 0
	}
	return until.Sub(now)
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

// answered notes how an attempt ended: with an answer that stands, or with none.
// The pace of resumes is learnt from resumes.
func (g *gate) answered(definite, resumed bool, spent int, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if definite {
		g.add(float64(spent) + budgetReturn)
	}
	switch {
	case !resumed:
	case definite:
		g.calm++
		g.took += (took - g.took) / 8
	default:
		g.calm = 0
	}
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

// gate is that of the intent's destination.
func (x *exchange) gate() *gate {
	if x.kept == nil {
		var room [128]byte
		to := room[:0]
		if x.req != nil {
			to = appendOrigin(to, x.req.URL)
		} else {
			to = append(to, destination(x.want)...)
		}
		x.kept = x.t.gates.of(to, x.t.clock.Now())
	}
	return x.kept
}

// learn tells the gate of the intent's destination what an attempt brought.
func (x *exchange) learn(v verdict, status int, took time.Duration) {
	g, now := x.gate(), x.t.clock.Now()
	if v.wait > 0 && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == 529) {
		g.pause(now, v.wait, x.resumed, x.t.Retry)
		if x.req != nil && v.wait <= x.t.Retry.maxBackoff() { // a longer one is this operation's own (O-48)
			g.hush(x.account(), now, v.wait)
		}
	}
	definite := v.state.Final() || status > 0 && !v.again
	g.answered(definite, x.resumed, x.spent, took)
	if definite {
		x.spent = 0
	}
}

// account tells those apart at one destination that are limited each for itself:
// by their credentials and the contract's scope headers.
func (x *exchange) account() string {
	d, keyHeader := newDigest("idem account 1"), ""
	if x.contract != nil {
		d.headers(x.req.Header, x.contract.ScopeHeaders)
		keyHeader = x.contract.Key.Header
	}
	d.bytes(credentialDigest(x.req, keyHeader, x.t.Secrets, x.t.salt))
	return string(d.sum(nil))
}

// heed sits out a pause that the destination has asked this account for, before
// there is an intent. It returns an answer where the caller would not wait for so long.
func (x *exchange) heed() *answer {
	if x.hop != nil || x.want.URL == "" {
		return nil
	}
	for {
		left := x.gate().hushed(x.t.clock.Now(), x.account)
		if left <= 0 || !x.wouldSend() {
			return nil
		}
		if wait := left + rand.N(x.t.Retry.minBackoff()); !x.patient(left) || !sleep(x.ctx, wait) {
			return x.unsent(x.leftOr(fmt.Errorf("%s asked for a pause of %v more, which is longer than this call waits",
				origin(x.req.URL), left.Round(time.Millisecond))))
		}
	}
}

// wouldSend reports whether the journal leaves it to this call to send.
func (x *exchange) wouldSend() bool {
	if x.want.Operation == "" {
		return true
	}
	in, err := x.t.Journal.Lookup(x.ctx, x.want.Scope, x.want.Operation)
	return errors.Is(err, ErrNotFound) || err == nil && !in.State.Final() && in.State != StateHeld
}

// overBudget is why a resend of a direct call does not go out; nil: it may.
func (x *exchange) overBudget() error {
	if x.resumed || x.hop != nil || x.hops > 0 {
		return nil
	}
	if x.gate().spend(x.t.clock.Now()) {
		x.spent++
		return nil
	}
	return fmt.Errorf("not sent again: the retry budget of %s is used up (RetryPolicy.Budget)", destination(x.in))
}
