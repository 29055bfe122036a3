package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"

	"github.com/arcpd/arcpd/transport"
)

// Dial connects to a runtime and opens a session: over WebSocket with ws:// and
// wss://, over a unix socket with unix:///path. An error of the connection wraps
// ErrUnreachable; a refusal of the session is a *RemoteError.
//
// The context bounds Dial only.
func Dial(ctx context.Context, address string, opts Options) (*Client, error) {
	conn, err := connect(ctx, address, &opts)
	if err != nil {
		return nil, err
	}
	return New(ctx, conn, opts)
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

// Network configures the connections of Dial. Zero members are the defaults.
type Network struct {
	Header http.Header // of the WebSocket handshake
	TLS    *tls.Config // for wss; nil is the default
}
