//go:build linux

package transport_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/transport"
	"github.com/arcpd/arcpd/transport/transporttest"
)

// wsServer is a server that hands over the connections it accepts.
type wsServer struct {
	transport.Upgrader
	url   string
	tls   *tls.Config // for the client
	conns chan transport.Conn
}

func newWSServer(t testing.TB, start func(http.Handler) *httptest.Server) *wsServer {
	t.Helper()
	s := &wsServer{conns: make(chan transport.Conn, 1)}
	h := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Handler(func(c transport.Conn) { s.conns <- c }).ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	s.url = "ws" + strings.TrimPrefix(h.URL, "http")
	s.tls = h.Client().Transport.(*http.Transport).TLSClientConfig
	return s
}

// newDirectServer accepts connections without net/http. asked counts the requests that
// net/http answers nevertheless.
func newDirectServer(t testing.TB, path string) (s *wsServer, asked *atomic.Int64) {
	t.Helper()
	s, asked = &wsServer{conns: make(chan transport.Conn, 1)}, new(atomic.Int64)
	serve := func(c transport.Conn) { s.conns <- c }
	mux := http.NewServeMux()
	mux.Handle("GET "+path, s.Handler(serve))
	mux.HandleFunc("GET /other", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "here") })
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		mux.ServeHTTP(w, r)
	}))
	h.Listener = s.Direct(h.Listener, path, serve)
	h.Start()
	t.Cleanup(h.Close)
	s.url = "ws" + strings.TrimPrefix(h.URL, "http") + path
	return s, asked
}

// dial is a transporttest.Dial.
func (s *wsServer) dial(t *testing.T, l transport.Limits) (server, client transport.Conn) {
	t.Helper()
	s.Limits = l
	client, err := transport.Dial(t.Context(), s.url, transport.DialOptions{TLS: s.tls, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	return <-s.conns, client
}

func TestWebSocketIsAConn(t *testing.T) {
	if testing.Short() {
		t.Skip("listens on sockets: left out with -short")
	}
	transporttest.Run(t, newWSServer(t, httptest.NewServer).dial)
}

func TestDirectWebSocketIsAConn(t *testing.T) {
	if testing.Short() {
		t.Skip("listens on sockets: left out with -short")
	}
	s, asked := newDirectServer(t, "/arcp")
	transporttest.Run(t, s.dial)
	if n := asked.Load(); n > 0 {
		t.Errorf("net/http was asked %d times", n)
	}
}

func TestTLSWebSocketIsAConn(t *testing.T) {
	if testing.Short() {
		t.Skip("listens on sockets: left out with -short")
	}
	transporttest.Run(t, newWSServer(t, httptest.NewTLSServer).dial)
}

// plainListener accepts connections without descriptors, as they are used on Windows.
type plainListener struct{ net.Listener }

func (l plainListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct {
		net.Conn
		halfCloser
	}{conn, conn.(*net.TCPConn)}, nil
}

// halfCloser ends sending.
type halfCloser interface{ CloseWrite() error }

func TestWebSocketWithoutDescriptorIsAConn(t *testing.T) {
	if testing.Short() {
		t.Skip("listens on sockets: left out with -short")
	}
	transporttest.Run(t, newWSServer(t, func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Listener = plainListener{s.Listener}
		s.Start()
		return s
	}).dial)
}

// rawDial returns a server's connection and a raw client.
func rawDial(t *testing.T, l transport.Limits) (transport.Conn, rawClient) {
	t.Helper()
	s := newWSServer(t, httptest.NewServer)
	s.Limits = l
	client := newRawClient(t, s.url)
	server := <-s.conns
	t.Cleanup(func() {
		client.close()
		server.Abort()
	})
	return server, client
}

func wantRead(t *testing.T, c transport.Conn, want ...string) {
	t.Helper()
	for _, w := range want {
		got, err := c.Read()
		if err != nil {
			t.Fatalf("Read() = %v, want %.50q", err, w)
		}
		if string(got) != w {
			t.Errorf("Read() = %.50q (%d bytes), want %.50q", got, len(got), w)
		}
	}
}

func wantCode(t *testing.T, c transport.Conn, want transport.CloseCode) {
	t.Helper()
	f, err := c.Read()
	e, ok := errors.AsType[*transport.Error](err)
	if !ok || e.Code != want {
		t.Errorf("Read() = %.50q, %v, want code %d", f, err, want)
	}
}

const (
	fin      = 0x80
	fragment = 0x0
	text     = 0x1
	binaryOp = 0x2
	closing  = 0x8
	ping     = 0x9
	pong     = 0xa
)

func closeText(code transport.CloseCode, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(code))) + reason
}

