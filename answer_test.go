package idem

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// A body that breaks is a lost answer: the same key again, and nothing cut is
// ever recorded.
func TestCutAnswerIsALostAnswer(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.CutAnswer)
		_, body, err := r.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err)
		r.sameKeyAndBytes(2)
		assert.Equal(t, 1, r.effects())
		in := r.lookup("order-1")
		assert.Equal(t, body, string(in.Outcome.Body))
		assert.True(t, in.Outcome.Replayed)
		assert.True(t, strings.HasSuffix(strings.TrimSpace(body), "}"), "whole")
		attempts, err := r.journal.Attempts(t.Context(), in)
		require.NoError(t, err)
		assert.Equal(t, "answer_cut", attempts[0].Decision)
		assert.Contains(t, attempts[0].Error, "EOF")
	})
	t.Run("to the end", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.CutAnswer })
			req := mustRequest(t, t.Context(), rigURL, orderBody(1))
			resp, result, err := r.roundTrip(t.Context(), "order-1", req)
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "not a clean end")
			require.ErrorIs(t, result.Err(), ErrUnknownOutcome)
			assert.Nil(t, r.lookup("order-1").Outcome)
		})
	})
}

func answering(resp func(req *http.Request) *http.Response) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, req.Body)
		closeBody(req)
		r := resp(req)
		r.Request = req
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
		return r, nil
	})
}

// answerWith is a response with a status and nothing else.
func answerWith(status int) func(*http.Request) *http.Response {
	return func(*http.Request) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
	}
}

func eventStream(body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: 200, Header: header("Content-Type", "text/event-stream"), Body: body, ContentLength: -1}
}

func TestStreamsPassThroughAtOnce(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		pr, pw := io.Pipe()
		r.transport.Base = answering(func(*http.Request) *http.Response { return eventStream(pr) })
		go func() {
			for range 3 {
				time.Sleep(time.Minute) // far longer than the attempt's own limit
				_, _ = io.WriteString(pw, "data: x\n\n")
			}
			pw.Close()
		}()
		resp, result, err := r.roundTrip(t.Context(), "order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.NoError(t, err)
		require.NoError(t, result.Err())
		assert.Equal(t, StateInFlight, result.Intent.State)
		assert.Equal(t, StateInFlight, r.lookup("order-1").State)
		assert.True(t, r.lookup("order-1").Owned)
		begun := time.Now()
		_, err = io.ReadFull(resp.Body, make([]byte, 9))
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(begun), "each event as it comes")
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Len(t, rest, 18)
		require.NoError(t, resp.Body.Close())

		in := r.lookup("order-1")
		assert.Equal(t, StateSucceeded, in.State)
		assert.False(t, in.Outcome.Complete)
		_, _, err = r.do(t.Context(), "order-1", orderBody(1))
		require.ErrorIs(t, err, ErrNotKept)
		require.NotErrorIs(t, err, ErrUnknownOutcome)
		assert.ErrorContains(t, err, "200")
	})
}

func TestBrokenStreamIsHeldAndNeverRestarted(t *testing.T) {
	for name, end := range map[string]func(*http.Response){
		"broken":    func(resp *http.Response) { _, _ = io.ReadAll(resp.Body); resp.Body.Close() },
		"abandoned": func(resp *http.Response) { resp.Body.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				sends := 0
				r.transport.Base = answering(func(*http.Request) *http.Response {
					sends++
					return eventStream(io.NopCloser(io.MultiReader(strings.NewReader("data: x\n\n"), iotest.ErrReader(errors.New("reset")))))
				})
				resp, _, err := r.roundTrip(t.Context(), "order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
				require.NoError(t, err)
				end(resp)
				assert.Equal(t, HoldNotKept, r.lookup("order-1").HoldReason)
				time.Sleep(time.Hour)
				_, err = r.client.Resume(t.Context())
				require.NoError(t, err)
				_, _, err = r.do(t.Context(), "order-1", orderBody(1))
				requireUnknown(t, err, StateHeld)
				assert.Equal(t, 1, sends)
			})
		})
	}
}

// What was handed over is never sent again, not after the process died either.
func TestStreamOfADeadProcessIsHeld(t *testing.T) {
	for _, how := range []string{"resume", "call again"} {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			sends := 0
			pr, _ := io.Pipe()
			r.transport.Base = answering(func(*http.Request) *http.Response { sends++; return eventStream(pr) })
			_, _, err := r.roundTrip(t.Context(), "order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
			require.NoError(t, err)
			r.journal.store.Die()
			r.open()
			time.Sleep(time.Minute)
			if how == "resume" {
				_, err = r.client.Resume(t.Context())
				require.NoError(t, err)
			}
			_, _, err = r.do(t.Context(), "order-1", orderBody(1))
			requireUnknown(t, err, StateHeld)
			assert.Equal(t, HoldNotKept, r.lookup("order-1").HoldReason)
			assert.Equal(t, 1, sends)
		})
	}
}

