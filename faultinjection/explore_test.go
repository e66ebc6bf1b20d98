package faultinjection_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// A life's context ends at the point where the life is killed, and that of a life
// which is left in peace does not.
func TestLifeContextEndsWithTheLife(t *testing.T) {
	var ends []error
	explorer := faultinjection.Explorer{Life: func(l *faultinjection.Life) error {
		require.NoError(t, l.Context.Err(), "before its point")
		l.CrashPoint("send")
		ends = append(ends, l.Context.Err())
		req, err := http.NewRequest("POST", "http://api.example/charges", strings.NewReader(`{"order":"`+l.Operation+`"}`))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", l.Operation)
		resp, err := l.Transport.RoundTrip(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}}
	done, err := explorer.Run(t.Context())
	require.NoError(t, err)
	assert.Empty(t, done.Failures)
	assert.Equal(t, []error{nil, context.Canceled, nil}, ends, "of a run without a kill, and of both lives of one with a kill")
}
