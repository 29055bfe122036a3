package client

import (
	"context"
	"time"

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

// Auth is how a client proves who it is.
type Auth struct {
	// Scheme is one of the schemes; empty is Bearer with a token, else None.
	// With None the capability anonymous is offered unless Capabilities say
	// something else about it.
	Scheme string
	Token  Secret

	// Sign answers a challenge with the scheme signed_jwt: it returns a JWT
	// whose claim nonce is the challenge. It is called from New, and from a
	// goroutine of the client when the runtime asks for a refresh.
	Sign func(challenge string) (string, error)

	// Retry is asked for another token when the runtime answers
	// session.unauthenticated, at most MaxRetries times. Without it the refusal
	// is final.
	Retry func(attempt int, refusal *RemoteError) (Secret, error)

	// Refresh is asked for a fresh token when the one there is is about to end
	// (session.refresh), and by a client of Connect when its session can only be
	// attached to with one. The context ends with the connection. Without it the
	// runtime is shown the token there is, and evicts the session at its end. It
	// is called by goroutines of the client, at most one at a time for a
	// connection.
	Refresh func(ctx context.Context) (Secret, error)
}

// MaxRetries bounds the calls of Auth.Retry: one fewer than the failures that
// end a connection (§5.1).
const MaxRetries = 2

// Resume says which session to attach to. Without a token the session is opened
// again under its id, which needs the credentials of its principal; with a token
// it is resumed.
type Resume struct {
	SessionID arcp.SessionID
	Token     Secret // from Session.ResumeToken

	// LastEventSeq is the last event_seq that was processed, from
	// Client.LastEventSeq. Nil without a token means: whatever the runtime
	// thinks was not delivered yet.
	LastEventSeq *uint64

	// Jobs are jobs submitted or subscribed before whose events may come;
	// Client.Job returns their handles.
	Jobs []arcp.JobID
}

// Options of a client. The zero value opens a new session without credentials.
// They are not changed after use.
type Options struct {
	Auth         Auth
	Client       arcp.ClientInfo   // default kind "arcp-go-client", version arcp.Version
	Version      string            // the arcp member of what is sent; default arcp.Version
	Capabilities arcp.Capabilities // what the client offers
	Resume       *Resume           // nil: a new session
	Network      Network           // for Dial and Connect
	Reconnect    Reconnect         // for Connect
	Limits       Limits
	Handlers     Handlers // of questions to people

	// AckEvery acknowledges received events each time this many have come, or half
	// of the window that applies (Session.Capabilities.AckWindow) if that is less; 0
	// leaves it to Client.Ack. Capabilities.AckWindow asks for a window.
	AckEvery uint64

	// OnEvent sees every envelope that was decoded, in order, before it is
	// routed, also those of the handshake. It returns true to keep the client
	// from routing it. It is called by New, later by the reader: it must not
	// block, and must not keep the envelope, whose members it may keep.
	OnEvent func(env *arcp.Envelope) (taken bool)

	// OnUnsolicited is called by the reader instead of keeping the envelope for
	// Client.Unsolicited. It must not block; it may keep the envelope.
	OnUnsolicited func(env *arcp.Envelope)

	// Log hears of what has no caller to report to: frames that could not be
	// decoded, events that were dropped. Its shape is that of
	// (*slog.Logger).Debug. It is called by the client's goroutines.
	Log func(msg string, args ...any)
}

// Limits bounds what a client keeps. Zero members are the defaults.
type Limits struct {
	Transport   transport.Limits // used by Dial; the read limit also by New
	EventBuffer int              // events queued for a job; default 65,536
	EventBytes  int              // their bytes; default 64 MiB
	Unsolicited int              // envelopes kept for Client.Unsolicited; default 1,024
	SendBuffer  int              // bytes accepted by Send and not yet written; default 1 MiB
	Handlers    int              // of questions that run at the same time; default 16, the others wait
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

// Session is what the runtime said when it accepted the session.
type Session struct {
	ID           arcp.SessionID
	Runtime      arcp.RuntimeInfo
	Capabilities arcp.Capabilities // as negotiated
	ResumeToken  Secret            // single use; a later accept or resume brings another
	ResumeWindow time.Duration     // how long the session outlives its connection
	Heartbeat    time.Duration     // interval of session.ping; 0: none
	ExpiresAt    time.Time         // of the session's lease; zero: not said
	Resumed      bool              // by token: ReplayedFrom is set
	ReplayedFrom uint64
}
