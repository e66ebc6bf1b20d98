package idem

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
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

func TestOneCallOneKeyOneRecord(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		var result Result
		status, body, err := r.do(WithResult(t.Context(), &result), "order-1", orderBody(1))
		require.NoError(t, err)
		assert.Equal(t, http.StatusCreated, status)
		assert.Contains(t, body, "order-1")
		key := r.sameKeyAndBytes(1)
		assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, key)

		in := r.lookup("order-1")
		assert.Equal(t, StateSucceeded, in.State)
		assert.Equal(t, key, in.Key)
		assert.Equal(t, 1, in.Attempts)
		assert.Equal(t, body, string(in.Outcome.Body))
		assert.Equal(t, http.StatusCreated, in.Outcome.StatusCode)
		assert.True(t, result.Recorded)
		assert.False(t, result.FromJournal)
		assert.Equal(t, StateSucceeded, result.Intent.State)
		attempts, err := r.journal.Attempts(t.Context(), in)
		require.NoError(t, err)
		require.Len(t, attempts, 1)
		assert.Equal(t, "succeeded", attempts[0].Decision)
		assert.Equal(t, phaseAnswered, attempts[0].Phase)

		status, again, err := r.do(WithResult(t.Context(), &result), "order-1", orderBody(1))
		require.NoError(t, err)
		assert.Equal(t, http.StatusCreated, status)
		assert.Equal(t, body, again, "the recorded answer")
		assert.True(t, result.FromJournal)
		assert.Len(t, r.arrivals(), 1)
	})
}

func TestO14_LostAnswerIsUnknownAndRefusedConnectionIsNotSent(t *testing.T) {
	t.Run("answer after the caller's limit", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.Hold)
			r.transport.Retry.MaxAttempts = 1
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, _, err := r.do(ctx, "a", orderBody(1))
			requireUnknown(t, err, StateUnknown)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			r.server.Release()
			requireResumed(t, r, "a")
		})
	})
	t.Run("attempt timeout", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.Hold)
			r.transport.Retry.MaxAttempts = 1
			begun := time.Now()
			_, _, err := r.do(t.Context(), "a", orderBody(1))
			requireUnknown(t, err, StateUnknown)
			require.ErrorIs(t, err, errAttemptTimeout)
			require.Equal(t, 30*time.Second, time.Since(begun))
			r.server.Release()
			requireResumed(t, r, "a")
		})
	})
	t.Run("reset after the commit", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.DieAfterEffect)
			r.transport.Retry.MaxAttempts = 1
			_, _, err := r.do(t.Context(), "a", orderBody(1))
			requireUnknown(t, err, StateUnknown)
			requireResumed(t, r, "a")
		})
	})
	t.Run("port closed", func(t *testing.T) {
		r := newRig(t)
		r.transport.Retry.MaxAttempts = 1
		r.transport.Base = &http.Transport{}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address := listener.Addr().String()
		require.NoError(t, listener.Close())
		_, err = r.client.Do("a", mustRequest(t, t.Context(), "http://"+address+"/charges", orderBody(1)))
		require.ErrorIs(t, err, ErrNotSent)
		require.NotErrorIs(t, err, ErrUnknownOutcome)
		assert.Equal(t, StateWithdrawn, r.lookup("a").State)
	})
}

// requireUnknown checks an error that must never be read as failed.
func requireUnknown(t *testing.T, err error, state State) {
	t.Helper()
	require.ErrorIs(t, err, ErrUnknownOutcome)
	require.NotErrorIs(t, err, ErrNotSent)
	var failure *OperationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, state, failure.State)
}

// requireResumed waits out the back-off and checks that one pass settles the
// operation with one effect under one key.
func requireResumed(t *testing.T, r *rig, operation string) {
	t.Helper()
	time.Sleep(time.Minute)
	report, err := r.client.Resume(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, report.Settled)
	assert.Equal(t, StateSucceeded, r.lookup(operation).State)
	assert.Equal(t, 1, r.effects())
	r.sameKeyAndBytes(len(r.arrivals()))
}

