package integration

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

func init() {
	subjects["stripe"] = &subject{
		server: contract.StripeV1,
		client: func(host string) contract.Resolver { return contract.StripeAt(host) },
		effect: says(200, `{"id":"pi_1","object":"payment_intent","amount":4200,"currency":"eur","metadata":{"a":"1","b":"2"}}`),
		open:   openStripe,
		want:   "pi_1 4200 eur map[a:1 b:2]",
	}
}

func stripeClient(s site) *stripe.Client {
	return stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(s.url), HTTPClient: s.http, LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})))
}

func openStripe(s site) (func(context.Context) (string, error), error) {
	api := stripeClient(s)
	return func(ctx context.Context) (string, error) {
		intent, err := api.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
			Amount: stripe.Int64(4200), Currency: stripe.String("eur"), Metadata: map[string]string{"a": "1", "b": "2"},
		})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(intent.ID, " ", intent.Amount, " ", intent.Currency, " ", intent.Metadata), nil
	}, nil
}

func TestStripe(t *testing.T) { testOneEffect(t, "stripe") }

// mints notes the keys that the client has made.
type mints struct {
	next http.RoundTripper
	keys []string
}

func (m *mints) RoundTrip(req *http.Request) (*http.Response, error) {
	m.keys = append(m.keys, req.Header.Get("Idempotency-Key"))
	return m.next.RoundTrip(req)
}

// The client mints a key for each call. The journaled one is what is sent.
func TestStripe_KeysOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "stripe", faultinjection.Hold)
	w.killedWhileHeld()
	made := &mints{}
	w.s = new(*w.s)
	w.s.open = func(s site) (func(context.Context) (string, error), error) {
		made.next = s.http.Transport
		return openStripe(site{url: s.url, http: &http.Client{Transport: made}})
	}
	l := w.live()
	w.settles(l)
	require.Len(t, made.keys, 1)
	assert.NotEmpty(t, made.keys[0])
	assert.NotContains(t, w.keys(), made.keys[0])
}

// The first card is refused, and the second one is another generation of the
// same operation, however often it is asked for.
func TestStripe_SecondCard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "stripe", faultinjection.DieAfterEffect)
	w.server.Effect = func(_ *http.Request, body []byte) (int, http.Header, []byte) {
		if bytes.Contains(body, []byte("pm_expired")) {
			return says(402, `{"error":{"type":"card_error","code":"expired_card","message":"Your card has expired."}}`)(nil, nil)
		}
		return w.s.effect(nil, body)
	}
	w.s = new(*w.s)
	w.s.open = func(s site) (func(context.Context) (string, error), error) {
		api := stripeClient(s)
		return func(ctx context.Context) (string, error) {
			card, _ := ctx.Value(cardKey{}).(string)
			intent, err := api.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
				Amount: stripe.Int64(4200), Currency: stripe.String("eur"), PaymentMethod: stripe.String(card),
			})
			return intent.ID, err
		}, nil
	}
	l := w.live()
	first := context.WithValue(t.Context(), cardKey{}, "pm_expired")
	var refused *stripe.Error
	for range 2 {
		_, err := l.do(first)
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, stripe.ErrorCodeExpiredCard, refused.Code)
		assert.Equal(t, idem.StateRejected, l.result.Intent.State)
	}
	second := idem.WithRenewal(context.WithValue(t.Context(), cardKey{}, "pm_good"), l.result.Intent.Key)
	for range 2 {
		got, err := l.do(second)
		require.NoError(t, err)
		assert.Equal(t, "pi_1", got)
		assert.Equal(t, 2, l.result.Intent.Generation)
	}
	assert.Equal(t, 1, w.counts().Effects)
	assert.Len(t, w.keys(), 2)
}

type cardKey struct{}
