package idem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// A connection that has gone silent is not used again by the next attempt,
// though net/http keeps one that others could share.
func TestASilentConnectionIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	const silence = time.Second // longer than a busy machine takes for a call
	for _, wire := range wires {
		t.Run(wire, func(t *testing.T) {
			p := newProxied(t, wire, idem.RetryPolicy{MaxAttempts: 2, AttemptTimeout: silence, MinBackoff: stallTimeout})
			up, _ := p.measure(t)
			c := p.begin(t, faultinjection.ConnFault{Up: faultinjection.Flow{End: faultinjection.Stall, After: up.total + 100}})
			_, err := c.do(t.Context())
			require.NoError(t, err)
			c.rename()
			start := time.Now()
			answer, err := c.do(t.Context())
			require.NoError(t, err)
			assert.Greater(t, time.Since(start), silence, "the connection was not silent")
			c.whole(answer, false)
			in, _ := c.check()
			assert.Equal(t, 2, in.Attempts)
		})
	}
}
