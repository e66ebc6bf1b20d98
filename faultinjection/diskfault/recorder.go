package diskfault

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
)

// Recorder notes what is done to the files of a folder, so that [Recorder.States]
// can rebuild what a power cut would have left of them at any moment. Make it
// with [NewRecorder] and give its Hook to [SetHook]. A Recorder is safe for
// concurrent use; set its fields first.
//
// What SQLite writes is known operation by operation. Files that the program
// makes, renames or removes by itself are seen by looking at the folder before
// each operation and mark, and Synced says what is known of their syncs.
type Recorder struct {
	// Fault judges an operation first; what it does not let through is not
	// recorded as done. nil means that all of it is done.
	Fault func(Op) Verdict
	// Synced reports whether what the program itself did to a file or folder is
	// on stable storage, with its name, by the time the next operation comes.
	// The name is relative to the recorder's folder, with slashes. nil means
	// that nothing of it is: each such file may be older, empty or missing.
	Synced func(name string) bool

	dir string

	mu     sync.Mutex
	events []event
	base   *disk // as it was
	nodes  int   // given out
	live   map[string]*entryOf
	marks  []string
}

// event is one thing that happened to the disk. Its number is its place.
type event struct {
	change
	sync  int // the file whose changes before the event with number upto are synced; 0: none
	dir   int // the folder whose names are synced too; 0: none
	upto  int
	marks int // how many labels were marked by then
}

// entryOf is a name as it is now.
type entryOf struct {
	node int
	info os.FileInfo
	own  bool // SQLite has had it open
}

// NewRecorder makes a recorder of a folder and all in it. What is there now
// counts as synced. No database of it may be open in this process.
func NewRecorder(dir string) (*Recorder, error) {
	real, err := resolve(dir)
	if err != nil {
		return nil, fmt.Errorf("diskfault: record %q: %w", dir, err)
	}
	r := &Recorder{dir: real, live: map[string]*entryOf{}, base: &disk{nodes: map[int]*node{}}}
	r.live["."] = &entryOf{node: r.node()}
	r.base.nodes[root] = &node{names: map[string]int{}}
	r.Synced = func(string) bool { return true }
	r.look()
	r.Synced = nil
	for _, e := range r.events {
		r.base.apply(&e)
	}
	r.events = nil
	return r, nil
}

func (r *Recorder) node() int {
	r.nodes++
	return r.nodes
}

// Hook is the recorder's hook, for [SetHook].
func (r *Recorder) Hook(op Op) Verdict {
	var v Verdict
	if r.Fault != nil {
		v = r.Fault(op)
	}
	name, ok := r.relative(op.File)
	if !ok {
		return v
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
	r.meet(name)
	upto := len(r.events)
	v.done = func(n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.record(op, name, n, upto)
	}
	return v
}

// Mark notes that something was promised to the world outside by now, such as
// "sent k" or "acknowledged k". A power cut at a later moment must not break it.
func (r *Recorder) Mark(label string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
	r.marks = append(r.marks, label)
	r.add(event{})
}

// Points is how many moments were recorded, each between two events.
func (r *Recorder) Points() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events)
}

func (r *Recorder) add(e event) {
	e.number, e.marks = len(r.events), len(r.marks)
	r.events = append(r.events, e)
}

