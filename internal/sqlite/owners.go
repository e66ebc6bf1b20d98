package sqlite

import "database/sql/driver"

// How many owners are looked at, so that clearing stays short.
const (
	clearAtOpen  = 200
	clearWhenDue = 50
)

// clearOwners deletes the rows of dead owners that no status row names, and
// returns their tokens. Their files go after the commit.
func (t *transaction) clearOwners(limit int) (tokens []string, err error) {
	dead := map[int64]string{}
	err = t.c.query(selectOwners, func(v []driver.Value) error {
		if id := number(v[0]); id != t.s.id {
			dead[id] = text(v[1])
		}
		return nil
	}, limit)
	if err != nil {
		return nil, err
	}
	for id, token := range dead {
		living, err := t.living(id, 0)
		if err != nil {
			return nil, err
		}
		named := living
		if !living {
			if named, err = t.named(id); err != nil {
				return nil, err
			}
		}
		if named {
			continue
		}
		if _, err := t.c.exec(deleteOwner, id); err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// named reports whether a status row names the owner.
func (t *transaction) named(ownerID int64) (named bool, err error) {
	err = t.c.query(ownerNamed, func([]driver.Value) error {
		named = true
		return nil
	}, ownerID)
	return named, err
}

// bury removes the files of owners whose rows are gone. What fails is tried
// again at the next open.
func (s *Store) bury(tokens []string) {
	for _, t := range tokens {
		s.folder.Bury(t)
	}
}

// clearStrays removes dead owners' files that no owner row names: their owners
// died between the file and the row. The caller has the set-up lock, so nobody
// is between the two now.
func (s *Store) clearStrays() error {
	tokens, err := s.folder.Tokens(clearAtOpen)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	err = s.writer.query(selectOwners, func(v []driver.Value) error {
		known[text(v[1])] = true
		return nil
	}, manyOwners)
	if err != nil || len(known) == manyOwners {
		return err
	}
	for _, t := range tokens {
		if !known[t] {
			s.folder.Bury(t)
		}
	}
	return nil
}

// leaveOp gives up what this handle owns. Rows in flight keep naming it: once
// its file is free they are a dead owner's.
type leaveOp struct {
	item
	unnamed bool
}

func (l *leaveOp) exec(t *transaction) error {
	l.unnamed = false
	if err := t.markClock(); err != nil {
		return err
	}
	if _, err := t.c.exec(freeOwned, t.s.id); err != nil {
		return err
	}
	named, err := t.named(t.s.id)
	if err != nil || named {
		return err
	}
	l.unnamed = true
	_, err = t.c.exec(deleteOwner, t.s.id)
	return err
}
