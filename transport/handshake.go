package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// handshake is the http.RoundTripper of one dial. It sends the request on a new connection, and retains the
// connection after an upgrade. It avoids the goroutines and buffers of http.Transport.
type handshake struct {
	tls  *tls.Config
	body io.ReadWriteCloser // body of the upgrade response

	wire  wire   // wire of the upgraded connection
	early []byte // bytes received after the response
	info  Info
}

// RoundTrip implements http.RoundTripper.
func (h *handshake) RoundTrip(req *http.Request) (*http.Response, error) {
	conn, err := h.dial(req.Context(), req.URL)
	if err != nil {
		return nil, err
	}
	resp, err := h.exchange(conn, req)
	if err != nil {
		_ = conn.Close() // the first error is returned
		return nil, err
	}
	return resp, nil
}

func (h *handshake) dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	addr := net.JoinHostPort(u.Hostname(), port)
	if u.Scheme == "https" {
		return (&tls.Dialer{Config: h.tls}).DialContext(ctx, "tcp", addr)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

func (h *handshake) exchange(conn net.Conn, req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
	resp, br, err := roundTrip(conn, req)
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = bodyOf{resp.Body, conn}
		return resp, nil
	}
	if h.wire, err = netWire(conn); err != nil {
		return nil, err
	}
	early, _ := br.Peek(br.Buffered()) // cannot fail
	h.early = slices.Clone(early)
	h.info = Info{RemoteAddr: remoteHost(conn.RemoteAddr().String())}
	if t, ok := conn.(*tls.Conn); ok {
		h.info.PeerCerts = t.ConnectionState().PeerCertificates
	}
	resp.Body = h.body
	return resp, nil
}

func roundTrip(conn net.Conn, req *http.Request) (*http.Response, *bufio.Reader, error) {
	if err := req.Write(conn); err != nil {
		return nil, nil, err
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, req)
	return resp, br, err
}

// bodyOf is the body of a refusal. Close closes the connection.
type bodyOf struct {
	io.Reader
	conn io.Closer
}

func (b bodyOf) Close() error { return b.conn.Close() }

// answerText returns ": " and the first line of a refusal, or "".
func answerText(resp *http.Response) string {
	if resp == nil || resp.Body == nil {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // for people: a part of the body is enough
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line == "" {
		return ""
	}
	return ": " + line
}
