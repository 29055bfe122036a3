package auth

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/arcpd/arcpd/arcp"
)

// noneScheme is the scheme none. A local peer is the user reported by the operating system. Any
// other peer is anonymous, if the configuration and both sides allow it (SPEC.md §5.1).
type noneScheme struct {
	byName    map[string]*principal
	anonymous bool
}

func newNoneScheme(c *Config) *noneScheme {
	return &noneScheme{byName: c.principals, anonymous: c.anonymous}
}

func (*noneScheme) Scheme() string { return None }

func (n *noneScheme) Authenticate(_ context.Context, r Request) (Identity, error) {
	switch {
	case r.Local:
		return n.local(r.PeerUID)
	case !n.anonymous:
		return Identity{}, refuseAnonymous("anonymous access is off")
	case !r.Anonymous:
		return Identity{}, refuseAnonymous("scheme none requires capabilities.anonymous")
	}
	return newAnonymous(), nil
}

func (*noneScheme) Verify(context.Context, Request, Proof) (Identity, error) {
	return Identity{}, cannotChallenge(None)
}

// local returns the identity of the local user uid: from the auth file, or a client, worker and
// approver.
func (n *noneScheme) local(uid int) (Identity, error) {
	if uid < 0 {
		return Identity{}, &Error{
			Reason:  ReasonMissing,
			Message: "the user of the local peer is unknown",
			Final:   true,
			Err:     errors.New("the transport reports a negative uid"),
		}
	}
	name := uidName(uid)
	if p := n.byName[name]; p != nil {
		return p.as(None), nil
	}
	return newPrincipal(name, localRoles).as(None), nil
}

// newAnonymous returns a new principal for each session, so anonymous sessions cannot see each
// other.
func newAnonymous() Identity {
	return Identity{
		Principal: anonymousPrefix + rand.Text(),
		Scheme:    None,
		Roles:     clientRoles,
		Trust:     arcp.Untrusted,
		Anonymous: true,
	}
}
