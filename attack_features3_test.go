package idem

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// without Fingerprint too, where the key is in the body: the fingerprint is without the
// key, so it does not tell where in the body it was.
func TestAttack_NoBodiesKeyInBody(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c := rigContract()
		c.Key = contract.Place{Pointer: "/key"}
		r := newRigFor(t, c, faultinjection.DieAfterEffect)
		require.NoError(t, r.journal.Close())
		r.path, r.options = filepath.Join(t.TempDir(), "n.db"), &SQLiteOptions{NoRequestBodies: true}
		r.transport.Retry.MaxAttempts = 1
		r.open()
		_, _, err := r.do(t.Context(), "order-1", `{"amount":4200,"key":"sdk-key-1"}`)
		requireUnknown(t, err, StateUnknown)
		r.reopen()
		time.Sleep(time.Minute)
		_, _, err = r.do(t.Context(), "order-1", `{"amount":4200}`)
		t.Log(err)
		for _, a := range r.arrivals() {
			assert.Equal(t, string(r.arrivals()[0].Body), string(a.Body))
		}
	})
}

// a named operation at a provider that issues keys in a header: another issued key is
// answered with the first one's answer.
func TestAttack_IssuedInHeader(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c := rigContract()
		c.Form = contract.Issued
		require.NoError(t, c.Validate())
		r := newRigFor(t, c)
		call := func(key string) (Result, error) {
			req := mustRequest(t, t.Context(), rigURL, oneOrder)
			req.Header.Set("Idempotency-Key", key)
			_, res, err := r.roundTrip(t.Context(), "order-1", req)
			return res, err
		}
		_, err := call("issued-1")
		require.NoError(t, err)
		res, err := call("issued-2")
		t.Log(res.Intent.Key, res.FromJournal, err)
		assert.ErrorIs(t, err, ErrMismatch)
	})
}
