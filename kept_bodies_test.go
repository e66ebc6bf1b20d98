package idem

import (
	"bytes"
	"fmt"
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

func init() {
	children["call without bodies"] = func() { childCalls(noBodies()) }
}

func noBodies() *SQLiteOptions { return &SQLiteOptions{NoRequestBodies: true, NoResponseBodies: true} }

// Nothing of a body is in any file, at any time, in what is exported or backed
// up; the rest is.
func TestO03_BodiesThatAreNotKeptAreInNoFile(t *testing.T) {
	both := sealed(t, "a")
	both.NoRequestBodies, both.NoResponseBodies = true, true
	for name, c := range map[string]struct {
		options *SQLiteOptions
		never   []string
	}{
		"none":       {noBodies(), []string{"M-BODY", "M-ANSWER", "M-REFUSAL"}},
		"no request": {&SQLiteOptions{NoRequestBodies: true}, []string{"M-BODY"}},
		"no answer":  {&SQLiteOptions{NoResponseBodies: true}, []string{"M-ANSWER", "M-REFUSAL"}},
		"sealed too": {both, sealMarkers},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{tb: t, path: tempJournal(t), options: c.options, transport: &Transport{
				Contracts: rigContract(), Retry: RetryPolicy{MinBackoff: time.Millisecond, MaxAttempts: 2}, Base: markedProvider(),
			}}
			r.open()
			for i := range 4 { // a success, a refusal, and two that are left open
				resp, err := r.client.Do(fmt.Sprint("order-", i), markedRequest(t, i))
				if err == nil {
					require.Contains(t, []string{"M-ANSWER", "M-REFUSAL"}, readAndClose(t, resp), "the caller has it all")
				}
			}
			check := func(step string) {
				t.Helper()
				found := foundIn(t, filepath.Dir(r.path))
				for _, never := range c.never {
					assert.NotContains(t, found, never, step)
				}
				if c.options.Sealer == nil {
					assert.Subset(t, found, []string{"M-QUERY", "M-HEADER", "M-HEADBACK"}, step)
				}
				if !c.options.NoRequestBodies {
					assert.Contains(t, found, "M-BODY", step)
				}
			}
			require.NoError(t, r.journal.Flush(t.Context()))
			check("open")
			_, err := r.client.Resume(t.Context())
			require.NoError(t, err)
			require.NoError(t, r.journal.Backup(t.Context(), r.path+".saved"))
			check("resumed")
			r.reopen()
			check("reopened")
			var lines bytes.Buffer
			require.NoError(t, r.journal.Export(t.Context(), &lines))
			if c.options.NoRequestBodies {
				assert.Equal(t, 4, strings.Count(lines.String(), `"body_not_kept":true`))
			}
			require.NoError(t, r.journal.Close())
			check("closed")
		})
	}
}

// A process dies. Resume sends nothing and holds; whoever calls the operation
// again with the same request goes on: one key, the same bytes, one effect.
func TestKilledWithoutItsBody(t *testing.T) {
	for _, die := range []string{"recorded", "answered"} {
		for _, resumed := range []bool{true, false} {
			t.Run(fmt.Sprint(die, ", resumed: ", resumed), func(t *testing.T) {
				r := newRealRig(t)
				require.NoError(t, r.journal.Close())
				r.path, r.options = tempJournal(t), noBodies()
				startChild(t, "call without bodies", r.path, r.url, "order-77/charge", orderBody(77), "1", die).killed()
				arrived := len(r.arrivals())
				r.open()
				if resumed {
					report, err := r.client.Resume(t.Context())
					require.NoError(t, err)
					require.Len(t, report.Held, 1)
					require.Equal(t, HoldBodyNotKept, report.Held[0].HoldReason)
					require.True(t, report.Held[0].Doubt)
					require.Zero(t, report.Sent)
					_, err = r.client.Continue(t.Context(), "order-77/charge")
					require.ErrorIs(t, err, ErrHeld)
					require.ErrorIs(t, err, ErrUnknownOutcome)
					require.ErrorContains(t, err, "call the operation with the same request")
					_, err = r.client.Release(t.Context(), r.lookup("order-77/charge"), "ann", "go on")
					require.ErrorContains(t, err, "no body to send")
				}
				_, err := r.client.Do("order-77/charge", mustRequest(t, t.Context(), r.url+"/charges", orderBody(78)))
				require.ErrorIs(t, err, ErrMismatch)
				require.Len(t, r.arrivals(), arrived)
				require.Regexp(t, `^201 .*order-77`, r.call())
				in := r.settledOnce()
				require.Equal(t, orderBody(77), string(r.arrivals()[arrived].Body))
				require.Empty(t, in.Outcome.Body)
				_, err = r.client.Do("order-77/charge", mustRequest(t, t.Context(), r.url+"/charges", orderBody(77)))
				require.ErrorIs(t, err, ErrNotKept)
				require.ErrorContains(t, err, "answered 201 Created")
				require.Len(t, r.arrivals(), arrived+1)
			})
		}
	}
}

