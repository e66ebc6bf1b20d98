package faultinjection_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// A client is tried with every script of up to two attempts that may each be lost
// on the way there or on the way back, and killed at every point of each; its
// next life goes on from the journal that it left.
func ExampleExplorer() {
	life := func(l *faultinjection.Life) (err error) {
		journal, err := idem.Open(filepath.Join(l.Dir, "payments.db"), nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, journal.Close()) }()
		client := idem.NewClient(&idem.Transport{
			Journal: journal, Base: l.Transport, CrashPoint: l.CrashPoint,
			Contracts: contract.Keyed("Idempotency-Key", 24*time.Hour),
			Retry:     idem.RetryPolicy{MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
		})
		req, err := http.NewRequestWithContext(l.Context, "POST", "http://api.example/charges", strings.NewReader(`{"order":"`+l.Operation+`"}`))
		if err != nil {
			return err
		}
		resp, err := client.Do(l.Operation+"/charge", req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	explorer := faultinjection.Explorer{
		Answers:  []faultinjection.Fault{faultinjection.DropRequest, faultinjection.DropResponse},
		Attempts: 2,
		Life:     life,
	}
	done, err := explorer.Run(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, failure := range done.Failures {
		fmt.Println(failure) // and how to run it again, alone: Explorer.Replay
	}
	fmt.Printf("%d scripts, more than %d runs: %d bad\n", done.Scripts, done.Runs/50*50, len(done.Failures))
	// Output:
	// 7 scripts, more than 100 runs: 0 bad
}
