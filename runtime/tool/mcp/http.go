package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/internal/backoff"
)

// httpTransport is the SDK's transport over streamable HTTP. Its connection reports each message
// to the observer.
type httpTransport struct {
	*sdk.StreamableClientTransport
	observer *observer
}

// Connect implements sdk.Transport.
func (ht httpTransport) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := ht.StreamableClientTransport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &httpConn{Connection: conn, observer: ht.observer, streamEnded: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return c, nil
}

// httpConn is a connection of the SDK that reports its messages. It also opens the notification
// stream: the SDK opens it only for a connection of its own type, which cannot report messages.
type httpConn struct {
	sdk.Connection
	observer    *observer
	streamEnded chan struct{} // capacity 1

	ctx    context.Context // of the notification stream
	cancel context.CancelFunc
}

// streamID is the id of the request for the notification stream. The ids of the SDK are numbers.
var streamID, _ = jsonrpc.MakeID("stream")

// exchange passes the properties of a message to the round tripper, in the context of the HTTP
// request, and the status back.
type exchange struct {
	id      jsonrpc.ID // of a request; not valid: the message expects no answer
	stream  bool       // the request opens the notification stream
	refused bool       // the HTTP status of the response is 300 or more
}

// exchangeKey is the context key of an exchange.
type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return new(exchange)
}

// Close ends the session at the server, then the notification stream.
func (c *httpConn) Close() error {
	defer c.cancel()
	return c.Connection.Close()
}

// Write implements sdk.Connection.
func (c *httpConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	c.observer.sent(ctx, msg)
	x := new(exchange)
	req, isRequest := msg.(*jsonrpc.Request)
	if isRequest {
		x.id = req.ID
	}
	err := c.Connection.Write(context.WithValue(ctx, exchangeKey{}, x), msg)
	if x.refused || err != nil && ctx.Err() == nil { // no answer follows
		c.observer.answered(x.id, nil)
	}
	if err == nil && isRequest && req.Method == "notifications/initialized" {
		err := c.openStream()
		go c.maintainStream(err) // it ends with Close
	}
	return err
}

// Read implements sdk.Connection.
func (c *httpConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if err != nil {
		return nil, err
	}
	if r, ok := msg.(*jsonrpc.Response); ok && r.ID == streamID {
		select {
		case c.streamEnded <- struct{}{}:
		default:
		}
	}
	c.observer.received(msg)
	return msg, nil
}

// openStream opens the notification stream with the request of MCP 2026-07-28. The round tripper
// translates the request for older versions, which alone send notifications/initialized.
func (c *httpConn) openStream() error {
	ctx := context.WithValue(c.ctx, exchangeKey{}, &exchange{stream: true})
	return c.Connection.Write(ctx, &jsonrpc.Request{ID: streamID, Method: "subscriptions/listen"})
}

// maintainStream opens the notification stream again after its end or a failure, until Close or
// errNoStream. err is the result of the first openStream. A server that is late then has no stream.
func (c *httpConn) maintainStream(err error) {
	if errors.Is(err, errStreamLate) {
		return
	}
	pause := backoff.Backoff{Policy: restartBackoff}
	for !errors.Is(err, errNoStream) {
		opened := time.Now()
		if err == nil {
			select {
			case <-c.streamEnded:
			case <-c.ctx.Done():
			}
		}
		pause.Lasted(time.Since(opened))
		if backoff.Sleep(c.ctx, pause.Next()) != nil {
			return
		}
		err = c.openStream()
	}
}

// Errors of the request for the notification stream.
var (
	errNoStream   = errors.New("the server has no stream")
	errStreamLate = fmt.Errorf("the server has not answered the request for its stream within %s", streamWait)
)

// roundTripper authorizes the requests, and bounds the messages of the server. Redirects are not
// followed: the headers are meant for one server.
type roundTripper struct {
	next       *http.Transport
	headers    *headers
	maxBytes   int    // of a message
	query      string // of the URL; often a secret, so the SDK, whose errors contain the URL, does not have it
	onNoStream func() // called if the server does not answer the request for its notification stream

	version atomic.Pointer[string] // version of MCP; nil before the handshake

	ctx    context.Context // of all requests
	cancel context.CancelFunc
}

