package runtime

import (
	"context"
	"net/http"
	"slices"

	"github.com/arcpd/arcpd/transport"
)

// Handler returns a handler that serves ARCP over WebSocket at any path. http.Server.Shutdown does
// not wait for its connections; Runtime.Shutdown closes them.
func (r *Runtime) Handler() http.Handler {
	return r.Upgrader().Handler(func(c transport.Conn) { _ = r.Serve(context.Background(), c) }) // the connection was closed with the reason
}

// Upgrader returns an upgrader whose caller serves the connections, for example to log the error of
// Serve. It applies MaxFrame, AllowHosts and AllowOrigins of Config, counts and logs refused
// handshakes, and serves connections on reused goroutines.
func (r *Runtime) Upgrader() *transport.Upgrader {
	return &transport.Upgrader{
		Limits:       transport.Limits{ReadLimit: r.cfg.MaxFrame},
		AllowHosts:   r.cfg.AllowHosts,
		AllowOrigins: r.cfg.AllowOrigins,
		Refused:      r.upgradeRefused,
		Go:           r.pool.Run,
	}
}

// ArtifactHandler returns a handler that serves the links to artifacts at any path, or nil without
// Config.Artifacts.URL. It applies AllowHosts and AllowOrigins of Config, and allows the host of the URL. It sets the
// write deadline of each part of the content. Requests do not count in Runtime.Gate, which its listener does.
func (r *Runtime) ArtifactHandler() http.Handler {
	links := r.artifacts.Links
	if links == nil {
		return nil
	}
	up := transport.Upgrader{
		AllowHosts:   append(slices.Clone(r.cfg.AllowHosts), r.artifacts.url.Host),
		AllowOrigins: r.cfg.AllowOrigins,
		Refused:      func(transport.RefusedUpgrade) { links.Refused() },
	}
	return up.Guard(links)
}

func (r *Runtime) upgradeRefused(u transport.RefusedUpgrade) {
	r.metrics.UpgradesRefused.WithLabelValues(u.Check).Inc()
	r.refusals.Limit(r.cfg.Log.Warn()).Str("check", u.Check).Int("status", u.Status).Str("remote", u.RemoteAddr).
		AnErr("reason", u.Reason).Msg("WebSocket handshake refused")
}
