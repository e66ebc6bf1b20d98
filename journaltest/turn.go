package journaltest

import (
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// drained claims page by page until nothing is due.
func (e *exam) drained(j idem.Journal, f idem.Filter) (names []string) {
	e.Helper()
	for {
		due, _ := e.claimDue(j, e.now, f)
		if len(due) == 0 {
			return names
		}
		require.LessOrEqual(e, len(due), f.Limit)
		names = append(names, operations(due)...)
	}
}

// again makes an attempt of a row that is nobody's, and leaves the row unknown.
func (e *exam) again(j idem.Journal, operation string, changes ...func(*idem.Intent)) {
	e.Helper()
	next := e.begin(j, e.sending(operation))
	next.State, next.Attempts = idem.StateInFlight, next.Attempts+1
	next = e.ended(e.update(j, next, nil), idem.StateUnknown)
	for _, change := range changes {
		change(&next)
	}
	e.update(j, next, nil)
}

func died(deaths int) func(*idem.Intent) { return func(in *idem.Intent) { in.Deaths = deaths } }

// numbered tells apart the rows of several rounds.
func numbered(n int, names ...string) (all []string) {
	for _, name := range names {
		all = append(all, name+" "+strconv.Itoa(n))
	}
	return all
}

var turnRules = []rule{
	{"rows come in the order in which they are due", func(e *exam) {
		j := e.open()
		for _, seconds := range []int{-20, -40, -10, -30} {
			e.left(j, strconv.Itoa(seconds), idem.StateUnknown, dueAt(e.now.Add(time.Duration(seconds)*time.Second)))
		}
		e.left(j, "at once", idem.StatePending)
		claimed, _ := e.claimDue(j, e.now, ofMain)
		require.Equal(e, []string{"at once", "-40", "-30", "-20", "-10"}, operations(claimed))
	}},
	{"rows without deaths come first", func(e *exam) {
		j := e.open()
		e.left(j, "died", idem.StateUnknown, died(1))
		e.left(j, "cut", idem.StateInFlight) // a death, once it is claimed
		e.left(j, "late", idem.StateUnknown, dueAt(e.now))
		e.left(j, "early", idem.StatePending)
		first, _ := e.claimDue(j, e.now, idem.Filter{Name: "main", Limit: 2})
		require.Equal(e, []string{"early", "late"}, operations(first))
		last, _ := e.claimDue(j, e.now, ofMain)
		require.ElementsMatch(e, []string{"died", "cut"}, operations(last))
	}},
	{"those with deaths come by deaths, then by the instant their last attempt began", func(e *exam) {
		j := e.open()
		for _, limit := range []int{1, 2, 100} { // whatever the limit
			name := func(s string) string { return numbered(limit, s)[0] }
			e.left(j, name("died twice"), idem.StateUnknown, died(2), dueAt(e.now.Add(-time.Hour)))
			e.left(j, name("began last"), idem.StateUnknown, died(1))
			cut := e.begin(j, e.sending(name("cut first")))
			e.left(j, name("cut, died before"), idem.StateInFlight, died(1))
			e.left(j, name("began second"), idem.StateUnknown, died(1), dueAt(e.now.Add(-time.Minute)))
			e.left(j, name("none"), idem.StateUnknown, dueAt(e.now))
			e.again(j, name("began last"), died(1))
			e.update(j, e.ended(cut, idem.StateInFlight), nil) // no attempt begins by it

			got := e.drained(j, idem.Filter{Name: "main", Limit: limit})
			require.Equal(e, numbered(limit, "none", "cut first", "began second", "began last", "died twice", "cut, died before"), got)
		}
	}},
	{"what becomes held has its turn, too, and counts against the limit", func(e *exam) {
		j := e.open()
		for _, operation := range []string{"held", "cut", "held as well"} {
			e.left(j, operation, idem.StateInFlight, func(in *idem.Intent) {
				if operation != "cut" {
					doomed(in)
				}
			})
		}
		e.left(j, "none", idem.StateUnknown)
		claimed, _ := e.claimDue(j, e.now, idem.Filter{Name: "main", Limit: 2})
		require.Equal(e, []string{"none", "held"}, operations(claimed))
		claimed, _ = e.claimDue(j, e.now, idem.Filter{Name: "main", Limit: 1})
		require.Equal(e, []string{"cut"}, operations(claimed))
		claimed, _ = e.claimDue(j, e.now, ofMain)
		require.Equal(e, []string{"held as well"}, operations(claimed))
	}},
}

var turnOfTheDeadRules = []rule{
	{"rows without deaths come first, also those of the dead", func(e *exam) {
		j, other := e.open(), e.open()
		e.begin(j, e.sending("cut"))
		e.begin(j, e.waiting("waiting"))
		e.left(other, "unknown", idem.StateUnknown)
		e.kill(j)
		claimed, _ := e.claimDue(other, e.now, idem.Filter{Name: "main", Limit: 2})
		require.ElementsMatch(e, []string{"waiting", "unknown"}, operations(claimed))
		claimed, _ = e.claimDue(other, e.now, ofMain)
		require.Equal(e, []string{"cut"}, operations(claimed))
	}},
	{"the order is over all the dead, and the limit cuts it", func(e *exam) {
		survivor := e.open()
		for _, limit := range []int{1, 3} {
			a, b := e.open(), e.open()
			for i, j := range []idem.Journal{a, b, a, survivor, b} {
				in := e.begin(j, e.sending(numbered(limit, strconv.Itoa(i))[0]))
				if j == survivor {
					e.update(j, e.ended(in, idem.StateInFlight), nil)
				}
			}
			for i, j := range []idem.Journal{a, b, a} {
				late := e.waiting(numbered(limit, "waiting "+strconv.Itoa(i))[0])
				late.Due = e.now.Add(time.Duration(i-3) * time.Second)
				e.begin(j, late)
			}
			e.kill(a)
			e.kill(b)
			got := e.drained(survivor, idem.Filter{Name: "main", Limit: limit})
			require.Equal(e, numbered(limit, "waiting 0", "waiting 1", "waiting 2", "0", "1", "2", "3", "4"), got)
		}
	}},
}
