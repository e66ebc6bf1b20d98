package idem

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type panicky struct {
	Sealer
	seal, open atomic.Bool
}

func (s *panicky) Seal(p, a []byte) (string, []byte, error) {
	if s.seal.Load() {
		panic("sealer")
	}
	return s.Sealer.Seal(p, a)
}

func (s *panicky) Open(k string, p, a []byte) ([]byte, error) {
	if s.open.Load() {
		panic("sealer")
	}
	return s.Sealer.Open(k, p, a)
}

func panicRig(t *testing.T) (*rig, *panicky) {
	r := newRig(t)
	require.NoError(t, r.journal.Close())
	in, err := NewAESGCM(sealKeys("a"), "a")
	require.NoError(t, err)
	s := &panicky{Sealer: in}
	journal, err := Open(filepath.Join(t.TempDir(), "s.db"), &SQLiteOptions{Sealer: s})
	require.NoError(t, err)
	r.transport = &Transport{Journal: journal, Base: r.transport.Base, Contracts: r.transport.Contracts}
	r.journal, r.client = journal, NewClient(r.transport)
	return r, s
}

// A Sealer that panics in a write refuses that write.
func TestAttack_SealerPanicsInAWrite(t *testing.T) {
	r, s := panicRig(t)
	s.seal.Store(true)
	_, _, err := r.do(t.Context(), "order-1", oneOrder)
	require.ErrorIs(t, err, ErrNotSent)
	s.seal.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, _, err = r.do(ctx, "order-2", oneOrder)
	assert.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- r.journal.Close() }()
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(3 * time.Second):
		t.Error("Close hangs")
	}
}

// the same in reads, more often than there are connections.
func TestAttack_SealerPanicsInReads(t *testing.T) {
	r, s := panicRig(t)
	_, _, err := r.do(t.Context(), "order-1", oneOrder)
	require.NoError(t, err)
	s.open.Store(true)
	for range 20 {
		func() {
			defer func() { _ = recover() }()
			_, _ = r.client.Lookup(t.Context(), "order-1")
		}()
		func() {
			defer func() { _ = recover() }()
			_ = r.journal.Export(t.Context(), discard{})
		}()
	}
	s.open.Store(false)
	_, _, err = r.do(t.Context(), "order-2", oneOrder)
	require.NoError(t, err)
	require.NoError(t, r.journal.Flush(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for range 10 {
		in, err := r.client.Lookup(ctx, "order-2")
		if assert.NoError(t, err) {
			assert.Equal(t, StateSucceeded, in.State)
		}
		n := 0
		assert.NoError(t, r.journal.Export(ctx, counter{&n}))
		assert.Equal(t, 2, n)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.journal.Close() }()
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(3 * time.Second):
		t.Error("Close hangs")
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

type counter struct{ n *int }

func (c counter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			*c.n++
		}
	}
	return len(p), nil
}
