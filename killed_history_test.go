package idem_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// checkHistory says what is wrong with a history: whether an operation has two
// keys, two owners or a sender that does not own it, or whether no order of what
// was done, each deed between its begin and its end, is that of a correct
// journal.
func checkHistory(all []deed) error {
	operations := map[string][]deed{}
	for _, d := range all {
		operations[d.Operation] = append(operations[d.Operation], d)
	}
	for name, deeds := range operations {
		if err := checkOwners(deeds); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		steps, err := stepsOf(deeds)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !linearizable(steps, make([]bool, len(steps)), row{owner: nobody}, map[string]bool{}) {
			return fmt.Errorf("%s: in no order of %+v a journal did this", name, steps)
		}
	}
	return nil
}

const nobody = -1

// checkOwners looks at the time in which a process is sure to own the operation:
// from the end of the begin that claimed it to the begin of the update that
// gives it up.
func checkOwners(deeds []deed) error {
	owner, key := nobody, ""
	for _, d := range deeds {
		if d.Key != "" {
			if key == "" {
				key = d.Key
			}
			if d.Key != key {
				return fmt.Errorf("process %d has key %s, and %s was before", d.Process, d.Key, key)
			}
		}
		switch {
		case d.What == begins && d.Ends && d.Claimed:
			if owner != nobody {
				return fmt.Errorf("process %d has claimed it, and %d has it", d.Process, owner)
			}
			owner = d.Process
		case d.What == sends, d.What == updates && !d.Ends:
			if owner != d.Process {
				return fmt.Errorf("a %s of process %d, and %d has it", d.What, d.Process, owner)
			}
			if d.What == updates && !d.Claimed {
				owner = nobody
			}
		}
	}
	if owner != nobody {
		return fmt.Errorf("process %d has it in the end", owner)
	}
	return nil
}

// step is a begin or an update as a whole, from one line to another one.
type step struct {
	deed
	start, end int
}

func stepsOf(deeds []deed) ([]step, error) {
	type id struct {
		process int
		id      int64
	}
	var steps []step
	open := map[id]int{}
	posted := nobody // who made it final for itself, and not yet for the others
	for at, d := range deeds {
		if d.Posted && d.State.Final() {
			posted = d.Process
		}
		switch i, found := open[id{d.Process, d.ID}]; {
		case d.What != begins && d.What != updates:
		case !d.Ends:
			open[id{d.Process, d.ID}] = len(steps)
			steps = append(steps, step{deed: d, start: at, end: math.MaxInt})
		case !found:
			return nil, fmt.Errorf("an end without a begin: %+v", d)
		case d.Text != "":
			return nil, fmt.Errorf("%+v", d)
		default:
			steps[i].deed = d
			if !d.Posted {
				steps[i].end = at
			}
			delete(open, id{d.Process, d.ID})
		}
	}
	steps = slices.DeleteFunc(steps, func(s step) bool { // what it sees says nothing about what the others do
		return s.What == begins && !s.Claimed && s.State.Final() && s.Process == posted
	})
	if len(open) > 0 {
		return nil, fmt.Errorf("%d begins without an end", len(open))
	}
	return steps, nil
}

// row is an operation in a correct journal.
type row struct {
	owner int
	final bool
}

// fits tells whether a step can happen to the row, and what it makes of it.
func (s step) fits(r row) (row, bool) {
	switch {
	case s.What == begins && s.Claimed:
		return row{owner: s.Process}, r == row{owner: nobody}
	case s.What == begins && s.State.Final():
		return r, r.final
	case s.What == begins:
		return r, s.Owned && r.owner != nobody && r.owner != s.Process
	case s.Claimed:
		return r, r.owner == s.Process
	default:
		return row{owner: nobody, final: s.State.Final()}, r.owner == s.Process
	}
}

