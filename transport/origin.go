package transport

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// anyHost in a list allows all hosts or origins.
const anyHost = "*"

// checkHost refuses requests with an unknown Host header. It prevents DNS rebinding: a web page whose name
// resolves to this server. Loopback names, the address local of the connection (may be nil) and the allowed
// entries are known.
func checkHost(host string, local net.Addr, allowed []string) error {
	name, port := splitHost(host)
	if isLoopback(name) || name == localHost(local) {
		return nil
	}
	if slices.ContainsFunc(allowed, func(a string) bool { return hostMatches(a, name, port) }) {
		return nil
	}
	return fmt.Errorf("host %.200q is not allowed here: add it to the allowed hosts of the server", host)
}

// hostMatches reports whether the entry matches. The entry is host, host:port or *.
func hostMatches(entry, name, port string) bool {
	n, p := splitHost(entry)
	return entry == anyHost || n == name && (p == "" || p == port)
}

// splitHost returns the lower-case name without brackets, and the port, which may be empty.
func splitHost(s string) (name, port string) {
	name, port, err := net.SplitHostPort(s)
	if err != nil {
		name, port = s, ""
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	return strings.ToLower(name), port
}

func isLoopback(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

// localAddr returns the local address of the connection of r, or nil.
func localAddr(r *http.Request) net.Addr {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return addr
}

func localHost(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	name, _ := splitHost(addr.String())
	return name
}

// checkOrigin refuses web pages of other origins. Requests without Origin, pages of the host itself and the
// allowed entries are accepted.
func checkOrigin(origin, host string, allowed []string) error {
	if origin == "" {
		return nil
	}
	u, err := url.Parse(origin)
	if err == nil && u.Host != "" && strings.EqualFold(u.Host, host) {
		return nil
	}
	if slices.ContainsFunc(allowed, func(a string) bool { return originMatches(a, origin, u) }) {
		return nil
	}
	return fmt.Errorf("origin %.200q is not allowed here: add it to the allowed origins of the server", origin)
}

// originMatches reports whether the entry matches. The entry is an origin (scheme://host:port), host,
// host:port or *. u is the parsed origin, or nil.
func originMatches(entry, origin string, u *url.URL) bool {
	if entry == anyHost || strings.EqualFold(entry, origin) {
		return true
	}
	return u != nil && u.Host != "" && hostMatches(entry, strings.ToLower(u.Hostname()), u.Port())
}
