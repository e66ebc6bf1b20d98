package sqlite

import (
	"database/sql/driver"
	"sync"
)

// transaction is what the operations of one batch share.
type transaction struct {
	s   *Store
	c   *conn
	now int64

	dead    map[int64]bool // probed owners
	checked bool           // our own file was looked at
	gone    error          // what was found
	calls   []runningCall  // to put back if the batch fails
}

func (s *Store) transaction() *transaction {
	return &transaction{s: s, c: s.writer, now: s.Clock.Now().UnixNano()}
}

// mayClaim reports why this owner must not claim or count an attempt: others
// may have found it dead.
func (t *transaction) mayClaim() error {
	if !t.checked {
		t.checked, t.gone = true, t.s.owner.Check()
	}
	return t.gone
}

// living reports whether the owner of a row can still act on it. A row of this
// handle without a running call counts as a dead owner's. The answer holds for
// the whole transaction, since the dead do not come back.
func (t *transaction) living(ownerID, row int64) (bool, error) {
	switch ownerID {
	case 0:
		return false, nil
	case t.s.id:
		_, ok := t.s.running.version(row)
		return ok, nil
	}
	dead, ok := t.dead[ownerID]
	if ok {
		return !dead, nil
	}
	dead, err := t.s.probe(t.c, ownerID)
	if err != nil {
		return false, err
	}
	if t.dead == nil {
		t.dead = map[int64]bool{}
	}
	t.dead[ownerID] = dead
	return !dead, nil
}

// probe looks at another owner's file.
func (s *Store) probe(c *conn, ownerID int64) (dead bool, err error) {
	token := ""
	err = c.query(selectOwner, func(v []driver.Value) error {
		token = text(v[0])
		return nil
	}, ownerID)
	if err != nil {
		return false, err
	}
	if token == "" {
		return true, nil
	}
	dead, err = s.folder.Dead(token)
	if err != nil { // cannot tell: then it lives
		return false, nil
	}
	return dead, nil
}

// runningCalls are the rows of this handle that a call is working on, with the
// version each call has seen.
type runningCalls struct {
	mu   sync.Mutex
	rows map[int64]int64
}

type runningCall struct {
	row, version int64
	ok           bool
}

func (r *runningCalls) version(row int64) (version int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	version, ok = r.rows[row]
	return version, ok
}

// end ends the call that has seen version of row, and no other call.
func (r *runningCalls) end(row, version int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := r.rows[row]; ok && v == version {
		delete(r.rows, row)
	}
}

// run notes that a call of this handle has the row; it ends where version is 0.
func (t *transaction) run(row, version int64) {
	r := &t.s.running
	r.mu.Lock()
	defer r.mu.Unlock()
	old, ok := r.rows[row]
	t.calls = append(t.calls, runningCall{row: row, version: old, ok: ok})
	if version == 0 {
		delete(r.rows, row)
	} else {
		r.rows[row] = version
	}
}

// undo puts the table of running calls back to what is in the database.
func (t *transaction) undo() {
	r := &t.s.running
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(t.calls) - 1; i >= 0; i-- {
		if c := t.calls[i]; c.ok {
			r.rows[c.row] = c.version
		} else {
			delete(r.rows, c.row)
		}
	}
	t.calls = nil
}
