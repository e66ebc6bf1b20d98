package integration

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

func init() {
	subjects["otelhttp on top"] = otelOnTop(trace.NewTracerProvider())
	subjects["otelhttp below"] = otelBelow(trace.NewTracerProvider())
	withoutKeys("otelhttp on top")
}

func traced(base http.RoundTripper, provider *trace.TracerProvider) http.RoundTripper {
	return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagation.TraceContext{}))
}

// otelOnTop makes a span of each call.
func otelOnTop(provider *trace.TracerProvider) *subject {
	return &subject{
		server: keyed(), client: at(keyed()), effect: says(201, charge), want: "201 Created ch_1",
		open: func(s site) (func(context.Context) (string, error), error) {
			return posts(&http.Client{Transport: traced(s.http.Transport, provider)}, s.url), nil
		},
	}
}

// otelBelow makes a span of each attempt.
func otelBelow(provider *trace.TracerProvider) *subject {
	return &subject{
		server: keyed(), client: at(keyed()), effect: says(201, charge), want: "201 Created ch_1",
		setup: func(t *idem.Transport, _ string) { t.Base = traced(nil, provider) },
		open: func(s site) (func(context.Context) (string, error), error) {
			return posts(s.http, s.url), nil
		},
	}
}

// posts is a call through an http.Client.
func posts(client *http.Client, url string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", strings.NewReader(order))
		if err != nil {
			return "", err
		}
		req.Header.Set("Content-Type", "application/json")
		return decoded(client.Do(req))
	}
}

func TestOTelWithoutKeys(t *testing.T) { testSentOnce(t, "otelhttp on top without keys") }

func TestOTelOnTop(t *testing.T) { testOneEffect(t, "otelhttp on top") }
func TestOTelBelow(t *testing.T) { testOneEffect(t, "otelhttp below") }

// On top there is one span, whose trace all attempts belong to; below there is
// one for each attempt, in the caller's trace.
func TestOTelSpans(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		subject func(*trace.TracerProvider) *subject
		spans   int
	}{
		"on top": {otelOnTop, 1},
		"below":  {otelBelow, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans := tracetest.NewSpanRecorder()
			provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
			w := newWorld(t, "otelhttp "+name, faultinjection.DieAfterEffect)
			w.s = test.subject(provider)
			l := w.live()
			ctx, caller := provider.Tracer("test").Start(t.Context(), "checkout")
			_, err := l.do(ctx)
			require.NoError(t, err)
			caller.End()
			ended := spans.Ended()
			require.Len(t, ended, test.spans+1)
			for _, span := range ended[:test.spans] {
				assert.Equal(t, caller.SpanContext().SpanID(), span.Parent().SpanID())
			}
			arrivals, err := w.ledger.Arrivals()
			require.NoError(t, err)
			require.Len(t, arrivals, 2)
			for i, a := range arrivals {
				span := ended[min(i, test.spans-1)].SpanContext()
				assert.Equal(t, "00-"+span.TraceID().String()+"-"+span.SpanID().String()+"-01", a.Header.Get("Traceparent"))
			}
		})
	}
}
