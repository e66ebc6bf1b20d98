package faultinjection_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

func TestReplayIsMarkedAndEqual(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		first, second := b.post("k1"), b.post("k1")
		require.NoError(t, first.err)
		require.NoError(t, second.err)
		assert.Equal(t, 201, first.status)
		assert.Contains(t, first.body, "order-42")
		assert.Empty(t, first.header.Get("Idempotent-Replayed"))
		assert.Equal(t, first.status, second.status)
		assert.Equal(t, first.body, second.body)
		assert.Equal(t, first.header.Get("Content-Type"), second.header.Get("Content-Type"))
		assert.Equal(t, "true", second.header.Get("Idempotent-Replayed"))
		assert.Equal(t, 1, b.effects())
		assert.Equal(t, []faultinjection.Outcome{"executed", "replayed"}, b.outcomes())

		other := b.post("k2")
		assert.NotEqual(t, first.body, other.body, "another key is another charge")
		n, err := b.ledger.EffectsOf("order-42")
		require.NoError(t, err)
		assert.Equal(t, 2, n)
	})
}

func TestReplayMarkerIsTheContracts(t *testing.T) {
	c := keyed.Clone()
	c.Replayed = contract.Marker{Header: "X-From-Store", Value: "yes"}
	b := inMemory(t, c)
	assert.Empty(t, b.post("k1").header.Get("X-From-Store"))
	again := b.post("k1")
	assert.Equal(t, "yes", again.header.Get("X-From-Store"))
	assert.Empty(t, again.header.Get("Idempotent-Replayed"))

	c = contract.IETF(day) // knows no marker
	b = inMemory(t, c)
	b.post(`"k1"`)
	assert.Equal(t, "true", b.post(`"k1"`).header.Get("Idempotent-Replayed"))
}

func TestMismatch(t *testing.T) {
	for name, req := range map[string][3]string{
		"method": {"PUT", "/charges", order},
		"path":   {"POST", "/refunds", order},
		"query":  {"POST", "/charges?expand=1", order},
		"body":   {"POST", "/charges", order + " "},
	} {
		t.Run(name, func(t *testing.T) {
			b := inMemory(t, keyed)
			require.Equal(t, 201, b.post("k1").status)
			answer := b.send(b.request(req[0], req[1], req[2], "k1"))
			assert.Equal(t, 422, answer.status)
			assert.Equal(t, "application/problem+json", answer.header.Get("Content-Type"))
			assert.Equal(t, 1, b.effects())
			assert.Equal(t, []faultinjection.Outcome{"executed", "mismatch"}, b.outcomes())
			assert.Equal(t, "true", b.post("k1").header.Get("Idempotent-Replayed"), "the first request keeps its answer")
		})
	}
}

func TestMismatchComesBeforeInFlight(t *testing.T) {
	b := inMemory(t, keyed)
	b.server.Plan(faultinjection.Hold)
	first := b.later(b.request("POST", "/charges", order, "k1"))
	b.awaitHeld(1)
	assert.Equal(t, 422, b.send(b.request("POST", "/charges", "{}", "k1")).status)
	b.server.Release()
	assert.Equal(t, 201, (<-first).status)
}

