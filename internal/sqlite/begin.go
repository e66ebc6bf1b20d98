package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
)

// Begin finds the row that want means or makes it, and claims it. It is
// durable on return. want becomes the store's.
func (s *Store) Begin(ctx context.Context, want *Row) (got *Row, claimed bool, err error) {
	b := &beginOp{want: want, id: want.ID}
	b.item = item{op: b, durable: true, size: want.size()}
	if want.ID == 0 {
		if err := want.check(true); err != nil {
			return nil, false, err
		}
	}
	if err := s.mayPrepare(want); err != nil {
		return nil, false, err
	}
	if err := s.submit(ctx, &b.item); err != nil {
		return nil, false, err
	}
	return b.got, b.claimed, nil
}

func (r *Row) size() int {
	n := 512
	if r.Request != nil {
		n += len(r.Request.Header) + len(r.Request.Body)
	}
	if r.Outcome != nil {
		n += len(r.Outcome.Header) + len(r.Outcome.Body)
	}
	return n
}

type beginOp struct {
	item
	want, got *Row
	id        int64 // that want asked for: a batch may run again
	claimed   bool
}

func (b *beginOp) exec(t *transaction) error {
	b.got, b.claimed, b.want.ID = nil, false, b.id
	if b.err = t.mayClaim(); b.err != nil {
		return nil
	}
	if b.want.ID != 0 {
		return b.resume(t)
	}
	if b.want.Renews != "" && b.want.Operation != "" {
		return b.renew(t)
	}
	return b.make(t, 1)
}

// resume continues the row that want.ID names.
func (b *beginOp) resume(t *transaction) error {
	got, err := t.find(selectByID, b.want.ID)
	if err != nil {
		return err
	}
	if got == nil {
		b.err = ErrNotFound
		return t.c.notLost(intentByID, b.want.ID)
	}
	superseded := false
	err = t.c.query(selectLater, func([]driver.Value) error {
		superseded = true
		return nil
	}, got.Scope, got.Operation, got.Generation)
	if err != nil {
		return err
	}
	if superseded {
		b.got = got
		return t.look(got)
	}
	return b.continues(t, got)
}

// make inserts the row, which is all that a new operation costs. Where that
// finds one, the newest one is what want means.
func (b *beginOp) make(t *transaction, generation int64) error {
	made, err := b.insert(t, generation)
	if made || err != nil {
		return err
	}
	if b.want.Operation != "" {
		got, err := t.c.newest(b.want.Scope, b.want.Operation)
		if err != nil {
			return err
		}
		if got != nil {
			return b.continues(t, got)
		}
	}
	return b.holderOfKey(t)
}

// holderOfKey finds who has the adopted key.
func (b *beginOp) holderOfKey(t *transaction) error {
	got, err := t.c.adopter(b.want.Adopted)
	if err != nil {
		return err
	}
	if got == nil { // the insert met a row
		return t.c.failed(ErrDamaged)
	}
	if got.Scope != b.want.Scope || got.Operation != b.want.Operation {
		b.got = got
		return t.look(got)
	}
	return b.continues(t, got)
}

// renew makes the next generation, if the newest is the one that want
// supersedes and nothing can become of it any more.
func (b *beginOp) renew(t *transaction) error {
	newest, err := t.c.newest(b.want.Scope, b.want.Operation)
	if err != nil {
		return err
	}
	if newest == nil {
		return b.make(t, 1)
	}
	if err := t.look(newest); err != nil {
		return err
	}
	closed := newest.State == rejected || newest.State == withdrawn
	if newest.Key == b.want.Renews && closed && !newest.Owned && !newest.Damaged {
		made, err := b.insert(t, newest.Generation+1)
		if made || err != nil {
			return err
		}
		holder, err := t.c.adopter(b.want.Adopted)
		if err != nil {
			return err
		}
		if b.got = newest; holder != nil && (holder.Scope != newest.Scope || holder.Operation != newest.Operation) {
			b.got = holder
			return t.look(holder)
		}
		return nil // an earlier generation has the key
	}
	if newest.Key != b.want.Renews {
		earlier := false
		err := t.c.query(selectRenewed, func([]driver.Value) error {
			earlier = true
			return nil
		}, b.want.Scope, b.want.Operation, newest.Generation, b.want.Renews)
		if err != nil {
			return err
		}
		if earlier {
			return b.continues(t, newest)
		}
	}
	b.got = newest
	return nil
}

