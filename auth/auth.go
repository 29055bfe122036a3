// Package auth authenticates peers: a valid credential has an Identity. Each scheme is an
// Authenticator. A Set combines the configured schemes and decides when a challenge is due. Its
// configuration may be replaced while it is in use.
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
	Program   = "program" // a program that the runtime started; no other peer can use it
)

// Role permits a set of operations to an identity (SPEC.md §5.12).
type Role string

// The roles.
const (
	RoleClient   Role = "client"   // submits and controls jobs of its principal
	RoleObserver Role = "observer" // only lists and follows jobs
	RoleWorker   Role = "worker"   // executes jobs
	RoleApprover Role = "approver" // approves calls and trust levels of other sessions
	RoleThoughts Role = "thoughts" // reads the thoughts of the other principals that it may observe
	RoleAdmin    Role = "admin"    // manages sessions, jobs and resources of all principals
)

// Identity is the authenticated principal of a session and its rights.
type Identity struct {
	Principal string // name
	Scheme    string // scheme of the credential
	Roles     []Role // no role implies another
	Trust     arcp.TrustLevel
	Anonymous bool
	Expires   time.Time // end of the credential; zero: never

	Limits Limits
	Sees   []string // globs of the principals that it may observe
	Serves []string // globs of the principals whose jobs it may execute
	Lease  []byte   // JSON object that bounds the leases of its jobs; nil: not set

	Program *ProgramRights `json:",omitzero"` // nil: not a program started by the runtime

	// Set.Revalidate reads the members below.
	TokenFingerprint Secret `json:"TokenPrint,omitzero"` // identifies the bearer token: a hash of its HashToken; empty: none
	Issuer           string // claim iss of the JWT
	KeyFingerprint   string `json:",omitzero"` // identifies the key that signed the JWT: a hash; empty: any key of the issuer
	RolesClaim       string // claim of the JWT with the roles; empty: the roles are configured
}

// Limits are the limits of a principal. A zero member is the default of the server.
type Limits struct {
	Sessions   int `yaml:"sessions"`     // sessions at the same time
	Jobs       int `yaml:"jobs"`         // live jobs
	RatePerMin int `yaml:"rate_per_min"` // received frames a minute, of all its connections together
}

// Request is an attempt to authenticate.
type Request struct {
	Scheme      string
	Token       Secret
	Principal   string // client.principal: not trusted
	Fingerprint string // client.fingerprint
	Anonymous   bool   // capabilities.anonymous was negotiated by both sides
	Local       bool   // the operating system authenticates PeerUID
	PeerUID     int
	PeerCerts   []*x509.Certificate
	Program     *Identity // identity of a peer started by the runtime; nil: any other peer
	Now         time.Time
}

// Proof is the answer to a challenge.
type Proof struct {
	Challenge Secret // as sent
	Response  Secret
}

// Authenticator is one scheme. It must be safe for concurrent use.
type Authenticator interface {
	Scheme() string

	// Authenticate checks the credential in r. The error is an *Error.
	Authenticate(ctx context.Context, r Request) (Identity, error)

	// Verify checks the answer to a challenge. Without a token in r, r.Principal names the
	// claimed holder. The error is an *Error, also of a scheme without challenges.
	Verify(ctx context.Context, r Request, p Proof) (Identity, error)
}

// Error is a refusal. Reason is one of the Reason constants, a metric label. Message is for the peer.
type Error struct {
	Reason  string
	Message string
	Final   bool  // no other credential of the same scheme would be accepted
	Err     error // for the log; may be nil
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
	ReasonPrincipal     = "principal"      // the new credential belongs to another principal
	ReasonStale         = "stale"          // the new credential does not expire later
)

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("auth: %s: %v", e.Message, e.Err)
	}
	return "auth: " + e.Message
}

func (e *Error) Unwrap() error { return e.Err }
