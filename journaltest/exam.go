package journaltest

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
)

// exam is one rule's run on a new store.
type exam struct {
	*testing.T
	store Store
	now   time.Time
	keys  int
	dead  map[idem.Journal]bool
}

func newExam(t *testing.T, s Store) *exam {
	return &exam{T: t, store: s, now: time.Now().UTC().Round(0), dead: map[idem.Journal]bool{}}
}

// open opens a handle that is closed when the rule is done.
func (e *exam) open() idem.Journal {
	e.Helper()
	j, err := e.store.Open()
	require.NoError(e, err)
	e.Cleanup(func() {
		if !e.dead[j] {
			assert.NoError(e, j.Close())
		}
	})
	return j
}

func (e *exam) kill(j idem.Journal) {
	e.dead[j] = true
	e.store.Kill(j)
}

// waiting is an operation that was not sent yet, as Prepare makes it.
func (e *exam) waiting(operation string) idem.Intent {
	e.keys++
	return idem.Intent{
		Scope: "acct", Operation: operation, Key: "key-" + strconv.Itoa(e.keys), Name: "main", Provider: "acme",
		Method: "POST", URL: "https://api.example.com/charges", State: idem.StatePending, Created: e.now,
		Fingerprint: []byte("fingerprint-of-32-bytes-" + "01234567"), Place: contract.Place{Header: "Idempotency-Key"},
		Retention: 24 * time.Hour,
		Request: &idem.StoredRequest{
			URL: "https://api.example.com/charges?expand=1", Host: "gateway.example.com",
			Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"amount":4200}`),
		},
	}
}

// sending is an operation whose first attempt is about to start, as a direct
// call makes it.
func (e *exam) sending(operation string) idem.Intent {
	in := e.waiting(operation)
	in.State, in.Attempts, in.FirstSent, in.Expires = idem.StateInFlight, 1, e.now, e.now.Add(23*time.Hour)
	return in
}

// begin begins what must be claimed.
func (e *exam) begin(j idem.Journal, want idem.Intent) idem.Intent {
	e.Helper()
	got, claimed, err := j.Begin(e.Context(), want)
	require.NoError(e, err)
	require.True(e, claimed, "not claimed")
	require.True(e, got.Claimed, "Claimed is not set in what was claimed")
	require.False(e, got.Owned, "Owned is for another's")
	require.NotEmpty(e, got.ID)
	return got
}

// refused begins what must come back unclaimed.
func (e *exam) refused(j idem.Journal, want idem.Intent) idem.Intent {
	e.Helper()
	got, claimed, err := j.Begin(e.Context(), want)
	require.NoError(e, err)
	require.False(e, claimed, "claimed")
	require.False(e, got.Claimed, "Claimed is set in what was not claimed")
	return got
}

// claimDue claims what is due. What must be held comes back held.
func (e *exam) claimDue(j idem.Journal, now time.Time, f idem.Filter) (due []idem.Intent, next time.Time) {
	e.Helper()
	due, next, err := j.ClaimDue(e.Context(), now, f)
	require.NoError(e, err)
	for _, in := range due {
		require.False(e, in.Owned, "Owned is for another's")
		if in.State != idem.StateHeld {
			require.True(e, in.Claimed, "Claimed is not set in what was claimed")
			continue
		}
		require.False(e, in.Claimed, "Claimed is set in what became held")
		require.NotEmpty(e, in.HoldReason)
		require.Nil(e, in.Request, "what is held is not to be sent")
	}
	return due, next
}

// ofMain chooses the rows of the exam's own name.
var ofMain = idem.Filter{Name: "main"}

// update writes durably.
func (e *exam) update(j idem.Journal, next idem.Intent, a *idem.Attempt) idem.Intent {
	e.Helper()
	got, err := j.Update(e.Context(), next, a, true)
	require.NoError(e, err)
	require.Greater(e, got.Version, next.Version, "every write raises the version")
	return got
}

func (e *exam) post(j idem.Journal, next idem.Intent, a *idem.Attempt) idem.Intent {
	e.Helper()
	got, err := j.Update(e.Context(), next, a, false)
	require.NoError(e, err)
	require.Greater(e, got.Version, next.Version, "every write raises the version")
	return got
}

// busy writes what must be refused, whichever way.
func (e *exam) busy(j idem.Journal, next idem.Intent) {
	e.Helper()
	for _, durable := range []bool{true, false} {
		_, err := j.Update(e.Context(), next, &idem.Attempt{Number: next.Attempts + 1, Phase: "answered"}, durable)
		require.ErrorIs(e, err, idem.ErrBusy, "durable: %t", durable)
		require.NotErrorIs(e, err, idem.ErrJournal, "a refusal is no failure of storage")
	}
}

// ended is what a call leaves in that state.
func (e *exam) ended(in idem.Intent, state idem.State) idem.Intent {
	in.State, in.Claimed, in.Doubt = state, false, state == idem.StateUnknown
	in.Outcome = nil
	switch state {
	case idem.StateWithdrawn, idem.StateHeld, idem.StateSucceeded, idem.StateRejected:
		in.Settled = e.now
	}
	if state == idem.StateHeld {
		in.HoldReason = idem.HoldExpired
	}
	if state.Final() {
		in.Outcome = &idem.Outcome{
			StatusCode: 402, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"id":"ch_1"}`),
			Complete: true, RequestID: "req_1",
		}
	}
	return in
}

