package diskfault

import (
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// State is what a power cut could leave of the recorder's folder.
type State struct {
	// Point is how many events came before the cut, and Kind what became of
	// the changes that were not synced by then.
	Point int
	Kind  string
	// Files holds every file, by its name relative to the folder, with slashes,
	// and Dirs the folders in it. Read-only: states share what is in them.
	Files map[string][]byte
	Dirs  []string
	// Marks are the labels that were marked before the cut. Read-only.
	Marks []string
	// Sum is the same for states of one call of States with the same files.
	Sum uint64
}

// sector is what a disk writes whole or not at all.
const sector = 512

// The kinds of states. Names are what is in folders.
const (
	kindSynced  = "synced"        // only what was synced
	kindNames   = "synced, names" // and all names
	kindWritten = "written"       // all content, the synced names
	kindAll     = "all"           // all content, all names
	kindPrefix  = "prefix"        // the first few changes
	kindSubset  = "subset"        // any of them
	kindTorn    = "torn"          // any sectors of any of them
	kindCut     = "cut prefix"    // the first few, the last of them torn
	kindTrashed = "trashed"       // any of them, some sectors with zeros or noise instead
)

var (
	certainKinds = []string{kindSynced, kindNames, kindWritten, kindAll}
	randomKinds  = []string{kindPrefix, kindSubset, kindTorn, kindCut, kindTrashed}
)

// States rebuilds the disk as a power cut would have left it, after each event:
// with only what was synced; with all that was written; with a prefix, a subset
// or single sectors of it; with sectors trashed; each with folders as they were
// synced or later. It tries perPoint states at each point, four at least, and
// gives each combination of files and number of marks once. The same recorder,
// seed and perPoint give the same states. The -shm is always missing: it is made
// again. Bytes that were synced stay, even in a sector that is written again, as
// SQLite expects of disks (powersafe overwrite).
func (r *Recorder) States(seed uint64, perPoint int) iter.Seq[State] {
	r.mu.Lock()
	events, marks, disk := slices.Clone(r.events), slices.Clone(r.marks), r.base.clone()
	r.mu.Unlock()
	return func(yield func(State) bool) {
		b := builder{disk: disk.clone(), hash: maphash.MakeSeed()}
		type seen struct {
			sum   uint64
			marks int
		}
		given := map[seen]bool{}
		for i := range events {
			b.disk.apply(&events[i])
			b.random = rand.New(rand.NewPCG(seed, uint64(i)))
			for n := range max(perPoint, len(certainKinds)) {
				kind := kindOf(n)
				if n > 0 && len(b.disk.pending) == 0 {
					break // all is synced
				}
				s := b.state(kind)
				s.Point, s.Kind, s.Marks = i+1, kind, marks[:events[i].marks:events[i].marks]
				if id := (seen{s.Sum, len(s.Marks)}); given[id] {
					continue
				} else {
					given[id] = true
				}
				if !yield(s) {
					return
				}
			}
		}
	}
}

func kindOf(n int) string {
	if n < len(certainKinds) {
		return certainKinds[n]
	}
	return randomKinds[(n-len(certainKinds))%len(randomKinds)]
}

// builder makes states of a disk.
type builder struct {
	disk   *disk
	random *rand.Rand
	hash   maphash.Seed
	last   int // of a prefix: the first change that is not in it
}

// state makes one state of a kind.
func (b *builder) state(kind string) State {
	content := map[int][]byte{}         // of files that are not as synced
	folders := map[int]map[string]int{} // the same
	keep, keepNames := b.fate(kind)
	for i, c := range b.disk.pending {
		if c.touches() && keep(i) {
			now, ok := content[c.node]
			if !ok {
				now = slices.Clone(b.disk.nodes[c.node].content)
			}
			content[c.node] = b.patch(kind, c, now, i)
		}
		if len(c.moves) > 0 && keepNames(i) {
			for _, m := range c.moves {
				if folders[m.dir] == nil {
					folders[m.dir] = maps.Clone(b.disk.nodes[m.dir].names)
				}
				m.apply(&node{names: folders[m.dir]})
			}
		}
	}
	s := State{Files: map[string][]byte{}}
	b.list(&s, content, folders, root, "")
	return s
}

// fate decides which of the pending changes of content and of names are kept.
func (b *builder) fate(kind string) (content, names func(i int) bool) {
	all := func(int) bool { return true }
	none := func(int) bool { return false }
	some := func(int) bool { return b.random.IntN(2) == 0 }
	b.last = b.random.IntN(len(b.disk.pending) + 1)
	first := func(i int) bool { return i < b.last }
	switch kind {
	case kindSynced:
		return none, none
	case kindNames:
		return none, all
	case kindWritten:
		return all, none
	case kindAll:
		return all, all
	case kindPrefix, kindCut:
		content = func(i int) bool { return i < b.last || kind == kindCut && i == b.last }
	default:
		content = some
		if b.random.IntN(3) == 0 { // or the newest would hardly ever be kept with all before it
			content = all
		}
	}
	return content, []func(int) bool{all, none, some, first}[b.random.IntN(4)]
}

// patch applies a change, or what is left of it, to the content of its file.
func (b *builder) patch(kind string, c *change, content []byte, i int) []byte {
	switch {
	case kind == kindCut && i == b.last && c.kind == writes: // it ends anywhere
		return write(content, c.off, c.data[:b.random.IntN(len(c.data)+1)])
	case kind != kindTorn && kind != kindTrashed || c.kind != writes:
		return c.patch(content)
	}
	for from := 0; from < len(c.data); {
		to := min(from+sector-int((c.off+int64(from))%sector), len(c.data))
		piece := c.data[from:to]
		switch fate := b.random.IntN(4); {
		case fate < 2:
			content = write(content, c.off+int64(from), piece)
		case kind == kindTorn: // it stays as it was
		case fate == 2:
			content = write(content, c.off+int64(from), make([]byte, len(piece)))
		default:
			content = write(content, c.off+int64(from), b.noise(len(piece)))
		}
		from = to
	}
	return content
}

func (b *builder) noise(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(b.random.Uint32())
	}
	return p
}

// list fills a state with what a folder holds.
func (b *builder) list(s *State, content map[int][]byte, folders map[int]map[string]int, id int, at string) {
	names := folders[id]
	if names == nil {
		names = b.disk.nodes[id].names
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		id, full := names[name], path.Join(at, name)
		n := b.disk.nodes[id]
		if n == nil {
			continue
		}
		b.mix(s, full, 0)
		if n.names != nil {
			s.Dirs = append(s.Dirs, full)
			b.list(s, content, folders, id, full)
			continue
		}
		if data, ok := content[id]; ok {
			s.Files[full] = data
			b.mix(s, "", maphash.Bytes(b.hash, data))
			continue
		}
		if n.sum == 0 {
			n.sum = maphash.Bytes(b.hash, n.content)
		}
		s.Files[full] = n.content
		b.mix(s, "", n.sum)
	}
}

// mix adds to the sum of a state.
func (b *builder) mix(s *State, name string, sum uint64) {
	s.Sum = maphash.Comparable(b.hash, struct {
		before, sum uint64
		name        string
	}{s.Sum, sum, name})
}

// WriteTo writes the state into a folder, which should be empty. Nothing is
// synced.
func (s State) WriteTo(dir string) error {
	for _, name := range s.Dirs {
		if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(name)), 0o700); err != nil {
			return fmt.Errorf("diskfault: write state: %w", err)
		}
	}
	for name, data := range s.Files {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), data, 0o600); err != nil {
			return fmt.Errorf("diskfault: write state: %w", err)
		}
	}
	return nil
}
