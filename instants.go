package idem

import (
	"math"
	"time"
)

// nanos keeps the whole range in order: what is too early or too late to count
// in nanoseconds is the first or the last instant.
func nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Unix() <= 0:
		return 1
	case t.Unix() >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
