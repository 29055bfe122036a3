package conformance

import (
	"context"
	"crypto/tls"
	"strings"

	"github.com/arcpd/arcpd/transport"
)

const unixScheme = "unix://"

// local reports whether the connections are unix sockets, or the files of a process.
func (tg *Target) local() bool { return strings.HasPrefix(tg.URL, unixScheme) || tg.Exec != nil }

// dialURL connects to a WebSocket URL or a unix socket. config is for wss://; nil: the default
// configuration.
func dialURL(ctx context.Context, url string, config *tls.Config) (transport.Conn, error) {
	if path, ok := strings.CutPrefix(url, unixScheme); ok {
		return transport.DialUnix(ctx, path, transport.Limits{})
	}
	return transport.Dial(ctx, url, transport.DialOptions{TLS: config})
}
