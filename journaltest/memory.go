package journaltest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// New returns a journal in memory, for unit tests of code that uses a
// [idem.Transport] or [idem.Client]. It passes [Run], but forgets everything
// with the process, so it must never stand where a promise is to be kept. It
// starts no goroutine and takes its time from package time: open and close it
// inside a testing/synctest bubble, and it lives in the bubble's time. It is
// safe for concurrent use. What it holds grows until Prune.
func New() idem.Journal { return newStore().open() }

// store is what the handles of one journal share. mu guards all of it, rows
// and handles included.
type store struct {
	mu sync.Mutex
	room
	rows    []*row         // the row of ID n stands at n-1; nil: removed
	named   map[name]*row  // the newest generation
	adopted map[string]int // the ID of the row that has an adopted key
	began   time.Time      // when the last attempt began
}

type name struct{ scope, operation string }

func newStore() *store {
	return &store{room: newRoom(), named: map[name]*row{}, adopted: map[string]int{}}
}

func (s *store) open() *handle { return &handle{store: s} }

// row finds a row by its ID; nil: there is none.
func (s *store) row(id string) *row {
	n, err := strconv.Atoi(id)
	if err != nil || n < 1 || n > len(s.rows) {
		return nil
	}
	return s.rows[n-1]
}

// insert makes a row from want, above older, and claims it for h.
func (s *store) insert(h *handle, want *idem.Intent, older *row) {
	n := len(s.rows) + 1
	want.ID, want.Generation, want.Version = strconv.Itoa(n), 1, 1
	want.Claimed, want.Owned = true, false
	if want.State == "" {
		want.State = idem.StatePending
	}
	if older != nil {
		want.Generation = older.Generation + 1
	}
	r := s.newRow(want)
	if r.State == idem.StateInFlight {
		r.began = s.begins()
	}
	r.owner, r.running, r.older = h, true, older
	s.rows = append(s.rows, r)
	if want.Operation != "" {
		s.named[name{want.Scope, want.Operation}] = r
	}
	if len(want.Adopted) > 0 {
		s.adopted[string(want.Adopted)] = n
	}
}

// begins is the instant of an attempt that begins now. No two begin at once.
func (s *store) begins() time.Time {
	now := instant(time.Now())
	if !now.After(s.began) {
		now = s.began.Add(1)
	}
	s.began = now
	return now
}

// handle is one owner.
type handle struct {
	*store
	gone error // why it is of no use any more: closed, or killed
}

var _ idem.Journal = (*handle)(nil)

// The errors, made once. That a row is busy or missing is an answer, and not
// about storage.
var (
	errClosed   = fmt.Errorf("journaltest: %w: %w", idem.ErrJournal, idem.ErrClosed)
	errKilled   = fmt.Errorf("journaltest: %w: the handle was killed", idem.ErrJournal)
	errBusy     = fmt.Errorf("journaltest: %w: the row moved, or another owner has it", idem.ErrBusy)
	errNotFound = fmt.Errorf("journaltest: %w", idem.ErrNotFound)
)

// usable reports why a call may not go on. The store is locked.
func (h *handle) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("journaltest: %w: nothing was done: %w", idem.ErrJournal, err)
	}
	return h.gone
}

// Begin implements [idem.Journal].
func (h *handle) Begin(ctx context.Context, want idem.Intent) (got idem.Intent, claimed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usable(ctx); err != nil {
		return idem.Intent{}, false, err
	}
	if want.ID != "" {
		r := h.row(want.ID)
		if r == nil {
			return idem.Intent{}, false, errNotFound
		}
		if r.Operation != "" && h.named[name{r.Scope, r.Operation}] != r { // a later generation has its place
			return r.whole(), false, nil
		}
		got, claimed = h.take(r, &want)
		return got, claimed, nil
	}
	var newest *row
	if want.Operation != "" {
		newest = h.named[name{want.Scope, want.Operation}]
	}
	if newest != nil && want.Renews == "" {
		got, claimed = h.take(newest, &want)
		return got, claimed, nil
	}
	if newest != nil && !newest.superseded(want.Renews) {
		if newest.Key != want.Renews && newest.hasEarlier(want.Renews) {
			got, claimed = h.take(newest, &want)
			return got, claimed, nil
		}
		return newest.whole(), false, nil
	}
	if n, ok := h.adopted[string(want.Adopted)]; ok {
		switch holder := h.rows[n-1]; {
		case holder.Scope != want.Scope || holder.Operation != want.Operation:
			return holder.whole(), false, nil
		case newest != nil: // an earlier generation has the key: it is no new one
			return newest.whole(), false, nil
		default:
			got, claimed = h.take(holder, &want)
			return got, claimed, nil
		}
	}
	h.insert(h, &want, newest)
	return want, true, nil
}

// take claims a found row, or returns it unclaimed.
func (h *handle) take(r *row, want *idem.Intent) (got idem.Intent, claimed bool) {
	if r.owned() || r.State.Final() || r.State == idem.StateHeld || string(r.Fingerprint) != string(want.Fingerprint) {
		return r.whole(), false
	}
	if r.doomed() {
		r.hold()
		return r.whole(), false
	}
	if want.Credential != nil && r.Adopted == nil && !r.Doubt && r.FirstSent.IsZero() && r.State != idem.StateInFlight {
		r.Credential = h.keep(want.Credential)
	}
	if r.State == idem.StateWithdrawn && r.Request == nil && want.Request != nil {
		h.keepRequest(r, rekeyed(want, r.Key))
		r.pruned = false
	}
	return h.claim(r), true
}

