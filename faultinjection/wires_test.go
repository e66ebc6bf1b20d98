package faultinjection_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

const day = 24 * time.Hour

var keyed = contract.Keyed("Idempotency-Key", day)

// bench is a server with its ledger and a client of it.
type bench struct {
	t      *testing.T
	server *faultinjection.Server
	ledger *faultinjection.Ledger
	client *http.Client
	url    string
}

// onEachWire runs a test in memory and over loopback.
func onEachWire(t *testing.T, c *contract.Contract, test func(t *testing.T, b bench)) {
	t.Run("memory", func(t *testing.T) {
		test(t, inMemory(t, c))
	})
	t.Run("loopback", func(t *testing.T) {
		b := newBench(t, c)
		running, err := b.server.Listen()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, running.Close()) })
		// Fresh connections: net/http repeats a keyed request by itself on a
		// reused one that breaks.
		b.client.Transport, b.url = &http.Transport{DisableKeepAlives: true}, running.URL
		test(t, b)
	})
}

func inMemory(t *testing.T, c *contract.Contract) bench {
	b := newBench(t, c)
	b.client.Transport, b.url = b.server.Transport(), "http://api.test"
	return b
}

func newBench(t *testing.T, c *contract.Contract) bench {
	ledger := mustOpen(t, filepath.Join(t.TempDir(), "ledger.db"))
	return bench{t: t, server: faultinjection.NewServer(c, ledger), ledger: ledger, client: &http.Client{
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func mustOpen(tb testing.TB, path string) *faultinjection.Ledger {
	ledger, err := faultinjection.OpenLedger(path)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, ledger.Close()) })
	return ledger
}

// got is a whole answer.
type got struct {
	status int
	header http.Header
	body   string
	err    error // of the send, or of reading the body
}

const order = `{"order":"order-42","amount":4200}`

// post sends the usual request, with the keys given.
func (b bench) post(keys ...string) got { return b.send(b.request("POST", "/charges", order, keys...)) }

func (b bench) request(method, path, body string, keys ...string) *http.Request {
	req, err := http.NewRequestWithContext(context.Background(), method, b.url+path, strings.NewReader(body))
	require.NoError(b.t, err)
	for _, key := range keys {
		req.Header.Add("Idempotency-Key", key)
	}
	return req
}

func (b bench) send(req *http.Request) got {
	resp, err := b.client.Do(req)
	if err != nil {
		return got{err: err}
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return got{resp.StatusCode, resp.Header, string(body), err}
}

// later sends from a goroutine of its own.
func (b bench) later(req *http.Request) <-chan got {
	answer := make(chan got, 1)
	go func() { answer <- b.send(req) }()
	return answer
}

func (b bench) awaitHeld(n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(b.t, b.server.AwaitHeld(ctx, n))
}

func (b bench) effects() int {
	effects, err := b.ledger.Effects()
	require.NoError(b.t, err)
	return len(effects)
}

// outcomes are those of all arrivals, in order.
func (b bench) outcomes() (all []faultinjection.Outcome) {
	arrivals, err := b.ledger.Arrivals()
	require.NoError(b.t, err)
	for _, a := range arrivals {
		all = append(all, a.Outcome)
	}
	return all
}
