package faultinjection_test

import (
	"crypto/rand"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// charge is the code under test, and a stranger's. It has the classic bug: each
// try has a key of its own.
func charge(client *http.Client, order string, wait time.Duration) error {
	for range 3 {
		req, err := http.NewRequest("POST", "http://api.example/charges", strings.NewReader(`{"order":"`+order+`"}`))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", rand.Text()) // belongs in front of the loop
		resp, err := client.Do(req)
		if err == nil {
			return resp.Body.Close()
		}
		time.Sleep(wait)
	}
	return fmt.Errorf("%s was not charged", order)
}

// A wrong client is caught: the answer to its first try is lost, and the second
// one charges again. In a test, put the same lines into [testing/synctest.Test]:
// the client may then wait for minutes, which take no time.
func Example() {
	ledger, err := faultinjection.OpenLedger("")
	if err != nil {
		log.Fatal(err)
	}
	defer ledger.Close()
	api := contract.Keyed("Idempotency-Key", 24*time.Hour)
	server := faultinjection.NewServer(api, ledger)
	script := faultinjection.NewScript(api, faultinjection.DropResponse)
	client := &http.Client{Transport: script.Wrap(server.Transport())}
	fmt.Println("charge:", charge(client, "order-42", time.Millisecond))
	effects, err := ledger.EffectsOf("order-42")
	fmt.Println("effects:", effects, err)
	for _, a := range script.Attempts() {
		fmt.Printf("%v: attempt %d under its key, status %d\n", a.Fault, a.N, a.Status)
	}
	// Output:
	// charge: <nil>
	// effects: 2 <nil>
	// drop_response: attempt 1 under its key, status 0
	// pass: attempt 1 under its key, status 201
}
