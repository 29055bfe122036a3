// Package auth authenticates peers: a valid credential returns an Identity. Each scheme is an
// Authenticator. A Set has the configured schemes, and reports whether a challenge is due. Its
// configuration may be replaced while it is used.
//
// The package does not log, and no error text contains a credential.
package auth

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Secret is a text that cannot be printed, logged or marshalled by accident.
type Secret = arcp.Secret

// Schemes (SPEC.md §5.1).
const (
	Bearer    = "bearer"
	SignedJWT = "signed_jwt"
	OAuth2    = "oauth2"
	MTLS      = "mtls"
	None      = "none"
	Program   = "program" // of a connection to a program that the runtime has started; not offered to others
)

// Role permits a set of operations to an identity (SPEC.md §5.12).
type Role string

// The roles.
const (
	RoleClient   Role = "client"
	RoleObserver Role = "observer"
	RoleWorker   Role = "worker"
	RoleApprover Role = "approver"
	RoleAdmin    Role = "admin"
)

// Trust levels, lowest first.
const (
	Untrusted   = "untrusted"
	Constrained = "constrained"
	Trusted     = "trusted"
	Privileged  = "privileged"
)

// Identity is the authenticated owner of a session.
type Identity struct {
	Principal string
	Scheme    string
	Roles     []Role
	Trust     string
	Anonymous bool
	Expires   time.Time // of the credential; zero: never

	Limits Limits
	Sees   []string // name globs of principals it may observe
	Serves []string // name globs of principals whose jobs it may run
	Lease  []byte   // JSON object: authority of its jobs; nil: not set

	Program *ProgramRights `json:",omitzero"` // nil: it is no program of the runtime

	// The members below are read by Set.Again when the credential is checked anew.
	TokenPrint Secret `json:",omitzero"` // tells bearer tokens apart; see tokenPrint
	Issuer     string // of the JWT
	RolesClaim string // of the JWT, which gave the roles; empty: the configuration did
}

// Limits of a principal; zero is the server's default.
type Limits struct {
	Sessions   int `yaml:"sessions"`
	Jobs       int `yaml:"jobs"`
	RatePerMin int `yaml:"rate_per_min"`
}

// Request is an attempt to authenticate.
type Request struct {
	Scheme      string
	Token       Secret
	Principal   string // client.principal: a hint, never trusted
	Fingerprint string // client.fingerprint
	Anonymous   bool   // capabilities.anonymous was negotiated by both sides
	Local       bool   // the operating system vouches for PeerUID
	PeerUID     int
	PeerCerts   []*x509.Certificate
	Program     *Identity // the runtime started the peer and assigns this identity; nil: it did not
	Now         time.Time
}

// Proof answers a challenge.
type Proof struct {
	Challenge Secret // as sent
	Response  Secret
}

// Authenticator is one scheme. It may be used by many goroutines at once.
type Authenticator interface {
	Scheme() string

	// Authenticate checks the credential itself. The error is an *Error.
	Authenticate(ctx context.Context, r Request) (Identity, error)

	// Verify checks the answer to a challenge. The token may be missing; r.Principal then names
	// the claimed holder. The error is an *Error. A scheme without challenges refuses.
	Verify(ctx context.Context, r Request, p Proof) (Identity, error)
}

// Error is a refusal. Reason is a metric label from a closed set; Message is for
// the peer.
type Error struct {
	Reason  string
	Message string
	// Final says that corrected credentials of the same scheme would not help.
	Final bool
	Err   error // for the log; nil if there is nothing to add
}

// Reasons of an Error.
const (
	ReasonMissing       = "missing"        // no token, or no fingerprint
	ReasonUnknown       = "unknown"        // a token that is not configured
	ReasonInvalid       = "invalid"        // a JWT that does not validate
	ReasonResponse      = "response"       // a wrong answer to a challenge
	ReasonNotConfigured = "not_configured" // the scheme is not offered
	ReasonAnonymous     = "anonymous"      // anonymous access is off or was not negotiated
	ReasonUnsupported   = "unsupported"    // the scheme cannot be challenged
	ReasonUnavailable   = "unavailable"    // the verifier cannot be reached
	ReasonPrincipal     = "principal"      // a new credential of another principal
	ReasonStale         = "stale"          // one that is not fresh
)

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("auth: %s: %v", e.Message, e.Err)
	}
	return "auth: " + e.Message
}

func (e *Error) Unwrap() error { return e.Err }
