package idem

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/faultinjection"
	"github.com/idem-go/idem/internal/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// setClock moves the wall clock by d between two lives: to a journal, all that
// it has stored is by d earlier then.
func (r *rig) setClock(d time.Duration) {
	r.tb.Helper()
	require.NoError(r.tb, r.journal.Close())
	db := inspect(r.tb, r.path)
	for _, column := range []string{"began", "first_sent", "due", "expires", "settled"} {
		_, err := db.Exec(fmt.Sprintf("UPDATE status SET %[1]s = %[1]s - ? WHERE %[1]s > 0", column), int64(d))
		require.NoError(r.tb, err)
	}
	_, err := db.Exec("UPDATE meta SET value = CAST(CAST(value AS INTEGER) - ? AS TEXT) WHERE name = 'clock'", int64(d))
	require.NoError(r.tb, err)
	require.NoError(r.tb, db.Close())
	r.open()
}

// dueInAMinute leaves an intent that is due in 60 s, without doubt or with, and
// a wall clock that can be moved while the process lives.
func dueInAMinute(t *testing.T, doubt bool) (r *rig, move func(time.Duration)) {
	t.Helper()
	status := 429
	if doubt {
		status = 503
	}
	r = newRig(t, faultinjection.Status(status, time.Minute))
	var moved atomic.Int64
	r.transport.clock.Wall = func() time.Time { return time.Now().Add(time.Duration(moved.Load())) }
	r.transport.Retry = RetryPolicy{MaxAttempts: 1, MaxBackoff: time.Minute}
	r.prepare(rigURL, "order-0")
	_, _, err := r.do(t.Context(), "order-0", orderBody(0))
	require.ErrorIs(t, err, ErrUnknownOutcome)
	require.Equal(t, doubt, r.lookup("order-0").Doubt)
	require.Equal(t, time.Minute, time.Until(r.lookup("order-0").Due))
	return r, func(d time.Duration) { moved.Store(int64(d)) }
}

func TestO50_ClockThatIsSetBackADay(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		t.Run(fmt.Sprintf("doubt %v", doubt), func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r, move := dueInAMinute(t, doubt)
				defer r.running()()
				begun := time.Now()
				time.Sleep(10 * time.Second)
				move(-24 * time.Hour)
				time.Sleep(49 * time.Second)
				require.Len(t, r.arrivals(), 1, "not before")
				time.Sleep(10 * time.Second)
				r.sameKeyAndBytes(2)
				assert.InDelta(t, 60, r.arrivals()[1].At.Sub(begun).Seconds(), 1)
			})
		})
	}
}

func TestO50_ClockThatJumpsAhead(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		for _, age := range []time.Duration{10 * time.Second, 22 * time.Hour} {
			t.Run(fmt.Sprintf("doubt %v, first sent %v ago", doubt, age), func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					r, move := dueInAMinute(t, doubt)
					if age < time.Minute {
						defer r.running()()
					}
					time.Sleep(age)
					move(2 * time.Hour)
					if age > time.Minute {
						defer r.running()()
					}
					time.Sleep(pollLongest + time.Second)
					if doubt && age > time.Hour {
						assert.Equal(t, HoldExpired, r.lookup("order-0").HoldReason, "its key may be 24 h old")
						time.Sleep(time.Hour)
						assert.Len(t, r.arrivals(), 1)
						return
					}
					r.sameKeyAndBytes(2)
					time.Sleep(time.Hour)
					assert.Len(t, r.arrivals(), 2, "once")
					assert.Equal(t, StateSucceeded, r.lookup("order-0").State)
				})
			})
		}
	}
}

func TestO50_ClockThatWasSetBackADayAndARestart(t *testing.T) {
	t.Run("without doubt, Do", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r, _ := dueInAMinute(t, false)
			r.setClock(-24 * time.Hour)
			begun := time.Now()
			_, _, err := r.do(t.Context(), "order-0", orderBody(0))
			require.NoError(t, err)
			assert.Equal(t, time.Minute, time.Since(begun))
			r.sameKeyAndBytes(2)
		})
	})
	t.Run("without doubt, Run", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r, _ := dueInAMinute(t, false)
			_, err := r.client.Prepare("order-0", mustRequest(t, t.Context(), rigURL, orderBody(0)))
			require.NoError(t, err)
			r.setClock(-24 * time.Hour)
			begun := time.Now()
			stop := r.running()
			time.Sleep(2 * time.Minute)
			stop()
			r.sameKeyAndBytes(2)
			assert.InDelta(t, 60, r.arrivals()[1].At.Sub(begun).Seconds(), 1)
		})
	})
	t.Run("in doubt", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r, _ := dueInAMinute(t, true)
			r.setClock(-24 * time.Hour)
			stop := r.running()
			time.Sleep(time.Hour)
			stop()
			assert.Equal(t, HoldClock, r.lookup("order-0").HoldReason, "the key's age is not known")
			assert.Len(t, r.arrivals(), 1)
		})
	})
}

// A process that started after the clock was set back takes over from one that
// did not notice.
func TestO50_ClockThatWasSetBackForOneOfTwo(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r, _ := dueInAMinute(t, false)
		_, err := r.client.Prepare("order-0", mustRequest(t, t.Context(), rigURL, orderBody(0)))
		require.NoError(t, err)
		first := r.journal
		r.open()
		behind := clock.Clock{Wall: func() time.Time { return time.Now().Add(-24 * time.Hour) }}
		require.NoError(t, r.transport.ready())
		r.transport.clock, r.journal.store.Clock = behind, behind
		first.store.Die()
		begun := time.Now()
		stop := r.running()
		time.Sleep(5 * time.Minute)
		stop()
		r.sameKeyAndBytes(2)
		assert.InDelta(t, 90, r.arrivals()[1].At.Sub(begun).Seconds(), 31, "its wait, and a minute until it is noticed")
	})
}

func TestO50_ClockThatJumpedAheadAndARestart(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		for _, age := range []time.Duration{0, 22 * time.Hour} {
			t.Run(fmt.Sprintf("doubt %v, first sent %v ago", doubt, age), func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					r, _ := dueInAMinute(t, doubt)
					time.Sleep(age)
					r.setClock(2 * time.Hour)
					stop := r.running()
					time.Sleep(time.Hour)
					stop()
					if doubt && age > 0 {
						assert.Equal(t, HoldExpired, r.lookup("order-0").HoldReason, "its key may be 24 h old")
						assert.Len(t, r.arrivals(), 1)
						return
					}
					assert.Equal(t, StateSucceeded, r.lookup("order-0").State)
					r.sameKeyAndBytes(2)
				})
			})
		}
	}
}
