package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// charges is what stands in the place of a retry wrapper.
func charges(ctx context.Context, client *idem.Client, url, order string, amount int) (string, error) {
	body := strings.NewReader(fmt.Sprintf(`{"order":%q,"amount":%d}`, order, amount))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(order+"/charge", req) // no loop, no key, no sleep
	switch {
	case errors.Is(err, idem.ErrNotSent):
		return "try again later", err // nothing was charged
	case errors.Is(err, idem.ErrHeld):
		return "ask a person", err // it may be charged, and nobody sends it again
	case errors.Is(err, idem.ErrUnknownOutcome):
		return "pending", err // it may be charged: call again, or let Run settle it
	case err != nil:
		return "ask a person", err // another request has this name, say
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return "refused", nil // nothing was charged, and nothing will be
	}
	return "charged", nil
}

// The wrapper goes, with its loop and its keys. What is left is one call, and one
// switch over how it ended.
func Example_retryWrapper() {
	s := setStage(keyed(), faultinjection.Unavailable(), faultinjection.DieAfterEffect)
	defer s.close()
	client, journal := s.open("payments.db", keyed())
	defer journal.Close()

	for range 2 { // the second one is a double click
		fmt.Println(charges(context.Background(), client, s.url, "order-42", 4200))
	}
	_, err := charges(context.Background(), client, s.url, "order-42", 1)
	fmt.Println(errors.Is(err, idem.ErrMismatch))
	s.tell()
	// Output:
	// charged <nil>
	// charged <nil>
	// true
	// 3 arrivals, 1 effects
}
