package idem

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

func TestO19_OtherParametersAreRefused(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		_, first, err := r.do(t.Context(), "order-1", `{"amount":1000}`)
		require.NoError(t, err)
		before := r.lookup("order-1")
		for name, change := range map[string]func() *http.Request{
			"amount": func() *http.Request { return mustRequest(t, t.Context(), rigURL, `{"amount":2000}`) },
			"path":   func() *http.Request { return mustRequest(t, t.Context(), rigURL+"/other", `{"amount":1000}`) },
			"query":  func() *http.Request { return mustRequest(t, t.Context(), rigURL+"?x=secret-query", `{"amount":1000}`) },
			"host": func() *http.Request {
				return mustRequest(t, t.Context(), "http://other.example/charges", `{"amount":1000}`)
			},
			"method": func() *http.Request {
				req := mustRequest(t, t.Context(), rigURL, `{"amount":1000}`)
				req.Method = http.MethodPut
				return req
			},
		} {
			_, err := r.client.Do("order-1", change())
			require.ErrorIs(t, err, ErrMismatch, name)
			require.NotErrorIs(t, err, ErrNotSent, name)
			require.NotErrorIs(t, err, ErrUnknownOutcome, name)
			assert.Contains(t, err.Error(), "POST "+rigURL, "names the first request")
			assert.NotContains(t, err.Error(), "secret-query")
			assert.NotContains(t, err.Error(), "2000")
		}
		assert.Len(t, r.arrivals(), 1)
		assert.Equal(t, before, r.lookup("order-1"), "the first outcome is untouched")
		_, again, err := r.do(t.Context(), "order-1", `{"amount":1000}`)
		require.NoError(t, err)
		assert.Equal(t, first, again)
	})
}

func TestScopesAreApart(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		_, _, err := r.do(WithScope(t.Context(), "tenant-a"), "order-1", orderBody(1))
		require.NoError(t, err)
		_, _, err = r.do(WithScope(t.Context(), "tenant-b"), "order-1", orderBody(2))
		require.NoError(t, err)
		assert.Len(t, r.arrivals(), 2)
		assert.NotEqual(t, r.arrivals()[0].Keys, r.arrivals()[1].Keys)
		_, err = r.client.Lookup(t.Context(), "order-1")
		require.ErrorIs(t, err, ErrNotFound)
		in, err := r.client.Lookup(WithScope(t.Context(), "tenant-b"), "order-1")
		require.NoError(t, err)
		assert.Equal(t, "tenant-b", in.Scope)
	})
}

// Content alone never joins two calls.
func TestUnnamedCallsAreApart(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		for range 2 {
			resp, err := r.client.HTTPClient().Do(mustRequest(t, t.Context(), rigURL, orderBody(1)))
			require.NoError(t, err)
			readAndClose(t, resp)
		}
		require.Len(t, r.arrivals(), 2)
		assert.NotEqual(t, r.arrivals()[0].Keys, r.arrivals()[1].Keys)
	})
}

func TestRequireOperation(t *testing.T) {
	r := newRig(t)
	r.transport.RequireOperation = true
	_, err := r.client.HTTPClient().Do(mustRequest(t, t.Context(), rigURL, orderBody(1)))
	require.ErrorIs(t, err, ErrNoOperation)
	require.ErrorIs(t, err, ErrNotSent)
	assert.Empty(t, r.arrivals())
	_, err = r.client.Do("", mustRequest(t, t.Context(), rigURL, orderBody(1)))
	require.ErrorIs(t, err, ErrNoOperation)
}

func TestAdoptedKeyUnderAnotherCredential(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		send := func(credential string) error {
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			req.Header.Set("Idempotency-Key", "own-key")
			req.Header.Set("Authorization", "Bearer "+credential)
			resp, err := r.transport.RoundTrip(req)
			if err == nil {
				readAndClose(t, resp)
			}
			return err
		}
		require.NoError(t, send("alice"))
		require.NoError(t, send("alice"))
		err := send("bob")
		require.ErrorIs(t, err, ErrMismatch)
		assert.ErrorContains(t, err, "WithScope")
		assert.NotContains(t, err.Error(), "own-key")
		assert.Len(t, r.arrivals(), 1)
	})
}

func TestO02_RedirectHopKeepsTheKey(t *testing.T) {
	for _, code := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		for _, named := range []bool{true, false} {
			virtually(t, func(t *testing.T) {
				r := newRig(t, faultinjection.Redirect(code, "/pay2"))
				req := mustRequest(t, t.Context(), rigURL, orderBody(1))
				var result Result
				req = req.WithContext(WithResult(t.Context(), &result))
				var resp *http.Response
				var err error
				if named {
					resp, err = r.client.Do("order-1", req)
				} else {
					resp, err = r.client.HTTPClient().Do(req)
				}
				require.NoError(t, err)
				assert.Equal(t, http.StatusCreated, resp.StatusCode)
				answer := readAndClose(t, resp)
				r.sameKeyAndBytes(2)
				assert.Equal(t, "/pay2", r.arrivals()[1].URI)
				all, err := r.journal.List(t.Context(), Filter{})
				require.NoError(t, err)
				require.Len(t, all, 1, "one intent")
				assert.Equal(t, StateSucceeded, all[0].State)
				assert.Equal(t, 2, all[0].Attempts)
				assert.Equal(t, 1, r.effects())
				assert.Equal(t, StateSucceeded, result.Intent.State)
				if named {
					assert.Equal(t, answer, string(r.lookup("order-1").Outcome.Body), "the outcome is that of /pay2")
				}
			})
		}
	}
}

