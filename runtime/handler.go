package runtime

import (
	"context"
	"net/http"
	"strconv"

	"github.com/arcpd/arcpd/transport"
)

// Handler returns a handler that serves ARCP over WebSocket at any path. http.Server.Shutdown does
// not wait for its connections; Runtime.Shutdown closes them.
func (r *Runtime) Handler() http.Handler {
	up := transport.Upgrader{Limits: transport.Limits{ReadLimit: r.cfg.MaxFrame}, AllowHosts: r.cfg.AllowHosts,
		AllowOrigins: r.cfg.AllowOrigins, Refused: r.UpgradeRefused, Go: r.Go}
	return up.Handler(func(c transport.Conn) { _ = r.Serve(context.Background(), c) }) // the connection was closed with the reason
}

// Go runs f on a reused goroutine, and does not wait for it. It is meant for transport.Upgrader.Go.
func (r *Runtime) Go(f func()) { r.pool.Run(f) }

// UpgradeRefused counts and logs a refused WebSocket handshake. It is meant for
// transport.Upgrader.Refused.
func (r *Runtime) UpgradeRefused(u transport.RefusedUpgrade) {
	r.metrics.UpgradesRefused.WithLabelValues(strconv.Itoa(u.Status)).Inc()
	r.upgradeLog.Warn().Int("status", u.Status).Str("remote", u.RemoteAddr).
		AnErr("reason", u.Reason).Msg("WebSocket handshake refused; at most ten a minute are logged")
}
