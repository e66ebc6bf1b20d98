package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// load is what a number of callers did in a stretch of time.
type load struct {
	took      time.Duration
	latencies []time.Duration // of each call, sorted
	allocs    float64         // for a call, of the whole process
}

func (l load) perSecond() float64 { return float64(len(l.latencies)) / l.took.Seconds() }

func (l load) quantile(q float64) time.Duration {
	if len(l.latencies) == 0 {
		return 0
	}
	return l.latencies[min(int(q*float64(len(l.latencies))), len(l.latencies)-1)]
}

// orders are named over the whole run.
var orders atomic.Int64

// play lets callers work at once for a while, each on one new order after another.
func play(ctx context.Context, ask func(string) error, callers int, length time.Duration) (load, error) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	parts := make([][]time.Duration, callers)
	errs := make([]error, callers)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	begun := time.Now()
	for i := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				if errs[i] = ask(fmt.Sprintf("order-%d", orders.Add(1))); errs[i] != nil {
					cancel()
					return
				}
				parts[i] = append(parts[i], time.Since(start))
			}
		})
	}
	all.Wait()
	out := load{took: time.Since(begun)}
	runtime.ReadMemStats(&after)
	out.latencies = slices.Sorted(slices.Values(slices.Concat(parts...)))
	out.allocs = float64(after.Mallocs-before.Mallocs) / float64(max(len(out.latencies), 1))
	return out, errors.Join(errs...)
}

// speed is one row for a number of callers.
type speed struct {
	kind  kind
	loads []load // of each round
}

// speeds measures all kinds in turn, in each round in another order. One is open
// at a time, since some of them work in the background.
func (r *run) speeds(callers int, kinds []kind) ([]speed, error) {
	rows := make([]speed, len(kinds))
	for i, k := range kinds {
		rows[i] = speed{kind: k, loads: make([]load, r.rounds)}
	}
	for round := range r.rounds {
		for i := range kinds {
			at := (i + round) % len(kinds)
			var err error
			if rows[at].loads[round], err = r.oneSpeed(callers, at, kinds[at]); err != nil {
				return nil, fmt.Errorf("%s, %d callers: %w", kinds[at].name, callers, err)
			}
		}
	}
	return rows, nil
}

// oneSpeed opens what an earlier round left, warms it up and measures.
func (r *run) oneSpeed(callers, at int, k kind) (out load, err error) {
	dir := filepath.Join(r.dir, fmt.Sprintf("speed-%d", at))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return out, err
	}
	t, err := k.open(site{dir: dir, url: r.provider.url})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if _, err := play(r.ctx, t.ask, callers, r.round/3); err != nil {
		return out, err
	}
	out, err = play(r.ctx, t.ask, callers, r.round)
	return out, errors.Join(err, r.ctx.Err())
}

// median of what each round gives.
func median(rounds int, of func(round int) float64) float64 {
	values := make([]float64, rounds)
	for i := range values {
		values[i] = of(i)
	}
	slices.Sort(values)
	return (values[(rounds-1)/2] + values[rounds/2]) / 2
}

func (r *run) printSpeeds(callers int, rows []speed) {
	fmt.Fprintf(r.out, "\n| %-30s | calls/s | ratio |     its spread | p50 ms | p99 ms | allocations |\n", fmt.Sprintf("%d at a time", callers))
	fmt.Fprintf(r.out, "|%s|--:|--:|--:|--:|--:|--:|\n", strings.Repeat("-", 32))
	for _, row := range rows {
		ratio := func(i int) float64 { return row.loads[i].perSecond() / rows[0].loads[i].perSecond() }
		low, high := ratio(0), ratio(0)
		for i := range r.rounds {
			low, high = min(low, ratio(i)), max(high, ratio(i))
		}
		ms := func(q float64) float64 {
			return median(r.rounds, func(i int) float64 { return float64(row.loads[i].quantile(q).Microseconds()) / 1e3 })
		}
		fmt.Fprintf(r.out, "| %-30s | %7.0f | %5.2f | %5.2f to %5.2f | %6.1f | %6.1f | %11.0f |\n", row.kind.name,
			median(r.rounds, func(i int) float64 { return row.loads[i].perSecond() }), median(r.rounds, ratio), low, high,
			ms(0.5), ms(0.99), median(r.rounds, func(i int) float64 { return row.loads[i].allocs }))
	}
}

// syncTime is how long a sync of 4 KiB at the end of a growing file takes here.
func syncTime(dir string) (time.Duration, error) {
	file, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	page := make([]byte, 4096)
	var times []time.Duration
	for range 101 {
		start := time.Now()
		if _, err := file.Write(page); err != nil {
			return 0, errors.Join(err, file.Close())
		}
		if err := file.Sync(); err != nil {
			return 0, errors.Join(err, file.Close())
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return times[len(times)/2], file.Close()
}
