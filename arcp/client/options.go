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
	// Scheme is one of the schemes; empty is Bearer with a token, else None. With
	// None the capability anonymous is offered, unless Capabilities set it.
	Scheme string
	Token  Secret

	// Sign answers a challenge with the scheme signed_jwt: it returns a JWT whose
	// claim nonce is the challenge. It is called by New, and by a goroutine of the
	// client for a refresh.
	Sign func(challenge string) (string, error)

	// Retry returns another token after session.unauthenticated. It is called at
	// most MaxRetries times. nil: the refusal is final.
	Retry func(attempt int, refusal *RemoteError) (Secret, error)

	// Refresh returns a new token when the current one is about to expire
	// (session.refresh), and when a client of Connect needs one to attach to its
	// session. The context ends with the connection. Goroutines of the client call it,
	// one at a time for a connection. nil: the current token is presented again, and
	// the runtime evicts the session when it expires.
	Refresh func(ctx context.Context) (Secret, error)
}

// MaxRetries bounds the calls of Auth.Retry: one fewer than the failures that end a
// connection (§5.1).
const MaxRetries = 2

// Resume selects the session to attach to. With a token it is resumed. Without one it
// is opened again under its id, which needs the credentials of its principal.
type Resume struct {
	SessionID arcp.SessionID
	Token     Secret // from Session.ResumeToken

	// LastEventSeq is the last event_seq that was processed, from Client.LastEventSeq.
	// nil without a token: the runtime's position of the last delivered event.
	LastEventSeq *uint64

	// Jobs are jobs of the session whose events are expected; Client.Job returns their
	// handles.
	Jobs []arcp.JobID
}

// Options of a client. The zero value opens a new session without credentials. They
// must not be changed after use.
type Options struct {
	Auth         Auth
	Client       arcp.ClientInfo   // default kind "arcp-go-client", version arcp.Version
	Version      string            // arcp member of envelopes; default arcp.Version
	Capabilities arcp.Capabilities // offered to the runtime
	Resume       *Resume           // nil: a new session
	Network      Network           // for Dial and Connect
	Reconnect    Reconnect         // for Connect
	Limits       Limits
	Handlers     Handlers // for questions to people

	// AckEvery is the number of received events that are acknowledged together, or half
	// of the window (Session.Capabilities.AckWindow) if that is less. 0: Client.Ack
	// acknowledges. Capabilities.AckWindow requests a window.
	AckEvery uint64

	// OnEvent is called with every decoded envelope, in order, before it is routed,
	// also during the handshake. With taken the client does not route the envelope.
	// New calls it, later the reader: it must not block, and must not retain the
	// envelope, whose members it may retain.
	OnEvent func(env *arcp.Envelope) (taken bool)

	// OnUnsolicited is called by the reader in place of Client.Unsolicited. It must not
	// block; it may retain the envelope.
	OnUnsolicited func(env *arcp.Envelope)

	// Log is called with events that no call can return, such as dropped messages. (*slog.Logger).Debug fits. The client's goroutines call it.
	Log func(msg string, args ...any)
}

// Limits bounds the memory of a client. Zero members are the defaults.
type Limits struct {
	Transport   transport.Limits // used by Dial; the read limit also by New
	EventBuffer int              // events queued for a job; default 65,536
	EventBytes  int              // their bytes; default 64 MiB
	Unsolicited int              // envelopes queued for Client.Unsolicited; default 1,024
	SendBuffer  int              // bytes accepted by Send and not yet written; default 1 MiB
	Handlers    int              // handlers that run at the same time; default 16; others wait
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