// Whatever a contract lists as mismatch or in flight is what the server says.
func TestAnswersMatchTheContract(t *testing.T) {
	custom := keyed.Clone()
	custom.Mismatch = []contract.Signal{{Status: 409, Pointer: "/errors/0/a~1b/code", Value: "7", Header: contract.Marker{Header: "X-Code"}}}
	custom.InFlight = []contract.Signal{{Status: 425, Header: contract.Marker{Header: "Link", Param: "rel", Value: "describedby"}}}
	for _, c := range []*contract.Contract{keyed, contract.IETF(day), contract.StripeV1, contract.StripeV2, contract.Adyen, custom} {
		t.Run(c.Name, func(t *testing.T) {
			b := inMemory(t, c)
			path, key := "/charges", c.Key.Format("8e03978e-40d5-43e8-bc93-6894a57f9324")
			if c.Paths != nil {
				path = c.Paths[0] + path
			}
			b.server.Plan(faultinjection.Hold)
			first := b.later(b.request("POST", path, order, key))
			b.awaitHeld(1)
			inFlight := b.send(b.request("POST", path, order, key))
			mismatch := b.send(b.request("POST", path, "{}", key))
			b.server.Release()
			require.Equal(t, 201, (<-first).status)
			require.Equal(t, []faultinjection.Outcome{"executed", "in_flight", "mismatch"}, b.outcomes())
			assert.NotEmpty(t, inFlight.header.Get("Retry-After"))
			assert.True(t, contract.Any(c.InFlight, inFlight.status, inFlight.header, []byte(inFlight.body)), inFlight)
			if c.Mismatch != nil {
				assert.True(t, contract.Any(c.Mismatch, mismatch.status, mismatch.header, []byte(mismatch.body)), mismatch)
			} else {
				assert.Equal(t, 422, mismatch.status)
			}
		})
	}
}

func TestInFlight(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		b.server.RetryAfter = 1500 * time.Millisecond
		b.server.Plan(faultinjection.Hold)
		first := b.later(b.request("POST", "/charges", order, "k1"))
		b.awaitHeld(1)
		answer := b.post("k1")
		assert.Equal(t, 409, answer.status)
		assert.Equal(t, "2", answer.header.Get("Retry-After"), "whole seconds, never too early")
		assert.Equal(t, 201, b.post("k2").status, "another key is free")
		b.server.Release()
		executed := <-first
		assert.Equal(t, 201, executed.status)
		assert.Equal(t, executed.body, b.post("k1").body)
		assert.Equal(t, []faultinjection.Outcome{"executed", "in_flight", "executed", "replayed"}, b.outcomes())
	})
}

func TestWaitIsWrittenAsTheContractSays(t *testing.T) {
	c := keyed.Clone()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		unit contract.Unit
		want string
	}{{contract.Seconds, "2"}, {contract.Milliseconds, "1500"}, {contract.UnixSeconds, fmt.Sprint(at.Unix() + 2)}} {
		c.Waits = []contract.Wait{{Header: "X-Wait", Unit: test.unit}}
		b := inMemory(t, c)
		b.server.Now = func() time.Time { return at }
		b.server.Plan(faultinjection.Unavailable(1500 * time.Millisecond))
		assert.Equal(t, test.want, b.post("k1").header.Get("X-Wait"))
	}
}

func TestKeyIsForgottenAfterRetention(t *testing.T) {
	for name, override := range map[string]time.Duration{"contract": 0, "override": time.Hour} {
		t.Run(name, func(t *testing.T) {
			retention := day
			if override != 0 {
				retention = override
			}
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			b := inMemory(t, keyed)
			b.server.Retention, b.server.Now = override, func() time.Time { return now }
			first := b.post("k1")
			assert.Equal(t, now.Format(http.TimeFormat), first.header.Get("Date"))
			now = now.Add(retention / 2)
			require.Equal(t, first.body, b.post("k1").body)
			now = now.Add(retention/2 - time.Second)
			require.Equal(t, first.body, b.post("k1").body, "a replay must not make the key younger, nor older")
			now = now.Add(time.Second)
			again := b.post("k1")
			assert.Equal(t, 201, again.status)
			assert.NotEqual(t, first.body, again.body)
			assert.Equal(t, 2, b.effects())
			assert.Equal(t, again.body, b.post("k1").body, "the new claim is stored")
			assert.Equal(t, []faultinjection.Outcome{"executed", "replayed", "replayed", "executed", "replayed"}, b.outcomes())
		})
	}
}

func TestUnknownRetentionIsForEver(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := inMemory(t, contract.Keyed("Idempotency-Key", 0))
	b.server.Now = func() time.Time { return now }
	b.post("k1")
	now = now.Add(100 * 365 * day)
	b.post("k1")
	assert.Equal(t, 1, b.effects())
}

