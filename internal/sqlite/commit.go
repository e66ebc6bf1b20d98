package sqlite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	lib "modernc.org/sqlite/lib"
)

// Group commit. Whoever finds the writer's token free takes it, takes what
// waits into one transaction, commits, wakes everybody and hands the token to
// the first that still waits. While one commit syncs, the next batch gathers;
// there is no timer.

const (
	maxBatch      = 1024    // items
	maxBatchBytes = 4 << 20 // and about as many bytes, one item at least
	maxPosted     = 4 << 20 // bytes that may wait unsynced before posting waits too
	gatherYields  = 4       // measured: 1.2 to 1.5 times the throughput when batches are shared
	maxPause      = time.Second
)

// help runs do on a goroutine that Close waits for. s.mu or the token is held.
func (s *Store) help(do func()) {
	s.helpers.Go(do)
}

// lead is run by the holder of the token, who loses it by it. It reports
// whether own is finished; where it is not, somebody else leads and wakes it.
func (s *Store) lead(own *item) bool {
	for {
		locked, err := s.round()
		if locked { // by another process: nobody's deadline may depend on that
			s.mu.Lock()
			if own != nil {
				if own.woken == nil {
					own.woken = make(chan struct{}, 1)
				}
				own.state = queued
			}
			s.mu.Unlock()
			s.help(s.awaitLock)
			return false
		}
		if own == nil || own.state == finished {
			s.pass(err)
			return true
		}
	}
}

// awaitLock holds the token while another process holds the file's lock.
func (s *Store) awaitLock() {
	for {
		s.nap()
		s.mu.Lock()
		if s.closing {
			s.refuse(ErrClosed)
		}
		if len(s.queue)+len(s.posted) == 0 || s.closing {
			s.giveBack()
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if locked, err := s.round(); !locked {
			s.pass(err)
			return
		}
	}
}

// nap is the wait for another process. SQLite's own handler would starve one
// of two busy processes, and freeze virtual time.
func (s *Store) nap() {
	time.Sleep(500*time.Microsecond + rand.N(500*time.Microsecond))
}

// giveBack frees the token. s.mu is held.
func (s *Store) giveBack() {
	s.busy = false
	if s.closing {
		close(s.idle)
	}
}

// pass hands the token on, after the chores. failed is what the last round
// met with.
func (s *Store) pass(failed error) {
	if failed == nil && s.choresDue() {
		s.mu.Lock()
		closing := s.closing
		s.mu.Unlock()
		if !closing {
			s.help(func() {
				s.doChores()
				s.handOver(nil)
			})
			return
		}
	}
	s.handOver(failed)
}

func (s *Store) handOver(failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.queue) > 0:
		s.queue[0].state = leading
		s.queue[0].wake()
	case len(s.posted) == 0 || s.closing:
		s.giveBack()
	case failed != nil:
		s.giveBack()
		if !s.retrying {
			s.retrying = true
			s.pause = min(max(2*s.pause, 10*time.Millisecond), maxPause)
			pause := s.pause
			s.help(func() { s.retry(pause) })
		}
	default:
		s.help(func() { s.lead(nil) })
	}
}

// retry leads again after a pause, for posted items that could not be written.
func (s *Store) retry(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.done:
	}
	s.mu.Lock()
	s.retrying = false
	if s.busy || s.closing || len(s.posted) == 0 {
		s.mu.Unlock()
		return
	}
	s.busy = true
	s.mu.Unlock()
	s.lead(nil)
}

