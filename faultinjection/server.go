package faultinjection

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/contract"
)

// Server is a reference server: it keeps idempotency keys as a good provider
// does, and fails where its plan says so. Never use it in production: it
// remembers credentials and bodies in clear text and has no limits worth the
// name.
//
// A key is claimed by one atomic INSERT, and the effect and its answer are
// committed together. The same request with the same key gets the stored answer
// with the contract's replay marker; while it is being worked on, 409 and a
// wait; another method, path, query or body under the key, the contract's
// mismatch answer; a missing, malformed or repeated key, 400. A client that
// goes away does not stop an execution. Requests that the contract does not
// give a key to execute every time. Safe methods never have an effect and need
// no key. The contract's hosts do not matter.
//
// Set the fields before the first request. A Server is an [http.Handler], safe
// for concurrent use. Inside a [testing/synctest] bubble, make it there and use
// [Server.Transport].
type Server struct {
	// Effect answers a request that is executed. A status of 400 or more means
	// that it failed and had no effect; zero means 201. It must not keep r.
	// nil means 201, or 200 for a safe method, and a JSON object with a charge
	// id of its own, the operation, and the request.
	Effect func(r *http.Request, body []byte) (status int, header http.Header, response []byte)
	// Operation names the effect in the ledger. nil means the JSON member
	// "order" or "operation" of the body, else the path.
	Operation func(r *http.Request, body []byte) string
	// Broken makes the server wrong on purpose. Zero means correct.
	Broken Broken
	// Retention is how long a key is remembered, from its first claim. Zero
	// means the contract's, and for ever if that is zero too.
	Retention time.Duration
	// RetryAfter is the wait asked of a request whose key is in flight. Zero
	// means one second.
	RetryAfter time.Duration
	// StoreFailures keeps a failure as the answer of its key. False means as
	// the contract says (StoresServerErrors); where a failure is not stored,
	// its claim is dropped and a later request runs again.
	StoreFailures bool
	// Work is how long an execution takes before its effect. Zero means no time.
	Work time.Duration
	// Now is the server's clock. nil means time.Now.
	Now func() time.Time

	contract *contract.Contract
	ledger   *Ledger
	steps    plan
	awake    sync.Once
	gate     gate
	unfit    error // a bad contract or ledger; every request is told
}

// Broken is a set of deliberate mistakes, to see a test fail.
type Broken uint

const (
	// CheckThenInsert looks a key up, works, and only then stores it, so that
	// concurrent requests with one key all execute.
	CheckThenInsert Broken = 1 << iota
	// NoMemory takes keys and keeps none: every request executes.
	NoMemory
	// ForgetsOnRestart drops what earlier lives of the server have stored, at
	// its first request.
	ForgetsOnRestart
	// IgnoresPayload gives the stored answer to another request with the same
	// key, where it should refuse.
	IgnoresPayload
	// ReplaysOtherBody answers a repeated key with what another key has stored,
	// where there is one.
	ReplaysOtherBody
	// LeaksClaim keeps the claim of an execution that failed or died, so that
	// its key is in flight until the server's next life.
	LeaksClaim
)

// maxBody bounds a request body, in bytes. Larger ones are answered with 413.
const maxBody = 16 << 20

// NewServer starts a life of a server on a ledger: claims that an earlier life
// left unfinished are dropped, since they had no effect. It must be the only
// living one on that ledger; an older Server on it can execute nothing more that
// it has begun. A nil contract means a server that knows no keys. A contract that
// is not valid, and a ledger that does not work, are told to every request.
func NewServer(c *contract.Contract, l *Ledger) *Server {
	s := &Server{contract: c, ledger: l, unfit: l.begin()}
	if c != nil {
		s.unfit = errors.Join(c.Validate(), s.unfit)
	}
	return s
}

// Plan appends steps, one for each arrival, safe methods included. When all are
// used up, what was given to [Server.Each] decides, and without it Run.
func (s *Server) Plan(steps ...Step) { s.steps.add(steps) }

// Each sets what plans a step for an arrival once Plan's steps are used up. It
// is called in order of arrival, one call at a time, with the ledger locked: it
// must not use the server or the ledger. The arrival has no Outcome yet. nil
// means Run.
func (s *Server) Each(step func(Arrival) Step) { s.steps.otherwise(step) }