// A long answer is handed over whole, and settles.
func TestAnswerAboveTheLimit(t *testing.T) {
	long := strings.Repeat("y", 5000)
	for _, length := range []int64{5000, -1} {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			r.transport.MaxResponseBody = 1000
			r.transport.Base = answering(func(*http.Request) *http.Response {
				return &http.Response{StatusCode: 201, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(long)), ContentLength: length}
			})
			resp, err := r.client.Do("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
			require.NoError(t, err)
			assert.Equal(t, long, readAndClose(t, resp))
			assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
		})
	}
	t.Run("a refusal is judged by its start", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t)
			r.transport.MaxResponseBody = 1000
			r.transport.Base = answering(func(*http.Request) *http.Response {
				return &http.Response{StatusCode: 400, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(long)), ContentLength: 5000}
			})
			resp, err := r.client.Do("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
			require.NoError(t, err)
			assert.Equal(t, long, readAndClose(t, resp))
			in := r.lookup("order-1")
			assert.Equal(t, StateRejected, in.State)
			assert.False(t, in.Outcome.Complete)
		})
	})
	t.Run("an error may hide inside", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			c := rigContract()
			c.ErrorsInside200 = true
			r := newRigFor(t, c)
			r.transport.MaxResponseBody = 1000
			r.transport.Retry.MaxAttempts = 1
			r.transport.Base = answering(func(*http.Request) *http.Response {
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(long)), ContentLength: 5000}
			})
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			requireUnknown(t, err, StateUnknown)
		})
	})
}

// A recorded answer has no cookies, no hop-by-hop headers, and a right length.
func TestRecordedAnswerIsClean(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Base = answering(func(*http.Request) *http.Response {
			return &http.Response{
				StatusCode: 200, Body: io.NopCloser(strings.NewReader("hello")), ContentLength: -1, Uncompressed: true,
				Header: header("Set-Cookie", "sid=secret", "Connection", "keep-alive", "X-Kept", "yes", "X-Auth-Token", "secret", "Transfer-Encoding", "chunked"),
			}
		})
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err)
		resp, err := r.client.Do("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.NoError(t, err)
		result, ok := ResultFrom(resp)
		require.True(t, ok)
		assert.True(t, result.FromJournal)
		assert.Equal(t, http.Header{"X-Kept": {"yes"}, "Content-Length": {"5"}}, resp.Header)
		assert.Equal(t, int64(5), resp.ContentLength)
		assert.Equal(t, "hello", readAndClose(t, resp))
	})
}

// brokenJournal fails updates from the n-th on.
type brokenJournal struct {
	Journal
	mu   sync.Mutex
	left int // updates that still work
}

var errDisk = errors.New("disk gone")

func (j *brokenJournal) Update(ctx context.Context, next Intent, a *Attempt, durable bool) (Intent, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.left == 0 {
		return Intent{}, errDisk
	}
	j.left--
	return j.Journal.Update(ctx, next, a, durable)
}

// When the outcome cannot be stored, the caller still gets the answer, and the
// intent stays in doubt (P11).
func TestOutcomeThatCannotBeRecorded(t *testing.T) {
	cases := []struct {
		name   string
		status int
		given  bool // Do gives the response
	}{{"succeeded", 201, true}, {"rejected", 400, false}, {"withdrawn", 401, false}, {"unknown", 503, false}}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				r.transport.Journal = &brokenJournal{Journal: r.journal}
				r.transport.Retry.MaxAttempts = 1
				r.transport.Base = answering(func(*http.Request) *http.Response {
					return &http.Response{StatusCode: test.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("x")), ContentLength: 1}
				})
				resp, result, err := r.roundTrip(t.Context(), "a", mustRequest(t, t.Context(), rigURL, orderBody(1)))
				require.NoError(t, err, "a response is never turned into an error")
				assert.Equal(t, test.status, resp.StatusCode)
				assert.False(t, result.Recorded)
				assert.Equal(t, test.given, result.Err() == nil)

				resp, err = r.client.Do("b", mustRequest(t, t.Context(), rigURL, orderBody(1)))
				if test.given {
					require.NoError(t, err)
					assert.Equal(t, "x", readAndClose(t, resp))
				} else {
					require.ErrorIs(t, err, ErrUnknownOutcome)
					require.ErrorIs(t, err, ErrJournal)
					require.NotErrorIs(t, err, ErrNotSent)
					var failure *OperationError
					require.ErrorAs(t, err, &failure)
					assert.Equal(t, test.status, failure.Response.StatusCode)
				}
				assert.False(t, r.lookup("b").State.Final())
			})
		})
	}
}

// A panic below goes on up and leaves doubt, not a claim.
func TestPanicInBase(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		good := r.transport.Base
		r.transport.Base = roundTripper(func(*http.Request) (*http.Response, error) { panic("boom") })
		require.PanicsWithValue(t, "boom", func() { _, _, _ = r.do(t.Context(), "a", orderBody(1)) })
		in := r.lookup("a")
		assert.Equal(t, StateUnknown, in.State)
		assert.True(t, in.Doubt)
		r.transport.Base = good
		_, _, err := r.do(t.Context(), "a", orderBody(1))
		require.NoError(t, err, "no claim is left behind")
	})
}

