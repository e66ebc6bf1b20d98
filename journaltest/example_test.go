package journaltest_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/journaltest"
)

// charge is the code under test.
func charge(client *idem.Client, order string) (status string, err error) {
	req, err := http.NewRequest("POST", "https://api.example.com/charges", strings.NewReader(`{"amount":4200}`))
	if err != nil {
		return "", err
	}
	resp, err := client.Do(order+"/charge", req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	return resp.Status, nil
}

// forgetful is a provider whose first answer is lost. It keeps the keys that
// it saw.
type forgetful struct{ keys []string }

func (p *forgetful) RoundTrip(req *http.Request) (*http.Response, error) {
	defer req.Body.Close()
	p.keys = append(p.keys, req.Header.Get("Idempotency-Key"))
	if len(p.keys) == 1 {
		return nil, errors.New("connection reset")
	}
	return &http.Response{
		Status: "201 Created", StatusCode: 201, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"id":"ch_1"}`)), Request: req,
	}, nil
}

// A unit test of code that charges: the first answer is lost, the charge goes
// out again under the same key, and a second click sends nothing.
func Example() {
	journal := journaltest.New()
	defer journal.Close()
	provider := &forgetful{}
	client := idem.NewClient(&idem.Transport{
		Journal:   journal,
		Base:      provider,
		Contracts: contract.Keyed("Idempotency-Key", 24*time.Hour).At("api.example.com"),
		Retry:     idem.RetryPolicy{MinBackoff: time.Millisecond},
	})
	for range 2 {
		status, err := charge(client, "order-42")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(status, "after", len(provider.keys), "sends, one key:", provider.keys[0] == provider.keys[1])
	}
	// Output:
	// 201 Created after 2 sends, one key: true
	// 201 Created after 2 sends, one key: true
}
