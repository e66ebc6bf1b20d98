package idem

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// rig is a client over a true journal and the reference server, without a
// socket, so that it works in virtual time.
type rig struct {
	tb        testing.TB
	path      string // of the journal
	options   *SQLiteOptions
	ledger    *faultinjection.Ledger
	server    *faultinjection.Server
	journal   *SQLiteJournal
	transport *Transport
	client    *Client
}

const rigURL = "http://provider.example/charges"

// rigContract is a server that honours keys for a day.
func rigContract() *contract.Contract { return contract.Keyed("Idempotency-Key", 24*time.Hour) }

func newRig(tb testing.TB, steps ...faultinjection.Step) *rig {
	tb.Helper()
	return newRigFor(tb, rigContract(), steps...)
}

func newRigFor(tb testing.TB, c *contract.Contract, steps ...faultinjection.Step) *rig {
	tb.Helper()
	ledger, err := faultinjection.OpenLedger("")
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, ledger.Close()) })
	r := &rig{tb: tb, path: filepath.Join(tb.TempDir(), "journal.db"), ledger: ledger}
	r.server = faultinjection.NewServer(c, ledger)
	r.server.Plan(steps...)
	r.transport = &Transport{Base: r.server.Transport(), Contracts: c}
	if c == nil {
		r.transport.Contracts = contract.First()
	}
	r.open()
	return r
}

// open opens the journal, again after reopen.
func (r *rig) open() {
	r.tb.Helper()
	journal, err := Open(r.path, r.options)
	require.NoError(r.tb, err)
	r.tb.Cleanup(func() { require.NoError(r.tb, journal.Close()) })
	r.journal = journal
	old := r.transport
	r.transport = &Transport{
		Journal: journal, Base: old.Base, Contracts: old.Contracts, Retry: old.Retry, Name: old.Name, Scope: old.Scope,
		Observer: old.Observer, CrashPoint: old.CrashPoint, Fingerprint: old.Fingerprint, Secrets: old.Secrets, MaxRequestBody: old.MaxRequestBody, MaxResponseBody: old.MaxResponseBody,
	}
	r.client = NewClient(r.transport)
}

// reopen ends this life of the client and begins another.
func (r *rig) reopen() {
	r.tb.Helper()
	require.NoError(r.tb, r.journal.Close())
	r.open()
}

// do calls the operation and returns the status and the body.
func (r *rig) do(ctx context.Context, operation, body string) (int, string, error) {
	resp, err := r.client.Do(operation, mustRequest(r.tb, ctx, rigURL, body))
	if err != nil {
		return 0, "", err
	}
	return resp.StatusCode, readAndClose(r.tb, resp), nil
}

// roundTrip is the transport alone, under a named operation.
func (r *rig) roundTrip(ctx context.Context, operation string, req *http.Request) (*http.Response, Result, error) {
	var result Result
	ctx = WithResult(WithOperation(ctx, operation), &result)
	resp, err := r.transport.RoundTrip(req.WithContext(ctx))
	return resp, result, err
}

func (r *rig) arrivals() []faultinjection.Arrival {
	r.tb.Helper()
	all, err := r.ledger.Arrivals()
	require.NoError(r.tb, err)
	return all
}

func (r *rig) effects() int {
	r.tb.Helper()
	counts, err := r.ledger.Counts()
	require.NoError(r.tb, err)
	return counts.Effects
}

func (r *rig) lookup(operation string) Intent {
	r.tb.Helper()
	in, err := r.client.Lookup(context.Background(), operation)
	require.NoError(r.tb, err)
	return in
}

// sameKeyAndBytes checks that all arrivals are one request under one key.
func (r *rig) sameKeyAndBytes(want int) string {
	r.tb.Helper()
	return requireOneKey(r.tb, r.arrivals(), want)
}

func requireOneKey(tb testing.TB, arrivals []faultinjection.Arrival, want int) string {
	tb.Helper()
	require.Len(tb, arrivals, want)
	for _, a := range arrivals {
		require.Equal(tb, arrivals[0].Keys, a.Keys)
		require.Len(tb, a.Keys, 1)
		require.NotEmpty(tb, a.Keys[0])
		require.Equal(tb, string(arrivals[0].Body), string(a.Body))
		require.Equal(tb, arrivals[0].Method, a.Method)
	}
	return arrivals[0].Keys[0]
}

func mustRequest(tb testing.TB, ctx context.Context, address, body string) *http.Request {
	tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	require.NoError(tb, err)
	req.Header.Set("Content-Type", "application/json")
	return req
}

func readAndClose(tb testing.TB, resp *http.Response) string {
	tb.Helper()
	body, err := io.ReadAll(resp.Body)
	require.NoError(tb, err)
	require.NoError(tb, resp.Body.Close())
	return string(body)
}

// virtually runs a test in virtual time.
func virtually(t *testing.T, f func(t *testing.T)) {
	bubbles.Add(1)
	synctest.Test(t, f)
}

var bubbles atomic.Int64 // tests in virtual time

// roundTripper is a base transport made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func orderBody(i int) string { return fmt.Sprintf(`{"order":"order-%d","amount":4200}`, i) }
