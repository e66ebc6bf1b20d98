package idem

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// A key that names the thing itself is not forgotten, so it is sent for as long
// as a person would leave it open; one of unknown life for an hour.
func TestAdmitUnderAKeyThatNeverExpires(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		contract contract.Contract
		age      time.Duration
		sends    bool
	}{
		{contract.Contract{AfterExpiry: contract.NeverExpires}, 29 * 24 * time.Hour, true},
		{contract.Contract{AfterExpiry: contract.NeverExpires}, 30 * 24 * time.Hour, false},
		{contract.Contract{}, 59 * time.Minute, true},
		{contract.Contract{}, time.Hour, false},
	} {
		c := tt.contract
		c.Key = contract.Place{Header: "Idempotency-Key"}
		in := Intent{
			State: StateUnknown, Doubt: true, Operation: "order-1", Place: c.Key,
			Retention: retention(&c), FirstSent: now.Add(-tt.age),
		}
		assert.Equal(t, tt.sends, admit(in, &c, RetryPolicy{}, true, false, now).send, "%s %v", c.AfterExpiry, tt.age)
	}
}

// A policy under which nothing could be sent again in time is told, once.
func TestPolicyThatOutlivesTheKey(t *testing.T) {
	for _, tt := range []struct {
		name  string
		kept  time.Duration
		retry RetryPolicy
		told  bool
	}{
		{"defaults, a day", 24 * time.Hour, RetryPolicy{}, false},
		{"defaults, five minutes", 5 * time.Minute, RetryPolicy{}, false},
		{"defaults, a minute", time.Minute, RetryPolicy{}, true},
		{"a long attempt", 5 * time.Minute, RetryPolicy{AttemptTimeout: 5 * time.Minute}, true},
		{"a long wait", 5 * time.Minute, RetryPolicy{MinBackoff: 5 * time.Minute, MaxBackoff: time.Hour}, true},
		{"unknown", 0, RetryPolicy{AttemptTimeout: time.Hour}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRigFor(t, contract.Keyed("Idempotency-Key", tt.kept))
			var log bytes.Buffer
			r.transport.Retry, r.transport.Logger = tt.retry, slog.New(slog.NewTextHandler(&log, nil))
			for _, operation := range []string{"order-1", "order-2"} {
				_, _, err := r.do(t.Context(), operation, orderBody(1))
				require.NoError(t, err)
			}
			want := 0
			if tt.told {
				want = 1
			}
			require.Equal(t, want, bytes.Count(log.Bytes(), []byte("outlive the key")), log.String())
		})
	}
}
