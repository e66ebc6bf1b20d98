// Outbox runs a shop with a database of its own, whose process is killed again
// and again: while it works, after it has written down an order and before the
// charge is in the journal, and after it has written down a settlement and
// before it could say so. Then it compares the shop's database, the journal and
// the provider's books.
//
//	go run ./examples/outbox
//
// It needs nothing but a loopback port and a temporary directory, and exits
// with 0 only if every order was settled exactly once and all three agree.
//
// The part to copy from is app.go: the shop. worker.go runs it in a process and
// stops it at bad moments, life.go starts and kills that process, provider.go is
// the other side and its faults, check.go compares, report.go prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	shopFile    = "shop.db"    // the application's own
	journalFile = "journal.db" // idem's
	ledgerFile  = "ledger.db"  // the provider's
)

// config is what a run depends on.
type config struct {
	orders  int
	seed    uint64        // of faults and kills
	kills   int           // the most
	minLife time.Duration // how long a process lives before it is killed
	maxLife time.Duration
	limit   time.Duration // for everything
}

// report is everything that is printed and checked.
type report struct {
	kills map[string]int // by moment
	told  map[string]int // calls of OnSettled, by order
	books books
	took  time.Duration
	wrong []string // empty: all is well
}

func main() {
	if isWorker() { // the parent started this process to be the shop
		os.Exit(workerMain())
	}
	c := config{orders: 60, kills: 18, minLife: 100 * time.Millisecond, maxLife: 600 * time.Millisecond, limit: time.Minute}
	flag.Uint64Var(&c.seed, "seed", 17, "seed of the faults and the kills")
	flag.Parse()

	// Ctrl-C ends the run in order: the shop is killed, the files removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r, err := run(ctx, c, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
	}
	if err != nil || len(r.wrong) > 0 {
		os.Exit(1)
	}
}

// run is the whole story.
func run(ctx context.Context, c config, out io.Writer) (r report, err error) {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("not done after %v", c.limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "outbox-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := startProvider(dir, c.seed)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }() // before the directory goes

	fmt.Fprintf(out, "%d orders through an outbox, seed %d\n", c.orders, c.seed)
	l := newLives(c, assignment{Dir: dir, URL: p.running.URL, Orders: c.orders})
	if err := l.all(ctx); err != nil {
		return r, err
	}
	r.kills, r.told = l.kills, l.told
	if err := p.running.Close(); err != nil { // nothing more happens from here on
		return r, err
	}
	if r.books, err = readBooks(ctx, dir, p.ledger); err != nil {
		return r, fmt.Errorf("read the books: %w", err)
	}
	r.wrong, r.took = check(c, r), time.Since(start)
	r.print(out, c)
	return r, nil
}