// Within a call, and for another call, all goes as with bodies.
func TestCallsWithoutBodies(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Redirect(307, "/b"), faultinjection.DieAfterEffect)
		r.options = noBodies()
		r.reopen()
		status, answer, err := r.do(t.Context(), "order-1", orderBody(1)) // retries, and a hop
		require.NoError(t, err)
		require.Equal(t, 201, status)
		require.NotEmpty(t, answer)
		r.sameKeyAndBytes(3)

		for range 2 {
			_, _, err = r.do(t.Context(), "order-1", orderBody(1))
			require.ErrorIs(t, err, ErrNotKept)
		}
		require.Equal(t, 201, r.lookup("order-1").Outcome.StatusCode)
		require.Equal(t, 1, r.effects())
	})
}

// What is held for its body goes on at once, however long Verify has put it off;
// what is held for something else does not.
func TestHeldForItsBody(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, noBodies())
	for _, operation := range []string{"a", "b", "c", "d"} {
		in := mustBegin(t, j, newIntent(operation))
		require.Equal(t, newIntent(operation).Request, in.Request)
		in.State, in.Doubt, in.Claimed = StateUnknown, operation != "b", false
		if !in.Doubt {
			in.State = StatePending
		}
		mustUpdate(t, j, in, nil, true)
	}
	due, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	require.Len(t, due, 4)
	for _, in := range due {
		require.Equal(t, StateHeld, in.State)
		require.Equal(t, HoldBodyNotKept, in.HoldReason)
		require.False(t, in.Claimed)
		require.Nil(t, in.Request)
		in.Due, in.Wait = testNow.Add(6*time.Hour), 6*time.Hour // as after a look of Verify
		switch in.Operation {
		case "c":
			in.HoldReason = HoldNotKept // its answer was handed over
		case "d":
			in.HoldReason = HoldCopied
		}
		mustUpdate(t, j, in, nil, true)
	}
	again, _, err := j.ClaimDue(t.Context(), testNow.Add(24*time.Hour), Filter{Name: "main"})
	require.NoError(t, err)
	require.Empty(t, again, "told of once")
	for operation, want := range map[string]State{"a": StateUnknown, "b": StatePending} {
		other := newIntent(operation)
		other.Fingerprint = []byte("another")
		got, claimed, err := j.Begin(t.Context(), other)
		require.NoError(t, err)
		require.False(t, claimed)
		require.Equal(t, StateHeld, got.State)

		got = mustBegin(t, j, newIntent(operation))
		require.Equal(t, newIntent(operation).Request, got.Request)
		require.Equal(t, want, got.State)
		require.Equal(t, want == StateUnknown, got.Doubt)
		require.Empty(t, got.HoldReason)
		require.True(t, got.Due.IsZero() && got.Settled.IsZero() && got.Wait == 0)
		next, a := succeed(got)
		mustUpdate(t, j, next, a, true)
	}
	for _, operation := range []string{"c", "d"} {
		got, claimed, err := j.Begin(t.Context(), newIntent(operation))
		require.NoError(t, err)
		require.False(t, claimed, operation)
		require.Equal(t, StateHeld, got.State)
	}
	require.Zero(t, count(t, path, `SELECT count(*) FROM intent WHERE length(body) > 0`))
	require.Zero(t, count(t, path, `SELECT count(*) FROM outcome WHERE length(body) > 0`))
}

