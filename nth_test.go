package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// steps counts the steps of a run and fails one of them.
type steps struct {
	mu    sync.Mutex
	n     int
	fail  int  // the step that fails; zero: none
	after bool // it happens, and then fails
	fired bool
}

// next runs a step, unless it is the one that fails.
func (s *steps) next(do func() error) error {
	s.mu.Lock()
	s.n++
	mine := s.n == s.fail
	s.fired = s.fired || mine
	s.mu.Unlock()
	if mine && !s.after {
		return errDisk
	}
	err := do()
	if mine {
		return errDisk
	}
	return err
}

// steppedJournal makes every journal call a step.
type steppedJournal struct {
	Journal
	steps *steps
}

func (j steppedJournal) Begin(ctx context.Context, want Intent) (got Intent, claimed bool, err error) {
	err = j.steps.next(func() (err error) {
		got, claimed, err = j.Journal.Begin(ctx, want)
		return err
	})
	if errors.Is(err, errDisk) && j.steps.after { // it may be durable all the same
		return Intent{}, false, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return got, claimed, err
}

func (j steppedJournal) Update(ctx context.Context, next Intent, a *Attempt, durable bool) (got Intent, err error) {
	err = j.steps.next(func() (err error) {
		got, err = j.Journal.Update(ctx, next, a, durable)
		return err
	})
	if errors.Is(err, errDisk) && !next.Claimed && !j.steps.after {
		release := next // "ends the running call even when it fails": the row then counts as a dead owner's
		release.Version = -1
		_, _ = j.Journal.Update(ctx, release, nil, false)
	}
	return got, err
}

func (j steppedJournal) ClaimDue(ctx context.Context, now time.Time, f Filter) (due []Intent, next time.Time, err error) {
	err = j.steps.next(func() (err error) {
		due, next, err = j.Journal.ClaimDue(ctx, now, f)
		return err
	})
	return due, next, err
}

// The n-th journal call, and the n-th step on the network, fails before or after
// it happened, for n = 1, 2, 3 ... until a run ends without a fault: never an
// arrival without a durable intent, never two effects, never a lie.
func TestEveryStepFails(t *testing.T) {
	dir := t.TempDir()
	runs := 0
	for _, where := range []string{"journal", "network"} {
		for _, after := range []bool{false, true} {
			for _, story := range []string{"plain", "lost answers", "redirect", "refused", "kill in the middle"} {
				for n := 1; ; n++ {
					require.Less(t, n, 100)
					fired := false
					runs++
					t.Run(fmt.Sprintf("%s/after=%v/%s/%d", where, after, story, n), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							path := filepath.Join(dir, fmt.Sprint(runs, ".db"))
							fired = failStep(t, path, where, story, &steps{fail: n, after: after})
						})
					})
					if !fired {
						break
					}
				}
			}
		}
	}
	require.GreaterOrEqual(t, runs, 90, "explores less than it did")
}

// failStep runs a call, a resume in a second life, and a call again; it reports
// whether a step failed.
func failStep(t *testing.T, path, where, story string, s *steps) bool {
	w := &world{stored: map[string]memory{}, keeps: true, retain: 24 * time.Hour}
	lost := func() scene { return scene{"lost", true, true, 201, noAnswer(errReset)} }
	switch story {
	case "lost answers":
		w.script = []scene{lost(), {"503", false, true, 503, plainAnswer}}
	case "redirect":
		w.script = []scene{{"307", false, false, 307, answerHeader("Location", "/again")}}
	case "refused":
		w.script = []scene{{"429", false, true, 429, plainAnswer}, {"400", false, false, 400, plainAnswer}}
	}
	told := ""
	for life := range 3 {
		journal, err := Open(path, nil)
		require.NoError(t, err)
		network := &steps{}
		transport := &Transport{
			Journal: journal, Contracts: contract.Keyed("Idempotency-Key", w.retain), Retry: RetryPolicy{MaxAttempts: 3},
			Base: steppedNetwork{w: w, steps: network, journal: journal, tb: t},
		}
		if where == "journal" {
			transport.Journal = steppedJournal{journal, s}
		} else {
			transport.Base = steppedNetwork{w: w, steps: s, journal: journal, tb: t}
		}
		client := NewClient(transport)
		if life != 1 {
			resp, err := client.Do("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
			switch {
			case err == nil:
				told = "answered"
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			case errors.Is(err, ErrNotSent):
				require.NotErrorIs(t, err, ErrUnknownOutcome)
				require.Zero(t, w.count(), "told not sent: %v", err)
				told = "not sent"
			default:
				told = "unknown"
			}
		} else {
			before := w.count()
			_, err := client.Resume(t.Context())
			if err != nil {
				require.ErrorIs(t, err, errDisk)
			}
			if told == "not sent" {
				require.Equal(t, before, w.count(), "sent after not sent was told")
			}
		}
		require.LessOrEqual(t, w.count(), 1, "effects")
		if story == "kill in the middle" && life == 0 {
			journal.store.Die()
		} else {
			require.NoError(t, journal.Close())
		}
		time.Sleep(time.Minute)
	}
	return s.fired
}

// steppedNetwork makes every send a step. An arrival must find its intent in
// the journal.
type steppedNetwork struct {
	w       *world
	steps   *steps
	journal *SQLiteJournal
	tb      testing.TB
}

func (n steppedNetwork) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	in, err := n.journal.Lookup(context.Background(), "", "order-1")
	require.NoError(n.tb, err, "an arrival without an intent")
	require.Equal(n.tb, StateInFlight, in.State)
	require.Contains(n.tb, headerValues(req.Header, "Idempotency-Key"), in.Key)
	err = n.steps.next(func() (err error) {
		resp, err = n.w.RoundTrip(req)
		return err
	})
	if err != nil {
		closeBody(req)
		return nil, err
	}
	return resp, nil
}
