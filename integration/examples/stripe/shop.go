package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

const (
	goodCard     = "pm_card_visa"
	declinedCard = "pm_card_chargeDeclined"
)

// shop charges cards by stripe-go, over idem.
type shop struct {
	client *idem.Client
	api    *stripe.Client
}

// stripeV1 is Stripe's contract and one thing more: a declined card is what an
// execution came to, and an execution claims its key before it begins
// (docs.stripe.com/api/idempotent_requests, read 2026-11-30). So it says what became
// of an earlier attempt whose answer was lost: nothing. Without that such an order
// is held for a person.
func stripeV1(host string) contract.Resolver {
	c := contract.StripeV1.Clone()
	c.Proven = append(c.Proven, contract.Signal{Status: http.StatusPaymentRequired, Pointer: "/error/type", Value: "card_error"})
	return c.At(host)
}

// newShop makes the SDK send through idem. Its own retries are off: idem has tried
// what they could try, and knows when.
func newShop(journal idem.Journal, provider string) *shop {
	client := idem.NewClient(&idem.Transport{
		Journal:   journal,
		Contracts: stripeV1(strings.TrimPrefix(provider, "http://")),
		// For a server on loopback that fails on purpose, and a process that is
		// killed all the time: leave it out elsewhere.
		Retry: idem.RetryPolicy{MinBackoff: 5 * time.Millisecond, MaxDeaths: 1000},
	})
	return &shop{client: client, api: stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(provider), HTTPClient: client.HTTPClient(), MaxNetworkRetries: stripe.Int64(0),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})))}
}

// errDeclined asks the customer for another card, for which renews is needed.
type errDeclined struct {
	code   stripe.ErrorCode
	renews string // the key of the refused charge
}

func (e *errDeclined) Error() string { return "declined: " + string(e.code) }

// charge charges an order to a card, once, however often it is called. After it
// was declined, another card starts it anew: renews is what the errDeclined held.
// Called again with the same renews it goes on with that second charge; so it can
// come from a form's hidden field, and a double click makes no third one.
//
// An idem.ErrUnknownOutcome is not a failure: tell the customer that the payment is
// on its way, and call again, or leave it to Client.Run.
func (s *shop) charge(ctx context.Context, order, card, renews string) (*stripe.PaymentIntent, error) {
	var result idem.Result
	ctx = idem.WithResult(idem.WithOperation(ctx, order+"/charge"), &result)
	ctx = idem.WithRenewal(ctx, renews) // empty: none
	intent, err := s.api.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(4200), Currency: stripe.String("eur"), Confirm: stripe.Bool(true),
		PaymentMethod: stripe.String(card), Metadata: map[string]string{"order": order},
	})
	var refused *stripe.Error
	switch {
	case result.Err() != nil: // whatever the SDK made of it
		return nil, result.Err()
	case errors.As(err, &refused) && refused.Type == stripe.ErrorTypeCard:
		return nil, &errDeclined{refused.Code, result.Intent.Key}
	}
	return intent, err
}

// The rest is the customers, and the process that serves them.

func orderName(n int) string { return fmt.Sprintf("order-%d", n) }

// declined says whose first card is declined.
func declined(n int) bool { return n%3 == 0 }

// open serves all customers, those of an earlier process too.
func open(ctx context.Context, a assignment) (err error) {
	journal, err := idem.Open(filepath.Join(a.Dir, journalFile), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	s := newShop(journal, a.URL)
	s.client.Transport.CrashPoint = faultinjection.HookFromEnv()
	for n := range a.Customers {
		if err := s.serve(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// serve has one customer pay.
func (s *shop) serve(ctx context.Context, n int) error {
	card, renews := goodCard, ""
	if declined(n) {
		card = declinedCard
		// What the customer's browser would have kept: the first charge was refused,
		// maybe in the life of an earlier process, and the second one has begun.
		in, err := s.client.Lookup(ctx, orderName(n)+"/charge")
		if err == nil && in.Generation == 2 {
			card, renews = goodCard, in.Renews
		}
	}
	paid := map[string]bool{}
	for len(paid) == 0 {
		for range 2 { // a double click
			intent, err := s.charge(ctx, orderName(n), card, renews)
			var no *errDeclined
			switch {
			case err == nil:
				paid[intent.ID] = true
			case errors.As(err, &no):
				card, renews = goodCard, no.renews
			case errors.Is(err, idem.ErrHeld), !errors.Is(err, idem.ErrUnknownOutcome) && !errors.Is(err, idem.ErrNotSent):
				return err // a person must look at it
			default:
				time.Sleep(20 * time.Millisecond) // and then again
			}
		}
	}
	if len(paid) > 1 {
		return fmt.Errorf("%s was told of %d payments", orderName(n), len(paid))
	}
	return nil
}
