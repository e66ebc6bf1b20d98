package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"time"

	"github.com/idem-go/idem/faultinjection"
)

const (
	workTime   = 20 * time.Millisecond // how long a charge takes at the provider
	faultShare = 0.5                   // of all arrivals
	maxCents   = 9000                  // what the cards are good for
)

// provider is the other side: it honours keys as a good one does, and its
// network is a bad one.
type provider struct {
	ledger  *faultinjection.Ledger
	running *faultinjection.Running
}

func startProvider(dir string, seed uint64) (*provider, error) {
	ledger, err := faultinjection.OpenLedger(filepath.Join(dir, ledgerFile))
	if err != nil {
		return nil, err
	}
	server := faultinjection.NewServer(api, ledger)
	server.Work, server.Effect, server.StoreFailures = workTime, charge, true
	seen := map[string]int{} // arrivals by order; Each is called one at a time
	server.Each(func(a faultinjection.Arrival) faultinjection.Step {
		seen[a.Operation]++
		return fault(seed, a.Operation, seen[a.Operation])
	})
	running, err := server.Listen()
	if err != nil {
		return nil, errors.Join(err, ledger.Close())
	}
	return &provider{ledger, running}, nil
}

func (p *provider) close() error { return errors.Join(p.running.Close(), p.ledger.Close()) }

// charge charges a card, unless it is not good for the amount.
func charge(_ *http.Request, body []byte) (int, http.Header, []byte) {
	var asked struct {
		Order  string
		Amount int
	}
	header := http.Header{"Content-Type": {"application/json"}}
	switch err := json.NewDecoder(bytes.NewReader(body)).Decode(&asked); {
	case err != nil:
		return http.StatusBadRequest, header, []byte(`{"error":"bad_request"}`)
	case asked.Amount > maxCents:
		return http.StatusPaymentRequired, header, []byte(`{"error":"card_declined"}`)
	}
	return http.StatusCreated, header, fmt.Appendf(nil, `{"charge":"ch_%016x","order":%q}`, rand.Uint64(), asked.Order)
}

// fault draws what happens to the n-th arrival of an order.
func fault(seed uint64, order string, n int) faultinjection.Step {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", order, n)
	random := rand.New(rand.NewPCG(seed, h.Sum64()))
	if random.Float64() >= faultShare {
		return faultinjection.Run
	}
	return []faultinjection.Step{
		faultinjection.LoseRequest,     // the request never arrives
		faultinjection.DieBeforeEffect, // the server dies, nothing was charged
		faultinjection.DieAfterEffect,  // the server dies, the charge is there: the answer is lost
		faultinjection.CutAnswer,       // half an answer
		faultinjection.Unavailable(),   // 503 from a gateway in front
		faultinjection.SlowAnswer(between(random, 50*time.Millisecond, 450*time.Millisecond)),
	}[random.IntN(6)]
}

// between draws a duration from low to high.
func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)))
}