// When the caller in front leaves, one that waits takes over: no second key,
// no inherited cancellation.
func TestJoinerTakesOver(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Slow(4*time.Second))
		leading, leave := context.WithCancel(t.Context())
		ends := make(chan error, 2)
		go func() {
			_, _, err := r.do(leading, "a", orderBody(1))
			ends <- err
		}()
		time.Sleep(time.Second)
		go func() {
			_, _, err := r.do(t.Context(), "a", orderBody(1))
			ends <- err
		}()
		time.Sleep(time.Second)
		leave()
		err := <-ends
		require.ErrorIs(t, err, context.Canceled)
		requireUnknown(t, err, StateUnknown)
		require.NoError(t, <-ends)
		assert.Equal(t, 1, r.effects())
		r.sameKeyAndBytes(len(r.arrivals()))
	})
}

// A second layer below passes the attempt through: one intent, one key, one
// layer's attempts.
func TestO32_NestedLayersAreOne(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.Status(503) })
		outer := &Transport{Journal: r.journal, Contracts: rigContract(), Base: r.transport}
		_, err := NewClient(outer).Do("a", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		requireUnknown(t, err, StateUnknown)
		r.sameKeyAndBytes(4)
		all, err := r.journal.List(t.Context(), Filter{})
		require.NoError(t, err)
		assert.Len(t, all, 1)
	})
}

// What has no name may have been issued again under another key: held.
func TestUnnamedIsHeldByResume(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Retry.MaxAttempts = 1
		_, err := r.transport.RoundTrip(mustRequest(t, t.Context(), rigURL, orderBody(1)))
		requireUnknown(t, err, StateUnknown)
		time.Sleep(time.Minute)
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		require.Len(t, report.Held, 1)
		assert.Equal(t, HoldUnnamed, report.Held[0].HoldReason)
		assert.Len(t, r.arrivals(), 1)
	})
}

// A wait that the server asks for and the caller does not sit out frees the
// caller with the answer in hand; nobody sends before it is over.
func TestLongWaitParks(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		sends := 0
		r.transport.Base = answering(func(*http.Request) *http.Response {
			sends++
			if sends == 1 {
				return &http.Response{StatusCode: 429, Header: header("Retry-After", "3600"), Body: http.NoBody}
			}
			return &http.Response{StatusCode: 201, Header: http.Header{}, Body: http.NoBody}
		})
		begun := time.Now()
		_, _, err := r.do(t.Context(), "a", orderBody(1))
		require.ErrorIs(t, err, ErrNotSent)
		assert.Zero(t, time.Since(begun))
		var failure *OperationError
		require.ErrorAs(t, err, &failure)
		assert.Equal(t, 429, failure.Response.StatusCode)
		assert.WithinRange(t, failure.Due, begun.Add(time.Hour), begun.Add(time.Hour+7*time.Minute))

		_, _, err = r.do(t.Context(), "a", orderBody(1))
		require.ErrorIs(t, err, ErrNotSent)
		assert.Equal(t, 1, sends, "not before the time named")
		time.Sleep(time.Hour + 7*time.Minute)
		_, _, err = r.do(t.Context(), "a", orderBody(1))
		require.NoError(t, err)
	})
}

// A token request carries credentials and is never journaled.
func TestTokenRequestsPass(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		req, err := http.NewRequestWithContext(WithOperation(t.Context(), "a"), http.MethodPost, rigURL, strings.NewReader("grant_type=client_credentials&client_secret=s"))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		var sent string
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(req.Body)
			sent = string(body)
			assert.Empty(t, req.Header.Get("Idempotency-Key"))
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
		})
		_, err = r.transport.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, "grant_type=client_credentials&client_secret=s", sent)
		_, err = r.client.Lookup(t.Context(), "a")
		require.ErrorIs(t, err, ErrNotFound)
	})
}

// A contract that does not fit together is told before anything is sent.
func TestInvalidContract(t *testing.T) {
	r := newRig(t)
	r.transport.Contracts = contract.Keyed("", time.Hour)
	_, _, err := r.do(t.Context(), "a", orderBody(1))
	require.ErrorIs(t, err, ErrNotSent)
	assert.ErrorContains(t, err, "header")
	assert.Empty(t, r.arrivals())
}

// A resume reads a stream that nobody waits for to its end, which settles it.
func TestResumeReadsAStreamOut(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		sends := 0
		r.transport.Retry.MaxAttempts = 1
		r.transport.Base = answering(func(*http.Request) *http.Response {
			if sends++; sends == 1 {
				return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody}
			}
			return eventStream(io.NopCloser(strings.NewReader(strings.Repeat("data: x\n\n", 100_000))))
		})
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		time.Sleep(time.Minute)
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, report.Settled)
		assert.Equal(t, 1, report.Sent)
		assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
	})
}
