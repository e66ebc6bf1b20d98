package idem_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
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

// ramDisk is where rebuilt states are made, if there is one.
func ramDisk() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

var explorerContract = contract.Keyed("Idempotency-Key", 24*time.Hour)

// explorerClient is the SDK over a life's folder, whose waits are short.
func explorerClient(l *faultinjection.Life) (*idem.Client, *idem.SQLiteJournal, error) {
	journal, err := idem.Open(filepath.Join(l.Dir, "journal.db"), nil)
	if err != nil {
		return nil, nil, err
	}
	return idem.NewClient(&idem.Transport{
		Journal: journal, Base: l.Transport, Contracts: explorerContract, CrashPoint: l.CrashPoint,
		Retry: idem.RetryPolicy{MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, MaxDeaths: 100, Budget: 1000},
	}), journal, nil
}

func explorerRequest(l *faultinjection.Life) *http.Request {
	req, err := http.NewRequestWithContext(l.Context, http.MethodPost, "http://provider.example/charges", strings.NewReader(`{"operation":"`+l.Operation+`"}`))
	if err != nil {
		panic(err)
	}
	return req
}

// callUntilSettled is a client that calls its operation until it is final, after
// a resume of what the life before has left.
func callUntilSettled(l *faultinjection.Life) (err error) {
	client, journal, err := explorerClient(l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	if l.Number > 1 {
		if _, err := client.Resume(l.Context); err != nil {
			return err
		}
	}
	for range 5 {
		var resp *http.Response
		if resp, err = client.Do("order-1", explorerRequest(l)); err == nil {
			return errors.Join(resp.Body.Close(), settledAs(client, l.Script.Attempts()))
		}
		if l.Context.Err() != nil {
			return err
		}
		time.Sleep(time.Second)
	}
	return err
}

// explored is what must hold after every run: one key and one request in all
// attempts, and one effect, which late requests do not add to.
func explored(l *faultinjection.Life) error {
	if err := l.Script.Release(context.Background()); err != nil {
		return err
	}
	attempts := l.Script.Attempts()
	for _, a := range attempts {
		if a.Key == "" || a.Key != attempts[0].Key || a.Sum != attempts[0].Sum {
			return errors.New("the attempts are not one request under one key")
		}
	}
	effects, err := l.Ledger.EffectsOf(l.Operation)
	if err == nil && effects != 1 {
		err = fmt.Errorf("%d effects, not one", effects)
	}
	return err
}

// settledAs compares what the journal says of the operation with what was sent.
func settledAs(client *idem.Client, attempts []faultinjection.Attempt) error {
	in, err := client.Lookup(context.Background(), "order-1")
	switch {
	case err != nil:
		return err
	case in.State != idem.StateSucceeded || in.Key != attempts[0].Key || in.Outcome.StatusCode != http.StatusCreated:
		return fmt.Errorf("the journal says %s %d under %s", in.State, in.Outcome.StatusCode, in.Key)
	case in.Attempts < len(attempts):
		return fmt.Errorf("%d attempts went out, the journal counted %d", len(attempts), in.Attempts)
	}
	return nil
}

// Every script of up to three of some answers, killed at every point; every
// script of up to two, killed twice; and longer ones, which nothing kills.
// IDEM_EXPLORE=8 takes all 8 answers, which is 4,681 scripts and many more runs.
func TestExplorer(t *testing.T) {
	status := func(code int) faultinjection.Fault { return faultinjection.Answer(code, nil, nil) }
	answers := []faultinjection.Fault{
		faultinjection.DropResponse, faultinjection.CutBody(10), status(503), faultinjection.Abandon, faultinjection.DropRequest,
		status(500), status(429), faultinjection.CutHeader,
	}
	wide, least := [3]int{2, 1, 2}, [3]int{300, 300, 30} // answers, runs
	switch n, err := strconv.Atoi(os.Getenv("IDEM_EXPLORE")); {
	case raced:
		wide, least = [3]int{1, 0, 1}, [3]int{50, 20, 5}
	case err == nil:
		n = min(max(n, 2), len(answers))
		wide = [3]int{n, n, n}
	case fullFaults:
		wide, least = [3]int{5, 4, 5}, [3]int{3488, 3072, 781}
	}
	for i, tt := range []struct {
		name     string
		explorer faultinjection.Explorer
	}{
		{"killed once", faultinjection.Explorer{Attempts: 3, Crashes: 1}},
		{"killed twice", faultinjection.Explorer{Attempts: 2, Crashes: 2}},
		{"not killed", faultinjection.Explorer{Attempts: 4, Crashes: -1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := tt.explorer
				e.Answers, e.Dir, e.Life, e.Check = answers[:wide[i]], ramDisk(), callUntilSettled, explored
				done, err := e.Run(t.Context())
				require.NoError(t, err)
				t.Logf("%d scripts, %d runs", done.Scripts, done.Runs)
				for _, f := range done.Failures {
					t.Error(f)
				}
				assert.GreaterOrEqual(t, done.Runs, least[i])
			})
		})
	}
}

// The explorer catches what it must: a client that mints a key for each attempt,
// one that calls the operation anew after a crash, and a server that forgets.
func TestExplorerCatches(t *testing.T) {
	naive := func(l *faultinjection.Life) error {
		client := &http.Client{Transport: l.Transport}
		for i := range 5 {
			l.CrashPoint("send")
			req := explorerRequest(l)
			req.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%d-%d", l.Operation, l.Number, i))
			resp, err := client.Do(req)
			if err == nil && resp.StatusCode == http.StatusCreated {
				return resp.Body.Close()
			}
		}
		return errors.New("gave up")
	}
	forgetful := func(l *faultinjection.Life) error { // a key for each life
		client := &http.Client{Transport: l.Transport}
		for range 5 {
			l.CrashPoint("send")
			req := explorerRequest(l)
			req.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%d", l.Operation, l.Number))
			resp, err := client.Do(req)
			l.CrashPoint("answered")
			if err == nil && resp.StatusCode == http.StatusCreated {
				return resp.Body.Close()
			}
		}
		return errors.New("gave up")
	}
	for name, e := range map[string]faultinjection.Explorer{
		"a key for each attempt": {Life: naive},
		"a key for each life":    {Life: forgetful},
		"a server without keys":  {Life: callUntilSettled, Broken: faultinjection.NoMemory},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e.Answers, e.Attempts, e.Dir = []faultinjection.Fault{faultinjection.DropResponse}, 1, ramDisk()
				done, err := e.Run(t.Context())
				require.NoError(t, err)
				require.NotEmpty(t, done.Failures)
				t.Log(done.Failures[0])
				require.ErrorContains(t, e.Replay(t.Context(), done.Failures[0].Token), "2 effects")
			})
		})
	}
}
