package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// unsupporting are the ways in which the host is not known to honour keys.
var unsupporting = map[string]contract.Resolver{
	"by default":                nil,
	"no contract":               contract.First(),
	"declared":                  contract.Unsupported.At("provider.example"),
	"support of another host":   contract.Keyed("Idempotency-Key", 24*time.Hour).At("other.example"),
	"support of another method": &contract.Contract{Key: contract.Place{Header: "Idempotency-Key"}, Methods: []string{http.MethodPut}},
}

// A server that ignores keys: what may have run is not sent again by itself.
func TestO17_NoResendWithoutSupport(t *testing.T) {
	for name, contracts := range unsupporting {
		t.Run("commits, then drops, "+name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRigFor(t, nil, faultinjection.DieAfterEffect)
				r.transport.Contracts = contracts
				_, _, err := r.do(t.Context(), "order-1", orderBody(1))
				requireUnknown(t, err, StateHeld)
				require.ErrorIs(t, err, ErrHeld)
				assert.ErrorContains(t, err, "contract.Keyed", "it says what would make it safe")
				assert.Equal(t, HoldNoContract, r.lookup("order-1").HoldReason)
				for range 3 { // nor later, whoever asks
					time.Sleep(time.Hour)
					_, err = r.client.Resume(t.Context())
					require.NoError(t, err)
					_, _, err = r.do(t.Context(), "order-1", orderBody(1))
					requireUnknown(t, err, StateHeld)
					r.reopen()
				}
				require.Len(t, r.arrivals(), 1)
				assert.Empty(t, r.arrivals()[0].Header.Values("Idempotency-Key"))
				assert.Equal(t, 1, r.effects())
			})
			virtually(t, func(t *testing.T) { // unnamed: passes, once
				r := newRigFor(t, nil, faultinjection.DieAfterEffect)
				r.transport.Contracts = contracts
				_, err := r.transport.RoundTrip(mustRequest(t, t.Context(), rigURL, orderBody(1)))
				require.ErrorIs(t, err, syscall.ECONNRESET)
				require.NotErrorIs(t, err, ErrNotSent)
				assert.Len(t, r.arrivals(), 1)
				assert.Equal(t, 1, r.effects())
			})
		})
		t.Run("connection refused, then fine, "+name, func(t *testing.T) {
			r := newRigFor(t, nil)
			running, err := r.server.Listen()
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, running.Close()) })
			r.transport.Contracts = contracts
			r.transport.Retry.MinBackoff = time.Millisecond
			for i, send := range []func(*http.Request) (*http.Response, error){
				func(req *http.Request) (*http.Response, error) { return r.client.Do("order-1", req) },
				r.transport.RoundTrip,
			} {
				base := refusedOnce(t, strings.TrimPrefix(running.URL, "http://"))
				r.transport.Base = base
				resp, err := send(mustRequest(t, t.Context(), rigURL, orderBody(i)))
				require.NoError(t, err)
				assert.Equal(t, http.StatusCreated, resp.StatusCode)
				readAndClose(t, resp)
				base.CloseIdleConnections()
				assert.Len(t, r.arrivals(), i+1)
			}
			assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
		})
	}
	t.Run("support is turned on", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.DieAfterEffect)
			r.transport.Contracts = contract.Keyed("Idempotency-Key", 24*time.Hour).At("provider.example")
			status, _, err := r.do(t.Context(), "order-1", orderBody(1))
			require.NoError(t, err)
			assert.Equal(t, http.StatusCreated, status)
			r.sameKeyAndBytes(2)
			assert.Equal(t, 1, r.effects())
		})
	})
}

// refusedOnce is a base transport whose first connection is refused; the next
// ones lead to address.
func refusedOnce(tb testing.TB, address string) *http.Transport {
	tb.Helper()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	require.NoError(tb, closed.Close())
	var dials atomic.Int32
	return &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			return (&net.Dialer{}).DialContext(ctx, network, closed.Addr().String())
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
}

