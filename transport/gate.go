package transport

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// GateLimits are the bounds of a Gate, in connections; 0 or less: none.
type GateLimits struct {
	Open            int // all that are open
	Unauthenticated int // whose peers have not authenticated
	PerAddress      int // of one address that have not authenticated; loopback is exempt
}

// Gate counts connections from their accept on and refuses those over its limits. IPv6 peers
// are counted by the first 64 bits of the address. Its methods may be called by many
// goroutines at once.
type Gate struct {
	refused func(*GateError)

	mu              sync.Mutex
	limits          GateLimits
	open            int
	unauthenticated int
	addresses       map[netip.Prefix]int // those that have not authenticated
}

// NewGate returns a gate. Each connection that a listener of the gate refuses is
// reported to refused, if that is not nil.
func NewGate(l GateLimits, refused func(*GateError)) *Gate {
	return &Gate{limits: l, refused: refused, addresses: make(map[netip.Prefix]int)}
}

// SetLimits changes the limits. Connections that are there stay.
func (g *Gate) SetLimits(l GateLimits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limits = l
}

// GateError is why a connection is refused.
type GateError struct {
	Limit   string // connections, unauthenticated or unauthenticated_per_address: a metric label
	Max     int
	Address string // of the peer; empty if it has none
}

func (e *GateError) Error() string {
	switch e.Limit {
	case "connections":
		return fmt.Sprintf("the limit of %d connections is reached", e.Max)
	case "unauthenticated":
		return fmt.Sprintf("the limit of %d connections that have not authenticated is reached", e.Max)
	}
	return fmt.Sprintf("the limit of %d connections from one address that have not authenticated is reached", e.Max)
}

// Enter counts a connection of a peer at an address, which may be empty. The error is a
// *GateError.
func (g *Gate) Enter(address string) (*Pass, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := addressPrefix(address)
	switch {
	case atLimit(g.open, g.limits.Open):
		return nil, &GateError{"connections", g.limits.Open, address}
	case atLimit(g.unauthenticated, g.limits.Unauthenticated):
		return nil, &GateError{"unauthenticated", g.limits.Unauthenticated, address}
	case !g.room(from):
		return nil, &GateError{"unauthenticated_per_address", g.limits.PerAddress, address}
	}
	g.open++
	g.unauthenticated++
	p := &Pass{gate: g}
	p.setAddress(from)
	return p, nil
}

func atLimit(n, limit int) bool { return limit > 0 && n >= limit }

// room is called with g.mu.
func (g *Gate) room(from netip.Prefix) bool {
	return !from.IsValid() || !atLimit(g.addresses[from], g.limits.PerAddress)
}

// addressPrefix returns the prefix by which connections of an address are counted. The prefix
// is invalid for loopback and for texts that are no network address: those are not counted.
func addressPrefix(address string) netip.Prefix {
	ip, err := netip.ParseAddr(address)
	if ip = ip.Unmap().WithZone(""); err != nil || ip.IsLoopback() {
		return netip.Prefix{}
	}
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // fails for other numbers of bits
	return p
}

// Pass is the place of one connection among those that a Gate counts.
type Pass struct {
	gate *Gate

	// Guarded by the gate's mutex.
	authenticated bool
	left          bool
	from          netip.Prefix // counted in the gate's addresses; not valid: in none
}

// setAddress is called with the gate's mutex.
func (p *Pass) setAddress(from netip.Prefix) {
	g := p.gate
	if p.from.IsValid() {
		if g.addresses[p.from]--; g.addresses[p.from] == 0 {
			delete(g.addresses, p.from)
		}
	}
	if p.from = from; from.IsValid() {
		g.addresses[from]++
	}
}

// From sets the address of the peer behind a proxy's connection. The error is a *GateError;
// the connection then counts as the proxy's until it ends.
func (p *Pass) From(address string) error {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	from := addressPrefix(address)
	if p.authenticated || p.left || from == p.from {
		return nil
	}
	if !g.room(from) {
		return &GateError{"unauthenticated_per_address", g.limits.PerAddress, address}
	}
	p.setAddress(from)
	return nil
}

// Authenticated records that the peer is authenticated.
func (p *Pass) Authenticated() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.authenticate()
}

func (p *Pass) authenticate() {
	if !p.authenticated {
		p.authenticated = true
		p.gate.unauthenticated--
		p.setAddress(netip.Prefix{})
	}
}

// Leave says that the connection has ended. It may be called more than once.
func (p *Pass) Leave() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.authenticate()
	if !p.left {
		p.left = true
		p.gate.open--
	}
}

// Listener counts the connections of a TCP listener. Those over a limit are answered
// with status 503 and closed. Behind a proxy a connection is counted by address only
// once Pass.From says which.
func (g *Gate) Listener(ln net.Listener, behindProxy bool) net.Listener {
	return &gatedListener{ln, g, behindProxy}
}

type gatedListener struct {
	net.Listener
	gate        *Gate
	behindProxy bool
}

// Accept returns the next connection that is within the limits.
func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil // it is counted once it is a Conn
		}
		address := remoteHost(conn.RemoteAddr().String())
		if l.behindProxy {
			address = ""
		}
		pass, err := l.gate.Enter(address)
		if err == nil {
			return &gatedConn{tcp, pass}, nil
		}
		l.refuse(tcp, err.(*GateError))
	}
}

// refusalTime bounds how long a refused connection can keep its listener: the answer
// fits into the empty buffer of the socket.
const refusalTime = 10 * time.Millisecond

func (l *gatedListener) refuse(conn *net.TCPConn, why *GateError) {
	if l.gate.refused != nil {
		l.gate.refused(why)
	}
	// A peer that does not see the answer sees the end of the connection.
	if conn.SetWriteDeadline(time.Now().Add(refusalTime)) == nil {
		fmt.Fprintf(conn, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", len(why.Error())+1, why)
	}
	_ = conn.Close() // it is not used
}

// gatedConn is a connection that leaves its gate when it is closed.
type gatedConn struct {
	*net.TCPConn
	pass *Pass
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	c.pass.Leave()
	return c.TCPConn.Close()
}

// passOf returns the pass of a connection that a gate's listener has accepted; nil for any
// other.
func passOf(conn net.Conn) *Pass {
	switch c := conn.(type) {
	case *gatedConn:
		return c.pass
	case *tls.Conn:
		return passOf(c.NetConn())
	case *begun:
		return passOf(c.Conn)
	}
	return nil
}
