package faultinjection

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxied is one connection through a proxy.
type proxied struct {
	proxy    *Proxy
	fault    ConnFault
	life     context.Context // ends with the connection, or the proxy
	end      context.CancelFunc
	client   *net.TCPConn
	up, down atomic.Int64
	struck   atomic.Bool
	over     atomic.Bool // reset, cut or closed: nothing is handed on any more

	mu     sync.Mutex
	server *net.TCPConn // nil: there is none yet
	closed bool
}

// parcel is what one read gave.
type parcel struct {
	data []byte
	at   time.Time
	end  error // of the connection, after data; nil: it goes on
}

const (
	parcelSize  = 16 << 10
	parcelsKept = 64 // on their way in one direction, before the sender is held up
	pieces      = 50 // a second, in which a slow flow is handed on
)

func (c *proxied) run() {
	defer c.close()
	if c.fault.Refuse {
		c.struck.Store(true)
		c.reset()
		return
	}
	if !c.proxy.passable(c.life) {
		return
	}
	conn, err := (&net.Dialer{}).DialContext(c.life, "tcp", c.proxy.upstream)
	if err != nil {
		c.reset() // as near to a refusal as can be
		return
	}
	server := conn.(*net.TCPConn)
	if !c.join(server) {
		return
	}
	var flows sync.WaitGroup
	c.flow(&flows, c.client, server, c.fault.Up, &c.up)
	c.flow(&flows, server, c.client, c.fault.Down, &c.down)
	flows.Wait()
}

// join takes the server's side in. It is false when the proxy was closed first.
func (c *proxied) join(server *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = server.Close() // nothing was sent on it
		return false
	}
	c.server = server
	return true
}

// flow hands on in one direction.
func (c *proxied) flow(flows *sync.WaitGroup, from, to *net.TCPConn, f Flow, carried *atomic.Int64) {
	parcels := make(chan parcel, parcelsKept)
	flows.Go(func() { c.read(from, parcels) })
	flows.Go(func() {
		for p := range parcels {
			if !c.hand(to, f, p, carried) {
				break
			}
		}
		for range parcels { // swallowed, so that its sender is not held up
		}
	})
}

func (c *proxied) read(from *net.TCPConn, parcels chan<- parcel) {
	defer close(parcels)
	for {
		data := make([]byte, parcelSize)
		n, err := from.Read(data)
		select {
		case parcels <- parcel{data[:n], time.Now(), err}:
		case <-c.life.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// hand hands a parcel on, and reports whether the flow goes on after it.
func (c *proxied) hand(to *net.TCPConn, f Flow, p parcel, carried *atomic.Int64) bool {
	if !pause(c.life, time.Until(p.at.Add(f.Latency))) || !c.proxy.passable(c.life) || c.over.Load() {
		return false
	}
	data, strikes := p.data, false
	if room := max(f.After, 0) - carried.Load(); f.End != "" && int64(len(data)) > room {
		data, strikes = data[:room], true
	}
	if !c.write(to, data, f.BytesPerSecond, carried) {
		c.broken()
		return false
	}
	switch {
	case strikes:
		c.strike(f.End)
	case p.end == io.EOF:
		_ = to.CloseWrite() // fails where there is nobody to be told
	case p.end != nil:
		c.broken()
	default:
		return true
	}
	return false
}

// write is false when the connection broke on the way.
func (c *proxied) write(to *net.TCPConn, data []byte, rate int64, carried *atomic.Int64) bool {
	for len(data) > 0 {
		piece := data
		if rate > 0 {
			piece = data[:min(int64(len(data)), max(rate/pieces, 1))]
			if !pause(c.life, time.Duration(len(piece))*time.Second/time.Duration(rate)) || !c.proxy.passable(c.life) {
				return false
			}
		}
		carried.Add(int64(len(piece))) // first, so that nobody has bytes that are not counted
		n, err := to.Write(piece)
		if carried.Add(int64(n - len(piece))); err != nil {
			return false
		}
		data = data[n:]
	}
	return true
}

func (c *proxied) strike(end ConnEnd) {
	c.struck.Store(true)
	switch end {
	case Reset:
		c.reset()
	case Cut:
		c.over.Store(true)
		_ = c.client.CloseWrite() // fails where the other side was faster
		_ = c.server.CloseWrite()
	}
}

// broken tells both sides that the connection broke, unless they know that it
// is over.
func (c *proxied) broken() {
	if !c.over.Load() {
		c.reset()
	}
}

// reset breaks the connection on both sides.
func (c *proxied) reset() {
	c.over.Store(true)
	c.mu.Lock()
	_ = c.client.SetLinger(0) // failing that, it is closed without an RST
	if c.server != nil {
		_ = c.server.SetLinger(0)
	}
	c.mu.Unlock()
	c.close()
}

func (c *proxied) close() {
	c.over.Store(true)
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	_ = c.client.Close() // an error means that it is closed
	if c.server != nil {
		_ = c.server.Close()
	}
}
