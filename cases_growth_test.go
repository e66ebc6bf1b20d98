package idem

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() { children["cases/read for long"] = childReadsForLong }

// childReadsForLong keeps one read transaction open until it is told to end it.
func childReadsForLong() {
	db := must(openRaw(childFile()))
	tx := must(db.Begin())
	var before, after int
	must(0, tx.QueryRow(`SELECT count(*) FROM intent`).Scan(&before))
	say("reading")
	waitForParent()
	must(0, tx.QueryRow(`SELECT count(*) FROM intent`).Scan(&after))
	if after != before {
		must(0, fmt.Errorf("it saw %d rows and then %d", before, after))
	}
	must(0, tx.Rollback())
	must(0, db.Close())
}

// growing is a journal in which many callers finish operations.
type growing struct {
	*testing.T
	path    string
	journal *SQLiteJournal
	body    []byte
	next    atomic.Int64
	slowest atomic.Int64 // nanoseconds of one write
}

func (g *growing) wrote(begun time.Time, err error) {
	took := int64(time.Since(begun))
	for old := g.slowest.Load(); took > old && !g.slowest.CompareAndSwap(old, took); old = g.slowest.Load() {
	}
	assert.NoError(g, err, "no lock reaches a caller")
}

// finish begins so many operations and settles each.
func (g *growing) finish(operations int) {
	g.Helper()
	var left atomic.Int64
	left.Store(int64(operations))
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for left.Add(-1) >= 0 && !g.Failed() {
				want := newIntent(fmt.Sprintf("order-%d", g.next.Add(1)))
				want.Retention, want.Request.Body = 0, g.body
				begun := time.Now()
				in, _, err := g.journal.Begin(context.Background(), want)
				g.wrote(begun, err)
				next, a := succeed(in)
				next.Outcome.Body = g.body
				begun = time.Now()
				_, err = g.journal.Update(context.Background(), next, a, false)
				g.wrote(begun, err)
			}
		})
	}
	callers.Wait()
	require.NoError(g, g.journal.Flush(g.Context()))
}

func (g *growing) size(side string) int64 {
	g.Helper()
	info, err := os.Stat(g.path + side)
	require.NoError(g, err)
	return info.Size()
}

// logged is how many frames the log has, and how many of them are in the main
// file too, after a checkpoint as any program may make one.
func (g *growing) logged() (frames, copied int) {
	g.Helper()
	db, err := openRaw(g.path)
	require.NoError(g, err)
	defer db.Close()
	var busy int
	require.NoError(g, db.QueryRow(`PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &frames, &copied))
	return frames, copied
}

// swift checks the slowest write since it was called last.
func (g *growing) swift(when string) {
	g.Helper()
	slowest := time.Duration(g.slowest.Swap(0))
	g.Logf("%s: main file %d KiB, log %d KiB, slowest write %v", when, g.size("")>>10, g.size("-wal")>>10, slowest)
	if raceStep == 1 { // the race detector makes the engine some ten times as slow
		assert.Less(g, slowest, time.Second, when)
	}
}

func newGrowing(t *testing.T) *growing {
	t.Helper()
	g := &growing{T: t, path: tempJournal(t), body: bytes.Repeat([]byte("x"), 1<<10)}
	g.journal = mustOpen(t, g.path, nil)
	return g
}

// growth is a third of the operations of O-09: all with IDEM_FAULTS=full.
func growth() int {
	if os.Getenv("IDEM_FAULTS") == "full" && raceStep == 1 {
		return 33_334
	}
	return 2_000 / raceStep
}

// Another process reads for as long as a third of the operations takes. The log
// cannot start over then, and does so when the reader has gone.
func TestO09_ALongReaderInTheMiddle(t *testing.T) {
	t.Parallel()
	g, third := newGrowing(t), growth()
	g.finish(third)
	g.swift("before")
	reader := spawn(t, "cases/read for long", g.path)
	reader.await("reading")
	g.finish(third)
	g.swift("while another process reads")
	frames, copied := g.logged()
	require.Less(t, copied, frames, "the reader is in the way")
	long := g.size("-wal")
	reader.finish()
	g.finish(third)
	g.swift("after")
	frames, copied = g.logged()
	assert.Equal(t, frames, copied)
	assert.Less(t, frames, 2000, "it has started over: 1000 is when it is copied")
	assert.LessOrEqual(t, g.size("-wal"), min(long+(8<<20), 64<<20), "the file is cut to its bound")

	ended := make(chan int)
	go func() {
		pruned, err := g.journal.Prune(context.Background(), time.Now())
		assert.NoError(t, err)
		ended <- pruned
	}()
	g.finish(third)
	pruned := <-ended
	g.swift("while it is pruned")
	assert.GreaterOrEqual(t, pruned, 3*third)
	assert.LessOrEqual(t, g.size("-wal"), int64(64<<20))
	st := mustStats(t, g.journal)
	assert.Equal(t, pruned, st.Tombstones)
}