// linearizable looks for an order in which each step fits and none comes before
// one that had ended when it began. failed has what was tried in vain.
func linearizable(steps []step, done []bool, now row, failed map[string]bool) bool {
	done = slices.Clone(done)
	for again := true; again; { // what changes nothing is best taken at once
		again = false
		for _, i := range candidates(steps, done) {
			if next, ok := steps[i].fits(now); ok && next == now {
				done[i], again = true, true
			}
		}
	}
	left := false
	for i, s := range steps {
		left = left || !done[i] && s.end < math.MaxInt
	}
	if !left {
		return true
	}
	tried := fmt.Sprint(done, now)
	if failed[tried] {
		return false
	}
	failed[tried] = true
	for _, i := range candidates(steps, done) {
		if next, ok := steps[i].fits(now); ok {
			done[i] = true
			if linearizable(steps, done, next, failed) {
				return true
			}
			done[i] = false
		}
	}
	return false
}

// candidates are the steps that may come next.
func candidates(steps []step, done []bool) (next []int) {
	first := math.MaxInt
	for i, s := range steps {
		if !done[i] {
			first = min(first, s.end)
		}
	}
	for i, s := range steps {
		if !done[i] && s.start < first {
			next = append(next, i)
		}
	}
	return next
}

// kindOf sorts deeds, to count them.
func kindOf(d deed) string {
	switch {
	case !d.Ends, d.What == sends, d.What == updates && d.Text == "":
		return d.What
	case d.What == answers:
		return answers
	case d.What == updates:
		return "update: error"
	case d.Claimed:
		return "begin: claimed"
	case d.State.Final():
		return "begin: final"
	case d.Owned:
		return "begin: owned"
	default:
		return "begin: " + string(d.State)
	}
}

// tamperings change a history into one that must be refused; nil means that
// there is no place for it.
var tamperings = map[string]func(*rand.Rand, []deed) []deed{
	"what another one has is claimed too": func(random *rand.Rand, all []deed) []deed {
		return changeOne(random, all, "begin: owned", func(d *deed) { d.Claimed, d.Owned = true, false })
	},
	"what is final is claimed": func(random *rand.Rand, all []deed) []deed {
		return changeOne(random, all, "begin: final", func(d *deed) { d.Claimed, d.State = true, idem.StateUnknown })
	},
	"a claim is denied": func(random *rand.Rand, all []deed) []deed {
		return changeOne(random, all, "begin: claimed", func(d *deed) { d.Claimed, d.Owned = false, true })
	},
	"another key": func(random *rand.Rand, all []deed) []deed {
		return changeOne(random, all, "begin: owned", func(d *deed) { d.Key = "another" })
	},
	"an error": func(random *rand.Rand, all []deed) []deed {
		return changeOne(random, all, "begin: final", func(d *deed) { d.Text = "error: another" })
	},
	"somebody has it whom nobody made the owner": func(random *rand.Rand, all []deed) []deed {
		type id struct {
			process int
			id      int64
		}
		begun := map[id]bool{}           // when others had found the operation final
		final := map[string]int{}        // by whom it was settled
		seen := map[string]map[int]int{} // who has found it final
		return changeWhere(random, all, func(d deed) bool {
			if seen[d.Operation] == nil {
				seen[d.Operation] = map[int]int{}
			}
			switch {
			case d.What == begins && !d.Ends:
				others := len(seen[d.Operation]) - min(1, seen[d.Operation][final[d.Operation]])
				begun[id{d.Process, d.ID}] = others > 0
			case d.What == updates && d.State.Final():
				final[d.Operation] = d.Process
			case kindOf(d) == "begin: final":
				seen[d.Operation][d.Process]++
				return begun[id{d.Process, d.ID}] && d.Process != final[d.Operation]
			}
			return false
		}, func(d *deed) { d.State, d.Owned = idem.StateInFlight, true })
	},
}

func changeOne(random *rand.Rand, all []deed, kind string, change func(*deed)) []deed {
	return changeWhere(random, all, func(d deed) bool { return kindOf(d) == kind }, change)
}

func changeWhere(random *rand.Rand, all []deed, where func(deed) bool, change func(*deed)) []deed {
	var places []int
	for i, d := range all {
		if where(d) {
			places = append(places, i)
		}
	}
	if len(places) == 0 {
		return nil
	}
	changed := slices.Clone(all)
	change(&changed[places[random.IntN(len(places))]])
	return changed
}

