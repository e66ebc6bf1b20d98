package faultinjection

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
)

// Journal is what [Ledger.Check] reads of a client's journal: each operation
// under each of its keys, its state (pending, in_flight, unknown, held,
// succeeded, rejected or withdrawn), and the status and body of its recorded
// answer; a nil body was not kept. idem's SQLiteJournal is one.
type Journal interface {
	Each(func(operation, key, state string, status int, body []byte) error) error
}

// Violation is something that a correct client never does, or never lets happen.
type Violation struct {
	Rule      Rule
	Operation string // the journal's name of it, or the ledger's; empty: unnamed
	Key       string // empty: it is about more than one
	Detail    string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: operation %q, key %q: %s", v.Rule, v.Operation, v.Key, v.Detail)
}

// Rule names what [Ledger.Check] looks at.
type Rule string

const (
	// OneEffect: an operation takes effect once at most.
	OneEffect Rule = "one effect"
	// OneRequest: all sends under one key are the same method, URL and body.
	OneRequest Rule = "one request"
	// JournaledFirst: no key is sent that the journal does not have.
	JournaledFirst Rule = "journaled first"
	// TrueSuccess: what is recorded as succeeded took effect, and its recorded
	// answer is the provider's.
	TrueSuccess Rule = "true success"
	// TrueFailure: what is recorded as rejected or withdrawn took no effect.
	TrueFailure Rule = "true failure"
)

// Check compares what happened with what the client believes, and returns what
// cannot be right. A nil journal means a client that keeps none: then only the
// effects and the requests are looked at. Call it while no request is under way.
//
// Duplicate effects are counted for each key, and for each operation that the
// ledger knows by a name from the body (see [Server.Operation]) rather than by the
// path alone.
func (l *Ledger) Check(j Journal) ([]Violation, error) {
	arrivals, err := l.Arrivals()
	if err != nil {
		return nil, err
	}
	effects, err := l.Effects()
	if err != nil {
		return nil, err
	}
	c := checker{ledger: l, effects: map[string]int{}, known: map[string]bool{}}
	c.countEffects(effects, arrivals)
	c.compareRequests(arrivals)
	if j == nil {
		return c.found, nil
	}
	if err := j.Each(c.row); err != nil {
		return nil, err
	}
	for _, a := range arrivals {
		if len(a.Keys) == 1 && !c.known[a.Keys[0]] {
			c.known[a.Keys[0]] = true
			c.add(JournaledFirst, a.Operation, a.Keys[0], "arrival %d came under a key that the journal does not have", a.Number)
		}
	}
	return c.found, nil
}

type checker struct {
	ledger  *Ledger
	effects map[string]int  // by key, as it was sent
	known   map[string]bool // keys of the journal
	found   []Violation
}

func (c *checker) add(r Rule, operation, key, detail string, args ...any) {
	c.found = append(c.found, Violation{r, operation, key, fmt.Sprintf(detail, args...)})
}

func (c *checker) countEffects(effects []Effect, arrivals []Arrival) {
	named := map[int64]bool{} // arrivals whose operation is more than a path
	sent := map[int64]string{}
	for _, a := range arrivals {
		path, _, _ := bytes.Cut([]byte(a.URI), []byte("?"))
		named[a.Number] = a.Operation != string(path)
		if len(a.Keys) == 1 {
			sent[a.Number] = a.Keys[0]
		}
	}
	byName := map[string]int{}
	for _, e := range effects {
		key := sent[e.Arrival]
		if key != "" {
			if c.effects[key]++; c.effects[key] == 2 {
				c.add(OneEffect, e.Operation, key, "it took effect again, with arrival %d", e.Arrival)
				continue
			}
		}
		if named[e.Arrival] {
			if byName[e.Operation]++; byName[e.Operation] == 2 {
				c.add(OneEffect, e.Operation, "", "it took effect under more than one key, or under none, again with arrival %d", e.Arrival)
			}
		}
	}
}

func (c *checker) compareRequests(arrivals []Arrival) {
	first := map[string]Arrival{}
	for _, a := range arrivals {
		if len(a.Keys) != 1 {
			continue
		}
		was, again := first[a.Keys[0]]
		switch {
		case !again:
			first[a.Keys[0]] = a
		case was.Method != a.Method || was.URI != a.URI || !bytes.Equal(was.Body, a.Body):
			c.add(OneRequest, a.Operation, a.Keys[0], "arrivals %d and %d differ", was.Number, a.Number)
		}
	}
}

// row looks at one row of the journal.
func (c *checker) row(operation, key, state string, status int, body []byte) error {
	c.known[key] = true
	c.known[`"`+key+`"`] = true // as a quoted header has it
	effects := c.effects[key] + c.effects[`"`+key+`"`]
	switch state {
	case "succeeded":
		if effects == 0 && status != 0 && status < 300 {
			c.add(TrueSuccess, operation, key, "recorded as succeeded, and it took no effect")
		}
		stored, ok, err := c.ledger.answerOf(key)
		if err != nil {
			return err
		}
		if ok && body != nil && status == stored.status && !bytes.Equal(body, stored.body) {
			c.add(TrueSuccess, operation, key, "the recorded answer is not the one that was given")
		}
	case "rejected", "withdrawn":
		if effects > 0 {
			c.add(TrueFailure, operation, key, "recorded as %s, and it took effect", state)
		}
	}
	return nil
}

const sqlAnswerOf = `SELECT status, body FROM claim WHERE key = ? AND state = 'done'`

// answerOf is the answer that is stored under a key.
func (l *Ledger) answerOf(key string) (out answer, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.row(sqlAnswerOf, []any{key}, &out.status, &out.body)
	if errors.Is(err, sql.ErrNoRows) {
		return answer{}, false, nil
	}
	return out, err == nil, wrap("read ledger", err)
}
