package conformance

import (
	"context"

	"github.com/arcpd/arcpd/transport"
)

// dialURL connects to a server over the network.
func dialURL(ctx context.Context, url string) (transport.Conn, error) {
	return transport.Dial(ctx, url, transport.DialOptions{})
}
