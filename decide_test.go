package idem

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// heldRig leaves order-1 held: expired, with one effect.
func heldRig(t *testing.T) (*rig, Intent) {
	t.Helper()
	r := newRig(t, faultinjection.DieAfterEffect)
	r.transport.Retry.MaxAttempts = 1
	_, _, err := r.do(t.Context(), "order-1", orderBody(1))
	requireUnknown(t, err, StateUnknown)
	time.Sleep(24 * time.Hour)
	report, err := r.client.Resume(t.Context())
	require.NoError(t, err)
	require.Len(t, report.Held, 1)
	return r, report.Held[0]
}

func TestResolveIsFinal(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r, seen := heldRig(t)
		_, err := r.client.Resolve(t.Context(), seen, StateUnknown, "ann", "")
		require.ErrorContains(t, err, "succeeded or rejected")
		_, err = r.client.Resolve(t.Context(), seen, StateSucceeded, "", "")
		require.ErrorContains(t, err, "who decides")
		in, err := r.client.Resolve(t.Context(), seen, StateSucceeded, "ann", "seen in the provider's dashboard")
		require.NoError(t, err)
		assert.Equal(t, StateSucceeded, in.State)
		stored := r.lookup("order-1")
		assert.Equal(t, "ann", stored.By)
		assert.Equal(t, "seen in the provider's dashboard", stored.Note)
		_, _, err = r.do(t.Context(), "order-1", orderBody(1))
		require.ErrorIs(t, err, ErrNotKept)
		_, err = r.client.Resolve(t.Context(), seen, StateRejected, "bob", "")
		require.ErrorIs(t, err, ErrBusy, "it moved since it was seen")
		_, err = r.client.Resolve(t.Context(), stored, StateRejected, "bob", "")
		require.ErrorContains(t, err, "final")
		require.NotErrorIs(t, err, ErrUnknownOutcome)
		assert.Equal(t, "ann", r.lookup("order-1").By)
		assert.Len(t, r.arrivals(), 1)
	})
}

func TestReleaseOnlyWhereASendIsSafe(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r, seen := heldRig(t)
		_, err := r.client.Release(t.Context(), seen, "ann", "")
		requireUnknown(t, err, StateHeld)
		assert.ErrorContains(t, err, "ReleaseExpired")
		in, err := r.client.ReleaseExpired(t.Context(), seen, "ann", "")
		require.NoError(t, err)
		assert.Equal(t, StateUnknown, in.State)
		assert.True(t, in.Doubt)
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, report.Settled)
		r.sameKeyAndBytes(2)
	})
	t.Run("no contract", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRigFor(t, nil, faultinjection.DieAfterEffect)
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			requireUnknown(t, err, StateHeld)
			for _, release := range []func() error{
				func() error {
					_, err := r.client.Release(t.Context(), r.lookup("order-1"), "ann", "")
					return err
				},
				func() error {
					_, err := r.client.ReleaseExpired(t.Context(), r.lookup("order-1"), "ann", "")
					return err
				},
			} {
				requireUnknown(t, release(), StateHeld)
			}
			r.transport.Contracts = rigContract()
			_, err = r.client.Release(t.Context(), r.lookup("order-1"), "ann", "")
			requireUnknown(t, err, StateHeld) // the request that went out carried no key
			_, err = r.client.Resume(t.Context())
			require.NoError(t, err)
			assert.Len(t, r.arrivals(), 1)
		})
	})
	t.Run("exhausted", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.Status(503), faultinjection.Status(503))
			r.transport.Retry = RetryPolicy{MaxAttempts: 1, ResumeAttempts: 1}
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			requireUnknown(t, err, StateUnknown)
			time.Sleep(time.Minute)
			_, err = r.client.Resume(t.Context())
			require.NoError(t, err)
			in := r.lookup("order-1")
			require.Equal(t, HoldExhausted, in.HoldReason)
			in, err = r.client.Release(t.Context(), in, "ann", "")
			require.NoError(t, err)
			assert.Zero(t, in.Resumes)
			report, err := r.client.Resume(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 1, report.Settled)
			r.sameKeyAndBytes(3)
		})
	})
	t.Run("unnamed", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRig(t, faultinjection.DieAfterEffect)
			r.transport.Retry.MaxAttempts = 1
			_, err := r.transport.RoundTrip(mustRequest(t, t.Context(), rigURL, orderBody(1)))
			requireUnknown(t, err, StateUnknown)
			time.Sleep(time.Minute)
			report, err := r.client.Resume(t.Context())
			require.NoError(t, err)
			_, err = r.client.Release(t.Context(), report.Held[0], "ann", "not issued again")
			require.NoError(t, err)
			report, err = r.client.Resume(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 1, report.Settled, "a person's word stands")
			assert.Equal(t, 1, r.effects())
		})
	})
}

func TestWithdrawIsRefusedInDoubt(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r, seen := heldRig(t)
		_, err := r.client.Withdraw(t.Context(), seen, "ann", "")
		requireUnknown(t, err, StateHeld)
		require.ErrorContains(t, err, "resolve it instead")
		require.NotErrorIs(t, err, ErrJournal, "refused before the journal is asked")

		r.transport.Retry = RetryPolicy{MaxAttempts: 1}
		r.transport.Base = answering(answerWith(401))
		_, _, err = r.do(t.Context(), "order-2", orderBody(2))
		require.ErrorIs(t, err, ErrNotSent)
		_, err = r.client.Withdraw(t.Context(), r.lookup("order-2"), "ann", "")
		require.ErrorContains(t, err, "withdrawn already")

		// A pending intent of a dead process.
		in, _, err := r.journal.Begin(t.Context(), Intent{
			Operation: "order-3", Key: "k3", Method: "POST", URL: rigURL, State: StatePending, Fingerprint: []byte{1},
			Created: time.Now(), Request: &StoredRequest{URL: rigURL},
		})
		require.NoError(t, err)
		in.Claimed = false
		_, err = r.journal.Update(t.Context(), in, nil, true)
		require.NoError(t, err)
		in, err = r.client.Withdraw(t.Context(), r.lookup("order-3"), "ann", "no longer wanted")
		require.NoError(t, err)
		assert.Equal(t, StateWithdrawn, in.State)
		_, err = r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Equal(t, StateWithdrawn, r.lookup("order-3").State)
	})
}
