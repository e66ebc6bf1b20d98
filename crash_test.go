package idem

import (
	"context"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// realRig is a rig whose server listens on loopback, for child processes.
type realRig struct {
	*rig
	url string
}

func newRealRig(tb testing.TB, steps ...faultinjection.Step) *realRig {
	tb.Helper()
	return newRealRigFor(tb, func(*rig) {}, steps...)
}

func newRealRigFor(tb testing.TB, prepare func(*rig), steps ...faultinjection.Step) *realRig {
	tb.Helper()
	r := newRig(tb, steps...)
	prepare(r)
	running, err := r.server.Listen()
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, running.Close()) })
	base := &http.Transport{}
	tb.Cleanup(base.CloseIdleConnections)
	r.transport.Base = base
	r.transport.Retry = RetryPolicy{MinBackoff: 5 * time.Millisecond, MaxAttempts: 10, MaxDeaths: 100}
	return &realRig{rig: r, url: running.URL}
}

// child starts a process that makes n calls of order 77 at once.
func (r *realRig) child(n int, die string) *child {
	r.tb.Helper()
	return startChild(r.tb, "call", r.path, r.url, "order-77/charge", orderBody(77), strconv.Itoa(n), die)
}

// call is the same operation, issued by this process.
func (r *realRig) call() string {
	r.tb.Helper()
	req, err := http.NewRequestWithContext(r.tb.Context(), http.MethodPost, r.url+"/charges", &oneShot{Reader: strings.NewReader(orderBody(77))})
	require.NoError(r.tb, err)
	req.Header.Set("X-Call-Id", "another")
	return endOf(r.client.Do("order-77/charge", req))
}

func (r *realRig) awaitHeld(n int) {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(r.tb.Context(), patience)
	defer cancel()
	require.NoError(r.tb, r.server.AwaitHeld(ctx, n))
}

// settledOnce checks the promise: one effect, one key, the same bytes.
func (r *realRig) settledOnce() Intent {
	r.tb.Helper()
	assert.Equal(r.tb, 1, r.effects())
	key := requireOneKey(r.tb, r.arrivals(), len(r.arrivals()))
	in := r.lookup("order-77/charge")
	assert.Equal(r.tb, StateSucceeded, in.State)
	assert.Equal(r.tb, key, in.Key)
	return in
}

func TestO12_SameOperationAfterRestart(t *testing.T) {
	for _, when := range []string{"before resume", "during resume", "after resume"} {
		t.Run(when, func(t *testing.T) {
			r := newRealRig(t, faultinjection.Hold)
			first := r.child(1, "")
			r.awaitHeld(1)
			first.kill()
			r.server.Release()

			resume := func() {
				_, err := r.client.Resume(t.Context())
				require.NoError(t, err)
			}
			var end string
			switch when {
			case "before resume":
				end = r.call()
				resume()
			case "during resume":
				var both sync.WaitGroup
				both.Go(resume)
				both.Go(func() { end = r.call() })
				both.Wait()
			case "after resume":
				resume()
				end = r.call()
			}
			require.Regexp(t, `^201 .*order-77`, end)
			in := r.settledOnce()
			arrivals := len(r.arrivals())
			require.Equal(t, end, r.call(), "the recorded answer")
			require.Len(t, r.arrivals(), arrivals, "once final, no further arrival")
			require.Equal(t, "201 "+strings.TrimSpace(string(in.Outcome.Body)), end)
		})
	}
}

func TestO15_OneShotBodySurvivesAKill(t *testing.T) {
	r := newRealRig(t, faultinjection.Hold)
	first := r.child(1, "")
	r.awaitHeld(1)
	first.kill()
	r.server.Release()
	report, err := r.client.Resume(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, report.Settled)
	r.settledOnce()
	require.Len(t, r.arrivals(), 2)
	assert.Equal(t, orderBody(77), string(r.arrivals()[1].Body))
}

func TestO38_KilledBetweenAnswerAndRecord(t *testing.T) {
	r := newRealRig(t)
	r.child(1, "answered").killed()
	require.Equal(t, 1, r.effects())
	in := r.lookup("order-77/charge")
	assert.False(t, in.State.Final(), "the answer was not recorded")

	report, err := r.client.Resume(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Report{Sent: 1, Settled: 1, Skipped: map[string]int{}}, report)
	in = r.settledOnce()
	assert.True(t, in.Outcome.Replayed, "the provider answered from its store")
	attempts, err := r.journal.Attempts(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, attempts, 2)
	assert.Equal(t, "interrupted", attempts[0].Decision)
	assert.Equal(t, "replayed", attempts[1].Decision)
	require.Len(t, r.arrivals(), 2)
}

func TestO40_KilledBetweenIntentAndSend(t *testing.T) {
	r := newRealRig(t)
	r.child(1, "recorded").killed()
	require.Empty(t, r.arrivals())
	_, err := r.client.Resume(t.Context())
	require.NoError(t, err)
	require.Len(t, r.arrivals(), 1)
	r.settledOnce()
}

