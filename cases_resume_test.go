package idem

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

func init() {
	children["cases/secrets"] = childSendsSecrets
	children["cases/turn"] = childTakesATurn
}

// patientJournal answers the looks of a Run from memory while nothing changes,
// so that a test can let one run for weeks. It sees its own writes only.
type patientJournal struct {
	*SQLiteJournal
	mu     sync.Mutex
	writes int
	calm   bool // nothing was due before next, and nothing was written since
	next   time.Time
}

func (j *patientJournal) ClaimDue(ctx context.Context, now time.Time, f Filter) (due []Intent, next time.Time, err error) {
	j.mu.Lock()
	writes, next := j.writes, j.next
	calm := j.calm && (next.IsZero() || now.Before(next))
	j.mu.Unlock()
	if calm {
		return nil, next, nil
	}
	due, next, err = j.SQLiteJournal.ClaimDue(ctx, now, f)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calm, j.next = err == nil && len(due) == 0 && j.writes == writes, next
	return due, next, err
}

func (j *patientJournal) Begin(ctx context.Context, want Intent) (Intent, bool, error) {
	defer j.wrote()
	return j.SQLiteJournal.Begin(ctx, want)
}

func (j *patientJournal) Update(ctx context.Context, next Intent, a *Attempt, durable bool) (Intent, error) {
	defer j.wrote()
	return j.SQLiteJournal.Update(ctx, next, a, durable)
}

func (j *patientJournal) wrote() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes++
	j.calm = false
}

func (r *rig) patient() { r.transport.Journal = &patientJournal{SQLiteJournal: r.journal} }

// secretMark is in every credential of O-03.
const secretMark = "S3CRET"

var secretHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "X-Ours"}

// putSecrets puts the credentials of one life into the request.
func putSecrets(h http.Header, life string) {
	for _, name := range secretHeaders {
		h.Set(name, secretMark+"-"+life+"-"+name)
	}
}

// telling makes everything that the transport tells go to w.
func telling(t *Transport, w io.Writer) {
	t.Secrets = []string{"x-ours"}
	t.Logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	tell := func(_ context.Context, in Intent) { tellIntent(w, in) }
	t.Observer = &Observer{
		Recorded: tell, Settled: tell, Held: tell,
		Attempted: func(_ context.Context, in Intent, a Attempt) { tellIntent(w, in); fmt.Fprintf(w, "%+v\n", a) },
		Waiting:   func(_ context.Context, in Intent, _ time.Duration) { tellIntent(w, in) },
	}
}

func tellIntent(w io.Writer, in Intent) {
	fmt.Fprintf(w, "%+v %+v %+v %q %q\n", in, in.Outcome, in.Request, in.Credential, in.Adopted)
}

// childSendsSecrets makes one call with credentials. Where the first answer is
// a 503, its base fails with a text that shows them all.
func childSendsSecrets() {
	args := childArgs()
	told := orExit(os.OpenFile(args[0]+".told", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	base := &http.Transport{}
	t := &Transport{Journal: orExit(Open(args[0], nil)), Contracts: rigContract(), Retry: RetryPolicy{MinBackoff: time.Millisecond}}
	telling(t, told)
	t.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusServiceUnavailable {
			resp.Body.Close()
			shown := req.Header.Clone()
			shown.Del("X-Ours")
			return nil, fmt.Errorf("no luck with %v", shown)
		}
		return resp, err
	})
	var result Result
	ctx := WithResult(context.Background(), &result)
	req := orExit(http.NewRequestWithContext(ctx, http.MethodPost, args[1]+"/charges", strings.NewReader(orderBody(1))))
	putSecrets(req.Header, "first")
	resp, err := NewClient(t).Do("order-1", req)
	tellIntent(told, result.Intent)
	fmt.Fprintf(told, "%v %v\n", result.Err(), err)
	fmt.Println(endOf(resp, err))
	orExit(0, t.Journal.Close())
}

// requireNoSecrets checks every byte of the journal, its side files, and of
// what was told, which lie side by side.
func requireNoSecrets(t *testing.T, r *rig) {
	t.Helper()
	files := 0
	require.NoError(t, filepath.WalkDir(filepath.Dir(r.path), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		files++
		assert.False(t, strings.Contains(string(data), secretMark), path)
		return err
	}))
	assert.GreaterOrEqual(t, files, 3, "the journal, its owner folder, what was told")
}

