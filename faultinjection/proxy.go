package faultinjection

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Proxy is a TCP proxy on a loopback port: it lets connections between a client
// and a server fail, at any byte, with TLS and HTTP/2 too, since it does not look
// at the bytes. Both ends must be on this machine.
//
//	proxy, err := faultinjection.StartProxy(running.URL)
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer proxy.Close()
//	proxy.Next(faultinjection.ConnFault{Down: faultinjection.Flow{End: faultinjection.Reset, After: 10}})
//	resp, err := http.Post("http://"+proxy.Addr()+"/charges", "application/json", body) // reset in the status line
//
// It uses real sockets and real time, so it does not work in a
// [testing/synctest] bubble; a [Script] does. A Proxy is safe for concurrent use.
type Proxy struct {
	upstream string
	address  *net.TCPAddr
	life     context.Context
	end      context.CancelFunc
	running  sync.WaitGroup // its goroutines
	once     sync.Once
	result   error // of Close

	mu       sync.Mutex
	closed   bool
	listener *net.TCPListener // nil: refuses
	plan     []ConnFault
	healed   chan struct{} // closed when a partition ends; nil: there is none
	conns    []*proxied
}

// ConnFault is what becomes of one connection through a [Proxy]. The zero value
// is a connection without a fault.
type ConnFault struct {
	// Refuse resets the connection before anything is read from it. The system
	// has accepted it by then, so that the client's dial fails or its first read
	// does: see [Proxy.Refuse] for a dial that is refused.
	Refuse bool
	Up     Flow // from the client to the server
	Down   Flow // from the server to the client
}

// Flow is one direction of a connection. The zero value hands everything on, at
// once.
type Flow struct {
	// End is what happens after the first After bytes, when there is one more
	// to be handed on. Zero means nothing.
	End   ConnEnd
	After int64 // bytes handed on before End; negative means zero
	// Latency is how long each byte is on its way, the end of the connection too.
	Latency time.Duration
	// BytesPerSecond bounds the speed. Zero means no bound.
	BytesPerSecond int64
}

// String names what is set, such as "up reset 10 1s, down stall 0".
func (f ConnFault) String() string {
	var parts []string
	if f.Refuse {
		parts = append(parts, "refuse")
	}
	for _, way := range []struct {
		name string
		Flow
	}{{"up", f.Up}, {"down", f.Down}} {
		if way.Flow == (Flow{}) {
			continue
		}
		text := way.name
		if way.End != "" {
			text += fmt.Sprintf(" %s %d", way.End, way.After)
		}
		if way.Latency > 0 {
			text += " " + way.Latency.String()
		}
		if way.BytesPerSecond > 0 {
			text += fmt.Sprintf(" %d/s", way.BytesPerSecond)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "pass"
	}
	return strings.Join(parts, ", ")
}

// ConnEnd is how a connection ends, or one direction of it.
type ConnEnd string

const (
	// Reset breaks the connection on both sides, with an RST.
	Reset ConnEnd = "reset"
	// Cut ends the connection on both sides, with a FIN; what comes after that,
	// from either side, is swallowed.
	Cut ConnEnd = "cut"
	// Stall swallows what comes after, in this direction, the end of the
	// connection included.
	Stall ConnEnd = "stall"
)

// Connection is one connection through a [Proxy], as far as it came.
type Connection struct {
	Fault    ConnFault
	Up, Down int64 // bytes handed on
	Struck   bool  // it was refused, or came to the End of a Flow
}

// StartProxy starts a proxy on a free loopback port. upstream is the server's
// address, such as "127.0.0.1:34567", or its URL. Another machine is refused.
func StartProxy(upstream string) (*Proxy, error) {
	return StartProxyAt("127.0.0.1:0", upstream)
}

// StartProxyAt is StartProxy at an address of your choice. One that other
// machines can reach is refused.
func StartProxyAt(address, upstream string) (*Proxy, error) {
	to, err := loopback(upstream)
	if err != nil {
		return nil, fmt.Errorf("faultinjection: proxy to %q: %w", upstream, err)
	}
	at, err := loopback(address)
	if err != nil {
		return nil, fmt.Errorf("faultinjection: proxy at %q: %w", address, err)
	}
	listener, err := net.ListenTCP("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("faultinjection: %w", err)
	}
	p := &Proxy{upstream: to.String(), address: listener.Addr().(*net.TCPAddr)}
	p.life, p.end = context.WithCancel(context.Background())
	p.listen(listener)
	return p, nil
}

// loopback reads an address or a URL, without asking anybody for a name's
// address.
func loopback(address string) (*net.TCPAddr, error) {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Unmap().IsLoopback() {
		return nil, errors.New("not a loopback address")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port %q: %w", port, err)
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(number))), nil
}