// statusRules are what becomes of an operation that is answered once with a
// status, and would be answered 201 after it.
var statusRules = []struct {
	status int
	again  bool
	state  State // after one answer where it is not sent again
}{
	{400, false, StateRejected}, {401, false, StateWithdrawn}, {403, false, StateWithdrawn}, {404, false, StateRejected},
	{413, false, StateRejected}, {422, false, StateRejected}, {501, false, StateRejected}, {505, false, StateRejected},
	{511, false, StateUnknown},
	{408, true, StateUnknown}, {425, true, StateWithdrawn}, {429, true, StateWithdrawn}, {500, true, StateUnknown},
	{502, true, StateUnknown}, {503, true, StateUnknown}, {504, true, StateUnknown},
}

func TestO30_EveryStatusHasItsRule(t *testing.T) {
	for _, rule := range statusRules {
		t.Run(strconv.Itoa(rule.status), func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				again, final := rigContract(), rigContract()
				again.RetryStatuses, final.FinalStatuses = []int{rule.status}, []int{rule.status}
				r.transport.Contracts = contract.First(
					rigContract().At("provider.example"), again.At("again.example"), final.At("final.example"))
				for i, host := range []struct {
					name  string
					again bool
				}{{"provider.example", rule.again}, {"again.example", true}, {"final.example", false}} {
					before := len(r.arrivals())
					r.server.Plan(faultinjection.Status(rule.status))
					operation := "order-" + host.name
					req := mustRequest(t, t.Context(), "http://"+host.name+"/charges", orderBody(i))
					resp, _, err := r.roundTrip(t.Context(), operation, req)
					require.NoError(t, err)
					readAndClose(t, resp)
					want, status, state := 1, rule.status, rule.state
					if host.again {
						want, status, state = 2, http.StatusCreated, StateSucceeded
					}
					assert.Equal(t, status, resp.StatusCode, host.name)
					requireOneKey(t, r.arrivals()[before:], want)
					in := r.lookup(operation)
					assert.Equal(t, state, in.State, host.name)
					assert.Equal(t, want, in.Attempts)
				}
			})
		})
	}
}

// A limit of http.Client's own covers all tries and waits; the retries fit
// into it, or do not begin.
func TestO31_ClientTimeoutLeavesRoomForRetries(t *testing.T) {
	const limit = 2 * time.Second
	doors := map[string]func(*testing.T, *rig) (int, error, error){ // status, what the caller hears, what the journal says
		"http.Client": func(t *testing.T, r *rig) (int, error, error) {
			var result Result
			client := r.client.HTTPClient()
			client.Timeout = limit
			req := mustRequest(t, WithResult(WithOperation(t.Context(), "order-1"), &result), rigURL, orderBody(1))
			resp, err := client.Do(req)
			if err != nil {
				return 0, err, result.Err()
			}
			readAndClose(t, resp)
			return resp.StatusCode, nil, result.Err()
		},
		"Do under a deadline": func(t *testing.T, r *rig) (int, error, error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			status, _, err := r.do(ctx, "order-1", orderBody(1))
			var failure *OperationError
			if errors.As(err, &failure) && failure.Response != nil {
				status = failure.Response.StatusCode
			}
			return status, err, err
		},
	}
	for door, call := range doors {
		t.Run(door+": a limit per attempt", func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t, faultinjection.SlowAnswer(time.Minute))
				r.transport.Retry.AttemptTimeout = 500 * time.Millisecond
				begun := time.Now()
				status, err, _ := call(t, r)
				require.NoError(t, err)
				assert.Equal(t, http.StatusCreated, status)
				assert.Less(t, time.Since(begun), limit)
				r.sameKeyAndBytes(2)
				assert.Equal(t, 1, r.effects())
				time.Sleep(time.Minute) // the first answer is given up
			})
		})
		t.Run(door+": none", func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t, faultinjection.SlowAnswer(time.Minute))
				begun := time.Now()
				_, err, said := call(t, r)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				requireUnknown(t, said, StateUnknown)
				assert.Equal(t, limit, time.Since(begun))
				assert.Equal(t, StateUnknown, r.lookup("order-1").State)
				assert.Len(t, r.arrivals(), 1)
				requireResumed(t, r, "order-1")
			})
		})
		t.Run(door+": a wait longer than what is left", func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t, faultinjection.Status(503))
				r.transport.Retry.MinBackoff = 5 * time.Second
				begun := time.Now()
				status, _, said := call(t, r)
				assert.Equal(t, http.StatusServiceUnavailable, status, "the answer in hand")
				assert.Zero(t, time.Since(begun), "no sleep into the deadline")
				requireUnknown(t, said, StateUnknown)
				assert.Len(t, r.arrivals(), 1)
				requireResumed(t, r, "order-1")
			})
		})
	}
}