func (r *Recorder) relative(file string) (name string, ok bool) {
	rel, err := filepath.Rel(r.dir, file)
	rel = filepath.ToSlash(rel)
	return rel, err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// record notes an operation that was done.
func (r *Recorder) record(op Op, name string, n, upto int) {
	here := r.live[name]
	switch op.Kind {
	case Open:
		if here == nil { // made by it
			here = &entryOf{node: r.node()}
			r.live[name] = here
			r.add(event{change: change{node: here.node, kind: makes, moves: r.moves(name, here.node)}})
		}
		here.own = true
		if info, err := os.Stat(op.File); err == nil {
			here.info = info
		}
	case Write:
		if here != nil {
			r.add(event{change: change{node: here.node, kind: writes, off: op.Off, data: bytes.Clone(op.Data[:n])}})
		}
	case Truncate:
		if here != nil {
			r.add(event{change: change{node: here.node, kind: truncates, off: op.Off}})
		}
	case Sync:
		e := event{upto: upto}
		if here != nil {
			e.sync = here.node
		}
		if op.Dir {
			e.dir = r.folder(name)
		}
		r.add(e)
	case Delete:
		if here != nil {
			delete(r.live, name)
			r.add(event{change: change{kind: moves, moves: r.moves(name, 0)}})
		}
		if op.Dir {
			r.add(event{dir: r.folder(name), upto: len(r.events)})
		}
	}
}

// moves is the change of one name. Node 0 takes it away.
func (r *Recorder) moves(name string, node int) []move {
	return []move{{dir: r.folder(name), name: path.Base(name), node: node}}
}

// folder is the node of the folder that a name is in.
func (r *Recorder) folder(name string) int {
	if e := r.live[path.Dir(name)]; e != nil {
		return e.node
	}
	return root
}

// meet notes a file that is there and was not seen before.
func (r *Recorder) meet(name string) {
	if r.live[name] == nil {
		if info, err := os.Lstat(r.path(name)); err == nil && info.Mode().IsRegular() {
			r.appear(name, info)
		}
	}
}

func (r *Recorder) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

// look notes what the program did by itself since the last look.
func (r *Recorder) look() {
	found := map[string]os.FileInfo{}
	var names []string
	_ = fs.WalkDir(os.DirFS(r.dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." || strings.HasSuffix(name, "-shm") {
			return nil // what vanishes meanwhile is seen next time
		}
		if info, err := d.Info(); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
			found[name], names = info, append(names, name)
		}
		return nil
	})
	gone := map[string]*entryOf{}
	for name, e := range r.live {
		if name != "." && found[name] == nil {
			gone[name] = e
		}
	}
	for _, name := range names {
		r.see(name, found[name], gone)
	}
	for name := range gone {
		delete(r.live, name)
		r.add(event{change: change{kind: moves, moves: r.moves(name, 0), durable: r.durable(name)}})
	}
}

// see compares one name with what was known of it.
func (r *Recorder) see(name string, info os.FileInfo, gone map[string]*entryOf) {
	here := r.live[name]
	switch {
	case here == nil:
		for old, e := range gone {
			if e.info != nil && os.SameFile(e.info, info) {
				r.rename(old, name, e)
				delete(gone, old)
				return
			}
		}
		if len(r.events) == 0 || !isLog(name) { // its opening tells of a log
			r.appear(name, info)
		}
	case here.info == nil || info.IsDir() || here.own && os.SameFile(here.info, info):
	case !os.SameFile(here.info, info):
		if !isLog(name) {
			r.appear(name, info)
		}
	case info.Size() != here.info.Size() || !info.ModTime().Equal(here.info.ModTime()):
		if data, err := os.ReadFile(r.path(name)); err == nil {
			here.info = info
			r.add(event{change: change{node: here.node, kind: replaces, data: data, durable: r.durable(name)}})
		}
	}
}

// isLog tells SQLite's own side files.
func isLog(name string) bool {
	return strings.HasSuffix(name, "-wal") || strings.HasSuffix(name, "-journal")
}

// appear notes a file or folder that the program made, or put over another.
func (r *Recorder) appear(name string, info os.FileInfo) {
	e := &entryOf{node: r.node(), info: info}
	c := change{node: e.node, kind: makes, folder: info.IsDir(), durable: r.durable(name)}
	c.moves = r.moves(name, e.node)
	if info.Mode().IsRegular() && info.Size() > 0 {
		data, err := os.ReadFile(r.path(name))
		if err != nil {
			return // gone already
		}
		c.data = data
	}
	r.live[name] = e
	r.add(event{change: c})
}

// rename notes a file that has another name now.
func (r *Recorder) rename(old, name string, e *entryOf) {
	delete(r.live, old)
	r.live[name] = e
	both := append(r.moves(old, 0), r.moves(name, e.node)...)
	r.add(event{change: change{kind: moves, moves: both, durable: r.durable(name)}})
}

func (r *Recorder) durable(name string) bool { return r.Synced != nil && r.Synced(name) }
