package integration

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

func init() {
	replica := &subject{
		server: keyed(), client: at(keyed()), effect: says(201, charge), want: "201 Created ch_1",
		open: func(s site) (func(context.Context) (string, error), error) {
			return posts(&http.Client{Transport: s.http.Transport}, s.url), nil
		},
	}
	subjects["replica"] = replica
	derived := *replica
	derived.setup = func(t *idem.Transport, _ string) { t.Key = idem.DeriveKeys([]byte("the same on every replica")) }
	subjects["replica with derived keys"] = &derived
}

// elsewhere is a life on another replica, which has a journal of its own.
func (w *world) elsewhere() *life {
	w.t.Helper()
	w.journal = filepath.Join(w.t.TempDir(), "another.db")
	return w.live()
}

// The operation is delivered to another replica after the first one has died in
// the middle of it, and its journal is not there.
func TestReplicas_Dead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "replica with derived keys", faultinjection.Hold)
	w.killedWhileHeld()
	l := w.elsewhere()
	got, err := l.do(t.Context())
	require.NoError(t, err)
	assert.Equal(t, w.s.want, got)
	assert.True(t, l.result.FromProvider)
	w.once(l)
}

// It is delivered to another replica while the first one waits for its answer.
func TestReplicas_AtWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "replica with derived keys", faultinjection.Hold)
	cmd := w.child("")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, w.server.AwaitHeld(ctx, 1))
	l := w.elsewhere()
	l.client.Transport.Observer = &idem.Observer{
		Waiting: func(context.Context, idem.Intent, time.Duration) { w.server.Release() }, // its key is in flight
	}
	got, err := l.do(t.Context())
	w.server.Release()
	require.NoError(t, err)
	assert.Equal(t, w.s.want, got)
	assert.Equal(t, 2, l.result.Intent.Attempts)
	_ = w.ended(cmd)
	assert.Contains(t, fmt.Sprint(cmd.Stderr), "the call ended: <nil>")
	w.once(l)
}

// With random keys there would be an effect for each replica.
func TestReplicas_RandomKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "replica", faultinjection.Hold)
	w.killedWhileHeld()
	l := w.elsewhere()
	_, err := l.do(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, w.counts().Effects)
}
