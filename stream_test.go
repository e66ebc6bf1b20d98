package idem

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// overBoth runs a test over each protocol: a rig whose base sends to a server
// with the handler.
func overBoth(t *testing.T, handler func(t *testing.T) http.HandlerFunc, test func(t *testing.T, r *rig, url string)) {
	for _, proto := range []string{http1, http2} {
		t.Run(proto, func(t *testing.T) {
			server := listen(t, proto, handler(t))
			base := server.Client().Transport.(*http.Transport).Clone()
			t.Cleanup(base.CloseIdleConnections)
			r := newRig(t)
			r.transport.Base = base
			r.transport.Retry.MaxAttempts = 1
			test(t, r, server.URL)
		})
	}
}

// within bounds a test that would hang where something buffers.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// doors are the ways to make a call.
var doors = map[string]func(*rig, *http.Request) (*http.Response, error){
	"Do": func(r *rig, req *http.Request) (*http.Response, error) { return r.client.Do("order-1", req) },
	"HTTPClient": func(r *rig, req *http.Request) (*http.Response, error) {
		return r.client.HTTPClient().Do(req.WithContext(WithOperation(req.Context(), "order-1")))
	},
}

// Each event is sent only after the one before it was read, so nothing waits
// for more.
func TestO22_EventsAreReadAsTheyAreSent(t *testing.T) {
	const events = 5
	var read chan int
	handler := func(t *testing.T) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			assert.Empty(t, req.Header.Get("Accept"))
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range events {
				if i > 0 && assert.Equal(t, i-1, <-read) {
					fmt.Fprint(w, ": read\n")
				}
				fmt.Fprintf(w, "data: %d\n\n", i)
				flush(w)
			}
		}
	}
	for door, call := range doors {
		t.Run(door, func(t *testing.T) {
			overBoth(t, handler, func(t *testing.T, r *rig, url string) {
				read = make(chan int, events)
				defer close(read)
				resp, err := call(r, mustRequest(t, within(t), url, orderBody(1)))
				require.NoError(t, err)
				result, ok := ResultFrom(resp)
				require.True(t, ok)
				require.NoError(t, result.Err())
				lines := bufio.NewReader(resp.Body)
				for i := range events {
					for line := ""; line != fmt.Sprintf("data: %d\n", i); {
						line, err = lines.ReadString('\n')
						require.NoError(t, err, "event %d", i)
					}
					if i < events-1 { // the end may come with the last
						require.Equal(t, StateInFlight, r.lookup("order-1").State)
					}
					read <- i
				}
				_, err = io.Copy(io.Discard, lines)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
			})
		})
	}
}

const mib = 1 << 20

// used is the memory in use, without garbage.
func used() (alloc, inuse int64) {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), int64(stats.HeapInuse)
}

// What is handed over while it arrives is not kept, however long it gets.
func TestO22_LongAnswersTakeNoMemory(t *testing.T) {
	const size = 200 * mib / raceStep
	answers := map[string]func(http.Header){
		"event stream":      func(h http.Header) { h.Set("Content-Type", "text/event-stream") },
		"of known length":   func(h http.Header) { h.Set("Content-Length", strconv.Itoa(size)) },
		"of unknown length": func(http.Header) {},
	}
	for name, head := range answers {
		t.Run(name, func(t *testing.T) {
			handler := func(*testing.T) http.HandlerFunc {
				return func(w http.ResponseWriter, _ *http.Request) {
					head(w.Header())
					chunk := bytes.Repeat([]byte("data: 0123456789\n"), 64<<10/17)
					for left := size; left > 0; {
						n, err := w.Write(chunk[:min(left, len(chunk))])
						if left -= n; err != nil {
							return
						}
					}
				}
			}
			overBoth(t, handler, func(t *testing.T, r *rig, url string) {
				alloc, inuse := used()
				resp, err := r.client.Do("order-1", mustRequest(t, t.Context(), url, orderBody(1)))
				require.NoError(t, err)
				buf := make([]byte, 64<<10)
				most, sampled := int64(0), 0
				for total := 0; ; {
					n, err := resp.Body.Read(buf)
					total += n
					if total >= sampled+size/20 || err == io.EOF {
						a, i := used()
						most, sampled = max(most, a-alloc, i-inuse), total
					}
					if err == io.EOF {
						require.Equal(t, size, total)
						break
					}
					require.NoError(t, err)
				}
				require.NoError(t, resp.Body.Close())
				assert.Less(t, most, int64(20*mib))
				assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
			})
		})
	}
}

