package conformance

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/transport"
)

// Target is the server to check and the settings that the checks need to know.
type Target struct {
	// Dialect is the dialect that the checks speak.
	Dialect arcp.Dialect

	// Library is the client library that the checks of the draft dialect play. Each frame of
	// the server is judged as the library decodes it. Empty: strict.TypeScript, the strictest.
	Library strict.Library

	URL       string      // ws://HOST/PATH, wss://HOST/PATH or unix://PATH
	TLS       *tls.Config // for wss:// and links to artifacts; nil: the default configuration
	Token     string      // bearer token with the roles client, worker and approver
	Principal string      // principal of Token; empty: unknown, checks that need it are skipped

	OtherToken string // bearer token of another principal; empty: checks that need it are skipped

	// ObserverToken is the bearer token of a principal with the single role observer. The
	// principal sees the principal of Token, but not the principal of OtherToken. Empty: checks
	// that need it are skipped.
	ObserverToken string

	// JWT signs tokens for the scheme signed_jwt. Nil: checks that need it are skipped.
	JWT *JWT

	// Schemes lists the configured authentication schemes other than bearer and, with JWT,
	// signed_jwt. The server must refuse every other known scheme as not configured.
	Schemes []string

	// FrameLimit is the size in bytes of the largest frame that the server accepts. Zero or less:
	// unknown, checks that need it are skipped.
	FrameLimit int64

	// AckWindow is the number of unacknowledged events after which the server holds events
	// back. Zero: no window or unknown, checks that need it are skipped.
	AckWindow int

	// Restart kills the server and starts it at the same URL with the same durable data.
	// Nil: checks that need it are skipped.
	Restart func(ctx context.Context) error

	// Exec starts a server for one connection, which is its standard input and output. Checks with
	// more connections are skipped. Nil: connects to URL.
	Exec []string

	// Dial connects to the server. Nil: connects to URL, or to a process of Exec. A test uses Dial for a server in
	// the same process or behind a proxy.
	Dial func(ctx context.Context) (transport.Conn, error)

	// Mapping has the names of the server's tools and its known deviations. Nil: the names are those
	// in the checks, and there are no deviations.
	Mapping *Mapping

	// plant adds the fault of a self-test to each connection. Nil: there is none.
	plant func(transport.Conn) transport.Conn

	// links requests links to artifacts, with the fault of a self-test. Nil: there is none.
	links http.RoundTripper
}

func (tg *Target) library() strict.Library { return cmp.Or(tg.Library, strict.TypeScript) }

func (tg *Target) dial(ctx context.Context) (transport.Conn, error) {
	if tg.Dial != nil {
		return tg.planted(tg.Dial(ctx))
	}
	if tg.Exec != nil {
		conn, err := dialProcess(tg.Exec)
		if err != nil {
			return nil, err
		}
		return tg.planted(conn, nil)
	}
	return tg.planted(dialURL(ctx, tg.URL, tg.TLS))
}

// dialSocket connects with a client that can also send binary and malformed frames.
func (tg *Target) dialSocket(ctx context.Context) (transport.Conn, error) {
	s, err := dialSocket(ctx, tg.URL, tg.TLS)
	return tg.planted(s, err)
}

// linkTransport returns the transport for links to artifacts; nil: http.DefaultTransport.
func (tg *Target) linkTransport() http.RoundTripper {
	if tg.links == nil && tg.TLS != nil {
		return &http.Transport{TLSClientConfig: tg.TLS.Clone(), DisableKeepAlives: true}
	}
	return tg.links
}

func (tg *Target) planted(conn transport.Conn, err error) (transport.Conn, error) {
	if err != nil || tg.plant == nil {
		return conn, err
	}
	return tg.plant(conn), nil
}

// secrets returns the texts that reports must not contain and the server must not send.
func (tg *Target) secrets() []string {
	var list []string
	for _, s := range []string{tg.Token, tg.OtherToken, tg.ObserverToken} {
		if s != "" {
			list = append(list, s)
		}
	}
	return list
}

