package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// call is one system call: the lines at which it began and returned.
type call struct {
	name, file, data string
	began, returned  int
	ok               bool
}

var (
	line     = regexp.MustCompile(`^(?:(\d+) +)?(\w+)\((\d+)<([^>]*)>(.*)$`)
	resumed  = regexp.MustCompile(`^(?:(\d+) +)?<\.\.\. (\w+) resumed>(.*)$`)
	returned = regexp.MustCompile(`= (-?\d+)(?: |$)`)
	keyLine  = regexp.MustCompile(`(?i)idempotency-key: ([0-9a-f-]{36})`)
)

// parse reads strace's output (-f -y). A call that another thread's calls
// interrupt stands on two lines.
func parse(text string) []call {
	var calls []call
	open := map[string]int{} // thread -> index of its unfinished call
	for i, l := range strings.Split(text, "\n") {
		if m := resumed.FindStringSubmatch(l); m != nil {
			if at, ok := open[m[1]]; ok {
				calls[at].returned, calls[at].ok = i, succeeded(m[3])
				delete(open, m[1])
			}
			continue
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		c := call{name: m[2], file: m[4], data: m[5], began: i, returned: i}
		if strings.HasSuffix(l, "<unfinished ...>") {
			open[m[1]] = len(calls)
			c.returned = int(^uint(0) >> 1) // never, unless it is resumed
		} else {
			c.ok = succeeded(m[5])
		}
		calls = append(calls, c)
	}
	return calls
}

func succeeded(tail string) bool {
	all := returned.FindAllStringSubmatch(tail, -1)
	return len(all) > 0 && !strings.HasPrefix(all[len(all)-1][1], "-")
}

// sent is a request with a key on its way to a socket.
type sent struct {
	key   string
	syncs int // since the send before it
}

// judge finds every send of a key and what is wrong with it: a key must have
// been written to a -wal file, and a sync of that file must have begun after
// that write returned, and returned before the send began.
func judge(calls []call) (sends []sent, violations []string) {
	last := -1
	for _, c := range calls {
		m := keyLine.FindStringSubmatch(c.data)
		if m == nil || !strings.HasPrefix(c.file, "socket:") && !strings.HasPrefix(c.file, "TCP") {
			continue
		}
		s := sent{key: m[1]}
		for _, sync := range calls {
			if isSync(sync) && sync.began > last && sync.returned < c.began {
				s.syncs++
			}
		}
		if !durable(calls, s.key, c.began) {
			violations = append(violations, fmt.Sprintf("line %d: key %d was sent before it was synced", c.began+1, len(sends)+1))
		}
		sends = append(sends, s)
		last = c.began
	}
	return sends, violations
}

func durable(calls []call, key string, before int) bool {
	return slices.ContainsFunc(calls, func(w call) bool {
		return w.name == "pwrite64" && strings.HasSuffix(w.file, "-wal") && w.ok && strings.Contains(w.data, key) &&
			slices.ContainsFunc(calls, func(s call) bool {
				return isSync(s) && s.file == w.file && s.ok && s.began > w.returned && s.returned < before
			})
	})
}

// flushMark is what the child says once Shutdown has returned.
const flushMark = "flushed"

// flushed reports whether the -wal was synced between the last send and the
// child's word that it shut down.
func flushed(calls []call) bool {
	last, word := -1, -1
	for _, c := range calls {
		switch {
		case keyLine.MatchString(c.data) && strings.HasPrefix(c.file, "socket:"):
			last = c.began
		case c.name == "write" && strings.Contains(c.data, flushMark):
			word = c.began
		}
	}
	return word > last && slices.ContainsFunc(calls, func(s call) bool {
		return isSync(s) && strings.HasSuffix(s.file, "-wal") && s.ok && s.began > last && s.returned < word
	})
}

func isSync(c call) bool { return c.name == "fsync" || c.name == "fdatasync" }

func without(calls []call, names ...string) []call {
	return slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return slices.Contains(names, c.name) })
}
