package idem_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// provider is a reference server that loses its first answer.
func provider() (http.RoundTripper, *faultinjection.Ledger) {
	ledger, err := faultinjection.OpenLedger("")
	if err != nil {
		log.Fatal(err)
	}
	server := faultinjection.NewServer(contract.Keyed("Idempotency-Key", 24*time.Hour), ledger)
	server.Plan(faultinjection.DieAfterEffect)
	return server.Transport(), ledger
}

func tempFile(name string) (path string, remove func()) {
	dir, err := os.MkdirTemp("", "idem")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(dir, name), func() { os.RemoveAll(dir) }
}

// The program of the package page, against a provider that loses its first
// answer.
func Example() {
	base, ledger := provider()
	defer ledger.Close()
	path, remove := tempFile("payments.db")
	defer remove()

	journal, err := idem.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer journal.Close()
	api := contract.Keyed("Idempotency-Key", 24*time.Hour).At("api.example.com")
	client := idem.NewClient(&idem.Transport{Journal: journal, Contracts: api, Base: base})
	req, err := http.NewRequest("POST", "https://api.example.com/charges", strings.NewReader(`{"amount":4200}`))
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.Do("order-42/charge", req)
	if errors.Is(err, idem.ErrUnknownOutcome) {
		log.Fatal("not settled yet; run again, or decide if held: ", err)
	}
	if err != nil {
		log.Fatal(err) // this call executed nothing; err says why
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)

	counts, err := ledger.Counts()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(counts.Arrivals, "arrivals,", counts.Effects, "charge")
	// Output:
	// 201 Created
	// 2 arrivals, 1 charge
}

// Any SDK that takes an http.Client and passes its context on works unchanged.
func ExampleWithOperation() {
	base, ledger := provider()
	defer ledger.Close()
	path, remove := tempFile("payments.db")
	defer remove()
	journal, err := idem.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer journal.Close()
	api := contract.Keyed("Idempotency-Key", 24*time.Hour).At("api.example.com")
	client := idem.NewClient(&idem.Transport{Journal: journal, Contracts: api, Base: base})

	req, err := http.NewRequest("POST", "https://api.example.com/charges", strings.NewReader(`{"amount":4200}`))
	if err != nil {
		log.Fatal(err)
	}
	sdk := client.HTTPClient() // what the SDK is given
	var result idem.Result
	ctx := idem.WithResult(idem.WithOperation(req.Context(), "order-42/charge"), &result)
	resp, err := sdk.Do(req.WithContext(ctx)) // deep inside the SDK
	fmt.Println(resp.StatusCode, err, result.Intent.State, result.Err(), result.Intent.Attempts, "attempts")
	// Output: 201 <nil> succeeded <nil> 2 attempts
}
