package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// Bounds of an HTTP request before it becomes a WebSocket.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 10 * time.Second // includes the header
	idleTimeout   = 60 * time.Second
	mainTimeout   = 30 * time.Second // writing an HTTP response
	adminTimeout  = 5 * time.Minute  // writing a response of the admin listener, such as a CPU profile
	maxHeader     = 16 << 10
	maxAdmin      = 256 // connections to the admin listener
)

// openListener binds an address. The error has the remedy.
func openListener(ctx context.Context, v *settings.Values, name, addr string) (net.Listener, error) {
	// TCP keep-alive costs four system calls for each connection. Heartbeats of sessions make
	// it unnecessary.
	config := net.ListenConfig{KeepAlive: -1}
	if v.Duration("heartbeat") == 0 {
		config.KeepAlive = 0
	}
	ln, err := config.Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		return ln, nil
	case errors.Is(err, errInUse):
		return nil, failf("%s %s: the address is in use; stop the other program, or give another address (port 0 picks one)", v.Where(name), addr)
	case errors.Is(err, errDenied):
		return nil, failf("%s %s: permission denied; %s", v.Where(name), addr, otherPort)
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
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          httpLog(s.log),
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 only
	}
}

// mainHandler serves the WebSocket, links to artifacts and health, and also metrics without an admin listener.
func (s *server) mainHandler(up *transport.Upgrader) http.Handler {
	ws := up.Handler(s.serveConn)
	mux := http.NewServeMux()
	mux.Handle("GET "+s.values.Text("path"), ws)
	if s.values.Text("path") != "/" {
		mux.Handle("GET /{$}", ws) // for clients configured with a host only
	}
	if links := s.rt.Load().ArtifactHandler(); links != nil {
		mux.Handle(artifactPattern(s.values), links)
	}
	addHealth(mux, s.probes(), s.ends.admin == "")
	if s.ends.admin == "" {
		addMetrics(mux, s.registry)
	}
	h := reportOtherPaths(mux, up)
	if s.values.On("behind-proxy") {
		return forwarded(h)
	}
	return h
}

// reportOtherPaths reports WebSocket handshakes at paths that mux does not serve.
func reportOtherPaths(mux *http.ServeMux, up *transport.Upgrader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" && r.Method == http.MethodGet {
			up.NotFound(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	addHealth(mux, s.probes(), true)
	addMetrics(mux, s.registry)
	addDebug(mux)
	addIndex(mux)
	data := s.values.Text("data") // a reload replaces s.values
	addBackup(mux, s.backupKey, func(ctx context.Context, dir string) error { return s.backup(ctx, data, dir) })
	if isLoopback(s.ends.admin) {
		return onlyKnownHosts(s.values.List("allow-host"), mux)
	}
	return mux
}

// errStarting is the error of requests during the start.
var errStarting = errors.New("the runtime is starting")

// backupKey returns the key for backup requests. A server with its data in memory has none.
func (s *server) backupKey() (*backupKey, error) {
	switch {
	case s.rt.Load() == nil:
		return nil, errStarting
	case s.key == nil:
		return nil, fmt.Errorf("%w: its data is in memory", store.ErrUnsupported)
	}
	return s.key, nil
}

// backup copies the data of the running server to dir. A stopping server refuses it.
func (s *server) backup(ctx context.Context, data, dir string) error {
	rt := s.rt.Load()
	if rt == nil {
		return errStarting
	}
	if err := rt.Ready(); err != nil && !errors.Is(err, runtime.ErrDiskFull) { // the copy may be on another disk
		return err
	}
	defer rt.HoldArtifacts()()
	err := backupData(ctx, rt.Store(), data, dir)
	if err == nil {
		s.metrics.backedUp()
	}
	return err
}

// serveUnix serves the unix socket.
func (s *server) serveUnix() error {
	for {
		conn, err := s.unix.Accept()
		if err != nil {
			return err
		}
		go s.serveConn(conn)
	}
}
