package integration

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// changed is a world whose subject was changed for one test in this process.
func changed(t *testing.T, name string, change func(s *subject), steps ...faultinjection.Step) *world {
	t.Helper()
	w := newWorld(t, name, steps...)
	w.s = new(*w.s)
	change(w.s)
	w.server.Effect = w.s.effect
	return w
}

// What a client makes anew for each call makes the same call another request.
// It is refused, and nothing is sent twice.
func TestPitfalls_OtherBytes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		subject string
		open    func(s site) (func(context.Context) (string, error), error)
	}{
		"a message with a map, in protobuf": {"connect", openPlainConnect},
		"a file, in a multipart form":       {"stripe", openFiles},
		"a call of a tool, with its number": {"mcp behind a gateway", func(s site) (func(context.Context) (string, error), error) {
			return openSession(s, s.http)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := changed(t, test.subject, func(s *subject) { s.open = test.open }, faultinjection.DieAfterEffect)
			l := w.live()
			_, err := l.do(t.Context())
			require.NoError(t, err)
			for range 100 { // one of which has other bytes
				if _, err = l.do(t.Context()); err != nil {
					break
				}
			}
			require.Error(t, err)
			assert.ErrorIs(t, l.result.Err(), idem.ErrMismatch)
			assert.Equal(t, idem.StateSucceeded, l.result.Intent.State)
			assert.Equal(t, 2, w.counts().Arrivals)
			assert.Equal(t, 1, w.counts().Effects)
		})
	}
}

func openPlainConnect(s site) (func(context.Context) (string, error), error) {
	api := connect.NewClient(connecthttp.NewTransport(s.http, s.url))
	order, err := structpb.NewStruct(map[string]any{"order": "order-42", "amount": 4200, "currency": "eur", "card": "visa"})
	return func(ctx context.Context) (string, error) {
		var charge structpb.Struct
		return "", api.CallUnary(ctx, createCharge, order, &charge)
	}, err
}

func openFiles(s site) (func(context.Context) (string, error), error) {
	api := stripeClient(s)
	return func(ctx context.Context) (string, error) {
		file, err := api.V1Files.Create(ctx, &stripe.FileCreateParams{
			FileReader: bytes.NewReader([]byte("scan")), Filename: stripe.String("scan.png"),
			Purpose: stripe.String(string(stripe.FilePurposeDisputeEvidence)),
		})
		return file.ID, err
	}, nil
}

const streamed = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764000000,"model":"gpt-5",` +
	`"choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"

func openStream(s site) (func(context.Context) (string, error), error) {
	api := openai.NewClient(option.WithAPIKey("sk-test-1"), option.WithBaseURL(s.url+"/v1"), option.WithHTTPClient(s.http),
		option.WithMaxRetries(0))
	return func(ctx context.Context) (string, error) {
		stream := api.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
			Model: openai.ChatModelGPT5, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say hello.")},
		})
		defer stream.Close()
		var text strings.Builder
		for stream.Next() {
			text.WriteString(stream.Current().Choices[0].Delta.Content)
		}
		return text.String(), stream.Err()
	}, nil
}

// A stream is not kept: what it said cannot be given again, and a stream that
// broke is not asked for again, even where keys are kept.
func TestPitfalls_Streams(t *testing.T) {
	t.Parallel()
	stream := func(s *subject) {
		s.open = openStream
		s.effect = func(*http.Request, []byte) (int, http.Header, []byte) {
			return 200, http.Header{"Content-Type": {"text/event-stream"}}, []byte(streamed)
		}
	}
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		w := changed(t, "openai behind a gateway", stream, faultinjection.DieAfterEffect)
		l := w.live()
		got, err := l.do(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "Hello.", got)
		_, err = l.do(t.Context())
		require.ErrorIs(t, err, idem.ErrNotKept)
		assert.Equal(t, idem.StateSucceeded, l.result.Intent.State)
		assert.Equal(t, 2, w.counts().Arrivals)
		assert.Equal(t, 1, w.counts().Effects)
	})
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		w := changed(t, "openai behind a gateway", stream, faultinjection.CutAnswer)
		l := w.live()
		_, err := l.do(t.Context())
		require.Error(t, err)
		in, err := l.client.Lookup(t.Context(), operation)
		require.NoError(t, err)
		assert.Equal(t, idem.HoldNotKept, in.HoldReason)
		_, err = l.do(t.Context())
		require.ErrorIs(t, err, idem.ErrHeld)
		assert.Equal(t, 1, w.counts().Arrivals)
	})
}

// A key of one's own is adopted, and needs no name.
func TestPitfalls_OwnKey(t *testing.T) {
	t.Parallel()
	w := changed(t, "stripe", func(s *subject) {
		s.open = func(s site) (func(context.Context) (string, error), error) {
			api := stripeClient(s)
			return func(ctx context.Context) (string, error) {
				params := &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(4200), Currency: stripe.String("eur")}
				params.SetIdempotencyKey("order-42")
				intent, err := api.V1PaymentIntents.Create(idem.WithOperation(ctx, ""), params)
				return intent.ID, err
			}, nil
		}
	}, faultinjection.DieAfterEffect)
	l := w.live()
	for range 2 {
		got, err := l.do(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "pi_1", got)
	}
	assert.Equal(t, []string{"order-42"}, w.keys())
	assert.Equal(t, 2, w.counts().Arrivals)
	assert.Equal(t, 1, w.counts().Effects)
}
