package contract_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/idem-go/idem/contract"
)

// A contract of your own, written from a provider's documentation. Leave out
// what the documentation does not say: zero is the cautious side.
func Example() {
	payments := &contract.Contract{
		Name:    "acme_payments",
		Hosts:   []string{"api.acme.example", "*.sandbox.acme.example"},
		Paths:   []string{"/v2/payments", "/v2/refunds"},
		Methods: []string{http.MethodPost},

		// "Send a UUID in Acme-Request-Id. We remember it for three days."
		Key:       contract.Place{Header: "Acme-Request-Id"},
		Form:      contract.UUID,
		Retention: 72 * time.Hour,
		// "Platforms name the account they act for in Acme-Account."
		ScopeHeaders: []string{"Acme-Account"},

		// "Repeated answers carry Acme-Replay: 1."
		Replayed: contract.Marker{Header: "Acme-Replay", Value: "1"},
		// "409 request_in_progress: try again later."
		InFlight: []contract.Signal{
			{Status: 409, Pointer: "/error/code", Value: "request_in_progress"},
		},
		// "422 request_id_reused: the id belongs to another request."
		Mismatch: []contract.Signal{
			{Status: 422, Pointer: "/error/code", Value: "request_id_reused"},
		},
		// "402 declined is final and given for the id from then on."
		Proven: []contract.Signal{
			{Status: 402, Pointer: "/error/code", Value: "declined"},
		},
		Waits: []contract.Wait{
			{Header: "Acme-Retry-After-Ms", Unit: contract.Milliseconds}, {Header: "Retry-After"},
		},

		Sources: []string{"https://docs.acme.example/idempotency"},
		Checked: "2026-11-29",
	}
	if err := payments.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	contracts := contract.First(payments, contract.Known)

	req, err := http.NewRequest(http.MethodPost, "https://eu.sandbox.acme.example/v2/payments", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c := contracts.Resolve(req)
	fmt.Println(c.Name, c.Retention)
	fmt.Println(c.CheckKey("order-42"))

	body := []byte(`{"error":{"code":"request_in_progress"}}`)
	fmt.Println("in flight:", contract.Any(c.InFlight, 409, http.Header{}, body))
	// Output:
	// acme_payments 72h0m0s
	// contract "acme_payments": the key is not a UUID in its 36-character text form
	// in flight: true
}

// A test double of Stripe is the same contract on another host.
func ExampleContract_At() {
	double := contract.StripeV1.At("127.0.0.1:12111")

	req, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:12111/v1/charges", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c := double.Resolve(req)
	fmt.Println(c.Name, c.Hosts, c.Paths, c.Retention)
	fmt.Println(contract.StripeV1.Resolve(req))
	// Output:
	// stripe_v1 [127.0.0.1:12111] [/v1] 24h0m0s
	// <nil>
}

func ExampleContract_Validate() {
	fmt.Println(contract.Keyed("Authorization", 24*time.Hour).At("https://api.example.com").Validate())
	// Output:
	// contract "keyed": Hosts[0] "https://api.example.com" has a scheme: give the host alone, as in "api.example.com" or "127.0.0.1:8080"
	// contract "keyed": Key.Header "Authorization" has another meaning in HTTP and cannot carry a key
}

func ExamplePlace_Format() {
	place := contract.IETF(24 * time.Hour).Key
	fmt.Println(place.Header+":", place.Format("8e03978e-40d5-43dd-bc93-6894a57f9324"))
	// Output: Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"
}
