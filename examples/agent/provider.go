package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

const (
	toolCharge  = "charge"
	toolMail    = "mail"
	toolVoucher = "voucher"
)

// meant is how often an agent's run means each tool.
var meant = map[string]int{toolCharge: 1, toolMail: 1, toolVoucher: 2}

// api is what the provider of the tools publishes: it honours a raw key in this
// header, and remembers it for a day.
var api = contract.Keyed("Idempotency-Key", 24*time.Hour)

const (
	ledgerFile = "ledger.db"
	workTime   = 20 * time.Millisecond // how long an effect takes
	faultShare = 0.5                   // of all arrivals
)

// provider is what the tools call: it honours keys as a good one does, and its
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
	server.Work = workTime
	server.Operation = func(r *http.Request, body []byte) string {
		var args struct{ Order string }
		_ = json.Unmarshal(body, &args)                                           // the tools write it
		return args.Order + r.URL.Path + " under " + r.Header.Get(api.Key.Header) // equal calls are two
	}
	server.Effect = func(r *http.Request, _ []byte) (int, http.Header, []byte) {
		id := fmt.Appendf(nil, `{"id":"%s_%016x"}`, r.URL.Path[1:], rand.Uint64())
		return http.StatusCreated, http.Header{"Content-Type": {"application/json"}}, id
	}
	seen := map[string]int{} // arrivals by effect; Each is called one at a time
	server.Each(func(a faultinjection.Arrival) faultinjection.Step {
		seen[effect(a.Operation)]++
		return fault(seed, effect(a.Operation), seen[effect(a.Operation)])
	})
	running, err := server.Listen()
	if err != nil {
		return nil, errors.Join(err, ledger.Close())
	}
	return &provider{ledger, running}, nil
}

func (p *provider) close() error { return errors.Join(p.running.Close(), p.ledger.Close()) }

// effect is what an operation of the ledger does, whatever its key.
func effect(operation string) string {
	what, _, _ := strings.Cut(operation, " ")
	return what
}

// fault draws what happens to the n-th arrival of an effect.
func fault(seed uint64, effect string, n int) faultinjection.Step {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", effect, n)
	random := rand.New(rand.NewPCG(seed, h.Sum64()))
	if random.Float64() >= faultShare {
		return faultinjection.Run
	}
	return []faultinjection.Step{
		faultinjection.LoseRequest,     // the request never arrives
		faultinjection.DieBeforeEffect, // the server dies, nothing was done
		faultinjection.DieAfterEffect,  // the server dies, the effect is there: the answer is lost
		faultinjection.CutAnswer,       // half an answer
		faultinjection.Unavailable(),   // 503 from a gateway in front
	}[random.IntN(5)]
}
