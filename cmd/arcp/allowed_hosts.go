package main

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// anyHost in --allow-host allows every name.
const anyHost = "*"

// isLoopback reports whether only this machine can reach the listen address.
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

// allowedHosts returns the allowed names of the main listener besides loopback. Without a list every name is
// allowed for a listener that other machines or a proxy can reach.
func allowedHosts(listen string, listed []string, behindProxy bool) []string {
	if len(listed) == 0 && (behindProxy || !isLoopback(listen)) {
		return []string{anyHost}
	}
	return listed
}

// onlyKnownHosts protects a loopback listener against DNS rebinding: web pages whose name resolves to this
// machine.
func onlyKnownHosts(listed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !knownHost(r.Host, listed) {
			http.Error(w, "host "+r.Host+" is not allowed; add it with --allow-host", http.StatusMisdirectedRequest)
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

// forwarded replaces the remote address of a request by the address that the proxy reports.
func forwarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ip, ok := lastForwarded(r.Header.Values("X-Forwarded-For")); ok {
			r.RemoteAddr = net.JoinHostPort(ip, "0")
		}
		next.ServeHTTP(w, r)
	})
}

// lastForwarded returns the entry of the nearest proxy. The client may have forged earlier entries.
func lastForwarded(headers []string) (string, bool) {
	if len(headers) == 0 {
		return "", false
	}
	list := headers[len(headers)-1]
	last := strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:])
	ip, err := netip.ParseAddr(last)
	return ip.Unmap().String(), err == nil
}
