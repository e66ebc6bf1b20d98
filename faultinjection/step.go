package faultinjection

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Step is what a [Server] does with one arrival. The zero Step is [Run]. Steps
// are values: compare them, keep them in tables, print them.
//
// A key that is in flight, stored or mismatched is answered as such whatever
// the step; the step then only decides how that answer travels.
type Step struct {
	action     action
	delay      time.Duration // of Slow and SlowAnswer
	status     int           // of Status, Redirect, Fail and FailAfterEffect
	retryAfter time.Duration // zero: no header
	location   string        // of Redirect
}

type action string

const (
	run             action = ""
	loseRequest     action = "lose_request"
	dieBeforeEffect action = "die_before_effect"
	dieAfterEffect  action = "die_after_effect"
	cutAnswer       action = "cut_answer"
	hold            action = "hold"
	slow            action = "slow"
	slowAnswer      action = "slow_answer"
	unavailable     action = "unavailable"
	status          action = "status"
	redirect        action = "redirect"
	fail            action = "fail"
	failAfterEffect action = "fail_after_effect"
)

// The steps without a parameter. Read-only.
var (
	// Run works as it should.
	Run = Step{}
	// LoseRequest notes the arrival and resets the connection: nothing is
	// claimed, nothing executed. The client cannot tell it from DieAfterEffect.
	LoseRequest = Step{action: loseRequest}
	// DieBeforeEffect claims the key and works, then resets the connection
	// with the claim rolled back: nothing is executed.
	DieBeforeEffect = Step{action: dieBeforeEffect}
	// DieAfterEffect stores effect and answer, then resets the connection: the
	// answer is lost.
	DieAfterEffect = Step{action: dieAfterEffect}
	// CutAnswer stores effect and answer, sends status line, headers with the
	// whole Content-Length and half of the body, and closes the connection. An
	// answer without a body is lost instead.
	CutAnswer = Step{action: cutAnswer}
	// Hold claims the key and waits for [Server.Release] before it works, so
	// that the key stays in flight.
	Hold = Step{action: hold}
)

// Slow claims the key and waits for d before the effect.
func Slow(d time.Duration) Step { return Step{action: slow, delay: d} }

// SlowAnswer waits for d before it sends the answer, whatever that is.
func SlowAnswer(d time.Duration) Step { return Step{action: slowAnswer, delay: d} }

// Unavailable answers 503 in front of the key store: nothing is claimed or
// executed. The first retryAfter, if there is one, asks for a wait.
func Unavailable(retryAfter ...time.Duration) Step {
	s := Status(http.StatusServiceUnavailable, retryAfter...)
	s.action = unavailable
	return s
}

// Status answers with a fixed status in front of the key store, as a gateway or
// a rate limiter does: nothing is claimed or executed. The first retryAfter, if
// there is one, asks for a wait.
func Status(code int, retryAfter ...time.Duration) Step {
	s := Step{action: status, status: code}
	if len(retryAfter) > 0 {
		s.retryAfter = retryAfter[0]
	}
	return s
}

// Redirect sends the client elsewhere, in front of the key store.
func Redirect(code int, location string) Step {
	return Step{action: redirect, status: code, location: location}
}

// Fail claims the key and answers with a failure that had no effect. Whether it
// is stored follows [Server.StoreFailures].
func Fail(code int) Step { return Step{action: fail, status: code} }

// FailAfterEffect has the effect and answers with a failure all the same. The
// answer is always stored: a server that forgot it would execute twice.
func FailAfterEffect(code int) Step { return Step{action: failAfterEffect, status: code} }

// String names the step and its parameters, such as "status 429".
func (s Step) String() string {
	if s.action == run {
		return "run"
	}
	return s.text()
}

// text is the step as the ledger stores it: empty for Run.
func (s Step) text() string {
	t := string(s.action)
	if s.status != 0 && s.action != unavailable {
		t += fmt.Sprintf(" %d", s.status)
	}
	if s.location != "" {
		t += " " + s.location
	}
	if d := s.delay + s.retryAfter; d != 0 {
		t += " " + d.String()
	}
	return t
}

// front is the outcome of an arrival that never gets to the key store.
func (s Step) front() Outcome {
	switch s.action {
	case loseRequest:
		return OutcomeLost
	case unavailable:
		return OutcomeUnavailable
	case status, redirect:
		return OutcomeAnswered
	}
	return OutcomeUnfinished
}

// ending is how the answer travels.
func (s Step) ending() ending {
	switch s.action {
	case loseRequest, dieBeforeEffect, dieAfterEffect:
		return reset
	case cutAnswer:
		return cut
	}
	return whole
}

// plan hands out steps in order of arrival.
type plan struct {
	mu    sync.Mutex
	steps []Step
	each  func(Arrival) Step
}

func (p *plan) add(steps []Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, steps...)
}

func (p *plan) otherwise(each func(Arrival) Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.each = each
}

func (p *plan) next(a Arrival) Step {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.steps) > 0 {
		first := p.steps[0]
		p.steps = p.steps[1:]
		return first
	}
	if p.each != nil {
		return p.each(a)
	}
	return Run
}