// secretRig is a rig whose journal is closed, for a child that sends.
func secretRig(t *testing.T, steps ...faultinjection.Step) *realRig {
	t.Helper()
	r := newRealRigFor(t, func(r *rig) {
		r.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) {
			return http.StatusCreated, header("Set-Cookie", "session="+secretMark+"-answer"), []byte(`{"charge":"ch_1"}`)
		}
	}, steps...)
	require.NoError(t, r.journal.Close())
	return r
}

func TestO03_NoCredentialIsStoredOrTold(t *testing.T) {
	r := secretRig(t)
	require.Equal(t, []string{`201 {"charge":"ch_1"}`}, startChild(t, "cases/secrets", r.path, r.url).wait())
	assert.Equal(t, secretMark+"-first-Cookie", r.arrivals()[0].Header.Get("Cookie"), "they were there")
	requireNoSecrets(t, r.rig)
}

func TestO03_ResumeAfterAKillHasFreshCredentials(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Resume", "Run"} {
		for _, authorized := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, authorized %v", how, authorized), func(t *testing.T) {
				r := secretRig(t, faultinjection.Status(503), faultinjection.Hold)
				first := startChild(t, "cases/secrets", r.path, r.url)
				r.awaitHeld(1)
				first.kill()
				r.server.Release()
				log, err := os.Stat(r.path + "-wal")
				require.NoError(t, err, "as the kill left it")
				require.Positive(t, log.Size())
				requireNoSecrets(t, r.rig)

				told, err := os.OpenFile(r.path+".told", os.O_APPEND|os.O_WRONLY, 0)
				require.NoError(t, err)
				defer told.Close()
				r.open()
				telling(r.transport, told)
				authorize := func(req *http.Request, in Intent) error {
					putSecrets(req.Header, "second")
					tellIntent(told, in)
					return nil
				}
				if authorized {
					r.client.Authorize = authorize
				}
				r.client.OnSettled = func(_ context.Context, in Intent) error { tellIntent(told, in); return nil }
				r.finish(how, "order-1")
				if !authorized {
					in := r.lookup("order-1")
					assert.Equal(t, HoldCredentials, in.HoldReason)
					assert.Len(t, r.arrivals(), 2, "never sent bare")
					r.client.Authorize = authorize
					_, err = r.client.Release(t.Context(), in, "ops", "they are here now")
					require.NoError(t, err)
					r.finish(how, "order-1")
				}
				assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
				r.sameKeyAndBytes(3)
				for _, name := range secretHeaders {
					assert.Equal(t, secretMark+"-second-"+name, r.arrivals()[2].Header.Get(name))
				}
				assert.Equal(t, 1, r.effects())
				requireNoSecretsOnceClosed(t, r.rig)
			})
		}
	}
}

// requireNoSecretsOnceClosed checks what the journal gives back too.
func requireNoSecretsOnceClosed(t *testing.T, r *rig) {
	t.Helper()
	in := r.lookup("order-1")
	attempts, err := r.journal.Attempts(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, attempts, 3)
	assert.NotContains(t, fmt.Sprintf("%+v %+v %+v", in, in.Outcome, attempts), secretMark)
	require.NoError(t, r.journal.Close())
	requireNoSecrets(t, r)
}

// finish resumes, in one way or the other, until the operation is closed.
func (r *rig) finish(how, operation string) {
	r.tb.Helper()
	closed := func() bool {
		in, err := r.client.Lookup(context.Background(), operation)
		return err == nil && (in.State.Final() || in.State == StateHeld) && !in.Notify
	}
	if how == "Run" {
		stop := r.running()
		require.Eventually(r.tb, closed, patience, time.Millisecond)
		stop()
		return
	}
	for range 2 { // the second pass finds nothing, or what the first one could not
		_, err := r.client.Resume(context.Background())
		require.NoError(r.tb, err)
	}
	require.True(r.tb, closed())
}

// waysOut are all the ways in which an operation is sent again.
var waysOut = map[string]func(r *rig, i int) error{
	"Resume": func(r *rig, _ int) error {
		_, err := r.client.Resume(context.Background())
		return err
	},
	"Run": func(r *rig, _ int) error {
		stop := r.running()
		time.Sleep(5 * time.Second)
		stop()
		return nil
	},
	"Continue": func(r *rig, i int) error {
		resp, err := r.client.Continue(context.Background(), fmt.Sprint("order-", i))
		if err == nil {
			readAndClose(r.tb, resp)
		}
		return err
	},
	"Do": func(r *rig, i int) error {
		_, _, err := r.do(context.Background(), fmt.Sprint("order-", i), orderBody(i))
		return err
	},
	"RoundTrip": func(r *rig, i int) error {
		resp, result, err := r.roundTrip(context.Background(), fmt.Sprint("order-", i), mustRequest(r.tb, context.Background(), rigURL, orderBody(i)))
		if err == nil {
			readAndClose(r.tb, resp)
			return result.Err()
		}
		return err
	},
}

