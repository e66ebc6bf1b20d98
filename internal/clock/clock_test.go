package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/internal/clock"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		step := time.Duration(0)
		c := clock.Clock{Wall: func() time.Time { return time.Now().Add(step) }}
		c.Start()
		since := func() time.Duration { return c.Now().Sub(start) }

		time.Sleep(time.Hour)
		assert.Equal(t, time.Hour, since())
		step = -24 * time.Hour
		time.Sleep(time.Minute)
		assert.Equal(t, time.Hour+time.Minute, since(), "set back: time goes on")
		step = 2 * time.Hour
		assert.Equal(t, 3*time.Hour+time.Minute, since(), "jumped ahead, or slept: it counts")
		step = 0
		assert.Equal(t, time.Hour+time.Minute, since(), "a step ahead that was corrected is forgotten")

		unstarted := clock.Clock{}
		assert.Equal(t, time.Now().UTC(), unstarted.Now())
		assert.Equal(t, time.UTC, c.Now().Location())
	})
}
