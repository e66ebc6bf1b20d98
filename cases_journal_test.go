package idem

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// leaving is a journal whose caller leaves just before an outcome is stored. It
// honours the context that it is given, as a journal over a network would.
type leaving struct {
	Journal
	leave func()
}

func (j *leaving) Update(ctx context.Context, next Intent, a *Attempt, durable bool) (Intent, error) {
	if next.State.Final() {
		j.leave()
	}
	if err := ctx.Err(); err != nil {
		return Intent{}, err
	}
	return j.Journal.Update(ctx, next, a, durable)
}

// The caller's context ends between the answer and its record: the record is
// made all the same.
func TestO01_OutcomeIsRecordedThoughTheCallerLeft(t *testing.T) {
	leaves := map[string]func(context.Context) (context.Context, context.CancelFunc, func()){
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc, func()) {
			ctx, cancel := context.WithCancel(ctx)
			return ctx, cancel, cancel
		},
		"past its deadline": func(ctx context.Context) (context.Context, context.CancelFunc, func()) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			return ctx, cancel, func() { time.Sleep(2 * time.Second) }
		},
	}
	records := map[string]*contract.Contract{
		"posted":                contract.Keyed("Idempotency-Key", 24*time.Hour),
		"synced before it ends": contract.Keyed("Idempotency-Key", 0), // an unknown life: a lost record is not safe
	}
	for left, leave := range leaves {
		for recorded, c := range records {
			t.Run(left+", "+recorded, func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					r := newRigFor(t, c)
					const answer = `{"charge":"ch_0001"}`
					require.Len(t, answer, 20)
					r.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) {
						return http.StatusOK, nil, []byte(answer)
					}
					ctx, cancel, end := leave(t.Context())
					defer cancel()
					r.transport.Journal = &leaving{Journal: r.journal, leave: end}
					var result Result
					_, _, err := r.do(WithResult(ctx, &result), "order-1", orderBody(1))
					require.NoError(t, result.Err(), "whatever the caller hears: %v", err)
					require.Error(t, ctx.Err(), "the caller had left")
					assert.True(t, result.Recorded)

					r.reopen() // a clean exit, and a new process
					in := r.lookup("order-1")
					require.Equal(t, StateSucceeded, in.State, "final after the first process")
					assert.Equal(t, answer, string(in.Outcome.Body))
					time.Sleep(time.Hour)
					report, err := r.client.Resume(t.Context())
					require.NoError(t, err)
					assert.Equal(t, Report{Skipped: map[string]int{}}, report)
					require.Len(t, r.arrivals(), 1, "no new arrival")
					assert.Equal(t, 1, r.effects())
				})
			})
		}
	}
}

const (
	wireTarget = "/a%2Fb?x=1&x=2&e="
	wireHost   = "virtual.example"
)