// oneShot is a body with neither GetBody nor a known length.
type oneShot struct {
	io.Reader
	closed int
}

func (b *oneShot) Close() error { b.closed++; return nil }

func TestO15_OneShotBodyIsWholeOnEveryTry(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(503))
		body := &oneShot{Reader: strings.NewReader(orderBody(1))}
		req := mustRequest(t, t.Context(), rigURL, "")
		req.Body, req.GetBody, req.ContentLength = body, nil, -1
		resp, err := r.client.Do("a", req)
		require.NoError(t, err)
		readAndClose(t, resp)
		r.sameKeyAndBytes(2)
		assert.Equal(t, orderBody(1), string(r.arrivals()[1].Body))
		assert.Equal(t, 1, body.closed, "closed exactly once")
	})
}

func TestO16_JournalFailsNothingIsSent(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		r := newRig(t)
		require.NoError(t, r.journal.Close())
		_, _, err := r.do(t.Context(), "a", orderBody(1))
		require.ErrorIs(t, err, ErrJournal)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, err, ErrNotSent)
		assert.Empty(t, r.arrivals())
	})
	t.Run("locked by another process", func(t *testing.T) {
		r := newRig(t)
		holder := startChild(t, "hold-write-lock", r.path)
		holder.awaitLine("locked")
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, _, err := r.do(ctx, "a", orderBody(1))
		took := time.Since(begun)
		require.ErrorIs(t, err, ErrJournal)
		require.ErrorIs(t, err, ErrNotSent)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, r.arrivals())
		assert.Less(t, took, 2*time.Second, "the caller's deadline counts, not the lock")
		holder.kill()
		_, _, err = r.do(t.Context(), "a", orderBody(1))
		require.NoError(t, err, "works again once the lock is gone")
	})
	t.Run("no journal", func(t *testing.T) {
		r := newRig(t)
		r.transport.Journal = nil
		_, _, err := r.do(t.Context(), "a", orderBody(1))
		require.ErrorIs(t, err, ErrJournal)
		assert.Empty(t, r.arrivals())
	})
}

func TestO29_LastAnswerIsReturnedWhole(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Retry.MaxAttempts = 3
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			closeBody(req)
			return &http.Response{
				StatusCode: 503, Status: "503 Service Unavailable", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
				Header:        header("X-Request-Id", "req_7", "Content-Type", "application/json"),
				Body:          io.NopCloser(strings.NewReader(`{"why":"maintenance"}`)),
				ContentLength: 21, Request: req,
			}, nil
		})
		req := mustRequest(t, t.Context(), rigURL, orderBody(1))
		resp, result, err := r.roundTrip(t.Context(), "a", req)
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, `{"why":"maintenance"}`, readAndClose(t, resp))
		require.Equal(t, "req_7", resp.Header.Get("X-Request-Id"))
		require.NotNil(t, resp.Request)
		require.Equal(t, rigURL, resp.Request.URL.String())
		require.ErrorIs(t, result.Err(), ErrUnknownOutcome)
		assert.Equal(t, 3, r.lookup("a").Attempts)

		var failure *OperationError
		_, err = r.client.Do("b", mustRequest(t, t.Context(), rigURL, orderBody(2)))
		require.ErrorAs(t, err, &failure)
		require.NotNil(t, failure.Response)
		require.Equal(t, `{"why":"maintenance"}`, readAndClose(t, failure.Response))
	})
}