func TestRedirectToAnotherOriginSendsNothingThere(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Redirect(307, "http://elsewhere.example/pay"))
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.ErrorIs(t, err, ErrNotSent)
		assert.ErrorContains(t, err, "elsewhere.example")
		assert.Len(t, r.arrivals(), 1)
		assert.Equal(t, StateWithdrawn, r.lookup("order-1").State)
	})
	t.Run("in doubt", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.Status(503), faultinjection.Redirect(307, "https://provider.example/pay"))
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			requireUnknown(t, err, StateUnknown)
			assert.Len(t, r.arrivals(), 2)
		})
	})
}

// A resumed request starts at its first URL and follows the hops itself.
func TestResumeFollowsRedirects(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(503), faultinjection.Redirect(308, "/pay2"))
		r.transport.Retry.MaxAttempts = 1
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		requireResumed(t, r, "order-1")
		assert.Equal(t, "/pay2", r.arrivals()[2].URI)
	})
}

func TestContinueNeedsNoRequest(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Retry.MaxAttempts = 1
		_, err := r.client.Continue(t.Context(), "order-1")
		require.ErrorIs(t, err, ErrNotFound)
		_, _, err = r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		r.reopen()
		resp, err := r.client.Continue(t.Context(), "order-1")
		require.NoError(t, err)
		answer := readAndClose(t, resp)
		r.sameKeyAndBytes(2)
		resp, err = r.client.Continue(t.Context(), "order-1")
		require.NoError(t, err)
		assert.Equal(t, answer, readAndClose(t, resp), "final: from the journal")
		r.sameKeyAndBytes(2)
	})
}

// Credentials are never stored; a resume asks for them anew, or holds.
func TestCredentialsAreAskedForAnew(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect, faultinjection.DieAfterEffect)
		r.transport.Retry.MaxAttempts = 1
		for _, operation := range []string{"held", "authorized"} {
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			req.Header.Set("Authorization", "Bearer secret-1")
			_, err := r.client.Do(operation, req)
			requireUnknown(t, err, StateUnknown)
			time.Sleep(time.Minute)
			if operation == "authorized" {
				r.client.Authorize = func(req *http.Request, in Intent) error {
					assert.Equal(t, []string{"Authorization"}, in.Withheld)
					assert.Nil(t, in.Request)
					req.Header.Set("Authorization", "Bearer secret-2")
					return nil
				}
			}
			report, err := r.client.Resume(t.Context())
			require.NoError(t, err)
			if operation == "held" {
				require.Len(t, report.Held, 1)
				assert.Equal(t, HoldCredentials, report.Held[0].HoldReason)
				assert.Len(t, r.arrivals(), 1, "never sent bare")
			} else {
				assert.Equal(t, 1, report.Settled)
				assert.Equal(t, "Bearer secret-2", r.arrivals()[2].Header.Get("Authorization"))
			}
		}
	})
}

// Past the key's life nothing is sent by itself (P7).
func TestRetentionStop(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Retry.MaxAttempts = 1
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		time.Sleep(24*time.Hour - 10*time.Minute)

		_, _, err = r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		require.ErrorIs(t, err, ErrHeld)
		assert.ErrorContains(t, err, "forgotten the key")
		assert.Equal(t, StateUnknown, r.lookup("order-1").State, "a refused call changes nothing")

		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		require.Len(t, report.Held, 1)
		assert.Equal(t, HoldExpired, r.lookup("order-1").HoldReason)
		assert.Len(t, r.arrivals(), 1)
	})
}

func TestShutdownWaitsAndRefuses(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Slow(5*time.Second))
		ended := make(chan error)
		go func() {
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			ended <- err
		}()
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.client.Shutdown(short), context.DeadlineExceeded)
		begun := time.Now()
		done := make(chan error)
		go func() { done <- r.client.Shutdown(t.Context()) }()
		require.NoError(t, <-ended)
		require.NoError(t, <-done)
		assert.Equal(t, 3*time.Second, time.Since(begun))
		_, _, err := r.do(t.Context(), "order-2", orderBody(2))
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, err, ErrNotSent)
	})
}

// A hop needs no second copy of the body: it sends the stored bytes.
func TestRedirectWithAOneShotBody(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Redirect(307, "/pay2"))
		req := mustRequest(t, t.Context(), rigURL, "")
		req.Body, req.GetBody, req.ContentLength = &oneShot{Reader: strings.NewReader(orderBody(1))}, nil, -1
		resp, err := r.client.Do("order-1", req)
		require.NoError(t, err)
		readAndClose(t, resp)
		r.sameKeyAndBytes(2)
	})
}

