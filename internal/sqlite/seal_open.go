package sqlite

import (
	"crypto/rand"
	"database/sql/driver"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A sealed journal holds a fact for each key that was a sealer's current one, in
// the order in which they became it: the same content, sealed under that key.
// So a wrong or a missing key is met at Open, and the content, which is needed
// for as long as the journal lives, is readable to whoever has the newest key.

// sealFact is the beginning of the facts' names; a number from 1 follows.
const sealFact = "seal "

const (
	sealVersion  = 1
	printKeySize = 32
	sealFactSize = 1 + printKeySize + 8
)

// sealFacts are the stored values in order.
func sealFacts(facts map[string]string) (stored [][]byte, err error) {
	count := 0
	for name := range facts {
		if strings.HasPrefix(name, sealFact) {
			count++
		}
	}
	for n := range count {
		text := facts[sealFact+strconv.Itoa(n+1)]
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil || text == "" {
			return nil, errors.New("what is stored of its sealing is damaged")
		}
		stored = append(stored, b)
	}
	return stored, nil
}

// checkSealing finds out whether the sealer, or none, is right for the journal,
// before anything is written. The caller has the set-up lock.
func (s *Store) checkSealing(facts map[string]string) error {
	sealer := s.opts.Sealer
	stored, err := sealFacts(facts)
	switch {
	case err != nil:
		return err
	case sealer == nil && len(stored) > 0:
		return fmt.Errorf("%w: the journal was made with a Sealer, and is opened without", ErrSealed)
	case sealer == nil:
		return nil
	case len(stored) == 0:
		return s.beginSealing(facts["journal"])
	}
	bound := sealFactBound(facts["journal"])
	ids := map[string]bool{}
	var content []byte
	for n, b := range stored {
		if len(b) > 0 && len(b) > int(b[0]) {
			ids[string(b[1:1+b[0]])] = true
		}
		opened, err := unseal(sealer, b, bound)
		switch {
		case err == nil && (len(opened) != sealFactSize || opened[0] != sealVersion):
			return errors.New("it is sealed in a form that is not known here")
		case err == nil:
			content = opened
		case !errors.Is(err, ErrSealed):
			return fmt.Errorf("%w: the Sealer has another key of that id, or the file was changed: %w", ErrSealed, err)
		case n == len(stored)-1:
			return fmt.Errorf("its newest key is needed: %w", err)
		} // else it is an old key, which may be gone
	}
	if err := s.useSealing(content); err != nil {
		return err
	}
	current, err := seal(sealer, nil, content, bound)
	if err != nil || ids[string(current[1:1+current[0]])] {
		return err
	}
	return patiently(func() error {
		return s.writer.atomically(func() error { return s.noteSealing(len(stored)+1, current) })
	})
}

func sealFactBound(journal string) []byte {
	return appendText(appendText(nil, "idem sealed journal 1"), journal)
}

func (s *Store) noteSealing(n int, fact []byte) error {
	_, err := s.writer.exec(setFact, sealFact+strconv.Itoa(n), base64.StdEncoding.EncodeToString(fact))
	return err
}

// beginSealing makes a journal a sealed one: what is made from now on is sealed.
// Nobody may have it open who does not know of it.
func (s *Store) beginSealing(journal string) error {
	content := make([]byte, sealFactSize)
	content[0] = sealVersion
	rand.Read(content[1 : 1+printKeySize]) // never fails
	return patiently(func() error {
		return s.writer.atomically(func() error {
			t := s.transaction()
			if err := t.refuseUnsealed(); err != nil {
				return err
			}
			highest, err := t.highest()
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint64(content[1+printKeySize:], uint64(highest))
			fact, err := seal(s.opts.Sealer, nil, content, sealFactBound(journal))
			if err != nil {
				return err
			}
			// A sealer that does not open what it seals would lose all.
			if _, err := unseal(s.opts.Sealer, fact, sealFactBound(journal)); err != nil {
				return fmt.Errorf("the Sealer does not open what it has sealed: %w", err)
			}
			if err := s.noteSealing(1, fact); err != nil {
				return err
			}
			return s.useSealing(content)
		})
	})
}

// refuseUnsealed reports a living handle, which writes unsealed.
func (t *transaction) refuseUnsealed() error {
	var owners []int64
	err := t.c.query(selectOwners, func(v []driver.Value) error {
		owners = append(owners, number(v[0]))
		return nil
	}, manyOwners)
	if err != nil {
		return err
	}
	for _, id := range owners {
		living, err := t.living(id, 0)
		if err != nil {
			return err
		}
		if living {
			return errors.New("another handle has the journal open without a Sealer: close it before the journal is sealed")
		}
	}
	return nil
}

func (s *Store) useSealing(content []byte) error {
	g := &sealing{sealer: s.opts.Sealer, since: int64(binary.LittleEndian.Uint64(content[1+printKeySize:]))}
	if err := g.usePrintKey(content[1 : 1+printKeySize]); err != nil {
		return err
	}
	s.seal = g
	s.writer.seal = g
	return nil
}
