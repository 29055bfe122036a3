package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// roundTripper adds the headers, shows the observer the messages of both directions, and bounds those
// of the server. Redirects are not followed: the headers are meant for one server.
//
// It works on HTTP and not on an sdk.Connection: the SDK tells its own connection, and no other, the
// version of the protocol, and then begins the stream of notifications.
type roundTripper struct {
	next       *http.Transport
	headers    *headers
	observer   *observer
	query      string // of the URL, often a secret; the SDK, whose errors repeat the URL, does not know it
	onNoStream func() // is called when the server has not answered the request for its stream

	life context.Context // of all requests
	stop context.CancelFunc
}

func newRoundTripper(h *headers, t *observer) *roundTripper {
	dial := &net.Dialer{Timeout: 10 * time.Second}
	r := &roundTripper{headers: h, observer: t, onNoStream: func() {}, next: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 16, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxErrorBody,
	}}
	r.life, r.stop = context.WithCancel(context.Background())
	return r
}

// end cancels the requests under way, and refuses others.
func (r *roundTripper) end() {
	r.stop()
	r.next.CloseIdleConnections()
}

// client returns the HTTP client for the SDK. It has no timeout: each request ends with its call.
func (r *roundTripper) client() *http.Client {
	return &http.Client{Transport: r, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// RoundTrip implements http.RoundTripper.
func (r *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	values, err := r.headers.current()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(req.Context())
	detach := context.AfterFunc(r.life, cancel)
	req = req.Clone(ctx)
	req.URL.RawQuery = r.query
	maps.Copy(req.Header, values)
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
	id, err := r.request(req)
	if err != nil {
		return nil, err
	}
	if req.Method == http.MethodGet {
		return r.stream(req, cancel)
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	return r.response(resp, id)
}

// stream requests the stream of the server, and waits for streamWait: the SDK would wait without a limit, and
// the session would not begin.
func (r *roundTripper) stream(req *http.Request, cancel func()) (*http.Response, error) {
	t := time.AfterFunc(streamWait, cancel)
	resp, err := r.next.RoundTrip(req)
	switch late := !t.Stop(); {
	case late && r.life.Err() == nil && req.Header.Get("Last-Event-Id") == "":
		if err == nil {
			_ = resp.Body.Close() // it came too late
		}
		r.onNoStream()
		return noStream(req), nil
	case err != nil:
		return nil, err
	}
	return r.response(resp, jsonrpc.ID{})
}

// noStream returns the response of a server without a stream.
func noStream(req *http.Request) *http.Response {
	return &http.Response{Status: "405 Method Not Allowed", StatusCode: http.StatusMethodNotAllowed, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody, Request: req}
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

// request shows the observer the message that is sent, and returns the id of a request that waits
// for an answer.
func (r *roundTripper) request(req *http.Request) (id jsonrpc.ID, err error) {
	if req.Method != http.MethodPost || req.Body == nil {
		return id, nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return id, err
	}
	_ = req.Body.Close() // it is in memory
	req.Body = io.NopCloser(bytes.NewReader(body))
	msg, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		return id, err
	}
	r.observer.sent(req.Context(), msg)
	if call, ok := msg.(*jsonrpc.Request); ok {
		id = call.ID
	}
	return id, nil
}

func (r *roundTripper) response(resp *http.Response, id jsonrpc.ID) (*http.Response, error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // the SDK refuses an invalid one
	if resp.StatusCode >= 300 {
		r.observer.answered(id, nil) // the server has refused it
	}
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		_ = resp.Body.Close() // it is not used
		return nil, fmt.Errorf("the server answers with a redirect (%d), which is not followed; configure the URL that it leads to", resp.StatusCode)
	case resp.StatusCode >= 400:
		resp.Body = readCloser{io.LimitReader(resp.Body, maxErrorBody), resp.Body}
	case kind == "text/event-stream":
		resp.Body = newEventReader(resp.Body, r.observer, id)
	default:
		resp.Body = &answerReader{src: resp.Body, observer: r.observer, id: id}
	}
	resp.ContentLength = -1
	return resp, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// answerReader reads a body that is one message. One goroutine uses it.
type answerReader struct {
	src      io.ReadCloser
	observer *observer
	id       jsonrpc.ID
	rest     []byte
	read     bool
}

func (r *answerReader) Close() error { return r.src.Close() }

func (r *answerReader) Read(p []byte) (int, error) {
	if !r.read {
		r.read = true
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *answerReader) fill() error {
	body, err := io.ReadAll(io.LimitReader(r.src, int64(r.observer.most)+1))
	switch {
	case err != nil:
		return err
	case len(body) <= r.observer.most:
		r.observer.receivedRaw(body)
		r.rest = body
	case !r.id.IsValid():
		return errNoID
	default:
		r.rest, err = r.observer.instead(r.id)
	}
	return err
}

// eventReader reads a stream of server-sent events. It replaces an event that is too large by an error for
// the request that the stream answers. One goroutine uses it.
type eventReader struct {
	src      *bufio.Reader
	closer   io.Closer
	observer *observer
	id       jsonrpc.ID // not valid: the stream answers no request

	rest []byte
	err  error
}

func newEventReader(src io.ReadCloser, t *observer, id jsonrpc.ID) *eventReader {
	return &eventReader{src: bufio.NewReaderSize(src, 64<<10), closer: src, observer: t, id: id}
}

func (r *eventReader) Close() error { return r.closer.Close() }

func (r *eventReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.rest, r.err = r.event()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// event reads one event, up to an empty line. It does not keep an event that is too large.
func (r *eventReader) event() ([]byte, error) {
	var event []byte
	large, lineStart := false, true
	for {
		part, err := r.src.ReadSlice('\n')
		if large = large || len(event)+len(part) > r.observer.most; large {
			event = nil
		} else {
			event = append(event, part...)
		}
		blank := lineStart && err == nil && len(bytes.TrimRight(part, "\r\n")) == 0
		lineStart = err == nil
		switch {
		case errors.Is(err, bufio.ErrBufferFull) || err == nil && !blank:
			continue
		case large:
			return r.instead(err)
		}
		r.observer.receivedRaw(eventData(event))
		return event, err
	}
}

// instead returns the event that replaces one that is too large.
func (r *eventReader) instead(end error) ([]byte, error) {
	if !r.id.IsValid() {
		return nil, end
	}
	data, err := r.observer.instead(r.id)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "event: message\ndata: %s\n\n", data), end
}

// receivedRaw is received for an encoded message. The SDK reports one that cannot be decoded.
func (t *observer) receivedRaw(data []byte) {
	if msg, err := jsonrpc.DecodeMessage(data); err == nil {
		t.received(msg)
	}
}

// instead returns the encoded answer that replaces one that is too large.
func (t *observer) instead(id jsonrpc.ID) ([]byte, error) {
	t.answered(id, nil)
	return jsonrpc.EncodeMessage(tooLarge(id, t.most))
}

// eventData returns the data of an event.
func eventData(event []byte) []byte {
	var data []byte
	for line := range bytes.Lines(event) {
		value, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:"))
		if !ok {
			continue
		}
		if data != nil {
			data = append(data, '\n')
		}
		data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
	}
	return data
}
