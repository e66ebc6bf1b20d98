package sqlite

import (
	"database/sql/driver"
	"math"
	"time"
)

const (
	checkpointFrames = 1000 // 4 MiB of log: a stall of some milliseconds, after the callers were woken
	sharedFrames     = 400  // the same where many would wait for it, and its syncs are few among theirs
	backlogFrames    = 4000 // 16 MiB that a reader keeps from being copied
	pruneEvery       = 10   // batches between two chunks
	pruneRest        = time.Minute
)

// chores is what the writer does besides. The holder of the token uses it.
type chores struct {
	frames    float64 // estimate of what the log holds
	perItem   float64 // learned from checkpoints
	items     int     // since the last checkpoint
	batches   int     // since the last chunk was pruned
	rest      time.Time
	marked    time.Time // when the wall time was last kept
	ripe, id  int64     // how far this walk has pruned
	lostError error     // the last posted update that can never be written

	behind bool       // a reader has let the log grow
	aside  chan int64 // of the checkpoint beside the writer: what it left; nil: none runs
}

func (c *chores) committed(batch []*item) {
	if c.perItem == 0 {
		c.perItem = 4
	}
	c.batches++
	items, size := 0, 0
	for _, it := range batch {
		if !it.idle {
			items++
			size += it.size
		}
	}
	if items > 0 {
		c.items += items
		c.frames += 2 + c.perItem*float64(items) + float64(size)/4096
	}
}

func (c *chores) lost(err error) { c.lostError = err }

func (s *Store) choresDue() bool {
	c := &s.chores
	return s.logIsLong() || c.batches >= pruneEvery
}

// logIsLong reports whether the log is to be copied. What that takes grows with
// it: most is the sync of the pages that it changes.
func (s *Store) logIsLong() bool {
	limit := float64(checkpointFrames)
	if s.shared > 1 {
		limit = sharedFrames
	}
	return s.chores.frames >= limit
}

// doChores runs with the token, after the callers were woken. What fails is
// tried again later: nothing depends on it.
func (s *Store) doChores() {
	if s.writer == nil {
		return
	}
	if s.logIsLong() {
		s.checkpoint()
		return
	}
	s.chores.batches = 0
	if now := time.Now(); !now.Before(s.chores.rest) {
		if !s.pruneChunk(s.Clock.Now()) {
			s.chores.rest = now.Add(pruneRest)
			s.chores.ripe, s.chores.id = 0, 0
		}
	}
}

// checkpoint copies the log into the main file without waiting for readers. It
// never shrinks the log: growing it again costs each sync.
func (s *Store) checkpoint() {
	c := &s.chores
	if !s.mayCopy() {
		c.frames, c.items = 0, 0
		return
	}
	log, left, err := s.writer.checkpoint()
	if err == nil && log > 0 && c.items > 0 {
		actual := float64(log) / c.frames * c.perItem
		c.perItem = min(max((c.perItem+actual)/2, 0.5), 50)
	}
	c.frames, c.items = 0, 0
	c.behind = err == nil && left > backlogFrames
}

// mayCopy reports whether what is to be copied is short enough to have
// everybody wait for it. Where a reader has let the log grow it is not: once the
// reader is gone, all of that is copied beside the writer, which goes on.
func (s *Store) mayCopy() bool {
	c := &s.chores
	if c.aside != nil {
		select {
		case left := <-c.aside:
			c.aside, c.behind = nil, left > backlogFrames
		default:
			return false
		}
	}
	every := "PRAGMA wal_autocheckpoint=8000"
	if c.behind {
		every = "PRAGMA wal_autocheckpoint=0" // it would be within a COMMIT
	}
	_ = s.writer.text(every)
	if !c.behind {
		return true
	}
	aside := make(chan int64, 1)
	c.aside = aside
	s.help(func() { aside <- s.checkpointAside() })
	return false
}

// checkpointAside returns how many frames it has left.
func (s *Store) checkpointAside() (left int64) {
	c, err := openWriter(s.path)
	if err != nil {
		return math.MaxInt64
	}
	defer c.close()
	if _, left, err = c.checkpoint(); err != nil {
		return math.MaxInt64
	}
	return left
}

// checkpoint returns how many frames the log has, and how many are not copied.
func (c *conn) checkpoint() (log, left int64, err error) {
	err = c.ask("PRAGMA wal_checkpoint(PASSIVE)", func(v []driver.Value) error {
		log, left = number(v[1]), number(v[1])-number(v[2])
		return nil
	})
	return log, left, err
}

// keepClock notes the time once a minute, and mends what another clock, or this
// one when it was ahead, has put off for too long.
func (s *Store) keepClock(t *transaction) error {
	now := time.Now() // of the pace: not the clock, which may step
	if now.Sub(s.chores.marked) < time.Minute {
		return nil
	}
	s.chores.marked = now
	if err := t.markClock(); err != nil {
		return err
	}
	return t.shortenWaits()
}

// pruneChunk reports whether there may be more to prune.
func (s *Store) pruneChunk(now time.Time) (more bool) {
	before := now.Add(-s.opts.PruneAfter).UnixNano()
	first := int64(0)
	err := s.writer.query(firstRipe, func(v []driver.Value) error {
		first = number(v[0])
		return nil
	})
	if err != nil || first == 0 || first >= before {
		return false
	}
	p := &pruneOp{before: before, ripe: s.chores.ripe, id: s.chores.id}
	p.item = item{op: p, state: taken}
	if s.begin(false) != nil {
		return false
	}
	if s.write([]*item{&p.item}) != nil || p.err != nil {
		return false
	}
	s.chores.ripe, s.chores.id = p.lastRipe, p.lastID
	return p.looked == pruneChunk
}
