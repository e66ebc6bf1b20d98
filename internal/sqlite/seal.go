package sqlite

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
)

// Sealing. With a sealer, what a row stores of the request and the answer is
// sealed, and bound to the row by associated data:
//
//   - header of an intent holds target, host and header; body holds the body;
//   - header and body of an outcome hold those;
//   - fingerprint holds the fingerprint, under a key of the journal's own, since
//     that must be comparable for longer than the sealer's keys are kept.
//
// The checksums are over what is stored. Nothing here seals status.

// Sealer seals under a current key, and opens under any that it has.
type Sealer interface {
	Seal(plaintext, associated []byte) (key string, sealed []byte, err error)
	Open(key string, sealed, associated []byte) (plaintext []byte, err error)
}

// ErrSealed means that there is no key to what is stored.
var ErrSealed = errors.New("it is sealed, and there is no key to it")

var (
	errUnsealed = errors.New("it is not sealed, and should be")
	errSeal     = errors.New("it could not be sealed")
)

// sealedHeader is the version byte of a sealed header column, beside those of
// EncodeHeader: it says that the row's request, or the outcome, is sealed. To
// who does not know of it the header is damaged.
const sealedHeader = 2

const longestKey = 64 // bytes of a key's id

// sealing is how a sealed journal is read and written. It never changes.
type sealing struct {
	sealer Sealer
	prints cipher.AEAD // for fingerprints
	since  int64       // the last row that was made before: it may be unsealed
}

// Seals reports that what is stored of requests and answers is sealed.
func (s *Store) Seals() bool { return s.seal != nil }

func (g *sealing) usePrintKey(key []byte) error {
	block, err := aes.NewCipher(key)
	if err == nil {
		g.prints, err = cipher.NewGCMWithRandomNonce(block)
	}
	return err
}

// guarded is a sealer whose panic is an error, since a write must come to an end.
// What it says is not shown: it may be a key.
func guarded(s Sealer) Sealer { return guardedSealer{s} }

type guardedSealer struct{ sealer Sealer }

func (g guardedSealer) Seal(plaintext, associated []byte) (key string, sealed []byte, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the Sealer panicked")
		}
	}()
	return g.sealer.Seal(plaintext, associated)
}

// Open proves nothing about the value when it panics.
func (g guardedSealer) Open(key string, sealed, associated []byte) (plaintext []byte, err error) {
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("%w here: the Sealer panicked", ErrSealed)
		}
	}()
	return g.sealer.Open(key, sealed, associated)
}

// seal is a sealed value: the key's id with its length, and what the sealer
// made.
func seal(s Sealer, dst, plaintext, associated []byte) ([]byte, error) {
	key, sealed, err := guarded(s).Seal(plaintext, associated)
	if err == nil && (key == "" || len(key) > longestKey) {
		err = fmt.Errorf("the key id has %d bytes, not 1 to %d", len(key), longestKey)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSeal, err)
	}
	dst = append(append(dst, byte(len(key))), key...)
	return append(dst, sealed...), nil
}

func unseal(s Sealer, stored, associated []byte) ([]byte, error) {
	if len(stored) == 0 || stored[0] == 0 || stored[0] > longestKey || len(stored) < 1+int(stored[0]) {
		return nil, errUnsealed
	}
	n := 1 + int(stored[0])
	return guarded(s).Open(string(stored[1:n]), stored[n:], associated)
}