// Release lets every execution go on that is held now.
func (s *Server) Release() { s.gate.release() }

// AwaitHeld waits until at least n executions are held, or ctx ends.
func (s *Server) AwaitHeld(ctx context.Context, n int) error { return s.gate.await(ctx, n) }

// handle is the whole server: from a request to what becomes of its connection.
// life ends when the server is closed, as a kill would end it.
func (s *Server) handle(life context.Context, r *http.Request, body []byte) reply {
	if s.unfit != nil {
		return reply{answer: problem(http.StatusInternalServerError, "%v", wrap("begin", s.unfit))}
	}
	a := s.arrival(r, body)
	q := s.question(r, &a)
	var err error
	s.awake.Do(func() {
		if s.broken(ForgetsOnRestart) {
			err = s.ledger.forget()
		}
	})
	if err != nil {
		return reply{answer: problem(http.StatusInternalServerError, "%v", wrap("forget", err))}
	}
	v, err := s.ledger.admit(&a, q, s.steps.next)
	if err != nil {
		return reply{answer: problem(http.StatusInternalServerError, "%v", wrap("note an arrival", err))}
	}
	var out answer
	switch v.outcome {
	case OutcomeUnfinished:
		var alive bool
		if out, alive = s.execute(life, r, &a, q, v.step); !alive {
			return reply{end: reset}
		}
	case OutcomeRead:
		out = s.read(r, &a)
	default:
		out = s.withoutEffect(q, v)
	}
	if v.step.action == slowAnswer && !pause(life, v.step.delay) {
		return reply{end: reset}
	}
	if out.header == nil {
		out.header = http.Header{}
	}
	out.header.Set("Date", s.now().UTC().Format(http.TimeFormat))
	return reply{answer: out, end: v.step.ending()}
}

// execute works and has the effect. It is false when the server died first; the
// claim is then gone.
func (s *Server) execute(life context.Context, r *http.Request, a *Arrival, q question, step Step) (out answer, alive bool) {
	finished := false
	defer func() { // also when Effect panics
		if !finished {
			// A claim that cannot be taken back stays in flight until the
			// server's next life, as a real one would.
			_ = s.ledger.abandon(a, s.broken(LeaksClaim))
		}
	}()
	if step.action == hold && !s.gate.hold(life) {
		return answer{}, false
	}
	if step.action == slow && !pause(life, step.delay) {
		return answer{}, false
	}
	if !pause(life, s.Work) || step.action == dieBeforeEffect {
		return answer{}, false
	}
	x := s.work(r, a, step)
	if err := s.ledger.finish(a, q, x); err != nil {
		return answer{}, false
	}
	finished = true
	return x.answer, true
}

// work runs the effect and says what is to be stored.
func (s *Server) work(r *http.Request, a *Arrival, step Step) execution {
	x := execution{outcome: OutcomeExecuted, effect: true, keep: true}
	switch step.action {
	case fail, failAfterEffect:
		x.answer = problem(step.status, "planned: %s", step)
	default:
		x.answer = s.effect(r, a)
	}
	if x.answer.status >= 400 && step.action != failAfterEffect {
		x.outcome, x.effect = OutcomeFailed, false
		x.keep = s.StoreFailures || (s.contract != nil && s.contract.StoresServerErrors)
	}
	x.at = s.now()
	return x
}

// effect asks Effect, and completes what it left out.
func (s *Server) effect(r *http.Request, a *Arrival) answer {
	if s.Effect == nil {
		return charge(a)
	}
	status, header, body := s.Effect(r, a.Body)
	out := answer{status, header.Clone(), body}
	if out.status == 0 {
		out.status = http.StatusCreated
	}
	if out.header == nil {
		out.header = http.Header{}
	}
	if out.header.Get("Content-Type") == "" && len(body) > 0 {
		out.header.Set("Content-Type", http.DetectContentType(body))
	}
	return out
}

// charge is the effect of a server without one of its own: an id that no other
// execution has, and the request.
func charge(a *Arrival) answer {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q %q", a.Number, a.Keys, a.Body))
	var request any = string(a.Body)
	if json.Valid(a.Body) {
		request = json.RawMessage(a.Body)
	}
	body, _ := json.Marshal(struct { // strings and valid JSON always encode
		ID        string `json:"id"`
		Operation string `json:"operation"`
		Request   any    `json:"request"`
	}{"ch_" + hex.EncodeToString(sum[:8]), a.Operation, request})
	return answer{http.StatusCreated, http.Header{"Content-Type": {"application/json"}}, append(body, '\n')}
}

