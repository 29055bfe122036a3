package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Request is work that needs the store or an authenticator. The caller performs it, and then calls
// the method of Machine that completes it.
//
// For session.open the requests are AuthenticateRequest, VerifyRequest if the authenticator has a
// challenge, and EstablishRequest. For session.resume there is one ResumeRequest.
type Request interface{ request() }

func (AuthenticateRequest) request()   {}
func (VerifyRequest) request()         {}
func (EstablishRequest) request()      {}
func (ResumeRequest) request()         {}
func (PrepareRefreshRequest) request() {}
func (ReauthenticateRequest) request() {}
func (RenewRequest) request()          {}
func (EndRequest) request()            {}

// Credentials are the credentials of a client.
type Credentials struct {
	Scheme, Token          string
	Principal, Fingerprint string
	Anonymous              bool // both sides allow anonymous clients
}

// AuthenticateRequest requests the verification of credentials. Machine.Authenticated completes it.
type AuthenticateRequest struct{ Credentials }

// VerifyRequest requests the verification of the response to a challenge. Machine.Authenticated
// completes it.
type VerifyRequest struct {
	Credentials
	Challenge, Response string
}

// CredentialDecision is the result of AuthenticateRequest, VerifyRequest and ReauthenticateRequest:
// a refusal, a challenge to send, or an identity. The refusal of a wrong response also has a new
// challenge, because a challenge is valid for one response.
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

// EstablishRequest requests a new, durable session. If Attach is a session of the same principal, it
// requests to attach to that session, after the event After if that is set.
// Machine.Established completes it.
type EstablishRequest struct {
	Identity   Identity
	Client     arcp.ClientInfo
	Version    string
	Negotiated []arcp.Feature
	Attach     arcp.SessionID
	After      *uint64
}

// SessionResult is the result of EstablishRequest and RenewRequest.
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

// ResumeRequest requests to attach to the session of a resume token, after an event.
// Machine.Resumed completes it.
type ResumeRequest struct {
	Token   string
	After   uint64
	Version string
}

// ResumeResult is the result of ResumeRequest.
type ResumeResult struct {
	Refused *arcp.Error
	Attached
	Identity    Identity
	ResumeToken string
	After       uint64
	Replayed    bool // there are events after After
}

// PrepareRefreshRequest requests the challenge for a session.refresh, if the scheme has one.
// Machine.RefreshPrepared completes it.
type PrepareRefreshRequest struct{}

// ReauthenticateRequest requests the verification of a new credential, and of the response to the
// challenge if one was sent. An empty scheme stands for the scheme of the session. Other messages
// are handled meanwhile. Machine.Reauthenticated completes it.
type ReauthenticateRequest struct {
	Credentials
	Challenge, Response string
}

// RenewRequest requests to store the identity of a new credential in the session, with a new resume
// token. Machine.Renewed completes it.
type RenewRequest struct{ Identity Identity }

// EndRequest requests to end the session, for session.close with forget. Machine.Ended completes it.
type EndRequest struct{}