func TestO04_NothingIsSentOnceTheKeyMayBeForgotten(t *testing.T) {
	for name, life := range map[string]struct{ kept, forgotten, young, old time.Duration }{
		"kept for a day":                 {24 * time.Hour, 24 * time.Hour, 23 * time.Hour, 25 * time.Hour},
		"a day, at the safety margin":    {24 * time.Hour, 24 * time.Hour, 23*time.Hour + 49*time.Minute, 23*time.Hour + 50*time.Minute},
		"kept for nobody knows how long": {0, time.Hour, 59 * time.Minute, time.Hour},
	} {
		for way, out := range waysOut {
			t.Run(name+", "+way, func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					r := newRigFor(t, contract.Keyed("Idempotency-Key", life.kept), faultinjection.DieAfterEffect, faultinjection.DieAfterEffect)
					r.server.Retention = life.forgotten
					r.transport.Retry.MaxAttempts = 1
					var keys []string
					for i := range 2 {
						_, _, err := r.do(t.Context(), fmt.Sprint("order-", i), orderBody(i))
						requireUnknown(t, err, StateUnknown)
						keys = append(keys, r.lookup(fmt.Sprint("order-", i)).Key)
						time.Sleep([]time.Duration{life.old - life.young, life.young}[i])
						r.reopen() // the age is not that of a process
					}
					if err := out(r, 0); err != nil {
						require.ErrorIs(t, err, ErrUnknownOutcome)
						assert.ErrorContains(t, err, "the provider may have forgotten the key", "a clear reason")
					}
					require.NoError(t, out(r, 1))
					_, err := r.client.Resume(t.Context())
					require.NoError(t, err)

					assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
					old := r.lookup("order-0")
					assert.Equal(t, StateHeld, old.State)
					assert.Equal(t, HoldExpired, old.HoldReason)
					_, _, err = r.do(t.Context(), "order-0", orderBody(0))
					require.ErrorIs(t, err, ErrHeld)
					assert.ErrorContains(t, err, "the provider may have forgotten the key")
					require.Len(t, r.arrivals(), 3)
					for n, want := range []string{keys[0], keys[1], keys[1]} {
						assert.Equal(t, []string{want}, r.arrivals()[n].Keys)
					}
					all, err := r.journal.List(t.Context(), Filter{})
					require.NoError(t, err)
					assert.Len(t, all, 2, "no new generation")
					assert.Equal(t, 2, r.effects())
				})
			})
		}
	}
}

// takeTurn is what an agent does in one turn: three operations, whatever
// became of the one before.
func takeTurn(client *Client, server string) (ends []string) {
	for _, step := range []string{"charge", "mark", "notify"} {
		name := "order-77/" + step
		req := orExit(http.NewRequest(http.MethodPost, server+"/"+step, strings.NewReader(`{"order":"`+name+`"}`)))
		ends = append(ends, endOf(client.Do(name, req)))
	}
	return ends
}

func childTakesATurn() {
	args := childArgs()
	journal := orExit(Open(args[0], nil))
	client := NewClient(&Transport{Journal: journal, Base: &http.Transport{}, Contracts: rigContract(), Retry: RetryPolicy{
		MaxAttempts: orExit(strconv.Atoi(args[2])), MinBackoff: 5 * time.Millisecond}})
	if args[3] == "run" {
		go func() { orExit(0, client.Run(context.Background())) }()
	}
	for _, end := range takeTurn(client, args[1]) {
		fmt.Println(end)
	}
	orExit(0, client.Shutdown(context.Background()))
	orExit(0, journal.Close())
}

