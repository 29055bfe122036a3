package auth

import (
	"context"
	"crypto/rand"
	"errors"
)

// nobody is the scheme none. A local peer is the user that the operating system reports. Any
// other peer is anonymous, if the configuration and both sides allow it (SPEC.md §5.1).
type nobody struct {
	byName    map[string]*principal
	anonymous bool
}

func newNobody(c *Config) *nobody { return &nobody{byName: c.principals, anonymous: c.anonymous} }

func (*nobody) Scheme() string { return None }

func (n *nobody) Authenticate(_ context.Context, r Request) (Identity, error) {
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

func (*nobody) Verify(context.Context, Request, Proof) (Identity, error) {
	return Identity{}, cannotChallenge(None)
}

// local is the user uid: as the auth file says, or a client, worker and approver.
func (n *nobody) local(uid int) (Identity, error) {
	if uid < 0 {
		return Identity{}, &Error{
			Reason:  ReasonMissing,
			Message: "the user of the local peer is unknown",
			Final:   true,
			Err:     errors.New("the transport vouches for a negative uid"),
		}
	}
	name := uidName(uid)
	if p := n.byName[name]; p != nil {
		return p.as(None), nil
	}
	return newPrincipal(name, localRoles).as(None), nil
}

// newAnonymous returns a principal that no other session has, so that anonymous sessions
// cannot see each other.
func newAnonymous() Identity {
	return Identity{
		Principal: anonymousPrefix + rand.Text(),
		Scheme:    None,
		Roles:     clientRoles,
		Trust:     Untrusted,
		Anonymous: true,
	}
}
