package conformance

import (
	"context"
	"strings"

	"github.com/arcpd/arcpd/transport"
)

const unixScheme = "unix://"

// local reports whether the server is reached over a unix socket.
func (tg *Target) local() bool { return strings.HasPrefix(tg.URL, unixScheme) }

// dialURL connects to a server over the network.
func dialURL(ctx context.Context, url string) (transport.Conn, error) {
	if path, ok := strings.CutPrefix(url, unixScheme); ok {
		return transport.DialUnix(ctx, path, transport.Limits{})
	}
	return transport.Dial(ctx, url, transport.DialOptions{})
}
