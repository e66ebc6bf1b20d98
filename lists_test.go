package idem

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is recorded is listed by its new state at once, though another process
// keeps it from being written.
func TestListsSeeWhatIsPosted(t *testing.T) {
	r := newRig(t)
	var holder *child
	r.transport.Base = answering(answerWith(404))
	for _, operation := range []string{"a", "b", "c", "d", "e"} { // more than a page, in another state
		_, _, err := r.do(t.Context(), operation, orderBody(1))
		require.NoError(t, err)
	}
	r.transport.Base = answering(func(*http.Request) *http.Response {
		holder = startChild(t, "hold-write-lock", r.path)
		holder.awaitLine("locked")
		return answerWith(201)(nil)
	})
	_, _, err := r.do(t.Context(), "order-1", orderBody(1))
	require.NoError(t, err)
	defer holder.kill()
	for state, want := range map[State]int{StateSucceeded: 1, StateRejected: 5, StateInFlight: 0} {
		got := 0
		for f := (Filter{States: []State{state}, Limit: 2}); ; {
			page, err := r.journal.List(t.Context(), f)
			require.NoError(t, err)
			if got += len(page); len(page) < f.Limit {
				break
			}
			f.After = page[len(page)-1].ID
		}
		assert.Equal(t, want, got, state)
	}
}