// left makes an operation and leaves it in that state, nobody's.
func (e *exam) left(j idem.Journal, operation string, state idem.State, changes ...func(*idem.Intent)) idem.Intent {
	e.Helper()
	next := e.ended(e.begin(j, e.sending(operation)), state)
	for _, change := range changes {
		change(&next)
	}
	return e.update(j, next, nil)
}

func (e *exam) lookup(j idem.Journal, operation string) idem.Intent {
	e.Helper()
	in, err := j.Lookup(e.Context(), "acct", operation)
	require.NoError(e, err)
	return in
}

// unwritten demands that the row is the one that was seen.
func (e *exam) unwritten(j idem.Journal, before idem.Intent) {
	e.Helper()
	now := e.find(j, before.ID)
	require.Equal(e, before.Version, now.Version, "the version moved, so something was written")
	require.Equal(e, before.State, now.State)
	require.Equal(e, before.Deaths, now.Deaths)
	require.Equal(e, before.Key, now.Key)
}

// find finds any row in the list.
func (e *exam) find(j idem.Journal, id string) idem.Intent {
	e.Helper()
	list, err := j.List(e.Context(), idem.Filter{Limit: 1000})
	require.NoError(e, err)
	for _, in := range list {
		if in.ID == id {
			return in
		}
	}
	require.Fail(e, "the row is not listed", "ID %s", id)
	return idem.Intent{}
}

func (e *exam) attempts(j idem.Journal, in idem.Intent) []idem.Attempt {
	e.Helper()
	attempts, err := j.Attempts(e.Context(), in)
	require.NoError(e, err)
	return attempts
}

// interrupted demands that the dead owner's attempt was turned into doubt.
func (e *exam) interrupted(j idem.Journal, before, got idem.Intent) {
	e.Helper()
	require.Equal(e, before.ID, got.ID)
	require.Equal(e, idem.StateUnknown, got.State)
	require.True(e, got.Doubt, "what a dead owner was sending is in doubt")
	require.Equal(e, before.Deaths+1, got.Deaths)
	require.Equal(e, before.Attempts, got.Attempts, "a claim is no attempt")
	attempts := e.attempts(j, got)
	require.NotEmpty(e, attempts, "the attempt that was cut is not noted")
	cut := attempts[len(attempts)-1]
	require.Equal(e, before.Attempts, cut.Number)
	require.Equal(e, "interrupted", cut.Decision)
	require.Equal(e, "maybe_sent", cut.Phase)
	require.Zero(e, cut.StatusCode)
	require.True(e, cut.Ended.IsZero(), "nobody knows when it ended")
}

// same compares all that is stored of two intents. Nothing and empty are the
// same, and so is who has it.
func (e *exam) same(want, got idem.Intent) {
	e.Helper()
	got.Version, got.Claimed, got.Owned = want.Version, want.Claimed, want.Owned
	require.Equal(e, normal(want), normal(got))
}

func normal(in idem.Intent) idem.Intent {
	for _, b := range []*[]byte{&in.Fingerprint, &in.Adopted, &in.Credential} {
		*b = filled(*b)
	}
	in.Withheld = filled(in.Withheld)
	if q := in.Request; q != nil {
		in.Request = &idem.StoredRequest{URL: q.URL, Host: q.Host, Header: normalHeader(q.Header), Body: normalBody(q.Body)}
	}
	if in.Outcome != nil {
		o := *in.Outcome
		o.Header, o.Body = normalHeader(o.Header), normalBody(o.Body)
		in.Outcome = &o
	}
	return in
}

// filled is s, or nil if it is empty.
func filled[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

// normalBody stands for a large body by its sum, which can be printed.
func normalBody(b []byte) []byte {
	if len(b) <= 1024 {
		return filled(b)
	}
	return fmt.Appendf(nil, "%d bytes of sum %x", len(b), sha256.Sum256(b))
}

// normalHeader keeps names without values: net/http sends something else
// without them.
func normalHeader(h http.Header) http.Header {
	if len(h) == 0 {
		return nil
	}
	n := http.Header{}
	for name, values := range h {
		n[name] = filled(values)
	}
	return n
}