// What was handed over is not asked for again by itself.
func TestO22_BrokenStreamIsNotRestarted(t *testing.T) {
	const sent = "data: 0\n\n"
	for door, call := range doors {
		t.Run(door, func(t *testing.T) {
			var arrivals atomic.Int32
			handler := func(*testing.T) http.HandlerFunc {
				arrivals.Store(0)
				return func(w http.ResponseWriter, req *http.Request) {
					arrivals.Add(1)
					_, _ = io.Copy(io.Discard, req.Body)
					w.Header().Set("Content-Type", "text/event-stream")
					inPieces(true, sent)(nil, w, req)
				}
			}
			overBoth(t, handler, func(t *testing.T, r *rig, url string) {
				r.transport.Retry = RetryPolicy{MinBackoff: time.Millisecond}
				resp, err := call(r, mustRequest(t, within(t), url, orderBody(1)))
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.Error(t, err, "not a clean end")
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, sent, string(body))
				in := r.lookup("order-1")
				assert.Equal(t, StateHeld, in.State)
				assert.Equal(t, HoldNotKept, in.HoldReason)
				report, err := r.client.Resume(t.Context())
				require.NoError(t, err)
				assert.Zero(t, report.Sent)
				_, err = call(r, mustRequest(t, within(t), url, orderBody(1)))
				require.ErrorIs(t, err, ErrHeld)
				require.ErrorIs(t, err, ErrUnknownOutcome)
				assert.Equal(t, int32(1), arrivals.Load())
			})
		})
	}
}

// The body outlives RoundTrip, and so does the attempt's context until it has
// been read.
func TestO08_BodyIsReadableAfterTheAttempt(t *testing.T) {
	const size, calls, callers = 256 << 10, 100 / raceStep, 10
	body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	var answered sync.Map // calls whose caller has the answer
	handed := func(req *http.Request) chan struct{} {
		c, _ := answered.LoadOrStore(req.Header.Get("X-Call"), make(chan struct{}))
		return c.(chan struct{})
	}
	untilHanded := func(req *http.Request) {
		select {
		case <-handed(req):
		case <-req.Context().Done():
		}
	}
	for name, test := range map[string]struct {
		kept  int64 // MaxResponseBody
		media string
		wait  func(*http.Request)
	}{
		"kept":         {wait: func(*http.Request) { time.Sleep(200 * time.Millisecond) }},
		"above limit":  {kept: size - 1, wait: untilHanded},
		"event stream": {media: "text/event-stream", wait: untilHanded},
	} {
		t.Run(name, func(t *testing.T) {
			handler := func(*testing.T) http.HandlerFunc {
				return func(w http.ResponseWriter, req *http.Request) {
					_, _ = io.Copy(io.Discard, req.Body)
					w.Header().Set("Content-Length", strconv.Itoa(size))
					w.Header().Set("Content-Type", test.media)
					flush(w)
					test.wait(req)
					_, _ = w.Write(body)
				}
			}
			overBoth(t, handler, func(t *testing.T, r *rig, url string) {
				r.transport.MaxResponseBody = test.kept
				r.transport.Retry.AttemptTimeout = 5 * time.Second
				ctx := within(t)
				call := func(i int) {
					req := mustRequest(t, ctx, url, orderBody(i))
					req.Header.Set("X-Call", t.Name()+strconv.Itoa(i))
					resp, err := r.client.Do(fmt.Sprint("order-", i), req)
					if !assert.NoError(t, err) {
						return
					}
					close(handed(req))
					got, err := io.ReadAll(resp.Body)
					assert.NoError(t, err)
					assert.True(t, bytes.Equal(body, got), "%d bytes", len(got))
					assert.NoError(t, resp.Body.Close())
				}
				call(calls) // what lives as long as the process
				r.transport.CloseIdleConnections()
				baseline := runtime.NumGoroutine()
				var all sync.WaitGroup
				for c := range callers {
					all.Go(func() {
						for i := c; i < calls; i += callers {
							call(i)
						}
					})
				}
				all.Wait()
				r.transport.CloseIdleConnections()
				requireGoroutines(t, baseline)
				require.NoError(t, r.journal.Flush(t.Context()))
				settled, err := r.journal.List(t.Context(), Filter{States: []State{StateSucceeded}, Limit: 2 * calls})
				require.NoError(t, err)
				assert.Len(t, settled, calls+1)
			})
		})
	}
}

