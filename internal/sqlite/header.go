package sqlite

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

// Headers are stored exactly: keys as they are in the map, spelled as the
// caller did, repeated values in order. The form is a version byte, the number
// of keys plus one (zero: a nil map), and for each key in sorted order its text
// and the number of values plus one (zero: nil) with theirs.
const headerVersion = 1

var errHeader = errors.New("the stored header is damaged")

// EncodeHeader writes a header map.
func EncodeHeader(h map[string][]string) []byte {
	if h == nil {
		return []byte{}
	}
	var room [16]string
	keys := slices.AppendSeq(room[:0], maps.Keys(h))
	slices.Sort(keys)
	size := 8
	for k, values := range h {
		size += len(k) + 8
		for _, v := range values {
			size += len(v) + 3
		}
	}
	b := append(make([]byte, 0, size), headerVersion)
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = appendText(b, k)
		values := h[k]
		if values == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(values))+1)
		for _, v := range values {
			b = appendText(b, v)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// DecodeHeader reads what EncodeHeader wrote. Nothing decodes to nil.
func DecodeHeader(b []byte) (map[string][]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != headerVersion {
		return nil, errHeader
	}
	d := decoder{rest: b[1:]}
	n := d.count()
	h := make(map[string][]string, n)
	for range n {
		k := d.text()
		count := d.count()
		if d.failed {
			return nil, errHeader
		}
		if count == 0 {
			h[k] = nil
			continue
		}
		values := make([]string, 0, count-1)
		for range count - 1 {
			values = append(values, d.text())
		}
		h[k] = values
	}
	if d.failed || len(d.rest) > 0 || len(h) != n {
		return nil, errHeader
	}
	return h, nil
}

type decoder struct {
	rest   []byte
	failed bool
}

// count reads a number of things to come, each of which takes a byte at least;
// a damaged one must not make us allocate.
func (d *decoder) count() int {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > uint64(len(d.rest)) {
		d.fail()
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}

func (d *decoder) text() string {
	n := d.count()
	if n > len(d.rest) {
		d.fail()
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) fail() { d.failed, d.rest = true, nil }
