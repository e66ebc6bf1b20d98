package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// progress says while a run goes on how far it is: on a terminal in one line
// that changes, elsewhere in a new line now and then.
type progress struct {
	out   io.Writer
	mode  string
	live  bool // a terminal
	start time.Time
	said  time.Time
}

const (
	lineEvery    = 2 * time.Second // where every line stays
	maxTimeline  = 12              // attempts shown
	maxComplaint = 12              // shown
)

// show prints a line if one is due, or if it is the last of the run.
func (p *progress) show(settled, orders, kills int, arrivals int64, last bool) {
	if p.said.IsZero() {
		p.said = p.start
	}
	if !last && !p.live && time.Since(p.said) < lineEvery {
		return
	}
	p.said = time.Now()
	line := fmt.Sprintf("  %-5s %5.1f s   %*d of %d orders settled   %2d kills   %3d arrivals",
		p.mode, time.Since(p.start).Seconds(), len(fmt.Sprint(orders)), settled, orders, kills, arrivals)
	if p.live {
		line = "\r" + line
	}
	if last || !p.live {
		line += "\n"
	}
	fmt.Fprint(p.out, line)
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// print prints everything there is to say after the runs.
func (r report) print(out io.Writer, c config) {
	r.table(out, c)
	r.timeline(out)
	r.seedExperiment(out)
	if len(r.disagreements) == 0 {
		fmt.Fprintf(out, "\nok: %d of %d orders charged once by idem; its journal agrees with the provider's ledger row by row\n",
			r.idem.charges, c.orders)
		return
	}
	fmt.Fprintln(out, "\nFAILED:")
	for i, text := range r.disagreements {
		if i == maxComplaint {
			fmt.Fprintf(out, "  and %d more\n", len(r.disagreements)-i)
			break
		}
		fmt.Fprintln(out, " ", text)
	}
}

func (r report) table(out io.Writer, c config) {
	fmt.Fprintf(out, "\n%-14s %6s %6s\n", "", "naive", "idem")
	for _, row := range []struct {
		name        string
		naive, idem int
	}{
		{"orders", c.orders, c.orders},
		{"process kills", r.naive.kills, r.idem.kills},
		{"arrivals", r.naive.arrivals, r.idem.arrivals},
		{"charges", r.naive.charges, r.idem.charges},
		{"duplicates", r.naive.duplicates, r.idem.duplicates},
		{"lost", r.naive.lost, r.idem.lost},
	} {
		fmt.Fprintf(out, "%-14s %6d %6d\n", row.name, row.naive, row.idem)
	}
	fmt.Fprintf(out, "%-14s %5.1fs %5.1fs\n", "time", r.naive.took.Seconds(), r.idem.took.Seconds())
	fmt.Fprintf(out, "%d of the %d kills hit idem in the middle of an attempt\n", r.books.interrupted(), r.idem.kills)
}

// interrupted counts the attempts during which the worker died.
func (b books) interrupted() int {
	n := 0
	for _, e := range b.entries {
		for _, a := range e.attempts {
			if a.Decision == "interrupted" {
				n++
			}
		}
	}
	return n
}

// timeline prints the attempts of the order that took the most of them.
func (r report) timeline(out io.Writer) {
	var most entry
	for _, e := range r.books.entries {
		if len(e.attempts) > len(most.attempts) {
			most = e
		}
	}
	if len(most.attempts) == 0 {
		return
	}
	start := most.attempts[0].Started
	fmt.Fprintf(out, "\n%s, from the journal: %d attempts, one key, %s\n",
		most.intent.Operation, len(most.attempts), most.intent.State)
	fmt.Fprintf(out, timelineRow, "#", "at", "phase", "status", "decision", "fault at the provider", "its ledger")
	for i, a := range most.attempts {
		if hidden := len(most.attempts) - maxTimeline; hidden > 0 && i >= maxTimeline-1 && i < len(most.attempts)-1 {
			if i == maxTimeline-1 {
				fmt.Fprintf(out, "  .. %d more like these\n", hidden)
			}
			continue // the last one is shown
		}
		until := time.Time{} // the last one
		if i+1 < len(most.attempts) {
			until = most.attempts[i+1].Started
		}
		status := "-"
		if a.StatusCode != 0 {
			status = fmt.Sprint(a.StatusCode)
		}
		fault, outcome := r.books.atProvider(most.intent, a.Started, until)
		fmt.Fprintf(out, timelineRow, fmt.Sprint(a.Number), fmt.Sprint(a.Started.Sub(start).Milliseconds(), " ms"),
			a.Phase, status, a.Decision, fault, outcome)
	}
}

const timelineRow = "  %2s  %8s  %-10s  %6s  %-12s  %-21s  %s\n"

// atProvider says what the provider's ledger has of an operation between two
// instants: the planned fault, and what became of the request.
func (b books) atProvider(in idem.Intent, from, until time.Time) (fault, outcome string) {
	var faults, outcomes []string
	for _, a := range b.arrivals {
		if a.Operation+"/charge" != in.Operation || a.At.Before(from) || !until.IsZero() && !a.At.Before(until) {
			continue
		}
		faults = append(faults, cmp.Or(a.Step, "-"))
		outcomes = append(outcomes, cmp.Or(string(a.Outcome), "unfinished"))
	}
	if len(faults) == 0 {
		return "-", "never arrived"
	}
	return strings.Join(faults, ", "), strings.Join(outcomes, ", ")
}

func (r report) seedExperiment(out io.Writer) {
	fmt.Fprintf(out, "\n%d concurrent requests with one key, over loopback\n", r.broken.Requests)
	fmt.Fprintf(out, "  %-20s %5d effects\n", "check, then insert", r.broken.Effects)
	fmt.Fprintf(out, "  %-20s %5d effect\n", "atomic claim", r.atomic.Effects)
}
