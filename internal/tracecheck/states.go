package main

import (
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// change is something that a call did to the disk, and that may be lost until a
// sync that began later has returned.
type change struct {
	node     int // whose content changed; 0: a name did
	truncate bool
	off      int64
	data     string
	path     string // the name that changed
	to       int    // the node that it is of now; 0: none
	from     string // the name that the node had before, which goes with it
	returned int
}

// disk is what is on stable storage of a folder, and what is not yet.
type disk struct {
	dir     string
	live    map[string]int  // names as programs see them, to nodes
	names   map[string]int  // as they are stored
	content map[int][]byte  // as it is stored
	folders map[int]bool    // nodes
	pending []change        // in order
	keys    map[string]bool // sent so far
	next    int
}

func newDisk(dir string) *disk {
	return &disk{dir: dir, live: map[string]int{}, names: map[string]int{}, content: map[int][]byte{}, folders: map[int]bool{}, keys: map[string]bool{}}
}

// happenings are the calls in the order in which they count: a sync when it has
// returned, since it promises nothing before, all others when they began.
func happenings(calls []call) []call {
	when := func(c call) int {
		if isSync(c) {
			return c.returned
		}
		return c.began
	}
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b call) int { return when(a) - when(b) })
	return calls
}

// apply notes a call, and reports whether it concerned the folder or was a send.
func (d *disk) apply(c call) bool {
	if m := keyLine.FindStringSubmatch(c.data); m != nil && strings.HasPrefix(c.file, "socket:") {
		d.keys[m[1]] = true
		return true
	}
	inside := func(path string) bool { return strings.HasPrefix(path, d.dir+"/") && !strings.HasSuffix(path, "-shm") }
	if !c.ok && c.returned != never || !inside(c.file) && c.file != d.dir {
		return false
	}
	switch c.name {
	case "open", "openat":
		if !c.creates || d.live[c.file] != 0 {
			return false
		}
		d.rename(c.file, "", d.node(), c.returned)
	case "mkdir", "mkdirat":
		id := d.node()
		d.folders[id] = true
		d.rename(c.file, "", id, c.returned)
	case "unlink", "unlinkat":
		d.rename(c.file, "", 0, c.returned)
	case "rename", "renameat", "renameat2":
		d.rename(c.to, c.file, d.live[c.file], c.returned)
	case "pwrite64", "write":
		d.pending = append(d.pending, change{node: d.live[c.file], off: c.off, data: c.data, returned: c.returned})
	case "ftruncate":
		d.pending = append(d.pending, change{node: d.live[c.file], truncate: true, off: c.off, returned: c.returned})
	case "fsync", "fdatasync":
		d.sync(c)
	}
	return true
}

func (d *disk) node() int {
	d.next++
	return d.next
}

func (d *disk) rename(path, from string, to, returned int) {
	c := change{path: path, to: to, from: from, returned: returned}
	c.move(d.live)
	d.pending = append(d.pending, c)
}

// move does the change to names.
func (p change) move(names map[string]int) {
	delete(names, p.from)
	if names[p.path] = p.to; p.to == 0 {
		delete(names, p.path)
	}
}

// sync stores what was done before it began to the file, or to names in the
// folder.
func (d *disk) sync(c call) {
	id, rest := d.live[c.file], d.pending[:0:0]
	for _, p := range d.pending {
		switch mine := p.node != 0 && p.node == id || p.node == 0 && filepath.Dir(p.path) == c.file; {
		case !mine || p.returned >= c.began:
			rest = append(rest, p)
		case p.node != 0:
			d.content[p.node] = p.patch(d.content[p.node], nil)
		default:
			p.move(d.names)
		}
	}
	d.pending = rest
}

// patch does the change to a content, in place. torn leaves out some of its
// sectors.
func (p change) patch(content []byte, torn *rand.Rand) []byte {
	const sector = 512
	end := int(p.off) + len(p.data)
	if p.truncate && end < len(content) {
		return content[:end]
	}
	if end > len(content) {
		content = append(content, make([]byte, end-len(content))...)
	}
	for from := 0; from < len(p.data); from += sector {
		if torn == nil || torn.IntN(2) == 0 {
			copy(content[int(p.off)+from:end], p.data[from:min(from+sector, len(p.data))])
		}
	}
	return content
}

// The kinds of states: how much of what was not synced is there.
const (
	nothing = iota
	everything
	names
	some
	prefix
	torn
	kinds
)

// state is what a power cut could leave: files and folders by path.
func (d *disk) state(kind int, random *rand.Rand) (files map[string][]byte, folders []string) {
	first := random.IntN(len(d.pending) + 1)
	keep := func(i int, name bool) bool {
		switch kind {
		case nothing:
			return false
		case everything:
			return true
		case names:
			return name
		case prefix:
			return i < first
		}
		return random.IntN(2) == 0
	}
	at, content := maps.Clone(d.names), map[int][]byte{}
	for i, p := range d.pending {
		switch {
		case !keep(i, p.node == 0):
		case p.node == 0:
			p.move(at)
		default:
			now, ok := content[p.node]
			if !ok {
				now = slices.Clone(d.content[p.node])
			}
			var tear *rand.Rand
			if kind == torn {
				tear = random
			}
			content[p.node] = p.patch(now, tear)
		}
	}
	files = map[string][]byte{}
	for path, id := range at {
		switch now, ok := content[id]; {
		case d.folders[id]:
			folders = append(folders, path)
		case ok:
			files[path] = now
		default:
			files[path] = d.content[id]
		}
	}
	return files, folders
}

// write makes the state in a folder. What is in a folder that is not there is
// lost.
func (d *disk) write(to string, files map[string][]byte, folders []string) error {
	for _, f := range folders {
		if err := os.MkdirAll(to+strings.TrimPrefix(f, d.dir), 0o700); err != nil {
			return err
		}
	}
	for path, data := range files {
		target := to + strings.TrimPrefix(path, d.dir)
		if _, err := os.Stat(filepath.Dir(target)); err != nil {
			continue
		}
		if err := os.WriteFile(target, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

var seed = maphash.MakeSeed()

// sum tells states apart.
func sum(files map[string][]byte, keys int) uint64 {
	all := uint64(keys)
	for path, data := range files {
		all ^= maphash.Comparable(seed, struct {
			path string
			data uint64
		}{path, maphash.Bytes(seed, data)})
	}
	return all
}