func TestO55_AttemptsAreExactlyTheLimit(t *testing.T) {
	for _, limit := range []int{1, 2, 5} {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.Status(503) })
			r.transport.Retry.MaxAttempts = limit
			_, _, err := r.do(t.Context(), "a", orderBody(1))
			requireUnknown(t, err, StateUnknown)
			r.sameKeyAndBytes(limit)
			assert.Equal(t, limit, r.lookup("a").Attempts)
		})
	}
	t.Run("an SDK's loop shares the call", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.Status(503) })
			ctx := WithOperation(t.Context(), "a")
			for range 3 {
				resp, err := r.transport.RoundTrip(mustRequest(t, ctx, rigURL, orderBody(1)))
				require.NoError(t, err)
				assert.Equal(t, 503, resp.StatusCode)
				readAndClose(t, resp)
			}
			r.sameKeyAndBytes(4)
		})
	})
	t.Run("resume is bounded over restarts", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.Status(503) })
			r.transport.Retry = RetryPolicy{MaxAttempts: 2, ResumeAttempts: 3}
			_, _, err := r.do(t.Context(), "a", orderBody(1))
			requireUnknown(t, err, StateUnknown)
			for range 6 {
				time.Sleep(time.Minute)
				r.reopen()
				_, err := r.client.Resume(t.Context())
				require.NoError(t, err)
			}
			r.sameKeyAndBytes(2 + 3)
			in := r.lookup("a")
			assert.Equal(t, StateHeld, in.State)
			assert.Equal(t, HoldExhausted, in.HoldReason)
		})
	})
}

func TestO56_CallersOwnKeyIsKept(t *testing.T) {
	for _, spelled := range []string{"Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"} {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.Status(503))
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			req.Header[spelled] = []string{"my-own-key-1"}
			var result Result
			resp, err := r.transport.RoundTrip(req.WithContext(WithResult(t.Context(), &result)))
			require.NoError(t, err)
			readAndClose(t, resp)
			require.Equal(t, "my-own-key-1", r.sameKeyAndBytes(2))
			require.Equal(t, "my-own-key-1", result.Intent.Key)
			require.Equal(t, []string{"my-own-key-1"}, req.Header[spelled], "the caller's request is not changed")
		})
	}
	t.Run("resume uses it", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.DieAfterEffect)
			r.transport.Retry.MaxAttempts = 1
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			req.Header.Set("Idempotency-Key", "my-own-key-2")
			_, err := r.transport.RoundTrip(req)
			requireUnknown(t, err, StateUnknown)
			r.reopen()
			time.Sleep(time.Minute)
			report, err := r.client.Resume(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, report.Settled)
			require.Equal(t, "my-own-key-2", r.sameKeyAndBytes(2))
			require.Equal(t, 1, r.effects())
		})
	})
}

func TestO57_BodyIsRewoundBetweenTries(t *testing.T) {
	payload := bytes.Repeat([]byte("x"), 1024)
	var mu sync.Mutex
	var seen [][]byte
	var keys []string
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	arrived := 0
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		arrived++
		keys = append(keys, req.Header.Get("Idempotency-Key"))
		if arrived <= 2 {
			io.ReadFull(req.Body, make([]byte, 10))
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
			return
		}
		body, _ := io.ReadAll(req.Body)
		seen = append(seen, body)
		assert.Equal(t, int64(1024), req.ContentLength)
		w.WriteHeader(http.StatusCreated)
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })

	r := newRig(t)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	r.transport.Base = base
	r.transport.Retry.MinBackoff = time.Millisecond
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listener.Addr().String()+"/charges", bytes.NewReader(payload))
	require.NoError(t, err)
	resp, err := r.client.Do("a", req)
	require.NoError(t, err)
	readAndClose(t, resp)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, seen, 1)
	assert.Equal(t, payload, seen[0])
	require.Len(t, keys, 3)
	assert.Equal(t, []string{keys[0], keys[0], keys[0]}, keys)
	assert.NotEmpty(t, keys[0])
}

