package faultinjection_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// scriptBench is a bench whose client goes through a script.
func scriptBench(t *testing.T, faults ...faultinjection.Fault) (bench, *faultinjection.Script) {
	b := inMemory(t, keyed)
	script := faultinjection.NewScript(keyed, faults...)
	b.client.Transport = script.Wrap(b.server.Transport())
	return b, script
}

// hooks notes which hooks were called, in order.
type hooks struct {
	mu   sync.Mutex
	seen []string
}

func (h *hooks) note(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, name)
}

func (h *hooks) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.seen, " ")
}

func (h *hooks) on(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { h.note("get") },
		ConnectDone: func(_, address string, err error) {
			if _, _, bad := net.SplitHostPort(address); err != nil && bad == nil {
				h.note("refused")
			}
		},
		GotConn:              func(httptrace.GotConnInfo) { h.note("got") },
		WroteHeaders:         func() { h.note("headers") },
		GotFirstResponseByte: func() { h.note("response") },
	})
}

const (
	unsent   = "get refused"
	written  = "get got headers"
	answered = "get got headers response"
)

// ends are all the faults, and what an attempt comes to.
var ends = []struct {
	fault    faultinjection.Fault
	hooks    string
	outcomes []faultinjection.Outcome
	status   int   // of the attempt
	err      error // that matches; nil: none
	body     string
}{
	{faultinjection.Pass, answered, []faultinjection.Outcome{"executed"}, 201, nil, "charged"},
	{faultinjection.DropRequest, unsent, nil, 0, syscall.ECONNREFUSED, ""},
	{faultinjection.DropResponse, written, []faultinjection.Outcome{"executed"}, 0, syscall.ECONNRESET, ""},
	{faultinjection.Abandon, written, nil, 0, syscall.ECONNRESET, ""},
	{faultinjection.CutHeader, answered, []faultinjection.Outcome{"executed"}, 0, io.ErrUnexpectedEOF, ""},
	{faultinjection.CutBody(0), answered, []faultinjection.Outcome{"executed"}, 201, io.ErrUnexpectedEOF, ""},
	{faultinjection.CutBody(3), answered, []faultinjection.Outcome{"executed"}, 201, io.ErrUnexpectedEOF, "cha"},
	{faultinjection.CutBody(7), answered, []faultinjection.Outcome{"executed"}, 201, io.ErrUnexpectedEOF, "charge"},
	{faultinjection.Answer(503, http.Header{"Retry-After": {"3"}}, []byte("later")), answered, nil, 503, nil, "later"},
	{faultinjection.Answer(204, nil, []byte("dropped, as it has no place")), answered, nil, 204, nil, ""},
}

func TestScriptFaults(t *testing.T) {
	for _, test := range ends {
		t.Run(test.fault.String(), func(t *testing.T) {
			b, script := scriptBench(t, test.fault)
			b.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) { return 201, nil, []byte("charged") }
			req := b.request("POST", "/charges", order, "k1")
			body := &closeCounter{Reader: strings.NewReader(order)}
			req.Body = body
			var h hooks
			answer := b.send(req.WithContext(h.on(t.Context())))
			assert.Equal(t, 1, body.closed, "the body is closed once")
			assert.Equal(t, test.hooks, h.all())
			assert.Equal(t, test.outcomes, b.outcomes())
			assert.Equal(t, test.body, answer.body)
			if test.err == nil {
				require.NoError(t, answer.err)
				assert.Equal(t, test.status, answer.status)
			} else {
				require.ErrorIs(t, answer.err, test.err)
			}
			attempts := script.Attempts()
			require.Len(t, attempts, 1)
			assert.Equal(t, test.fault, attempts[0].Fault)
			assert.Equal(t, test.status, attempts[0].Status)
			assert.Equal(t, "k1", attempts[0].Key)

			again := b.post("k1")
			require.NoError(t, again.err, "after the last fault all pass")
			assert.Equal(t, 201, again.status)
			assert.Equal(t, 1, b.effects())
		})
	}
	t.Run("own error", func(t *testing.T) {
		mine := errors.New("mine")
		for _, f := range []faultinjection.Fault{
			faultinjection.DropRequest, faultinjection.DropResponse, faultinjection.Abandon, faultinjection.CutHeader, faultinjection.CutBody(1),
		} {
			b, _ := scriptBench(t, f.WithError(mine))
			require.ErrorIs(t, b.post("k1").err, mine)
		}
	})
}

