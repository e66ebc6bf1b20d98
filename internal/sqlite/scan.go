package sqlite

import (
	"database/sql/driver"
	"encoding/json"
)

// cursor reads the values of one result row in order.
type cursor struct {
	values []driver.Value
	next   int
}

func (c *cursor) value() driver.Value {
	v := c.values[c.next]
	c.next++
	return v
}

func (c *cursor) text() string  { return text(c.value()) }
func (c *cursor) number() int64 { return number(c.value()) }
func (c *cursor) bit() bool     { return c.number() != 0 }

// blob is nil for NULL and for an empty one.
func (c *cursor) blob() []byte {
	b, _ := c.value().([]byte)
	return b
}

// The schema is STRICT: a value is of its column's type or NULL.

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
	body := c.value()
	outcomeHead, outcomeBody := c.number(), c.number()
	head, request := c.number(), c.number()
	if target := c.value(); target != nil {
		r.Request = &Request{Target: text(target), Host: c.text(), Header: c.blob(), Body: c.blob()}
	}
	r.Damaged = r.Damaged || head != r.headSum() || r.Request != nil && request != r.Request.sum()
	if r.Damaged { // nobody sends it, and it may not even be readable
		r.Request = nil
	}
	o := r.Outcome
	if o == nil {
		return r
	}
	if body != nil {
		b, _ := body.([]byte)
		o.Body = blob(b)
	}
	if o.headSum() != outcomeHead { // then nothing of it is told
		r.Outcome = &Outcome{StatusCode: o.StatusCode}
	} else if body != nil && o.bodySum() != outcomeBody {
		o.Complete, o.Body = false, nil
	}
	return r
}

// scanListed reads the columns of listedRow.
func scanListed(c *cursor) *Row {
	r := &Row{
		ID: c.number(), Scope: c.text(), Operation: c.text(), Generation: c.number(), Key: c.text(),
		Adopted: c.blob(), Credential: c.blob(), Name: c.text(), Provider: c.text(), Method: c.text(), URL: c.text(),
		Fingerprint: c.blob(), Place: c.text(), Encoding: c.text(), Retention: c.number(), Renews: c.text(),
		Withheld: c.text(), Created: c.number(),
	}
	r.Status = Status{
		Version: c.number(), State: c.text(), Doubt: c.bit(), HoldReason: c.text(), Owner: c.number(),
		Attempts: c.number(), Deaths: c.number(), Resumes: c.number(), Began: c.number(), Prepared: c.bit(),
		Notify: c.bit(), FirstSent: c.number(), Due: c.number(), Wait: c.number(), Expires: c.number(),
		Settled: c.number(), By: c.text(), Note: c.text(),
	}
	if r.Withheld != "" && json.Unmarshal([]byte(r.Withheld), &[]string{}) != nil {
		r.Withheld, r.Damaged = "", true // no checksum is over it
	}
	if code := c.value(); code != nil {
		r.Outcome = &Outcome{
			StatusCode: number(code), Complete: c.bit(), Replayed: c.bit(), RequestID: c.text(), Header: c.blob(),
		}
	} else {
		c.next += 4
	}
	return r
}
