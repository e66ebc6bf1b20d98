package faultinjection_test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// Each step on the first of two equal requests: what the client sees, what is
// in the world after the first, and what the second gets.
func TestSteps(t *testing.T) {
	for _, test := range []struct {
		step    faultinjection.Step
		err     error // of the first answer
		status  int   // of the first answer; zero: none came
		effects int   // after the first
		outcome faultinjection.Outcome
		second  faultinjection.Outcome
	}{
		{faultinjection.Run, nil, 201, 1, "executed", "replayed"},
		{faultinjection.LoseRequest, syscall.ECONNRESET, 0, 0, "lost", "executed"},
		{faultinjection.DieBeforeEffect, syscall.ECONNRESET, 0, 0, "died", "executed"},
		{faultinjection.DieAfterEffect, syscall.ECONNRESET, 0, 1, "executed", "replayed"},
		{faultinjection.CutAnswer, io.ErrUnexpectedEOF, 201, 1, "executed", "replayed"},
		{faultinjection.Unavailable(), nil, 503, 0, "unavailable", "executed"},
		{faultinjection.Slow(time.Millisecond), nil, 201, 1, "executed", "replayed"},
		{faultinjection.SlowAnswer(time.Millisecond), nil, 201, 1, "executed", "replayed"},
		{faultinjection.Status(429), nil, 429, 0, "answered", "executed"},
		{faultinjection.Status(401), nil, 401, 0, "answered", "executed"},
		{faultinjection.Status(502), nil, 502, 0, "answered", "executed"},
		{faultinjection.Redirect(307, "/v2/charges"), nil, 307, 0, "answered", "executed"},
		{faultinjection.Fail(500), nil, 500, 0, "failed", "executed"},
		{faultinjection.FailAfterEffect(500), nil, 500, 1, "executed", "replayed"},
	} {
		t.Run(test.step.String(), func(t *testing.T) {
			onEachWire(t, keyed, func(t *testing.T, b bench) {
				b.server.Plan(test.step)
				first := b.post("k1")
				assert.ErrorIs(t, first.err, test.err)
				assert.Equal(t, test.status, first.status)
				assert.Equal(t, test.effects, b.effects())
				second := b.post("k1")
				require.NoError(t, second.err)
				assert.Equal(t, 1, b.effects())
				assert.Equal(t, []faultinjection.Outcome{test.outcome, test.second}, b.outcomes())
				if test.second == "replayed" && test.err == nil {
					assert.Equal(t, first.body, second.body)
				}
				arrivals, err := b.ledger.Arrivals()
				require.NoError(t, err)
				if test.step == faultinjection.Run {
					assert.Empty(t, arrivals[0].Step)
				} else {
					assert.Equal(t, test.step.String(), arrivals[0].Step)
				}
			})
		})
	}
}

func TestCutAnswerSendsHalf(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		b.server.Plan(faultinjection.CutAnswer)
		resp, err := b.client.Do(b.request("POST", "/charges", order, "k1"))
		require.NoError(t, err)
		defer resp.Body.Close()
		half, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		all := b.post("k1").body
		assert.Equal(t, all[:len(all)/2], string(half))
		assert.EqualValues(t, len(all), resp.ContentLength)
	})
}

func TestCuttingNothingLosesTheAnswer(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		b.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) { return 204, nil, nil }
		b.server.Plan(faultinjection.CutAnswer)
		require.ErrorIs(t, b.post("k1").err, syscall.ECONNRESET)
		assert.Equal(t, 204, b.post("k1").status)
		assert.Equal(t, 1, b.effects())
	})
}

func TestRetryAfterAndLocation(t *testing.T) {
	b := inMemory(t, keyed)
	b.server.Plan(faultinjection.Unavailable(2*time.Second), faultinjection.Status(429, time.Minute),
		faultinjection.Unavailable(), faultinjection.Redirect(308, "/v2"))
	assert.Equal(t, "2", b.post("k1").header.Get("Retry-After"))
	assert.Equal(t, "60", b.post("k1").header.Get("Retry-After"))
	assert.Empty(t, b.post("k1").header.Values("Retry-After"))
	assert.Equal(t, "/v2", b.post("k1").header.Get("Location"))
}

// A lost answer stays lost when it would be a replay.
func TestAReplayCanBeLostToo(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		b.server.Plan(faultinjection.Run, faultinjection.DieAfterEffect, faultinjection.DieBeforeEffect, faultinjection.CutAnswer)
		require.NoError(t, b.post("k1").err)
		require.ErrorIs(t, b.post("k1").err, syscall.ECONNRESET)
		require.ErrorIs(t, b.post("k1").err, syscall.ECONNRESET)
		require.ErrorIs(t, b.post("k1").err, io.ErrUnexpectedEOF)
		assert.Equal(t, []faultinjection.Outcome{"executed", "replayed", "replayed", "replayed"}, b.outcomes())
	})
}

func TestPlansAreUsedInOrderOfArrivalThenEach(t *testing.T) {
	b := inMemory(t, keyed)
	var seen []int64
	b.server.Each(func(a faultinjection.Arrival) faultinjection.Step {
		seen = append(seen, a.Number)
		assert.Equal(t, "order-42", a.Operation)
		assert.Equal(t, []string{"k1"}, a.Keys)
		return faultinjection.Status(418)
	})
	b.server.Plan(faultinjection.Status(401))
	b.server.Plan(faultinjection.Status(402), faultinjection.Status(403))
	for _, want := range []int{401, 402, 403, 418, 418} {
		assert.Equal(t, want, b.post("k1").status)
	}
	assert.Equal(t, []int64{4, 5}, seen)
	b.server.Each(nil)
	assert.Equal(t, 201, b.post("k1").status)
}

// Whatever the faults, a client that repeats one key until it has an answer
// makes one effect. The same client against a server without keys does not:
// the control shows that the faults are real.
func TestRandomFaultsLeaveOneEffect(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for name, known := range map[string]bool{"keys": true, "control": false} {
		t.Run(name, func(t *testing.T) {
			c := keyed
			if !known {
				c = nil
			}
			b := inMemory(t, c)
			random := rand.New(rand.NewPCG(seed, 0))
			steps := []faultinjection.Step{
				faultinjection.LoseRequest, faultinjection.DieBeforeEffect, faultinjection.DieAfterEffect,
				faultinjection.CutAnswer, faultinjection.Unavailable(), faultinjection.Status(502), faultinjection.Run,
			}
			b.server.Each(func(faultinjection.Arrival) faultinjection.Step { return steps[random.IntN(len(steps))] })
			var wg sync.WaitGroup
			const operations = 50
			for range operations {
				wg.Go(func() {
					key, name := uuid.NewString(), uuid.NewString()
					for {
						answer := b.send(b.request("POST", "/charges", `{"order":"`+name+`"}`, key))
						if answer.err == nil && answer.status == 201 {
							return
						}
					}
				})
			}
			wg.Wait()
			counts, err := b.ledger.Counts()
			require.NoError(t, err)
			assert.Equal(t, operations, counts.Operations)
			if known {
				assert.Equal(t, operations, counts.Effects)
				assert.Zero(t, counts.Duplicates)
			} else {
				assert.Positive(t, counts.Duplicates)
			}
			total := 0
			for _, n := range counts.Outcomes {
				total += n
			}
			assert.Equal(t, counts.Arrivals, total)
		})
	}
}
