// Package clock tells the time for one process: the wall's, except that it
// never runs backwards.
package clock

import "time"

// Clock is the wall clock, or what has passed since the start where that is
// more: a wall clock that is set back does not take it back, and the time that
// a machine sleeps counts. The zero Clock is not started; it is the wall clock.
// It is safe for concurrent use.
type Clock struct {
	start time.Time
	// Wall is the wall clock; nil means time.Now. It is for tests.
	Wall func() time.Time
}

// Start starts the clock.
func (c *Clock) Start() { c.start = time.Now() }

// Now is the time, in UTC and without a monotonic reading.
func (c *Clock) Now() time.Time {
	read := time.Now()
	now := read
	if c.Wall != nil {
		now = c.Wall()
	}
	now = now.Round(0).UTC()
	if c.start.IsZero() {
		return now
	}
	if steady := c.start.Add(read.Sub(c.start)).Round(0).UTC(); steady.After(now) { // Sub does not see the wall
		return steady
	}
	return now
}
