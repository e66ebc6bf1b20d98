package idem

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A state machine over the SQLite journal: random sequences of what transports,
// persons, deaths and the time do to it, each compared with a simple model. In
// a full run as many sequences as machineChecks are tried, else a quarter of
// them, or as many as IDEM_MACHINE says.
// A failure prints its seed; IDEM_MACHINE_SEED=seed:number tries that sequence
// alone, IDEM_MACHINE_SEED=seed all of that seed.
const (
	machineChecks  = 500
	machineActs    = 30
	machinePerFile = 50 // sequences share a file, each in its own scope

	machineTick = time.Second // in which an act is done
	machineIdle = "nothing to do"
)

// machineAct is one step of a sequence. Its numbers choose among what is there when it
// is done, so that a sequence means something with acts left out.
type machineAct struct {
	deed    int
	h, a, b uint
}

func (a machineAct) String() string {
	return fmt.Sprintf("%s(%d, %d, %d)", machineDeeds[a.deed].name, a.h, a.a, a.b)
}

// machineSequence is the n-th sequence of a seed.
func machineSequence(seed, n uint64) []machineAct {
	r := rand.New(rand.NewPCG(seed, n))
	var weighted []int
	for i, d := range machineDeeds {
		for range d.weight {
			weighted = append(weighted, i)
		}
	}
	acts := make([]machineAct, machineActs)
	for i := range acts {
		acts[i] = machineAct{deed: weighted[r.IntN(len(weighted))], h: r.UintN(2), a: r.UintN(1 << 16), b: r.UintN(1 << 16)}
	}
	return acts
}

// machineHand is one handle, which is one owner.
type machineHand struct {
	Journal
	store *SQLiteJournal
	slot  int
	gone  bool
}

// machine is one file with two living handles, and what it has to be like.
type machine struct {
	tb     testing.TB
	path   string
	wrap   func(*SQLiteJournal, string) Journal
	hands  [2]*machineHand
	model  machineModel
	past   machinePast
	scope  string
	keys   int
	acts   int
	old    []Intent // what callers have seen, long ago
	did    string   // what the act turned out to be
	counts map[string]int
}

func newMachine(tb testing.TB, dir string, wrap func(*SQLiteJournal, string) Journal) *machine {
	m := &machine{tb: tb, path: filepath.Join(dir, "m.db"), wrap: wrap, counts: map[string]int{}}
	m.past = machinePast{rows: map[string]Intent{}}
	for slot := range m.hands {
		require.NoError(tb, m.open(slot))
	}
	return m
}

func (m *machine) open(slot int) error {
	store, err := Open(m.path, &SQLiteOptions{PruneAfter: 1 << 62})
	if err != nil {
		return err
	}
	m.hands[slot] = &machineHand{Journal: m.wrap(store, m.path), store: store, slot: slot}
	return nil
}

func (m *machine) close() {
	for _, h := range m.hands {
		if !h.gone {
			assert.NoError(m.tb, h.store.Close())
		}
	}
}

// machineDir is on a RAM disk where there is one.
func machineDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "idem")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { assert.NoError(tb, os.RemoveAll(dir)) })
	return dir
}

// run does a sequence and returns the first thing that must not be, with what
// was done up to it.
func (m *machine) run(scope string, acts []machineAct) (trace []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	m.scope, m.old = scope, nil
	for _, a := range acts {
		m.acts++
		time.Sleep(time.Millisecond) // no two acts at one instant
		h := m.hands[a.h%2]
		m.did = machineIdle
		err := machineDeeds[a.deed].do(m, h, a)
		trace = append(trace, fmt.Sprintf("%s: handle %d, %s", a, a.h%2, m.did))
		if err == nil {
			err = m.check(m.hands[a.h%2], a)
		}
		if err != nil {
			return trace, err
		}
		if m.did != machineIdle {
			m.counts[machineDeeds[a.deed].name]++
		}
	}
	for _, h := range m.hands {
		if err := m.checkAll(h); err != nil {
			return append(trace, fmt.Sprintf("at the end, by handle %d", h.slot)), err
		}
	}
	return trace, nil
}

