package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// checkPair traces two processes that share a journal, judges the order of their
// sends and syncs, and opens what power cuts could have left of the journal: each
// key that was sent by then must be in it. The same calls without the syncs of the
// log, as synchronous=NORMAL would make them, and without any, must fail.
func checkPair(out io.Writer) error {
	dir, err := os.MkdirTemp("", "tracecheck")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	begun := time.Now()
	calls, err := trace(dir, "left", "right")
	if err != nil {
		return err
	}
	sends, violations := judge(calls)
	switch {
	case len(violations) > 0:
		return errors.New(strings.Join(violations, "\n"))
	case len(sends) < pairSends:
		return fmt.Errorf("%d keyed sends of two processes in the trace, want %d", len(sends), pairSends)
	}
	p := powerCuts{dir: dir, seed: uint64(time.Now().UnixNano()), want: pairStates}
	points, distinct, lost := p.open(calls)
	switch {
	case len(lost) > 0:
		return fmt.Errorf("seed %d: %d states after a power cut are bad, such as: %w", p.seed, len(lost), lost[0])
	case distinct < pairStates:
		return fmt.Errorf("%d distinct states, want %d", distinct, pairStates)
	}
	p.want = 300
	for what, changed := range map[string][]call{
		"the syncs of the log": withoutSyncs(calls, "journal.db-wal"),
		"all syncs":            withoutSyncs(calls, ""),
	} {
		_, distinct, lost := p.open(changed)
		if len(lost) == 0 {
			return fmt.Errorf("control failed: without %s none of %d states lost a key that was sent", what, distinct)
		}
		fmt.Fprintf(out, "control: without %s %d of %d states are bad\n", what, len(lost), distinct)
	}
	fmt.Fprintf(out, "two processes: %d keyed sends, each after its sync; %d points, %d distinct states after a power cut, seed %d: 0 bad; %.1fs\n",
		len(sends), points, distinct, p.seed, time.Since(begun).Seconds())
	return nil
}

func withoutSyncs(calls []call, suffix string) []call {
	var rest []call
	for _, c := range calls {
		if !isSync(c) || !strings.HasSuffix(c.file, suffix) {
			rest = append(rest, c)
		}
	}
	return rest
}

// powerCuts rebuilds the disk at points of a trace.
type powerCuts struct {
	dir  string
	seed uint64
	want int // about so many states
}

// cut is one state to be opened.
type cut struct {
	dir   string
	keys  map[string]bool // sent by then
	point int
}

// open opens the states, and returns what is wrong with the bad ones.
func (p powerCuts) open(calls []call) (points, distinct int, bad []error) {
	calls = happenings(calls)
	random := rand.New(rand.NewPCG(p.seed, 0))
	share := p.share(calls)
	root, err := os.MkdirTemp(ramDisk(), "tracecheck")
	if err != nil {
		return 0, 0, []error{err}
	}
	defer os.RemoveAll(root)
	cuts := make(chan cut)
	var workers sync.WaitGroup
	var mu sync.Mutex
	fail := func(point int, err error) {
		mu.Lock()
		defer mu.Unlock()
		bad = append(bad, fmt.Errorf("point %d: %w", point, err))
	}
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for c := range cuts {
				if err := c.look(); err != nil {
					fail(c.point, err)
				}
				_ = os.RemoveAll(c.dir)
			}
		})
	}
	d, given := newDisk(p.dir), map[uint64]bool{}
	for _, c := range calls {
		if !d.apply(c) {
			continue
		}
		points++
		for kind := range kinds {
			if random.Float64() > share || kind > nothing && len(d.pending) == 0 {
				continue
			}
			files, folders := d.state(kind, random)
			id := sum(files, len(d.keys))
			if given[id] {
				continue
			}
			given[id] = true
			next := cut{dir: filepath.Join(root, fmt.Sprint(len(given))), keys: maps.Clone(d.keys), point: points}
			if err := errors.Join(os.Mkdir(next.dir, 0o700), d.write(next.dir, files, folders)); err != nil {
				fail(points, err)
			}
			cuts <- next
		}
	}
	close(cuts)
	workers.Wait()
	return points, len(given), bad
}

// share is which part of all states makes about as many as are wanted.
func (p powerCuts) share(calls []call) float64 {
	all, d := 0, newDisk(p.dir)
	for _, c := range calls {
		switch {
		case !d.apply(c):
		case len(d.pending) == 0:
			all++
		default:
			all += kinds
		}
	}
	return 1.5 * float64(p.want) / float64(max(all, 1)) // many are the same
}

// look opens the journal of a state. Before a key was sent there may be none.
func (c cut) look() error {
	journal, err := idem.Open(filepath.Join(c.dir, "journal.db"), nil)
	if err != nil {
		return err
	}
	defer journal.Close()
	all, err := journal.List(context.Background(), idem.Filter{Limit: 3 * pairOperations})
	missing := maps.Clone(c.keys)
	for _, in := range all {
		delete(missing, in.Key)
	}
	for key := range missing {
		return errors.Join(err, fmt.Errorf("key %s was sent, and is not in the journal", key))
	}
	return err
}

func ramDisk() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}
