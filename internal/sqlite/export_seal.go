package sqlite

import (
	"errors"
	"slices"
)

// unseal opens what the row has sealed, each part for itself. What cannot be
// opened is left out, and the line says why: for want of a key, or since it is
// not what was sealed.
func (x *Exported) unseal(g *sealing) {
	if g == nil {
		return
	}
	r := x.Row
	if r.ID > g.since {
		print, err := g.prints.Open(nil, nil, r.Fingerprint, r.bound("fingerprint"))
		if r.Fingerprint = print; err != nil {
			x.damaged("intent", nil)
		}
	}
	if r.Request != nil {
		x.unsealRequest(g)
	}
	if r.Outcome != nil && !r.Outcome.damaged {
		x.unsealOutcome(g)
	}
}

func (x *Exported) unsealRequest(g *sealing) {
	r, q := x.Row, x.Request
	if !isSealed(q.Header) {
		if r.ID > g.since {
			x.unopened("request", errUnsealed)
			r.Request = nil
		}
		return
	}
	opened := &Request{}
	head, err := unseal(g.sealer, q.Header[1:], r.bound("header"))
	if err == nil {
		opened, err = openedHead(head)
	}
	if err != nil {
		opened = &Request{}
		x.unopened("request", err)
	}
	body, err := unseal(g.sealer, q.Body, r.bound("body"))
	if err != nil {
		x.unopened("request", err)
	} else {
		opened.Body = blob(body)
	}
	r.Request = opened
}

func (x *Exported) unsealOutcome(g *sealing) {
	r, o := x.Row, x.Outcome
	if !isSealed(o.Header) {
		if r.ID > g.since {
			x.unopened("outcome", errUnsealed)
			o.Header, o.Body = nil, nil
		}
		return
	}
	state := x.settledAs(g)
	header, err := unseal(g.sealer, o.Header[1:], o.bound(r, state, "header"))
	if o.Header = header; err != nil {
		x.unopened("outcome", err)
	}
	if o.Body == nil {
		return
	}
	body, err := unseal(g.sealer, o.Body, o.bound(r, state, "body"))
	if err != nil {
		x.unopened("answer", err)
		o.Body = nil
		return
	}
	o.Body = blob(body)
}

// settledAs is the final state to which the answer is bound. Where the status
// cannot be read, it is the one under which the answer opens.
func (x *Exported) settledAs(g *sealing) string {
	r, o := x.Row, x.Outcome
	state := r.State
	if r.stored != nil {
		state = r.stored.State
	}
	if final(state) {
		return state
	}
	for _, tried := range []string{succeeded, rejected} {
		if _, err := unseal(g.sealer, o.Header[1:], o.bound(r, tried, "header")); err == nil {
			return tried
		}
	}
	return state
}

// unopened notes a part that could not be opened. Damage that is known already
// is not blamed on a key.
func (x *Exported) unopened(part string, err error) {
	switch {
	case slices.Contains(x.Damaged, part):
	case !errors.Is(err, ErrSealed):
		x.damaged(part, nil)
	case !slices.Contains(x.Sealed, part):
		x.Sealed = append(x.Sealed, part)
	}
}

func isSealed(header []byte) bool { return len(header) > 0 && header[0] == sealedHeader }
