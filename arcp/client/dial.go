package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"

	"github.com/arcpd/arcpd/transport"
)

// Dial connects to a runtime and opens a session. The client ends with its connection; Connect makes
// one that reconnects.
//
// The address is a URL: ws:// or wss:// for a WebSocket, unix:///path for a unix socket. A connection
// error wraps ErrUnreachable. A refused session is a *RemoteError.
//
// The context bounds Dial only.
func Dial(ctx context.Context, address string, opts Options) (*Client, error) {
	return openOver(ctx, func(ctx context.Context) (transport.Conn, error) { return connect(ctx, address, &opts) }, opts, nil)
}

func connect(ctx context.Context, address string, opts *Options) (conn transport.Conn, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	switch u.Scheme {
	case "ws", "wss":
		conn, err = transport.Dial(ctx, address, transport.DialOptions{
			Header: opts.Network.Header, TLS: opts.Network.TLS, Limits: opts.Limits.Transport})
	case "unix":
		conn, err = transport.DialUnix(ctx, u.Host+u.Path, opts.Limits.Transport)
	default:
		return nil, fmt.Errorf("dial %s: want a URL with ws://, wss:// or unix://", address)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return conn, nil
}

// Network configures the connections of Dial and Connect.
type Network struct {
	Header http.Header // of the WebSocket handshake
	TLS    *tls.Config // for wss://; nil: the default configuration
}
