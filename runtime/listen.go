package runtime

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/arcpd/arcpd/runtime/tool"
)

const (
	stopGrace     = 30 * time.Second // for running jobs when ListenAndServe stops; the default of `arcp serve`
	headerTimeout = 10 * time.Second // for the header of a request
	idleTimeout   = time.Minute      // of a connection without a request
)

// ListenAndServe is a server in one call: it starts a runtime with c and tools, and serves ARCP over WebSocket at
// any path of a TCP address. When ctx ends, it refuses new jobs, gives running ones 30 s, closes Config.Store and
// returns nil. Jobs that have not ended continue at the next start.
//
// If the address cannot be used or the runtime does not start, the error says so, and the caller closes the store.
// A program that serves other handlers or TLS calls New, and uses Runtime.Handler.
func ListenAndServe(ctx context.Context, address string, c Config, tools ...*tool.Tool) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err // it has the address
	}
	return serveOn(ctx, ln, c, tools)
}

// serveOn is ListenAndServe with a listener, which it closes.
func serveOn(ctx context.Context, ln net.Listener, c Config, tools []*tool.Tool) error {
	defer ln.Close()
	if c.Tools == nil {
		c.Tools = tool.NewRegistry()
	}
	for _, t := range tools { // before New: recovered jobs look up their tools
		if err := c.Tools.Register(t); err != nil {
			return fmt.Errorf("register tools: %w", err)
		}
	}
	r, err := New(ctx, c)
	if err != nil {
		return fmt.Errorf("start the runtime: %w", err)
	}
	server := http.Server{Handler: r.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ErrorLog: log.New(r.cfg.Log, "", 0)}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(r.Gate().Listener(ln)) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	err = errors.Join(err, r.Shutdown(grace))
	_ = server.Close() // the runtime has closed its connections
	return err
}
