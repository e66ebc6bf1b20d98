package idem_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// retryAfter is what a server says whose key is in flight.
var retryAfter = http.Header{"Retry-After": {"1"}}

// wrongClients are the mistakes that the explorer sees.
var wrongClients = []wrong{
	{
		name: "mint in the retry loop", breaks: []string{promiseOneKey, promiseKeyFirst, promiseOneEffect}, says: "2 effects",
		answers: []faultinjection.Fault{faultinjection.DropResponse},
		puts:    func(_ string, t *idem.Transport) { mints.make(t) },
		covered: func(w *wrong) { // the journal's key is the one that counts
			w.puts = func(_ string, t *idem.Transport) {
				t.Key = func(idem.Intent) string { return strings.ToLower(rand.Text()) }
			}
		},
	},
	{
		name: "journal after the send", breaks: []string{promiseOneKey, promiseKeyFirst, promiseOneEffect}, says: "came under a key that the journal does not have",
		puts: func(_ string, t *idem.Transport) { late.make(t) },
	},
	{
		name: "outcome at the status line", breaks: []string{promiseAnswer}, says: "the recorded answer is not the one that was given",
		answers: []faultinjection.Fault{faultinjection.CutBody(10)},
		puts:    func(_ string, t *idem.Transport) { t.Base = statusOnly{t.Base, true} },
		covered: func(w *wrong) { // the length that the answer has said is looked at
			w.puts = func(_ string, t *idem.Transport) { t.Base = statusOnly{t.Base, false} }
		},
	},
	{
		name: "resume after retention", breaks: []string{promiseLate, promiseOneEffect}, says: "went out 30h0m0s after the first",
		age: 30 * time.Hour, held: true,
		puts: func(_ string, t *idem.Transport) { t.Contracts = contract.Keyed("Idempotency-Key", 72*time.Hour) },
		covered: func(w *wrong) { // the contract of the first send counts too
			w.puts = func(dir string, t *idem.Transport) {
				if filepath.Base(dir) != "1" { // a later life
					t.Contracts = contract.Keyed("Idempotency-Key", 72*time.Hour)
				}
			}
		},
		coveredBy: "held expired",
	},
	{
		name: "no margin", breaks: []string{promiseLate, promiseOneEffect}, says: "went out 23h59m59s after the first",
		age: explorerContract.Retention - time.Second, onItsWay: true, held: true,
		puts: func(_ string, t *idem.Transport) {
			t.Contracts = contract.Keyed("Idempotency-Key", explorerContract.Retention+wrongMargin)
		},
	},
	{
		name: "lease outlives a dead holder", breaks: []string{promiseForgotten}, says: "it is in_flight  in the end, and nobody settles it",
		puts: func(dir string, t *idem.Transport) { t.Journal = &leases{Journal: t.Journal, dir: dir} },
	},
	{
		name: "409 taken as final", breaks: []string{promiseTold, promiseAnswer}, says: "recorded as rejected, and it took effect",
		answers:  []faultinjection.Fault{faultinjection.DropResponse, faultinjection.Answer(http.StatusConflict, retryAfter, nil)},
		attempts: 2,
		puts: func(_ string, t *idem.Transport) {
			c := explorerContract.Clone()
			c.InFlight = nil
			c.Proven = []contract.Signal{{Status: http.StatusConflict, Header: contract.Marker{Header: "Retry-After"}}}
			t.Contracts = c
		},
		covered: func(w *wrong) { // no refusal by its status settles what is in doubt
			w.held, w.puts = true, func(_ string, t *idem.Transport) {
				c := explorerContract.Clone()
				c.InFlight, c.FinalStatuses = nil, []int{http.StatusConflict}
				t.Contracts = c
			}
		},
		coveredBy: "held unsettling_answer",
	},
	{
		name: "new key after a stored 500", breaks: []string{promiseOneKey, promiseOneEffect, promiseAnswer}, says: "2 effects",
		provider: func(next http.RoundTripper) http.RoundTripper { return failsAfterEffect{next} }, held: true,
		gaveUp: renewStoredFailure,
		covered: func(w *wrong) { // what may have been executed is not renewed
			w.gaveUp = func(_ string, c *idem.Client, req *http.Request, _ error) error { return renew(c, req) }
		},
		coveredBy: "held stored_failure",
	},
	{
		name: "record deleted on give-up", breaks: []string{promiseOneKey, promiseKeyFirst, promiseOneEffect}, says: "2 effects",
		answers: []faultinjection.Fault{faultinjection.DropResponse}, attempts: 2,
		gaveUp: deleteRecord,
		covered: func(w *wrong) { // what is open is not forgotten
			w.gaveUp = func(_ string, c *idem.Client, req *http.Request, _ error) error {
				_, err := c.Transport.Journal.(*idem.SQLiteJournal).Forget(req.Context(), time.Now().Add(1000*time.Hour))
				return err
			}
		},
	},
}

