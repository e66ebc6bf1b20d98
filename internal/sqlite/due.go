package sqlite

import (
	"context"
	"database/sql/driver"
)

// manyOwners bounds the owners that one transaction looks at.
const manyOwners = 1000

// ClaimDue claims up to limit rows of that name that are due and have no
// living owner, those without deaths first. next is when the first of the
// others is due; zero: nothing waits.
func (s *Store) ClaimDue(ctx context.Context, now int64, name, scope string, limit int) (due []*Row, next int64, err error) {
	d := &dueOp{now: now, name: name, scope: scope, limit: limit}
	d.item = item{op: d, size: 512} // a claim need not survive a power cut: its owner does not
	if err := s.submit(ctx, &d.item); err != nil {
		return nil, 0, err
	}
	s.bury(d.buried)
	return d.due, d.next, nil
}

type dueOp struct {
	item
	now         int64
	name, scope string
	limit       int

	due    []*Row
	next   int64
	buried []string
}

func (d *dueOp) exec(t *transaction) (err error) {
	d.due, d.next, d.buried = nil, 0, nil
	if d.err = t.mayClaim(); d.err != nil {
		return nil
	}
	owners, err := t.deadOwners()
	if err != nil {
		return err
	}
	for _, deaths := range []bool{false, true} {
		for _, o := range owners {
			if err := d.gather(t, o, deaths); err != nil {
				return err
			}
		}
	}
	for _, o := range owners {
		if err := d.wait(t, o); err != nil {
			return err
		}
	}
	if d.buried, err = t.clearOwners(clearWhenDue); err != nil {
		return err
	}
	return t.s.keepClock(t)
}

// deadOwners are those whose rows may be claimed: nobody, this handle's own
// without a running call, and the dead.
func (t *transaction) deadOwners() ([]int64, error) {
	owners := []int64{0, t.s.id}
	var others []int64
	err := t.c.query(selectOwners, func(v []driver.Value) error {
		if id := number(v[0]); id != t.s.id {
			others = append(others, id)
		}
		return nil
	}, manyOwners)
	if err != nil {
		return nil, err
	}
	for _, id := range others {
		living, err := t.living(id, 0)
		if err != nil {
			return nil, err
		}
		if !living {
			owners = append(owners, id)
		}
	}
	return owners, nil
}

// gather claims the due rows of one owner.
func (d *dueOp) gather(t *transaction, owner int64, deaths bool) error {
	room := int64(d.limit - len(d.due))
	if room <= 0 {
		return nil
	}
	by, values := selectDueFree, []any{d.name, d.scope, d.scope, d.now, bit(deaths), room}
	if owner != 0 {
		by, values = selectDueOwned, []any{d.name, d.scope, d.scope, owner, d.now, bit(deaths)}
	}
	var ids []int64
	err := t.c.query(by, func(v []driver.Value) error {
		if id := number(v[0]); int64(len(ids)) < room && t.free(owner, id) {
			ids = append(ids, id)
		}
		return nil
	}, values...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := d.claim(t, id); err != nil {
			return err
		}
	}
	return nil
}

// free tells a row of this handle without a running call from one with.
func (t *transaction) free(owner, row int64) bool {
	if owner != t.s.id {
		return true
	}
	_, running := t.s.running.version(row)
	return !running
}

func (d *dueOp) claim(t *transaction, id int64) error {
	r, err := t.find(selectByID, id)
	if err != nil || r == nil {
		return err
	}
	if reason := r.mustHold(); reason != "" && !final(r.State) { // found by a list of what is held; never handed out
		return t.hold(r, reason)
	}
	if err := t.claim(r); err != nil {
		return err
	}
	d.due = append(d.due, r)
	return nil
}

// wait finds what is due next.
func (d *dueOp) wait(t *transaction, owner int64) error {
	var named any
	if owner != 0 {
		named = owner
	}
	return t.c.first(selectNextDue, func(v []driver.Value) bool {
		due := number(v[1])
		if !t.free(owner, number(v[0])) {
			return false
		}
		if d.next == 0 || due < d.next {
			d.next = due
		}
		return true
	}, d.name, d.scope, d.scope, named, d.now)
}