// What cannot be cut in its body is cut in its header.
func TestScriptCutsWhatHasNoBody(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		status int
	}{"no content": {"POST", 204}, "empty": {"POST", 201}, "head": {"HEAD", 200}} {
		t.Run(name, func(t *testing.T) {
			b, script := scriptBench(t, faultinjection.CutBody(5))
			b.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) { return test.status, nil, nil }
			require.ErrorIs(t, b.send(b.request(test.method, "/charges", "", "k1")).err, io.ErrUnexpectedEOF)
			assert.Zero(t, script.Attempts()[0].Status)
		})
	}
	t.Run("unknown length", func(t *testing.T) {
		script := faultinjection.NewScript(nil, faultinjection.CutBody(1), faultinjection.CutBody(50))
		closed := 0
		next := script.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
			body := struct {
				io.Reader
				io.Closer
			}{strings.NewReader("piece"), closing{&closed}}
			return &http.Response{StatusCode: 200, Body: body, ContentLength: -1}, nil
		}))
		for i, want := range []string{"p", "piece"} {
			req, err := http.NewRequest("POST", "http://api.test", nil)
			require.NoError(t, err)
			resp, err := next.RoundTrip(req)
			require.NoError(t, err)
			assert.Same(t, req, resp.Request)
			body, err := io.ReadAll(resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			assert.Equal(t, want, string(body))
			require.NoError(t, resp.Body.Close())
			assert.Greater(t, closed, i)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type closing struct{ n *int }

func (c closing) Close() error { *c.n++; return nil }

// A next one that does not trace must not make a lost answer look unsent.
func TestScriptTracesForOneThatDoesNot(t *testing.T) {
	for fault, want := range map[faultinjection.Fault]string{
		faultinjection.DropResponse: written, faultinjection.CutHeader: answered, faultinjection.Abandon: written, faultinjection.DropRequest: unsent,
	} {
		var h hooks
		asked := 0
		script := faultinjection.NewScript(nil, fault)
		req, err := http.NewRequestWithContext(h.on(t.Context()), "POST", "https://api.test/charges", strings.NewReader(order))
		require.NoError(t, err)
		closed := 0
		body := strings.NewReader("charged")
		_, err = script.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
			asked++
			return &http.Response{StatusCode: 201, Body: struct {
				io.Reader
				io.Closer
			}{body, closing{&closed}}}, nil
		})).RoundTrip(req)
		require.Error(t, err)
		if asked > 0 {
			assert.Equal(t, 1, closed)
			assert.Zero(t, body.Len(), "the server runs to its end")
		}
		assert.Equal(t, want, h.all(), fault)
		assert.Equal(t, want == answered || fault == faultinjection.DropResponse, asked == 1, fault)
	}
}

// The client hears of each end so much later, and may leave before.
func TestScriptDelays(t *testing.T) {
	for _, test := range ends {
		t.Run(test.fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fault := test.fault.Delayed(time.Hour)
				b, script := scriptBench(t, fault, fault, fault)
				start := time.Now()
				b.client.Timeout = 0
				b.post("k1")
				assert.Equal(t, time.Hour, time.Since(start))

				var h hooks
				ctx, cancel := context.WithTimeout(h.on(t.Context()), time.Minute)
				defer cancel()
				start = time.Now()
				require.ErrorIs(t, b.send(b.request("POST", "/charges", order, "k2").WithContext(ctx)).err, context.DeadlineExceeded)
				assert.Equal(t, time.Minute, time.Since(start))
				assert.Equal(t, test.hooks == unsent, strings.HasPrefix(h.all(), unsent), "the effect is there, or it is not: %s", h.all())

				why := errors.New("why")
				cause, leave := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { leave(why) })
				require.ErrorIs(t, b.send(b.request("POST", "/charges", order, "k3").WithContext(cause)).err, why)
				assert.Len(t, script.Attempts(), 3)
				assert.Zero(t, script.Attempts()[2].Status)

				require.ErrorIs(t, b.send(b.request("POST", "/charges", order, "k4").WithContext(cause)).err, why)
				assert.Len(t, script.Attempts(), 3, "who left before does not count")
			})
		})
	}
}

