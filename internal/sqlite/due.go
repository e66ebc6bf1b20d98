package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"slices"
)

// manyOwners bounds the owners that one transaction looks at.
const manyOwners = 1000

// ClaimDue claims up to limit rows of that name that are due and have no
// living owner, those without deaths first. A row that must be held instead
// comes back held, and is nobody's. next is when the first of the others is
// due; zero: nothing waits.
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
	for _, by := range []statement{selectDue, selectDeadly} {
		rows, err := d.gather(t, owners, by)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := d.claim(t, r.id); err != nil {
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
	d.idle = len(d.due)+len(d.buried) == 0
	return t.s.keepClock(t)
}

// deadOwners are those whose rows may be claimed: nobody, this handle's own
// without a running call, and the dead.
func (t *transaction) deadOwners() ([]int64, error) {
	owners := []int64{0}
	err := t.c.first(selectOwned, func(v []driver.Value) bool {
		if !t.free(t.s.id, number(v[0])) {
			return false
		}
		owners = append(owners, t.s.id)
		return true
	}, t.s.id) // or each claim would look at every call that runs
	if err != nil {
		return nil, err
	}
	var others []int64
	err = t.c.query(selectOwners, func(v []driver.Value) error {
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

// dueRow is a row that may be claimed, with what it is ordered by.
type dueRow struct{ id, first, second int64 }

// gather finds the rows that are claimed next: over all owners, since the order
// must not depend on whose they were.
func (d *dueOp) gather(t *transaction, owners []int64, by statement) ([]dueRow, error) {
	room := d.limit - len(d.due)
	if room <= 0 {
		return nil, nil
	}
	var rows []dueRow
	for _, o := range owners {
		found := 0
		err := t.c.first(by, func(v []driver.Value) bool {
			if id := number(v[0]); t.free(o, id) {
				rows = append(rows, dueRow{id: id, first: number(v[1]), second: number(v[2])})
				found++
			}
			return found == room
		}, d.name, d.scope, d.scope, nobody(o), d.now)
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rows, func(a, b dueRow) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.second, b.second), cmp.Compare(a.id, b.id))
	})
	return rows[:min(len(rows), room)], nil
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
	d.due = append(d.due, r)
	if reason := r.mustHold(); reason != "" && !final(r.State) {
		return t.hold(r, reason)
	}
	return t.claim(r)
}

// wait finds what is due next.
func (d *dueOp) wait(t *transaction, owner int64) error {
	return t.c.first(selectNextDue, func(v []driver.Value) bool {
		due := number(v[1])
		if !t.free(owner, number(v[0])) {
			return false
		}
		if d.next == 0 || due < d.next {
			d.next = due
		}
		return true
	}, d.name, d.scope, d.scope, nobody(owner), d.now)
}
