package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/journaltest"
)

// syncsPerOperation counts the syncs of the journal's log.
func (r *run) syncsPerOperation() error {
	count, restore, err := r.countSyncs()
	if err != nil {
		return err
	}
	defer restore()
	for i, callers := range callerCounts {
		var ratios []float64
		err := r.besides(func(p *provider, journal *idem.SQLiteJournal) error {
			ours := durable(p.url, journal)
			for range r.rounds {
				before := count()
				load, err := r.play(ours, callers, r.round)
				if err != nil {
					return err
				}
				ratios = append(ratios, float64(count()-before)/float64(load.operations))
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.report(fmt.Sprintf("syncs per operation, callers %d", callers), ratios, "", []float64{1.01, 0.15, 0.05}[i], true)
	}
	return nil
}

// stub answers at once.
type stub struct{}

func (stub) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(stubAnswer)), ContentLength: int64(len(stubAnswer)), Request: req,
	}, nil
}

var stubAnswer = strings.Repeat("x", 300)

// addedAllocations: the transport over a stub and a memory journal.
func (r *run) addedAllocations() error {
	var allocs, times []float64
	for range r.rounds {
		journal := journaltest.New()
		ours := testing.Benchmark(over(&idem.Transport{
			Journal: journal, Base: stub{}, Contracts: contract.Keyed("Idempotency-Key", 24*time.Hour),
		}))
		alone := testing.Benchmark(over(stub{}))
		kept := testing.Benchmark(func(b *testing.B) { // what the journal itself takes
			b.ReportAllocs()
			for b.Loop() {
				in, _, err := journal.Begin(context.Background(), intent(numbers.Add(1)))
				if err == nil {
					in.State, in.Outcome, in.Claimed = idem.StateSucceeded, &idem.Outcome{StatusCode: 200, Complete: true}, false
					_, err = journal.Update(context.Background(), in, &idem.Attempt{Number: 1}, false)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := journal.Close(); err != nil {
			return err
		}
		allocs = append(allocs, float64(ours.AllocsPerOp()-alone.AllocsPerOp()-kept.AllocsPerOp()))
		times = append(times, float64(ours.NsPerOp()-alone.NsPerOp()-kept.NsPerOp())/1e3)
	}
	r.report("allocations added by the transport over a stub", allocs, "", 15, true)
	r.report("time added by the transport over a stub", times, "us", 2, true)
	return nil
}

func over(transport http.RoundTripper) func(b *testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx := idem.WithOperation(context.Background(), operation(numbers.Add(1)))
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider.example/charges", strings.NewReader(payload))
			if err != nil {
				b.Fatal(err)
			}
			if err := take(transport.RoundTrip(req)); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// settle begins an intent and posts its outcome.
func (r *run) settle(journal *idem.SQLiteJournal, n int64, change func(*idem.Intent)) error {
	want := intent(n)
	if change != nil {
		change(&want)
	}
	in, _, err := journal.Begin(r.ctx, want)
	if err != nil {
		return err
	}
	in.State, in.Claimed, in.Settled = idem.StateSucceeded, false, in.Created
	in.Outcome = &idem.Outcome{StatusCode: http.StatusOK, Body: []byte(stubAnswer), Complete: true}
	_, err = journal.Update(r.ctx, in, &idem.Attempt{Number: 1, Started: in.Created, Ended: in.Created, Phase: "answered", StatusCode: 200}, false)
	return err
}

// fill makes a journal of so many settled operations.
func (r *run) fill(journal *idem.SQLiteJournal, rows int, change func(*idem.Intent)) error {
	const workers = 256
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < rows && errs[w] == nil && r.ctx.Err() == nil; i += workers {
				errs[w] = r.settle(journal, numbers.Add(1), change)
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, journal.Flush(r.ctx), r.ctx.Err())...)
}

// growth: the cost of an operation, a lookup, a list and an open in a large
// journal.
func (r *run) growth() (err error) {
	paths := [2]string{r.scratch("large"), r.scratch("small")}
	var journals [2]*idem.SQLiteJournal
	for i, rows := range []int{r.rows, 10_000} {
		if journals[i], err = idem.Open(paths[i], nil); err != nil {
			return err
		}
		defer journals[i].Close()
		if err := r.fill(journals[i], rows, nil); err != nil {
			return err
		}
	}
	of := func(i int) subject {
		return subject{"journal", func(n int64) error { return r.settle(journals[i], n, nil) }}
	}
	for i, callers := range []int{1, 64} {
		var ratios []float64
		err := r.compare(callers, func(loads []load) {
			ratios = append(ratios, loads[1].perSecond()/loads[0].perSecond())
		}, of(0), of(1))
		if err != nil {
			return err
		}
		r.report(fmt.Sprintf("cost of an operation at %d rows against 10,000, callers %d", r.rows, callers), ratios, "x", []float64{1.4, 2.2}[i], true)
	}
	if err := r.reads(journals[0]); err != nil {
		return err
	}
	if err := journals[0].Close(); err != nil {
		return err
	}
	return r.openAfterKill(paths[0])
}

// reads times a lookup and a list of the unfinished.
func (r *run) reads(journal *idem.SQLiteJournal) error {
	first := numbers.Add(1000) - 999
	for i := range int64(100) {
		if err := r.begin(journal, first+i); err != nil {
			return err
		}
	}
	var lookups, lists []float64
	for range r.rounds {
		start, n := time.Now(), 0
		for time.Since(start) < r.round/2 {
			if _, err := journal.Lookup(r.ctx, "", operation(numbers.Load()*int64(n*7919+1)%numbers.Load())); err != nil && !errors.Is(err, idem.ErrNotFound) {
				return err
			}
			n++
		}
		lookups = append(lookups, float64(time.Since(start).Microseconds())/float64(n))
		start, n = time.Now(), 0
		for time.Since(start) < r.round/2 {
			all, err := journal.List(r.ctx, idem.Filter{States: []idem.State{idem.StateInFlight}, Limit: 100})
			if err != nil {
				return err
			}
			if len(all) != 100 {
				return fmt.Errorf("%d unfinished intents listed, not 100", len(all))
			}
			n++
		}
		lists = append(lists, float64(time.Since(start).Microseconds())/float64(n)/1e3)
	}
	r.report(fmt.Sprintf("lookup at %d rows", r.rows), lookups, "us", 25, true)
	r.report("100 unfinished intents listed", lists, "ms", 1, true)
	return nil
}

// openAfterKill times Open after a process was killed while it wrote.
func (r *run) openAfterKill(path string) error {
	var opens []float64
	for range r.rounds {
		child, err := writer(path)
		if err != nil {
			return err
		}
		time.Sleep(r.round) // it writes for so long; nothing depends on how much
		_ = child.Process.Kill()
		_ = child.Wait() // it was killed
		start := time.Now()
		journal, err := idem.Open(path, nil)
		if err != nil {
			return err
		}
		opens = append(opens, float64(time.Since(start).Microseconds())/1e3)
		if err := journal.Close(); err != nil {
			return err
		}
	}
	r.report("open after kill -9", opens, "ms", 10, true)
	return nil
}

// writer starts a process that writes to a journal until it is killed.
func writer(path string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), "IDEM_BENCH_WRITER="+path)
	child.Stderr = os.Stderr
	return child, child.Start()
}

// fairness: how long one caller's intents wait while another process, with many
// callers, writes to the same journal without a pause.
func (r *run) fairness() (err error) {
	path := r.scratch("idem")
	journal, err := idem.Open(path, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	child, err := writer(path)
	if err != nil {
		return err
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait() // it was killed
	}()
	var tails []float64
	err = r.compare(1, func(loads []load) {
		tails = append(tails, float64(loads[0].quantile(0.99).Microseconds())/1e3)
	}, subject{"idem", func(n int64) error { return r.begin(journal, n) }})
	r.report("p99 of an intent, another process writing without a pause", tails, "ms", 100, true)
	return err
}

// write is the process that is killed.
func write(path string) error {
	journal, err := idem.Open(path, nil)
	if err != nil {
		return err
	}
	r := &run{ctx: context.Background()}
	numbers.Store(time.Now().UnixNano())
	return r.fill(journal, 1<<30, nil)
}

// worstCommit: the longest waits of 16 callers while old rows are pruned.
func (r *run) worstCommit() error {
	journal, err := idem.Open(r.scratch("idem"), &idem.SQLiteOptions{PruneAfter: time.Second})
	if err != nil {
		return err
	}
	forgotten := func(in *idem.Intent) { in.Retention = 0 }
	if err := r.fill(journal, 100_000, forgotten); err != nil {
		return errors.Join(err, journal.Close())
	}
	var worst, tail []float64
	err = r.compare(16, func(loads []load) {
		worst = append(worst, float64(loads[0].quantile(1).Microseconds())/1e3)
		tail = append(tail, float64(loads[0].quantile(0.999).Microseconds())/1e3)
	}, subject{"idem", func(n int64) error { return r.settle(journal, n, forgotten) }})
	r.report("worst commit, 16 callers, 100,000 rows, pruning", worst, "ms", 15, true)
	r.report("p99.9 of it", tail, "ms", 10, true)
	return errors.Join(err, journal.Close())
}

// bytesPerOperation: what is on the disk after a close.
func (r *run) bytesPerOperation() error {
	const operations = 20_000
	path := r.scratch("idem")
	journal, err := idem.Open(path, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(r.fill(journal, operations, nil), journal.Close()); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	r.report("bytes per operation, bodies of 512 and 300", []float64{float64(info.Size()) / operations / 1024}, "KiB", 1.4, true)
	return nil
}

// memory: the heap after many operations against the heap after few.
func (r *run) memory() error {
	journal, err := idem.Open(r.scratch("idem"), nil)
	if err != nil {
		return err
	}
	transport := &idem.Transport{Journal: journal, Base: stub{}, Contracts: contract.Keyed("Idempotency-Key", 24*time.Hour)}
	heap := func(operations int) (float64, error) {
		const workers = 64
		errs := make([]error, workers)
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := w; i < operations && errs[w] == nil; i += workers {
					ctx := idem.WithOperation(r.ctx, operation(numbers.Add(1)))
					errs[w] = post(func(req *http.Request) (*http.Response, error) {
						return transport.RoundTrip(req.WithContext(ctx))
					}, "http://provider.example", "")
				}
			})
		}
		all.Wait()
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc), errors.Join(errs...)
	}
	few, err := heap(r.rows / 10)
	if err != nil {
		return errors.Join(err, journal.Close())
	}
	many, err := heap(r.rows - r.rows/10)
	r.report(fmt.Sprintf("heap after %d operations against a tenth of them", r.rows), []float64{many / few}, "x", 1.2, true)
	return errors.Join(err, journal.Close())
}
