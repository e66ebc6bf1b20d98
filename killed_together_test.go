package idem_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

const (
	togetherProcesses  = 4
	togetherCallers    = 8  // in each
	togetherOperations = 15 // in a history, each called by all of them
	togetherHistories  = 20
	togetherEvery      = 8 * time.Millisecond // the operations of a history begin
)

// deed is one line of a history: something begins or ends. All processes write
// to one file, each line before what begins and after what has ended, so the
// order of the lines is one that the deeds can have had, without a clock.
type deed struct {
	Process   int
	ID        int64 // of the deed in its process
	What      string
	Ends      bool
	Operation string
	Key       string     `json:",omitempty"`
	Claimed   bool       `json:",omitempty"` // begin: it did; update: it keeps the claim
	Owned     bool       `json:",omitempty"` // begin: by somebody else
	Posted    bool       `json:",omitempty"` // update: it need not be seen by others when it ends
	State     idem.State `json:",omitempty"`
	Text      string     `json:",omitempty"` // an error, or the answer
}

// The deeds.
const (
	begins  = "begin"
	updates = "update"
	sends   = "send"
	answers = "answer" // has an end only
)

// recorder is a journal and a base transport that write down what is done.
type recorder struct {
	idem.Journal
	base http.RoundTripper
	life *killedLife
	mu   sync.Mutex
	last int64
}

func (r *recorder) note(d deed) deed {
	d.Process = r.life.Number
	if !d.Ends || d.What == answers {
		r.mu.Lock()
		r.last++
		d.ID = r.last
		r.mu.Unlock()
	}
	orDie(r.life.notes.Write(append(orDie(json.Marshal(d)), '\n')))
	return d
}

func (r *recorder) ended(d deed, err error) {
	d.Ends = true
	if err != nil {
		d.Text = "error: " + err.Error()
	}
	r.note(d)
}

func (r *recorder) Begin(ctx context.Context, want idem.Intent) (got idem.Intent, claimed bool, err error) {
	d := r.note(deed{What: begins, Operation: want.Operation})
	got, claimed, err = r.Journal.Begin(ctx, want)
	d.Key, d.Claimed, d.Owned, d.State = got.Key, claimed, got.Owned, got.State
	r.ended(d, err)
	return got, claimed, err
}

func (r *recorder) Update(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
	d := r.note(deed{
		What: updates, Operation: next.Operation, Key: next.Key, Claimed: next.Claimed, State: next.State,
		Posted: !durable && !r.life.Synced,
	})
	got, err := r.Journal.Update(ctx, next, a, durable)
	r.ended(d, err)
	return got, err
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	d := r.note(deed{What: sends, Operation: req.Header.Get("X-Operation"), Key: req.Header.Get("Idempotency-Key")})
	resp, err := r.base.RoundTrip(req)
	r.ended(d, nil)
	return resp, err
}

// callTogether calls the operations of a history whenever it is told to, with
// all callers at once.
func (l *killedLife) callTogether() {
	l.notes = orDie(os.OpenFile(l.Notes, os.O_APPEND|os.O_WRONLY, 0))
	r := &recorder{life: l, base: &http.Transport{MaxIdleConnsPerHost: l.Together}}
	r.Journal = orDie(idem.Open(l.Journal, &idem.SQLiteOptions{SyncOutcomes: l.Synced}))
	policy := killedRetry()
	policy.MaxAttempts, policy.MaxBackoff = 1, time.Minute // a call whose attempt fails ends, and another one takes over
	l.client = idem.NewClient(&idem.Transport{Journal: r, Contracts: killedContract(), Base: r, Retry: policy})
	fmt.Println("ready")
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		history, at, _ := strings.Cut(orders.Text(), " ")
		start := time.Unix(0, orDie(strconv.ParseInt(at, 10, 64)))
		var callers sync.WaitGroup
		for range l.Together {
			callers.Go(func() {
				for i := range togetherOperations {
					time.Sleep(time.Until(start.Add(time.Duration(i) * togetherEvery)))
					l.answered(r, fmt.Sprint(history, "-", i))
				}
			})
		}
		callers.Wait()
		fmt.Println("done")
	}
	orDie(0, r.Close())
}

// answered calls an operation until it has an answer.
func (l *killedLife) answered(r *recorder, name string) {
	for {
		req := killedRequest(context.Background(), l.Server, name)
		req.Header.Set("X-Operation", name)
		resp, err := l.client.Do(name, req)
		if err == nil {
			text := fmt.Sprint(resp.StatusCode, " ", string(bytes.TrimSpace(orDie(io.ReadAll(resp.Body)))))
			r.note(deed{What: answers, Ends: true, Operation: name, Text: text})
			return
		}
		if !errors.Is(err, idem.ErrUnknownOutcome) || errors.Is(err, idem.ErrHeld) {
			orDie(0, err)
		}
	}
}