// bodiesOf counts how often the bodies of a base transport's answers are closed.
func bodiesOf(base http.RoundTripper, last *atomic.Pointer[watchedBody]) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil {
			body := &watchedBody{Reader: resp.Body, closer: resp.Body}
			last.Store(body)
			resp.Body = body
		}
		return resp, err
	})
}

// What was read of an error to judge it is given back, and so is its end.
func TestO21_ErrorBodyIsGivenBackWhole(t *testing.T) {
	const whole, part = 64 << 10, 30 << 10
	body := `{"error":{"code":"taken"},"why":"` + strings.Repeat("x", whole-35) + `"}`
	require.Len(t, body, whole)
	judging := rigContract()
	judging.Mismatch = append(judging.Mismatch, contract.Signal{Status: 409, Pointer: "/error/code", Value: "taken"})
	handler := func(*testing.T) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			w.Header().Set("Content-Length", strconv.Itoa(whole))
			w.WriteHeader(http.StatusConflict)
			if req.URL.Path == "/whole" {
				_, _ = io.WriteString(w, body)
				return
			}
			inPieces(true, body[:part])(nil, w, req)
		}
	}
	for door, call := range doors {
		for _, kept := range []int64{0, part / 2} { // less is kept than arrives
			for path, length := range map[string]int{"/whole": whole, "/broken": part} {
				t.Run(fmt.Sprint(door, path, kept), func(t *testing.T) {
					overBoth(t, handler, func(t *testing.T, r *rig, url string) {
						var last atomic.Pointer[watchedBody]
						r.transport.Base = bodiesOf(r.transport.Base, &last)
						r.transport.Contracts, r.transport.MaxResponseBody = judging, kept
						resp, err := call(r, mustRequest(t, within(t), url+path, orderBody(1)))
						if failure := new(OperationError); errors.As(err, &failure) {
							resp, err = failure.Response, nil
						}
						require.NoError(t, err)
						require.NotNil(t, resp)
						require.Equal(t, http.StatusConflict, resp.StatusCode)
						got, err := io.ReadAll(resp.Body)
						require.NoError(t, resp.Body.Close())
						assert.Equal(t, int32(1), last.Load().closed.Load(), "closed, once")
						if length == whole {
							require.NoError(t, err)
						} else {
							require.Error(t, err, "not a clean end")
						}
						assert.Equal(t, body[:length], string(got))
						if kept == 0 {
							want := map[string]State{"/whole": StateRejected, "/broken": StateUnknown}[path]
							in := r.lookup("order-1")
							assert.Equal(t, want, in.State)
							attempts, err := r.journal.Attempts(t.Context(), in)
							require.NoError(t, err)
							require.Len(t, attempts, 1)
							assert.Equal(t, length == whole, attempts[0].Decision == "mismatch", "the body was looked at")
						}
					})
				})
			}
		}
	}
}

// endless is a body that is made while it is read.
type endless struct {
	left   int64
	read   atomic.Int64
	closed atomic.Int32
}

func (b *endless) Read(p []byte) (int, error) {
	n := min(int64(len(p)), b.left-b.read.Load())
	if n == 0 {
		return 0, io.EOF
	}
	clear(p[:n])
	b.read.Add(n)
	return int(n), nil
}

func (b *endless) Close() error { b.closed.Add(1); return nil }

func TestO25_HugeBodyIsRefusedUnsent(t *testing.T) {
	const size, limit = 300 * mib, 10 * mib
	for door, call := range doors {
		for name, length := range map[string]int64{"known length": size, "unknown length": -1, "wrong length": limit} {
			t.Run(door+", "+name, func(t *testing.T) {
				r := newRealRig(t)
				r.transport.MaxRequestBody = limit
				body := &endless{left: size}
				req := mustRequest(t, within(t), r.url, "")
				req.Body, req.GetBody, req.ContentLength = body, nil, length
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				resp, err := call(r.rig, req)
				runtime.ReadMemStats(&after)
				require.ErrorIs(t, err, ErrNotSent)
				require.ErrorContains(t, err, "MaxRequestBody")
				require.Nil(t, resp)
				// All that was allocated, garbage included, is more than the peak.
				assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(50*mib))
				assert.LessOrEqual(t, body.read.Load(), int64(limit+1))
				assert.Equal(t, int32(1), body.closed.Load(), "closed, once")
				assert.Empty(t, r.arrivals())
				left, err := r.journal.List(t.Context(), Filter{})
				require.NoError(t, err)
				assert.Empty(t, left, "no intent")
			})
		}
	}
}
