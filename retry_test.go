package idem

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

func TestBackoffStaysInItsBounds(t *testing.T) {
	for _, p := range []RetryPolicy{
		{},
		{MinBackoff: 1, MaxBackoff: time.Minute},
		{MinBackoff: 1, MaxBackoff: math.MaxInt64},
		{MinBackoff: time.Hour, MaxBackoff: math.MaxInt64},
		{MinBackoff: time.Minute, MaxBackoff: time.Minute},
	} {
		require.NoError(t, p.validate())
		for _, n := range []int{0, 1, 2, 5, 37, 64, 100, 10_000, math.MaxInt32} {
			wait := p.backoff(n)
			assert.GreaterOrEqual(t, wait, p.minBackoff(), "after %d attempts", n)
			assert.LessOrEqual(t, wait, p.maxBackoff(), "after %d attempts", n)
			if n >= 64 {
				assert.GreaterOrEqual(t, wait, p.maxBackoff()/4, "stays near the cap after %d attempts", n)
			}
		}
	}
}

func TestRetryPolicyRefusesNonsense(t *testing.T) {
	assert.ErrorContains(t, RetryPolicy{MaxAttempts: -1}.validate(), "MaxAttempts is -1")
	assert.ErrorContains(t, RetryPolicy{MinBackoff: time.Minute}.validate(), "MinBackoff 1m0s is longer than MaxBackoff 30s")
}

func TestAskedWait(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	cases := []struct {
		name   string
		values []string
		date   string
		want   time.Duration
	}{
		{"none", nil, "", 0},
		{"seconds", []string{"7"}, "", 7 * time.Second},
		{"zero", []string{"0"}, "", 0},
		{"negative", []string{"-1"}, "", 0},
		{"junk", []string{"abc"}, "", 0},
		{"empty", []string{""}, "", 0},
		{"not a number", []string{"NaN"}, "", 0},
		{"endless", []string{"1e300"}, "", longestWait},
		{"infinite", []string{"Inf"}, "", longestWait},
		{"two lines", []string{"1", "3"}, "", 3 * time.Second},
		{"date", []string{date(2 * time.Second)}, "", 2 * time.Second},
		{"past date", []string{"Wed, 21 Oct 2015 07:28:00 GMT"}, "", 0},
		{"skewed server", []string{date(-10*time.Minute + 3*time.Second)}, date(-10 * time.Minute), 3 * time.Second},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			h := http.Header{}
			for _, v := range test.values {
				h.Add("Retry-After", v)
			}
			if test.date != "" {
				h.Set("Date", test.date)
			}
			assert.Equal(t, test.want, askedWait(h, nil, now))
		})
	}
	waits := &contract.Contract{Waits: []contract.Wait{
		{Header: "Retry-After-Ms", Unit: contract.Milliseconds}, {Header: "X-Reset", Unit: contract.UnixSeconds}, {Header: "Retry-After"},
	}}
	assert.Equal(t, 250*time.Millisecond, askedWait(header("Retry-After-Ms", "250", "Retry-After", "9"), waits, now))
	assert.Equal(t, 9*time.Second, askedWait(header("Retry-After", "9"), waits, now))
	assert.Equal(t, 4*time.Second, askedWait(header("X-Reset", "1795953604"), waits, now))
}

// The server's wait is a floor, spread upward, and never cut.
func TestPauseKeepsTheServersFloor(t *testing.T) {
	p := RetryPolicy{}
	for range 100 {
		wait := p.pause(1, 5*time.Second, nil)
		assert.GreaterOrEqual(t, wait, 5*time.Second)
		assert.LessOrEqual(t, wait, 5500*time.Millisecond)
		assert.GreaterOrEqual(t, p.pause(1, time.Millisecond, nil), defaultMinBackoff)
		assert.Equal(t, 30*time.Second, p.pause(1, 30*time.Second, nil), "the cap is not passed by jitter alone")
		assert.GreaterOrEqual(t, p.pause(1, 24*time.Hour, nil), 24*time.Hour)
		assert.GreaterOrEqual(t, p.pause(1, 0, &contract.Contract{MinDelay: 3 * time.Second}), 3*time.Second)
	}
}
