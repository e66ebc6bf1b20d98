package faultinjection_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// Two workers at a time charge orders over one journal and are killed two
// hundred times each, while the provider loses every seventh answer. The worker
// ends by itself when its orders are done, so that the last one, which nobody
// kills, comes to the end of them.
func ExampleCrashLoop() {
	ledger, err := faultinjection.OpenLedger("")
	if err != nil {
		log.Fatal(err)
	}
	defer ledger.Close()
	server := faultinjection.NewServer(contract.Keyed("Idempotency-Key", 24*time.Hour), ledger)
	server.Each(func(a faultinjection.Arrival) faultinjection.Step {
		if a.Number%7 == 0 {
			return faultinjection.DieAfterEffect
		}
		return faultinjection.Run
	})
	running, err := server.Listen()
	if err != nil {
		log.Fatal(err)
	}
	defer running.Close()

	const orders = 1000
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	report, err := faultinjection.CrashLoop{
		Command: func(int) *exec.Cmd {
			return exec.Command("./worker", "-journal=payments.db", "-provider="+running.URL, fmt.Sprint("-orders=", orders))
		},
		Processes: 2,
		Lives:     200,
		MaxLife:   60 * time.Millisecond,
		Check: func(last bool) error {
			counts, err := ledger.Counts()
			switch {
			case err != nil:
				return err
			case counts.Duplicates > 0:
				return fmt.Errorf("%d orders were charged twice", counts.Duplicates)
			case last && counts.Effects != orders:
				return fmt.Errorf("%d of %d orders were charged", counts.Effects, orders)
			}
			return nil
		},
	}.Run(ctx)
	if err != nil {
		log.Fatal(err) // it tells the seed, and what the workers said
	}
	fmt.Println("killed", report.Killed, "of", report.Lives)
}

// A program whose tests name the moment of its death: with
// FAULTINJECTION_CRASH=answered:2 in its environment it is killed when the
// second answer is here and not yet recorded, and without the variable never.
// idem.CrashPoints has the names.
func ExampleHookFromEnv() {
	journal, err := idem.Open("payments.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer journal.Close()
	client := idem.NewClient(&idem.Transport{Journal: journal, CrashPoint: faultinjection.HookFromEnv()})
	if _, err := client.Resume(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// What a call has written down at a certain moment can be looked at in that
// moment.
func ExampleStopAt() {
	dir, err := os.MkdirTemp("", "faultinjection")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	journal, err := idem.Open(filepath.Join(dir, "payments.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer journal.Close()
	ledger, err := faultinjection.OpenLedger("")
	if err != nil {
		log.Fatal(err)
	}
	defer ledger.Close()
	api := contract.Keyed("Idempotency-Key", 24*time.Hour)
	server := faultinjection.NewServer(api, ledger)
	hook, reached, goOn := faultinjection.StopAt("send", 1)
	client := idem.NewClient(&idem.Transport{Journal: journal, Contracts: api, Base: server.Transport(), CrashPoint: hook})

	done := make(chan struct{})
	go func() {
		defer close(done)
		req, err := http.NewRequest("POST", "http://api.example/charges", strings.NewReader(`{"order":"order-42"}`))
		if err != nil {
			log.Fatal(err)
		}
		resp, err := client.Do("order-42/charge", req)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}()
	<-reached
	in, err := client.Lookup(context.Background(), "order-42/charge")
	if err != nil {
		log.Fatal(err)
	}
	counts, err := ledger.Counts()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(in.State, in.Attempts, "arrived:", counts.Arrivals)
	goOn()
	<-done
	// Output: in_flight 1 arrived: 0
}