// Addr is where the proxy listens, such as "127.0.0.1:34567".
func (p *Proxy) Addr() string { return p.address.String() }

// Next appends faults, one for each connection in order of arrival. When all are
// used up, connections have none.
func (p *Proxy) Next(perConnection ...ConnFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = append(p.plan, perConnection...)
}

// Partition stops all bytes, both ways and on existing connections too, until
// [Proxy.Heal]; then they go on where they were. Ends of connections are held
// back as well. A new connection is accepted by the system, but nothing comes of
// it. What is being handed on at that moment may still arrive.
func (p *Proxy) Partition() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.healed == nil {
		p.healed = make(chan struct{})
	}
}

// Refuse stops listening until [Proxy.Heal], so that the system refuses new
// connections. Existing ones go on.
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refuse()
}

// refuse is Refuse; the caller holds mu.
func (p *Proxy) refuse() error {
	if p.listener == nil {
		return nil
	}
	listener := p.listener
	p.listener = nil
	return wrap("close proxy", listener.Close())
}

// Heal ends a partition and a refusal. It fails if another program has taken the
// port meanwhile.
func (p *Proxy) Heal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.healed != nil {
		close(p.healed)
		p.healed = nil
	}
	if p.listener != nil || p.closed {
		return nil
	}
	listener, err := net.ListenTCP("tcp", p.address)
	if err != nil {
		return fmt.Errorf("faultinjection: %w", err)
	}
	p.listen(listener)
	return nil
}

// Connections returns all connections so far, in order of arrival.
func (p *Proxy) Connections() []Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Connection, 0, len(p.conns))
	for _, c := range p.conns {
		all = append(all, Connection{c.fault, c.up.Load(), c.down.Load(), c.struck.Load()})
	}
	return all
}

// Close breaks all connections and returns when nothing of the proxy runs any
// more. Calling it again gives the first result.
func (p *Proxy) Close() error {
	p.once.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.result = p.refuse()
		conns := p.conns
		p.mu.Unlock()
		p.end()
		for _, c := range conns {
			c.close()
		}
		p.running.Wait()
	})
	return p.result
}

// listen accepts connections; the caller holds mu, or is alone.
func (p *Proxy) listen(listener *net.TCPListener) {
	p.listener = listener
	p.running.Go(func() {
		for {
			client, err := listener.AcceptTCP()
			switch {
			case err == nil:
				p.accept(client)
			case errors.Is(err, net.ErrClosed), !pause(p.life, time.Millisecond): // else there are too many open files
				return
			}
		}
	})
}

func (p *Proxy) accept(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = client.Close() // it came too late
		return
	}
	c := &proxied{proxy: p, client: client}
	if len(p.plan) > 0 {
		c.fault, p.plan = p.plan[0], p.plan[1:]
	}
	c.life, c.end = context.WithCancel(p.life)
	p.conns = append(p.conns, c)
	p.running.Go(c.run)
}

// passable waits while there is a partition. It is false when the life ended
// first.
func (p *Proxy) passable(life context.Context) bool {
	for {
		p.mu.Lock()
		healed := p.healed
		p.mu.Unlock()
		if healed == nil {
			return life.Err() == nil
		}
		select {
		case <-healed:
		case <-life.Done():
			return false
		}
	}
}
