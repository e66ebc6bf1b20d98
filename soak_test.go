package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

func init() { children["soak"] = childSoaks }

// childSoaks works through all operations with two journal handles, two
// callers each, until every one has its answer.
func childSoaks() {
	args := childArgs()
	path, server, n := args[0], args[1], orExit(strconv.Atoi(args[2]))
	var handles sync.WaitGroup
	for range 2 {
		handles.Go(func() {
			journal := orExit(Open(path, nil))
			client := NewClient(&Transport{
				Journal: journal, Contracts: rigContract(), Base: &http.Transport{},
				Retry: RetryPolicy{
					MaxAttempts: 3, ResumeAttempts: 1000, MaxDeaths: 1000,
					MinBackoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond, AttemptTimeout: time.Second,
				},
			})
			var callers sync.WaitGroup
			for range 2 {
				callers.Go(func() { soakCaller(client, server, n) })
			}
			callers.Wait()
			orExit(0, journal.Close())
		})
	}
	handles.Wait()
	fmt.Println("done")
}

// soakCaller calls all operations in an order of its own, again and again while
// some are open.
func soakCaller(client *Client, server string, n int) {
	for open := rand.Perm(n); len(open) > 0; {
		var left []int
		for _, i := range open {
			resp, err := client.Do(fmt.Sprint("order-", i), orExit(http.NewRequest(http.MethodPost, server+"/charges", &oneShot{Reader: strings.NewReader(orderBody(i))})))
			switch {
			case err == nil:
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			case errors.Is(err, ErrHeld) || errors.Is(err, ErrMismatch):
				fmt.Fprintln(os.Stderr, err)
				os.Exit(5)
			default:
				left = append(left, i)
			}
		}
		_, _ = client.Resume(context.Background())
		open = left
	}
}

// watcher tells of a second arrival with a key whose first is open: its client
// is there and waits for its answer.
type watcher struct {
	next http.Handler

	mu    sync.Mutex
	open  map[string]*openArrival // the latest with each key
	twice []string
}

type openArrival struct{ over, met bool }

func (w *watcher) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	key := req.Header.Get("Idempotency-Key")
	mine := &openArrival{}
	w.mu.Lock()
	if first := w.open[key]; first != nil && !first.over {
		first.met = true // fine, if its client is gone
	}
	w.open[key] = mine
	w.mu.Unlock()
	body, err := io.ReadAll(req.Body) // net/http sees a client go only after that
	if err != nil {
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	select { // the work; it ends with its client
	case <-time.After(rand.N(200 * time.Millisecond)):
	case <-req.Context().Done():
	}
	w.mu.Lock()
	mine.over = true
	if mine.met && req.Context().Err() == nil {
		w.twice = append(w.twice, key)
	}
	w.mu.Unlock()
	if req.Context().Err() == nil {
		w.next.ServeHTTP(rw, req)
	}
}

// Two processes with two handles each share 200 operations, while one or the
// other is killed or stopped: never two open arrivals with one key, and one
// effect each.
func TestOneSenderWhateverDies(t *testing.T) {
	t.Parallel()
	const operations = 200
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t)
	r.server.Each(func(a faultinjection.Arrival) faultinjection.Step {
		return []faultinjection.Step{
			faultinjection.DieAfterEffect, faultinjection.LoseRequest, faultinjection.Status(503), faultinjection.DieBeforeEffect,
			faultinjection.Run, faultinjection.Run, faultinjection.Run, faultinjection.Run, faultinjection.Run, faultinjection.Run,
		}[a.Number*7919%10]
	})
	watch := &watcher{next: r.server, open: map[string]*openArrival{}}
	server := httptest.NewServer(watch)
	defer server.Close()
	start := func() *child { return startChild(t, "soak", r.path, server.URL, strconv.Itoa(operations)) }

	both := []*child{start(), start()}
	kills := 0
	for end := time.Now().Add(time.Minute); kills < 12; {
		require.True(t, time.Now().Before(end), "takes too long")
		time.Sleep(time.Duration(50+random.IntN(200)) * time.Millisecond)
		i := random.IntN(2)
		select {
		case <-both[i].done: // it has its 200 answers
			both[i] = start()
			continue
		default:
		}
		if random.IntN(3) == 0 {
			_ = stop(both[i].cmd.Process) // it may have ended just now
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			_ = cont(both[i].cmd.Process)
			continue
		}
		kills++
		both[i].kill()
		both[i] = start()
	}
	for _, c := range both {
		c.patientLine("done", time.Minute)
	}
	watch.mu.Lock()
	defer watch.mu.Unlock()
	assert.Empty(t, watch.twice, "two open arrivals with one key")
	counts, err := r.ledger.Counts()
	require.NoError(t, err)
	assert.Equal(t, operations, counts.Effects)
	assert.Equal(t, operations, counts.Operations)
	for i := range operations {
		in := r.lookup(fmt.Sprint("order-", i))
		assert.Equal(t, StateSucceeded, in.State, in.Operation)
	}
	t.Log(kills, "kills,", counts.Arrivals, "arrivals")
}
