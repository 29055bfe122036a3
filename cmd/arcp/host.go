package main

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// anyHost in --allow-host lets every name pass.
const anyHost = "*"

// isLoopback reports whether only this machine can reach an address to listen
// on.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && loopbackHost(host)
}

func loopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// allowedHosts returns the names of the main listener besides loopback. With a proxy or other
// machines in front a name proves nothing unless the operator has listed the right ones.
func allowedHosts(listen string, listed []string, behindProxy bool) []string {
	if len(listed) == 0 && (behindProxy || !isLoopback(listen)) {
		return []string{anyHost}
	}
	return listed
}

// onlyKnownHosts guards a listener on loopback against web pages: one that made
// a name of its own point here (DNS rebinding) is known by that name.
func onlyKnownHosts(listed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !knownHost(r.Host, listed) {
			http.Error(w, "host "+r.Host+" is not allowed here", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func knownHost(host string, listed []string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.Trim(name, "[]")
	if _, err := netip.ParseAddr(name); err == nil || loopbackHost(name) {
		return true
	}
	for _, l := range listed {
		if l == anyHost || strings.EqualFold(l, name) || strings.EqualFold(l, host) {
			return true
		}
	}
	return false
}

// forwarded makes the address that a proxy in front reports the request's own.
func forwarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ip, ok := lastForwarded(r.Header.Values("X-Forwarded-For")); ok {
			r.RemoteAddr = net.JoinHostPort(ip, "0")
		}
		next.ServeHTTP(w, r)
	})
}

// lastForwarded returns the entry of the nearest proxy: earlier entries are claims of the
// client.
func lastForwarded(headers []string) (string, bool) {
	if len(headers) == 0 {
		return "", false
	}
	list := headers[len(headers)-1]
	last := strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:])
	ip, err := netip.ParseAddr(last)
	return ip.Unmap().String(), err == nil
}
