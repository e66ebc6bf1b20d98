package contract

import "net/http"

func squareHosts() []string { return []string{"connect.squareup.com", "connect.squareupsandbox.com"} }

// The code is in api.json and in the page on idempotency; its status is not
// verified. Read 2026-11-29.
var squareMismatch = []Signal{
	{Status: http.StatusBadRequest, Pointer: "/errors/0/code", Value: "IDEMPOTENCY_KEY_REUSED"},
}

// squareWaits is the order of square-go-sdk's internal/retrier.go, read
// 2026-11-29.
var squareWaits = []Wait{{Header: "Retry-After"}, {Header: "X-RateLimit-Reset", Unit: UnixSeconds}}

func squareSources(more ...string) []string {
	return append([]string{
		"https://github.com/square/connect-api-specification/blob/master/api.json",
		"https://github.com/square/square-go-sdk/blob/master/internal/retrier.go",
	}, more...)
}

// SquarePayments is the contract of Square's CreatePayment and RefundPayment:
// the key is a member of the JSON body. How long it is remembered is not
// published. A payment whose fate is unknown can be undone by
// CancelPaymentByIdempotencyKey. The other routes below /v2/payments take no key
// of their own. It is read-only; see [Contract.Clone].
var SquarePayments = &Contract{
	Name:       "square_payments",
	Hosts:      squareHosts(),
	Paths:      []string{"/v2/payments", "/v2/refunds"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// CreatePaymentRequest and RefundPaymentRequest of api.json, read 2026-11-29.
	Key:       Place{Pointer: "/idempotency_key"},
	MaxLength: 45,

	Replay:   ReplayVerbatim,
	Mismatch: squareMismatch,
	Waits:    squareWaits,

	Sources: squareSources("https://developer.squareup.com/docs/working-with-apis/idempotency"),
	Checked: "2026-11-29",
}

// SquareOrders is the contract of Square's CreateOrder and PayOrder: the key is
// a member of the JSON body. How long it is remembered is not published. It is
// read-only; see [Contract.Clone].
var SquareOrders = &Contract{
	Name:       "square_orders",
	Hosts:      squareHosts(),
	Paths:      []string{"/v2/orders", "/v2/orders/*/pay"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// CreateOrderRequest and PayOrderRequest of api.json, read 2026-11-29.
	Key:       Place{Pointer: "/idempotency_key"},
	MaxLength: 192,

	Replay:   ReplayVerbatim,
	Mismatch: squareMismatch,
	Waits:    squareWaits,

	Sources: squareSources(),
	Checked: "2026-11-29",
}
