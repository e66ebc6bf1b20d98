package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"slices"

	lib "modernc.org/sqlite/lib"
)

// manyOwners bounds the owners that one transaction looks at.
const manyOwners = 1000

// ClaimDue claims up to limit rows of that name that are due and have no
// living owner, those without deaths first. A row that must be held instead
// comes back held, and is nobody's; such a row that cannot be written follows
// the others each time, as Unwritten, beyond the limit. next is when the first of the others is
// due; zero: nothing waits.
func (s *Store) ClaimDue(ctx context.Context, now int64, name, scope string, limit int) (due []*Row, next int64, err error) {
	d := &dueOp{now: now, name: name, scope: scope, limit: limit}
	d.item = item{op: d, size: 512} // a claim need not survive a power cut: its owner does not
	if err := s.submit(ctx, &d.item); err != nil {
		return nil, 0, err
	}
	s.bury(d.buried)
	return append(d.due, d.stuck...), d.next, nil
}

type dueOp struct {
	item
	now         int64
	name, scope string
	limit       int

	due    []*Row
	stuck  []*Row
	passed map[dueRow]bool // what the index says of a row that is otherwise
	next   int64
	buried []string
}

func (d *dueOp) exec(t *transaction) (err error) {
	d.due, d.stuck, d.passed, d.next, d.buried = nil, nil, nil, 0, nil
	if d.err = t.mayClaim(); d.err != nil {
		return nil
	}
	owners, err := t.deadOwners()
	if err != nil {
		return err
	}
	for _, by := range []statement{selectDue, selectDeadly} {
		for again := true; again; { // in place of what was passed over
			passed := len(d.passed)
			rows, err := d.gather(t, owners, by)
			if err != nil {
				return err
			}
			for _, r := range rows {
				if err := d.claim(t, r); err != nil {
					return err
				}
			}
			again = len(d.passed) > passed
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

// dueRow is a row that may be claimed, as the index has it, with what it is
// ordered by.
type dueRow struct{ id, owner, due, first, second int64 }

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
			r := dueRow{id: number(v[0]), owner: o, due: number(v[1]), first: number(v[2]), second: number(v[3])}
			if t.free(o, r.id) && !d.passed[r] {
				rows = append(rows, r)
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

func (d *dueOp) claim(t *transaction, e dueRow) error {
	r, err := t.find(selectByID, e.id)
	if code(err) == lib.SQLITE_CORRUPT {
		d.passOver(e, t.remains(e.id))
		return nil
	}
	if err != nil || r == nil {
		return err
	}
	if r.stored != nil || r.Owner != e.owner || r.Due != e.due {
		if mended, err := d.mend(t, e, r); !mended || err != nil {
			return err
		}
	}
	reason := r.mustHold()
	if reason == "" && r.lacksBody() {
		reason = r.lacking()
	}
	switch {
	case final(r.State):
		err = t.claim(r)
	case reason != "":
		err = t.hold(r, reason)
	case r.noKey != nil: // others may have it
		d.passOver(e, r)
		return nil
	default:
		err = t.claim(r)
	}
	if harmless(err) {
		d.passOver(e, r)
		return nil
	}
	d.due = append(d.due, r)
	return err
}

// remains is what can be read of a row of which not all can.
func (t *transaction) remains(id int64) *Row {
	r := &Row{ID: id, Status: Status{Settled: t.now}}
	_ = t.c.query(listAll, func(v []driver.Value) error {
		r = scanListed(&cursor{values: v})
		t.c.seal.open(r, false)
		return nil
	}, id-1, "", "", "", "", "", "", 1)
	return r
}

// mend makes a damaged status one that can be written, or passes it over.
func (d *dueOp) mend(t *transaction, e dueRow, r *Row) (mended bool, err error) {
	living, err := t.living(r.Owner, r.ID)
	if err != nil {
		return false, err
	}
	writable := false
	err = t.c.query(selectWritable, func(v []driver.Value) error {
		writable = number(v[0]) != 0
		return nil
	}, r.ID)
	switch {
	case err != nil:
		return false, err
	case living || writable && r.stored == nil: // the index has it twice
		d.passOver(e, nil)
		return false, nil
	case !writable:
		d.passOver(e, r)
		return false, nil
	}
	r.Version, r.Owner = max(r.Version, 0)+1, 0
	_, err = t.c.exec(mendStatus, r.Version, r.State, bit(r.Doubt), r.HoldReason, r.Attempts, r.Deaths, r.Resumes, r.Began,
		bit(r.Prepared), bit(r.Notify), r.FirstSent, r.Due, r.Wait, r.Expires, r.Settled, r.By, r.Note, r.ID)
	if harmless(err) {
		d.passOver(e, r)
		return false, nil
	}
	return err == nil, err
}

// passOver leaves a row as it is, so that the others are claimed. It is shown as
// held, if it is told of and its outcome is open.
func (d *dueOp) passOver(e dueRow, r *Row) {
	if d.passed == nil {
		d.passed = map[dueRow]bool{}
	}
	d.passed[e] = true
	if r == nil || final(r.State) {
		return
	}
	r.Doubt = r.Doubt || r.State == inFlight
	r.State, r.HoldReason, r.Owner, r.Request = held, holdChecksum, 0, nil
	r.Damaged, r.Unwritten = true, true
	d.stuck = append(d.stuck, r)
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