func TestScriptCountsAttemptsOfEachKey(t *testing.T) {
	place := func(p contract.Place) *contract.Contract {
		c := contract.Keyed("Idempotency-Key", day).Clone()
		c.Key = p
		return c
	}
	for name, test := range map[string]struct {
		contract *contract.Contract
		request  func(key string) (url, contentType, header, body string)
	}{
		"header": {keyed, func(key string) (string, string, string, string) { return "/", "application/json", key, "{}" }},
		"quoted": {contract.IETF(day), func(key string) (string, string, string, string) { return "/", "", `"` + key + `"`, "{}" }},
		"pointer": {place(contract.Place{Pointer: "/key"}), func(key string) (string, string, string, string) {
			return "/", "application/json", "", `{"key":"` + key + `"}`
		}},
		"query": {place(contract.Place{Param: "key"}), func(key string) (string, string, string, string) { return "/?key=" + key, "application/json", "", "{}" }},
		"form": {place(contract.Place{Param: "key"}), func(key string) (string, string, string, string) {
			return "/", "application/x-www-form-urlencoded", "", "a=b&key=" + key
		}},
	} {
		t.Run(name, func(t *testing.T) {
			script := faultinjection.NewScript(test.contract)
			next := script.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 201, Body: http.NoBody, Request: req}, nil
			}))
			for _, key := range []string{"k1", "k2", "k1", ""} {
				url, contentType, header, body := test.request(key)
				req, err := http.NewRequest("POST", "http://api.test"+url, strings.NewReader(body))
				require.NoError(t, err)
				req.Header.Set("Content-Type", contentType)
				if header != "" && key != "" {
					req.Header["idempotency-key"] = []string{header} // in any spelling
				}
				_, err = next.RoundTrip(req)
				require.NoError(t, err)
			}
			var got []string
			for _, a := range script.Attempts() {
				got = append(got, fmt.Sprint(a.Key, " ", a.N))
			}
			assert.Equal(t, []string{"k1 1", "k2 1", "k1 2", " 1"}, got)
			a := script.Attempts()
			assert.Equal(t, a[0].Sum, a[2].Sum, "the same request")
		})
	}
	t.Run("sums", func(t *testing.T) {
		b, script := scriptBench(t)
		for _, r := range []*http.Request{
			b.request("POST", "/charges", order, "k"), b.request("POST", "/charges", order, "other"), b.request("PUT", "/charges", order, "k"),
			b.request("POST", "/charges?a", order, "k"), b.request("POST", "/charges", order+" ", "k"),
		} {
			b.send(r)
		}
		a := script.Attempts()
		assert.Equal(t, a[0].Sum, a[1].Sum, "the header does not count")
		for i := 2; i < len(a); i++ {
			assert.NotEqual(t, a[0].Sum, a[i].Sum, i)
		}
	})
}

// A request that comes late meets the stored answer of its key; under another
// key it is a second effect.
func TestScriptReleasesWhatWasAbandoned(t *testing.T) {
	b, script := scriptBench(t, faultinjection.Abandon, faultinjection.Pass, faultinjection.Abandon)
	req := b.request("POST", "/charges", order, "k1")
	require.Error(t, b.send(req).err)
	req.Header.Set("Idempotency-Key", "changed when it was gone")
	assert.Equal(t, 201, b.post("k1").status)
	require.Error(t, b.post("k2").err)
	assert.Equal(t, 1, b.effects())

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, script.Release(gone), context.Canceled)
	assert.Len(t, b.outcomes(), 1, "they stay on their way")
	b.server.Plan(faultinjection.Run, faultinjection.DieAfterEffect)
	require.ErrorIs(t, script.Release(t.Context()), syscall.ECONNRESET)
	assert.Equal(t, []faultinjection.Outcome{"executed", "replayed", "executed"}, b.outcomes())
	require.NoError(t, script.Release(t.Context()), "there are none left")
	assert.Len(t, b.outcomes(), 3)
	assert.Len(t, script.Attempts(), 3, "a late arrival is no attempt")
	arrivals, err := b.ledger.Arrivals()
	require.NoError(t, err)
	assert.Equal(t, []string{"k1"}, arrivals[1].Keys)
	assert.Equal(t, order, string(arrivals[1].Body))
}

