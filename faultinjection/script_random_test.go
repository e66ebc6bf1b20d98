package faultinjection_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// texts are the faults of n attempts.
func texts(t *testing.T, script *faultinjection.Script, n int) (all []string) {
	next := script.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	}))
	for i := range n {
		req, err := http.NewRequest("POST", "http://api.test", nil)
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", fmt.Sprint(i))
		_, _ = next.RoundTrip(req) // it may fail as it likes
	}
	for _, a := range script.Attempts() {
		all = append(all, a.Fault.String())
	}
	return all
}

func TestRandomScriptKeepsToItsSeedAndRate(t *testing.T) {
	const n = 2000
	first := texts(t, faultinjection.RandomScript(keyed, 7, 0.3), n)
	assert.Equal(t, first, texts(t, faultinjection.RandomScript(keyed, 7, 0.3), n))
	assert.NotEqual(t, first, texts(t, faultinjection.RandomScript(keyed, 8, 0.3), n))
	kinds := map[string]int{}
	for _, text := range first {
		kind, number, _ := strings.Cut(text, " ")
		if kind == "answer" {
			kind = text
		} else if number != "" {
			assert.Equal(t, "cut_body", kind)
		}
		kinds[kind]++
	}
	t.Log(kinds)
	assert.InDelta(t, 0.7*n, kinds["pass"], 0.05*n)
	for _, kind := range []string{
		"drop_request", "drop_response", "abandon", "cut_header", "cut_body", "answer 429", "answer 502", "answer 503",
	} {
		assert.Greater(t, kinds[kind], n/50, kind)
	}
	assert.Len(t, kinds, 9)

	for _, text := range texts(t, faultinjection.RandomScript(nil, 7, 0), 100) {
		assert.Equal(t, "pass", text)
	}
	assert.NotContains(t, texts(t, faultinjection.RandomScript(nil, 7, 1), 100), "pass")
	for _, rate := range []float64{-0.1, 1.1, math.NaN()} {
		script := faultinjection.RandomScript(nil, 7, rate)
		_, err := (&http.Client{Transport: script.Wrap(nil)}).Get("http://127.0.0.1:1")
		require.ErrorContains(t, err, "is not between 0 and 1")
	}
}

// A client that keeps its key has one effect for each order, whatever happens and
// whatever arrives late, and many have at once.
func TestRandomScriptWithManyAtOnce(t *testing.T) {
	const orders = 100
	synctest.Test(t, func(t *testing.T) {
		b := inMemory(t, keyed)
		script := faultinjection.RandomScript(keyed, 1, 0.5).On(func(a faultinjection.Attempt, _ *http.Request) faultinjection.Fault {
			return a.Fault.Delayed(time.Duration(a.Sum[0]) * time.Millisecond)
		})
		b.client.Transport, b.client.Timeout = script.Wrap(b.server.Transport()), 0
		var all sync.WaitGroup
		for i := range orders {
			all.Go(func() {
				for range 30 {
					answer := b.send(b.request("POST", "/charges", fmt.Sprintf(`{"order":"order-%d"}`, i), fmt.Sprint("key-", i)))
					if answer.err == nil && answer.status == 201 {
						return
					}
					time.Sleep(time.Second)
				}
				t.Error("never settled")
			})
		}
		all.Wait()
		require.NoError(t, script.Release(t.Context()))
		counts, err := b.ledger.Counts()
		require.NoError(t, err)
		assert.Equal(t, orders, counts.Effects)
		assert.Equal(t, orders, counts.Operations)
		seen, attempts := map[string]bool{}, script.Attempts()
		for _, a := range attempts {
			id := fmt.Sprint(a.Key, " ", a.N)
			assert.False(t, seen[id], "counted twice: %s", id)
			seen[id] = true
			assert.True(t, a.N == 1 || seen[fmt.Sprint(a.Key, " ", a.N-1)], "left out before: %s", id)
		}
		t.Logf("%d attempts, %d arrivals, %d replays", len(attempts), counts.Arrivals, counts.Outcomes["replayed"])
		assert.Greater(t, counts.Outcomes["replayed"], orders/10)
		assert.Greater(t, len(attempts), counts.Arrivals)
	})
}
