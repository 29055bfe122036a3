package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// Bounds of an HTTP request before it becomes a WebSocket.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 60 * time.Second
	adminTimeout  = 5 * time.Minute // of an answer: a CPU profile takes its time
	maxHeader     = 16 << 10
)

// openListener binds an address; a busy one is told from a wrong one.
func openListener(ctx context.Context, v *settings.Values, name, addr string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		return ln, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, failf("%s %s: the address is in use; stop the other program, or give another address (port 0 picks one)", v.Where(name), addr)
	case errors.Is(err, syscall.EACCES):
		return nil, failf("%s %s: not permitted; ports below 1024 need a privilege, give a higher one", v.Where(name), addr)
	}
	return nil, failf("%s %s: %w; give an address of this machine", v.Where(name), addr, bindCause(err))
}

func bindCause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

func (s *server) httpServer(h http.Handler, writeTimeout time.Duration) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          httpLog(s.log),
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 only
	}
}

// mainHandler serves the WebSocket and health, and metrics if there is no
// listener for them.
func (s *server) mainHandler(ws http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+s.values.Text("path"), ws)
	addHealth(mux, s.probes(), s.ends.admin == "")
	if s.ends.admin == "" {
		addMetrics(mux, s.registry)
	}
	if s.values.On("behind-proxy") {
		return forwarded(mux)
	}
	return mux
}

func (s *server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	addHealth(mux, s.probes(), true)
	addMetrics(mux, s.registry)
	addDebug(mux)
	if isLoopback(s.ends.admin) {
		return onlyKnownHosts(s.values.List("allow-host"), mux)
	}
	return mux
}
