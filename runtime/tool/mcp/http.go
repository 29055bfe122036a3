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

	"github.com/arcpd/arcpd/arcp"
)

// roundTripper adds the headers, shows the wrapper what goes to and fro, and bounds
// what comes. Redirects are not followed: the headers are meant for one server.
type roundTripper struct {
	next    *http.Transport
	headers *headers
	tap     *connWrapper
	query   string // of the URL, often a secret; the SDK, whose errors repeat the URL, does not know it
	late    func() // the server did not answer the request for its stream

	life context.Context // of the requests
	stop context.CancelFunc
}

func newRoundTripper(h *headers, t *connWrapper) *roundTripper {
	dial := &net.Dialer{Timeout: 10 * time.Second}
	r := &roundTripper{headers: h, tap: t, late: func() {}, next: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 16, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxErrorBody,
	}}
	r.life, r.stop = context.WithCancel(context.Background())
	return r
}

// end ends the requests under way; there are no others.
func (r *roundTripper) end() {
	r.stop()
	r.next.CloseIdleConnections()
}

// client is what the SDK uses. It has no time limit of its own: each request ends
// with the call that it is for.
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

// stream asks for the stream that a server may offer, and waits for streamWait: the
// SDK would wait for ever, and with it the begin of the session.
func (r *roundTripper) stream(req *http.Request, cancel func()) (*http.Response, error) {
	t := time.AfterFunc(streamWait, cancel)
	resp, err := r.next.RoundTrip(req)
	switch late := !t.Stop(); {
	case late && r.life.Err() == nil && req.Header.Get("Last-Event-Id") == "":
		if err == nil {
			_ = resp.Body.Close() // it came too late
		}
		r.late()
		return noStream(req), nil
	case err != nil:
		return nil, err
	}
	return r.response(resp, nil)
}

// noStream is the answer of a server that offers no stream.
func noStream(req *http.Request) *http.Response {
	return &http.Response{Status: "405 Method Not Allowed", StatusCode: http.StatusMethodNotAllowed, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody, Request: req}
}

// endingBody ends what belongs to a response with its body.
type endingBody struct {
	io.ReadCloser
	end func()
}

func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// request shows the wrapper what is sent, and returns the id of a request that waits
// for an answer.
func (r *roundTripper) request(req *http.Request) (id arcp.Raw, err error) {
	if req.Method != http.MethodPost || req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	_ = req.Body.Close() // it is in memory
	req.Body = io.NopCloser(bytes.NewReader(body))
	return r.tap.sent(body), nil
}

func (r *roundTripper) response(resp *http.Response, id arcp.Raw) (*http.Response, error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // what cannot be read is refused by the SDK
	if resp.StatusCode >= 300 {
		r.tap.answered(string(id), nil) // the server has refused it
	}
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		_ = resp.Body.Close() // it is not used
		return nil, fmt.Errorf("the server answers with a redirect (%d), which is not followed; configure the URL that it leads to", resp.StatusCode)
	case resp.StatusCode >= 400:
		resp.Body = readCloser{io.LimitReader(resp.Body, maxErrorBody), resp.Body}
	case kind == "text/event-stream":
		resp.Body = newEventReader(resp.Body, r.tap, id)
	default:
		resp.Body = &answerReader{src: resp.Body, tap: r.tap, id: id}
	}
	resp.ContentLength = -1
	return resp, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// answerReader is a body that is one message. One goroutine reads.
type answerReader struct {
	src  io.ReadCloser
	tap  *connWrapper
	id   arcp.Raw
	rest []byte
	read bool
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
	body, err := io.ReadAll(io.LimitReader(r.src, int64(r.tap.most)+1))
	switch {
	case err != nil:
		return err
	case len(body) <= r.tap.most:
		r.tap.received(body)
		r.rest = body
	case r.id == nil:
		return errNoID
	default:
		r.rest = r.tap.tooLarge(r.id)
	}
	return nil
}

// eventReader passes on server-sent events that the SDK can take: one that is too
// large becomes an error for the request that the stream answers. One goroutine
// reads.
type eventReader struct {
	src    *bufio.Reader
	closer io.Closer
	tap    *connWrapper
	id     arcp.Raw // nil: the stream answers no request

	rest []byte
	err  error
}

func newEventReader(src io.ReadCloser, t *connWrapper, id arcp.Raw) *eventReader {
	return &eventReader{src: bufio.NewReaderSize(src, 64<<10), closer: src, tap: t, id: id}
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

// event reads up to an empty line. Of an event that is too large nothing is kept.
func (r *eventReader) event() ([]byte, error) {
	var event []byte
	large, fresh := false, true // fresh: a line begins
	for {
		part, err := r.src.ReadSlice('\n')
		if large = large || len(event)+len(part) > r.tap.most; large {
			event = nil
		} else {
			event = append(event, part...)
		}
		blank := fresh && err == nil && len(bytes.TrimRight(part, "\r\n")) == 0
		fresh = err == nil
		switch {
		case errors.Is(err, bufio.ErrBufferFull) || err == nil && !blank:
			continue
		case large:
			return r.instead(), err
		}
		r.tap.received(eventData(event))
		return event, err
	}
}

// instead is the event in the place of one that was too large.
func (r *eventReader) instead() []byte {
	if r.id == nil {
		return nil
	}
	return fmt.Appendf(nil, "event: message\ndata: %s\n\n", r.tap.tooLarge(r.id))
}

// eventData joins the data of an event.
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
