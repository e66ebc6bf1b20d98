package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// tally is what one half of the story came to.
type tally struct {
	kills      int // that found the process alive
	ended      int // runs that came to their end
	arrivals   int
	effects    int
	duplicates int // effects beyond what was meant
	lost       int // effects that were meant, of runs that came to their end
	vouchers   int // pairs of vouchers, two different ones
	again      int // operations that more than one process was at
}

// count counts what is there.
func count(ctx context.Context, c config, mode, dir string, ledger *faultinjection.Ledger) (t tally, err error) {
	counts, err := ledger.Counts()
	if err != nil {
		return t, err
	}
	t.arrivals, t.effects = counts.Arrivals, counts.Effects
	all, err := ledger.Effects()
	if err != nil {
		return t, err
	}
	made := map[string]int{}
	for _, e := range all {
		made[effect(e.Operation)]++
	}
	for n := 1; n <= c.runs; n++ {
		ended, pair, err := lookAt(assignment{Dir: dir}.transcript(n))
		if err != nil {
			return t, err
		}
		for tool, want := range meant {
			got := made[fmt.Sprintf("order-%d/%s", n, tool)]
			t.duplicates += max(got-want, 0)
			if ended {
				t.lost += max(want-got, 0)
			}
		}
		if ended {
			t.ended++
		}
		if pair {
			t.vouchers++
		}
	}
	if mode != modeNaive {
		t.again, err = compare(ctx, filepath.Join(dir, journalFile), ledger)
	}
	return t, err
}

// lookAt reads a transcript: whether its run has ended, and whether the two
// vouchers are two.
func lookAt(file string) (ended, pair bool, err error) {
	t, err := openTranscript(file)
	if err != nil {
		return false, false, err
	}
	defer t.Close()
	ended = len(t.turns) == 5
	if len(t.turns) >= 4 {
		vouchers := map[string]bool{}
		for _, voucher := range t.turns[3].Results {
			vouchers[voucher] = true
		}
		pair = len(vouchers) == 2
	}
	return ended, pair, nil
}

// compare holds the journal against the provider's ledger, and counts the
// operations that more than one process was at.
func compare(ctx context.Context, file string, ledger *faultinjection.Ledger) (again int, err error) {
	journal, err := idem.Open(file, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	violations, err := ledger.Check(journal)
	if err != nil {
		return 0, err
	}
	if len(violations) > 0 {
		return 0, fmt.Errorf("journal and ledger do not agree: %v", violations)
	}
	all, err := journal.List(ctx, idem.Filter{Limit: 1000})
	if err != nil {
		return 0, err
	}
	for _, in := range all {
		attempts, err := journal.Attempts(ctx, in)
		if err != nil {
			return 0, err
		}
		for _, attempt := range attempts {
			if attempt.Decision == "interrupted" {
				again++
				break
			}
		}
	}
	return again, nil
}

// check returns everything that is not as it must be.
func check(c config, r report) (wrong []string) {
	unless := func(fine bool, format string, args ...any) {
		if !fine {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	calls := 0
	for _, n := range meant {
		calls += c.runs * n
	}
	i := r.idem
	unless(i.effects == calls && i.duplicates == 0 && i.lost == 0,
		"idem: %d effects for %d calls, %d duplicates, %d lost", i.effects, calls, i.duplicates, i.lost)
	unless(i.vouchers == c.runs, "idem: two vouchers in %d of %d runs", i.vouchers, c.runs)
	unless(i.ended == c.runs, "idem: %d of %d runs have come to their end", i.ended, c.runs)
	unless(r.naive.duplicates > 0, "naive: no duplicates, so the faults were too kind to prove anything")
	unless(r.naive.kills > 0 && i.kills > 0 && i.again > 0,
		"kills: %d and %d, %d of them in the middle of a call, so no restart was tested", r.naive.kills, i.kills, i.again)
	return wrong
}

// print says what happened.
func (r report) print(out io.Writer, c config) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(what string, naive, idem any) { fmt.Fprintf(w, "%s\t%v\t%v\t\n", what, naive, idem) }
	row("", "naive", "idem")
	row("runs", c.runs, c.runs)
	row("process kills", r.naive.kills, r.idem.kills)
	row("tool calls meant", 4*c.runs, 4*c.runs)
	row("arrivals", r.naive.arrivals, r.idem.arrivals)
	row("effects", r.naive.effects, r.idem.effects)
	row("duplicates", r.naive.duplicates, r.idem.duplicates)
	row("lost", r.naive.lost, r.idem.lost)
	_ = w.Flush() // nothing is to be done about a terminal that is gone
	fmt.Fprintf(out, "%d calls were cut by a kill, and gone on with in the next process\n", r.idem.again)
	if len(r.wrong) > 0 {
		fmt.Fprintf(out, "\nFAILED:\n  %s\n", strings.Join(r.wrong, "\n  "))
		return
	}
	fmt.Fprintf(out, "\nok: every tool call under idem had one effect, and %d pairs of equal calls had two\n", r.idem.vouchers)
}
