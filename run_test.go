package idem

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// running runs the client's Run beside the test; the returned function ends it
// and checks that it ended with nil.
func (r *rig) running() (stop func()) {
	r.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	client := r.client
	go func() { ended <- client.Run(ctx) }()
	return func() {
		r.tb.Helper()
		cancel()
		require.NoError(r.tb, <-ended)
	}
}

// prepare puts the orders into the outbox.
func (r *rig) prepare(address string, names ...string) {
	r.tb.Helper()
	for i, name := range names {
		_, err := r.client.Prepare(name, mustRequest(r.tb, r.tb.Context(), address, orderBody(i)))
		require.NoError(r.tb, err)
	}
}

func orders(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, "-", i))
	}
	return names
}

// settled reports how many of them succeeded.
func (r *rig) settled(names []string) (n int) {
	r.tb.Helper()
	for _, name := range names {
		if r.lookup(name).State == StateSucceeded {
			n++
		}
	}
	return n
}

// listener collects what OnSettled is told.
type listener struct {
	mu  sync.Mutex
	all []Intent
	err func(Intent) error // nil: every one is taken
}

func (l *listener) take(_ context.Context, in Intent) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, in)
	if l.err != nil {
		return l.err(in)
	}
	return nil
}

// starts is a base transport that notes when each attempt began, by host, and
// how many run at a time.
type starts struct {
	mu      sync.Mutex
	at      []time.Time
	paths   []string
	hosts   map[string]int
	running map[string]int // now
	most    map[string]int
	answer  func(*http.Request) (*http.Response, error)
}

func (s *starts) RoundTrip(req *http.Request) (*http.Response, error) {
	s.count(req.URL.Host, 1)
	s.note(req.URL.Path)
	defer s.count(req.URL.Host, -1)
	closeBody(req)
	return s.answer(req)
}

func (s *starts) count(host string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts == nil {
		s.hosts, s.running, s.most = map[string]int{}, map[string]int{}, map[string]int{}
	}
	if n > 0 {
		s.hosts[host]++
	}
	for _, h := range []string{host, "all"} {
		s.running[h] += n
		s.most[h] = max(s.most[h], s.running[h])
	}
}

func (s *starts) note(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.paths = append(s.at, time.Now()), append(s.paths, path)
}

func (s *starts) atMost(host string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most[host]
}

func (s *starts) to(host string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts[host]
}

func status(code int, header ...string) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: req}
		for i := 0; i+1 < len(header); i += 2 {
			resp.Header.Set(header[i], header[i+1])
		}
		return resp, nil
	}
}

func TestRunDeliversWhatBecomesDue(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(503), faultinjection.DieAfterEffect)
		var told listener
		r.client.OnSettled = told.take
		stop := r.running()
		defer stop()
		synctest.Wait()
		names := orders("order", 3)
		r.prepare(rigURL, names...)
		time.Sleep(time.Minute)
		assert.Equal(t, 3, r.settled(names))
		assert.Equal(t, 3, r.effects())
		assert.Len(t, told.all, 3)
	})
}

// Run need not poll to see what this process leaves it.
func TestRunIsWokenByCalls(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		defer r.running()()
		names := orders("order", 40)
		for i, name := range names {
			time.Sleep(10 * time.Second)
			began := time.Now()
			r.prepare(rigURL, name)
			for r.lookup(name).State != StateSucceeded {
				time.Sleep(10 * time.Millisecond)
			}
			longest := defaultMinBackoff >> (i / 8) // the spread of starts
			require.LessOrEqual(t, time.Since(began), longest+20*time.Millisecond, name)
		}
	})
}

// What another process leaves is found soon.
func TestRunFindsWhatOthersLeave(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		other := newRig(t)
		other.path = r.path
		other.open()
		defer r.running()()
		time.Sleep(time.Minute)
		other.prepare(rigURL, "order-1")
		time.Sleep(pollLongest + defaultMinBackoff + time.Millisecond)
		assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
	})
}