func TestFragmentsAreJoined(t *testing.T) {
	server, client := rawDial(t, transport.Limits{ReadLimit: 200_000})
	big := strings.Repeat("0123456789", 7000)
	snow := "☃"
	client.write(client.frame(fin|text, "whole") +
		client.frame(text, "one ") + client.frame(fragment, "") + client.frame(fin|fragment, "two") +
		client.frame(text, big) + client.frame(fin|ping, "between") + client.frame(fin|fragment, big) +
		client.frame(text, snow[:1]) + client.frame(fin|fragment, snow[1:]) +
		client.frame(fin|text, "") + client.frame(fin|text, "whole again"))
	wantRead(t, server, "whole", "one two", big+big, snow, "", "whole again")
	client.wantFrame(fin|pong, "between")
}

// Bytes may arrive one by one, with pauses anywhere.
func TestFramesMayArriveInPieces(t *testing.T) {
	server, client := rawDial(t, transport.Limits{})
	body := strings.Repeat("x", 130)
	stream := client.frame(fin|text, "{}") + client.frame(fin|ping, "p") + client.frame(text, body) +
		client.frame(fin|pong, "unasked") + client.frame(fin|fragment, "y") + client.frame(fin|text, body)
	go func() {
		for i := range stream {
			client.write(stream[i : i+1])
			runtime.Gosched()
		}
	}()
	wantRead(t, server, "{}", body+"y", body)
	client.wantFrame(fin|pong, "p")
}

func TestBadFramesCloseTheConnection(t *testing.T) {
	for _, test := range []struct {
		name  string
		bytes func(c rawClient) string
		want  transport.CloseCode
	}{
		{"binary", func(c rawClient) string { return c.frame(fin|binaryOp, "{}") }, transport.CloseNotText},
		{"binary fragment", func(c rawClient) string { return c.frame(binaryOp, "{}") }, transport.CloseNotText},
		{"reserved bit", func(c rawClient) string { return c.frame(0x40|fin|text, "{}") }, transport.CloseProtocol},
		{"reserved opcode", func(c rawClient) string { return c.frame(fin|0x3, "{}") }, transport.CloseProtocol},
		{"continuation of nothing", func(c rawClient) string { return c.frame(fin|fragment, "{}") }, transport.CloseProtocol},
		{"text within message", func(c rawClient) string { return c.frame(text, "{") + c.frame(fin|text, "}") }, transport.CloseProtocol},
		{"long ping", func(c rawClient) string { return c.frame(fin|ping, strings.Repeat("x", 126)) }, transport.CloseProtocol},
		{"fragmented ping", func(c rawClient) string { return c.frame(ping, "x") }, transport.CloseProtocol},
		{"not masked", func(rawClient) string { return "\x81\x02{}" }, transport.CloseProtocol},
		{"bad close", func(c rawClient) string { return c.frame(fin|closing, "x") }, transport.CloseProtocol},
		{"negative length", func(rawClient) string { return "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00" },
			transport.CloseProtocol},
		{"huge text", func(rawClient) string { return "\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00" }, transport.CloseTooBig},
		{"long fragments", func(c rawClient) string {
			return c.frame(text, strings.Repeat("x", 600)) + c.frame(fragment, strings.Repeat("x", 401))
		}, transport.CloseTooBig},
		{"cut rune in fragments", func(c rawClient) string { return c.frame(text, "\xe2") + c.frame(fin|fragment, "x") }, transport.CloseNotUTF8},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, client := rawDial(t, transport.Limits{ReadLimit: 1000})
			client.write(client.frame(fin|text, "first") + test.bytes(client))
			wantRead(t, server, "first")
			wantCode(t, server, test.want)
			go server.Close(test.want, "why")
			client.wantFrame(fin|closing, closeText(test.want, "why"))
			client.wantEOF()
		})
	}
}

