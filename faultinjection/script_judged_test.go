package faultinjection_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// judged sends once through idem, and returns what its journal says.
func judged(t *testing.T, journal *idem.SQLiteJournal, operation string, base http.RoundTripper, url string) (idem.Attempt, error) {
	t.Helper()
	client := idem.NewClient(&idem.Transport{
		Journal: journal, Name: operation, Base: base, Contracts: keyed,
		Retry: idem.RetryPolicy{MaxAttempts: 1, AttemptTimeout: 10 * time.Second},
	})
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/charges", strings.NewReader(order))
	require.NoError(t, err)
	resp, sent := client.Do(operation, req)
	if sent == nil {
		resp.Body.Close()
	}
	in, err := client.Lookup(t.Context(), operation)
	require.NoError(t, err)
	attempts, err := journal.Attempts(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, attempts, 1)
	return attempts[0], sent
}

// Each fault looks to a client as it does on a real connection: the same hooks,
// the same judgement.
func TestScriptLooksLikeTheWire(t *testing.T) {
	journal, err := idem.Open(filepath.Join(t.TempDir(), "journal.db"), nil)
	require.NoError(t, err)
	defer journal.Close()
	cut := func(end faultinjection.ConnEnd, up bool) func(*testing.T, bench, *faultinjection.Proxy) {
		return func(_ *testing.T, _ bench, p *faultinjection.Proxy) {
			f := faultinjection.ConnFault{Down: faultinjection.Flow{End: end, After: 10}}
			if up {
				f.Up, f.Down = f.Down, f.Up
			}
			p.Next(f)
		}
	}
	for _, test := range []struct {
		fault          faultinjection.Fault
		real           func(*testing.T, bench, *faultinjection.Proxy)
		phase, becomes string
		sent           error // what the call's error is; nil: none
	}{
		{faultinjection.Pass, func(*testing.T, bench, *faultinjection.Proxy) {}, "answered", "succeeded", nil},
		{faultinjection.DropRequest, func(t *testing.T, _ bench, p *faultinjection.Proxy) { require.NoError(t, p.Refuse()) },
			"not_sent", "not_sent", idem.ErrNotSent},
		{faultinjection.DropResponse, func(_ *testing.T, b bench, _ *faultinjection.Proxy) { b.server.Plan(faultinjection.DieAfterEffect) },
			"maybe_sent", "no_answer", idem.ErrUnknownOutcome},
		{faultinjection.Abandon, cut(faultinjection.Reset, true), "maybe_sent", "no_answer", idem.ErrUnknownOutcome},
		{faultinjection.CutHeader, cut(faultinjection.Cut, false), "maybe_sent", "no_answer", idem.ErrUnknownOutcome},
		{faultinjection.CutBody(20), func(_ *testing.T, b bench, _ *faultinjection.Proxy) { b.server.Plan(faultinjection.CutAnswer) },
			"answered", "answer_cut", idem.ErrUnknownOutcome},
	} {
		t.Run(test.fault.String(), func(t *testing.T) {
			check := func(wire string, h *hooks, ends []error, base http.RoundTripper, url string) []error {
				attempt, err := judged(t, journal, wire+" "+test.fault.String(), traced{base, h}, url)
				assert.Equal(t, test.phase, attempt.Phase)
				assert.Equal(t, test.becomes, attempt.Decision)
				if test.sent == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, test.sent)
				}
				return append(ends, err)
			}
			var scripted, real hooks
			b, _ := scriptBench(t, test.fault)
			ends := check("script", &scripted, nil, b.client.Transport, b.url)

			b = newBench(t, keyed)
			running, err := b.server.Listen()
			require.NoError(t, err)
			defer running.Close()
			proxy := mustProxy(t, running.URL)
			test.real(t, b, proxy)
			base := &http.Transport{DisableKeepAlives: true}
			ends = check("real", &real, ends, base, "http://"+proxy.Addr())
			assert.Equal(t, real.all(), scripted.all())
			var ops [2]*net.OpError
			for i, err := range ends {
				errors.As(err, &ops[i])
			}
			if ops[1] != nil {
				require.NotNil(t, ops[0])
				assert.Equal(t, ops[1].Op == "dial", ops[0].Op == "dial", "real: %v, scripted: %v", ops[1], ops[0])
			}
		})
	}
}

// traced hears the hooks beside the client above it.
type traced struct {
	http.RoundTripper
	h *hooks
}

func (w traced) RoundTrip(req *http.Request) (*http.Response, error) {
	return w.RoundTripper.RoundTrip(req.WithContext(w.h.on(req.Context())))
}

// A test in virtual time catches the client of the example: its waits are
// minutes, and take none.
func TestScriptCatchesAWrongClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := mustOpen(t, "")
		server := faultinjection.NewServer(keyed, ledger)
		script := faultinjection.NewScript(keyed, faultinjection.DropResponse.Delayed(30*time.Second))
		start := time.Now()
		require.NoError(t, charge(&http.Client{Transport: script.Wrap(server.Transport())}, "order-42", time.Minute))
		effects, err := ledger.EffectsOf("order-42")
		require.NoError(t, err)
		assert.Equal(t, 2, effects)
		assert.Equal(t, 90*time.Second, time.Since(start))
	})
}

// And idem under the same script is right, in the same virtual time.
func TestScriptFindsNothingInIdem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, script := scriptBench(t, faultinjection.DropRequest, faultinjection.DropResponse, faultinjection.CutBody(30).Delayed(time.Minute))
		journal, err := idem.Open(filepath.Join(t.TempDir(), "journal.db"), nil)
		require.NoError(t, err)
		defer journal.Close()
		client := idem.NewClient(&idem.Transport{Journal: journal, Base: b.client.Transport, Contracts: keyed})
		resp, err := client.Do("order-42", b.request("POST", "/charges", order).WithContext(context.WithoutCancel(t.Context())))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		attempts := script.Attempts()
		require.Len(t, attempts, 4)
		for i, a := range attempts {
			assert.Equal(t, i+1, a.N, "one key")
			assert.Equal(t, attempts[0].Sum, a.Sum, "the same bytes")
		}
		assert.Equal(t, 1, b.effects())
	})
}
