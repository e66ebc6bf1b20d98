// Checkout charges the same orders twice, through a worker process that is
// killed again and again, at a provider that loses requests and answers: once
// with the usual retry wrapper, once with idem. Then it counts the charges.
//
//	go run ./examples/checkout
//
// It needs nothing but a loopback port and a temporary directory, and exits
// with 0 only if idem charged every order exactly once and its journal agrees
// with the provider's books.
//
// The part to copy from is worker.go. naive.go is the part not to copy.
// provider.go is the other side and its faults, life.go starts and kills the
// workers, check.go compares the books, report.go prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/idem-go/idem/faultinjection"
)

// config is what a run of the whole job depends on.
type config struct {
	orders       int
	seed         uint64        // of faults and kills
	kills        int           // the most in each of the two runs
	minLife      time.Duration // how long a worker lives before it is killed
	maxLife      time.Duration
	seedRequests int           // of the seed experiment
	limit        time.Duration // for everything
	keep         bool          // the temporary directory
}

// report is everything that is printed and checked.
type report struct {
	naive, idem    tally
	books          books // of the idem run
	broken, atomic faultinjection.SeedResult
	disagreements  []string // empty: all is well
}

// tally is one run, as the provider's ledger has it.
type tally struct {
	kills      int // that found the worker alive
	arrivals   int
	charges    int
	duplicates int
	lost       int // orders without a charge
	took       time.Duration
}

func main() {
	if isWorker() { // the parent started this process to do the work
		os.Exit(workerMain())
	}
	c := config{
		orders: 40, kills: 40, minLife: 100 * time.Millisecond, maxLife: 350 * time.Millisecond,
		seedRequests: 1000, limit: time.Minute,
	}
	flag.Uint64Var(&c.seed, "seed", 17, "seed of the faults and the kills")
	flag.BoolVar(&c.keep, "keep", false, "keep the temporary directory and print its path")
	flag.Parse()

	// Ctrl-C ends the run in order: the worker is killed, the files removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r, err := run(ctx, c, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "checkout:", err)
	}
	if err != nil || len(r.disagreements) > 0 {
		os.Exit(1)
	}
}

// run is the whole story.
func run(ctx context.Context, c config, out io.Writer) (r report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("not done after %v", c.limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "checkout-")
	if err != nil {
		return r, err
	}
	defer func() {
		if c.keep {
			fmt.Fprintln(out, "kept:", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()

	fmt.Fprintf(out, "%d orders, charged twice under the same faults, seed %d\n", c.orders, c.seed)
	if r.naive, err = charge(ctx, c, modeNaive, dir, out); err != nil {
		return r, fmt.Errorf("naive run: %w", err)
	}
	if r.idem, err = charge(ctx, c, modeIdem, dir, out); err != nil {
		return r, fmt.Errorf("idem run: %w", err)
	}
	if r.books, err = readBooks(ctx, filepath.Join(dir, modeIdem)); err != nil {
		return r, fmt.Errorf("read the books: %w", err)
	}
	if r.broken, err = faultinjection.Seed(ctx, c.seedRequests, faultinjection.CheckThenInsert); err != nil {
		return r, err
	}
	if r.atomic, err = faultinjection.Seed(ctx, c.seedRequests, 0); err != nil {
		return r, err
	}
	r.disagreements = check(c, r)
	r.print(out, c)
	return r, nil
}

// charge is one run: a provider with a ledger of its own, and a worker that is
// killed and started until every order is settled.
func charge(ctx context.Context, c config, mode, dir string, out io.Writer) (t tally, err error) {
	start := time.Now()
	dir = filepath.Join(dir, mode)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return t, err
	}
	p, err := startProvider(dir, c.seed)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, p.close()) }()

	l := lives{c: c, work: assignment{Mode: mode, Dir: dir, URL: p.running.URL, Orders: c.orders}, provider: p}
	l.progress = progress{out: out, mode: mode, live: isTerminal(out), start: start}
	if err := l.all(ctx); err != nil {
		return t, err
	}
	if err := p.running.Close(); err != nil { // nothing more happens from here on
		return t, err
	}
	counts, err := p.ledger.Counts()
	return tally{
		kills:      l.kills,
		arrivals:   counts.Arrivals,
		charges:    counts.Effects,
		duplicates: counts.Duplicates,
		lost:       c.orders - counts.Operations,
		took:       time.Since(start),
	}, err
}
