package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Authenticate requests the verification of credentials. Machine.Authenticated completes it.
type Authenticate struct {
	Scheme, Token          string
	Principal, Fingerprint string
	Anonymous              bool // both sides allow anonymous clients
}

// Verify requests the verification of the response to a challenge. Machine.Authenticated
// completes it.
type Verify struct {
	Authenticate
	Challenge, Response string
}

// CredentialDecision is the result of Authenticate, Verify and Reauthenticate: a refusal, a
// challenge to send, or an identity. The refusal of a wrong response also has a new challenge,
// because a challenge is valid for one response.
type CredentialDecision struct {
	Refused   *Refusal
	Challenge string
	Identity  *Identity
}

// Refusal is the reason why credentials were refused.
type Refusal struct {
	Message string
	Code    arcp.Code // default UNAUTHENTICATED
	Final   bool      // corrected credentials of the same scheme would be refused, too
}

// Identity is the authenticated identity of the client.
type Identity struct {
	Principal string
	Trust     arcp.TrustLevel
	Anonymous bool
	Commands  bool      // may send messages of commands; false for an observer
	Worker    bool      // may execute jobs
	Expires   time.Time // of the credential; zero: never
}

// Establish requests a new, durable session. If Attach is a session of the same principal, it
// requests to attach to that session, after the event After if that is set.
// Machine.Established completes it.
type Establish struct {
	Identity   Identity
	Client     arcp.ClientInfo
	Version    string
	Negotiated []arcp.Feature
	Attach     arcp.SessionID
	After      *uint64
}

// SessionResult is the result of Establish and Renew.
type SessionResult struct {
	Refused     *arcp.Error // nil: the session is durable
	ResumeToken string
	Agents      []arcp.Agent
	Attached    *Attached // nil: the session is new
}

// Attached is an existing session to which the connection has attached.
type Attached struct {
	Session    arcp.SessionID
	Negotiated []arcp.Feature // at its session.open
}

// Resume requests to attach to the session of a resume token, after an event. Machine.Resumed
// completes it.
type Resume struct {
	Token   string
	After   uint64
	Version string
}

// Resumed is the result of Resume.
type Resumed struct {
	Refused *arcp.Error
	Attached
	Identity    Identity
	ResumeToken string
	After       uint64
	Replayed    bool // there are events after After
}

// PrepareRefresh requests the challenge for a session.refresh, if the scheme has one.
// Machine.RefreshPrepared completes it.
type PrepareRefresh struct{}

// Reauthenticate requests the verification of a new credential, and of the response to the
// challenge if one was sent. An empty scheme stands for the scheme of the session. Other messages
// are handled meanwhile. Machine.Reauthenticated completes it.
type Reauthenticate struct {
	Authenticate
	Challenge, Response string
}

// Renew requests to store the identity of a new credential in the session, with a new resume
// token. Machine.Renewed completes it.
type Renew struct{ Identity Identity }

// End requests to end the session, for session.close with forget. Machine.Ended completes it.
type End struct{}