// server is the information about the target from the probe.
type server struct {
	accepted arcp.SessionAcceptedPayload
	tools    map[string]bool    // by name; only tools that checks need
	direct   map[string]bool    // those of tools that the server runs without a job
	served   map[arcp.Type]bool // of newerTypes: whether the server serves the type
	agents   []string           // names in session.welcome; only in the draft dialect
	err      string             // why the probe failed, or ""
	refused  *RefusedError      // the server refused the token of the probe; nil: it did not

	numbered bool           // events have an event_seq
	hangsUp  bool           // the server closes the connection after a message of a type that it does not know
	barrier  script.Barrier // how the checks recognize the answer to a ping
	quiet    time.Duration  // of the barrier ByTime
	habits   []string       // what the probe saw
}

// unknownTypeCheck is the check that judges what a server does with a type that it does not know. Others that depend on it
// are skipped if the server closes the connection, so that one defect is one finding.
const unknownTypeCheck = "extensions.unknown-core"

// wait returns the time within which nothing must come from a server that answers no ping.
func (s *server) wait() time.Duration { return cmp.Or(s.quiet, DefaultQuiet) }

// missing returns why the target does not meet a need, or "".
func (s *server) missing(tg *Target, need string) string {
	if name, ok := strings.CutPrefix(need, toolPrefix); ok {
		if s.direct[name] {
			return s.unless(false, "the server runs "+tg.Mapping.tool(name)+" without a job (RFC §6.3): name a tool that runs as a job for "+name+" in `tools` of the mapping file")
		}
		return s.unless(s.tools[name], tg.Mapping.missingTool(name))
	}
	if name, ok := strings.CutPrefix(need, capabilityPrefix); ok {
		return s.unless(s.offers(arcp.Feature(name)), "capability "+name+" is not offered")
	}
	if typ, ok := strings.CutPrefix(need, messagePrefix); ok {
		t := arcp.Type(typ)
		return s.unless(s.served[t] || slices.Contains(s.accepted.Capabilities.Features, newerTypes[t]), "the server does not serve "+typ+", which RFC 0001 does not have")
	}
	if need == NeedSidecar {
		listed := slices.Contains(s.accepted.Capabilities.BinaryEncoding, arcp.EncodingSidecar)
		return s.unless(listed, "binary_encoding does not list sidecar")
	}
	switch {
	case need == NeedNumbers:
		return s.unless(s.numbered, "the server gives events no event_seq")
	case need == NeedPong:
		return s.unless(s.barrier == script.ByCorrelation, "the server answers no ping with a pong that has its correlation_id")
	case need == NeedUnknown:
		return s.unless(!s.hangsUp, "the server closes the connection after a message of a type that it does not know: see "+unknownTypeCheck)
	case need == NeedResume:
		return s.unless(s.accepted.ResumeToken != "", "the server gives no resume token")
	case need == NeedWebSocket && !strings.HasPrefix(tg.URL, "ws"):
		return "the target has no WebSocket URL: reach the server by ws:// or wss://"
	case need == NeedOther && tg.OtherToken == "":
		return "no token of another principal was given: give --other-token, or other_token in a mapping file"
	case need == NeedObserver && tg.ObserverToken == "":
		return "no token of an observer was given: give --observer-token, or observer_token in a mapping file"
	case need == NeedPrincipal && tg.Principal == "":
		return "no principal of the token was given: give --principal, or principal in a mapping file"
	case need == NeedJWT:
		return tg.JWT.problem(tg)
	case need == NeedAckWindow && tg.AckWindow == 0:
		return "the server has no acknowledgement window: give --ack-window, or ack_window in a mapping file, if it has one"
	case need == NeedRestart && tg.Restart == nil:
		return "the server cannot be restarted by the checks: give restart in a mapping file"
	case need == NeedFrameLimit && tg.FrameLimit <= 0:
		return "the largest frame that the server reads is unknown: give --frame-limit, or frame_limit in a mapping file"
	}
	return ""
}

// offers reports whether the server has a feature. An explicit flag takes precedence over the list
// of features.
func (s *server) offers(f arcp.Feature) bool {
	caps := &s.accepted.Capabilities
	if on, explicit := caps.Flags[f]; explicit {
		return on
	}
	return caps.Has(f)
}

func (s *server) unless(present bool, reason string) string {
	switch {
	case s.err != "":
		return s.err
	case present:
		return ""
	}
	return reason
}