func TestAKeyInFlightIsNeverForgotten(t *testing.T) {
	var mu sync.Mutex
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := inMemory(t, keyed)
	b.server.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	b.server.Plan(faultinjection.Hold)
	first := b.later(b.request("POST", "/charges", order, "k1"))
	b.awaitHeld(1)
	mu.Lock()
	now = now.Add(2 * day)
	mu.Unlock()
	assert.Equal(t, 409, b.post("k1").status)
	b.server.Release()
	assert.Equal(t, 201, (<-first).status)
}

func TestBadKeys(t *testing.T) {
	uuidOnly := keyed.Clone()
	uuidOnly.Form = contract.UUID
	for _, test := range []struct {
		name     string
		contract *contract.Contract
		keys     []string
	}{
		{"missing", keyed, nil},
		{"empty", keyed, []string{""}},
		{"two", keyed, []string{"k1", "k2"}},
		{"twice the same", keyed, []string{"k1", "k1"}},
		{"too long", keyed, []string{strings.Repeat("k", 256)}},
		{"space inside", keyed, []string{"k 1"}},
		{"raw where quoted", contract.IETF(day), []string{"k1"}},
		{"no UUID", uuidOnly, []string{"k1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := inMemory(t, test.contract)
			assert.Equal(t, 400, b.post(test.keys...).status)
			assert.Zero(t, b.effects())
			arrivals, err := b.ledger.Arrivals()
			require.NoError(t, err)
			require.Len(t, arrivals, 1)
			assert.Equal(t, faultinjection.OutcomeBadKey, arrivals[0].Outcome)
			assert.Equal(t, test.keys, arrivals[0].Keys)
		})
	}
}

func TestQuotedKeyIsStoredBare(t *testing.T) {
	b := inMemory(t, contract.IETF(day))
	require.Equal(t, 201, b.post(`"k1"`).status)
	effects, err := b.ledger.Effects()
	require.NoError(t, err)
	require.Len(t, effects, 1)
	assert.Equal(t, "k1", effects[0].Key)
}

func TestWithoutKeysEveryRequestExecutes(t *testing.T) {
	for name, c := range map[string]*contract.Contract{
		"nil": nil, "NoKeys": contract.Unsupported, "other path": contract.StripeV1,
	} {
		t.Run(name, func(t *testing.T) {
			b := inMemory(t, c)
			assert.Equal(t, 201, b.post("k1").status)
			assert.Equal(t, 201, b.post("k1").status)
			assert.Equal(t, 2, b.effects())
			counts, err := b.ledger.Counts()
			require.NoError(t, err)
			assert.Equal(t, 1, counts.Duplicates)
		})
	}
}

func TestContractIsTakenOnAnyHost(t *testing.T) {
	b := inMemory(t, contract.StripeV1)
	for range 2 {
		b.send(b.request("POST", "/v1/charges", order, "k1"))
	}
	assert.Equal(t, 1, b.effects())
}

func TestScopeHeadersSeparateKeys(t *testing.T) {
	b := inMemory(t, contract.StripeV1)
	for _, account := range []string{"acct_1", "acct_2", "acct_1"} {
		req := b.request("POST", "/v1/charges", order, "k1")
		req.Header.Set("Stripe-Account", account)
		require.Equal(t, 201, b.send(req).status)
	}
	assert.Equal(t, []faultinjection.Outcome{"executed", "executed", "replayed"}, b.outcomes())
}