// wireRequest is a request whose form is easily lost on the way through a
// journal: an escaped slash, repeated and empty query values, another Host,
// repeated headers, odd spelling, a body that is no text.
func wireRequest(ctx context.Context, server, credential string) (*http.Request, error) {
	body := make([]byte, 256)
	for i := range body {
		body[i] = byte(i)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+wireTarget, strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	req.Host = wireHost
	req.Header = http.Header{
		"X-Tag": {"b", "a"}, "Content-Type": {"application/octet-stream"}, "Content-Encoding": {"gzip"},
		"x-oDD": {"kept as it is "}, "X-Empty": {""}, "User-Agent": {"cases/1"}, "Authorization": {"Bearer " + credential},
	}
	return req, nil
}

func init() {
	children["cases/send"] = childSends
}

// childSends makes one call, of wireRequest, to a server with the given key
// header. die "recorded" kills the process when the intent is durable.
func childSends() {
	args := childArgs()
	path, server, place, die := args[0], args[1], args[2], args[3]
	t := &Transport{Journal: orExit(Open(path, nil)), Base: &http.Transport{}, Contracts: contract.Keyed(place, 24*time.Hour)}
	t.Key = DeriveKeys([]byte("cases"))
	if die == "recorded" {
		t.Observer = &Observer{Recorded: func(context.Context, Intent) { dieNow() }}
	}
	fmt.Println(endOf(NewClient(t).Do("order-1", orExit(wireRequest(context.Background(), server, "first")))))
	orExit(0, t.Journal.Close())
}

func TestO26_ResumedRequestIsTheOriginalOnTheWire(t *testing.T) {
	tap := newTap(t, func(int, string) string {
		return "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	})
	dir := t.TempDir()
	whole := startChild(t, "cases/send", filepath.Join(dir, "whole.db"), tap.url, "Idempotency-Key", "")
	require.Equal(t, []string{"201 ok"}, whole.wait(), "the unbroken run")
	startChild(t, "cases/send", filepath.Join(dir, "cut.db"), tap.url, "Idempotency-Key", "recorded").killed()
	require.Len(t, tap.requests(), 1, "killed before it was sent")

	journal := mustOpen(t, filepath.Join(dir, "cut.db"), nil)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	client := NewClient(&Transport{Journal: journal, Base: base, Contracts: rigContract()})
	client.Authorize = func(req *http.Request, _ Intent) error {
		req.Header.Set("Authorization", "Bearer second")
		return nil
	}
	report, err := client.Resume(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, report.Settled)

	requests := tap.requests()
	require.Len(t, requests, 2)
	first, second := parseWire(t, requests[0]), parseWire(t, requests[1])
	assert.Equal(t, "POST "+wireTarget+" HTTP/1.1", first.line)
	for _, want := range []string{"Host: " + wireHost, "X-Tag: a", "X-Tag: b", "X-Empty: ", "x-oDD: kept as it is", "Content-Length: 256", "Authorization: Bearer first"} {
		assert.Contains(t, first.headers, want)
	}
	assert.Contains(t, second.headers, "Authorization: Bearer second", "credentials are fresh")
	assert.Equal(t, first.without("Authorization"), second.without("Authorization"))
	assert.Equal(t, first.line, second.line)
	assert.Equal(t, first.body, second.body)
	assert.Len(t, first.body, 256)
}

// wireForm is a request as it came over the wire, its headers sorted.
type wireForm struct {
	line    string
	headers []string
	body    string
}

func parseWire(tb testing.TB, raw string) wireForm {
	tb.Helper()
	head, body, ok := strings.Cut(raw, "\r\n\r\n")
	require.True(tb, ok)
	lines := strings.Split(head, "\r\n")
	slices.Sort(lines[1:])
	return wireForm{line: lines[0], headers: lines[1:], body: body}
}

func (w wireForm) without(name string) []string {
	return slices.DeleteFunc(slices.Clone(w.headers), func(line string) bool { return strings.HasPrefix(line, name+":") })
}

// rude is a base transport that adds a header to each request in place, as some
// tracing transports do. It answers each request 503 twice, then 200.
type rude struct {
	mu     sync.Mutex
	seen   map[string]int // attempts of a request
	traces []int          // X-Trace values of each attempt, own one included
}

func (b *rude) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		closeBody(req)
	}
	req.Header.Add("X-Trace", "1")
	req.Header["X-Own"] = append(req.Header["X-Own"], "base")
	b.mu.Lock()
	defer b.mu.Unlock()
	name := req.URL.RawQuery + strings.Join(headerValues(req.Header, "Idempotency-Key"), "")
	b.seen[name]++
	b.traces = append(b.traces, len(req.Header["X-Trace"]))
	status := http.StatusServiceUnavailable
	if b.seen[name]%3 == 0 {
		status = http.StatusOK
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// once checks that each attempt had exactly one of the added headers.
func (b *rude) once(t *testing.T, attempts int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Len(t, b.traces, attempts)
	for _, n := range b.traces {
		require.Equal(t, 1, n, "values that were added once")
	}
}

func TestO45_TheCallersRequestStaysAsItIs(t *testing.T) {
	headers := map[string]http.Header{"nil": nil, "empty": {}, "filled": {
		"X-Trace": nil, "X-Own": {"a", "b"}, "Content-Type": {"application/json"}, "Authorization": {"Bearer secret"},
	}}
	for name, own := range headers {
		t.Run("shared by 16 goroutines, "+name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r, base := newRig(t), &rude{seen: map[string]int{}}
				r.transport.Base = base
				template, before := sharedRequest(own), sharedRequest(own.Clone())
				var calls sync.WaitGroup
				for i := range 16 {
					calls.Go(func() {
						for k := range 7 { // its own body, everything else in common
							req := template.WithContext(WithOperation(t.Context(), fmt.Sprintf("order-%d-%d", i, k)))
							req.Body, req.ContentLength = io.NopCloser(strings.NewReader("x")), 1
							resp, err := r.transport.RoundTrip(req)
							if assert.NoError(t, err) {
								assert.Equal(t, 200, resp.StatusCode)
							}
						}
					})
				}
				calls.Wait()
				assert.Equal(t, before, template)
				base.once(t, 16*7*3)
			})
		})
		t.Run("one value reused, "+name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r, base := newRig(t), &rude{seen: map[string]int{}}
				r.transport.Base = base
				req, before := sharedRequest(own), sharedRequest(own.Clone())
				for range 100 { // unnamed: each an operation of its own
					resp, err := r.transport.RoundTrip(req)
					require.NoError(t, err)
					require.Equal(t, 200, resp.StatusCode)
				}
				assert.Equal(t, before, req)
				base.once(t, 100*3)
			})
		})
	}
	t.Run("a request that is not journaled", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r, base := newRig(t), &rude{seen: map[string]int{}}
			r.transport.Base = base
			req := mustRequest(t, t.Context(), rigURL, "")
			req.Method, req.Body, req.GetBody = http.MethodGet, nil, nil
			resp, err := r.transport.RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			base.once(t, 3) // what the base adds to one try is not in the next
		})
	})
}