func newRoundTripper(h *headers, maxBytes int) *roundTripper {
	dial := &net.Dialer{Timeout: 10 * time.Second}
	r := &roundTripper{headers: h, maxBytes: maxBytes, onNoStream: func() {}, next: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 16, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxErrorBody,
	}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// end cancels the requests under way and refuses further requests.
func (r *roundTripper) end() {
	r.cancel()
	r.next.CloseIdleConnections()
}

// client returns the HTTP client for the SDK. It has no timeout: each request ends with its call.
func (r *roundTripper) client() *http.Client {
	return &http.Client{Transport: r, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// setVersion is middleware of the SDK's client. It stores the negotiated version for the header: the
// SDK passes the version only to a connection of its own type.
func (r *roundTripper) setVersion(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if s, ok := req.GetSession().(*sdk.ClientSession); ok && s.InitializeResult() != nil {
			r.version.Store(&s.InitializeResult().ProtocolVersion)
		}
		return next(ctx, method, req)
	}
}

const versionHeader = "Mcp-Protocol-Version"

// RoundTrip implements http.RoundTripper.
func (r *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	values, err := r.headers.current()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(req.Context())
	detach := context.AfterFunc(r.ctx, cancel)
	req = req.Clone(ctx)
	req.URL.RawQuery = r.query
	maps.Copy(req.Header, values)
	if v := r.version.Load(); v != nil {
		req.Header.Set(versionHeader, cmp.Or(req.Header.Get(versionHeader), *v))
	}
	resp, err := r.exchange(req, cancel)
	if err != nil {
		detach()
		cancel()
		return nil, err
	}
	resp.Body = &endingBody{resp.Body, func() { detach(); cancel() }}
	return resp, nil
}

func (r *roundTripper) exchange(req *http.Request, cancel func()) (*http.Response, error) {
	x := exchangeOf(req.Context())
	if x.stream && req.Method == http.MethodPost {
		return r.openStream(req, cancel)
	}
	if req.Method == http.MethodGet { // it resumes a stream
		t := time.AfterFunc(streamWait, cancel)
		defer t.Stop()
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if req.Method == http.MethodPost {
		x.refused = resp.StatusCode >= 300
	}
	return r.bound(resp, x.id)
}

// openStream sends a GET request and waits at most streamWait for the response header, because the
// session begins after it. The error is errStreamLate then, and errNoStream if the server has no
// notification stream.
func (r *roundTripper) openStream(req *http.Request, cancel func()) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close() // the body is in memory
	}
	req.Method, req.Body, req.GetBody, req.ContentLength = http.MethodGet, nil, nil, 0
	req.Header.Del("Content-Type")
	req.Header.Set("Accept", eventStream)
	t := time.AfterFunc(streamWait, cancel)
	resp, err := r.next.RoundTrip(req)
	late := !t.Stop() && r.ctx.Err() == nil
	switch {
	case late && err == nil:
		_ = resp.Body.Close() // the body is not used
		fallthrough
	case late:
		r.onNoStream()
		return nil, errStreamLate
	case err != nil:
		return nil, err
	case resp.StatusCode >= 500:
		_ = resp.Body.Close() // the body is not used
		return nil, fmt.Errorf("the server answers the request for its stream with %s", resp.Status)
	case resp.StatusCode >= 300 || mediaType(resp) != eventStream:
		_ = resp.Body.Close() // the body is not used
		return nil, errNoStream
	}
	return r.bound(resp, jsonrpc.ID{})
}

const eventStream = "text/event-stream"

// mediaType returns the media type of a body, or "" if it is invalid.
func mediaType(resp *http.Response) string {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // "" after an error, which the SDK reports
	return kind
}

// endingBody calls end when the body of a response is closed.
type endingBody struct {
	io.ReadCloser
	end func()
}

func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// bound bounds the body of a response. An answer that is too large becomes an error for the request
// id.
func (r *roundTripper) bound(resp *http.Response, id jsonrpc.ID) (*http.Response, error) {
	body := resp.Body
	resp.ContentLength = -1
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		_ = body.Close() // the body is not used
		return nil, fmt.Errorf("the server answers with a redirect (%d), which is not followed; configure the URL that it leads to", resp.StatusCode)
	case resp.StatusCode >= 400:
		resp.Body = readCloser{io.LimitReader(body, maxErrorBody), body}
	case mediaType(resp) == eventStream:
		resp.Body = readCloser{newEventReader(body, r.maxBytes, id), body}
	case !id.IsValid(): // the SDK does not read the answer to a notification or a response
		resp.Body = readCloser{io.LimitReader(body, int64(r.maxBytes)), body}
	default:
		data, err := r.readAnswer(body, id)
		_ = body.Close() // the body was read
		if err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(data))
	}
	return resp, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// readAnswer reads a body that is one message.
func (r *roundTripper) readAnswer(body io.Reader, id jsonrpc.ID) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, int64(r.maxBytes)+1))
	switch {
	case err != nil || len(data) <= r.maxBytes:
		return data, err
	case !id.IsValid():
		return nil, errNoID
	}
	return jsonrpc.EncodeMessage(tooLarge(id, r.maxBytes))
}
