package faultinjection_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

func TestSeed(t *testing.T) {
	const requests = 1000
	start := time.Now()
	wrong, err := faultinjection.Seed(t.Context(), requests, faultinjection.CheckThenInsert)
	require.NoError(t, err)
	t.Logf("%+v in %v", wrong, time.Since(start))
	assert.GreaterOrEqual(t, wrong.Duplicates, 127)
	assert.Equal(t, wrong.Effects-1, wrong.Duplicates)
	assert.Equal(t, wrong.Effects, wrong.Answers)

	start = time.Now()
	right, err := faultinjection.Seed(t.Context(), requests, 0)
	require.NoError(t, err)
	t.Logf("%+v in %v", right, time.Since(start))
	assert.GreaterOrEqual(t, right.Arrivals, requests)
	right.Arrivals = 0 // depends on timing
	assert.Equal(t, faultinjection.SeedResult{Requests: requests, Effects: 1, Answers: 1}, right)
}

func TestSeedEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := faultinjection.Seed(ctx, 10, 0)
	require.ErrorIs(t, err, context.Canceled)
}
