package faultinjection_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// The answer to the first request is lost. The client cannot know whether it
// was executed; repeating the same key is safe either way.
func Example_sameKey() {
	ledger, err := faultinjection.OpenLedger("")
	if err != nil {
		log.Fatal(err)
	}
	defer ledger.Close()
	server := faultinjection.NewServer(contract.Keyed("Idempotency-Key", 24*time.Hour), ledger)
	server.Plan(faultinjection.DieAfterEffect) // the first answer is lost

	client := &http.Client{Transport: server.Transport()}
	for range 3 {
		req, err := http.NewRequest("POST", "http://api.example/charges", strings.NewReader(`{"order":"order-42"}`))
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println("outcome unknown")
			continue // with the same key
		}
		resp.Body.Close()
		fmt.Println(resp.Status, "replayed:", resp.Header.Get("Idempotent-Replayed"))
		break
	}
	effects, err := ledger.EffectsOf("order-42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("effects:", effects)
	// Output:
	// outcome unknown
	// 201 Created replayed: true
	// effects: 1
}

// A wrong client is caught: this one makes a new key for its second attempt.
func ExampleLedger_Counts() {
	ledger, err := faultinjection.OpenLedger("")
	if err != nil {
		log.Fatal(err)
	}
	defer ledger.Close()
	server := faultinjection.NewServer(contract.Keyed("Idempotency-Key", 24*time.Hour), ledger)
	server.Plan(faultinjection.DieAfterEffect)

	client := &http.Client{Transport: server.Transport()}
	for attempt := range 2 {
		req, err := http.NewRequest("POST", "http://api.example/charges", strings.NewReader(`{"order":"order-42"}`))
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", fmt.Sprint("key-", attempt)) // the bug
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
		}
	}
	counts, err := ledger.Counts()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("effects:", counts.Effects, "duplicates:", counts.Duplicates)
	// Output:
	// effects: 2 duplicates: 1
}

// One key, many requests at once: a server that looks first and stores later
// charges again and again.
func ExampleSeed() {
	wrong, err := faultinjection.Seed(context.Background(), 50, faultinjection.CheckThenInsert)
	if err != nil {
		log.Fatal(err)
	}
	right, err := faultinjection.Seed(context.Background(), 50, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("check, then insert:", wrong.Effects, "effects,", wrong.Answers, "answers")
	fmt.Println("atomic claim:", right.Effects, "effect,", right.Answers, "answer")
	// Output:
	// check, then insert: 50 effects, 50 answers
	// atomic claim: 1 effect, 1 answer
}