func TestRunSpreadsItsStarts(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		base := &starts{answer: status(200)}
		r.transport.Base = base
		names := orders("order", 100)
		r.prepare(rigURL, names...)
		defer r.running()()
		time.Sleep(time.Minute)
		require.Equal(t, 100, r.settled(names))
		crowd := map[time.Time]int{}
		for _, at := range base.at {
			crowd[at.Truncate(10*time.Millisecond)]++
		}
		for at, n := range crowd {
			if at.Sub(base.at[0]) < 100*time.Millisecond { // the destination is not known yet
				assert.LessOrEqual(t, n, 4, "starts within 10 ms")
			}
		}
		assert.Less(t, base.at[99].Sub(base.at[0]), 30*time.Second, "an answering destination is held back no longer")
	})
}

func TestRunStopsWithItsContext(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		r.prepare(rigURL, "order-1")
		stop := r.running()
		time.Sleep(time.Second)
		require.Equal(t, StateInFlight, r.lookup("order-1").State)
		began := time.Now()
		stop()
		assert.Zero(t, time.Since(began))
		in := r.lookup("order-1")
		assert.Equal(t, StateUnknown, in.State, "cut in the middle")
		assert.False(t, in.Owned)
	})
}

func TestShutdownLetsRunFinish(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Second)
			return status(200)(req)
		})
		ended := make(chan error)
		go func() { ended <- r.client.Run(context.Background()) }()
		synctest.Wait()
		r.prepare(rigURL, "order-1")
		time.Sleep(time.Second)
		began := time.Now()
		go func() { ended <- r.client.Shutdown(context.Background()) }()
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
		assert.Greater(t, time.Since(began), 5*time.Second)
		assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
		require.ErrorIs(t, r.client.Run(context.Background()), ErrClosed)
	})
}

func TestRunCannotWork(t *testing.T) {
	require.ErrorIs(t, NewClient(&Transport{}).Run(t.Context()), ErrJournal)
	require.Error(t, NewClient(nil).Run(t.Context()))
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		ended := make(chan error)
		go func() { ended <- r.client.Run(t.Context()) }()
		time.Sleep(time.Minute)
		require.NoError(t, r.journal.Close())
		require.ErrorIs(t, <-ended, ErrClosed)
	})
}

// burningJournal fails for a while.
type burningJournal struct {
	Journal
	until time.Time
}

func (j burningJournal) ClaimDue(ctx context.Context, now time.Time, f Filter) ([]Intent, time.Time, error) {
	if time.Now().Before(j.until) {
		return nil, time.Time{}, fmt.Errorf("claim: %w: disk on fire", ErrJournal)
	}
	return j.Journal.ClaimDue(ctx, now, f)
}

// While the journal fails, Run waits, says so now and then, and goes on by
// itself.
func TestRunOutlivesAFailingJournal(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		var log bytes.Buffer
		r.transport.Logger = slog.New(slog.NewTextHandler(&log, nil))
		r.transport.Journal = burningJournal{r.journal, time.Now().Add(10 * time.Minute)}
		r.prepare(rigURL, "order-1")
		stop := r.running()
		time.Sleep(10 * time.Minute)
		require.Equal(t, StatePending, r.lookup("order-1").State)
		time.Sleep(time.Minute)
		require.Equal(t, StateSucceeded, r.lookup("order-1").State)
		stop()
		lines := strings.Count(log.String(), "the journal failed")
		assert.Greater(t, lines, 10)
		assert.Less(t, lines, 60)
	})
}

// A panic below goes up, after the others are done, and leaves its intent in
// doubt.
func TestResumePassesAPanicOn(t *testing.T) {
	for name, call := range map[string]func(*Client) error{
		"Resume": func(c *Client) error { _, err := c.Resume(context.Background()); return err },
		"Run":    func(c *Client) error { return c.Run(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
					if req.URL.Host == "panics.example" {
						panic("on purpose")
					}
					time.Sleep(time.Second)
					return status(200)(req)
				})
				r.prepare(rigURL, "order-1")
				r.prepare("http://panics.example/", "order-2")
				require.PanicsWithValue(t, "on purpose", func() { _ = call(r.client) })
				in := r.lookup("order-2")
				assert.Equal(t, StateUnknown, in.State)
				assert.False(t, in.Owned)
				assert.False(t, r.lookup("order-1").Owned)
			})
		})
	}
}