// sharedRequest is a request without a body, made by hand.
func sharedRequest(h http.Header) *http.Request {
	target, _ := url.Parse(rigURL) // a constant
	return &http.Request{Method: http.MethodPost, URL: target, Header: h}
}

func TestO53_AcceptedIsNotDone(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) {
			return http.StatusAccepted, header("Location", "/charges/77/status"), []byte(`{"status":"queued"}`)
		}
		check := func(resp *http.Response) {
			t.Helper()
			assert.Equal(t, http.StatusAccepted, resp.StatusCode)
			assert.Equal(t, "/charges/77/status", resp.Header.Get("Location"))
			assert.JSONEq(t, `{"status":"queued"}`, readAndClose(t, resp))
		}
		resp, err := r.client.Do("order-77", mustRequest(t, t.Context(), rigURL, orderBody(77)))
		require.NoError(t, err, "not a failure")
		check(resp)

		r.reopen()
		time.Sleep(time.Hour)
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Zero(t, report.Sent)
		in := r.lookup("order-77")
		assert.Equal(t, StateSucceeded, in.State)
		assert.Equal(t, http.StatusAccepted, in.Outcome.StatusCode, "not made a 200")
		assert.Equal(t, "/charges/77/status", in.Outcome.Header.Get("Location"))
		resp, err = r.client.Do("order-77", mustRequest(t, t.Context(), rigURL, orderBody(77)))
		require.NoError(t, err)
		check(resp)
		resp, err = r.client.Continue(t.Context(), "order-77")
		require.NoError(t, err)
		check(resp)
		assert.Len(t, r.arrivals(), 1)
		assert.Equal(t, 1, r.effects())
	})
}
