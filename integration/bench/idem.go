package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// openIdem asks with Do, and accepts with Prepare before that. Run finishes what
// an earlier process left.
func openIdem(s site) (*tool, error) {
	at, err := url.Parse(s.url)
	if err != nil {
		return nil, err
	}
	journal, err := idem.Open(filepath.Join(s.dir, "idem.db"), nil)
	if err != nil {
		return nil, err
	}
	transport := base()
	client := idem.NewClient(&idem.Transport{
		Journal: journal, Base: transport, Contracts: api.At(at.Host),
		Retry: idem.RetryPolicy{
			MaxAttempts: retries + 1, MinBackoff: minWait, MaxBackoff: maxWait, AttemptTimeout: attemptTimeout,
			// Where somebody kills us all the time, a death says nothing about
			// the request. The default is 3.
			MaxDeaths: 1000,
		},
	})
	if s.told != nil {
		client.OnSettled = func(_ context.Context, in idem.Intent) error {
			if in.State == idem.StateSucceeded {
				s.told(in.Operation)
			}
			return nil
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var ran error
	running.Go(func() { ran = client.Run(ctx) })
	do := func(order string) error {
		req, err := newRequest(context.Background(), s.url, order, "")
		if err != nil {
			return err
		}
		return charged(client.Do(order, req))
	}
	return &tool{
		ask: do,
		accept: func(order string) error {
			req, err := newRequest(context.Background(), s.url, order, "")
			if err != nil {
				return err
			}
			if _, err := client.Prepare(order, req); err != nil {
				return err
			}
			running.Go(func() {
				if do(order) == nil { // else Run goes on with it
					s.told(order)
				}
			})
			return nil
		},
		audit: func(ctx context.Context, made func(string)) error { return auditIdem(ctx, journal, made) },
		close: func() error {
			cancel()
			running.Wait()
			transport.CloseIdleConnections()
			if errors.Is(ran, context.Canceled) {
				ran = nil
			}
			return errors.Join(ran, journal.Close())
		},
	}, nil
}

func auditIdem(ctx context.Context, journal *idem.SQLiteJournal, made func(string)) error {
	for {
		stats, err := journal.Stats(ctx)
		if err != nil {
			return err
		}
		if stats.Unfinished == 0 {
			break
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
	return journal.Each(func(operation, _, state string, status int, _ []byte) error {
		if state == string(idem.StateSucceeded) && status == http.StatusCreated {
			made(operation)
		}
		return nil
	})
}

// pollEvery is how often an audit looks.
const pollEvery = 20 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
