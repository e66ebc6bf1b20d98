package idem

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// The customer's second card: one new generation, whoever asks how often.
func TestRenewalMakesOneNewGeneration(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Fail(402))
		status, _, err := r.do(t.Context(), "order-1", `{"order":"order-1","card":"one"}`)
		require.NoError(t, err)
		require.Equal(t, 402, status)
		first := r.lookup("order-1")
		require.Equal(t, StateRejected, first.State)

		_, _, err = r.do(t.Context(), "order-1", `{"order":"order-1","card":"two"}`)
		require.ErrorIs(t, err, ErrMismatch, "without a renewal it stands for the first card")

		ctx := WithRenewal(t.Context(), first.Key)
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				status, _, err := r.do(ctx, "order-1", `{"order":"order-1","card":"two"}`)
				assert.NoError(t, err)
				assert.Equal(t, 201, status)
			})
		}
		calls.Wait()
		require.Len(t, r.arrivals(), 2)
		assert.NotEqual(t, r.arrivals()[0].Keys, r.arrivals()[1].Keys)
		second := r.lookup("order-1")
		assert.Equal(t, 2, second.Generation)
		assert.Equal(t, first.Key, second.Renews)
		assert.Equal(t, StateSucceeded, second.State)

		_, _, err = r.do(ctx, "order-1", `{"order":"order-1","card":"three"}`)
		require.ErrorIs(t, err, ErrMismatch, "a later generation exists, for another request")
		_, _, err = r.do(WithRenewal(t.Context(), second.Key), "order-1", `{"order":"order-1","card":"three"}`)
		require.ErrorIs(t, err, ErrMismatch, "what succeeded is not renewed")
		assert.Len(t, r.arrivals(), 2)
		assert.Equal(t, 1, r.effects())
	})
}

func TestRenewalInDoubtIsRefused(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Retry.MaxAttempts = 1
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		requireUnknown(t, err, StateUnknown)
		ctx := WithRenewal(t.Context(), r.lookup("order-1").Key)
		_, _, err = r.do(ctx, "order-1", orderBody(2))
		requireUnknown(t, err, StateUnknown)
		assert.ErrorContains(t, err, "not renewed")
		_, _, err = r.do(WithRenewal(t.Context(), "nobody's key"), "order-1", orderBody(1))
		require.ErrorIs(t, err, ErrMismatch)
		assert.Len(t, r.arrivals(), 1)
		assert.Equal(t, 1, r.lookup("order-1").Generation)
	})
}

// Replicas, and one that lost its journal, send the same key.
func TestDerivedKeysAreTheSameEverywhere(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Fail(402))
		r.server.StoreFailures = true
		r.transport.Key = DeriveKeys([]byte("secret"))
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err)
		first := r.lookup("order-1")
		_, _, err = r.do(WithRenewal(t.Context(), first.Key), "order-1", orderBody(1))
		require.NoError(t, err)
		require.Equal(t, 1, r.effects())

		replica := &rig{tb: t, path: r.path + "-replica", ledger: r.ledger, server: r.server, transport: r.transport}
		replica.open()
		replica.transport.Key = DeriveKeys([]byte("secret"))
		_, _, err = replica.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err)
		assert.Equal(t, first.Key, replica.lookup("order-1").Key)
		_, _, err = replica.do(WithRenewal(t.Context(), first.Key), "order-1", orderBody(1))
		require.NoError(t, err)
		assert.Equal(t, r.lookup("order-1").Key, replica.lookup("order-1").Key, "the second generation too")
		assert.Equal(t, 1, r.effects())
	})
}

func TestDeriveKeys(t *testing.T) {
	derive := DeriveKeys([]byte("secret"))
	in := Intent{Scope: "a", Operation: "b", Generation: 1}
	assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, derive(in))
	seen := map[string]bool{}
	for _, in := range []Intent{
		in, {Scope: "ab", Operation: "", Generation: 1}, {Scope: "a", Operation: "b1", Generation: 1},
		{Scope: "a", Operation: "b", Generation: 2}, {Scope: "", Operation: "ab", Generation: 1},
	} {
		seen[derive(in)] = true
	}
	assert.Len(t, seen, 5)
	assert.NotEqual(t, derive(in), DeriveKeys([]byte("other"))(in))

	r := newRig(t)
	for name, key := range map[string]func(Intent) string{
		"no secret": DeriveKeys(nil),
		"too long":  func(Intent) string { return string(make([]byte, 300)) },
		"blanks":    func(Intent) string { return "a b" },
	} {
		r.transport.Key = key
		_, _, err := r.do(t.Context(), "order-"+name, orderBody(1))
		require.ErrorIs(t, err, ErrNotSent, name)
		assert.ErrorContains(t, err, "Transport.Key", name)
		_, err = r.client.Lookup(t.Context(), "order-"+name)
		require.ErrorIs(t, err, ErrNotFound, name)
	}
	r.transport.Key = func(Intent) string { t.Error("asked for an unnamed operation"); return "" }
	resp, err := r.transport.RoundTrip(mustRequest(t, t.Context(), rigURL, orderBody(1)))
	require.NoError(t, err)
	readAndClose(t, resp)
}
