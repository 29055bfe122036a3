package access

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// dial connects to the host of a URL. It checks each address of the resolver before the socket connects.
func (o FetchOptions) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	_, err = netip.ParseAddr(host)
	literalIP := err == nil // the host of the checked URL is the address
	d := net.Dialer{
		Timeout:   30 * time.Second,
		KeepAlive: 30 * time.Second,
		Resolver:  o.Resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err == nil && o.dialable(to.Addr(), literalIP) {
				return nil
			}
			return &blocked{arcp.Errorf(arcp.CodePermissionDenied, "%s is at an address that is not connected to", host)}
		},
	}
	return d.DialContext(ctx, network, hostPort)
}

// blocked is the refusal of a request whose URL the lease covers.
type blocked struct{ err *arcp.Error }

func (b *blocked) Error() string { return b.err.Error() }
func (b *blocked) Unwrap() error { return b.err }

// dialable reports whether an address may be dialled. literalIP says that the host of the URL is the address.
func (o FetchOptions) dialable(ip netip.Addr, literalIP bool) bool {
	ip = embeddedIPv4(ip)
	switch {
	case o.BlockPrivate:
		return !sensitive(ip) && !private(ip)
	case literalIP:
		return true
	}
	return !sensitive(ip)
}

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// embeddedIPv4 returns the IPv4 address that an IPv6 address embeds, or the address itself.
func embeddedIPv4(ip netip.Addr) netip.Addr {
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

// metadata lists the services that issue credentials of a machine and are not link-local.
var metadata = prefixes(
	"fd00:ec2::254/128",  // AWS
	"fd20:ce::254/128",   // Google
	"100.100.100.200/32", // Alibaba
	"168.63.129.16/32",   // Azure
)

var thisHost = netip.MustParsePrefix("0.0.0.0/8")

// sensitive reports whether an address is dialled only if the URL contains the address.
func sensitive(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || thisHost.Contains(ip) ||
		ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || contains(metadata, ip)
}

// nonPublicRanges lists private ranges that netip does not report.
var nonPublicRanges = prefixes(
	"100.64.0.0/10", // carrier-grade NAT
	"192.0.0.0/24",
	"198.18.0.0/15", // benchmarks
	"240.0.0.0/4",
	"fec0::/10",      // site-local, deprecated
	"64:ff9b:1::/48", // local-use NAT64
)

func private(ip netip.Addr) bool {
	return ip.IsLoopback() || ip.IsPrivate() || contains(nonPublicRanges, ip)
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
