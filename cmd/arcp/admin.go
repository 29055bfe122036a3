package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/arcpd/arcpd/arcp"
)

// probe checks whether a part of the server is ready. check returns nil if it is.
type probe struct {
	name  string
	check func() error
}

// addHealth serves health pages for load balancers and supervisors. details enables ?verbose, which only the
// admin listener has.
func addHealth(mux *http.ServeMux, probes []probe, details bool) {
	ready := func(w http.ResponseWriter, r *http.Request) {
		report, ok := readiness(probes)
		if !details || !r.URL.Query().Has("verbose") {
			report = map[bool]string{true: "ok\n", false: "not ready\n"}[ok]
		}
		reply(w, ok, report)
	}
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /healthz", ready)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { reply(w, true, "ok\n") })
	mux.HandleFunc("GET /version", serveVersion)
}

func readiness(probes []probe) (report string, ok bool) {
	ok = true
	var b strings.Builder
	for _, p := range probes {
		if err := p.check(); err != nil {
			ok = false
			fmt.Fprintf(&b, "[-] %s: %v\n", p.name, err)
			continue
		}
		fmt.Fprintf(&b, "[+] %s ok\n", p.name)
	}
	fmt.Fprintf(&b, "ready: %t\n", ok)
	return b.String(), ok
}

func reply(w http.ResponseWriter, ok bool, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write([]byte(text)) // the client may have disconnected
}

func serveVersion(w http.ResponseWriter, _ *http.Request) {
	text, err := arcp.Marshal(thisBuild())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the client may have disconnected
}

func addMetrics(mux *http.ServeMux, reg *prometheus.Registry) {
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
}

// addDebug serves profiles to programs on this machine. It omits the command line, which may contain tokens.
func addDebug(mux *http.ServeMux) {
	local := func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, fromLoopback(notFromWebPage(h))) }
	local("GET /debug/pprof/", pprof.Index)
	local("GET /debug/pprof/cmdline", http.NotFound)
	local("GET /debug/pprof/profile", pprof.Profile)
	local("GET /debug/pprof/symbol", pprof.Symbol)
	local("GET /debug/pprof/trace", pprof.Trace)
	local("POST /debug/freemem", func(w http.ResponseWriter, _ *http.Request) {
		debug.FreeOSMemory()
		reply(w, true, "ok\n")
	})
}

// adminIndex lists the pages of the admin listener.
const adminIndex = `Pages of the admin listener of arcp:

  /livez          the process runs
  /readyz         new sessions are accepted; /readyz?verbose gives the reason otherwise
  /version        version of the server
  /metrics        metrics in the format of Prometheus
  /debug/pprof/   profiles, for programs on this machine
`

// addIndex answers / with the list of pages, and other paths with 404 and the list.
func addIndex(mux *http.ServeMux) {
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.Error(w, "there is no page "+r.URL.EscapedPath()+"\n\n"+adminIndex, http.StatusNotFound)
			return
		}
		reply(w, true, adminIndex)
	})
}

func fromLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr) // an invalid address is not loopback
		ip, err := netip.ParseAddr(host)
		if err != nil || !ip.Unmap().IsLoopback() {
			http.Error(w, "only clients on this machine are allowed", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// notFromWebPage refuses requests of web pages, because a profile slows down the server. Requests of programs and
// addresses typed by the user are allowed.
func notFromWebPage(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		if origin := r.Header.Get("Origin"); origin != "" || site != "" && site != "none" && site != "same-origin" {
			http.Error(w, "web pages are not allowed", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
