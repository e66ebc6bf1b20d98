package idem

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/idem-go/idem/contract"
)

// RetryPolicy bounds how often and how long an operation is tried. The zero
// value is the policy to use. Negative values are refused at first use. It is
// read at first use, and not to be changed after it.
type RetryPolicy struct {
	// MaxAttempts is the most attempts of one call, the first included. Zero
	// means 4; one means no retry.
	MaxAttempts int
	// ResumeAttempts is the most attempts of Resume and Run since the last direct
	// call or release; then the intent is held: exhausted. Zero means 20, which
	// is some six minutes of a single intent whose provider is down: raise it,
	// or MaxBackoff, for longer outages.
	ResumeAttempts int
	// MaxDeaths is how many owners in a row may die during an attempt before
	// the intent is held: poison. Zero means 3.
	MaxDeaths int
	// MinBackoff is the shortest wait between two attempts. Zero means 500 ms.
	MinBackoff time.Duration
	// MaxBackoff is the longest wait that a call sits out. A server that asks
	// for a longer one gets it, but the caller is freed. Zero means 30 s.
	MaxBackoff time.Duration
	// Budget is the most resends that go out to one destination (scheme, host
	// and port) without a definite answer, by calls and by Resume together. One
	// comes back each second, one for ten first attempts, and for each definite
	// answer what its call has taken, and two more. A call whose resend is refused
	// ends at once, and says so.
	// Zero means 32.
	Budget int
	// AttemptTimeout is how long one attempt may take until its answer is
	// whole, or until a stream begins. Zero means 30 s where the server honours
	// keys (more if its contract says so), and no limit of ours elsewhere. After
	// one that times out over HTTP/2, Base's idle connections are closed: net/http
	// would send the next attempt over the one that was silent.
	AttemptTimeout time.Duration
}

// The defaults of RetryPolicy.
const (
	defaultMaxAttempts    = 4
	defaultResumeAttempts = 20
	defaultMaxDeaths      = 3
	defaultBudget         = 32
	defaultMinBackoff     = 500 * time.Millisecond
	defaultMaxBackoff     = 30 * time.Second
	defaultAttemptTimeout = 30 * time.Second
)

// longestWait bounds what a server may ask for, so that no sum overflows.
const longestWait = 366 * 24 * time.Hour

func orDefault[T int | int64 | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

func (p RetryPolicy) maxAttempts() int    { return orDefault(p.MaxAttempts, defaultMaxAttempts) }
func (p RetryPolicy) resumeAttempts() int { return orDefault(p.ResumeAttempts, defaultResumeAttempts) }
func (p RetryPolicy) maxDeaths() int      { return orDefault(p.MaxDeaths, defaultMaxDeaths) }
func (p RetryPolicy) minBackoff() time.Duration {
	return orDefault(p.MinBackoff, defaultMinBackoff)
}
func (p RetryPolicy) maxBackoff() time.Duration {
	return orDefault(p.MaxBackoff, defaultMaxBackoff)
}

// attemptTimeout is zero where an attempt has no limit of ours.
func (p RetryPolicy) attemptTimeout(c *contract.Contract) time.Duration {
	switch {
	case p.AttemptTimeout > 0:
		return p.AttemptTimeout
	case c == nil || c.NoKeys:
		return 0
	}
	return max(defaultAttemptTimeout, c.AttemptTimeout)
}

func (p RetryPolicy) validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MaxAttempts", int64(p.MaxAttempts)},
		{"ResumeAttempts", int64(p.ResumeAttempts)},
		{"MaxDeaths", int64(p.MaxDeaths)},
		{"Budget", int64(p.Budget)},
		{"MinBackoff", int64(p.MinBackoff)},
		{"MaxBackoff", int64(p.MaxBackoff)},
		{"AttemptTimeout", int64(p.AttemptTimeout)},
	} {
		if f.value < 0 {
			return fmt.Errorf("field RetryPolicy.%s is %d, which is negative", f.name, f.value)
		}
	}
	if p.minBackoff() > p.maxBackoff() {
		return fmt.Errorf("RetryPolicy.MinBackoff %v is longer than MaxBackoff %v", p.minBackoff(), p.maxBackoff())
	}
	return nil
}

// backoff is the wait before the next attempt after n of them, in
// [MinBackoff, MaxBackoff], growing twofold with jitter.
func (p RetryPolicy) backoff(n int) time.Duration {
	low, high := p.minBackoff(), p.maxBackoff()
	b := backoff.ExponentialBackOff{
		InitialInterval:     low + low/2,
		RandomizationFactor: 1.0 / 3,
		Multiplier:          2,
		MaxInterval:         high - high/4,
		Stop:                backoff.Stop,
		Clock:               backoff.SystemClock,
	}
	b.Reset()
	wait := low
	// From 1 ns to the longest duration takes 63 doublings; a stored count may
	// be anything.
	for range min(max(n, 1), 64) {
		wait = b.NextBackOff()
	}
	return min(max(wait, low), high)
}

// pause is the wait before the next attempt after n of them: the server's
// floor, a little spread upward, or the back-off where that is longer. It may
// exceed MaxBackoff when the server asked for more.
func (p RetryPolicy) pause(n int, asked time.Duration, c *contract.Contract) time.Duration {
	wait := p.backoff(n)
	if c != nil {
		wait = max(wait, min(c.MinDelay, longestWait))
	}
	if asked <= 0 {
		return wait
	}
	spread := asked
	if tenth := asked / 10; tenth > 0 {
		spread += rand.N(tenth)
	}
	if high := p.maxBackoff(); asked <= high {
		spread = min(spread, high)
	}
	return max(wait, spread)
}

// askedWait is the wait that an answer asks for, in [0, longestWait].
func askedWait(h http.Header, c *contract.Contract, received time.Time) time.Duration {
	if c == nil || c.Waits == nil {
		return headerWait(h, contract.Wait{Header: "Retry-After"}, received)
	}
	for _, w := range c.Waits {
		if w.Asks(h) {
			return headerWait(h, w, received)
		}
	}
	return 0
}

// headerWait reads every line of the header and takes the longest wait that
// makes sense; junk, negative numbers and past dates ask for nothing.
func headerWait(h http.Header, w contract.Wait, received time.Time) time.Duration {
	var wait time.Duration
	for _, value := range h.Values(w.Header) {
		wait = max(wait, parseWait(value, w.Unit, h, received))
	}
	return min(max(wait, 0), longestWait)
}

func parseWait(value string, unit contract.Unit, h http.Header, received time.Time) time.Duration {
	if n, err := strconv.ParseFloat(value, 64); err == nil {
		switch unit {
		case contract.Milliseconds:
			n /= 1e3
		case contract.UnixSeconds:
			at := serverTime(h, received) // its UnixNano ends in 2262
			n -= float64(at.Unix()) + float64(at.Nanosecond())/1e9
		}
		// Not NaN, and small enough for a Duration.
		if n > 0 && n < longestWait.Seconds() {
			return time.Duration(n * float64(time.Second))
		}
		if n > 0 {
			return longestWait
		}
		return 0
	}
	if unit != contract.Seconds {
		return 0
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return at.Sub(serverTime(h, received))
}

// serverTime is the response's own Date, so that a skewed clock on either side
// does not matter; without one, ours.
func serverTime(h http.Header, received time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return received
}
