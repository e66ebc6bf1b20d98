package faultinjection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/idem-go/idem/contract"
)

// SeedResult is what the seed experiment counted.
type SeedResult struct {
	Requests   int // clients, each with the same key and the same body
	Arrivals   int // requests that the server saw, repeats after a 409 included
	Effects    int
	Duplicates int // effects beyond the first
	Answers    int // different answers that the clients got in the end
}

const (
	seedConns = 400                   // loopback connections at once, well under the usual limit of open files
	seedCrowd = 10 * time.Second      // the longest wait for all of them to be at the door
	seedPause = 10 * time.Millisecond // a client's pause after a 409, doubled up to eight times that
)

// Seed runs the experiment that the project began with: so many clients send
// one request with one key at the same time over loopback, each until it gets an
// answer other than 409. With [CheckThenInsert] there are duplicates; with a
// correct server (broken is zero) there is one effect and one answer. It shows
// what a key is worth on a server that does not claim it atomically.
//
// The effect takes as long as it takes for 400 requests (all, if they are fewer)
// to be at the door, so that the count does not depend on luck: the wrong server
// makes at least so many effects. A thousand requests take about a second.
func Seed(ctx context.Context, requests int, broken Broken) (result SeedResult, err error) {
	ledger, err := OpenLedger("")
	if err != nil {
		return SeedResult{}, err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	server := NewServer(contract.Keyed("Idempotency-Key", time.Hour), ledger)
	server.Broken = broken
	ctx, cancel := context.WithCancel(ctx)
	crowd(ctx, server, min(requests, seedConns))
	running, err := server.Listen()
	if err != nil {
		cancel()
		return SeedResult{}, err
	}
	defer func() { err = errors.Join(err, running.Close()) }() // before the ledger
	defer cancel()                                             // before both: it ends the effects that wait

	answers, err := seedClients(ctx, running.URL, requests)
	if err != nil {
		return SeedResult{}, err
	}
	counts, err := ledger.Counts()
	if err != nil {
		return SeedResult{}, err
	}
	return SeedResult{
		Requests: requests, Arrivals: counts.Arrivals,
		Effects: counts.Effects, Duplicates: counts.Duplicates, Answers: answers,
	}, nil
}

// crowd makes every effect wait until so many requests have arrived.
func crowd(ctx context.Context, server *Server, size int) {
	here, all := 0, make(chan struct{})
	server.Each(func(Arrival) Step { // one call at a time
		if here++; here == size {
			close(all)
		}
		return Run
	})
	server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) {
		select {
		case <-all:
		case <-ctx.Done():
		case <-time.After(seedCrowd): // the counts then show less
		}
		return http.StatusCreated, nil, fmt.Appendf(nil, `{"id":"ch_%s"}`, uuid.NewString())
	}
}

// seedClients sends all requests at once and counts the different answers.
func seedClients(ctx context.Context, url string, requests int) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	transport := &http.Transport{MaxConnsPerHost: seedConns, MaxIdleConnsPerHost: seedConns}
	defer transport.CloseIdleConnections()
	client, key := &http.Client{Transport: transport}, uuid.NewString()

	var mu sync.Mutex
	var failure error
	answers := map[string]bool{}
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			answer, err := seedClient(ctx, client, url, key)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				answers[answer] = true
			} else if failure == nil {
				failure = err
				cancel() // the count would be wrong anyway
			}
		})
	}
	wg.Wait()
	return len(answers), failure
}

// seedClient sends until the answer is final: status and body.
func seedClient(ctx context.Context, client *http.Client, url, key string) (string, error) {
	for wait := seedPause; ; wait = min(2*wait, 8*seedPause) {
		body := bytes.NewReader([]byte(`{"order":"order-42","amount":4200}`))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", body)
		if err != nil {
			return "", fmt.Errorf("faultinjection: seed: %w", err)
		}
		req.Header.Set("Idempotency-Key", key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return "", fmt.Errorf("faultinjection: seed: %w", err)
		}
		answer, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return "", fmt.Errorf("faultinjection: seed: %w", err)
		}
		if resp.StatusCode != http.StatusConflict {
			return fmt.Sprintf("%d %s", resp.StatusCode, answer), nil
		}
		if !pause(ctx, wait) {
			return "", fmt.Errorf("faultinjection: seed: %w", context.Cause(ctx))
		}
	}
}