// machineAlone runs one sequence on a new file.
func machineAlone(t *testing.T, acts []machineAct, wrap machineWrap) (trace []string, err error) {
	dir := machineDir(t)
	defer os.RemoveAll(dir)
	virtually(t, func(t *testing.T) {
		m := newMachine(t, dir, wrap())
		defer m.close()
		trace, err = m.run("alone", acts)
	})
	return trace, err
}

// machineShrunk leaves out what the failure does not need.
func machineShrunk(t *testing.T, acts []machineAct, wrap machineWrap) (shrunk []machineAct, trace []string, err error) {
	trace, err = machineAlone(t, acts, wrap)
	if err == nil {
		return acts, nil, nil
	}
	for again := true; again; {
		again = false
		for i := len(acts) - 1; i >= 0; i-- {
			fewer := slices.Delete(slices.Clone(acts), i, i+1)
			if tr, e := machineAlone(t, fewer, wrap); e != nil {
				acts, err, trace, again = fewer, e, tr, true
			}
		}
	}
	return acts, trace, err
}

// plainly is the journal as it is.
func plainly() func(*SQLiteJournal, string) Journal {
	return func(j *SQLiteJournal, _ string) Journal { return j }
}

// machineWrap makes, for each file, what makes its handles.
type machineWrap func() func(j *SQLiteJournal, path string) Journal

// machineFailure is the first sequence that failed.
type machineFailure struct {
	seed, n uint64
	err     error
	trace   []string
}

// machineTried runs the sequences from first on until one fails, and returns how
// many were right.
func machineTried(t *testing.T, seed uint64, n int, wrap machineWrap) (right int, counts map[string]int, failed *machineFailure) {
	counts = map[string]int{}
	for right < n && failed == nil {
		dir := machineDir(t)
		virtually(t, func(t *testing.T) { // a bubble of its own, or the centuries go by
			m := newMachine(t, dir, wrap())
			defer m.close()
			for range min(machinePerFile, n-right) {
				trace, err := m.run("s"+strconv.Itoa(right), machineSequence(seed, uint64(right)))
				if err != nil {
					failed = &machineFailure{seed: seed, n: uint64(right), err: err, trace: trace}
					return
				}
				right++
			}
			for name, k := range m.counts {
				counts[name] += k
			}
		})
		if failed == nil {
			checkFile(t, filepath.Join(dir, "m.db"))
		}
		require.NoError(t, os.RemoveAll(dir))
	}
	return right, counts, failed
}

// report prints a failure as short as it gets.
func (f *machineFailure) report(t *testing.T, wrap machineWrap) {
	t.Helper()
	t.Logf("replay: IDEM_MACHINE_SEED=%d:%d go test -run 'TestMachine$' .", f.seed, f.n)
	_, trace, err := machineShrunk(t, machineSequence(f.seed, f.n), wrap)
	if err == nil {
		err, trace = fmt.Errorf("alone on a file it does not fail; after those before it: %w", f.err), f.trace
	}
	t.Errorf("sequence %d of seed %d: %v\n\t%s", f.n, f.seed, err, strings.Join(trace, "\n\t"))
}

func TestMachine(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	var f machineFailure
	switch n, _ := fmt.Sscanf(os.Getenv("IDEM_MACHINE_SEED"), "%d:%d", &f.seed, &f.n); n {
	case 1:
		seed = f.seed
	case 2:
		if trace, err := machineAlone(t, machineSequence(f.seed, f.n), plainly); err != nil {
			f.report(t, plainly)
		} else {
			t.Logf("it does not fail:\n\t%s", strings.Join(trace, "\n\t"))
		}
		return
	}
	n := machineChecks / (2*raceStep - 1)
	if os.Getenv("IDEM_FAULTS") != "full" {
		n /= 4
	}
	if more, err := strconv.Atoi(os.Getenv("IDEM_MACHINE")); err == nil {
		n = more
	}
	t.Logf("seed %d", seed)
	right, counts, failed := machineTried(t, seed, n, plainly)
	if failed != nil {
		failed.report(t, plainly)
		return
	}
	assert.GreaterOrEqual(t, right, n, "sequences")
	t.Logf("%d sequences: %v", right, counts)
	for _, d := range machineDeeds {
		assert.GreaterOrEqual(t, counts[d.name], right/20, "acts of the kind %s", d.name)
	}
}
