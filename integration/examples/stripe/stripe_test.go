package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// The shop's process is this very executable: here, this test binary.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(workerMain())
	}
	os.Exit(m.Run())
}

func TestStripe(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b, err := run(t.Context(), config{customers: 4, lives: 6, seed: 17, limit: time.Minute}, &out)
	t.Log("\n" + out.String())
	require.NoError(t, err)
	assert.Empty(t, b.wrong)
	assert.Equal(t, 4, b.effects)
	assert.Positive(t, b.kills)
	assert.Greater(t, b.arrivals, 4)
	assert.Contains(t, out.String(), "\nok:")
}

// The books tell when they do not agree.
func TestStripe_TheBooksTell(t *testing.T) {
	dir, c := t.TempDir(), config{customers: 2}
	ledger, err := faultinjection.OpenLedger("")
	require.NoError(t, err)
	defer ledger.Close()
	journal, err := idem.Open(filepath.Join(dir, journalFile), nil)
	require.NoError(t, err)
	server := faultinjection.NewServer(contract.StripeV1, ledger)
	server.Operation, server.Effect = bank(ledger, 1).Operation, bank(ledger, 1).Effect
	s := newShop(journal, "http://stripe.example")
	s.client.Transport.Base = server.Transport()
	require.NoError(t, s.serve(t.Context(), 0))
	require.NoError(t, s.serve(t.Context(), 1))
	require.NoError(t, journal.Close())
	b, err := look(t.Context(), c, dir, ledger, true)
	require.NoError(t, err)
	require.Empty(t, b.wrong)

	req, err := http.NewRequest(http.MethodPost, "http://stripe.example/v1/payment_intents",
		strings.NewReader("metadata[order]=order-1&payment_method="+goodCard))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "another")
	req.Header.Set("Authorization", "Bearer sk_test_1")
	resp, err := server.Transport().RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	b, err = look(t.Context(), c, dir, ledger, true)
	require.NoError(t, err)
	assert.Equal(t, []string{"order-1 was charged 2 times"}, b.wrong)
	_, err = look(t.Context(), c, dir, ledger, false)
	assert.ErrorContains(t, err, "order-1 was charged 2 times")
	c.customers = 3
	_, err = look(t.Context(), c, dir, ledger, true)
	assert.ErrorIs(t, err, idem.ErrNotFound)
}

// What a shop tells its customer of each end.
func TestStripe_WhatTheCustomerIsTold(t *testing.T) {
	ledger, err := faultinjection.OpenLedger("")
	require.NoError(t, err)
	defer ledger.Close()
	journal, err := idem.Open(filepath.Join(t.TempDir(), journalFile), nil)
	require.NoError(t, err)
	defer journal.Close()
	server := faultinjection.NewServer(contract.StripeV1, ledger)
	server.Operation, server.Effect = bank(ledger, 1).Operation, bank(ledger, 1).Effect
	server.Plan(faultinjection.DieAfterEffect)
	s := newShop(journal, "http://stripe.example")
	s.client.Transport.Base, s.client.Transport.Retry.MaxAttempts = server.Transport(), 1

	_, err = s.charge(t.Context(), "order-1", goodCard, "")
	require.ErrorIs(t, err, idem.ErrUnknownOutcome)
	left, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.charge(left, "order-2", goodCard, "")
	require.ErrorIs(t, err, idem.ErrNotSent)
	time.Sleep(20 * time.Millisecond) // it is due
	intent, err := s.charge(t.Context(), "order-1", goodCard, "")
	require.NoError(t, err)
	assert.Contains(t, intent.ID, "pi_")

	var no *errDeclined
	_, err = s.charge(t.Context(), "order-3", declinedCard, "")
	require.ErrorAs(t, err, &no)
	_, err = s.charge(t.Context(), "order-3", goodCard, "")
	require.ErrorIs(t, err, idem.ErrMismatch, "another card is another request")
	first, err := s.charge(t.Context(), "order-3", goodCard, no.renews)
	require.NoError(t, err)
	second, err := s.charge(t.Context(), "order-3", goodCard, no.renews)
	require.NoError(t, err)
	assert.Equal(t, first.ID, second.ID)
	require.False(t, errors.As(err, &no))
}
