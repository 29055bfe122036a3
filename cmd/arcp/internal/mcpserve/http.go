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

// Access says which clients are accepted over HTTP.
type Access struct {
	Token   string   // bearer token of clients; "": none is required
	Origins []string // of accepted web pages, besides pages of this computer
	Proxied bool     // the server is behind a proxy: the Host header is not checked
}

const (
	maxRequest   = 8 << 20
	maxNewcomer  = 1 << 20   // of a request without a session, which is read before it is handled
	idleSessions = time.Hour // then an idle session is ended
	readHeader   = 10 * time.Second
	readBody     = 30 * time.Second
)

// retryAfter is the value of Retry-After when all slots are in use, in seconds.
const retryAfter = "10"

// HTTP serves clients over streamable HTTP.
func (s *Server) HTTP(d Access) http.Handler {
	streamable := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.mcp },
		&sdk.StreamableHTTPOptions{MaxRequestBodyBytes: maxRequest, DisableLocalhostProtection: d.Proxied, Logger: s.cfg.Log})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			r.Body = inTime(w, r.Body) // also for a refused request: the rest of its body is read then
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
		if c == nil { // the session has ended, or is ending in the SDK
			http.Error(w, "session not found: begin another one", http.StatusNotFound)
			return
		}
		defer s.sessions.leave(c)
		if r.Method == http.MethodDelete {
			defer func() {
				if !slices.Contains(slices.Collect(s.mcp.Sessions()), c.session) {
					s.sessions.remove(c) // before the client gets the response and begins another
				}
			}()
		}
	case r.Method == http.MethodPost:
		s.serveNewcomer(streamable, w, r)
		return
	}
	streamable.ServeHTTP(w, r)
}

// serveNewcomer serves a request that may begin a session. It reads the request before it reserves a slot: the
// request may be slow, or begin no session.
func (s *Server) serveNewcomer(streamable http.Handler, w http.ResponseWriter, r *http.Request) {
	select {
	case s.newcomers <- struct{}{}:
		defer func() { <-s.newcomers }()
	default:
		turnAway(w, fmt.Sprintf("%d requests without a session are under way: try again later", cap(s.newcomers)))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxNewcomer))
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case tooLarge:
		http.Error(w, fmt.Sprintf("a request without a session may have at most %d bytes", maxNewcomer), http.StatusRequestEntityTooLarge)
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
	if begins(body) {
		if c = s.sessions.reserve(); c == nil {
			turnAway(w, fmt.Sprintf("all %d sessions are in use: end one, or try again later", s.sessions.most))
			return
		}
		defer s.sessions.release(c)
	}
	streamable.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), slotKey{}, c)))
}

// begins reports whether a message begins a session. A batch does not.
func begins(body []byte) bool {
	msg, err := jsonrpc.DecodeMessage(body)
	req, ok := msg.(*jsonrpc.Request)
	return err == nil && ok && req.Method == "initialize"
}

func turnAway(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", retryAfter)
	http.Error(w, why, http.StatusServiceUnavailable)
}

// timedBody is the body of a request with a deadline. The deadline is removed at the end of the body, for later
// requests of the connection. A deadline that has passed stays, so that the rest is not waited for.
type timedBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

func inTime(w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	b := timedBody{body, http.NewResponseController(w)}
	_ = b.conn.SetReadDeadline(time.Now().Add(readBody)) // only connections of tests have no deadlines
	return b
}

func (b timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.conn.SetReadDeadline(time.Time{}) // as in inTime
	}
	return n, err
}

// Serve serves HTTP on a listener until it is closed.
func (s *Server) Serve(ln net.Listener, d Access) error {
	srv := &http.Server{Handler: s.HTTP(d), ReadHeaderTimeout: readHeader, MaxHeaderBytes: 64 << 10}
	defer srv.Close()
	return srv.Serve(ln)
}

// allowsOrigin reports whether the Origin of a request is accepted. Programs other than browsers send none.
func (d *Access) allowsOrigin(origin string) bool {
	if origin == "" || slices.Contains(d.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

func (d *Access) allowsToken(header string) bool {
	if d.Token == "" {
		return true
	}
	scheme, given, _ := strings.Cut(header, " ")
	want, got := sha256.Sum256([]byte(d.Token)), sha256.Sum256([]byte(strings.TrimSpace(given)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(want[:], got[:]) == 1
}
