package model

import "fmt"

// The states of a row, as in package idem, and absent: there is no row.
const (
	absent uint8 = iota
	pending
	inFlight
	unknown
	held
	withdrawn
	succeeded
	rejected
)

var stateNames = [...]string{"no row", "pending", "in_flight", "unknown", "held", "withdrawn", "succeeded", "rejected"}

func final(state uint8) bool { return state == succeeded || state == rejected }

// Who owns a row. A process is 0 or 1; its owner is 1 or 2.
const (
	nobody  uint8 = 0
	ownerA  uint8 = 1
	ownerB  uint8 = 2
	dead    uint8 = 3 // an owner whose lock can be taken
	undying uint8 = 4 // a dead one that still counts as living: see Design.OwnerOutlivesHolder
)

// row is the journal's record of the one operation.
type row struct {
	state, owner uint8
	key          uint8 // from 1
	doubt        bool
}

// Where a process stands.
const (
	down     uint8 = iota
	idle           // no call, no resume
	looked         // see Design.BeginReadsThenInserts
	claimed        // has the row; not yet asked whether it may send
	admitted       // may send; the attempt is not yet counted
	counted        // the attempt is on record; nothing has left yet
	waiting        // the request is on its way
	running        // the server executes it
	heard          // the status line is here, the body is not
	ended          // the attempt is over, its end is not recorded
)

// How an attempt ended.
const (
	none      uint8 = iota
	silence         // no whole answer: reset, timeout, cut body, 503
	left            // the caller stopped waiting
	done            // 2xx, the first one or a replay
	refusedBy       // 4xx out of the provider's store: claimed, refused, remembered
	failedBy        // 500 that the provider's store shows to be remembered
	refused         // 4xx from in front of the store
	later           // 429, a refused connection: provably not executed
	conflict        // 409: another request with this key is being executed
)

// What a process is at.
const (
	call   uint8 = iota // a caller waits and will be told
	resume              // nobody waits; one attempt
)

// process is one of the two clients.
type process struct {
	at, role, answer uint8
	sends            uint8 // that are left
	posted           uint8 // a state that was told and is not yet in the file
	key              uint8 // of the claimed row, as read
	doubt            bool  // of the claimed row, as known here
	moved            bool  // the row was written by another one since (its Version differs)
	passed           bool  // another attempt was counted since
	lost             bool  // its lock is gone, and it does not know
	other            bool  // the call came with other bytes than the row has
}

// calling reports whether the process is at the row.
func (p *process) calling() bool { return p.at >= claimed }

// sending reports whether the process is between the check and an answer.
func (p *process) sending() bool { return p.at >= admitted && p.at <= running }

// What the server has for a key.
const (
	nothing   uint8 = iota
	executing       // claimed
	didIt           // the effect and its answer, stored together
	failedIt        // a 500 and its answer
	refusedIt       // a 4xx and its answer
)

// maxKeys bounds what a wrong design mints; the intended one mints one.
const maxKeys = 3

// The age of the key, in three steps.
const (
	young     uint8 = iota
	stopped         // past the client's stop, inside the margin
	forgotten       // past the provider's retention
)

// state is all there is. It is comparable, and the key of the explored set.
type state struct {
	file, disk row // what a process reads, and what a power cut leaves
	proc       [2]process

	memory [maxKeys]uint8 // of the server, by key
	orphan [maxKeys]uint8 // requests on their way that nobody waits for
	runs   [maxKeys]uint8 // executions that nobody waits for

	effects, minted uint8
	age             uint8
	kills, cuts     uint8 // that are left
	locks           uint8 // that can be lost yet
	acknowledged    bool  // a Begin has returned
	toldFailed      bool  // somebody was told that nothing was or will be executed, and no call has begun since
}

func (s *state) String() string {
	text := "row " + stateNames[s.file.state]
	if s.file.state == absent {
		text = "no row"
	}
	if s.file.doubt {
		text += ", in doubt"
	}
	switch s.file.owner {
	case ownerA, ownerB:
		text += ", owner " + name(int(s.file.owner-ownerA))
	case dead:
		text += ", owner dead"
	case undying:
		text += ", owner dead but thought alive"
	}
	if s.disk.state != s.file.state {
		text += fmt.Sprintf(" (on disk: %s)", stateNames[s.disk.state])
	}
	text += fmt.Sprintf("; effects %d", s.effects)
	return text + [...]string{"", "; key past the stop", "; key forgotten"}[s.age]
}

func name(p int) string { return [...]string{"A", "B"}[p] }

func (b Bounds) start() state {
	s := state{kills: b.Kills, cuts: b.Cuts, locks: b.Locks}
	for p := range s.proc {
		s.proc[p] = process{at: idle, sends: b.Sends}
	}
	return s
}
