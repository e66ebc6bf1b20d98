package model

import "strings"

// Rules is a set of invariants.
type Rules uint32

// The invariants. R1 to R13 hold for the journal, the sends and what is
// recorded; P5, P6 and P9 are the promises whose breach a caller or a customer
// feels.
const (
	R1  Rules = 1 << iota // one key per operation, minted once
	R2                    // key and request are on stable storage before a byte leaves
	R3                    // at most one effect
	R4                    // what Begin acknowledged stays listed
	R5                    // every attempt has the same bytes
	R6                    // final only after the whole answer
	R7                    // a final state never changes
	R8                    // no transport error, 409, 429 or 503 is an outcome
	R9                    // a stored 500 is held, and never leads to a new key
	R10                   // nothing in doubt is let through past the stop
	R11                   // past the stop an open attempt is held, and what is held is not sent
	R12                   // one living owner; a lost claim is noticed before a write
	R13                   // from every state some continuation settles or holds
	P5                    // no effect without a row, once nobody is at it
	P6                    // nothing is called not executed while a request may be executed
	P9                    // told "not sent" or "rejected": nothing takes effect; told "succeeded": something did
)

// All is every invariant.
const All = P9<<1 - 1

var ruleNames = [...]string{
	"R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "R13", "P5", "P6", "P9",
}

func (r Rules) String() string {
	var names []string
	for i, n := range ruleNames {
		if r&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, " ")
}

// check is what must hold in every state; the rest is looked at step by step.
func (s *state) check() (broken Rules) {
	if s.effects > 1 {
		broken |= R3
	}
	if s.acknowledged && s.file.state == absent {
		broken |= R4
	}
	if s.effects > 0 && s.file.state == absent && !s.proc[0].calling() && !s.proc[1].calling() {
		broken |= P5
	}
	if s.effects > 0 && s.toldFailed || s.effects == 0 && s.says(succeeded) {
		broken |= P9
	}
	return broken
}

// says reports whether the file, or what is posted, has the row in that state.
func (s *state) says(it uint8) bool {
	return s.file.state == it || s.proc[0].posted == it || s.proc[1].posted == it
}

// settled reports whether nothing waits to be done for the operation: R13's
// goal.
func (s *state) settled() bool {
	switch s.file.state {
	case absent, held, withdrawn, succeeded, rejected:
		return true
	}
	return false
}

// mayExecute reports whether anything has executed or still may.
func (s *state) mayExecute() bool {
	if s.effects > 0 {
		return true
	}
	for k := range maxKeys {
		if s.orphan[k] > 0 || s.runs[k] > 0 {
			return true
		}
	}
	for p := range s.proc {
		if at := s.proc[p].at; at == waiting || at == running {
			return true
		}
	}
	return false
}
