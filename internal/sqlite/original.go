package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockMargin is how far the wall clock may be behind what was seen before it
// counts as set back.
const clockMargin = 30 * time.Second

const (
	epochFile = "epoch"

	holdCopied = "copied"
	holdClock  = "clock"
)

// checkOriginal notices a copy, a restored backup and a clock that was set
// back, all of which make the age or the state of what is unfinished doubtful.
//
// The owner folder holds a random epoch, which the database mirrors. Each open
// renews it: next is committed, renamed into the folder, and then committed as
// the epoch; a crash between leaves one of the two that match. A copy of the
// database meets a folder that has moved on, or none. The caller has the
// set-up lock.
func (s *Store) checkOriginal(facts map[string]string) error {
	there, err := os.ReadFile(filepath.Join(string(s.folder), epochFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bare(err)
	}
	mine := strings.TrimSpace(string(there))
	copied := facts["epoch"] != "" && (mine == "" || mine != facts["epoch"] && mine != facts["next"])
	seen, _ := strconv.ParseInt(facts["clock"], 10, 64)
	next := randomHex()
	err = patiently(func() error {
		return s.writer.atomically(func() error {
			t := s.transaction()
			if copied {
				if _, err := t.c.exec(holdUnfinished, holdCopied, t.now); err != nil {
					return err
				}
			}
			if !copied && mine != "" { // next, after a crash: it must outlive a crash right now
				if _, err := t.c.exec(setFact, "epoch", mine); err != nil {
					return err
				}
			}
			mark := max(seen, t.now)
			if seen > t.now+int64(clockMargin) {
				mark = t.now // what is made from now on is timed by it
				if err := t.holdUnknown(); err != nil {
					return err
				}
				if err := t.shortenWaits(); err != nil {
					return err
				}
			}
			if _, err := t.c.exec(setFact, "clock", strconv.FormatInt(mark, 10)); err != nil {
				return err
			}
			_, err := t.c.exec(setFact, "next", next)
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := s.publish(next); err != nil {
		return fmt.Errorf("renew the epoch: %w", err)
	}
	if err := s.writer.level(false); err != nil { // losing this to a power cut is the crash between
		return err
	}
	err = patiently(func() error {
		_, err := s.writer.exec(setFact, "epoch", next)
		return err
	})
	return errors.Join(err, s.writer.level(true))
}

func (s *Store) facts() (map[string]string, error) {
	facts := map[string]string{}
	err := s.writer.query(selectFacts, func(v []driver.Value) error {
		facts[text(v[0])] = text(v[1])
		return nil
	})
	return facts, err
}

// publish puts the epoch into the owner folder, whole or not at all.
func (s *Store) publish(epoch string) error {
	path := filepath.Join(string(s.folder), epochFile)
	if err := writePrivate(path+".new", []byte(epoch+"\n")); err != nil {
		return bare(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return bare(err)
	}
	return syncDir(string(s.folder))
}

// holdUnknown holds what is in doubt and has no living owner.
func (t *transaction) holdUnknown() error {
	owners, err := t.deadOwners()
	if err != nil {
		return err
	}
	for _, o := range owners {
		if _, err := t.c.exec(holdDoubt, holdClock, t.now, nobody(o)); err != nil {
			return err
		}
	}
	return nil
}

// markClock keeps the highest time seen.
func (t *transaction) markClock() error {
	_, err := t.c.exec(raiseClock, strconv.FormatInt(t.now, 10))
	return err
}

// shortenWaits makes no wait that has not begun yet longer than it was meant to
// be.
func (t *transaction) shortenWaits() error {
	_, err := t.c.exec(shortenWaits, t.now, int64(clockMargin))
	return err
}
