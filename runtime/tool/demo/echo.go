package demo

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// newEcho returns demo.echo 1.0.0. Only the limit of a frame bounds its arguments and its equally large result.
func newEcho() (*tool.Tool, error) {
	c := capability("echo", "Returns its arguments unchanged.")
	c.Default = true
	c.Limits = tool.Limits{Timeout: timeout, Concurrency: unlimited, MaxRequestBytes: unlimited, MaxResponseBytes: unlimited}
	return tool.NewRaw(c, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
		return args, nil
	})
}

// newOldEcho returns demo.echo 0.9.0.
func newOldEcho() (*tool.Tool, error) {
	c := capability("echo", "Returns its arguments as the member legacy.")
	c.Version = "0.9.0"
	c.Limits.MaxRequestBytes, c.Limits.MaxResponseBytes = unlimited, unlimited
	return tool.NewRaw(c, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
		out := append(make(arcp.Raw, 0, len(args)+len(`{"legacy":}`)), `{"legacy":`...)
		return append(append(out, args...), '}'), nil
	})
}