func TestO44_BackoffNeverOverflows(t *testing.T) {
	counts := []int{math.MaxInt32, 2_000_000_000}
	for n := range 10_001 {
		counts = append(counts, n)
	}
	for _, low := range []time.Duration{1, 100 * time.Millisecond, time.Hour} {
		for _, high := range []time.Duration{time.Minute, math.MaxInt64} {
			p := RetryPolicy{MinBackoff: low, MaxBackoff: high}
			if low > high { // told at first use; even so no wait is wild
				require.ErrorContains(t, p.validate(), "MinBackoff 1h0m0s is longer than MaxBackoff 1m0s")
			}
			for _, n := range counts {
				// Jitter has no setting; each wait is drawn with it. The server's
				// own figure goes from nothing to more than the cap.
				for _, wait := range []time.Duration{p.backoff(n), p.pause(n, 0, nil), p.pause(n, min(high, longestWait), nil)} {
					if wait < 0 || wait > high || n >= 64 && wait < high/4 {
						require.Failf(t, "wild", "%d attempts, base %v, cap %v: %v", n, low, high, wait)
					}
				}
				if wait := p.pause(n, longestWait, &contract.Contract{MinDelay: math.MaxInt64}); wait < longestWait {
					require.Failf(t, "wild", "%d attempts: %v", n, wait)
				}
			}
		}
	}
}

// The count is what a journal may hold after years.
func TestO44_PersistedCountOfTwoBillion(t *testing.T) {
	const count = 2_000_000_000
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.Status(503) })
		r.transport.Retry = RetryPolicy{MaxAttempts: 1, ResumeAttempts: math.MaxInt32, MaxBackoff: time.Minute}
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		in := r.lookup("order-1")
		in.Attempts, in.Resumes, in.Due, in.Wait = count, count, time.Time{}, 0
		mustUpdate(t, r.journal, in, nil, true)
		for n := 1; n <= 3; n++ {
			r.reopen()
			begun := time.Now()
			report, err := r.client.Resume(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, report.Sent)
			in = r.lookup("order-1")
			assert.Equal(t, count+n, in.Attempts)
			assert.Equal(t, count+n, in.Resumes)
			assert.LessOrEqual(t, in.Due.Sub(begun), time.Minute)
			assert.GreaterOrEqual(t, in.Due.Sub(begun), 15*time.Second, "near the cap")
			report, err = r.client.Resume(t.Context())
			require.NoError(t, err)
			require.Zero(t, report.Sent, "no hot loop")
			time.Sleep(time.Minute)
		}
		r.sameKeyAndBytes(4)
	})
}