func (b *beginOp) insert(t *transaction, generation int64) (made bool, err error) {
	w := b.want
	w.Generation = generation
	fingerprint := blob(w.Fingerprint)
	if g := t.c.seal; g != nil {
		fingerprint = g.fingerprint(w)
		w.print = fingerprint
	}
	q, err := t.stored(w, w.Request)
	if err != nil {
		return false, err
	}
	values := []any{
		w.Scope, null(w.Operation), generation, w.Key, optional(w.Adopted), optional(w.Credential), w.Name, w.Provider,
		w.Method, w.URL, fingerprint, w.Place, w.Encoding, w.Retention, w.Renews, w.Withheld, w.Created,
		w.headSum(), q.sum(), nil, nil, nil, nil,
	}
	if q != nil {
		copy(values[19:], []any{q.Target, q.Host, blob(q.Header), blob(q.Body)})
	}
	r, err := t.c.run(insertIntent, values)
	if err != nil {
		return false, err
	}
	if n, err := r.RowsAffected(); n == 0 || err != nil {
		return false, err
	}
	if w.ID, err = r.LastInsertId(); err != nil {
		return false, err
	}
	w.Version, w.Owner = 1, t.s.id
	if w.State == inFlight && w.Began == 0 {
		w.Began = t.s.begins()
	}
	_, err = t.c.exec(insertStatus, w.ID, w.State, bit(w.Doubt), w.HoldReason, t.s.id, w.Attempts, w.Deaths,
		w.Resumes, w.Began, bit(w.Prepared), bit(w.Notify), w.FirstSent, w.Due, w.Wait, w.Expires, w.Settled, w.By, w.Note)
	if err != nil {
		return false, err
	}
	t.run(w.ID, w.Version)
	b.got, b.claimed = w, true
	return true, nil
}

// continues claims a found row, or returns it unclaimed and unwritten.
func (b *beginOp) continues(t *transaction, got *Row) error {
	b.got = got
	if err := t.look(got); err != nil || got.Owned || final(got.State) || got.State == held && !b.goesOn(got) {
		return err
	}
	if !bytes.Equal(got.Fingerprint, b.want.Fingerprint) && !got.Damaged {
		return nil
	}
	if reason := got.mustHold(); reason != "" {
		return t.hold(got, reason)
	}
	if got.noKey != nil { // who has it goes on
		b.err = got.noKey
		return nil
	}
	if err := b.complete(t, got); err != nil || b.err != nil {
		return err
	}
	if c := b.want.Credential; c != nil && got.Adopted == nil && !got.Doubt && got.FirstSent == 0 && got.State != inFlight {
		got.Credential = c // it will be the first of which the server hears
		if _, err := t.c.exec(renewCredential, c, got.headSum(), got.ID); err != nil {
			return err
		}
	}
	b.claimed = true
	return t.claim(got)
}

// find reads one whole row, or nil.
func (t *transaction) find(by statement, values ...any) (*Row, error) {
	return t.c.find(by, values...)
}

// look finds out whether a living owner has the row.
func (t *transaction) look(r *Row) (err error) {
	r.Owned, err = t.living(r.Owner, r.ID)
	return err
}

// claim makes the row this handle's. What a dead owner was sending is doubt.
func (t *transaction) claim(r *Row) error {
	if r.State == inFlight {
		cut := &Attempt{Number: r.Attempts, Started: r.Began, Phase: "maybe_sent", Decision: "interrupted"}
		if err := t.note(r.ID, cut); err != nil {
			return err
		}
		r.State, r.Doubt = unknown, true
		r.Deaths++
		if r.FirstSent == 0 {
			r.FirstSent = r.Began
		}
	}
	r.Owner = t.s.id
	if err := t.assign(r); err != nil {
		return err
	}
	t.run(r.ID, r.Version)
	return nil
}

// mustHold is why a row without a living owner is held and not claimed.
func (r *Row) mustHold() (reason string) {
	switch {
	case r.Damaged:
		return holdChecksum
	case r.State == inFlight:
		return r.HoldReason
	}
	return ""
}

// hold keeps a row from being sent.
func (t *transaction) hold(r *Row, reason string) error {
	r.Doubt = r.Doubt || r.State == inFlight
	r.State, r.HoldReason, r.Settled, r.Owner = held, reason, t.now, 0
	r.Request = nil
	return t.assign(r)
}

func (t *transaction) assign(r *Row) error {
	_, err := t.c.exec(claimStatus, nobody(r.Owner), r.State, bit(r.Doubt), r.Deaths, r.FirstSent, r.HoldReason, r.Settled, r.ID)
	r.Version++
	return err
}

func (t *transaction) note(row int64, a *Attempt) error {
	_, err := t.c.exec(insertAttempt, row, a.Number, a.Started, a.Ended, a.Phase, a.StatusCode, a.Decision, a.Error)
	return err
}
