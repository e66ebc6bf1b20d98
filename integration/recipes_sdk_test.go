package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// newStripe is a stripe client whose requests go through idem. Its own retries
// could only repeat what idem has tried.
func newStripe(client *idem.Client, url string) *stripe.Client {
	return stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL:               stripe.String(url), // leave it out for Stripe itself
		HTTPClient:        client.HTTPClient(),
		MaxNetworkRetries: stripe.Int64(0),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})))
}

// pay names the effect for one call of the SDK, and asks the journal how it ended.
func pay(ctx context.Context, api *stripe.Client, order string, amount int64) (*stripe.PaymentIntent, idem.Result, error) {
	var result idem.Result
	ctx = idem.WithResult(idem.WithOperation(ctx, order+"/charge"), &result)
	intent, err := api.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(amount), Currency: stripe.String("eur"),
	})
	return intent, result, err
}

// An SDK gets the http.Client, and each of its calls a context with a name.
func Example_underAnSDK() {
	s := setStage(contract.StripeV1, faultinjection.DieAfterEffect)
	defer s.close()
	s.server.Effect = subjects["stripe"].effect
	client, journal := s.open("payments.db", contract.StripeV1)
	defer journal.Close()

	api := newStripe(client, s.url)
	for range 2 { // the SDK mints another key for the second one
		intent, result, err := pay(context.Background(), api, "order-42", 4200)
		fmt.Println(intent.ID, err, result.Err(), result.Intent.State, "from the journal:", result.FromJournal)
	}
	s.tell()
	// Output:
	// pi_1 <nil> <nil> succeeded from the journal: false
	// pi_1 <nil> <nil> succeeded from the journal: true
	// 2 arrivals, 1 effects
}

// A provider that keeps no keys is asked once. Behind a gateway that keeps them,
// the same client is safe to send again.
func Example_gatewayThatKeepsKeys() {
	for _, gateway := range []bool{false, true} {
		api, server := contract.OpenAI, (*contract.Contract)(nil)
		if gateway {
			api = contract.Keyed("Idempotency-Key", 24*time.Hour)
			server = api
		}
		s := setStage(server, faultinjection.DieAfterEffect)
		s.server.Effect = says(200, completion)
		client, journal := s.open("payments.db", api)

		sdk := openai.NewClient(option.WithAPIKey("sk-test-1"), option.WithBaseURL(s.url+"/v1"),
			option.WithHTTPClient(client.HTTPClient()), option.WithMaxRetries(0))
		var result idem.Result
		ctx := idem.WithResult(idem.WithOperation(context.Background(), "run-7/step-3"), &result)
		_, err := sdk.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
			Model: openai.ChatModelGPT5, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say hello.")},
		})
		fmt.Printf("%t %s %q\n", err == nil, result.Intent.State, result.Intent.HoldReason)
		s.tell()
		must(journal.Close())
		s.close()
	}
	// Output:
	// false held "no_contract"
	// 1 arrivals, 1 effects
	// true succeeded ""
	// 2 arrivals, 1 effects
}

// SDKs that send again by themselves ask idem again, which has done what is safe.
// So their retries are off in every recipe: this is how, for each.
func TestRecipes_NoRetriesOfTheSDK(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(s site) func(ctx context.Context) error{
		"stripe-go": func(s site) func(ctx context.Context) error {
			api := stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
				URL: stripe.String(s.url), HTTPClient: s.http, MaxNetworkRetries: stripe.Int64(0),
				LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
			})))
			return func(ctx context.Context) error {
				_, err := api.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(1), Currency: stripe.String("eur")})
				return err
			}
		},
		"openai-go": func(s site) func(ctx context.Context) error {
			api := openai.NewClient(option.WithAPIKey("k"), option.WithBaseURL(s.url), option.WithHTTPClient(s.http), option.WithMaxRetries(0))
			return func(ctx context.Context) error {
				_, err := api.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: openai.ChatModelGPT5})
				return err
			}
		},
		"anthropic-sdk-go": func(s site) func(ctx context.Context) error {
			api := anthropic.NewClient(anthropicoption.WithoutEnvironmentDefaults(), anthropicoption.WithAPIKey("k"),
				anthropicoption.WithBaseURL(s.url), anthropicoption.WithHTTPClient(s.http), anthropicoption.WithMaxRetries(0))
			return func(ctx context.Context) error {
				_, err := api.Messages.New(ctx, anthropic.MessageNewParams{Model: "claude-sonnet-4-5", MaxTokens: 1})
				return err
			}
		},
		"go-retryablehttp": func(s site) func(ctx context.Context) error {
			api := retryablehttp.NewClient()
			api.HTTPClient, api.Logger, api.RetryMax = s.http, nil, 0
			return func(ctx context.Context) error {
				req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, s.url, []byte("{}"))
				if err == nil {
					_, err = api.Do(req)
				}
				return err
			}
		},
		"resty": func(s site) func(ctx context.Context) error {
			api := resty.NewWithClient(s.http).SetBaseURL(s.url).SetRetryCount(0).SetLogger(silent{})
			return func(ctx context.Context) error {
				resp, err := api.R().SetContext(ctx).SetBody("{}").Post("/")
				if err == nil && resp.IsError() {
					err = fmt.Errorf("%s", resp.Status())
				}
				return err
			}
		},
		"connect": func(s site) func(ctx context.Context) error {
			call, err := openConnect(s)
			require.NoError(t, err)
			return func(ctx context.Context) error { _, err := call(ctx); return err }
		},
		"mcp": func(s site) func(ctx context.Context) error {
			call, err := openSession(s, s.http)
			require.NoError(t, err)
			return func(ctx context.Context) error { _, err := call(ctx); return err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var arrived atomic.Int32
			client := &http.Client{Transport: answers(func(req *http.Request, body []byte) *http.Response {
				if name == "mcp" && rpcMethod(body) != "tools/call" {
					w := httptest.NewRecorder()
					req.Body = io.NopCloser(bytes.NewReader(body))
					mcpServer().ServeHTTP(w, req)
					return w.Result()
				}
				arrived.Add(1)
				return &http.Response{
					Status: "503 Service Unavailable", StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Header: http.Header{}, Request: req,
				}
			})}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.Error(t, open(site{url: "http://provider.example", http: client})(ctx))
			assert.EqualValues(t, 1, arrived.Load())
		})
	}
}

// answers is a server without a network.
type answers func(req *http.Request, body []byte) *http.Response

func (f answers) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		defer req.Body.Close()
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	return f(req.Clone(req.Context()), body), nil
}
