package client

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Secret is a text that cannot be printed, logged or marshalled by accident.
type Secret = arcp.Secret

// Authentication schemes (§5.1).
const (
	Bearer    = "bearer"
	SignedJWT = "signed_jwt"
	OAuth2    = "oauth2"
	MTLS      = "mtls"
	None      = "none"
)

// Auth holds the credentials of a client.
type Auth struct {
	// Scheme is one of the schemes. Empty is Bearer with a token, or else None. None
	// offers the capability anonymous, unless Capabilities sets it.
	Scheme string
	Token  Secret

	// Sign answers a challenge with the scheme signed_jwt: it returns a JWT with the
	// challenge in its claim nonce. New calls it, and a goroutine of the client for a
	// refresh.
	Sign func(challenge string) (string, error)

	// Retry returns another token after session.unauthenticated, the attempt-th refusal,
	// from 1. It is called at most MaxAuthRetries times. nil: the refusal is final.
	Retry func(attempt int, refusal *RemoteError) (Secret, error)

	// Refresh returns a new token when the current token is about to expire
	// (session.refresh), and when a client of Connect must authenticate to attach to its
	// session. ctx ends with the connection. Calls for one connection do not overlap.
	// nil: the client sends the current token again, and the runtime evicts the session
	// when that token expires.
	Refresh func(ctx context.Context) (Secret, error)
}

// MaxAuthRetries bounds the calls of Auth.Retry. One more failure would end the connection (§5.1).
const MaxAuthRetries = 2

// Resume selects a session to attach to. With a token the session is resumed. Without a token it is
// opened by its id, which needs the credentials of its principal.
type Resume struct {
	SessionID arcp.SessionID
	Token     Secret // from Session.ResumeToken

	// LastEventSeq is the event_seq of the last processed event, from Client.LastEventSeq.
	// nil without a token: the runtime continues after the last event that it sent.
	LastEventSeq *uint64

	// Jobs are jobs of the session to follow. Client.Job returns their handles.
	Jobs []arcp.JobID
}

// Options configure a client. The zero value opens a new session without credentials. They must not
// be changed after use.
type Options struct {
	Auth         Auth
	Client       arcp.ClientInfo   // default kind "arcp-go-client", version arcp.Version
	Dialect      arcp.Dialect      // zero: arcp.DialectRFC
	Version      string            // member arcp of envelopes; default arcp.Version
	Capabilities arcp.Capabilities // offered to the runtime
	Resume       *Resume           // nil: a new session
	Network      Network           // for Dial and Connect
	Reconnect    Reconnect         // for Connect
	Limits       Limits
	Handlers     Handlers // for questions to people

	// DetectDialect ignores Dialect. The client opens with session.open. If the runtime does not
	// understand it, or twice does not answer it, the client opens with session.hello on another
	// connection. New has one connection, and refuses DetectDialect.
	DetectDialect bool

	// ArtifactRedirect offers the capability artifact_redirect. Artifacts.Get then reads artifacts over 4 MiB over
	// HTTP from links that the runtime issues. A request to a link has no credentials, and uses Network.TLS
	// without its client certificates.
	ArtifactRedirect bool

	// NoSidecar makes the client send and ask for binary content in base64. Otherwise it offers binary frames,
	// unless Capabilities has a BinaryEncoding or the connection has no such frames. A received stream.chunk
	// and artifact.put may then have their content in Sidecar: StreamChunkPayload.Bytes and
	// ArtifactPutPayload.Bytes return it.
	NoSidecar bool

	// AckEvery is the number of events for each acknowledgement, or half of the window
	// (Session.Capabilities.AckWindow) if that is less. 0: only Client.Ack acknowledges.
	// Capabilities.AckWindow requests a window.
	AckEvery uint64

	// OnEnvelope receives every decoded envelope in order, also during the handshake. The
	// client does not route an envelope for which OnEnvelope returns true. New and later the
	// reader call it: it must not block. It must not retain env, but may retain the
	// members of env.
	OnEnvelope func(env *arcp.Envelope) (handled bool)

	// OnUnsolicited receives the messages for Client.Unsolicited instead. The reader calls
	// it: it must not block. It may retain env.
	OnUnsolicited func(env *arcp.Envelope)

	// Traceparent returns the W3C traceparent of a context. Invoke sends it with a job that has no
	// TraceID. nil, and an empty or invalid text: none.
	Traceparent func(ctx context.Context) string

	// Log receives problems that no call can return, such as dropped messages. It may be
	// (*slog.Logger).Debug. The goroutines of the client call it.
	Log func(msg string, args ...any)
}

// Limits bounds the memory of a client. A zero member has the documented default.
type Limits struct {
	Transport   transport.Limits // used by Dial; the read limit also by New
	EventBuffer int              // queued events for each job or feed; default 65,536
	EventBytes  int              // bytes of these events; default 64 MiB
	Unsolicited int              // envelopes queued for Client.Unsolicited; default 1,024
	SendBuffer  int              // bytes accepted by Send and not yet written; default 1 MiB
	Handlers    int              // handlers that run at the same time; default 16
}

func (o *Options) withDefaults() Options {
	d := *o
	if d.Auth.Scheme == "" {
		d.Auth.Scheme = None
		if d.Auth.Token != "" {
			d.Auth.Scheme = Bearer
		}
	}
	setDefault(&d.Client.Kind, "arcp-go-client")
	setDefault(&d.Client.Version, arcp.Version)
	setDefault(&d.Version, arcp.Version)
	if d.Dialect == arcp.DialectDraft { // has no answers to questions
		d.Handlers = Handlers{}
	}
	setDefault(&d.Handlers.By, d.Client.Kind)
	setDefault(&d.Limits.EventBuffer, 65_536)
	setDefault(&d.Limits.EventBytes, 64<<20)
	setDefault(&d.Limits.Unsolicited, 1_024)
	setDefault(&d.Limits.SendBuffer, 1<<20)
	setDefault(&d.Limits.Handlers, 16)
	setDefault(&d.Limits.Transport.ReadLimit, transport.DefaultReadLimit)
	if d.Log == nil {
		d.Log = func(string, ...any) {}
	}
	return d
}

func setDefault[T comparable](v *T, to T) {
	if *v == *new(T) {
		*v = to
	}
}
