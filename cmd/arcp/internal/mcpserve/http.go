package mcpserve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Access selects the clients that are accepted over HTTP.
type Access struct {
	Token   string   // bearer token of clients; "": no token is required
	Origins []string // accepted origins of web pages, besides pages of this computer
	Proxied bool     // the server is behind a proxy, so the Host header is not checked
}

const (
	maxRequest    = 8 << 20   // bytes
	maxUnassigned = 1 << 20   // bytes of a request without a session, which is in memory
	idleSessions  = time.Hour // from the last request of a session to its end
	readHeader    = 10 * time.Second
	readBody      = 30 * time.Second
)

// retryAfter is the value of Retry-After when all slots are in use, in seconds.
const retryAfter = "10"

// HTTP returns a handler that serves clients over streamable HTTP.
func (s *Server) HTTP(d Access) http.Handler {
	streamable := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.mcp },
		&sdk.StreamableHTTPOptions{MaxRequestBodyBytes: maxRequest, DisableLocalhostProtection: d.Proxied, Logger: s.cfg.Log})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			r.Body = withDeadline(w, r.Body) // net/http also reads the rest of the body of a refused request
		}
		switch {
		case !d.allowsOrigin(r.Header.Get("Origin")):
			http.Error(w, "this Origin is not allowed", http.StatusForbidden)
		case !d.allowsToken(r.Header.Get("Authorization")):
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is required", http.StatusUnauthorized)
		default:
			s.serveSession(streamable, w, r)
		}
	})
}

// serveSession serves a request of a session, or a request that may begin one.
func (s *Server) serveSession(streamable http.Handler, w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Mcp-Session-Id")
	switch {
	case id != "":
		c := s.sessions.acquire(id)
		if c == nil { // the session has ended or is ending in the SDK
			http.Error(w, "session not found: begin another one", http.StatusNotFound)
			return
		}
		defer s.sessions.leave(c)
		if r.Method == http.MethodDelete {
			defer func() {
				if !slices.Contains(slices.Collect(s.mcp.Sessions()), c.session) {
					s.sessions.remove(c) // before the client receives the response and begins another session
				}
			}()
		}
	case r.Method == http.MethodPost:
		s.serveUnassigned(streamable, w, r)
		return
	}
	streamable.ServeHTTP(w, r)
}

// serveUnassigned serves a request without a session. It reads the whole request before it reserves a slot,
// because the request may be slow or begin no session.
func (s *Server) serveUnassigned(streamable http.Handler, w http.ResponseWriter, r *http.Request) {
	select {
	case s.unassigned <- struct{}{}:
		defer func() { <-s.unassigned }()
	default:
		refuseTemporarily(w, fmt.Sprintf("%d requests without a session are under way: try again later", cap(s.unassigned)))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxUnassigned))
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case tooLarge:
		http.Error(w, fmt.Sprintf("a request without a session may have at most %d bytes", maxUnassigned), http.StatusRequestEntityTooLarge)
		return
	case errors.Is(err, os.ErrDeadlineExceeded):
		http.Error(w, fmt.Sprintf("the request was not sent within %v", readBody), http.StatusRequestTimeout)
		return
	case err != nil:
		http.Error(w, "failed to read body", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var c *sessionSlot // nil: the request begins no session
	if isInitialize(body) {
		if c = s.sessions.reserve(); c == nil {
			refuseTemporarily(w, fmt.Sprintf("all %d sessions are in use: end one, or try again later", s.sessions.size))
			return
		}
		defer s.sessions.release(c)
	}
	streamable.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), slotKey{}, c)))
}

// isInitialize reports whether a message begins a session. A batch does not begin a session.
func isInitialize(body []byte) bool {
	msg, err := jsonrpc.DecodeMessage(body)
	req, ok := msg.(*jsonrpc.Request)
	return err == nil && ok && req.Method == "initialize"
}

// refuseTemporarily answers a request that the client may repeat after retryAfter.
func refuseTemporarily(w http.ResponseWriter, reason string) {
	w.Header().Set("Retry-After", retryAfter)
	http.Error(w, reason, http.StatusServiceUnavailable)
}

// timedBody is the body of a request with a deadline. The end of the body removes the deadline, which would also
// apply to later requests of the connection. A deadline that has passed remains: net/http does not read the rest.
type timedBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

// withDeadline returns a body that must be read within readBody.
func withDeadline(w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	b := timedBody{body, http.NewResponseController(w)}
	_ = b.conn.SetReadDeadline(time.Now().Add(readBody)) // only a test has a connection without deadlines
	return b
}

func (b timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.conn.SetReadDeadline(time.Time{}) // as in withDeadline
	}
	return n, err
}

// Serve serves HTTP on a listener until the listener is closed.
func (s *Server) Serve(ln net.Listener, d Access) error {
	srv := &http.Server{Handler: s.HTTP(d), ReadHeaderTimeout: readHeader, MaxHeaderBytes: 64 << 10}
	defer srv.Close()
	return srv.Serve(ln)
}

// allowsOrigin reports whether the Origin of a request is accepted. Only browsers send an Origin.
func (a *Access) allowsOrigin(origin string) bool {
	if origin == "" || slices.Contains(a.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

func (a *Access) allowsToken(header string) bool {
	if a.Token == "" {
		return true
	}
	scheme, given, _ := strings.Cut(header, " ")
	want, got := sha256.Sum256([]byte(a.Token)), sha256.Sum256([]byte(strings.TrimSpace(given)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(want[:], got[:]) == 1
}
