package idem

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// The ledger's check finds nothing wrong with a true journal, over lost answers,
// refusals, doubt and rows without a name, and finds what is wrong.
func TestLedgerCheckOfATrueJournal(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect, faultinjection.Run, faultinjection.Fail(402), faultinjection.DieBeforeEffect)
		for i := range 3 {
			_, _, err := r.do(t.Context(), orderName(i), orderBody(i))
			require.NoError(t, err)
		}
		resp, err := r.transport.RoundTrip(mustRequest(t, t.Context(), rigURL, orderBody(7)))
		require.NoError(t, err)
		readAndClose(t, resp)
		r.transport.Retry.MaxAttempts = 1
		r.server.Plan(faultinjection.DieAfterEffect)
		_, _, err = r.do(t.Context(), "in-doubt", orderBody(8))
		require.ErrorIs(t, err, ErrUnknownOutcome)
		found, err := r.ledger.Check(r.journal)
		require.NoError(t, err)
		assert.Empty(t, found)

		in := r.lookup("in-doubt")
		_, err = r.client.Resolve(t.Context(), in, StateRejected, "somebody", "a wrong decision")
		require.NoError(t, err)
		found, err = r.ledger.Check(r.journal)
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, faultinjection.TrueFailure, found[0].Rule)
		assert.Equal(t, "in-doubt", found[0].Operation)

		other, err := Open(t.TempDir()+"/empty.db", nil)
		require.NoError(t, err)
		defer other.Close()
		found, err = r.ledger.Check(other)
		require.NoError(t, err)
		assert.Len(t, found, 5, "no key is in this one")
	})
}

func orderName(i int) string { return []string{"order-0", "order-1", "order-2"}[i] }
