package integration

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// observed makes a span of each attempt, in the trace of the call or of the resume
// that makes it, and an event of each wait and of each end.
func observed(tracer oteltrace.Tracer) *idem.Observer {
	event := func(ctx context.Context, name string, in idem.Intent, more ...attribute.KeyValue) {
		more = append(more, attribute.String("idem.operation", in.Operation), attribute.String("idem.state", string(in.State)))
		oteltrace.SpanFromContext(ctx).AddEvent(name, oteltrace.WithAttributes(more...))
	}
	return &idem.Observer{
		Attempted: func(ctx context.Context, in idem.Intent, a idem.Attempt) {
			_, span := tracer.Start(ctx, in.Method+" "+in.Provider, oteltrace.WithTimestamp(a.Started),
				oteltrace.WithSpanKind(oteltrace.SpanKindClient), oteltrace.WithAttributes(
					attribute.String("idem.operation", in.Operation), attribute.String("idem.decision", a.Decision),
					attribute.String("http.request.method", in.Method), attribute.String("url.full", in.URL), // it has no query
				))
			if a.Number > 1 { // counted over restarts
				span.SetAttributes(attribute.Int("http.request.resend_count", a.Number-1))
			}
			if a.StatusCode != 0 {
				span.SetAttributes(attribute.Int("http.response.status_code", a.StatusCode))
			}
			if a.Error != "" {
				span.SetStatus(codes.Error, a.Error)
			}
			span.End(oteltrace.WithTimestamp(a.Ended))
		},
		Waiting: func(ctx context.Context, in idem.Intent, wait time.Duration) {
			event(ctx, "idem.waiting", in, attribute.Float64("idem.wait", wait.Seconds()))
		},
		Settled: func(ctx context.Context, in idem.Intent) { event(ctx, "idem.settled", in) },
		Held: func(ctx context.Context, in idem.Intent) {
			event(ctx, "idem.held", in, attribute.String("idem.hold_reason", string(in.HoldReason)))
		},
	}
}

func Example_openTelemetry() {
	s := setStage(keyed(), faultinjection.DieAfterEffect)
	defer s.close()
	client, journal := s.open("payments.db", keyed())
	defer journal.Close()
	spans := tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("shop")
	client.Transport.Observer = observed(tracer)

	ctx, checkout := tracer.Start(context.Background(), "checkout")
	fmt.Println(charges(ctx, client, s.url, "order-42", 4200))
	checkout.End()

	for _, span := range spans.Ended() {
		fmt.Println(span.Name(), span.Status().Code)
		for _, a := range span.Attributes() {
			if a.Key == "http.request.resend_count" || a.Key == "http.response.status_code" || a.Key == "idem.decision" {
				fmt.Println(" ", a.Key, a.Value.Emit())
			}
		}
		for _, e := range span.Events() {
			fmt.Println(" ", e.Name)
		}
	}
	// Output:
	// charged <nil>
	// POST keyed Error
	//   idem.decision no_answer
	// POST keyed Unset
	//   idem.decision replayed
	//   http.request.resend_count 1
	//   http.response.status_code 201
	// checkout Unset
	//   idem.waiting
	//   idem.settled
}