// together are the processes.
type together struct {
	*killedWorld
	in  []io.Writer
	out []*bufio.Scanner
}

func newTogether(t *testing.T, synced bool) *together {
	c := &together{killedWorld: newKilledWorld(t, rand.Uint64())}
	for number := range togetherProcesses {
		l := c.life(number, 0)
		l.Together, l.Synced = togetherCallers, synced
		cmd := l.command(t)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() }) // what it does not say then, the test misses
		t.Cleanup(func() {
			defer late.Stop()
			require.NoError(t, in.Close())
			require.NoError(t, cmd.Wait())
		})
		c.in, c.out = append(c.in, in), append(c.out, bufio.NewScanner(out))
	}
	c.await("ready")
	return c
}

func (c *together) await(word string) {
	c.Helper()
	for _, out := range c.out {
		require.True(c, out.Scan(), "a process ended")
		require.Equal(c, word, out.Text())
	}
}

// history lets all processes call the operations of one history.
func (c *together) history(number int) []deed {
	c.Helper()
	start := time.Now().Add(togetherEvery).UnixNano()
	for _, in := range c.in {
		_, err := fmt.Fprintln(in, number, start)
		require.NoError(c, err)
	}
	c.await("done")
	text, err := readOn(c.notes)
	require.NoError(c, err)
	var all []deed
	for line := range strings.Lines(text) {
		var d deed
		require.NoError(c, json.Unmarshal([]byte(line), &d))
		all = append(all, d)
	}
	return all
}

// Eight callers in each of four processes call the same operations at the same
// time, at a provider that loses a tenth of the requests and a tenth of the
// answers: each operation has one key and one effect, one process at a time has
// it and sends it, and all are given the same answer. The order of what they did
// is one that a single correct journal can have had; with one word changed it is
// not.
func TestCallsTogether(t *testing.T) {
	seen, tampered := map[string]int{}, map[string]int{}
	for _, synced := range []bool{false, true} {
		t.Run(fmt.Sprint("synced ", synced), func(t *testing.T) {
			c := newTogether(t, synced)
			random := rand.New(rand.NewPCG(c.seed, 0))
			t.Log("seed", c.seed)
			for number := range togetherHistories / 2 {
				all := c.history(number)
				c.agrees(number, all)
				require.NoError(t, checkHistory(all), "history %d", number)
				for _, d := range all {
					seen[kindOf(d)]++
				}
				for name, change := range tamperings {
					if changed := change(random, all); changed != nil {
						tampered[name]++
						require.Error(t, checkHistory(changed), "history %d: %s", number, name)
					}
				}
			}
			arrivals, err := c.ledger.Counts()
			require.NoError(t, err)
			t.Logf("%d arrivals, %d effects", arrivals.Arrivals, arrivals.Effects)
			assert.Equal(t, togetherHistories/2*togetherOperations, arrivals.Effects)
			assert.Zero(t, arrivals.Duplicates)
			assert.Greater(t, arrivals.Arrivals, arrivals.Effects)
		})
	}
	if t.Failed() {
		return
	}
	t.Log(seen, tampered)
	const operations = togetherHistories * togetherOperations
	assert.Equal(t, operations*togetherProcesses*togetherCallers, seen["answer"])
	assert.Greater(t, seen["begin: claimed"], operations+operations/20, "claims, of those that somebody gave up too")
	assert.Greater(t, seen["begin: owned"], operations/2, "somebody else had it")
	assert.Greater(t, seen["begin: final"], operations/2)
	for name := range tamperings {
		assert.GreaterOrEqual(t, tampered[name], togetherHistories/2, name)
	}
}

// agrees holds a history against the provider.
func (c *together) agrees(number int, all []deed) {
	c.Helper()
	calls := 0
	for _, d := range all {
		require.True(c, strings.HasPrefix(d.Operation, fmt.Sprint(number, "-")), d)
		if d.What == answers {
			calls++
			c.mu.Lock()
			require.Equal(c, c.answers[d.Operation], d.Text, d.Operation)
			c.mu.Unlock()
		}
	}
	require.Equal(c, togetherProcesses*togetherCallers*togetherOperations, calls)
	f, touched := &findings{world: c.killedWorld}, map[string]*killedOperation{}
	c.readArrivals(f, touched)
	require.NoError(c, f.err())
	require.Len(c, touched, togetherOperations)
	for _, d := range all {
		if d.What == sends {
			require.Equal(c, touched[d.Operation].key, d.Key)
		}
	}
}
