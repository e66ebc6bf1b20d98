package idem

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// This file holds what an adversary found, so that it stays found.

// On HTTP/2 a cancelled call returns while its request may still be written:
// that is doubt, not "not sent".
func TestHTTP2CancelIsNeverNotSentOfWhatArrived(t *testing.T) {
	var seen sync.Map
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("X-Call"), true)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	base := server.Client().Transport
	r := newRig(t)
	r.transport.Retry.MaxAttempts = 1
	r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		cancel := req.Context().Value(cancelKey{}).(context.CancelFunc)
		time.AfterFunc(rand.N(200*time.Microsecond), cancel)
		return base.RoundTrip(req)
	})
	var notSent sync.Map
	var calls sync.WaitGroup
	for g := range 4 {
		calls.Go(func() {
			for i := range 400 {
				name := fmt.Sprintf("%d-%d", g, i)
				ctx, cancel := context.WithCancel(t.Context())
				req, err := http.NewRequestWithContext(context.WithValue(ctx, cancelKey{}, cancel), http.MethodPost, server.URL, nil)
				if !assert.NoError(t, err) {
					return
				}
				req.Header.Set("X-Call", name)
				resp, err := r.client.Do(name, req)
				if err == nil {
					resp.Body.Close()
				}
				cancel()
				if errors.Is(err, ErrNotSent) {
					notSent.Store(name, true)
				}
			}
		})
	}
	calls.Wait()
	server.Close() // waits for the handlers
	notSent.Range(func(name, _ any) bool {
		_, arrived := seen.Load(name)
		return assert.False(t, arrived, "told not sent, and arrived")
	})
}

type cancelKey struct{}

// A call that waits for the due time is judged by when it would send (P7).
func TestWaitDoesNotOutliveTheKey(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c := contract.Keyed("Idempotency-Key", 2*time.Minute)
		r := newRigFor(t, c, faultinjection.DieAfterEffect, faultinjection.Unavailable(150*time.Second))
		r.transport.Retry = RetryPolicy{MaxBackoff: 5 * time.Minute, MaxAttempts: 2}
		for range 3 {
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			require.ErrorIs(t, err, ErrUnknownOutcome)
		}
		assert.Equal(t, 1, r.effects())
	})
}

// Two transports under one context value are two calls: neither answers for the
// other.
func TestTwoTransportsUnderOneContext(t *testing.T) {
	virtually(t, func(t *testing.T) {
		a, b := newRig(t), newRig(t)
		ctx := WithOperation(t.Context(), "order-1")
		for _, r := range []*rig{a, b} {
			r.transport.Retry.MaxAttempts = 1
			resp, err := r.transport.RoundTrip(mustRequest(t, ctx, rigURL, orderBody(1)))
			require.NoError(t, err)
			readAndClose(t, resp)
			assert.Equal(t, 1, r.effects())
			assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
		}
	})
}

// Scopes and names are told apart whatever they hold.
func TestNamesThatLookAlike(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Slow(time.Second), faultinjection.Slow(time.Second))
		var calls sync.WaitGroup
		for _, name := range [][2]string{{"t\x00a", "b"}, {"t", "a\x00b"}} {
			calls.Go(func() {
				_, _, err := r.do(WithScope(t.Context(), name[0]), name[1], orderBody(1))
				assert.NoError(t, err)
			})
		}
		calls.Wait()
		assert.Len(t, r.arrivals(), 2)
	})
}