func TestO40_IntentIsDurableBeforeTheArrival(t *testing.T) {
	seen := make(chan Intent, 2)
	r := newRealRigFor(t, func(r *rig) {
		r.server.Operation = func(req *http.Request, _ []byte) string { // when the arrival is noted, before it is handled
			in, err := r.journal.Lookup(req.Context(), "", "order-77/charge")
			assert.NoError(t, err)
			seen <- in
			return "order-77"
		}
	})
	r.child(1, "").wait()
	in := <-seen
	require.Len(t, r.arrivals(), 1)
	assert.Equal(t, r.arrivals()[0].Keys, []string{in.Key})
	assert.Equal(t, StateInFlight, in.State)
	assert.Equal(t, 1, in.Attempts)
}

func TestO55_AKillGivesNoAttemptsBack(t *testing.T) {
	r := newRealRig(t, faultinjection.Status(503), faultinjection.Hold)
	r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.Status(503) })
	first := r.child(1, "") // at most 5 attempts
	r.awaitHeld(1)
	first.kill()
	running := r.arrivals()
	require.Len(t, running, 2)

	r.transport.Retry.ResumeAttempts = 3
	for range 6 { // each pass waits out what the one before it left
		_, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		in := r.lookup("order-77/charge")
		if wait := time.Until(in.Due); wait > 0 {
			time.Sleep(wait)
		}
	}
	require.Len(t, r.arrivals(), 2+3)
	in := r.lookup("order-77/charge")
	assert.Equal(t, HoldExhausted, in.HoldReason)
	assert.Equal(t, 5, in.Attempts)
	r.server.Release()
}

func TestO11_OneOperationFromManyCallers(t *testing.T) {
	const callers = 20
	t.Run("one process", func(t *testing.T) {
		r := newRealRigFor(t, func(r *rig) { r.server.Work = 300 * time.Millisecond })
		ends := callAtOnce(r, callers)
		require.Len(t, r.arrivals(), 1)
		requireEqualEnds(t, ends, callers)
		r.settledOnce()
	})
	t.Run("two processes", func(t *testing.T) {
		r := newRealRigFor(t, func(r *rig) { r.server.Work = 300 * time.Millisecond })
		a, b := r.child(callers/2, ""), r.child(callers/2, "")
		requireEqualEnds(t, ended(a, b), callers)
		require.Len(t, r.arrivals(), 1)
		r.settledOnce()
	})
}

func TestAThousandCallersOneArrival(t *testing.T) {
	const callers = 1000
	t.Run("one process", func(t *testing.T) {
		r := newRealRigFor(t, func(r *rig) { r.server.Work = 50 * time.Millisecond })
		requireEqualEnds(t, callAtOnce(r, callers), callers)
		require.Len(t, r.arrivals(), 1)
		r.settledOnce()
	})
	t.Run("two processes", func(t *testing.T) {
		r := newRealRigFor(t, func(r *rig) { r.server.Work = 50 * time.Millisecond })
		a, b := r.child(callers/2, ""), r.child(callers/2, "")
		requireEqualEnds(t, ended(a, b), callers)
		require.Len(t, r.arrivals(), 1)
		r.settledOnce()
	})
}

// callAtOnce releases n callers of one operation together.
func callAtOnce(r *realRig, n int) []string {
	start := make(chan struct{})
	ends := make([]string, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			<-start
			ends[i] = r.call()
		})
	}
	close(start)
	calls.Wait()
	return ends
}

// ended are the ends of all calls of some children.
func ended(all ...*child) []string {
	var ends []string
	for _, c := range all {
		for _, line := range c.wait() {
			if line != "ready" {
				ends = append(ends, line)
			}
		}
	}
	return ends
}

func requireEqualEnds(t *testing.T, ends []string, n int) {
	t.Helper()
	require.Equal(t, n, len(ends))
	require.Regexp(t, `^201 .*order-77`, ends[0])
	for _, end := range ends {
		require.Equal(t, ends[0], end)
	}
}

// 32 operations in parallel against a server that loses every second answer.
func TestEverySecondAnswerLost(t *testing.T) {
	const operations = 32
	r := newRealRigFor(t, func(r *rig) {
		r.server.Each(func(a faultinjection.Arrival) faultinjection.Step {
			if a.Number%2 == 0 {
				return faultinjection.DieAfterEffect
			}
			return faultinjection.Run
		})
	})
	var calls sync.WaitGroup
	for i := range operations {
		calls.Go(func() {
			resp, err := r.client.Do("order-"+strconv.Itoa(i), mustRequest(t, t.Context(), r.url+"/charges", orderBody(i)))
			if assert.NoError(t, err) {
				assert.Equal(t, http.StatusCreated, resp.StatusCode)
				assert.NoError(t, resp.Body.Close())
			}
		})
	}
	calls.Wait()
	counts, err := r.ledger.Counts()
	require.NoError(t, err)
	assert.Equal(t, operations, counts.Effects)
	assert.Equal(t, operations, counts.Operations)
	assert.Greater(t, counts.Arrivals, operations, "answers were lost")
	keys := map[string]bool{}
	for _, a := range r.arrivals() {
		keys[a.Keys[0]] = true
	}
	assert.Len(t, keys, operations)
}

// The journal's folder may be moved as a whole between two lives.
func TestJournalPathWithOddCharacters(t *testing.T) {
	r := newRig(t)
	r.path = filepath.Join(t.TempDir(), "a?b#c%20d.db")
	r.open()
	_, _, err := r.do(t.Context(), "a", orderBody(1))
	require.NoError(t, err)
	r.reopen()
	assert.Equal(t, StateSucceeded, r.lookup("a").State)
}
