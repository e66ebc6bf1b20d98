package main

import (
	"fmt"
	"io"

	"github.com/idem-go/idem"
)

const maxComplaints = 12 // shown

// print prints everything there is to say.
func (r report) print(out io.Writer, c config) {
	told := 0
	for _, n := range r.told {
		told += n
	}
	for _, line := range []struct {
		what string
		n    int
	}{
		{"kills at a random moment", r.kills[stopNowhere]},
		{"kills between an order's row and its Prepare", r.kills[stopPlacing]},
		{"kills between OnSettled's UPDATE and its nil", r.kills[stopSettling]},
		{"requests at the provider", len(r.books.arrivals)},
		{"calls of OnSettled", told},
	} {
		fmt.Fprintf(out, "  %-46s %4d\n", line.what, line.n)
	}
	r.table(out)
	if len(r.wrong) == 0 {
		fmt.Fprintf(out, "\nok: %d orders, each settled once; shop, journal and provider agree (%.1f s)\n", c.orders, r.took.Seconds())
		return
	}
	fmt.Fprintln(out, "\nFAILED:")
	for i, text := range r.wrong {
		if i == maxComplaints {
			fmt.Fprintf(out, "  and %d more\n", len(r.wrong)-i)
			break
		}
		fmt.Fprintln(out, " ", text)
	}
}

// table counts the orders, as each side has them.
func (r report) table(out io.Writer) {
	mine, journal := map[string]int{}, map[idem.State]int{}
	for _, row := range r.books.rows {
		mine[row.state]++
	}
	open := 0
	for _, in := range r.books.intents {
		journal[in.State]++
		if !in.State.Final() {
			open++
		}
	}
	orders := map[string]bool{} // with a charge
	for _, e := range r.books.effects {
		orders[e.Operation] = true
	}
	fmt.Fprintf(out, "\n  %-12s %6s %8s %9s\n", "", "shop", "journal", "provider")
	fmt.Fprintf(out, "  %-12s %6d %8d %9d\n", "paid", mine[statePaid], journal[idem.StateSucceeded], len(orders))
	fmt.Fprintf(out, "  %-12s %6d %8d\n", "refused", mine[stateRefused], journal[idem.StateRejected])
	fmt.Fprintf(out, "  %-12s %6d %8d\n", "still open", mine[stateOpen], open)
	fmt.Fprintf(out, "  %-12s %6s %8s %9d\n", "paid twice", "", "", len(r.books.effects)-len(orders))
}
