package idem

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"weak"
)

// tenant is a transport that living clients use: of one Name on one journal
// handle there is one, since whoever resumes sends with its own Base, contracts
// and credentials. A client lives from its first use until Shutdown.
type tenant struct {
	transport weak.Pointer[Transport] // so that one that nobody has is no tenant
	clients   int
}

var tenants struct {
	mu     sync.Mutex
	byName map[string][]*tenant
}

// alive enters the client among the living, or says who has its place. The
// client is locked.
func (c *Client) alive() error {
	t := c.Transport
	if c.OnSettled != nil && !c.listens && !c.closed {
		t.listeners.Add(1)
		c.listens = true
	}
	if c.known != nil || c.closed {
		return nil
	}
	tenants.mu.Lock()
	defer tenants.mu.Unlock()
	if tenants.byName == nil {
		tenants.byName = map[string][]*tenant{}
	}
	all := slices.DeleteFunc(tenants.byName[t.Name], func(o *tenant) bool {
		return o.clients == 0 || o.transport.Value() == nil
	})
	tenants.byName[t.Name] = all
	for _, other := range all {
		switch has := other.transport.Value(); {
		case has == t:
			other.clients++
			c.known = other
			return nil
		case has != nil && sameJournal(has.Journal, t.Journal):
			return fmt.Errorf("another living Client has a Transport of the same Name (%q) on this journal handle, and would resume this one's operations: "+
				"share the Transport, set Transport.Name, or Shutdown the other client first", t.Name)
		}
	}
	c.known = &tenant{transport: weak.Make(t), clients: 1}
	tenants.byName[t.Name] = append(all, c.known)
	return nil
}

// leave takes a client off that was shut down. The client is locked.
func (c *Client) leave() {
	if c.listens {
		c.Transport.listeners.Add(-1)
		c.listens = false
	}
	if c.known == nil {
		return
	}
	tenants.mu.Lock()
	defer tenants.mu.Unlock()
	c.known.clients--
	c.known = nil
}

// sameJournal reports one handle.
func sameJournal(a, b Journal) bool {
	return a != nil && b != nil && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
