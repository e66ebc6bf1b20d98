package idem

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// a journal without request bodies, and Fingerprint: a resend has the first call's
// headers (multipart boundary, Content-Encoding) and the second call's body.
func TestAttack_NoBodiesWithFingerprint(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		require.NoError(t, r.journal.Close())
		r.path, r.options = filepath.Join(t.TempDir(), "n.db"), &SQLiteOptions{NoRequestBodies: true}
		r.transport.Retry.MaxAttempts = 1
		r.transport.Fingerprint = func(req *http.Request, body []byte) ([]byte, error) {
			if req.Header.Get("Content-Encoding") == "gzip" {
				z, err := gzip.NewReader(bytes.NewReader(body))
				if err != nil {
					return nil, err
				}
				return io.ReadAll(z)
			}
			return body, nil
		}
		r.open()
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write([]byte(oneOrder))
		require.NoError(t, z.Close())
		req := mustRequest(t, t.Context(), rigURL, packed.String())
		req.Header.Set("Content-Encoding", "gzip")
		_, err := r.client.Do("order-1", req)
		requireUnknown(t, err, StateUnknown)
		r.reopen()
		time.Sleep(time.Minute)
		_, err = r.client.Do("order-1", mustRequest(t, t.Context(), rigURL, oneOrder))
		t.Log(err)
		arrivals := r.arrivals()
		if len(arrivals) == 2 {
			assert.Equal(t, arrivals[0].Keys, arrivals[1].Keys)
			assert.Equal(t, string(arrivals[0].Body), string(arrivals[1].Body), "other bytes under the same key, Content-Encoding %q", arrivals[1].Header.Get("Content-Encoding"))
		}
	})
}

// renewal on a replica (or after the loss of the journal) with derived keys: the new
// generation has the very key that it supersedes, with other bytes.
func TestAttack_DerivedRenewalElsewhere(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Fail(402))
		r.transport.Key = DeriveKeys([]byte("a secret"))
		status, _, err := r.do(t.Context(), "order-1", `{"order":"order-1","card":"one"}`)
		require.NoError(t, err)
		require.Equal(t, 402, status)
		first := r.lookup("order-1")
		r.path = filepath.Join(t.TempDir(), "another.db") // another replica
		r.reopen()
		r.transport.Key = DeriveKeys([]byte("a secret"))
		status, _, err = r.do(WithRenewal(t.Context(), first.Key), "order-1", `{"order":"order-1","card":"two"}`)
		t.Log(status, err)
		for _, a := range r.arrivals()[1:] {
			assert.NotEqual(t, first.Key, a.Keys[0], "renewed under the key that it supersedes: %s", a.Body)
		}
	})
}

// an unnamed, adopted intent in doubt; then the application names its operations and
// sets Transport.Key: the same key of the same SDK is not found any more.
func TestAttack_AdoptedUnnamedThenNamed(t *testing.T) {
	for _, derived := range []bool{false, true} {
		t.Run(fmt.Sprint(derived), func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t, faultinjection.DieAfterEffect)
				r.transport.Retry.MaxAttempts = 1
				call := func(name string) error {
					req := mustRequest(t, context.Background(), rigURL, orderBody(1))
					req.Header.Set("Idempotency-Key", "order-1-from-our-db")
					resp, res, err := r.roundTrip(t.Context(), name, req)
					if resp != nil {
						readAndClose(t, resp)
					}
					t.Log(res.Intent.State, res.Intent.Key, err)
					return err
				}
				require.Error(t, call(""))
				r.reopen()
				if derived {
					r.transport.Key = DeriveKeys([]byte("a secret"))
				}
				time.Sleep(time.Minute)
				_ = call("order-1")
				_, err := r.client.Resume(t.Context())
				require.NoError(t, err)
				assert.Equal(t, 1, r.effects())
			})
		})
	}
}

// an error of Fingerprint shows the body.
func TestAttack_FingerprintErrorShowsBody(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.transport.Fingerprint = func(_ *http.Request, body []byte) ([]byte, error) {
			return nil, fmt.Errorf("cannot read %s", body)
		}
		_, _, err := r.do(t.Context(), "order-1", `{"card":"4242424242424242"}`)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "4242424242424242")
	})
}

// what differs is told wrongly where a query parameter was withheld.
func TestAttack_DiffersSaysQuery(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Retry.MaxAttempts = 1
		_, err := r.client.Do("order-1", mustRequest(t, t.Context(), rigURL+"?api_key=abc123456", oneOrder))
		requireUnknown(t, err, StateUnknown)
		time.Sleep(time.Minute)
		_, err = r.client.Do("order-1", mustRequest(t, t.Context(), rigURL+"?api_key=abc123456", anotherOrder))
		require.ErrorIs(t, err, ErrMismatch)
		assert.ErrorContains(t, err, "the body differs")
	})
}

type sometimes struct {
	Sealer
	fail atomic.Bool
}

func (s *sometimes) Seal(p, a []byte) (string, []byte, error) {
	if s.fail.Load() {
		return "", nil, errors.New("no connection to the keys")
	}
	return s.Sealer.Seal(p, a)
}

// a Sealer that fails while the outcome is written: the operation is nobody's, and
// stays in a call that has ended.
func TestAttack_SealerFailsForOutcome(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		require.NoError(t, r.journal.Close())
		in, err := NewAESGCM(sealKeys("a"), "a")
		require.NoError(t, err)
		s := &sometimes{Sealer: in}
		r.path, r.options = filepath.Join(t.TempDir(), "s.db"), &SQLiteOptions{Sealer: s}
		base := r.transport.Base
		r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			s.fail.Store(true)
			return resp, err
		})
		// the store's Close would report it
		journal, err := Open(r.path, r.options)
		require.NoError(t, err)
		r.journal = journal
		defer func() { t.Log("close:", journal.Close()) }()
		r.transport = &Transport{Journal: journal, Base: r.transport.Base, Contracts: r.transport.Contracts}
		r.client = NewClient(r.transport)
		resp, result, err := r.roundTrip(t.Context(), "order-1", mustRequest(t, t.Context(), rigURL, oneOrder))
		require.NoError(t, err)
		t.Log(resp.StatusCode, "recorded:", result.Recorded, result.Err())
		_ = journal.Flush(t.Context())
		s.fail.Store(false)
		time.Sleep(time.Hour)
		got := r.lookup("order-1")
		t.Log(got.State, got.Owned)
		report, err := r.client.Resume(t.Context())
		t.Logf("%+v %v", report, err)
		status, _, err := r.do(t.Context(), "order-1", oneOrder)
		assert.ErrorIs(t, err, ErrNotKept, "%d", status)
		assert.Equal(t, StateSucceeded, got.State)
		assert.False(t, got.Owned)
		assert.Equal(t, 1, r.effects())
	})
}

var _ = contract.Keyed
