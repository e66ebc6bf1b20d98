// Command bench measures every figure of the design as a ratio of things that are
// run side by side, in turn, in the same process:
//
//	go run ./bench            # all rows, about ten minutes
//	go run ./bench -rows naive,syncs -rounds 7
//
// Each row prints what was measured, the median over the rounds, their spread,
// and the figure that must be reached. Absolute times say little on a machine that
// others use; the ratios of one run do. docs/performance.md has the last table,
// and how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"
)

// row is one figure, or a few that are measured together.
type row struct {
	name    string
	measure func(*run) error
}

var rows = []row{
	{"bare", (*run).againstBare},
	{"naive", (*run).againstNaive},
	{"slow", (*run).onASlowDisk},
	{"added", (*run).addedLatency},
	{"intents", (*run).intentsAlone},
	{"syncs", (*run).syncsPerOperation},
	{"get", (*run).unjournaled},
	{"first", (*run).firstByte},
	{"allocs", (*run).addedAllocations},
	{"growth", (*run).growth},
	{"worst", (*run).worstCommit},
	{"fair", (*run).fairness},
	{"bytes", (*run).bytesPerOperation},
	{"memory", (*run).memory},
}

// run is one run of the command.
type run struct {
	ctx    context.Context
	dir    string // on the disk to be measured
	rounds int
	round  time.Duration
	rows   int // of the large journal
	missed int
}

func main() {
	if os.Getenv("IDEM_BENCH_SERVER") != "" {
		serve()
		return
	}
	if path := os.Getenv("IDEM_BENCH_WRITER"); path != "" {
		fmt.Fprintln(os.Stderr, "bench: writer:", write(path))
		os.Exit(1)
	}
	r := &run{}
	var names, dir string
	flag.StringVar(&names, "rows", "", "rows to measure, separated by commas: "+rowNames()+" (all if empty)")
	flag.IntVar(&r.rounds, "rounds", 5, "rounds of each row")
	flag.DurationVar(&r.round, "round", time.Second, "time of each thing in a round")
	flag.IntVar(&r.rows, "large", 1_000_000, "rows of the large journal")
	flag.StringVar(&dir, "dir", "", "where the journals are made (a temporary folder if empty)")
	flag.Parse()
	var stop context.CancelFunc
	r.ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.all(names, dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func rowNames() string {
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.name
	}
	return strings.Join(names, ",")
}

func (r *run) all(names, dir string) error {
	temp, err := os.MkdirTemp(dir, "idem-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	r.dir = temp
	fmt.Printf("%s/%s, %d CPUs, %s, %d rounds of %v\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), r.rounds, r.round)
	fmt.Printf("%-66s %10s %19s %10s\n", "figure", "median", "spread", "must")
	wanted := strings.FieldsFunc(names, func(c rune) bool { return c == ',' })
	for _, name := range wanted {
		if !slices.ContainsFunc(rows, func(row row) bool { return row.name == name }) {
			return fmt.Errorf("no row %q: there are %s", name, rowNames())
		}
	}
	for _, row := range rows {
		if len(wanted) > 0 && !slices.Contains(wanted, row.name) {
			continue
		}
		if err := row.measure(r); err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		if r.ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	fmt.Printf("\n%d figures missed\n", r.missed)
	return nil
}

// report prints a figure. most is a bound from above; else the figure is one from
// below. Zero means that there is no bound.
func (r *run) report(what string, values []float64, unit string, bound float64, most bool) {
	median, low, high := spread(values)
	sign, missed := ">=", median < bound
	if most {
		sign, missed = "<=", median > bound
	}
	must := ""
	if bound != 0 {
		must = fmt.Sprintf("%s %.4g", sign, bound)
		if missed {
			must += "  MISSED"
			r.missed++
		}
	}
	fmt.Printf("%-66s %7.4g %-3s %8.4g - %8.4g  %s\n", what, median, unit, low, high, must)
}

func spread(values []float64) (median, low, high float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]
}