// read answers a safe method. Without an Effect it tells how often the
// operation took effect.
func (s *Server) read(r *http.Request, a *Arrival) answer {
	if s.Effect != nil {
		return s.effect(r, a)
	}
	n, err := s.ledger.EffectsOf(a.Operation)
	if err != nil {
		return problem(http.StatusInternalServerError, "%v", err)
	}
	body, _ := json.Marshal(map[string]any{"operation": a.Operation, "effects": n}) // always encodes
	return answer{http.StatusOK, http.Header{"Content-Type": {"application/json"}}, append(body, '\n')}
}

// arrival describes a request.
func (s *Server) arrival(r *http.Request, body []byte) Arrival {
	r.Body = io.NopCloser(bytes.NewReader(body))
	a := Arrival{
		Method: r.Method, URI: r.RequestURI, Host: r.Host,
		Header: r.Header.Clone(), Body: body, At: s.now().UTC(),
	}
	if s.contract != nil {
		a.Keys = keysOf(s.contract.Key, r, body)
	}
	if s.Operation != nil {
		a.Operation = s.Operation(r, body)
	} else {
		a.Operation = operationOf(r, body)
	}
	return a
}

// operationOf reads the operation from a JSON body.
func operationOf(r *http.Request, body []byte) string {
	var named struct{ Order, Operation any }
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // 42 stays "42"
	if d.Decode(&named) == nil {
		for _, name := range []any{named.Order, named.Operation} {
			switch name.(type) {
			case string, json.Number:
				return fmt.Sprint(name)
			}
		}
	}
	return r.URL.Path
}

// question says what the key store must judge.
func (s *Server) question(r *http.Request, a *Arrival) question {
	q := question{
		checkOnly: s.broken(CheckThenInsert), anyPayload: s.broken(IgnoresPayload),
		otherBody: s.broken(ReplaysOtherBody), leaks: s.broken(LeaksClaim),
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		q.read = true
		return q
	}
	if !s.takesKey(r) || s.broken(NoMemory) {
		return q
	}
	q.keyed = true
	q.key, q.badKey = s.key(a.Keys)
	scope := make([]string, 0, len(s.contract.ScopeHeaders))
	for _, name := range s.contract.ScopeHeaders {
		scope = append(scope, strings.Join(r.Header.Values(name), ","))
	}
	q.scope = strings.Join(scope, "\n")
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s?%s\n%s", r.Method, r.URL.EscapedPath(), r.URL.RawQuery, a.Body))
	q.fingerprint = hex.EncodeToString(sum[:])
	retention := s.Retention
	if retention == 0 {
		retention = s.contract.Retention
	}
	if retention > 0 {
		q.forgetBefore = a.At.Add(-retention)
	}
	return q
}

func (s *Server) broken(b Broken) bool { return s.Broken&b != 0 }

// takesKey reports whether the contract wants a key here, on whatever host.
func (s *Server) takesKey(r *http.Request) bool {
	if s.contract == nil || s.contract.NoKeys {
		return false
	}
	here := *s.contract
	here.Hosts = nil
	return here.Resolve(r) != nil
}

// keysOf are the keys that came with a request, as they are written there; in a
// body or a query that cannot be read there is none.
func keysOf(place contract.Place, r *http.Request, body []byte) []string {
	if place.Header != "" {
		return r.Header.Values(place.Header)
	}
	key, found, err := place.Find(r.Header, r.URL, body)
	if err != nil || !found {
		return nil
	}
	return []string{place.Format(key)}
}

// key reads the one key of a request, or says what is wrong with it.
func (s *Server) key(values []string) (key, wrong string) {
	name := s.contract.Key.String()
	switch len(values) {
	case 0:
		return "", "the key in " + name + " is missing"
	case 1:
	default:
		return "", "more than one " + name
	}
	key, err := s.contract.Key.Parse(values[0])
	if err != nil {
		return "", name + " is malformed"
	}
	if s.contract.CheckKey(key) != nil {
		return "", name + " is not a key of this contract"
	}
	return key, ""
}

func (s *Server) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}
