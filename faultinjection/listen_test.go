package faultinjection_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// Close is a kill: what is held or worked on has no effect, and it does not wait
// for them. A next life at the same address runs the key.
func TestCloseEndsWhatIsHeld(t *testing.T) {
	for name, step := range map[string]faultinjection.Step{
		"held": faultinjection.Hold, "slow": faultinjection.Slow(time.Hour), "work": faultinjection.Run,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, keyed)
			b.client.Transport = &http.Transport{DisableKeepAlives: true}
			if name == "work" {
				b.server.Work = time.Hour
			}
			b.server.Plan(step)
			running, err := b.server.Listen()
			require.NoError(t, err)
			b.url = running.URL
			first := b.later(b.request("POST", "/charges", order, "k1"))
			require.Eventually(t, func() bool { return len(b.outcomes()) == 1 }, 10*time.Second, time.Millisecond)
			start := time.Now()
			require.NoError(t, running.Close())
			require.NoError(t, running.Close(), "twice is fine")
			assert.Less(t, time.Since(start), 4*time.Second)
			require.Error(t, (<-first).err)
			assert.Equal(t, []faultinjection.Outcome{"died"}, b.outcomes())
			require.Error(t, b.post("k1").err, "nobody listens")

			b.server = faultinjection.NewServer(keyed, b.ledger)
			running, err = b.server.ListenAt(strings.TrimPrefix(running.URL, "http://"))
			require.NoError(t, err)
			defer running.Close()
			assert.Equal(t, 201, b.post("k1").status)
			assert.Equal(t, 1, b.effects())
		})
	}
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	t.Parallel() // it takes the five seconds
	b := newBench(t, keyed)
	stuck := make(chan struct{})
	entered := make(chan struct{})
	b.server.Effect = func(*http.Request, []byte) (int, http.Header, []byte) {
		close(entered)
		<-stuck
		return 0, nil, nil
	}
	running, err := b.server.Listen()
	require.NoError(t, err)
	b.url = running.URL
	first := b.later(b.request("POST", "/charges", order, "k1"))
	<-entered
	require.ErrorContains(t, running.Close(), "requests are still being handled")
	close(stuck)
	require.Error(t, (<-first).err)
	require.Eventually(t, func() bool { return b.effects() == 1 }, 10*time.Second, time.Millisecond)
}

func TestListenRefusesOtherMachines(t *testing.T) {
	b := newBench(t, keyed)
	for _, address := range []string{"0.0.0.0:0", ":0"} {
		_, err := b.server.ListenAt(address)
		require.ErrorContains(t, err, "not a loopback address")
	}
	_, err := b.server.ListenAt("nowhere")
	require.ErrorContains(t, err, "faultinjection: ")
}