func TestFailures(t *testing.T) {
	storing := keyed.Clone()
	storing.StoresServerErrors = true
	for _, test := range []struct {
		name     string
		contract *contract.Contract
		option   bool
		stored   bool
	}{
		{"dropped", keyed, false, false},
		{"stored by contract", storing, false, true},
		{"stored by option", keyed, true, true},
	} {
		for _, status := range []int{402, 500} {
			t.Run(fmt.Sprint(test.name, " ", status), func(t *testing.T) {
				b := inMemory(t, test.contract)
				b.server.StoreFailures = test.option
				b.server.Plan(faultinjection.Fail(status))
				first := b.post("k1")
				assert.Equal(t, status, first.status)
				assert.Zero(t, b.effects(), "a failure has no effect")
				second := b.post("k1")
				if test.stored {
					assert.Equal(t, first.body, second.body)
					assert.Equal(t, "true", second.header.Get("Idempotent-Replayed"))
					assert.Zero(t, b.effects())
				} else {
					assert.Equal(t, 201, second.status, "the claim was dropped")
					assert.Equal(t, 1, b.effects())
				}
			})
		}
	}
}

func TestFailAfterEffectIsAlwaysStored(t *testing.T) {
	b := inMemory(t, keyed)
	b.server.Plan(faultinjection.FailAfterEffect(500))
	assert.Equal(t, 500, b.post("k1").status)
	again := b.post("k1")
	assert.Equal(t, 500, again.status)
	assert.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	assert.Equal(t, 1, b.effects())
}

func TestEffectAndOperationOptions(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		b.server.Effect = func(r *http.Request, body []byte) (int, http.Header, []byte) {
			return 202, http.Header{"X-Charge": {"ch_1"}}, []byte("charged " + string(body))
		}
		b.server.Operation = func(r *http.Request, body []byte) string { return r.Header.Get("X-Operation") }
		req := b.request("POST", "/charges", "4200", "k1")
		req.Header.Set("X-Operation", "order-7")
		first := b.send(req)
		assert.Equal(t, 202, first.status)
		assert.Equal(t, "charged 4200", first.body)
		assert.Equal(t, "ch_1", first.header.Get("X-Charge"))
		assert.Equal(t, "text/plain; charset=utf-8", first.header.Get("Content-Type"))
		again := b.send(b.request("POST", "/charges", "4200", "k1"))
		assert.Equal(t, "ch_1", again.header.Get("X-Charge"), "headers are replayed too")
		n, err := b.ledger.EffectsOf("order-7")
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	})
}

func TestOperationNames(t *testing.T) {
	for body, want := range map[string]string{
		`{"order":"order-42","operation":"x"}`: "order-42",
		`{"operation":"refund-1"}`:             "refund-1",
		`{"order":12345678901234567890}`:       "12345678901234567890",
		`{"order":{}}`:                         "/charges",
		`amount=4200`:                          "/charges",
		``:                                     "/charges",
	} {
		b := inMemory(t, keyed)
		require.Equal(t, 201, b.send(b.request("POST", "/charges", body, "k1")).status)
		effects, err := b.ledger.Effects()
		require.NoError(t, err)
		require.Len(t, effects, 1)
		assert.Equal(t, want, effects[0].Operation)
		assert.Equal(t, body, string(effects[0].Body))
	}
}

func TestSafeMethodsHaveNoEffect(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		require.Equal(t, 201, b.send(b.request("POST", "/charges/7", "", "k1")).status)
		read := b.send(b.request("GET", "/charges/7", ""))
		assert.Equal(t, 200, read.status)
		assert.JSONEq(t, `{"operation":"/charges/7","effects":1}`, read.body)
		head := b.send(b.request("HEAD", "/charges/7", ""))
		assert.Equal(t, 200, head.status)
		assert.Empty(t, head.body)
		assert.Equal(t, 1, b.effects())
		assert.Equal(t, []faultinjection.Outcome{"executed", "read", "read"}, b.outcomes())
	})
}

func TestAClientThatLeavesDoesNotStopTheExecution(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		b.server.Plan(faultinjection.Hold)
		ctx, cancel := context.WithCancel(t.Context())
		first := b.later(b.request("POST", "/charges", order, "k1").WithContext(ctx))
		b.awaitHeld(1)
		cancel()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		b.server.Release()
		require.Eventually(t, func() bool { return b.effects() == 1 }, 10*time.Second, time.Millisecond)
		assert.Equal(t, "true", b.post("k1").header.Get("Idempotent-Replayed"))
	})
}

