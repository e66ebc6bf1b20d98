package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
)

// Change is one update: the hot part of a row as it shall be.
type Change struct {
	ID      int64
	Key     string
	Status  // Version is the one seen; Owner is not read
	Claimed bool
	Outcome *Outcome // written once, with a final state
	Attempt *Attempt
}

// Update writes c over the version that it names and returns the new one.
func (s *Store) Update(ctx context.Context, c *Change, durable bool) (version int64, err error) {
	s.keepsNoAnswer(c)
	u := &updateOp{Change: c}
	u.item = item{op: u, durable: durable || s.opts.SyncOutcomes, size: u.bytes()}
	if c.State == inFlight && c.Began == 0 {
		c.Began = s.begins()
	}
	if err := c.check(c.Claimed); err != nil {
		s.ended(c)
		return 0, err
	}
	if !u.durable && s.certain(c) {
		ok, err := s.post(&u.item)
		if ok {
			return c.Version + 1, nil
		}
		if err != nil {
			s.ended(c)
			return 0, err
		}
	}
	if err := s.submit(ctx, &u.item); err != nil {
		s.ended(c)
		return 0, err
	}
	return c.Version + 1 + u.skipped, nil
}

// certain reports whether the swap cannot fail: this handle has the row, with
// the version that is named. Otherwise the caller waits, to hear of it.
func (s *Store) certain(c *Change) bool {
	v, ok := s.running.version(c.ID)
	return ok && v == c.Version
}

func (s *Store) ended(c *Change) {
	if !c.Claimed {
		s.running.end(c.ID, c.Version)
	}
}

type updateOp struct {
	item
	*Change
	skipped int64 // versions that a final answer went over
}

func (u *updateOp) bytes() int {
	n := 512 + len(u.Note)
	if u.Outcome != nil {
		n += len(u.Outcome.Header) + len(u.Outcome.Body)
	}
	return n
}

func (u *updateOp) exec(t *transaction) error {
	u.skipped = 0
	if u.Claimed {
		if u.err = t.mayClaim(); u.err != nil {
			return nil
		}
	}
	changed, err := t.c.exec(updateStatus, u.values(t, u.ID, u.Version, t.s.id, u.State)...)
	if err != nil {
		return err
	}
	if changed == 0 {
		if ok, err := u.force(t); !ok || err != nil {
			return err
		}
	}
	if u.Outcome != nil && final(u.State) {
		err := t.settle(u.ID, u.State, u.Outcome)
		if u.posted && errors.Is(err, errSeal) { // nobody waits who could be told: how it ended is worth more than the answer
			t.s.chores.lost(err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	if u.Attempt != nil {
		if err := t.note(u.ID, u.Attempt); err != nil {
			return err
		}
	}
	if u.Claimed {
		t.run(u.ID, u.Version+1+u.skipped)
	} else {
		t.run(u.ID, 0)
	}
	return nil
}

func (u *updateOp) values(t *transaction, where ...any) []any {
	var owner any
	if u.Claimed {
		owner = t.s.id
	}
	return append([]any{
		u.State, bit(u.Doubt), u.HoldReason, owner, u.Attempts, u.Deaths, u.Resumes, u.Began, u.Attempts, u.Began,
		bit(u.Prepared), bit(u.Notify), u.FirstSent, u.Due, u.Wait, u.Expires, u.Settled, u.By, u.Note,
	}, where...)
}

// force writes what the plain swap did not: over a dead owner, or a true final
// answer of the same key over whatever has become of the claim. The latter knows
// nothing of what was counted and decided since; a refusal says nothing of the
// attempts that were counted since, and is not taken over them.
func (u *updateOp) force(t *transaction) (bool, error) {
	var key, state string
	var version, owner int64
	err := t.c.query(selectStatus, func(v []driver.Value) error {
		key, version, state, owner = text(v[0]), number(v[1]), text(v[2]), number(v[3])
		return nil
	}, u.ID)
	if err != nil {
		return false, err
	}
	if version == 0 {
		u.err = ErrNotFound
		return false, nil
	}
	answer := final(u.State) && !final(state) && key == u.Key
	if !answer {
		living, err := t.living(owner, u.ID)
		if err != nil {
			return false, err
		}
		if living || version != u.Version {
			u.err = ErrBusy
			t.endCall(u)
			return false, nil
		}
	}
	by, values := forceStatus, u.values(t, u.ID, u.State)
	if version != u.Version {
		by, values = lateAnswer, []any{u.State, u.Attempts, bit(u.Notify), u.FirstSent, u.Settled, u.By, u.ID}
	}
	changed, err := t.c.exec(by, values...)
	if err != nil {
		return false, err
	}
	if changed == 0 {
		u.err = ErrBusy
		t.endCall(u)
		return false, nil
	}
	u.skipped = version - u.Version
	return true, nil
}

// endCall ends the call that made the update, though nothing was written.
func (t *transaction) endCall(u *updateOp) {
	if v, ok := t.s.running.version(u.ID); ok && v == u.Version && !u.Claimed {
		t.run(u.ID, 0)
	}
}

func (t *transaction) settle(row int64, state string, o *Outcome) error {
	if g := t.c.seal; g != nil {
		r, err := t.head(row)
		if err != nil {
			return err
		}
		if o, err = g.outcome(r, state, o); err != nil {
			return err
		}
	}
	var body any
	if o.Body != nil {
		body = o.Body
	}
	_, err := t.c.exec(insertOutcome, row, o.StatusCode, bit(o.Complete), bit(o.Replayed), o.RequestID,
		o.headSum(), o.bodySum(), blob(o.Header), body)
	return err
}

// head reads what identifies a row.
func (t *transaction) head(id int64) (r *Row, err error) {
	err = t.c.query(selectHead, func(v []driver.Value) error {
		r = scanHead(&cursor{values: v})
		return nil
	}, id)
	if err == nil && r == nil {
		err = t.c.failed(ErrDamaged)
	}
	return r, err
}
