package main

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// call is one system call: the lines at which it began and returned.
type call struct {
	name            string
	file, to        string // to: the new name
	data            string
	off             int64 // of a write; of ftruncate the new size
	creates         bool
	began, returned int
	ok              bool
}

var (
	line     = regexp.MustCompile(`^(?:(\d+) +)?(\w+)\((.*)$`)
	resumed  = regexp.MustCompile(`^(?:(\d+) +)?<\.\.\. (\w+) resumed>(.*)$`)
	returned = regexp.MustCompile(`= (-?\d+)(?:[ <]|$)`)
	offset   = regexp.MustCompile(`, (\d+)(?:\)| <unfinished)`)
	keyLine  = regexp.MustCompile(`(?i)idempotency-key: ([0-9a-f-]{36})`)
)

const (
	unfinished = " <unfinished ...>"
	never      = int(^uint(0) >> 1) // a call that did not return
)

// parse reads strace's output (-f -y -xx). A call that another thread's calls
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
		c := call{name: m[2], began: i, returned: i}
		c.read(m[3])
		if strings.HasSuffix(l, unfinished) {
			open[m[1]] = len(calls)
			c.returned = never
		} else {
			c.ok = succeeded(m[3])
		}
		calls = append(calls, c)
	}
	return calls
}

// read takes the arguments: a descriptor with its path, or a path; and texts.
func (c *call) read(args string) {
	rest := args
	if from, to := strings.IndexByte(args, '<'), strings.IndexByte(args, '>'); from > 0 && from < to && !strings.Contains(args[:from], `"`) {
		c.file, rest = plain(args[from+1:to]), args[to+1:]
	}
	var texts []string
	for {
		_, after, ok := strings.Cut(rest, `"`)
		if !ok {
			break
		}
		end := strings.IndexByte(after, '"') // -xx leaves no other quote
		if end < 0 {
			break
		}
		texts = append(texts, plain(after[:end]))
		rest = after[end+1:]
	}
	if m := offset.FindAllStringSubmatch(rest, -1); m != nil {
		c.off, _ = strconv.ParseInt(m[len(m)-1][1], 10, 64)
	}
	switch {
	case len(texts) == 0:
	case c.file != "" && !strings.HasPrefix(args, "AT_FDCWD"):
		c.data = texts[0]
	default:
		c.file, c.creates = texts[0], strings.Contains(rest, "O_CREAT")
		if len(texts) > 1 {
			c.to = texts[1]
		}
	}
}

// plain undoes -xx.
func plain(text string) string {
	if !strings.HasPrefix(text, `\x`) {
		return text
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	if err != nil {
		return text
	}
	return string(raw)
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
