package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Authenticate asks to judge credentials. It is completed by Judge.
type Authenticate struct {
	Scheme, Token          string
	Principal, Fingerprint string
	Anonymous              bool // negotiated by both sides
}

// Verify asks whether a response answers a challenge. It is completed by Judge.
type Verify struct {
	Authenticate
	Challenge, Response string
}

// CredentialDecision answers Authenticate, Verify and Reauthenticate. It has one of a refusal,
// a challenge to send and an identity. A refusal of a wrong response has a new challenge
// besides: a challenge is good for one answer.
type CredentialDecision struct {
	Refused   *Refusal
	Challenge string
	Identity  *Identity
}

// Refusal says why credentials were not accepted.
type Refusal struct {
	Message string
	Code    arcp.Code // default UNAUTHENTICATED
	Final   bool
}

// Identity is the authenticated identity of the client.
type Identity struct {
	Principal string
	Trust     string
	Anonymous bool
	Commands  bool      // may send commands; an observer may not
	Worker    bool      // may execute jobs
	Expires   time.Time // of the credential; zero: never
}

// Establish asks to make the session durable. If Attach is a session of the same principal,
// the connection attaches to that session instead, after the event After if it is set. It is
// completed by Established.
type Establish struct {
	Identity   Identity
	Client     arcp.ClientInfo
	Version    string
	Negotiated []arcp.Feature
	Attach     arcp.SessionID
	After      *uint64
}

// Established answers Establish and Renew.
type Established struct {
	Refused     *arcp.Error // a limit; the session was not made
	ResumeToken string
	Agents      []arcp.Agent
	Attached    *Attached // nil: the session is new
}

// Attached is a session that existed before.
type Attached struct {
	Session    arcp.SessionID
	Negotiated []arcp.Feature // when the session was opened
}

// Resume asks to attach to the session that a token names, after an event. It is completed by
// Resumed.
type Resume struct {
	Token   string
	After   uint64
	Version string
}

// Resumed answers Resume.
type Resumed struct {
	Refused *arcp.Error
	Attached
	Identity    Identity
	ResumeToken string
	After       uint64
	Replayed    bool // there is something to replay
}

// Remind asks whether the client has to answer a challenge with its new credential. It is
// completed by Reminded.
type Remind struct{}

// Reauthenticate asks to judge a new credential, and the response to the challenge if one was
// sent. The scheme is empty if it is the session's. It is completed by Rejudge. Other messages
// are handled meanwhile.
type Reauthenticate struct {
	Authenticate
	Challenge, Response string
}

// Renew asks to store a new credential as the session's, with a new resume token. It is
// completed by Renewed.
type Renew struct{ Identity Identity }

// End asks to end the session for good: session.close with forget. It is completed by
// Ended.
type End struct{}