func TestScriptOnHasTheLastWord(t *testing.T) {
	b, script := scriptBench(t, faultinjection.DropRequest, faultinjection.DropRequest)
	var seen []string
	script.On(func(a faultinjection.Attempt, r *http.Request) faultinjection.Fault {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		seen = append(seen, fmt.Sprint(a.Key, " ", a.N, " ", a.Fault, " ", r.URL.Path, " ", len(body)))
		if a.N == 2 {
			return faultinjection.Pass
		}
		return a.Fault
	})
	require.ErrorIs(t, b.post("k1").err, syscall.ECONNREFUSED)
	assert.Equal(t, 201, b.post("k1").status)
	assert.Equal(t, 201, b.post("k2").status)
	assert.Equal(t, []string{"k1 1 drop_request /charges 34", "k1 2 drop_request /charges 34", "k2 1 pass /charges 34"}, seen)
	assert.Equal(t, faultinjection.Pass, script.Attempts()[1].Fault, "what it suffered is noted")
	script.On(nil)
	assert.Equal(t, 201, b.post("k3").status)
	assert.Len(t, seen, 3)
}

// What passes is as the client made it, and is not to be sent twice where the
// client forbids it.
func TestScriptPassesTheRequestAsItIs(t *testing.T) {
	var seen *http.Request
	idle := 0
	next := faultinjection.NewScript(nil).Wrap(idleCounter{roundTripper(func(req *http.Request) (*http.Response, error) {
		seen = req
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	}), &idle})
	req, err := http.NewRequest("POST", "http://api.test/charges", strings.NewReader(order))
	require.NoError(t, err)
	_, err = next.RoundTrip(req)
	require.NoError(t, err)
	require.NotNil(t, seen.GetBody)
	for range 2 {
		body, err := seen.GetBody()
		require.NoError(t, err)
		whole, err := io.ReadAll(body)
		require.NoError(t, err)
		assert.Equal(t, order, string(whole))
	}
	assert.Equal(t, req.ContentLength, seen.ContentLength)

	req.Body, req.GetBody, req.ContentLength = io.NopCloser(bytes.NewReader([]byte("x"))), nil, -1
	_, err = next.RoundTrip(req)
	require.NoError(t, err)
	assert.Nil(t, seen.GetBody)
	assert.EqualValues(t, -1, seen.ContentLength)
	req.Body, req.ContentLength = http.NoBody, 0
	_, err = next.RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, http.NoBody, seen.Body)

	(&http.Client{Transport: next}).CloseIdleConnections()
	assert.Equal(t, 1, idle)
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader("x")), 2
	_, err = next.RoundTrip(req)
	require.ErrorContains(t, err, "ContentLength=2 with body length 1")
	silent := faultinjection.NewScript(nil, faultinjection.Pass, faultinjection.DropResponse).Wrap(roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil }))
	for range 2 {
		_, err = silent.RoundTrip(mustGet(t))
		require.ErrorContains(t, err, "neither a response nor an error")
	}
	req.URL, req.Body, req.ContentLength = nil, nil, 0
	_, err = next.RoundTrip(req)
	require.ErrorContains(t, err, "without a URL")
}

func mustGet(t *testing.T) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://api.test", nil)
	require.NoError(t, err)
	return req
}

type idleCounter struct {
	http.RoundTripper
	n *int
}

func (c idleCounter) CloseIdleConnections() { *c.n++ }

func TestScriptTellsABadContract(t *testing.T) {
	bad := contract.Keyed("Idempotency-Key", day).Clone()
	bad.Key = contract.Place{}
	script := faultinjection.NewScript(bad)
	_, err := (&http.Client{Transport: script.Wrap(nil)}).Get("http://127.0.0.1:1")
	require.ErrorContains(t, err, "faultinjection: script: ")
	assert.Empty(t, script.Attempts())
}

func TestFaultTexts(t *testing.T) {
	for want, f := range map[string]faultinjection.Fault{
		"pass": {}, "drop_request": faultinjection.DropRequest, "drop_response 2s": faultinjection.DropResponse.Delayed(2 * time.Second),
		"abandon": faultinjection.Abandon, "cut_header": faultinjection.CutHeader, "cut_body 10": faultinjection.CutBody(10),
		"answer 429": faultinjection.Answer(429, nil, nil), "pass 1m0s": faultinjection.Pass.Delayed(time.Minute),
	} {
		assert.Equal(t, want, f.String())
	}
	assert.Equal(t, faultinjection.CutBody(0), faultinjection.CutBody(-1))
	assert.True(t, faultinjection.DropRequest.Delayed(1) == faultinjection.DropRequest.Delayed(1), "faults are values")
}
