package sqlite

import (
	"context"
	"fmt"
	"strconv"
)

// operation is one unit of a transaction. exec notes its result, or a refusal
// that wrote nothing, in itself; an error that it returns is the engine's.
type operation interface {
	exec(t *transaction) error
}

type itemState uint8

const (
	queued itemState = iota
	leading
	taken
	finished
)

// item is an operation on its way through the commit loop.
type item struct {
	op      operation
	durable bool // its batch is synced
	alone   bool // its statement may have failed a batch
	posted  bool // nobody waits
	idle    bool // it wrote nothing
	size    int  // bytes
	state   itemState
	err     error
	woken   chan struct{} // has room for one; nil while nobody waits
}

func (it *item) wake() {
	if it.woken != nil {
		it.woken <- struct{}{}
	}
}

// submit returns when the item's transaction is committed, or will never be.
// While the item waits in the queue the end of ctx takes it out; from then on
// the commit decides.
func (s *Store) submit(ctx context.Context, it *item) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNothingWritten, err)
	}
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return fmt.Errorf("%w: %w", ErrNothingWritten, ErrClosed)
	}
	s.queue = append(s.queue, it)
	lead := !s.busy
	if lead {
		s.busy, it.state = true, leading
	} else {
		it.woken = make(chan struct{}, 1)
	}
	s.mu.Unlock()
	if lead && s.lead(it) {
		return it.err
	}
	return s.wait(ctx, it)
}

func (s *Store) wait(ctx context.Context, it *item) error {
	for {
		select {
		case <-it.woken:
			// Whoever wakes has written the state before, and leaves it alone.
			if it.state == finished || it.state == leading && s.lead(it) {
				return it.err
			}
		case <-ctx.Done():
			if s.withdraw(it) {
				return fmt.Errorf("%w: %w", ErrNothingWritten, ctx.Err())
			}
			ctx = context.Background() // taken: its commit decides
		}
	}
}

// withdraw takes an item out of the queue, unless a transaction has it.
func (s *Store) withdraw(it *item) bool {
	s.mu.Lock()
	state := it.state
	if state == taken || state == finished {
		s.mu.Unlock()
		return false
	}
	for i, q := range s.queue {
		if q == it {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			break
		}
	}
	it.state = finished
	s.mu.Unlock()
	if state == leading { // the token had just been handed over
		s.pass(nil)
	}
	return true
}

// post queues an item that nobody waits for. It reports false if too much is
// queued already.
func (s *Store) post(it *item) (bool, error) {
	it.posted = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false, fmt.Errorf("%w: %w", ErrNothingWritten, ErrClosed)
	}
	if s.postedLen+it.size > maxPosted {
		it.posted = false
		return false, nil
	}
	s.posted = append(s.posted, it)
	s.postedLen += it.size
	if !s.busy && !s.retrying {
		s.busy = true
		s.help(func() { s.lead(nil) })
	}
	return true, nil
}

// flush returns when what was posted before is visible to readers.
func (s *Store) flush(ctx context.Context) error {
	s.mu.Lock()
	clean := len(s.posted)+s.flying == 0
	s.mu.Unlock()
	if clean {
		return nil
	}
	n := &nothing{}
	n.item = item{op: n}
	return s.submit(ctx, &n.item)
}

// nothing is an operation to wait for.
type nothing struct{ item }

func (*nothing) exec(*transaction) error { return nil }

// Flush returns when everything that was posted before is on stable storage.
func (s *Store) Flush(ctx context.Context) error {
	f := &flushOp{}
	f.item = item{op: f, durable: true}
	return s.submit(ctx, &f.item)
}

type flushOp struct{ item }

func (*flushOp) exec(t *transaction) error {
	_, err := t.c.exec(noteFlush, strconv.FormatInt(t.now, 10))
	return err
}