func TestO59_CancelEndsTheWait(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(503))
		r.transport.Retry = RetryPolicy{MinBackoff: 30 * time.Second, MaxBackoff: time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		begun := time.Now()
		_, _, err := r.do(ctx, "a", orderBody(1))
		require.ErrorIs(t, err, context.Canceled)
		requireUnknown(t, err, StateUnknown)
		assert.LessOrEqual(t, time.Since(begun), 200*time.Millisecond)
		assert.Len(t, r.arrivals(), 1)
		assert.Equal(t, StateUnknown, r.lookup("a").State)

		status, _, err := r.do(t.Context(), "a", orderBody(1))
		require.NoError(t, err, "still open: continues under the same key")
		assert.Equal(t, http.StatusCreated, status)
		r.sameKeyAndBytes(2)
	})
	t.Run("nothing executed", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.Status(429))
			r.transport.Retry = RetryPolicy{MinBackoff: 30 * time.Second, MaxBackoff: time.Minute}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			_, _, err := r.do(ctx, "a", orderBody(1))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, ErrNotSent)
			assert.Equal(t, StateWithdrawn, r.lookup("a").State)
			assert.Len(t, r.arrivals(), 1)
		})
	})
	t.Run("before anything", func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := r.do(ctx, "a", orderBody(1))
		require.ErrorIs(t, err, ErrNotSent)
		require.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, r.arrivals())
	})
}

// A server that is not known to honour keys is asked once (P8).
func TestNoContractIsNeverSentBlind(t *testing.T) {
	for name, c := range map[string]*contract.Contract{"none": nil, "unsupported": contract.Unsupported} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRigFor(t, nil, faultinjection.DieAfterEffect)
				if c != nil {
					r.transport.Contracts = c
				}
				_, _, err := r.do(t.Context(), "a", orderBody(1))
				requireUnknown(t, err, StateHeld)
				require.ErrorIs(t, err, ErrHeld)
				assert.ErrorContains(t, err, "contract.Keyed")
				time.Sleep(time.Hour)
				_, err = r.client.Resume(t.Context())
				require.NoError(t, err)
				_, _, err = r.do(t.Context(), "a", orderBody(1))
				require.ErrorIs(t, err, ErrHeld)
				assert.Len(t, r.arrivals(), 1)
			})
		})
	}
}

func TestPassesWhatIsNotJournaled(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(503))
		resp, err := r.client.HTTPClient().Get(rigURL)
		require.NoError(t, err)
		readAndClose(t, resp)
		_, journaled := ResultFrom(resp)
		assert.False(t, journaled)
		for _, a := range r.arrivals() {
			assert.Empty(t, a.Keys)
		}
		assert.Len(t, r.arrivals(), 2, "a safe method is sent again in memory")
		all, err := r.journal.List(t.Context(), Filter{})
		require.NoError(t, err)
		assert.Empty(t, all)
	})
}

func TestRefusalsComeBeforeTheIntent(t *testing.T) {
	r := newRig(t)
	r.transport.MaxRequestBody = 100
	cases := map[string]func(*http.Request){
		"body too large": func(req *http.Request) {
			req.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", 101)))
			req.ContentLength = -1
		},
		"length too long": func(req *http.Request) { req.ContentLength = 101 },
		"length wrong":    func(req *http.Request) { req.ContentLength = 7 },
		"bad header":      func(req *http.Request) { req.Header["X-A"] = []string{"a\r\nb"} },
		"bad method":      func(req *http.Request) { req.Method = "PO ST" },
		"bad scheme":      func(req *http.Request) { req.URL.Scheme = "ftp" },
		"trailers":        func(req *http.Request) { req.Trailer = http.Header{"X-T": nil} },
		"two keys":        func(req *http.Request) { req.Header["Idempotency-Key"] = []string{"a", "b"} },
		"empty key":       func(req *http.Request) { req.Header["Idempotency-Key"] = []string{""} },
		"broken body":     func(req *http.Request) { req.Body = io.NopCloser(brokenReader{}); req.ContentLength = -1 },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			change(req)
			closed := 0
			inner := req.Body
			req.Body = closeCounter{inner, &closed}
			_, result, err := r.roundTrip(t.Context(), "a", req)
			require.ErrorIs(t, err, ErrNotSent)
			require.Error(t, result.Err())
			assert.Equal(t, 1, closed, "the body is closed once")
			_, err = r.client.Lookup(t.Context(), "a")
			require.ErrorIs(t, err, ErrNotFound)
		})
	}
	assert.Empty(t, r.arrivals())
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("disk gone") }

type closeCounter struct {
	io.Reader
	n *int
}

func (c closeCounter) Close() error { *c.n++; return nil }
