package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// api is what the provider publishes: it honours a raw key in this header, and
// remembers it for a day.
var api = contract.Keyed("Idempotency-Key", 24*time.Hour)

const (
	ledgerFile = "ledger.db"
	workTime   = 60 * time.Millisecond // how long a charge takes at the provider
	faultShare = 0.65                  // of all arrivals
)

// provider is the other side: it honours keys as a good one does, and its
// network is the worst there is.
type provider struct {
	ledger   *faultinjection.Ledger
	running  *faultinjection.Running
	arrivals atomic.Int64
}

func startProvider(dir string, seed uint64) (*provider, error) {
	ledger, err := faultinjection.OpenLedger(filepath.Join(dir, ledgerFile))
	if err != nil {
		return nil, err
	}
	p := &provider{ledger: ledger}
	server := faultinjection.NewServer(api, ledger)
	server.Work = workTime
	seen := map[string]int{} // arrivals by order; Each is called one at a time
	server.Each(func(a faultinjection.Arrival) faultinjection.Step {
		p.arrivals.Add(1)
		seen[a.Operation]++
		return fault(seed, a.Operation, seen[a.Operation])
	})
	if p.running, err = server.Listen(); err != nil {
		return nil, errors.Join(err, ledger.Close())
	}
	return p, nil
}

func (p *provider) close() error {
	return errors.Join(p.running.Close(), p.ledger.Close())
}

// fault draws what happens to the n-th arrival of an order. It depends on
// nothing else, so both runs meet the same faults.
func fault(seed uint64, order string, n int) faultinjection.Step {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", order, n)
	random := rand.New(rand.NewPCG(seed, h.Sum64()))
	if random.Float64() >= faultShare {
		return faultinjection.Run
	}
	// A slow answer is late for attemptTimeout, or just in time.
	late := between(random, 50*time.Millisecond, 450*time.Millisecond)
	return []faultinjection.Step{
		faultinjection.LoseRequest,     // the request never arrives
		faultinjection.DieBeforeEffect, // the server dies, nothing was charged
		faultinjection.DieAfterEffect,  // the server dies, the charge is there: the answer is lost
		faultinjection.CutAnswer,       // half an answer
		faultinjection.Unavailable(),   // 503 from a gateway in front
		faultinjection.SlowAnswer(late),
	}[random.IntN(6)]
}

// between draws a duration from low to high, in whole milliseconds.
func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low))).Round(time.Millisecond)
}