func TestAPanicInEffectDropsTheClaim(t *testing.T) {
	b := inMemory(t, keyed)
	b.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) { panic("out of money") }
	assert.PanicsWithValue(t, "out of money", func() { b.post("k1") })
	assert.Equal(t, []faultinjection.Outcome{"died"}, b.outcomes())
	b.server.Effect = nil
	assert.Equal(t, 201, b.post("k1").status)
}

// An execution that a newer life of the server has given up must not have its
// effect any more: the newer one runs the key again.
func TestAnOlderLifeCannotExecuteAnyMore(t *testing.T) {
	b := inMemory(t, keyed)
	b.server.Plan(faultinjection.Hold)
	first := b.later(b.request("POST", "/charges", order, "k1"))
	b.awaitHeld(1)
	next := bench{t: t, ledger: b.ledger, server: faultinjection.NewServer(keyed, b.ledger), url: b.url}
	next.client = &http.Client{Transport: next.server.Transport()}
	assert.Equal(t, 201, next.post("k1").status)
	b.server.Release()
	require.Error(t, (<-first).err)
	assert.Equal(t, 1, b.effects())
	assert.Equal(t, []faultinjection.Outcome{"died", "executed"}, b.outcomes())
}

func TestABadContractIsTold(t *testing.T) {
	b := inMemory(t, &contract.Contract{Name: "nowhere"})
	answer := b.post("k1")
	assert.Equal(t, 500, answer.status)
	assert.Contains(t, answer.body, "Key")
}

func TestALargeBodyIsRefused(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		answer := b.send(b.request("POST", "/charges", strings.Repeat("x", 16<<20+1), "k1"))
		assert.True(t, answer.status == 413 || answer.err != nil, answer)
		assert.Empty(t, b.outcomes())
	})
}

func TestCheckThenInsertExecutesTwice(t *testing.T) {
	for name, broken := range map[string]faultinjection.Broken{"correct": 0, "broken": faultinjection.CheckThenInsert} {
		t.Run(name, func(t *testing.T) {
			b := inMemory(t, keyed)
			b.server.Broken = broken
			b.server.Plan(faultinjection.Hold)
			first := b.later(b.request("POST", "/charges", order, "k1"))
			b.awaitHeld(1)
			second := b.post("k1")
			b.server.Release()
			require.Equal(t, 201, (<-first).status)
			third := b.post("k1")
			if broken == 0 {
				assert.Equal(t, 409, second.status)
				assert.Equal(t, 1, b.effects())
			} else {
				assert.Equal(t, 201, second.status)
				assert.Equal(t, 2, b.effects())
			}
			assert.Equal(t, "true", third.header.Get("Idempotent-Replayed"), "one after the other works in both")
		})
	}
}

func TestAThousandAtOnce(t *testing.T) {
	b := inMemory(t, keyed)
	b.server.Work = 50 * time.Millisecond
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i := range 1000 {
		wg.Go(func() {
			answer := b.post(fmt.Sprint("k", i%100))
			mu.Lock()
			defer mu.Unlock()
			statuses[answer.status]++
		})
	}
	wg.Wait()
	assert.Equal(t, 1000, statuses[201]+statuses[409], statuses)
	assert.GreaterOrEqual(t, statuses[201], 100)
	counts, err := b.ledger.Counts()
	require.NoError(t, err)
	assert.Equal(t, 100, counts.Effects)
	assert.Equal(t, 1000, counts.Arrivals)
	effects, err := b.ledger.Effects()
	require.NoError(t, err)
	keys := map[string]bool{}
	for i, e := range effects {
		keys[e.Key] = true
		assert.EqualValues(t, i+1, e.Number)
	}
	assert.Len(t, keys, 100)
}
