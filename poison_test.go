package idem

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leavingJournal ends the caller's context once the intent is claimed.
type leavingJournal struct {
	Journal
	leave context.CancelFunc
}

func (j leavingJournal) Begin(ctx context.Context, want Intent) (Intent, bool, error) {
	got, claimed, err := j.Journal.Begin(ctx, want)
	j.leave()
	return got, claimed, err
}

// An operation whose owners die during the attempt, again and again, is held.
// A call that ends before its attempt does not end the row of deaths.
func TestPoisonIsHeldAfterDeathsInARow(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		sends := 0
		deadly := roundTripper(func(req *http.Request) (*http.Response, error) {
			sends++
			closeBody(req)
			r.journal.store.Die() // as the process would
			return nil, errReset
		})
		r.transport.Base = deadly
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.ErrorIs(t, err, ErrUnknownOutcome)
		for deaths := 1; deaths <= 2; deaths++ {
			r.open()
			ctx, leave := context.WithCancel(t.Context())
			r.transport.Journal = leavingJournal{r.journal, leave}
			_, _, err := r.do(ctx, "order-1", orderBody(1))
			requireUnknown(t, err, StateUnknown)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, deaths, r.lookup("order-1").Deaths)

			r.transport.Journal = r.journal
			_, err = r.client.Resume(t.Context())
			require.ErrorIs(t, err, ErrJournal, "it died")
		}
		require.Equal(t, 3, sends)
		r.open()
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		require.Len(t, report.Held, 1)
		assert.Equal(t, HoldPoison, report.Held[0].HoldReason)
		assert.Equal(t, 3, sends)
	})
}

// An attempt that comes to its end ends the row of deaths.
func TestAFinishedAttemptEndsTheRowOfDeaths(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		_, _, err := r.journal.Begin(t.Context(), Intent{
			Operation: "order-1", Key: "k", Method: "POST", URL: rigURL, State: StateInFlight, Attempts: 1, Fingerprint: []byte{1},
			Place: rigContract().Key, Request: &StoredRequest{URL: rigURL},
		})
		require.NoError(t, err)
		r.journal.store.Die()
		r.transport.Base = answering(answerWith(503))
		r.open()
		_, err = r.client.Resume(t.Context())
		require.NoError(t, err)
		in := r.lookup("order-1")
		assert.Equal(t, StateUnknown, in.State)
		assert.Zero(t, in.Deaths)
	})
}
