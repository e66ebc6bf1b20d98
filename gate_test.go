package idem

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A destination that hangs, or is down, does not hold up another one.
func TestRunGoesOnBesideABadDestination(t *testing.T) {
	for name, bad := range map[string]func(*http.Request) (*http.Response, error){
		"hangs": func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		},
		"down":    status(503),
		"limited": status(429, "Retry-After", "20"),
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				base := &starts{answer: func(req *http.Request) (*http.Response, error) {
					if req.URL.Host == "bad.example" {
						return bad(req)
					}
					return status(200)(req)
				}}
				r.transport.Base = base
				r.prepare("http://bad.example/charges", orders("bad", 150)...)
				good := orders("good", 20)
				r.prepare("http://good.example/charges", good...)
				defer r.running()()
				time.Sleep(5 * time.Second)
				assert.Equal(t, 20, r.settled(good), "of the good destination")
				assert.LessOrEqual(t, base.atMost("bad.example"), sweepPerGate)
				assert.LessOrEqual(t, base.atMost("all"), sweepAttempts)
			})
		})
	}
}

// One destination cannot take all attempts, and many cannot take more than all.
func TestRunIsBounded(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		base := &starts{answer: func(req *http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Second)
			return status(200)(req)
		}}
		r.transport.Base = base
		stop := r.running()
		r.prepare("http://first.example/charges", "a", "b", "c") // so that no page ends at the bound
		time.Sleep(time.Second)
		for i := range 8 {
			r.prepare(fmt.Sprintf("http://host-%d.example/charges", i), orders(fmt.Sprint("host-", i), 20)...)
		}
		time.Sleep(10 * time.Second)
		assert.Equal(t, sweepAttempts, base.atMost("all"))
		time.Sleep(20 * time.Minute)
		stop()
		for i := range 8 {
			assert.Equal(t, sweepPerGate, base.atMost(fmt.Sprintf("host-%d.example", i)))
			assert.Equal(t, 20, base.to(fmt.Sprintf("host-%d.example", i)))
		}
	})
}

// A destination that is down gets a burst and then one resend a second, however
// many intents wait for it; when it is back, all are delivered soon.
func TestRunKeepsToTheRetryBudget(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		var up atomic.Bool
		base := &starts{answer: func(req *http.Request) (*http.Response, error) {
			if up.Load() {
				return status(200)(req)
			}
			return status(503)(req)
		}}
		r.transport.Base = base
		r.transport.Retry.ResumeAttempts = 1000
		names := orders("order", 100)
		r.prepare(rigURL, names...)
		defer r.running()()
		time.Sleep(5 * time.Minute)
		sent := base.to("provider.example")
		assert.LessOrEqual(t, sent, defaultBudget+301)
		assert.Greater(t, sent, 200, "it is asked once a second")
		up.Store(true)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, 100, r.settled(names))
	})
}

// A pause that a destination asks for is kept by all its intents, though not
// longer than MaxBackoff by those that it did not speak of.
func TestRunKeepsAPause(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		limited := true
		base := &starts{answer: func(req *http.Request) (*http.Response, error) {
			if limited {
				limited = false
				return status(429, "Retry-After", "86400")(req)
			}
			return status(200)(req)
		}}
		r.transport.Base = base
		r.prepare(rigURL, "first")
		defer r.running()()
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, base.to("provider.example"))
		others := orders("order", 10)
		r.prepare(rigURL, others...)
		time.Sleep(27 * time.Second)
		require.Equal(t, 1, base.to("provider.example"), "the pause")
		time.Sleep(time.Minute)
		assert.Equal(t, 10, r.settled(others))
		assert.Equal(t, StatePending, r.lookup("first").State)
		time.Sleep(28 * time.Hour)
		assert.Equal(t, StateSucceeded, r.lookup("first").State)
	})
}

// Only an answer about the destination pauses it; one about its own request
// does not.
func TestRunIsNotPausedByAnAnswerAboutOneRequest(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		early := true
		base := &starts{answer: func(req *http.Request) (*http.Response, error) {
			if early {
				early = false
				return status(http.StatusTooEarly, "Retry-After", "20")(req)
			}
			return status(200)(req)
		}}
		r.transport.Base = base
		r.prepare(rigURL, "first")
		defer r.running()()
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, base.to("provider.example"))
		r.prepare(rigURL, "second")
		time.Sleep(time.Second)
		assert.Equal(t, StateSucceeded, r.lookup("second").State)
		assert.Equal(t, StatePending, r.lookup("first").State)
	})
}

// Gates are bounded in number; those that say nothing new go.
func TestGatesAreBounded(t *testing.T) {
	virtually(t, func(t *testing.T) {
		g := gates{burst: defaultBudget}
		kept := g.of([]byte("kept"), time.Now())
		kept.pause(time.Now(), time.Hour, true, RetryPolicy{MaxBackoff: time.Hour})
		for i := range 3 * maxGates {
			g.of([]byte(fmt.Sprint(i)), time.Now())
		}
		assert.LessOrEqual(t, len(g.all), maxGates)
		assert.Same(t, kept, g.of([]byte("kept"), time.Now()))

		for i := range maxGates { // all in use
			g.of([]byte(fmt.Sprint("busy-", i)), time.Now()).pause(time.Now(), time.Hour, true, RetryPolicy{MaxBackoff: time.Hour})
		}
		skipped, _ := g.of([]byte("one more"), time.Now()).enter(time.Now(), RetryPolicy{})
		assert.Empty(t, skipped)
		assert.LessOrEqual(t, len(g.all), maxGates)
	})
}
