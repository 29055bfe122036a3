package transport

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// GateLimits are the bounds of a Gate in connections. Zero or less is no limit.
type GateLimits struct {
	Open            int // open connections
	Unauthenticated int // connections whose peer has not authenticated
	PerAddress      int // unauthenticated connections from one address; loopback is exempt
}

// Gate counts connections when they are accepted, and refuses connections above its limits. IPv6 peers are
// counted by the first 64 bits of the address. It is safe for concurrent use.
type Gate struct {
	refused func(*GateError)

	mu              sync.Mutex
	limits          GateLimits
	open            int
	unauthenticated int
	addresses       map[netip.Prefix]int // unauthenticated connections by address
}

// NewGate returns a gate. refused, which may be nil, is called for each connection that a listener of the
// gate refuses.
func NewGate(l GateLimits, refused func(*GateError)) *Gate {
	return &Gate{limits: l, refused: refused, addresses: make(map[netip.Prefix]int)}
}

// SetLimits changes the limits. Open connections are not affected.
func (g *Gate) SetLimits(l GateLimits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limits = l
}

// GateError is the reason of a refused connection.
type GateError struct {
	Limit   string // connections, unauthenticated or unauthenticated_per_address; a metric label
	Max     int
	Address string // address of the peer; may be empty
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

// Enter counts a connection from an address, which may be empty. The caller must call Pass.Leave at its end.
// The error is a *GateError.
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

// room reports whether the address is below its limit. The caller holds g.mu.
func (g *Gate) room(from netip.Prefix) bool {
	return !from.IsValid() || !atLimit(g.addresses[from], g.limits.PerAddress)
}

// addressPrefix returns the prefix by which connections from an address are counted. The prefix is invalid
// for loopback and for texts other than network addresses: such connections are not counted.
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

// Pass is one connection counted by a Gate. Its methods are safe for concurrent use.
type Pass struct {
	gate *Gate

	// Guarded by the gate's mutex.
	authenticated bool
	left          bool
	from          netip.Prefix // counted in Gate.addresses; invalid: not counted
}

// setAddress counts the connection under another address. The caller holds the mutex of the gate.
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

// From sets the address of the client behind a proxy. The error is a *GateError. After an error the
// connection is still counted without an address.
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

// Authenticated records that the peer has authenticated.
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

// Leave records that the connection has ended. Further calls do nothing.
func (p *Pass) Leave() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.authenticate()
	if !p.left {
		p.left = true
		p.gate.open--
	}
}

// Listener returns a listener that counts the connections of the TCP listener ln. A connection above a limit
// is answered with status 503 and closed.
func (g *Gate) Listener(ln net.Listener) net.Listener {
	return &gatedListener{Listener: ln, gate: g}
}

// ProxyListener is Listener for connections from a proxy. A connection is counted by address after Pass.From.
func (g *Gate) ProxyListener(ln net.Listener) net.Listener {
	return &gatedListener{Listener: ln, gate: g, behindProxy: true}
}

type gatedListener struct {
	net.Listener
	gate        *Gate
	behindProxy bool
}

// Accept returns the next connection within the limits.
func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil // counted when it becomes a Conn
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

// refusalTime bounds the time that a refused connection can block its listener. The answer fits into the
// empty buffer of the socket.
const refusalTime = 10 * time.Millisecond

func (l *gatedListener) refuse(conn *net.TCPConn, reason *GateError) {
	if l.gate.refused != nil {
		l.gate.refused(reason)
	}
	// After an error the peer only sees the end of the connection.
	if conn.SetWriteDeadline(time.Now().Add(refusalTime)) == nil {
		fmt.Fprintf(conn, "HTTP/1.1 503 Service Unavailable\r\n"+
			"Retry-After: 1\r\n"+
			"Content-Type: text/plain; charset=utf-8\r\n"+
			"Content-Length: %d\r\n"+
			"Connection: close\r\n\r\n%s\n", len(reason.Error())+1, reason)
	}
	_ = conn.Close() // the connection is refused
}

// gatedConn is a connection that leaves its gate at Close.
type gatedConn struct {
	*net.TCPConn
	pass *Pass
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	c.pass.Leave()
	return c.TCPConn.Close()
}

// passOf returns the pass of a connection accepted by a listener of a gate; nil for any other.
func passOf(conn net.Conn) *Pass {
	switch c := conn.(type) {
	case *gatedConn:
		return c.pass
	case *tls.Conn:
		return passOf(c.NetConn())
	case *prefixedConn:
		return passOf(c.Conn)
	}
	return nil
}
