package idem

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// The points are passed in the order of an operation's life, each of them by
// something, and none by a replay.
func TestCrashPoints(t *testing.T) {
	virtually(t, func(t *testing.T) {
		var passed []string
		r := newRig(t, faultinjection.DieAfterEffect, faultinjection.Status(503))
		r.transport.CrashPoint = func(point string) { passed = append(passed, point) }
		_, _, err := r.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err)
		attempt := []string{pointSend, pointWritten, pointAnswered, pointRecord, pointRecorded}
		want := slices.Concat([]string{pointBegin, pointBegun}, attempt, []string{pointWait, pointCount}, attempt,
			[]string{pointWait, pointCount}, attempt)
		assert.Equal(t, want, passed)

		passed = nil
		_, _, err = r.do(t.Context(), "order-1", orderBody(1))
		require.NoError(t, err)
		assert.Equal(t, []string{pointBegin}, passed)

		passed = nil
		r.client.OnSettled = func(context.Context, Intent) error { return nil }
		_, err = r.client.Prepare("order-2", mustRequest(t, t.Context(), rigURL, orderBody(2)))
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = r.client.Resume(t.Context())
		require.NoError(t, err)
		assert.Equal(t, slices.Concat([]string{pointBegin, pointBegun, pointCount}, attempt, []string{pointTell, pointTold}), passed)

		for _, point := range CrashPoints() {
			assert.Contains(t, append(want, passed...), point)
		}
	})
}
