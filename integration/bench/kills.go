package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/faultinjection"
)

// kills says how workers are killed.
type kills struct {
	orders  int
	callers int           // orders that a worker has at a time
	kills   int           // the most, of one run
	minLife time.Duration // from when it takes orders
	maxLife time.Duration
	seed    uint64
	faults  float64       // the share of arrivals that fail
	work    time.Duration // how long a charge takes
	atOnce  int           // runs at a time
	limit   time.Duration // of one run
}

// ending is what one run came to.
type ending struct {
	kills      int
	charges    int
	duplicates int // charges beyond the first of their order
	lost       int // orders that were accepted and never charged
	unknown    int // orders that were charged, and nobody was ever told so
	after      time.Duration
}

// killed is one row.
type killed struct {
	kind  kind
	again ending // orders are brought until they are answered
	once  ending // orders are brought until they are accepted
}

// kill runs all kinds, in both ways, a few at a time: nothing is timed here.
func (r *run) kill(k kills, kinds []kind) ([]killed, error) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	rows := make([]killed, len(kinds))
	errs := make([]error, 2*len(kinds))
	slots := make(chan struct{}, k.atOnce)
	var all sync.WaitGroup
	for i := len(errs) - 1; i >= 0; i-- { // the long ones first
		row := &rows[i/2]
		row.kind = kinds[i/2]
		into, once := &row.again, i%2 == 1
		if once {
			into = &row.once
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if *into, errs[i] = r.oneKill(ctx, k, kinds[i/2].name, fmt.Sprint(i), once); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return rows, errors.Join(errs...)
}

// oneKill is one run: a provider, and a worker that is killed.
func (r *run) oneKill(ctx context.Context, k kills, name, label string, once bool) (end ending, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.limit)
	defer cancel()
	dir := filepath.Join(r.dir, "kill-"+label)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return end, err
	}
	ledger, err := faultinjection.OpenLedger(filepath.Join(dir, "ledger.db"))
	if err != nil {
		return end, err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	server := newServer(ledger, k.work)
	seen := map[string]int{} // arrivals by order; Each is called one at a time
	server.Each(func(a faultinjection.Arrival) faultinjection.Step {
		seen[a.Operation]++
		return fault(k.seed, k.faults, a.Operation, seen[a.Operation])
	})
	running, err := server.Listen()
	if err != nil {
		return end, err
	}
	l := &lives{k: k, work: assignment{Kind: name, Dir: dir, URL: running.URL, Once: once}}
	for i := range k.orders {
		l.queue = append(l.queue, fmt.Sprintf("order-%d", i+1))
	}
	if err := errors.Join(l.all(ctx), ctx.Err()); err != nil {
		return end, errors.Join(err, running.Close())
	}
	end.after = time.Since(l.lastKill)
	time.Sleep(2 * k.work) // what a killed one sent last is charged meanwhile
	if err := running.Close(); err != nil {
		return end, err
	}
	return end, end.count(ledger, l)
}

// count holds what the provider did against what the callers know.
func (end *ending) count(ledger *faultinjection.Ledger, l *lives) error {
	effects, err := ledger.Effects()
	if err != nil {
		return err
	}
	charges := map[string]int{}
	for _, e := range effects {
		charges[e.Operation]++
	}
	end.kills, end.charges = l.killed, len(effects)
	end.duplicates = len(effects) - len(charges)
	for i := range l.k.orders {
		order := fmt.Sprintf("order-%d", i+1)
		switch {
		case charges[order] == 0: // whatever was said of it
			end.lost++
		case !l.made[order]:
			end.unknown++
		}
	}
	return nil
}

func (r *run) printKills(k kills, rows []killed) {
	fmt.Fprintf(r.out, "\n%d orders, %d at a time, at most %d kills, %.0f %% of arrivals fail, seed %d\n\n", k.orders, k.callers, k.kills, 100*k.faults, k.seed)
	fmt.Fprintf(r.out, "| %-34s | until answered: kills | duplicates | lost | until accepted: kills | duplicates | never charged | unknown | end after, s |\n", "")
	fmt.Fprintf(r.out, "|%s|--:|--:|--:|--:|--:|--:|--:|--:|\n", strings.Repeat("-", 36))
	for _, row := range rows {
		fmt.Fprintf(r.out, "| %-34s | %21d | %10d | %4d | %21d | %10d | %13d | %7d | %12.1f |\n", row.kind.name,
			row.again.kills, row.again.duplicates, row.again.lost+row.again.unknown,
			row.once.kills, row.once.duplicates, row.once.lost, row.once.unknown, row.once.after.Seconds())
	}
}