// A connection that breaks in the middle of a message is no message.
func TestIncompleteMessageIsAnError(t *testing.T) {
	for _, part := range []string{"", "\x81", "\x81\x85\x00\x00\x00\x00{}", "\x01\x81\x00\x00\x00\x00{",
		"\x01\x82\x00\x00\x00\x00{", "\x89\x82\x00\x00\x00\x00{"} {
		server, client := rawDial(t, transport.Limits{})
		client.write(part)
		if err := syscall.Shutdown(client.fd, syscall.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		wantCode(t, server, transport.CloseAbnormal)
	}
}

func TestCloseOfThePeerHasItsCode(t *testing.T) {
	for payload, want := range map[string]transport.Error{
		closeText(1000, ""):           {Code: transport.CloseNormal},
		closeText(1001, "tab closed"): {Code: transport.CloseGoingAway, Reason: "tab closed"},
		closeText(4321, "own code"):   {Code: 4321, Reason: "own code"},
		"":                            {Code: transport.CloseNoStatus},
	} {
		server, client := rawDial(t, transport.Limits{})
		if err := server.Write([]byte("not flushed")); err != nil {
			t.Fatal(err)
		}
		client.write(client.frame(fin|closing, payload))
		_, err := server.Read()
		e, ok := errors.AsType[*transport.Error](err)
		if !ok || !e.Remote || e.Code != want.Code || e.Reason != want.Reason {
			t.Errorf("Read() = %v, want %v", err, &want)
		}
		client.wantFrame(fin|closing, payload[:min(2, len(payload))])
		if err := server.Write([]byte("too late")); !errors.Is(err, e) {
			t.Errorf("Write() after the peer closed = %v, want %v", err, e)
		}
		if err := server.Close(transport.CloseNormal, ""); err != nil {
			t.Errorf("Close() after the peer = %v", err)
		}
		client.wantEOF()
	}
}

// Pings are answered between the frames of a flood and without a writer, each answer whole.
func TestPingsAreAnsweredInAFlood(t *testing.T) {
	server, client := rawDial(t, transport.Limits{})
	go discard(server)
	client.write(client.frame(fin|ping, "idle"))
	client.wantFrame(fin|pong, "idle")

	const frames = 2000
	body := strings.Repeat("0123456789", 300)
	go func() {
		for i := range frames {
			f := body[:i%len(body)]
			if i%100 == 0 {
				f = strings.Repeat(body, 100)
			}
			if server.Write([]byte(f)) != nil {
				return
			}
		}
		server.Flush()
	}()
	pings := 0
	for texts, pongs := 0, 0; texts < frames || pongs == 0; {
		if texts%10 == 0 {
			pings++
			client.write(client.frame(fin|ping, fmt.Sprint("ping ", pings)))
		}
		switch first, payload := client.readFrame(); first {
		case fin | text:
			texts++
		case fin | pong:
			pongs++
			if !strings.HasPrefix(payload, "ping ") {
				t.Fatalf("a pong brought %q", payload)
			}
		default:
			t.Fatalf("a frame began with %#x", first)
		}
	}
}

// A peer that sends pings and reads nothing costs no memory, and the last ping
// is the one that is answered.
func TestBlockedPeerGetsOnlyTheLastPong(t *testing.T) {
	server, client := rawDial(t, transport.Limits{})
	go discard(server)
	wrote := make(chan error, 1)
	const frames = 300
	body := strings.Repeat("x", transport.BufferSize)
	go func() {
		for range frames {
			if err := server.Write([]byte(body)); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- server.Flush()
	}()
	const pings = 10_000
	for i := range pings {
		client.write(client.frame(fin|ping, fmt.Sprint(i)))
	}
	client.write(client.frame(fin|ping, "last"))
	for last, texts := false, 0; !last || texts < frames; {
		switch first, payload := client.readFrame(); first {
		case fin | text:
			texts++
			if payload != body {
				t.Fatal("a frame was changed")
			}
		case fin | pong:
			last = payload == "last"
		default:
			t.Fatalf("a frame began with %#x", first)
		}
	}
	if err := <-wrote; err != nil {
		t.Errorf("Write to the peer that sends pings: %v", err)
	}
}

func TestPongAdvancesLastSeen(t *testing.T) {
	server, client := rawDial(t, transport.Limits{})
	go discard(server)
	if err := server.Ping(); err != nil {
		t.Fatal(err)
	}
	client.wantFrame(fin|ping, "")
	before := server.LastSeen()
	client.write(client.frame(fin|pong, ""))
	for until := time.Now().Add(30 * time.Second); server.LastSeen().Equal(before); runtime.Gosched() {
		if time.Now().After(until) {
			t.Fatal("a pong does not move LastSeen")
		}
	}
}

// Bytes that follow the client's handshake at once are not lost.
func TestFrameAfterTheHandshakeIsRead(t *testing.T) {
	s := newWSServer(t, httptest.NewServer)
	client := rawClient{t, rawConnect(t, strings.TrimPrefix(s.url, "ws://"))}
	defer client.close()
	client.write("GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" + client.frame(fin|text, "early"))
	server := <-s.conns
	defer server.Abort()
	wantRead(t, server, "early")
}

func TestBufferedReportsUnreadBytes(t *testing.T) {
	server, client := rawDial(t, transport.Limits{})
	b := server.(transport.Bufferer)
	if b.Buffered() {
		t.Error("Buffered() before anything was sent")
	}
	client.write(client.frame(fin|text, "1") + client.frame(fin|text, "2"))
	wantRead(t, server, "1")
	if !b.Buffered() {
		t.Error("Buffered() is false, but there is a second frame")
	}
	wantRead(t, server, "2")
	if b.Buffered() {
		t.Error("Buffered() after all was read")
	}
	client.close()
	wantCode(t, server, transport.CloseAbnormal)
	if !b.Buffered() {
		t.Error("Buffered() is false, but Read has an end to report")
	}
}

// TestCloseDropsFramesBeforeTheAnswer checks that a Read in progress returns no frame after Close has begun,
// and that Close succeeds when the peer answers its close frame behind other frames.
func TestCloseDropsFramesBeforeTheAnswer(t *testing.T) {
	server, client := rawDial(t, transport.Limits{})
	read := make(chan error, 1)
	go func() {
		frame, err := server.Read()
		if err == nil {
			err = fmt.Errorf("Read returned the frame %q", frame)
		}
		read <- err
	}()
	if err := server.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- server.Close(transport.CloseNormal, "") }()
	client.wantFrame(fin|text, "last")
	client.wantFrame(fin|closing, "\x03\xe8")
	client.write(client.frame(fin|text, "late") + client.frame(fin|ping, "p"))
	client.write(client.frame(text, "fragment") + client.frame(fin|closing, "\x03\xe8"))
	client.wantEOF()
	if err := <-closed; err != nil {
		t.Errorf("Close = %v", err)
	}
	if err := <-read; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Read = %v, want %v", err, transport.ErrClosed)
	}
}