// An unnamed one is held for that: no call can mean it.
func TestUnnamedWithoutItsBody(t *testing.T) {
	j := mustOpen(t, tempJournal(t), noBodies())
	in := mustBegin(t, j, newIntent(""))
	in.State, in.Doubt, in.Claimed = StateUnknown, true, false
	mustUpdate(t, j, in, nil, true)
	due, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, HoldUnnamed, due[0].HoldReason)
}

// What has no body is kept as it is: nothing of one is there.
func TestEmptyBodiesAreKept(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, noBodies())
	want := newIntent("a")
	want.Request.Body, want.State, want.Attempts, want.Prepared = nil, StatePending, 0, true
	in := mustBegin(t, j, want) // an outbox can have it too
	in.Claimed = false
	mustUpdate(t, j, in, nil, true)
	due, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.True(t, due[0].Claimed)
	require.Equal(t, want.Request.URL, due[0].Request.URL)
	require.Empty(t, due[0].Request.Body)
	next, a := succeed(due[0])
	next.Outcome.StatusCode, next.Outcome.Body, next.Attempts, a.Number = 204, []byte{}, 1, 1
	mustUpdate(t, j, next, a, true)
	got, err := j.Lookup(t.Context(), "acct", "a")
	require.NoError(t, err)
	require.True(t, got.Outcome.Complete)
	require.NotNil(t, got.Outcome.Body)
}

// An outbox cannot be delivered from a journal without bodies, and says so.
func TestPrepareWithoutBodies(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.options = noBodies()
		r.reopen()
		_, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
		require.ErrorIs(t, err, ErrNotSent)
		require.ErrorIs(t, err, ErrJournal)
		require.ErrorContains(t, err, "SQLiteOptions.NoRequestBodies")
		_, err = r.client.Lookup(t.Context(), "order-1")
		require.ErrorIs(t, err, ErrNotFound)
	})
}

// The options are of the handle: what was stored by another one stays.
func TestBodiesOfEarlierHandles(t *testing.T) {
	path := tempJournal(t)
	for i, options := range []*SQLiteOptions{nil, noBodies()} {
		j := mustOpened(t, path, options)
		in := mustBegin(t, j, newIntent(fmt.Sprint(i)))
		in.State, in.Doubt, in.Claimed = StateUnknown, true, false
		mustUpdate(t, j, in, nil, true)
		require.NoError(t, j.Close())
	}
	for _, options := range []*SQLiteOptions{noBodies(), nil} {
		j := mustOpened(t, path, options)
		require.Equal(t, newIntent("1").Request, mustBegin(t, j, newIntent("1")).Request)
		due, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
		require.NoError(t, err)
		require.Len(t, due, 1)
		require.Equal(t, newIntent("0").Request, due[0].Request)
		require.NoError(t, j.Close())
	}
}

// Where the key is in the body or the query, what another call brings gets the
// row's key: a new one in it would make it another request to the provider.
func TestRequestsOfAnotherCallGetTheRowsKey(t *testing.T) {
	for name, place := range map[string]contract.Place{"body": {Pointer: "/key"}, "query": {Param: "key"}} {
		for _, how := range []string{"not kept", "pruned"} {
			t.Run(name+", "+how, func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					c := &contract.Contract{Name: "double", Key: place, Retention: 24 * time.Hour}
					var seen []string
					status := http.StatusTooManyRequests // nothing executed
					r := newRigFor(t, c)
					r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
						seen = append(seen, req.URL.RawQuery+" "+readAndClose(t, &http.Response{Body: req.Body}))
						return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
					})
					r.transport.Retry.MaxAttempts = 1
					if how == "not kept" {
						r.options = noBodies()
					}
					r.reopen()
					_, _, err := r.do(t.Context(), "order-1", orderBody(1))
					require.ErrorIs(t, err, ErrNotSent)
					time.Sleep(48 * time.Hour)
					if how == "pruned" {
						n, err := r.journal.Prune(t.Context(), time.Now())
						require.NoError(t, err)
						require.Equal(t, 1, n)
					}
					key := r.lookup("order-1").Key
					status = http.StatusCreated
					_, _, err = r.do(t.Context(), "order-1", orderBody(1))
					require.NoError(t, err)
					require.Len(t, seen, 2)
					require.Contains(t, seen[0], key)
					require.Equal(t, seen[0], seen[1])
					require.Equal(t, key, r.lookup("order-1").Key)
				})
			})
		}
	}
}
