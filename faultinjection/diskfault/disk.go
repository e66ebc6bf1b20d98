package diskfault

import (
	"maps"
	"slices"
)

// root is the node of the recorder's folder.
const root = 1

// changeKind is what a change does to its node.
type changeKind uint8

const (
	nothing   changeKind = iota
	makes                // a file or folder, with its name and what is in it
	writes               // data at off
	truncates            // to off bytes
	replaces             // all that is in it by data
	moves                // names only
)

// change is one that a power cut may undo while it is not synced.
type change struct {
	number  int
	kind    changeKind
	node    int
	off     int64
	data    []byte
	moves   []move
	folder  bool
	durable bool // synced by whoever made it
}

// move gives a name in a folder to a node. Node 0 takes it away.
type move struct {
	dir  int
	name string
	node int
}

// disk is what is on stable storage, and the changes on the way to it.
type disk struct {
	nodes   map[int]*node
	pending []*change // in order
}

// node is a file or a folder. Its content is never changed in place, since
// states share it.
type node struct {
	content []byte
	sum     uint64         // of content; 0: not known
	names   map[string]int // of a folder; nil: a file
}

// apply does one event.
func (d *disk) apply(e *event) {
	if e.kind == makes {
		n := &node{} // empty, until its content is synced
		if e.folder {
			n.names = map[string]int{}
		}
		d.nodes[e.node] = n
	}
	if e.kind != nothing {
		d.pending = append(d.pending, &e.change)
	}
	if e.durable {
		d.syncFile(e.node, e.number+1)
		for _, m := range e.moves {
			d.syncDir(m.dir, e.number+1)
		}
	}
	if e.sync != 0 {
		d.syncFile(e.sync, e.upto)
	}
	if e.dir != 0 {
		d.syncDir(e.dir, e.upto)
	}
}

// syncFile makes the content of a file durable, as changed before the event
// with that number.
func (d *disk) syncFile(id, before int) {
	n := d.nodes[id]
	if n == nil {
		return
	}
	content, changed := n.content, false
	for _, c := range d.pending {
		if c.node == id && c.number < before && c.touches() {
			if !changed {
				content, changed = slices.Clone(content), true
			}
			content = c.patch(content)
		}
	}
	if !changed {
		return
	}
	n.content, n.sum = content, 0
	d.settle(func(c *change) bool {
		if c.node == id && c.number < before && c.touches() {
			c.kind, c.data = moves, nil
			return len(c.moves) == 0
		}
		return false
	})
}

// syncDir makes the names in a folder durable. A rename becomes so as a whole.
func (d *disk) syncDir(id, before int) {
	d.settle(func(c *change) bool {
		if c.number >= before || !slices.ContainsFunc(c.moves, func(m move) bool { return m.dir == id }) {
			return false
		}
		for _, m := range c.moves {
			m.apply(d.nodes[m.dir])
		}
		c.moves = nil
		return !c.touches()
	})
}

// settle drops the pending changes of which done reports that nothing is left.
// It is given copies, since states and later runs use the events.
func (d *disk) settle(done func(*change) bool) {
	left := d.pending[:0:0]
	for _, c := range d.pending {
		rest := *c
		if !done(&rest) {
			left = append(left, &rest)
		}
	}
	d.pending = left
}

func (m move) apply(dir *node) {
	if dir == nil {
		return
	}
	if m.node == 0 {
		delete(dir.names, m.name)
	} else {
		dir.names[m.name] = m.node
	}
}

// touches reports whether the change is one of content.
func (c *change) touches() bool {
	switch c.kind {
	case writes, truncates, replaces:
		return true
	case makes:
		return len(c.data) > 0
	}
	return false
}

// patch applies a change to content that may be changed in place.
func (c *change) patch(content []byte) []byte {
	switch c.kind {
	case writes:
		return write(content, c.off, c.data)
	case truncates:
		if c.off <= int64(len(content)) {
			return content[:c.off:c.off] // what grows again is zero
		}
		return append(content, make([]byte, c.off-int64(len(content)))...)
	case makes, replaces:
		return slices.Clone(c.data)
	}
	return content
}

// write puts data at an offset; a hole is zero.
func write(content []byte, off int64, data []byte) []byte {
	if end := off + int64(len(data)); end > int64(len(content)) {
		content = append(content, make([]byte, end-int64(len(content)))...)
	}
	copy(content[off:], data)
	return content
}

// clone is a copy that can be changed without the original.
func (d *disk) clone() *disk {
	c := &disk{nodes: map[int]*node{}, pending: slices.Clone(d.pending)}
	for id, n := range d.nodes {
		c.nodes[id] = &node{content: n.content, sum: n.sum, names: maps.Clone(n.names)}
	}
	return c
}
