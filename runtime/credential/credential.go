package credential

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of a provisioner's answer.
const (
	minValue  = 8        // characters of a value; a Redactor would find shorter ones everywhere
	maxValue  = 16 << 10 // characters of a value, which must fit into a header
	maxText   = 2048     // an id, handle, endpoint or profile
	maxIssued = 16       // credentials of one job from one provisioner
)

const scheme = "bearer" // the only scheme that clients decode

// Secret is a text that cannot be printed, logged or marshalled by accident.
type Secret = arcp.Secret

// Request describes the job that a credential is issued for, and its limits.
type Request struct {
	Job       arcp.JobID
	Principal string
	Agent     string    // name or name@version
	Lease     arcp.Raw  // as accepted; absent: none
	ExpiresAt time.Time // of the lease; zero: never
	Budget    arcp.Raw  // absent: none
	TraceID   string

	// Generation is 1 for the credentials that a job begins with, and one more each
	// time they are rotated.
	Generation int
}

// Credential is a credential issued by a provisioner. Every field but Value is public and must
// not contain Value.
type Credential struct {
	ID          string // "": a new one
	Scheme      string // "" is bearer, the only scheme
	Endpoint    string // URL that accepts the credential
	Profile     string // protocol of the endpoint; may be empty
	Value       Secret
	Constraints arcp.Raw  // a JSON object; absent: the constraints of the lease
	ExpiresAt   time.Time // the credential is rotated before; zero: it does not expire
	Upstream    string    // the provisioner's handle, used to revoke the credential
}

// Ref names one credential to revoke. With an empty Upstream it names all credentials issued
// to the job. There may be none: the answer to Issue was lost.
type Ref struct {
	Job        arcp.JobID
	ID         string // the same in all generations
	Upstream   string
	Generation int // 0: all
}

// Provisioner issues and revokes credentials. Its methods are called by many
// goroutines at the same time, though not by two for the same job.
type Provisioner interface {
	// Issue creates the credentials of a job. A repeated call for the same job and generation
	// returns the same credentials, if the upstream supports that. A call for the next generation
	// returns as many new ones; the previous ones stay valid until they are revoked.
	//
	// A RefusedError states that nothing was issued. After any other error the outcome is
	// unknown, and all credentials that may have been issued are revoked. An *arcp.Error in the
	// chain is sent to the client.
	Issue(ctx context.Context, r Request) ([]Credential, error)

	// Revoke ends a credential. Revoking an unknown credential succeeds. No error of a Provisioner
	// may contain a value, because errors are stored and logged.
	Revoke(ctx context.Context, ref Ref) error
}

// Restorer is a Provisioner that needs the list of credentials it has issued. Restore is
// called once, before the first Issue, with all credentials that are not revoked.
type Restorer interface {
	Restore(refs []Ref)
}

// RefusedError is an error of Issue that guarantees that nothing was issued.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

func (e *RefusedError) Unwrap() error { return e.Err }

// refuse returns a RefusedError; err is sent to the client.
func refuse(err *arcp.Error) error { return &RefusedError{Err: err} }

// check sets the defaults of a credential and validates it. Its errors never repeat a value.
func (c *Credential) check() error {
	if c.ID == "" {
		c.ID = arcp.NewID("cred_")
	}
	if c.Scheme == "" {
		c.Scheme = scheme
	}
	switch {
	case c.Scheme != scheme:
		return errors.New("its scheme is not bearer")
	case !arcp.ValidID(c.ID):
		return errors.New("its id is not 1 to 256 visible characters")
	case len(c.Value) < minValue || len(c.Value) > maxValue:
		return fmt.Errorf("its value has %d characters, not %d to %d", len(c.Value), minValue, maxValue)
	case !token(string(c.Value)):
		return errors.New(`its value has a character that is not visible ASCII, or one of " and \`)
	case c.Endpoint == "":
		return errors.New("it has no endpoint: set one for the provisioner")
	case len(c.Endpoint) > maxText || len(c.Profile) > maxText || len(c.Upstream) > maxText:
		return fmt.Errorf("its endpoint, profile or handle is longer than %d", maxText)
	case len(c.Constraints) > 0 && (!c.Constraints.IsValid() || c.Constraints.Kind() != '{'):
		return errors.New("its constraints are not an object")
	}
	return c.repeats()
}

// repeats refuses a credential that has its value in a public part.
func (c *Credential) repeats() error {
	var r Redactor
	r.Add(c.Value)
	for _, part := range []string{c.ID, c.Endpoint, c.Profile, c.Upstream, string(c.Constraints)} {
		if r.Found([]byte(part)) {
			return errors.New("its id, endpoint, profile, handle or constraints repeat its value, which they must not")
		}
	}
	return nil
}

// token reports whether s can be the value of a bearer header and never needs an
// escape in JSON.
func token(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
