package access

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// dial connects to the host of a URL. Which addresses it tries is up to the
// resolver; each is looked at when its socket is about to connect.
func (o FetchOptions) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	_, err = netip.ParseAddr(host)
	named := err == nil // the URL contains the address, and the URL was checked
	d := net.Dialer{
		Timeout:   30 * time.Second,
		KeepAlive: 30 * time.Second,
		Resolver:  o.Resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err == nil && o.dialable(to.Addr(), named) {
				return nil
			}
			return &blocked{arcp.Errorf(arcp.CodePermissionDenied, "%s is at an address that is not connected to", host)}
		},
	}
	return d.DialContext(ctx, network, hostPort)
}

// blocked is a refusal of a request whose URL the lease covers.
type blocked struct{ err *arcp.Error }

func (b *blocked) Error() string { return b.err.Error() }
func (b *blocked) Unwrap() error { return b.err }

// dialable reports whether an address may be dialled; named: the URL contains it.
func (o FetchOptions) dialable(ip netip.Addr, named bool) bool {
	ip = inner(ip)
	switch {
	case o.BlockPrivate:
		return !sensitive(ip) && !private(ip)
	case named:
		return true
	}
	return !sensitive(ip)
}

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// inner is the address that an IPv6 address stands for.
func inner(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	b := ip.As16()
	switch {
	case nat64.Contains(ip):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return ip
}

// metadata are the services that hand out a machine's credentials and are not
// link-local.
var metadata = prefixes(
	"fd00:ec2::254/128",  // AWS
	"fd20:ce::254/128",   // Google
	"100.100.100.200/32", // Alibaba
	"168.63.129.16/32",   // Azure
)

var thisHost = netip.MustParsePrefix("0.0.0.0/8")

// sensitive addresses are dialled only by name of the address itself.
func sensitive(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || thisHost.Contains(ip) ||
		ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || contains(metadata, ip)
}

// notPublic are the ranges of this network, besides those netip knows.
var notPublic = prefixes(
	"100.64.0.0/10", // carrier-grade NAT
	"192.0.0.0/24",
	"198.18.0.0/15", // benchmarks
	"240.0.0.0/4",
	"fec0::/10",      // site-local, as it was
	"64:ff9b:1::/48", // NAT64 of this network
)

func private(ip netip.Addr) bool {
	return ip.IsLoopback() || ip.IsPrivate() || contains(notPublic, ip)
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func contains(list []netip.Prefix, ip netip.Addr) bool {
	for _, p := range list {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}
