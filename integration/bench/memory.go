package main

import (
	"context"
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/google/uuid"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stripe/stripe-go/v85"
)

// The clients of this file keep all that they know in memory: they have no
// accept and no audit.

// mint makes a new key for each call.
func mint(string) string { return uuid.NewString() }

// ofOrder makes the same key for each call of an order, in every process.
func ofOrder(order string) string { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(order)).String() }

// asks makes one call of client for each order, with a key of its own.
func asks(url string, client *http.Client) func(order string) error {
	return func(order string) error {
		req, err := newRequest(context.Background(), url, order, mint(order))
		if err != nil {
			return err
		}
		return charged(client.Do(req))
	}
}

func closer(transport *http.Transport) func() error {
	return func() error {
		transport.CloseIdleConnections()
		return nil
	}
}

// openBare is http.Client alone, one attempt for each call. (With this header
// net/http sends again by itself when a connection breaks that was used before.)
func openBare(s site) (*tool, error) {
	transport := base()
	client := &http.Client{Transport: transport, Timeout: attemptTimeout}
	return &tool{
		ask:   asks(s.url, client),
		close: closer(transport),
	}, nil
}

// openRetryable has the key in the request, and so in each retry of the call.
func openRetryable(key func(order string) string) func(site) (*tool, error) {
	return func(s site) (*tool, error) {
		transport := base()
		client := retryablehttp.NewClient()
		client.HTTPClient = &http.Client{Transport: transport, Timeout: attemptTimeout}
		client.Logger = nil
		client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = retries, minWait, maxWait
		return &tool{
			ask: func(order string) error {
				plain, err := newRequest(context.Background(), s.url, order, key(order))
				if err != nil {
					return err
				}
				req, err := retryablehttp.FromRequest(plain)
				if err != nil {
					return err
				}
				return charged(client.Do(req))
			},
			close: closer(transport),
		}, nil
	}
}

func openFailsafe(s site) (*tool, error) {
	transport := base()
	transport.ResponseHeaderTimeout = attemptTimeout
	policy := failsafehttp.NewRetryPolicyBuilder().WithBackoff(minWait, maxWait).WithMaxRetries(retries).Build()
	client := &http.Client{Transport: failsafehttp.NewRoundTripper(transport, policy)}
	return &tool{
		ask:   asks(s.url, client),
		close: closer(transport),
	}, nil
}

// openStripe lets the client mint its keys, one for each call. Its waits, of
// 0.5 to 5 s, cannot be chosen.
func openStripe(s site) (*tool, error) {
	transport := base()
	api := stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL:               stripe.String(s.url),
		HTTPClient:        &http.Client{Transport: transport, Timeout: attemptTimeout},
		MaxNetworkRetries: stripe.Int64(retries),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})))
	return &tool{
		ask: func(order string) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, err := api.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
				Amount: stripe.Int64(4200), Currency: stripe.String("eur"),
				Metadata: map[string]string{"order": order, "filler": filler[:380]},
			})
			return err
		},
		close: closer(transport),
	}, nil
}