// rawServer answers every request with the same bytes, or not at all.
func rawServer(t *testing.T, answer func(n int) string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				reader := bufio.NewReader(conn)
				for n := 0; ; n++ {
					req, err := http.ReadRequest(reader)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					text := answer(n)
					if text == "" {
						return
					}
					_, _ = io.WriteString(conn, text)
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// No header of a server, and no limit, makes us reserve what it names.
func TestHugeContentLength(t *testing.T) {
	address := rawServer(t, func(int) string {
		return "HTTP/1.1 500 X\r\nConnection: close\r\nContent-Length: 9223372036854775807\r\n\r\nabc"
	})
	r := newRig(t)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	r.transport.Base = base
	r.transport.Retry = RetryPolicy{MaxAttempts: 1, AttemptTimeout: time.Second}
	r.transport.MaxRequestBody, r.transport.MaxResponseBody = math.MaxInt64, math.MaxInt64
	_, err := r.client.Do("order-1", mustRequest(t, t.Context(), address, orderBody(1)))
	requireUnknown(t, err, StateUnknown)
}

// net/http does not send again behind our back where the server keeps no keys,
// whatever headers the caller sets (P8).
func TestNoHiddenResend(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key", "X-Other"} {
		t.Run(name, func(t *testing.T) {
			var executed atomic.Int32
			address := rawServer(t, func(n int) string {
				if n > 0 {
					executed.Add(1)
					return "" // executed, and the answer is lost, on a connection that was used before
				}
				return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
			})
			r := newRigFor(t, nil)
			base := &http.Transport{}
			t.Cleanup(base.CloseIdleConnections)
			r.transport.Base = base
			resp, err := r.client.HTTPClient().Get(address)
			require.NoError(t, err)
			readAndClose(t, resp)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
			require.NoError(t, err)
			req.Header.Set(name, "k1")
			_, err = r.client.Do("order-1", req)
			requireUnknown(t, err, StateHeld)
			assert.Equal(t, int32(1), executed.Load())
		})
	}
}

// A claim never outlives a panic, wherever it comes from.
func TestPanicsLeaveNoClaim(t *testing.T) {
	t.Run("hook", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			r.transport.Observer = &Observer{Recorded: func(context.Context, Intent) { panic("hook") }}
			require.PanicsWithValue(t, "hook", func() { _, _, _ = r.do(t.Context(), "order-1", orderBody(1)) })
			r.transport.Observer = nil
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			require.NoError(t, err)
		})
	})
	t.Run("resume", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			good := r.transport.Base
			r.transport.Retry.MaxAttempts = 1
			for i := range 3 {
				r.transport.Base = answering(answerWith(503))
				_, _, err := r.do(t.Context(), fmt.Sprint("order-", i), orderBody(i))
				requireUnknown(t, err, StateUnknown)
			}
			r.transport.Base = roundTripper(func(*http.Request) (*http.Response, error) { panic("base") })
			time.Sleep(time.Minute)
			require.PanicsWithValue(t, "base", func() { _, _ = r.client.Resume(t.Context()) })
			r.transport.Base = good
			time.Sleep(time.Minute)
			report, err := r.client.Resume(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 3, report.Settled)
		})
	})
}

// A pass ends where the journal does not take what happened.
func TestResumeDoesNotSpin(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(503))
		r.transport.Retry.MaxAttempts = 1
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		time.Sleep(time.Minute)
		r.transport.Journal = &brokenJournal{Journal: r.journal}
		_, err = r.client.Resume(t.Context())
		require.ErrorIs(t, err, ErrJournal)
		assert.Len(t, r.arrivals(), 1)
	})
}

func TestContinueOfAPrunedOperation(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(401))
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.ErrorIs(t, err, ErrNotSent)
		time.Sleep(48 * time.Hour)
		n, err := r.journal.Prune(t.Context(), time.Now())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		_, err = r.client.Continue(t.Context(), "order-1")
		require.ErrorIs(t, err, ErrNotSent)
		assert.ErrorContains(t, err, "pruned")
		_, _, err = r.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err, "a call with the request goes on, under the same key")
		r.sameKeyAndBytes(2)
	})
}

// The base transport may use a client of ours for requests of its own.
func TestBaseMayHaveOperationsOfItsOwn(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		good := r.transport.Base
		inner := NewClient(&Transport{Name: "signer", Journal: r.journal, Contracts: rigContract(), Base: good})
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := inner.Do("sign-1", mustRequest(t, req.Context(), "http://provider.example/sign", orderBody(2)))
			if err != nil {
				return nil, err
			}
			readAndClose(t, resp)
			return good.RoundTrip(req)
		})
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err)
		assert.Equal(t, StateSucceeded, r.lookup("sign-1").State)
		assert.NotEqual(t, r.arrivals()[0].Keys, r.arrivals()[1].Keys)
		assert.Len(t, r.arrivals(), 2)
	})
}

// Authorize adds credentials and changes nothing else.
func TestAuthorizeChangesNothingElse(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Retry.MaxAttempts = 1
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		r.client.Authorize = func(req *http.Request, _ Intent) error {
			req.Method, req.URL.Path, req.Host = http.MethodPut, "/elsewhere", "elsewhere.example"
			req.Header.Set("Content-Type", "text/plain")
			req.Header.Set("Idempotency-Key", "another")
			req.Header.Set("Authorization", "Bearer new")
			req.Body = io.NopCloser(strings.NewReader("other"))
			return nil
		}
		requireResumed(t, r, "order-1")
		a := r.arrivals()[1]
		assert.Equal(t, "/charges", a.URI)
		assert.Equal(t, "provider.example", a.Host)
		assert.Equal(t, "application/json", a.Header.Get("Content-Type"))
		assert.Equal(t, "Bearer new", a.Header.Get("Authorization"))
	})
}