func TestO47_RetryAfterOfEveryKind(t *testing.T) {
	const low, high = defaultMinBackoff, time.Second // the normal back-off after one attempt
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	cases := map[string]struct {
		header   func() http.Header
		from, to time.Duration
	}{
		"none":          {func() http.Header { return http.Header{} }, low, high},
		"negative":      {func() http.Header { return header("Retry-After", "-1") }, low, high},
		"very negative": {func() http.Header { return header("Retry-After", "-99999999999999999999") }, low, high},
		"zero":          {func() http.Header { return header("Retry-After", "0") }, low, high},
		"date in 2015":  {func() http.Header { return header("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT") }, low, high},
		"junk":          {func() http.Header { return header("Retry-After", "abc") }, low, high},
		"empty":         {func() http.Header { return header("Retry-After", "") }, low, high},
		"date":          {func() http.Header { return header("Retry-After", at(2*time.Second)) }, 2 * time.Second, 3 * time.Second},
		"two lines":     {func() http.Header { return http.Header{"Retry-After": {"2", "5"}} }, 5 * time.Second, 5500 * time.Millisecond},
		"two lines, one junk": {func() http.Header { return http.Header{"Retry-After": {"abc", "2"}} },
			2 * time.Second, 2200 * time.Millisecond},
		"server's clock behind": {func() http.Header {
			return header("Date", at(-10*time.Minute), "Retry-After", at(-10*time.Minute+3*time.Second))
		}, 3 * time.Second, 3300 * time.Millisecond},
		"server's clock ahead": {func() http.Header {
			return header("Date", at(10*time.Minute), "Retry-After", at(10*time.Minute+3*time.Second))
		}, 3 * time.Second, 3300 * time.Millisecond},
		"the cap": {func() http.Header { return header("Retry-After", "30") }, 30 * time.Second, 30 * time.Second},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))) // 2015 is over
				r := newRig(t)
				for i := range 10 { // jitter is drawn anew
					time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // dates have no fractions
					var sends []time.Time
					r.transport.Base = answering(func(*http.Request) *http.Response {
						sends = append(sends, time.Now())
						if len(sends) == 1 {
							return &http.Response{StatusCode: 429, Header: test.header(), Body: http.NoBody}
						}
						return answerWith(200)(nil)
					})
					status, _, err := r.do(t.Context(), "order-"+strconv.Itoa(i), orderBody(i))
					require.NoError(t, err)
					assert.Equal(t, 200, status)
					require.Len(t, sends, 2)
					wait := sends[1].Sub(sends[0])
					assert.GreaterOrEqual(t, wait, test.from)
					assert.LessOrEqual(t, wait, test.to)
				}
			})
		})
	}
}

// A failed answer whose end never comes is thrown away without waiting for it.
func TestO46_AStalledAnswerDoesNotStallTheCall(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		sent   int // bytes of the answer, before it stalls
	}{
		"journaled, above MaxResponseBody": {http.MethodPost, 2 << 10},
		"not journaled":                    {http.MethodGet, 2 << 10},
		"not journaled, nothing of it":     {http.MethodGet, 0},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				r.transport.MaxResponseBody = 1 << 10
				sends := 0
				r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
					closeBody(req)
					if sends++; sends > 1 {
						return answerWith(200)(nil), nil
					}
					pr, pw := io.Pipe()
					context.AfterFunc(req.Context(), func() { pw.CloseWithError(req.Context().Err()) }) // as net/http does
					go func() { _, _ = pw.Write(make([]byte, test.sent)) }()
					return &http.Response{StatusCode: 503, Header: http.Header{}, Body: pr, ContentLength: -1}, nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				req := mustRequest(t, WithOperation(ctx, "order-1"), rigURL, "")
				req.Method = test.method
				begun := time.Now()
				resp, err := r.transport.RoundTrip(req)
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode)
				assert.Less(t, time.Since(begun), 3*time.Second, "the back-off, and little more")
			})
		})
	}
}

// Calls that are cancelled in their wait leave no goroutine and no timer.
func TestO61_CancelledWaitsLeaveNothing(t *testing.T) {
	const calls = 1000
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Retry = RetryPolicy{MinBackoff: time.Hour, MaxBackoff: 2 * time.Hour, Budget: 4 * calls}
		r.transport.Base = answering(answerWith(503))
		cancelled := func(round string, waiting func(i int) string) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i := range calls {
				all.Go(func() {
					_, _, err := r.do(ctx, waiting(i), orderBody(1))
					assert.ErrorIs(t, err, context.Canceled, round)
				})
			}
			synctest.Wait() // all are in their wait
			assert.GreaterOrEqual(t, runtime.NumGoroutine(), calls, round)
			begun := time.Now()
			cancel()
			all.Wait()
			assert.LessOrEqual(t, time.Since(begun), time.Second, round)
		}
		heap := func() (bytes uint64) {
			var stats runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&stats)
			return stats.HeapAlloc
		}
		name := func(prefix string) func(int) string {
			return func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
		}
		cancelled("caches fill", name("first"))
		synctest.Wait()
		goroutines, before := runtime.NumGoroutine(), heap()
		cancelled("back-off", name("second"))
		cancelled("due time of an earlier call", name("second"))
		cancelled("one operation, all of them wait for it", func(int) string { return "one" })
		synctest.Wait()
		assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
		assert.Less(t, heap(), before+calls<<10, "less than 1 KiB a call is left of three rounds")
	})
}