// gather lets callers that are about to submit do so, if the last batch was
// shared, and tells the level of the next transaction.
func (s *Store) gather() (full bool) {
	for range gatherYields {
		if s.shared <= 1 {
			break
		}
		s.mu.Lock()
		n := len(s.queue)
		s.mu.Unlock()
		if n >= s.shared {
			break
		}
		runtime.Gosched()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range s.queue {
		if it.durable {
			return true
		}
	}
	return false
}

// round runs one transaction. locked means that another process has the lock
// and nothing was taken. Other failures went to the items; err is for pacing.
func (s *Store) round() (locked bool, err error) {
	full := s.gather()
	if err := s.begin(full); err != nil {
		if isBusy(err) {
			return true, nil
		}
		s.discardWriter()
		s.mu.Lock()
		s.refuse(err)
		s.mu.Unlock()
		return false, err
	}
	s.mu.Lock()
	batch := s.take(full)
	s.mu.Unlock()
	return false, s.write(batch)
}

// begin opens a transaction of the given level.
func (s *Store) begin(full bool) error {
	if err := s.checkPath(); err != nil {
		return err
	}
	if s.writer == nil {
		if err := s.openWriter(); err != nil {
			return fmt.Errorf("open again: %w", err)
		}
	}
	if err := s.writer.level(full); err != nil {
		return err
	}
	_, err := s.writer.exec(beginImmediate)
	return err
}

// take moves what the next transaction writes out of the queues: first what
// was posted, in order, so that nobody overtakes it. s.mu is held.
func (s *Store) take(full bool) []*item {
	batch, size := s.batch[:0], 0
	fits := func(it *item) bool {
		if len(batch) == 0 {
			return true
		}
		return len(batch) < maxBatch && size+it.size <= maxBatchBytes && !it.alone && !batch[0].alone
	}
	n := 0
	for ; n < len(s.posted) && fits(s.posted[n]); n++ {
		batch, size = append(batch, s.posted[n]), size+s.posted[n].size
		s.postedLen -= s.posted[n].size
	}
	s.posted = cut(s.posted, n)
	if len(s.posted) == 0 {
		n = 0
		for ; n < len(s.queue) && fits(s.queue[n]) && (full || !s.queue[n].durable); n++ {
			batch, size = append(batch, s.queue[n]), size+s.queue[n].size
		}
		s.queue = cut(s.queue, n)
	}
	for _, it := range batch {
		it.state = taken
		if it.posted {
			s.flying++
		}
	}
	s.batch = batch
	return batch
}

// cut removes the first n, keeping the memory.
func cut(items []*item, n int) []*item {
	left := copy(items, items[n:])
	clear(items[left:])
	return items[:left]
}

// write runs a batch to its end. What happened is in the items.
func (s *Store) write(batch []*item) error {
	t := s.transaction()
	for _, it := range batch {
		it.err = nil
		if err := it.op.exec(t); err != nil {
			return s.failed(t, batch, it, err)
		}
	}
	if _, err := s.writer.exec(commit); err != nil {
		t.undo()
		s.discardWriter() // its view and the file may differ
		s.fail(batch, fmt.Errorf("%w: %w", ErrMayBeWritten, err))
		return err
	}
	s.pause = 0
	s.chores.committed(batch)
	s.books.committed(s.writer.full, batch, s.Clock.Now())
	s.finish(batch)
	return nil
}

// failed undoes a batch in which an item's statement failed. If that was the
// item's own fault, or of the row that a caller is about, the others are written
// without it, each by itself. While the end of an operation cannot be stored,
// nothing is: else more would be begun, and not ended either.
func (s *Store) failed(t *transaction, batch []*item, culprit *item, err error) error {
	t.undo()
	_, undone := s.writer.exec(rollback)
	damaged := code(err) == lib.SQLITE_CORRUPT && !culprit.posted
	if damaged { // then the engine has rolled it back already
		s.discardWriter()
	} else if undone != nil || !harmless(err) {
		s.discardWriter()
		err = errors.Join(err, undone)
		s.fail(batch, fmt.Errorf("%w: %w", ErrNothingWritten, err))
		if culprit.alone && culprit.posted { // those who wait are not in its batch
			s.mu.Lock()
			s.refuse(err)
			s.mu.Unlock()
		}
		return err
	}
	if len(batch) > 1 {
		for _, it := range batch {
			it.alone = true
		}
		s.mu.Lock()
		s.putBack(batch, true)
		s.mu.Unlock()
		return nil
	}
	culprit.err = fmt.Errorf("%w: %w", ErrNothingWritten, err)
	if culprit.posted {
		s.chores.lost(err)
	}
	s.finish(batch)
	return nil
}

// fail answers the waiting items of a batch; the posted ones are queued again.
func (s *Store) fail(batch []*item, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range batch {
		if !it.posted {
			it.err = err
			it.state = finished
			it.wake()
		}
	}
	s.putBack(batch, false)
}

// putBack queues the posted items of a batch again, before all others, and
// with all the waiting ones too. s.mu is held.
func (s *Store) putBack(batch []*item, all bool) {
	var posted, waiting []*item
	for _, it := range batch {
		switch {
		case it.posted:
			it.state = queued
			posted = append(posted, it)
			s.postedLen += it.size
		case all:
			it.state = queued
			waiting = append(waiting, it)
		}
	}
	s.posted = append(posted, s.posted...)
	s.queue = append(waiting, s.queue...)
	s.emptyBatch()
}

// finish wakes everybody.
func (s *Store) finish(batch []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared = 0
	for _, it := range batch {
		it.state = finished
		if !it.posted {
			s.shared++
			it.wake()
		}
	}
	s.emptyBatch()
}

func (s *Store) emptyBatch() {
	clear(s.batch)
	s.batch = s.batch[:0]
	s.flying = 0
}

// refuse answers everybody in the queue: no transaction could begin. s.mu is
// held.
func (s *Store) refuse(err error) {
	err = fmt.Errorf("%w: %w", ErrNothingWritten, err)
	for _, it := range s.queue {
		it.err = err
		it.state = finished
		it.wake()
	}
	s.queue = cut(s.queue, len(s.queue))
}

// discardWriter closes the connection; the next transaction opens another.
func (s *Store) discardWriter() {
	if s.writer != nil {
		s.writer.close()
		s.writer = nil
	}
}
