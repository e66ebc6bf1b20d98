package sqlite

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
)

// Where bodies are not kept, a row says so: else an empty one would be sent, or
// be given as the answer.

// notKeptHeader is the version byte before the header of a request whose body is
// not kept; a digest of that body follows. To who does not know of it the header
// is damaged.
const notKeptHeader = 3

const (
	holdBodyNotKept = "body_not_kept"
	holdUnnamed     = "unnamed"
)

var errOtherBytes = errors.New("the body is not in the journal (SQLiteOptions.NoRequestBodies), and this call's is not, byte for byte, the one that was sent")

var errPrepared = errors.New("what is prepared is sent from the journal, which keeps no request bodies (SQLiteOptions.NoRequestBodies)")

// mayPrepare refuses what could never be delivered.
func (s *Store) mayPrepare(want *Row) error {
	if s.opts.NoRequestBodies && want.Prepared && want.Request != nil && len(want.Request.Body) > 0 {
		return fmt.Errorf("%w: %w", ErrNothingWritten, errPrepared)
	}
	return nil
}

// stored is a request as it is written into the row.
func (t *transaction) stored(r *Row, q *Request) (*Request, error) {
	if t.s.opts.NoRequestBodies && q != nil && len(q.Body) > 0 {
		sum := sha256.Sum256(q.Body)
		header := append(append([]byte{notKeptHeader}, sum[:]...), q.Header...)
		q = &Request{Target: q.Target, Host: q.Host, Header: header}
	}
	return t.c.seal.request(r, q)
}

// sayNotKept reads the mark that stored has made.
func (q *Request) sayNotKept() {
	if q != nil && len(q.Header) > sha256.Size && q.Header[0] == notKeptHeader {
		q.bodySum, q.Header, q.BodyNotKept = q.Header[1:1+sha256.Size], q.Header[1+sha256.Size:], true
	}
}

// lacksBody reports a request that cannot be sent from the journal.
func (r *Row) lacksBody() bool { return r.Request != nil && r.Request.BodyNotKept }

// lacking is why such a row is held: of an unnamed one no call can go on.
func (r *Row) lacking() string {
	if r.Operation == "" && r.Adopted == nil {
		return holdUnnamed
	}
	return holdBodyNotKept
}

// keepsNoAnswer takes the body from an outcome that is to be written.
func (s *Store) keepsNoAnswer(c *Change) {
	if s.opts.NoResponseBodies && c.Outcome != nil && len(c.Outcome.Body) > 0 {
		kept := *c.Outcome
		kept.Body, kept.Complete = nil, false
		c.Outcome = &kept
	}
}

// goesOn reports whether a held row was held only for want of what this call
// has.
func (b *beginOp) goesOn(got *Row) bool {
	return got.HoldReason == holdBodyNotKept && b.want.Request != nil && got.lacksBody()
}

// complete gives a row that has no request, or not its body, that of this call:
// by the fingerprint it is the same. It has the row's key, where that is in it.
func (b *beginOp) complete(t *transaction, got *Row) error {
	pruned := got.State == withdrawn && got.Request == nil
	switch {
	case b.want.Request == nil:
		if got.lacksBody() { // who claims it is told that there is none
			got.Request = nil
		}
		return nil
	case !pruned && !got.lacksBody():
		return nil
	}
	request := b.want.Request
	if b.want.Rekeyed != nil {
		var err error
		if request, err = b.want.Rekeyed(got.Key); err != nil {
			b.err = fmt.Errorf("%w: %w", ErrNothingWritten, err)
			return nil
		}
	}
	if pruned {
		q, err := t.stored(got, request)
		if err != nil {
			return err
		}
		got.Request = request
		_, err = t.c.exec(restoreRequest, q.sum(), q.Target, q.Host, blob(q.Header), blob(q.Body), got.ID)
		return err
	}
	// The fingerprint may leave out a part of the body, and does where the key
	// stands in it.
	if sum := sha256.Sum256(request.Body); !bytes.Equal(sum[:], got.Request.bodySum) {
		b.err = fmt.Errorf("%w: %w", ErrNothingWritten, errOtherBytes)
		return nil
	}
	got.Request.Body, got.Request.BodyNotKept = request.Body, false
	if !t.s.opts.NoRequestBodies { // this handle keeps it
		q, err := t.stored(got, got.Request)
		if err != nil {
			return err
		}
		if _, err := t.c.exec(restoreRequest, q.sum(), q.Target, q.Host, blob(q.Header), blob(q.Body), got.ID); err != nil {
			return err
		}
	}
	if got.State != held {
		return nil
	}
	got.State, got.HoldReason, got.Settled, got.Due, got.Wait = pending, "", 0, 0, 0
	if got.Doubt {
		got.State = unknown
	}
	_, err := t.c.exec(dueNow, got.ID)
	return err
}
