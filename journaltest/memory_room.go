package journaltest

import (
	"encoding/binary"
	"net/http"

	"github.com/idem-go/idem"
)

// room is where a store keeps what it copies, many things to an allocation, so
// that the journal costs little beside the code under test.
type room struct {
	fresh    slab[row]
	attempts slab[idem.Attempt]
	bytes    slab[byte]
	scratch  []byte
}

func newRoom() room {
	return room{fresh: slab[row]{size: 16}, attempts: slab[idem.Attempt]{size: 32}, bytes: slab[byte]{size: 32 << 10}}
}

// slab hands out parts of larger allocations.
type slab[T any] struct {
	size int
	free []T
}

func (s *slab[T]) take(n int) []T {
	if n > s.size/4 && n > 1 {
		return make([]T, n)
	}
	if n > len(s.free) {
		s.free = make([]T, s.size)
	}
	part := s.free[:n:n]
	s.free = s.free[n:]
	return part
}

// keep copies b. Nothing becomes nil.
func (m *room) keep(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	kept := m.bytes.take(len(b))
	copy(kept, b)
	return kept
}

// header keeps h as plain bytes: for each name its number of values, then the
// texts, each with its length. nil is kept as nothing.
func (m *room) header(h http.Header) []byte {
	if h == nil {
		return nil
	}
	b := binary.AppendUvarint(m.scratch[:0], uint64(len(h)))
	for name, values := range h {
		b = appendText(binary.AppendUvarint(b, uint64(len(values))), name)
		for _, v := range values {
			b = appendText(b, v)
		}
	}
	m.scratch = b
	return m.keep(b)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// headerOf reads what header has written.
func headerOf(kept []byte) http.Header {
	if len(kept) == 0 {
		return nil
	}
	rest := string(kept)
	number := func() int {
		n, size := binary.Uvarint([]byte(rest[:min(len(rest), binary.MaxVarintLen64)]))
		rest = rest[size:]
		return int(n)
	}
	text := func() string {
		n := number()
		s := rest[:n]
		rest = rest[n:]
		return s
	}
	names := number()
	h := make(http.Header, names)
	for range names {
		values := make([]string, number())
		name := text()
		for i := range values {
			values[i] = text()
		}
		h[name] = values
	}
	return h
}