// Frames around and above the size of a buffer arrive whole. Large ones belong to the reader.
func TestLargeFramesBelongToTheReader(t *testing.T) {
	if testing.Short() {
		t.Skip("listens on sockets: left out with -short")
	}
	const limit = 4 << 20
	server, client := newWSServer(t, httptest.NewServer).dial(t, transport.Limits{ReadLimit: limit})
	t.Cleanup(func() { client.Abort(); server.Abort() })
	for _, direction := range [][2]transport.Conn{{client, server}, {server, client}} {
		from, to := direction[0], direction[1]
		var last []byte // the frame before, if it belongs to the reader
		var want string
		for _, size := range []int{transport.BufferSize - 15, transport.BufferSize, transport.BufferSize + 1, 300_001, 7, limit, limit - 3, 1} {
			text := randomText(size)
			sent := make(chan error, 1)
			go func() { sent <- errors.Join(from.Write(text), from.Flush()) }()
			got, err := to.Read()
			if err != nil || !bytes.Equal(got, text) {
				t.Fatalf("a frame of %d bytes: %d bytes, %v", size, len(got), err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if last != nil && string(last) != want {
				t.Errorf("the frame before the one of %d bytes has changed", size)
			}
			if last = nil; to.(transport.FrameOwner).FrameOwned() {
				last, want = got, string(text)
			}
			if owned := last != nil; owned != (size > transport.BufferSize) {
				t.Errorf("a frame of %d bytes belongs to the reader: %v", size, owned)
			}
		}
	}
}

func randomText(n int) []byte {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('!' + rand.IntN('~'-'!'))
	}
	return text
}