// A hop whose intent cannot be claimed is not "not sent" if an attempt before it
// may have executed, though it has no name to be found by.
func TestRedirectInDoubtThatCannotBeClaimed(t *testing.T) {
	for _, first := range []faultinjection.Step{faultinjection.DieAfterEffect, faultinjection.Run} {
		virtually(t, func(t *testing.T) {
			steps := []faultinjection.Step{first, faultinjection.Redirect(307, "/pay2")}
			if first == faultinjection.Run {
				steps = steps[1:]
			}
			r := newRig(t, steps...)
			faulty := &faultyJournal{SQLiteJournal: r.journal}
			r.transport.Journal = faulty
			r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := r.server.Transport().RoundTrip(req)
				faulty.begin = err == nil
				return resp, err
			})
			client := &http.Client{Transport: r.transport}
			_, err := client.Do(mustRequest(t, t.Context(), rigURL, orderBody(1)))
			require.ErrorIs(t, err, errDisk)
			assert.Equal(t, first == faultinjection.DieAfterEffect, errors.Is(err, ErrUnknownOutcome), "%v", err)
			assert.Equal(t, first == faultinjection.Run, errors.Is(err, ErrNotSent), "%v", err)
		})
	}
}

// Redirect hops share the call's attempts: once they are used up, the last
// answer comes back without a send.
func TestRedirectsShareTheBudget(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.Redirect(307, "/again") })
		r.transport.Retry.MaxAttempts = 3
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.ErrorIs(t, err, ErrNotSent)
		r.sameKeyAndBytes(3)
		assert.Equal(t, StateWithdrawn, r.lookup("order-1").State)
	})
}

// One context value may carry several operations: each has its own attempts.
func TestOperationsUnderOneContextValue(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.Status(503) })
		r.transport.Retry.MaxAttempts = 2
		r.transport.Operation = func(req *http.Request, name string) string { return name + req.URL.Path }
		ctx := WithOperation(t.Context(), "order-1")
		for range 2 {
			for _, path := range []string{"/charge", "/ship"} {
				resp, err := r.transport.RoundTrip(mustRequest(t, ctx, "http://provider.example"+path, orderBody(1)))
				require.NoError(t, err)
				assert.Equal(t, 503, resp.StatusCode)
			}
		}
		assert.Len(t, r.arrivals(), 4)
		_, err := r.transport.RoundTrip(mustRequest(t, ctx, "http://provider.example/ship", orderBody(2)))
		require.ErrorIs(t, err, ErrMismatch, "a used up call does not answer for another request")
	})
}

// Scope headers are part of what the request is; other headers are not.
func TestScopeHeadersAreInTheFingerprint(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c := rigContract()
		c.ScopeHeaders = []string{"X-Account"}
		r := newRigFor(t, c)
		send := func(name, key, account, trace string) error {
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			req.Header.Set("X-Account", account)
			req.Header.Set("X-Trace", trace)
			if key != "" {
				req.Header.Set("Idempotency-Key", key)
			}
			resp, err := r.transport.RoundTrip(req.WithContext(WithOperation(t.Context(), name)))
			if err == nil {
				readAndClose(t, resp)
			}
			return err
		}
		require.NoError(t, send("order-1", "", "a", "1"))
		require.NoError(t, send("order-1", "", "a", "2"), "another header is the same request")
		require.ErrorIs(t, send("order-1", "", "b", "1"), ErrMismatch)
		require.Len(t, r.arrivals(), 1)

		require.NoError(t, send("", "own-key", "a", "1"))
		require.NoError(t, send("", "own-key", "b", "1"), "another account's key space")
		require.NoError(t, send("", "own-key", "b", "2"))
		require.Len(t, r.arrivals(), 3)
		require.ErrorIs(t, send("order-2", "own-key", "a", "1"), ErrMismatch, "a key that another operation holds")
		require.NoError(t, send("order-3", "first-key", "a", "1"))
		require.NoError(t, send("order-3", "second-key", "a", "1"), "the journaled key wins over an SDK's fresh one")
		require.Len(t, r.arrivals(), 4)
		assert.Equal(t, []string{"first-key"}, r.arrivals()[3].Keys)
	})
}

// flushedJournal sees whether it is flushed.
type flushedJournal struct {
	Journal
	flushes int
	err     error
}

func (j *flushedJournal) Flush(context.Context) error { j.flushes++; return j.err }

// Shutdown flushes the journal once its calls are over, and tells if that
// failed. That the flush is a sync is shown by internal/tracecheck.
func TestShutdownFlushes(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		journal := &flushedJournal{Journal: r.journal}
		r.transport.Journal = journal
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err)
		require.Zero(t, journal.flushes)
		require.NoError(t, r.client.Shutdown(t.Context()))
		require.Equal(t, 1, journal.flushes)
		journal.err = errDisk
		require.ErrorIs(t, r.client.Shutdown(t.Context()), errDisk)
	})
}