// statusOnly takes the status line for the answer, whatever becomes of the rest.
type statusOnly struct {
	http.RoundTripper
	unsaid bool // its length too
}

func (b statusOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = neverCut{resp.Body}
		if b.unsaid {
			resp.ContentLength = -1
		}
	}
	return resp, err
}

type neverCut struct{ io.ReadCloser }

func (b neverCut) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// leases is a journal in which an operation belongs to whom has begun it until
// that one gives it up, dead or not.
type leases struct {
	idem.Journal
	dir  string
	mine bool
}

func (j *leases) path() string { return filepath.Join(j.dir, "lease") }

func (j *leases) others() bool {
	_, err := os.Stat(j.path())
	return err == nil && !j.mine
}

func (j *leases) Begin(ctx context.Context, want idem.Intent) (got idem.Intent, claimed bool, err error) {
	if j.others() {
		got, err = j.Lookup(ctx, want.Scope, want.Operation)
		got.Owned = true
		return got, false, err
	}
	if got, claimed, err = j.Journal.Begin(ctx, want); claimed {
		j.mine, err = true, os.WriteFile(j.path(), nil, 0o600)
	}
	return got, claimed, err
}

func (j *leases) ClaimDue(ctx context.Context, now time.Time, f idem.Filter) (due []idem.Intent, next time.Time, err error) {
	if j.others() {
		return nil, time.Time{}, nil
	}
	return j.Journal.ClaimDue(ctx, now, f)
}

func (j *leases) Update(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
	got, err := j.Journal.Update(ctx, next, a, durable)
	if err == nil && !next.Claimed && j.mine {
		j.mine, err = false, os.Remove(j.path())
	}
	return got, err
}

// failsAfterEffect is a provider that fails when all is done, and has stored
// the failure.
type failsAfterEffect struct{ http.RoundTripper }

func (b failsAfterEffect) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.StatusCode = http.StatusInternalServerError
	}
	return resp, err
}

// renewStoredFailure takes a stored 500 for "not executed", and starts anew.
func renewStoredFailure(_ string, c *idem.Client, req *http.Request, failure error) error {
	in, err := c.Lookup(req.Context(), "order-1")
	if err != nil || in.HoldReason != idem.HoldStoredFailure || in.Generation > 1 {
		return err
	}
	if in, err = c.Resolve(req.Context(), in, idem.StateRejected, "the program", "it failed"); err != nil {
		return err
	}
	return renew(c, req)
}

func renew(c *idem.Client, req *http.Request) error {
	in, err := c.Lookup(req.Context(), "order-1")
	if err != nil {
		return err
	}
	_, err = c.Do("order-1", req.WithContext(idem.WithRenewal(req.Context(), in.Key)))
	if errors.Is(err, idem.ErrUnknownOutcome) {
		return nil // it fails again, or is refused
	}
	return err
}

// deleteRecord forgets an operation whose call has given up.
func deleteRecord(dir string, c *idem.Client, req *http.Request, failure error) (err error) {
	if !errors.Is(failure, idem.ErrUnknownOutcome) {
		return nil
	}
	if err := c.Transport.Journal.(*idem.SQLiteJournal).Flush(req.Context()); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "journal.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.Exec(`DELETE FROM attempt; DELETE FROM outcome; DELETE FROM status; DELETE FROM intent`)
	return err
}

// Each mistake that a client can make is put into the SDK from outside, and
// caught.
func TestWrongClients(t *testing.T) {
	t.Parallel()
	rows := 0
	for _, w := range wrongJournals {
		rows++
		t.Run(w.name, w.caught)
	}
	if raced {
		return // in what follows nothing runs at the same time
	}
	for _, w := range wrongClients {
		rows++
		t.Run(w.name, w.caught)
	}
	rows++
	t.Run("commit not synced + power loss", unsyncedCommits)
	assert.Equal(t, 12, rows)
}

// The worlds in which the explorer looks for mistakes hold nothing against a
// client that makes none.
func TestWrongClientsControl(t *testing.T) {
	if raced {
		return // nothing runs at the same time here
	}
	t.Parallel()
	worlds := 0
	for _, w := range wrongClients {
		if len(w.answers) > 1 || len(w.answers) == 0 && w.age == 0 && w.provider == nil {
			continue // of those a run is replayed; the scripts of others begin like these
		}
		worlds++
		t.Run(w.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done, err := w.right().explorer().Run(t.Context())
				require.NoError(t, err)
				require.Empty(t, done.Failures)
				t.Logf("%d scripts, %d runs", done.Scripts, done.Runs)
				require.GreaterOrEqual(t, done.Runs, 8)
			})
		})
	}
	assert.Equal(t, 6, worlds)
}