// bound is what a sealed column of the row is bound to: all that is written
// once, and is readable. The credential may be renewed.
func (r *Row) bound(column string) []byte {
	b := make([]byte, 0, 256+len(r.Operation)+len(r.URL))
	for _, s := range []string{
		"idem sealed 1", column, r.Scope, r.Operation, r.Key, string(r.Adopted), r.Name, r.Provider, r.Method, r.URL,
		r.Place, r.Encoding, r.Renews, r.Withheld,
	} {
		b = appendText(b, s)
	}
	for _, n := range []int64{r.Generation, r.Retention, r.Created} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// bound is what a sealed column of the outcome is bound to: the row, its final
// state, and what is readable of the outcome.
func (o *Outcome) bound(r *Row, state, column string) []byte {
	b := appendText(appendText(r.bound("outcome"), column), state)
	b = binary.LittleEndian.AppendUint64(appendText(b, o.RequestID), uint64(o.StatusCode))
	return append(b, byte(bit(o.Replayed)))
}

// request is q as it is stored in the row.
func (g *sealing) request(r *Row, q *Request) (*Request, error) {
	if g == nil || q == nil {
		return q, nil
	}
	head := make([]byte, 0, len(q.Target)+len(q.Host)+len(q.Header)+8)
	head = append(appendText(appendText(head, q.Target), q.Host), q.Header...)
	header, err := seal(g.sealer, []byte{sealedHeader}, head, r.bound("header"))
	if err != nil {
		return nil, err
	}
	body, err := seal(g.sealer, nil, q.Body, r.bound("body"))
	return &Request{Header: header, Body: body}, err
}

// openRequest is the request that is stored as q.
func (g *sealing) openRequest(r *Row, q *Request) (*Request, error) {
	if !isSealed(q.Header) {
		if r.ID > g.since {
			return nil, errUnsealed
		}
		return q, nil
	}
	if q.Target != "" || q.Host != "" {
		return nil, errUnsealed
	}
	head, err := unseal(g.sealer, q.Header[1:], r.bound("header"))
	if err != nil {
		return nil, err
	}
	body, err := unseal(g.sealer, q.Body, r.bound("body"))
	if err != nil {
		return nil, err
	}
	opened, err := openedHead(head)
	if err != nil {
		return nil, err
	}
	opened.Body = body
	return opened, nil
}

// openedHead is a request without its body.
func openedHead(head []byte) (*Request, error) {
	d := decoder{rest: head}
	q := &Request{Target: d.text(), Host: d.text()}
	if d.failed {
		return nil, errHeader
	}
	q.Header = d.rest
	return q, nil
}

// outcome is o as it is stored in the row.
func (g *sealing) outcome(r *Row, state string, o *Outcome) (*Outcome, error) {
	stored := *o
	header, err := seal(g.sealer, []byte{sealedHeader}, o.Header, o.bound(r, state, "header"))
	if err != nil {
		return nil, err
	}
	stored.Header = header
	if o.Body != nil {
		stored.Body, err = seal(g.sealer, nil, o.Body, o.bound(r, state, "body"))
	}
	return &stored, err
}

// openOutcome opens the outcome of r. What cannot be opened is not told.
func (g *sealing) openOutcome(r *Row) {
	o := r.Outcome
	if o == nil || o.damaged {
		return
	}
	state := r.State
	if r.stored != nil {
		state = r.stored.State
	}
	sealed := isSealed(o.Header)
	if !sealed && r.ID <= g.since {
		return
	}
	err := errUnsealed
	if sealed {
		o.Header, err = unseal(g.sealer, o.Header[1:], o.bound(r, state, "header"))
	}
	if errors.Is(err, ErrSealed) { // of an old key: it still says how it ended
		o.Complete, o.Header, o.Body = false, nil, nil
		return
	}
	if err != nil {
		r.Outcome = &Outcome{damaged: true}
		return
	}
	if o.Body != nil {
		body, err := unseal(g.sealer, o.Body, o.bound(r, state, "body"))
		if o.Body = blob(body); err != nil {
			o.Complete, o.Body = false, nil
		}
	}
}

// fingerprint is the row's as it is stored.
func (g *sealing) fingerprint(r *Row) []byte {
	return g.prints.Seal(nil, nil, r.Fingerprint, r.bound("fingerprint"))
}

// open opens what was read of a row, in place. The request only where it may be
// sent: it is not told otherwise.
func (g *sealing) open(r *Row, request bool) {
	if g == nil {
		return
	}
	if r.ID > g.since && !r.Damaged {
		print, err := g.prints.Open(nil, nil, r.Fingerprint, r.bound("fingerprint"))
		r.print, r.Fingerprint, r.Damaged = r.Fingerprint, blob(print), err != nil
	}
	g.openOutcome(r)
	q := r.Request
	r.Request = nil
	if q == nil || !request || r.Damaged {
		return
	}
	var err error
	if r.Request, err = g.openRequest(r, q); errors.Is(err, ErrSealed) {
		r.noKey = err
	} else if err != nil {
		r.Damaged = true
	}
}
