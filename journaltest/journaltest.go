// Package journaltest holds an in-memory [idem.Journal] for unit tests, [New],
// and the exam that every Journal passes, [Run].
//
// # Testing code that uses idem
//
// Give the transport a journal in memory, and a base that plays the provider:
//
//	journal := journaltest.New()
//	defer journal.Close()
//	client := idem.NewClient(&idem.Transport{Journal: journal, Base: provider, Contracts: api})
//
// Inside a testing/synctest bubble the waits between attempts cost no time. The
// example below is a whole test.
//
// # Examining a journal of your own
//
//	func TestJournal(t *testing.T) {
//		journaltest.Run(t, func(t *testing.T) journaltest.Store {
//			db := newDatabase(t)
//			return journaltest.Store{
//				Open: func() (idem.Journal, error) { return mypostgres.Open(db) },
//				Kill: func(j idem.Journal) { j.(*mypostgres.Journal).Sever() },
//			}
//		})
//	}
//
// Each subtest is one rule, and its name says it. Kill is what makes the exam
// worth most: what a journal does about the dead is where it protects.
package journaltest

import (
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem"
)

// Store is one journal store, new and empty, as the exam uses it.
type Store struct {
	// Open opens another handle on the store. Each one is an owner of its own.
	// The exam closes what it has opened, except what it has killed.
	Open func() (idem.Journal, error)
	// Kill makes a handle that Open has returned die as the end of its process
	// would: without Close, with what it owns still in its name, and with what
	// it posted before its last durable write in the store. The exam does not
	// use the handle afterwards; freeing what it holds is Kill's affair. nil
	// means that this cannot be had, and the rules about death are not examined.
	Kill func(idem.Journal)
}

// Run examines a journal: every rule that the comments of [idem.Journal] state,
// each in a subtest with a store of its own from newStore. A store may leave
// its clean-up to t.Cleanup: the handles are closed before that runs.
//
// It needs nothing but the interface, so that it fits any Journal. It does not
// prove that what is durable survives a power cut.
func Run(t *testing.T, newStore func(t *testing.T) Store) {
	var left []string
	for _, g := range groups {
		if g.death && newStore(t).Kill == nil {
			for _, r := range g.rules {
				left = append(left, r.name)
			}
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			for _, r := range g.rules {
				t.Run(r.name, func(t *testing.T) { r.examine(newExam(t, newStore(t))) })
			}
		})
	}
	if len(left) > 0 {
		t.Logf("Store.Kill is nil, so these %d rules about death were not examined:\n\t%s", len(left), strings.Join(left, "\n\t"))
	}
}

// rule is one demand on a journal.
type rule struct {
	name  string
	check func(*exam)
}

// examine makes a panic of the journal the failure of one rule, so that the
// others are examined.
func (r rule) examine(e *exam) {
	defer func() {
		if p := recover(); p != nil {
			e.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	r.check(e)
}

type group struct {
	name  string
	death bool // needs Store.Kill
	rules []rule
}

var groups = []group{
	{name: "Begin", rules: slices.Concat(beginRules, identityRules)},
	{name: "Renews", rules: renewRules},
	{name: "ClaimDue", rules: slices.Concat(dueRules, turnRules, tellRules)},
	{name: "Update", rules: slices.Concat(updateRules, callRules)},
	{name: "Reads", rules: readRules},
	{name: "Prune", rules: pruneRules},
	{name: "Values", rules: valueRules},
	{name: "Handles", rules: handleRules},
	{name: "Concurrency", rules: raceRules},
	{name: "Death", death: true, rules: slices.Concat(deathRules, turnOfTheDeadRules, tellForTheDeadRules)},
}