// rekeyed is want's request with the row's key, where the key stands in the URL or
// the body. What is stored can be read.
func rekeyed(want *idem.Intent, key string) *idem.StoredRequest {
	q := *want.Request
	if target, err := url.Parse(q.URL); err == nil {
		if put, body, err := want.Place.Put(target, q.Header.Get("Content-Type"), q.Body, key); err == nil {
			q.URL, q.Body = put.String(), body
		}
	}
	return &q
}

// claim makes the row this handle's. What a dead owner was sending is doubt.
func (h *handle) claim(r *row) idem.Intent {
	if r.State == idem.StateInFlight {
		h.note(r, idem.Attempt{Number: r.Attempts, Started: r.began, Phase: "maybe_sent", Decision: "interrupted"})
		r.State, r.Doubt = idem.StateUnknown, true
		r.Deaths++
		if r.FirstSent.IsZero() {
			r.FirstSent = r.began
		}
	}
	r.owner, r.running = h, true
	r.Version++
	in := r.whole()
	in.Claimed, in.Owned = true, false
	return in
}

// ClaimDue implements [idem.Journal].
func (h *handle) ClaimDue(ctx context.Context, now time.Time, f idem.Filter) (due []idem.Intent, next time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usable(ctx); err != nil {
		return nil, time.Time{}, err
	}
	var ripe []*row
	for _, r := range h.rows {
		switch {
		case r == nil || r.Name != f.Name || f.Scope != "" && r.Scope != f.Scope || !r.waits() || r.owned() || r.tellsLater():
		case !r.Due.After(now):
			ripe = append(ripe, r)
		case next.IsZero() || r.Due.Before(next):
			next = r.Due
		}
	}
	slices.SortStableFunc(ripe, inTurn)
	for _, r := range ripe[:min(len(ripe), limit(f))] {
		if r.doomed() {
			r.hold()
			in := r.whole()
			in.Request = nil
			due = append(due, in)
			continue
		}
		due = append(due, h.claim(r))
	}
	return due, next, nil
}

// Update implements [idem.Journal]. Posting is all that there is: durable
// changes nothing but that it heeds ctx.
func (h *handle) Update(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
	if !durable {
		ctx = context.Background() // nobody waits
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usable(ctx); err != nil {
		h.endCall(&next)
		return idem.Intent{}, err
	}
	r := h.row(next.ID)
	if r == nil {
		return idem.Intent{}, errNotFound
	}
	answer := next.State.Final() && !r.State.Final() && next.Key == r.Key &&
		(next.State == idem.StateSucceeded || r.Attempts <= next.Attempts) // a refusal says nothing of later attempts
	mine := next.Version == r.Version && (r.owner == h || !r.owned()) && (!r.State.Final() || next.State == r.State)
	if !answer && !mine {
		h.endCall(&next)
		return idem.Intent{}, errBusy
	}
	if next.State == idem.StateInFlight && (r.State != idem.StateInFlight || r.Attempts != next.Attempts) {
		r.began = h.begins()
	}
	if next.Version != r.Version { // a late answer: what was counted and decided since stays
		next = r.late(&next)
	}
	h.write(r, &next)
	if a != nil {
		h.note(r, *a)
	}
	r.owner, r.running = nil, next.Claimed
	if next.Claimed {
		r.owner = h
	}
	next.Version = r.Version
	return next, nil
}

// endCall ends the call that made the failed update, and no other one.
func (h *handle) endCall(next *idem.Intent) {
	if r := h.row(next.ID); r != nil && !next.Claimed && r.owner == h && r.Version == next.Version {
		r.running = false
	}
}

// Lookup implements [idem.Journal].
func (h *handle) Lookup(ctx context.Context, scope, operation string) (idem.Intent, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usable(ctx); err != nil {
		return idem.Intent{}, err
	}
	r := h.named[name{scope, operation}]
	if r == nil {
		return idem.Intent{}, errNotFound
	}
	in := r.whole()
	in.Request = nil
	return in, nil
}

// List implements [idem.Journal].
func (h *handle) List(ctx context.Context, f idem.Filter) ([]idem.Intent, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usable(ctx); err != nil {
		return nil, err
	}
	after := 0
	if f.After != "" {
		n, err := strconv.Atoi(f.After)
		if err != nil || n < 1 {
			return nil, errNotFound
		}
		after = n
	}
	var page []idem.Intent
	for _, r := range h.rows[min(after, len(h.rows)):] {
		if len(page) == limit(f) {
			break
		}
		if r == nil || f.Name != "" && r.Name != f.Name || f.Scope != "" && r.Scope != f.Scope ||
			len(f.States) > 0 && !slices.Contains(f.States, r.State) {
			continue
		}
		page = append(page, r.listed())
	}
	return page, nil
}

func limit(f idem.Filter) int {
	if f.Limit <= 0 {
		return 100
	}
	return f.Limit
}

// Attempts implements [idem.Journal].
func (h *handle) Attempts(ctx context.Context, in idem.Intent) ([]idem.Attempt, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usable(ctx); err != nil {
		return nil, err
	}
	if r := h.row(in.ID); r != nil {
		return slices.Clone(r.attempts), nil
	}
	return nil, nil
}

// Prune implements [idem.Journal].
func (h *handle) Prune(ctx context.Context, before time.Time) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usable(ctx); err != nil {
		return 0, err
	}
	changed, now := 0, time.Now()
	for i, r := range h.rows {
		if r == nil || !r.prunable(before, now) {
			continue
		}
		changed++
		if r.Operation != "" {
			r.dropBodies()
			continue
		}
		h.rows[i] = nil
		delete(h.adopted, string(r.Adopted))
	}
	return changed, nil
}

// Close implements [idem.Journal]. What the handle owned is a dead owner's
// from now on.
func (h *handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = errClosed
	return nil
}

// kill ends the handle as the end of its process would.
func (h *handle) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = errKilled
}
