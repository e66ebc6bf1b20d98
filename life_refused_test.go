package idem

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// A call whose process died ends in the next call, if that may not send: held, as
// the call itself would have left it, so that the error and the list agree.
func TestLife_WhatDiedIsHeldByTheCallThatMayNotSendIt(t *testing.T) {
	for name, test := range map[string]struct {
		contract *contract.Contract
		why      HoldReason
		after    time.Duration
	}{
		"no contract":           {nil, HoldNoContract, 0},
		"a server without keys": {contract.Unsupported, HoldNoContract, 0},
		"a key that is too old": {rigContract(), HoldExpired, 24 * time.Hour},
	} {
		for by, again := range map[string]func(l *life) error{"call": (*life).call, "continue": (*life).continues} {
			t.Run(name+", "+by, func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					l := newLife(t, test.contract, RetryPolicy{MaxAttempts: 1})
					l.acts = []act{l.dies}
					_ = l.call()
					l.restart(true)
					time.Sleep(test.after)

					err := again(l)
					requireUnknown(t, err, StateHeld)
					require.ErrorIs(t, err, ErrHeld)
					seen := l.held()
					assert.Equal(t, test.why, seen.HoldReason)
					assert.True(t, seen.Doubt)
					assert.Equal(t, 1, seen.Attempts)
					l.still()
					assert.Equal(t, seen.Version, l.held().Version, "once")
					assert.Equal(t, 1, l.effects())
				})
			})
		}
	}
}

// A key that grew too old while nobody resumed the operation: the call that is
// refused for it changes nothing, and a person need not wait for a resume.
func TestLife_ReleaseExpiredOfWhatACallLeftUnknown(t *testing.T) {
	live(t, RetryPolicy{MaxAttempts: 1}, []act{actLost}, func(t *testing.T, l *life) {
		requireUnknown(t, l.call(), StateUnknown)
		young := l.in()
		_, err := l.client.ReleaseExpired(t.Context(), young, "ann", "looked")
		require.ErrorContains(t, err, "Release is for the rest")
		assert.Equal(t, young.Version, l.in().Version)

		time.Sleep(24 * time.Hour)
		err = l.call()
		requireUnknown(t, err, StateUnknown)
		require.ErrorIs(t, err, ErrHeld)
		old := l.in()
		assert.Equal(t, StateUnknown, old.State)
		_, err = l.client.Release(t.Context(), old, "ann", "looked")
		require.ErrorContains(t, err, "it is not held")
		_, err = l.client.ReleaseExpired(t.Context(), old, "ann", "it is not there")
		require.NoError(t, err)
		require.NoError(t, l.call())
		assert.Equal(t, 2, l.sends())
		assert.Equal(t, StateSucceeded, l.in().State)
		assert.Equal(t, "ann", l.in().By)
	})
}
