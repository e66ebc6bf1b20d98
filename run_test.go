package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// running runs the client's Run beside the test; the returned function ends it
// and checks that it ended with nil.
func (r *rig) running() (stop func()) {
	r.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	client := r.client
	go func() { ended <- client.Run(ctx) }()
	return func() {
		r.tb.Helper()
		cancel()
		require.NoError(r.tb, <-ended)
	}
}

// prepare puts n orders into the outbox.
func (r *rig) prepare(n int) {
	r.tb.Helper()
	for i := range n {
		_, err := r.client.Prepare(fmt.Sprint("order-", i), mustRequest(r.tb, r.tb.Context(), rigURL, orderBody(i)))
		require.NoError(r.tb, err)
	}
}

// settled collects what OnSettled is told.
type settled struct {
	mu  sync.Mutex
	all []Intent
	err func(Intent) error
}

func (s *settled) take(_ context.Context, in Intent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, in)
	if s.err != nil {
		return s.err(in)
	}
	return nil
}

func TestRunDeliversWhenDue(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Status(503), faultinjection.DieAfterEffect)
		var told settled
		r.client.OnSettled = told.take
		stop := r.running()
		synctest.Wait()
		r.prepare(3)
		time.Sleep(time.Minute)
		for i := range 3 {
			assert.Equal(t, StateSucceeded, r.lookup(fmt.Sprint("order-", i)).State)
		}
		assert.Equal(t, 3, r.effects())
		assert.Len(t, told.all, 3)
		stop()
	})
}

var _ = errors.New
var _ = http.StatusOK