func TestBaseThatReturnsNothing(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Base = roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
	})
}

// A fresh trace for each attempt: an earlier "not sent" proves nothing of a
// later attempt.
func TestPassedRequestsAreJudgedOneByOne(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRigFor(t, nil)
		sends := 0
		dial := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }}
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			if sends++; sends == 1 {
				return dial.RoundTrip(req) // traced, and not sent
			}
			closeBody(req)
			return nil, errReset
		})
		_, err := r.transport.RoundTrip(mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.Error(t, err)
		assert.Equal(t, 2, sends)
	})
}

func TestBadRequestsThroughDo(t *testing.T) {
	r := newRig(t)
	req := mustRequest(t, t.Context(), rigURL, orderBody(1))
	req.URL = nil
	_, err := r.client.Do("order-1", req)
	require.ErrorIs(t, err, ErrNotSent)
	req = mustRequest(t, t.Context(), rigURL, orderBody(1))
	req.RequestURI = "/x"
	_, err = r.client.Do("order-1", req)
	require.ErrorIs(t, err, ErrNotSent)
}

// The response of an error is buffered and needs no close.
func TestErrorResponseIsBuffered(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.MaxResponseBody = 10
		r.transport.Retry.MaxAttempts = 1
		closed := 0
		r.transport.Base = answering(func(*http.Request) *http.Response {
			return &http.Response{StatusCode: 503, Header: http.Header{}, Body: closeCounter{strings.NewReader(strings.Repeat("x", 30)), &closed}, ContentLength: 30}
		})
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		var failure *OperationError
		require.ErrorAs(t, err, &failure)
		assert.Equal(t, 1, closed)
		text, err := io.ReadAll(failure.Response.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Len(t, text, 10)
	})
}

// Close may come while a Read waits.
func TestStreamClosedDuringARead(t *testing.T) {
	r := newRig(t)
	r.path = filepath.Join(t.TempDir(), "j.db")
	pr, pw := io.Pipe()
	defer pw.Close()
	r.transport.Base = answering(func(*http.Request) *http.Response { return eventStream(pr) })
	resp, _, err := r.roundTrip(t.Context(), "order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
	require.NoError(t, err)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.ReadAll(resp.Body)
	}()
	_, err = io.WriteString(pw, "data: x\n\n") // the reader is there
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	<-read
	assert.Equal(t, HoldNotKept, r.lookup("order-1").HoldReason)
}

// A resume goes to no other origin: the intent is held.
func TestResumeStaysAtItsOrigin(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(503), faultinjection.Redirect(307, "http://elsewhere.example/pay"))
		r.transport.Retry.MaxAttempts = 1
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		time.Sleep(time.Minute)
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		require.Len(t, report.Held, 1)
		assert.Equal(t, HoldRedirect, report.Held[0].HoldReason)
		r.sameKeyAndBytes(2)
		assert.Equal(t, "provider.example", r.arrivals()[1].Host)
	})
}

// Authorize may fail for a while: it is asked again, a bounded number of times.
func TestAuthorizeThatFailsIsAskedAgain(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Retry = RetryPolicy{MaxAttempts: 1, ResumeAttempts: 3}
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		asked, works := 0, false
		r.client.Authorize = func(*http.Request, Intent) error {
			if asked++; works {
				return nil
			}
			return errors.New("vault is down")
		}
		resume := func() Intent {
			time.Sleep(time.Minute)
			_, err := r.client.Resume(t.Context())
			require.NoError(t, err)
			return r.lookup("order-1")
		}
		in := resume()
		assert.Equal(t, StateUnknown, in.State)
		assert.Equal(t, 1, in.Resumes)
		assert.False(t, in.Due.IsZero())
		resume()
		in = resume()
		assert.Equal(t, StateHeld, in.State, "not for ever")
		assert.Len(t, r.arrivals(), 1, "never sent bare")
		works = true
		_, err = r.client.Release(t.Context(), in, "ann", "the vault is up")
		require.NoError(t, err)
		assert.Equal(t, StateSucceeded, resume().State)
		assert.Equal(t, 4, asked)
	})
}
