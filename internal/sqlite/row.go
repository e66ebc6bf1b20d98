package sqlite

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
)

// Row is one intent as it is stored, in the plain types of the database.
// Instants are Unix nanoseconds, zero for none.
type Row struct {
	ID          int64
	Scope       string
	Operation   string // empty: unnamed
	Generation  int64
	Key         string
	Adopted     []byte
	Credential  []byte
	Name        string
	Provider    string
	Method      string
	URL         string
	Fingerprint []byte
	Place       string
	Encoding    string
	Retention   int64
	Renews      string
	Withheld    string
	Created     int64

	Request *Request // nil: not asked for, none, or pruned
	// Rekeyed is Request with another key in it, given to Begin; nil: the key is
	// not in it.
	Rekeyed func(key string) (*Request, error)

	Status
	Outcome *Outcome // nil: none stored

	Owned     bool // a living handle has it
	Damaged   bool // what is stored is not what was written
	Unwritten bool // held, which the file does not say: it cannot be written there

	stored *Status // what is stored where that cannot be; else nil
	print  []byte  // the fingerprint as it is stored where it is sealed; else nil
	noKey  error   // why its request cannot be opened here; nil: it can
}

// Request is what would be sent.
type Request struct {
	Target, Host string
	Header, Body []byte

	BodyNotKept bool // Body is empty, and was not
	bodySum     []byte
}

// Status is where an intent stands.
type Status struct {
	Version    int64
	State      string
	Doubt      bool
	HoldReason string
	Owner      int64 // zero: none
	Attempts   int64
	Deaths     int64
	Resumes    int64
	Began      int64
	Prepared   bool
	Notify     bool
	FirstSent  int64
	Due        int64
	Wait       int64
	Expires    int64
	Settled    int64
	By, Note   string
}

// Outcome is the answer that made an intent final.
type Outcome struct {
	StatusCode int64
	Complete   bool
	Replayed   bool
	RequestID  string
	Header     []byte
	Body       []byte // nil: not kept

	damaged bool // what is stored is not what was written
}

// Attempt is one send.
type Attempt struct {
	Number         int64
	Started, Ended int64
	Phase          string
	StatusCode     int64
	Decision       string
	Error          string
}

// The states, spelled as in the schema.
const (
	pending   = "pending"
	inFlight  = "in_flight"
	unknown   = "unknown"
	held      = "held"
	withdrawn = "withdrawn"
	succeeded = "succeeded"
	rejected  = "rejected"

	holdChecksum = "checksum"
)

func final(state string) bool { return state == succeeded || state == rejected }

// The checksums are for damage that SQLite does not notice: a flipped byte in
// a payload. They are no defence against people.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// scratch are buffers for what is summed.
var scratch = sync.Pool{New: func() any { return new(summer) }}

// summer collects fields, each with its length, so that a byte cannot move
// between two of them.
type summer struct {
	buf []byte
	crc uint32
}

func newSum() *summer {
	c := scratch.Get().(*summer)
	c.buf, c.crc = c.buf[:0], 0
	return c
}

func (c *summer) text(texts ...string) *summer {
	for _, s := range texts {
		c.buf = append(binary.AppendUvarint(c.buf, uint64(len(s))), s...)
	}
	return c
}

func (c *summer) number(n int64) *summer {
	c.buf = binary.LittleEndian.AppendUint64(c.buf, uint64(n))
	return c
}

// blob may be large and is not copied.
func (c *summer) blob(p []byte) *summer {
	c.number(int64(len(p)))
	c.crc = crc32.Update(crc32.Update(c.crc, castagnoli, c.buf), castagnoli, p)
	c.buf = c.buf[:0]
	return c
}

// end gives the sum and the buffer back.
func (c *summer) end() int64 {
	n := int64(crc32.Update(c.crc, castagnoli, c.buf))
	scratch.Put(c)
	return n
}

// headSum covers what identifies the intent and how it is sent.
func (r *Row) headSum() int64 {
	print := r.Fingerprint
	if r.print != nil {
		print = r.print
	}
	return newSum().text(r.Scope, r.Operation, r.Key, r.Name, r.Method, r.URL, r.Place, r.Encoding).
		number(r.Generation).number(r.Retention).number(r.Created).
		blob(r.Adopted).blob(r.Credential).blob(print).end()
}

func (q *Request) sum() int64 {
	if q == nil {
		return 0
	}
	return newSum().text(q.Target, q.Host).blob(q.Header).blob(q.Body).end()
}

func (o *Outcome) headSum() int64 {
	return newSum().number(o.StatusCode).text(o.RequestID).blob(o.Header).end()
}

func (o *Outcome) bodySum() int64 {
	return newSum().blob(o.Body).end()
}
