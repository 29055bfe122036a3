package runtime

import (
	"context"
	"net/http"

	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// Handler returns a handler that serves ARCP over WebSocket at any path. http.Server.Shutdown does
// not wait for its connections; Runtime.Shutdown closes them.
func (r *Runtime) Handler() http.Handler {
	up := transport.Upgrader{Limits: transport.Limits{ReadLimit: r.cfg.MaxFrame}, AllowHosts: r.cfg.AllowHosts,
		AllowOrigins: r.cfg.AllowOrigins, Refused: r.UpgradeRefused, Go: r.Go}
	return up.Handler(func(c transport.Conn) { _ = r.Serve(context.Background(), c) }) // the connection was closed with the reason
}

// AddTool adds a tool to Config.Tools. Sessions that see the tool receive tools.changed. The error
// is the one of tool.Registry.Register.
func (r *Runtime) AddTool(t *tool.Tool) error { return r.cfg.Tools.Register(t) }
