package faultinjection_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// A day of waiting takes no time, and the caller's deadline is virtual too.
func TestMemoryInVirtualTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ledger := mustOpen(t, dir+"/ledger.db")
		b := bench{t: t, server: faultinjection.NewServer(keyed, ledger), ledger: ledger, url: "http://api.test"}
		b.client = &http.Client{Transport: b.server.Transport()}
		b.server.Plan(faultinjection.Slow(6*time.Hour), faultinjection.Run, faultinjection.SlowAnswer(time.Minute), faultinjection.Hold)

		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		first := b.send(b.request("POST", "/charges", order, "k1").WithContext(ctx))
		require.ErrorIs(t, first.err, context.DeadlineExceeded)
		assert.Equal(t, time.Hour, time.Since(start))
		assert.Equal(t, 409, b.post("k1").status, "still in flight")
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		start = time.Now()
		assert.Equal(t, "true", b.post("k1").header.Get("Idempotent-Replayed"))
		assert.Equal(t, time.Minute, time.Since(start))

		held := b.later(b.request("POST", "/charges", order, "k2"))
		synctest.Wait()
		require.NoError(t, b.server.AwaitHeld(t.Context(), 1))
		b.server.Release()
		assert.Equal(t, 201, (<-held).status)

		b.server.Work = time.Hour
		start = time.Now()
		assert.Equal(t, 201, b.post("k3").status)
		assert.Equal(t, time.Hour, time.Since(start))

		effects, err := ledger.Effects()
		require.NoError(t, err)
		require.Len(t, effects, 3)
		assert.Equal(t, time.Now().UTC(), effects[2].At, "the ledger's times are virtual as well")
	})
}

func TestMemoryLooksLikeTheWire(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		req := b.request("POST", "/charges%2F1?q=a%20b", order)
		req.Host = "api.example.com"
		spelled := strings.ToUpper("Idempotency-Key") // net/http does not see this one
		req.Header[spelled] = []string{"k1"}
		resp, err := b.client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "201 Created", resp.Status)
		assert.Equal(t, "HTTP/1.1", resp.Proto)
		assert.EqualValues(t, len(body), resp.ContentLength)
		assert.NotEmpty(t, resp.Header.Get("Date"))

		arrivals, err := b.ledger.Arrivals()
		require.NoError(t, err)
		require.Len(t, arrivals, 1)
		a := arrivals[0]
		assert.Equal(t, "/charges%2F1?q=a%20b", a.URI)
		assert.Equal(t, "api.example.com", a.Host)
		assert.Equal(t, "POST", a.Method)
		assert.Equal(t, []string{"k1"}, a.Keys)
		assert.Equal(t, []string{"k1"}, a.Header["Idempotency-Key"])
		assert.Equal(t, order, string(a.Body))
		assert.WithinDuration(t, time.Now(), a.At, time.Minute)
		assert.Equal(t, []string{"k1"}, req.Header[spelled], "the caller's request is as it was")
	})
}

type clientKey struct{}

// Nothing of the client's context reaches the server: an Effect that calls on
// must not be taken for a part of the client's call.
func TestContextDoesNotCrossTheWire(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		var seen any = "not called"
		b.server.Effect = func(r *http.Request, _ []byte) (int, http.Header, []byte) {
			seen = r.Context().Value(clientKey{})
			return 0, nil, nil
		}
		ctx := context.WithValue(t.Context(), clientKey{}, "mine")
		assert.Equal(t, 201, b.send(b.request("POST", "/charges", order, "k1").WithContext(ctx)).status, "zero means 201")
		assert.Nil(t, seen)
	})
}

// A transport above tells "not sent" from "perhaps executed" by these hooks.
func TestMemoryCallsTheTraceHooks(t *testing.T) {
	onEachWire(t, keyed, func(t *testing.T, b bench) {
		var seen []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GetConn: func(address string) {
				_, _, err := net.SplitHostPort(address)
				assert.NoError(t, err)
				seen = append(seen, "get")
			},
			GotConn: func(info httptrace.GotConnInfo) {
				assert.False(t, info.Reused)
				assert.NotNil(t, info.Conn.RemoteAddr())
				seen = append(seen, "got")
			},
			WroteHeaders:         func() { seen = append(seen, "headers") },
			WroteRequest:         func(info httptrace.WroteRequestInfo) { seen = append(seen, "request"); assert.NoError(t, info.Err) },
			GotFirstResponseByte: func() { seen = append(seen, "response") },
		})
		require.NoError(t, b.send(b.request("POST", "/charges", order, "k1").WithContext(ctx)).err)
		assert.Equal(t, []string{"get", "got", "headers", "request", "response"}, seen)
		seen = nil
		b.server.Plan(faultinjection.LoseRequest)
		err := b.send(b.request("POST", "/charges", order, "k1").WithContext(ctx)).err
		assert.Equal(t, []string{"get", "got", "headers", "request"}, seen)
		var operr *net.OpError
		require.ErrorAs(t, err, &operr)
		assert.Equal(t, "read", operr.Op)
	})
}

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return nil }

func TestMemoryClosesTheBodyOnce(t *testing.T) {
	broken := errors.New("broken pipe")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx    context.Context
		body   io.Reader
		length int64
		want   string // of the error; empty: none
	}{
		"sent":        {t.Context(), strings.NewReader(order), int64(len(order)), ""},
		"cancelled":   {gone, strings.NewReader(order), int64(len(order)), "canceled"},
		"read error":  {t.Context(), io.MultiReader(strings.NewReader("x"), failing{broken}), -1, "broken pipe"},
		"short":       {t.Context(), strings.NewReader("x"), 2, "ContentLength=2 with body length 1"},
		"unknown end": {t.Context(), strings.NewReader(order), -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := inMemory(t, keyed)
			body := &closeCounter{Reader: test.body}
			req := b.request("POST", "/charges", "", "k1").WithContext(test.ctx)
			req.Body, req.ContentLength = body, test.length
			resp, err := b.server.Transport().RoundTrip(req)
			assert.Equal(t, 1, body.closed)
			if test.want == "" {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return
			}
			require.ErrorContains(t, err, test.want)
			assert.Nil(t, resp)
			assert.Empty(t, b.outcomes())
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
