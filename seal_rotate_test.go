package idem

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A new key: what is sealed under the old one is read as long as that is there,
// and is the same request for ever.
func TestSealedUnderANewKey(t *testing.T) {
	path := tempJournal(t)
	first := mustOpened(t, path, sealed(t, "a"))
	done, a := succeed(mustBegin(t, first, newIntent("done")))
	mustUpdate(t, first, done, a, true)
	gone, a := succeed(mustBegin(t, first, newIntent("pruned")))
	gone.State, gone.Outcome = StateWithdrawn, nil
	mustUpdate(t, first, gone, a, true)
	open := mustBegin(t, first, newIntent("open"))
	open.State, open.Doubt, open.Claimed = StateUnknown, true, false
	mustUpdate(t, first, open, nil, true)
	require.NoError(t, first.Close())
	_, err := inspectedExec(t, path, `UPDATE status SET kept = 0 WHERE state = 'withdrawn'`,
		`UPDATE intent SET request_sum = 0, target = NULL, host = NULL, header = NULL, body = NULL WHERE operation = 'pruned'`)
	require.NoError(t, err)

	both := mustOpened(t, path, sealed(t, "a", "b"))
	mustBegin(t, both, newIntent("new"))
	require.Equal(t, newIntent("open").Request, mustBegin(t, both, newIntent("open")).Request)
	require.NoError(t, both.Close())
	require.Equal(t, 2, count(t, path, `SELECT count(*) FROM intent WHERE substr(header, 1, 3) = x'020161'`))
	require.Equal(t, 1, count(t, path, `SELECT count(*) FROM intent WHERE substr(header, 1, 3) = x'020162'`))

	j := mustOpened(t, path, sealed(t, "b")) // a is gone
	_, claimed, err := j.Begin(t.Context(), newIntent("open"))
	require.ErrorIs(t, err, ErrSealed)
	require.ErrorIs(t, err, ErrNotSent)
	require.ErrorContains(t, err, `key "a" is not among the keys`)
	require.False(t, claimed)
	for want := range 2 { // told of once, and not written
		due, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
		require.NoError(t, err)
		require.Len(t, due, 2-want)
		for _, in := range due {
			if in.Operation == "open" {
				require.Equal(t, HoldChecksum, in.HoldReason)
				require.False(t, in.Claimed)
				require.Nil(t, in.Request)
				continue
			}
			require.Equal(t, "new", in.Operation)
			require.Equal(t, newIntent("new").Request, in.Request)
			in.Claimed = false
			mustUpdate(t, j, in, nil, true)
		}
	}
	for _, operation := range []string{"open", "done"} {
		wrong := newIntent(operation)
		wrong.Fingerprint = []byte("another")
		got, claimed, err := j.Begin(t.Context(), wrong)
		require.NoError(t, err)
		require.False(t, claimed)
		require.Equal(t, newIntent(operation).Fingerprint, got.Fingerprint, "comparable without the key")
	}
	got, claimed, err := j.Begin(t.Context(), newIntent("done"))
	require.NoError(t, err)
	require.False(t, claimed)
	require.Equal(t, StateSucceeded, got.State)
	require.Equal(t, 201, got.Outcome.StatusCode)
	require.False(t, got.Outcome.Complete)
	require.Nil(t, got.Outcome.Body)
	back := mustBegin(t, j, newIntent("pruned")) // takes the new request, under the new key
	require.Equal(t, newIntent("pruned").Request, back.Request)
	require.NoError(t, j.Close())

	j = mustOpen(t, path, sealed(t, "a", "b"))
	require.Equal(t, newIntent("open").Request, mustBegin(t, j, newIntent("open")).Request)
	require.Equal(t, newIntent("pruned").Request, mustBegin(t, j, newIntent("pruned")).Request)
	got, err = j.Lookup(t.Context(), "acct", "done")
	require.NoError(t, err)
	require.Equal(t, done.Outcome, got.Outcome)
}

func inspectedExec(tb testing.TB, path string, queries ...string) (n int, err error) {
	db := inspect(tb, path)
	defer db.Close()
	for _, q := range queries {
		if _, err = db.Exec(q); err != nil {
			break
		}
		n++
	}
	return n, err
}

