package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// testOneEffect is what holds for every client whose server keeps keys: lost
// answers and a kill at the worst moments leave one effect, under one key, and
// the client decodes what the server said.
func testOneEffect(t *testing.T, name string) {
	t.Parallel()
	t.Run("lost answer", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, name, faultinjection.DieAfterEffect)
		l := w.live()
		w.settles(l)
		assert.Equal(t, 2, w.counts().Arrivals)
		w.repeats(l)
	})
	t.Run("killed while the server works", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, name, faultinjection.Hold)
		w.killedWhileHeld()
		l := w.live()
		w.settles(l)
		assert.True(t, l.result.FromProvider || w.s.server.Replayed.Header == "")
		w.repeats(l)
	})
	t.Run("killed once the request has left", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, name)
		w.dead(w.child("written:1"))
		l := w.live()
		w.settles(l)
		w.repeats(l)
	})
}

// settles makes a call that goes on with the operation and settles it.
func (w *world) settles(l *life) {
	w.t.Helper()
	got, err := l.do(w.t.Context())
	require.NoError(w.t, err)
	assert.Equal(w.t, w.s.want, got)
	assert.NoError(w.t, l.result.Err())
	assert.Equal(w.t, idem.StateSucceeded, l.result.Intent.State)
	assert.Equal(w.t, 2, l.result.Intent.Attempts)
	w.once(l)
}

// repeats makes the same call again: it is answered from the journal.
func (w *world) repeats(l *life) {
	w.t.Helper()
	before := w.counts().Arrivals
	got, err := l.do(w.t.Context())
	require.NoError(w.t, err)
	assert.Equal(w.t, w.s.want, got)
	assert.True(w.t, l.result.FromJournal)
	assert.Equal(w.t, before, w.counts().Arrivals)
}

// testSentOnce is what holds for every client whose server keeps no keys: what
// may have been delivered is told as unknown, and is not sent again, neither by
// the client's own retries, nor by the same call in another process, nor by a
// resume.
func testSentOnce(t *testing.T, name string) {
	t.Parallel()
	t.Run("lost answer", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, name, faultinjection.DieAfterEffect)
		l := w.live()
		w.unknown(l)
		w.unknown(l)
		w.leaves(l)
	})
	t.Run("killed while the server works", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, name, faultinjection.Hold)
		w.killedWhileHeld()
		l := w.live()
		w.unknown(l)
		w.leaves(l)
	})
	t.Run("no fault", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, name)
		l := w.live()
		got, err := l.do(t.Context())
		require.NoError(t, err)
		assert.Equal(t, w.s.want, got)
		w.repeats(l)
	})
}

// unknown makes a call whose end nobody knows.
func (w *world) unknown(l *life) {
	w.t.Helper()
	_, err := l.do(w.t.Context())
	assert.ErrorIs(w.t, err, idem.ErrUnknownOutcome, "what the client returns")
	assert.ErrorIs(w.t, l.result.Err(), idem.ErrUnknownOutcome)
	assert.ErrorIs(w.t, l.result.Err(), idem.ErrHeld)
}

// leaves resumes, and sees that nothing was sent twice.
func (w *world) leaves(l *life) {
	w.t.Helper()
	report, err := l.client.Resume(w.t.Context())
	require.NoError(w.t, err)
	assert.Zero(w.t, report.Sent)
	in, err := l.client.Lookup(w.t.Context(), operation)
	require.NoError(w.t, err)
	assert.Equal(w.t, idem.StateHeld, in.State)
	assert.Equal(w.t, idem.HoldNoContract, in.HoldReason)
	counts := w.counts()
	assert.Equal(w.t, 1, counts.Arrivals, "arrivals")
	assert.Equal(w.t, 1, counts.Effects, "effects")
	assert.Equal(w.t, []string{""}, w.keys(), "keys on the wire")
}
