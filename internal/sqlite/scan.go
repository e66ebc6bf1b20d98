package sqlite

import (
	"database/sql/driver"
	"encoding/json"
)

// cursor reads the values of one result row in order.
type cursor struct {
	values []driver.Value
	next   int
	odd    bool // a value was read that its column cannot have
}

func (c *cursor) value() driver.Value {
	v := c.values[c.next]
	c.next++
	return v
}

func (c *cursor) text() string {
	s, ok := c.value().(string)
	c.odd = c.odd || !ok
	return s
}

func (c *cursor) number() int64 {
	n, ok := c.value().(int64)
	c.odd = c.odd || !ok
	return n
}

// optional is zero for NULL.
func (c *cursor) optional() int64 {
	if c.values[c.next] == nil {
		c.next++
		return 0
	}
	return c.number()
}

func (c *cursor) bit() bool {
	n := c.number()
	c.odd = c.odd || n&^1 != 0
	return n != 0
}

// blob is nil for NULL and for an empty one.
func (c *cursor) blob() []byte {
	b, _ := c.value().([]byte)
	return b
}

// The schema is STRICT: a value is of its column's type or NULL, if it is not
// damaged.

func text(v driver.Value) string {
	s, _ := v.(string)
	return s
}

func number(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}

// scanWhole reads the columns of wholeRow and compares the checksums.
func scanWhole(values []driver.Value) *Row {
	c := cursor{values: values}
	r := scanListed(&c)
	body, sum := c.value(), c.number()
	_, request := c.value(), c.number()
	if target := c.value(); target != nil {
		r.Request = &Request{Target: text(target), Host: c.text(), Header: c.blob(), Body: c.blob()}
	}
	r.Damaged = r.Damaged || r.Request != nil && request != r.Request.sum()
	if r.Damaged { // nobody sends it, and it may not even be readable
		r.Request = nil
	}
	o := r.Outcome
	if o == nil || o.damaged {
		return r
	}
	if body != nil {
		b, _ := body.([]byte)
		o.Body = blob(b)
	}
	if body == nil || o.bodySum() != sum {
		o.Complete, o.Body = false, nil
	}
	return r
}

// scanListed reads the columns of listedRow and compares their checksums.
func scanListed(c *cursor) *Row {
	r := scanHead(c)
	c.odd = false
	r.Status = Status{
		Version: c.number(), State: c.text(), Doubt: c.bit(), HoldReason: c.text(), Owner: c.optional(),
		Attempts: c.number(), Deaths: c.number(), Resumes: c.number(), Began: c.number(), Prepared: c.bit(),
		Notify: c.bit(), FirstSent: c.number(), Due: c.number(), Wait: c.number(), Expires: c.number(),
		Settled: c.number(), By: c.text(), Note: c.text(),
	}
	r.judge(c.odd)
	if r.Withheld != "" && json.Unmarshal([]byte(r.Withheld), &[]string{}) != nil {
		r.Withheld, r.Damaged = "", true // no checksum is over it
	}
	if code := c.value(); code != nil {
		r.Outcome = &Outcome{
			StatusCode: number(code), Complete: c.bit(), Replayed: c.bit(), RequestID: c.text(), Header: c.blob(),
		}
		if c.number() != r.Outcome.headSum() { // then nothing of it is told
			r.Outcome = &Outcome{damaged: true}
		}
	} else {
		c.next += 5
	}
	return r
}

// scanHead reads the columns of the head and compares their checksum.
func scanHead(c *cursor) *Row {
	r := &Row{
		ID: c.number(), Scope: c.text(), Operation: c.text(), Generation: c.number(), Key: c.text(),
		Adopted: c.blob(), Credential: c.blob(), Name: c.text(), Provider: c.text(), Method: c.text(), URL: c.text(),
		Fingerprint: c.blob(), Place: c.text(), Encoding: c.text(), Retention: c.number(), Renews: c.text(),
		Withheld: c.text(), Created: c.number(),
	}
	r.Damaged = c.number() != r.headSum()
	return r
}