// A process without the key says so, sends nothing, and leaves the rest to one
// that has it.
func TestSealedWithoutTheKey(t *testing.T) {
	r := newRealRig(t)
	r.path, r.options = tempJournal(t), sealed(t, "a")
	r.open()
	base := r.transport.Base
	r.transport.Base = roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset") })
	r.transport.Retry.MaxAttempts = 1
	r.client = NewClient(r.transport)
	_, err := r.client.Do("order-1", mustRequest(t, t.Context(), r.url+"/charges", orderBody(1)))
	requireUnknown(t, err, StateUnknown)
	r.transport.Base = base
	require.NoError(t, r.journal.Close())
	require.NoError(t, mustOpened(t, r.path, sealed(t, "a", "b")).Close())

	r.options = sealed(t, "b")
	r.open()
	_, err = r.client.Do("order-1", mustRequest(t, t.Context(), r.url+"/charges", orderBody(1)))
	require.ErrorIs(t, err, ErrSealed)
	require.ErrorIs(t, err, ErrUnknownOutcome, "it may have been executed")
	require.NotErrorIs(t, err, ErrNotSent)
	_, err = r.client.Continue(t.Context(), "order-1")
	require.ErrorIs(t, err, ErrSealed)
	require.Eventually(t, func() bool { // once it is due
		report, err := r.client.Resume(t.Context())
		return assert.NoError(t, err) && len(report.Held) == 1
	}, patience, time.Millisecond)
	assert.Empty(t, r.arrivals())
	require.NoError(t, r.journal.Close())

	r.options = sealed(t, "a", "b")
	r.open()
	report, err := r.client.Resume(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, report.Settled)
	assert.Equal(t, 1, r.effects())
	assert.Equal(t, StateSucceeded, r.lookup("order-1").State)
}

// failingSealer fails when told.
type failingSealer struct {
	Sealer
	fails atomic.Bool
	id    string
}

func (s *failingSealer) Seal(plaintext, associated []byte) (string, []byte, error) {
	if s.fails.Load() {
		return "", nil, errors.New("no entropy")
	}
	key, value, err := s.Sealer.Seal(plaintext, associated)
	if s.id != "" {
		key = s.id
	}
	return key, value, err
}

// What cannot be sealed is not stored, not sent, and does not keep others from
// it; an answer that cannot be is as one that is lost.
func TestSealerThatFails(t *testing.T) {
	path := tempJournal(t)
	s := &failingSealer{Sealer: sealed(t, "a").Sealer}
	s.fails.Store(true)
	_, err := Open(path, &SQLiteOptions{Sealer: s})
	require.ErrorContains(t, err, "no entropy")
	s.fails.Store(false)
	for _, id := range []string{"b", fmt.Sprintf("%65d", 1)} {
		_, err = Open(path, &SQLiteOptions{Sealer: &failingSealer{Sealer: s, id: id}})
		require.ErrorIs(t, err, ErrJournal, "a sealer must open what it seals")
	}
	j := mustOpen(t, path, &SQLiteOptions{Sealer: s})
	in := mustBegin(t, j, newIntent("a"))
	s.fails.Store(true)
	_, _, err = j.Begin(t.Context(), newIntent("b"))
	require.ErrorIs(t, err, ErrJournal)
	require.ErrorIs(t, err, ErrNotSent)
	require.ErrorContains(t, err, "it could not be sealed: no entropy")
	next, a := succeed(in)
	_, err = j.Update(t.Context(), next, a, true)
	require.ErrorIs(t, err, ErrJournal)
	require.NotErrorIs(t, err, ErrUnknownOutcome)
	s.fails.Store(false)
	_, err = j.Lookup(t.Context(), "acct", "b")
	require.ErrorIs(t, err, ErrNotFound)
	due, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.True(t, due[0].Doubt)
}

// Many callers at once, in one journal, over two handles.
func TestSealedByManyCallers(t *testing.T) {
	path := tempJournal(t)
	handles := []*SQLiteJournal{mustOpen(t, path, sealed(t, "a")), mustOpen(t, path, sealed(t, "a"))}
	var calls sync.WaitGroup
	for i := range 64 {
		calls.Go(func() {
			for n := range 4 {
				j := handles[(i+n)%2]
				operation := fmt.Sprint(i, "-", n)
				in, claimed, err := j.Begin(t.Context(), newIntent(operation))
				if !assert.NoError(t, err) || !assert.True(t, claimed) {
					return
				}
				next, a := succeed(in)
				_, err = j.Update(t.Context(), next, a, n%2 == 0)
				assert.NoError(t, err)
				got, err := j.Lookup(t.Context(), "acct", operation)
				assert.NoError(t, err)
				assert.Equal(t, next.Outcome, got.Outcome)
			}
		})
	}
	calls.Wait()
	list, err := handles[0].List(t.Context(), Filter{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, list, 256)
	for _, in := range list {
		require.Equal(t, http.Header{"Content-Type": {"application/json"}}.Get("Content-Type"), in.Outcome.Header.Get("Content-Type"))
	}
}