func TestO13_TheWholeTurnAgain(t *testing.T) {
	lives := map[string]func(t *testing.T, r *realRig, attempts int, beside string) []string{
		"in a new process": func(t *testing.T, r *realRig, attempts int, beside string) []string {
			return startChild(t, "cases/turn", r.path, r.url, strconv.Itoa(attempts), beside).wait()
		},
		"after a restart": func(t *testing.T, r *realRig, attempts int, beside string) []string {
			r.reopen()
			r.transport.Retry.MaxAttempts = attempts
			if beside == "run" {
				defer r.running()()
			}
			return takeTurn(r.client, r.url)
		},
	}
	for name, live := range lives {
		for _, beside := range []string{"alone", "run"} {
			t.Run(name+", "+beside, func(t *testing.T) {
				r := newRealRigFor(t, func(r *rig) {
					r.server.Effect = func(req *http.Request, _ []byte) (int, http.Header, []byte) {
						return http.StatusOK, nil, []byte(req.URL.Path + " done at " + time.Now().String()) // no two alike
					}
				}, faultinjection.Run, faultinjection.Run, faultinjection.DieAfterEffect)
				first := live(t, r, 1, "alone")
				require.Len(t, first, 3)
				assert.Contains(t, first[0], "200 /charge done")
				assert.Contains(t, first[1], "200 /mark done")
				assert.Contains(t, first[2], "unknown: ")
				again := live(t, r, 4, beside)
				require.Len(t, again, 3)
				assert.Equal(t, first[:2], again[:2], "the recorded answers")
				assert.Contains(t, again[2], "200 /notify done")
				require.Len(t, r.arrivals(), 4, "only notify came again")
				requireOneKey(t, r.arrivals()[2:], 2)
				for _, step := range []string{"charge", "mark", "notify"} {
					n, err := r.ledger.EffectsOf("order-77/" + step)
					require.NoError(t, err)
					assert.Equal(t, 1, n, step)
				}
			})
		}
	}
}

// storedFailures are servers that keep the first result of a key, a 500, and
// give it again for ever.
func storedFailures() map[string]struct {
	contract *contract.Contract
	header   http.Header // of the 500
	most     int         // arrivals, in all
	why      HoldReason
} {
	stripe := contract.StripeV1.Clone()
	stripe.Hosts, stripe.Paths = nil, nil
	unmarked := rigContract()
	unmarked.Replayed = contract.Marker{}
	type server = struct {
		contract *contract.Contract
		header   http.Header
		most     int
		why      HoldReason
	}
	return map[string]server{
		"like Stripe":                  {stripe, nil, 2, HoldStoredFailure},
		"like Stripe, advises against": {stripe, header("Stripe-Should-Retry", "false"), 1, HoldStoredFailure},
		"with a replay marker":         {rigContract(), nil, 2, HoldStoredFailure},
		"without any sign":             {unmarked, nil, defaultMaxAttempts + defaultResumeAttempts, HoldExhausted},
	}
}

func TestO18_AStoredFailureIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * time.Hour
	lives := map[string]func(r *rig){
		"five restarts with Resume": func(r *rig) {
			for range 5 {
				r.reopen()
				for range 10 {
					time.Sleep(time.Minute)
					_, err := r.client.Resume(r.tb.Context())
					require.NoError(r.tb, err)
				}
			}
		},
		"a week with Run, five restarts": func(r *rig) {
			for range 6 {
				r.patient()
				stop := r.running()
				time.Sleep(week / 6)
				stop()
				r.reopen()
			}
		},
	}
	for name, server := range storedFailures() {
		for how, live := range lives {
			t.Run(name+", "+how, func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					r := newRigFor(t, server.contract)
					r.server.StoreFailures = true
					r.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) {
						return http.StatusInternalServerError, server.header, []byte(`{"error":"ours"}`)
					}
					r.server.Retention = 4 * week // or longer than anyone asks
					_, _, err := r.do(t.Context(), "order-1", orderBody(1))
					require.ErrorIs(t, err, ErrUnknownOutcome)
					live(r)
					in := r.lookup("order-1")
					assert.Equal(t, StateHeld, in.State, "visible")
					assert.Equal(t, server.why, in.HoldReason)
					require.Len(t, r.arrivals(), server.most)
					for _, call := range []context.Context{t.Context(), WithRenewal(t.Context(), in.Key)} {
						_, _, err = r.do(call, "order-1", orderBody(1))
						require.ErrorIs(t, err, ErrUnknownOutcome)
					}
					assert.Equal(t, in.Key, r.sameKeyAndBytes(server.most), "no new key without a decision")

					seen := r.lookup("order-1")
					_, err = r.client.Resolve(t.Context(), seen, StateRejected, "ops", "it never took effect")
					require.NoError(t, err)
					_, _, err = r.do(WithRenewal(t.Context(), in.Key), "order-1", orderBody(1))
					require.ErrorIs(t, err, ErrUnknownOutcome)
					assert.NotEqual(t, in.Key, r.lookup("order-1").Key, "with one there is")
				})
			})
		}
	}
}
