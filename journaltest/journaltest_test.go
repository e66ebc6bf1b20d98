package journaltest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/journaltest"
)

func TestMemory(t *testing.T) {
	journaltest.Run(t, func(*testing.T) journaltest.Store { return journaltest.Memory() })
}

func TestMemoryWithoutKill(t *testing.T) {
	journaltest.Run(t, func(*testing.T) journaltest.Store {
		return journaltest.Store{Open: journaltest.Memory().Open}
	})
}

// The waits between attempts are virtual, and so is the clock of Prune.
func TestNewLivesInTheTimeOfItsBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := journaltest.New()
		defer func() { require.NoError(t, journal.Close()) }()
		provider := &forgetful{}
		client := idem.NewClient(&idem.Transport{
			Journal: journal, Base: provider, Contracts: contract.Keyed("Idempotency-Key", 24*time.Hour).At("api.example.com"),
			Retry: idem.RetryPolicy{MinBackoff: time.Hour, MaxBackoff: time.Hour},
		})
		start := time.Now()
		status, err := charge(client, "order-42")
		require.NoError(t, err)
		assert.Equal(t, "201 Created", status)
		assert.Greater(t, time.Since(start), time.Minute)

		n, err := journal.Prune(t.Context(), time.Now().Add(time.Hour))
		require.NoError(t, err)
		assert.Zero(t, n, "the provider remembers the key")
		time.Sleep(25 * time.Hour)
		n, err = journal.Prune(t.Context(), time.Now())
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		_, err = charge(client, "order-42")
		assert.ErrorIs(t, err, idem.ErrNotKept)
		assert.Len(t, provider.keys, 2)
	})
}

// Where the clock stands still, no two attempts begin at once all the same.
func TestNewTellsApartWhatBeganAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := journaltest.New()
		defer func() { require.NoError(t, journal.Close()) }()
		begins := func(operation string, attempts int) {
			in := idem.Intent{Operation: operation, Fingerprint: []byte("f"), State: idem.StateInFlight, Attempts: 1}
			in, claimed, err := journal.Begin(t.Context(), in)
			require.NoError(t, err)
			require.True(t, claimed)
			in.State, in.Attempts, in.Claimed = idem.StateInFlight, attempts, false
			_, err = journal.Update(t.Context(), in, nil, true)
			require.NoError(t, err)
		}
		begins("a", 1)
		begins("b", 1)
		begins("b", 2) // an attempt after a death
		begins("a", 2)
		due, _, err := journal.ClaimDue(t.Context(), time.Now(), idem.Filter{})
		require.NoError(t, err)
		require.Len(t, due, 2)
		assert.Equal(t, "b", due[0].Operation)
		assert.Equal(t, "a", due[1].Operation)
	})
}

// What New returns is a journal of its own.
func TestNewSharesNothing(t *testing.T) {
	one, two := journaltest.New(), journaltest.New()
	_, claimed, err := one.Begin(t.Context(), idem.Intent{Operation: "a", Fingerprint: []byte("f")})
	require.NoError(t, err)
	assert.True(t, claimed)
	_, err = two.Lookup(t.Context(), "", "a")
	assert.ErrorIs(t, err, idem.ErrNotFound)
}