// The checker itself, on histories of a few lines.
func TestCheckHistory(t *testing.T) {
	const begin, end = false, true
	line := func(process int, what string, ends bool, more ...func(*deed)) deed {
		d := deed{Process: process, ID: 1, What: what, Ends: ends, Operation: "a"}
		if what == updates {
			d.ID = 2
		}
		for _, change := range more {
			change(&d)
		}
		return d
	}
	claims := func(d *deed) { d.Claimed, d.Key, d.State = true, "k", idem.StateInFlight }
	owned := func(d *deed) { d.Owned, d.Key, d.State = true, "k", idem.StateInFlight }
	final := func(d *deed) { d.Key, d.State = "k", idem.StateSucceeded }
	unknown := func(d *deed) { d.Key, d.State = "k", idem.StateUnknown }
	posted := func(d *deed) { d.Posted = true }
	for _, test := range []struct {
		name  string
		right bool
		deeds []deed
	}{
		{"one after the other", true, []deed{
			line(1, begins, begin), line(1, begins, end, claims), line(1, updates, begin, final), line(1, updates, end, final),
			line(2, begins, begin), line(2, begins, end, final),
		}},
		{"owned while it is", true, []deed{
			line(1, begins, begin), line(2, begins, begin), line(2, begins, end, owned), line(1, begins, end, claims),
			line(1, updates, begin, final), line(1, updates, end, final),
		}},
		{"owned before anybody had it", false, []deed{
			line(2, begins, begin), line(2, begins, end, owned), line(1, begins, begin), line(1, begins, end, claims),
			line(1, updates, begin, final), line(1, updates, end, final),
		}},
		{"owned when it was final", false, []deed{
			line(1, begins, begin), line(1, begins, end, claims), line(1, updates, begin, final), line(1, updates, end, final),
			line(2, begins, begin), line(2, begins, end, owned),
		}},
		{"owned when the end was posted", true, []deed{
			line(1, begins, begin), line(1, begins, end, claims), line(1, updates, begin, final, posted), line(1, updates, end, final, posted),
			line(2, begins, begin), line(2, begins, end, owned),
		}},
		{"final for the one who posted it, and owned for another one", true, []deed{
			line(1, begins, begin), line(1, begins, end, claims), line(1, updates, begin, final, posted), line(1, updates, end, final, posted),
			line(1, begins, begin), line(1, begins, end, final), line(2, begins, begin), line(2, begins, end, owned),
		}},
		{"final for another one, and owned for a third one", false, []deed{
			line(1, begins, begin), line(1, begins, end, claims), line(1, updates, begin, final, posted), line(1, updates, end, final, posted),
			line(2, begins, begin), line(2, begins, end, final), line(3, begins, begin), line(3, begins, end, owned),
		}},
		{"final before it was", false, []deed{
			line(1, begins, begin), line(1, begins, end, claims), line(2, begins, begin), line(2, begins, end, final),
			line(1, updates, begin, final), line(1, updates, end, final),
		}},
		{"taken over", true, []deed{
			line(1, begins, begin), line(2, begins, begin), line(1, begins, end, claims), line(1, updates, begin, unknown), line(1, updates, end, unknown),
			line(2, begins, end, claims), line(2, updates, begin, final), line(2, updates, end, final),
		}},
		{"two owners", false, []deed{
			line(1, begins, begin), line(2, begins, begin), line(1, begins, end, claims), line(2, begins, end, claims),
			line(1, updates, begin, unknown), line(1, updates, end, unknown), line(2, updates, begin, final), line(2, updates, end, final),
		}},
		{"a send of one who has it not", false, []deed{line(1, sends, begin), line(1, sends, end)}},
		{"a claim that stays", false, []deed{line(1, begins, begin), line(1, begins, end, claims)}},
		{"an end that is missing", false, []deed{line(1, begins, begin)}},
	} {
		if err := checkHistory(test.deeds); test.right {
			require.NoError(t, err, test.name)
		} else {
			require.Error(t, err, test.name)
		}
	}
}
