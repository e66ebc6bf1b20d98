package journaltest_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/journaltest"
)

// One operation as a transport writes it: Begin, and the outcome posted.
func BenchmarkNew(b *testing.B) {
	const page = 1_000 // operations of one journal, so that the heap stays small
	names := make([]string, page)
	for i := range names {
		names[i] = "order-" + strconv.Itoa(i) + "/charge"
	}
	now := time.Now().UTC()
	want := idem.Intent{
		Scope: "acct", Key: "8d6f7a3e-5b0c-4a41-9d0e-3f2b1c4d5e6f", Provider: "acme", Method: "POST",
		URL: "https://api.example.com/charges", State: idem.StateInFlight, Attempts: 1, Created: now, FirstSent: now,
		Expires: now.Add(23 * time.Hour), Fingerprint: make([]byte, 32), Place: contract.Place{Header: "Idempotency-Key"},
		Retention: 24 * time.Hour,
		Request: &idem.StoredRequest{
			URL: "https://api.example.com/charges", Body: make([]byte, 512),
			Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}},
		},
	}
	outcome := &idem.Outcome{
		StatusCode: 201, Complete: true, Body: make([]byte, 300), RequestID: "req_1",
		Header: http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req_1"}},
	}
	attempt := &idem.Attempt{Number: 1, Started: now, Ended: now, Phase: "answered", StatusCode: 201, Decision: "succeeded"}
	ctx := b.Context()
	journal := journaltest.New()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n == page {
			n, journal = 0, journaltest.New()
		}
		want.Operation = names[n]
		n++
		in, _, err := journal.Begin(ctx, want)
		if err != nil {
			b.Fatal(err)
		}
		in.State, in.Claimed, in.Settled, in.Outcome = idem.StateSucceeded, false, now, outcome
		if _, err := journal.Update(ctx, in, attempt, false); err != nil {
			b.Fatal(err)
		}
	}
}
