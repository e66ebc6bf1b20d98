package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two Runs on one file share the work, and no intent is sent by both.
func TestTwoRunsShareTheWork(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		slow := r.transport.Base
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			time.Sleep(200 * time.Millisecond)
			return slow.RoundTrip(req)
		})
		names := orders("order", 60)
		r.prepare(rigURL, names...)
		defer r.running()()
		first := r.client
		r.open() // another handle on the same file
		defer r.running()()
		require.NotSame(t, first, r.client)
		time.Sleep(time.Minute)
		assert.Equal(t, 60, r.settled(names))
		assert.Len(t, r.arrivals(), 60)
	})
}

// Of one Name on one handle there is one transport.
func TestOneTransportOfAName(t *testing.T) {
	r := newRig(t)
	_, err := r.client.Resume(t.Context())
	require.NoError(t, err)
	second := func(name string) *Client {
		return NewClient(&Transport{Journal: r.journal, Name: name, Base: r.transport.Base, Contracts: rigContract()})
	}
	other := second("")
	_, err = other.Do("order-1", mustRequest(t, t.Context(), rigURL, orderBody(1)))
	require.ErrorContains(t, err, "same Name")
	require.ErrorIs(t, err, ErrNotSent)
	_, err = other.Resume(t.Context())
	require.ErrorContains(t, err, "same Name")
	_, err = other.Lookup(t.Context(), "order-1")
	require.ErrorContains(t, err, "same Name")
	require.ErrorContains(t, other.Run(t.Context()), "same Name")
	assert.Empty(t, r.arrivals())

	shares := NewClient(r.transport)
	_, err = shares.Resume(t.Context())
	require.NoError(t, err, "the same transport")
	_, err = second("other").Resume(t.Context())
	require.NoError(t, err, "another name")

	require.NoError(t, r.client.Shutdown(t.Context()))
	require.NoError(t, r.client.Shutdown(t.Context()), "counts once")
	_, err = other.Resume(t.Context())
	require.ErrorContains(t, err, "same Name", "one of the two lives")
	require.NoError(t, shares.Shutdown(t.Context()))
	_, err = other.Resume(t.Context())
	require.NoError(t, err)
	require.False(t, errors.Is(err, ErrClosed))
}

// Processes on one file that are restarted one after another, each with its
// Run: no alarm, no gap, nothing twice.
func TestRollingRestart(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const processes = 3
		r := newRig(t)
		base := r.transport.Base
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			time.Sleep(300 * time.Millisecond)
			return base.RoundTrip(req)
		})
		require.NoError(t, r.journal.Close())
		all := make([]*rig, processes)
		runs := make(chan error, 1)
		start := func(i int) {
			all[i] = &rig{tb: t, path: r.path, transport: r.transport}
			all[i].open()
			go func(c *Client) { runs <- c.Run(context.Background()) }(all[i].client)
		}
		for i := range processes {
			start(i)
		}
		for n := range 24 {
			if n%4 == 3 {
				i := n / 4 % processes
				require.NoError(t, all[i].client.Shutdown(t.Context()))
				require.NoError(t, <-runs)
				require.NoError(t, all[i].journal.Close())
				start(i)
			}
			for i, p := range all {
				p.prepare(rigURL, fmt.Sprintf("prepared-%d-%d", n, i))
				_, _, err := p.do(t.Context(), fmt.Sprintf("order-%d-%d", n, i), orderBody(n))
				require.NoError(t, err)
			}
		}
		time.Sleep(time.Minute)
		open, err := all[0].journal.List(t.Context(), Filter{States: []State{StatePending, StateInFlight, StateUnknown, StateHeld}})
		require.NoError(t, err)
		assert.Empty(t, open)
		assert.Len(t, r.arrivals(), 2*24*processes)
		assert.Equal(t, 2*24*processes, r.effects())
		for _, p := range all {
			require.NoError(t, p.client.Shutdown(t.Context()))
			require.NoError(t, <-runs)
		}
	})
}

// Those whose process died during the attempt are sent after the others and
// alone, one after another.
func TestRunSendsSuspectsAloneAndLast(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 5 {
			r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
				r.journal.store.Die() // as the process would
				return nil, errReset
			})
			_, _, err := r.do(t.Context(), fmt.Sprint("suspect-", i), orderBody(i))
			require.ErrorIs(t, err, ErrUnknownOutcome)
			r.open()
		}
		base := &starts{answer: func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return status(200)(req)
		}}
		r.transport.Base = base
		healthy := orders("healthy", 20)
		r.prepare("http://provider.example/healthy", healthy...)
		stop := r.running()
		time.Sleep(time.Minute)
		stop()
		assert.Equal(t, 5, r.settled(orders("suspect", 5)))
		require.Len(t, base.paths, 25)
		for i, path := range base.paths {
			if i < 20 {
				assert.Equal(t, "/healthy", path)
				continue
			}
			assert.Equal(t, "/charges", path)
			assert.GreaterOrEqual(t, base.at[i].Sub(base.at[i-1]), time.Second, "alone")
			if i > 20 {
				assert.Less(t, base.at[i].Sub(base.at[i-1]), time.Second+defaultMinBackoff+time.Millisecond, "without a pause")
			}
		}
	})
}
