package auth

import (
	"strings"
)

// Revalidate judges an identity of earlier whose peer shows something else than its
// credential, a token to resume a session with. It returns the identity as it is
// configured now, or an *Error: the credential has expired, the principal is not
// known any more, or its scheme is not offered to this peer. A zero r.Now is the
// current time.
func (s *Set) Revalidate(id Identity, r Request) (Identity, error) {
	if id.Scheme == Program || r.Program != nil {
		return r.revalidateProgram(&id)
	}
	a, err := s.current.Load().scheme(id.Scheme)
	if err != nil {
		return Identity{}, err
	}
	if !id.Expires.IsZero() && !timed(r).Now.Before(id.Expires) {
		return Identity{}, &Error{Reason: ReasonInvalid, Message: "the credential of the session has expired; open it with a fresh one"}
	}
	if a, ok := a.(renewer); ok {
		return a.renew(id, r)
	}
	return id, nil
}

// renewer is a scheme that knows its principals by name.
type renewer interface {
	renew(id Identity, r Request) (Identity, error)
}

func gone(what string) *Error {
	return &Error{Reason: ReasonUnknown, Message: what + " of the session is not known any more", Final: true}
}

// renew requires the principal to still hold the token that opened the session. Another token
// of the same principal does not replace a revoked one.
func (b *bearer) renew(id Identity, _ Request) (Identity, error) {
	who := b.byName[id.Principal]
	if who == nil {
		return Identity{}, gone("the principal")
	}
	for _, hash := range who.tokens {
		if h := (holder{hash, who}).identity(); Equal(h.TokenPrint, id.TokenPrint) {
			return h, nil
		}
	}
	return Identity{}, gone("the token")
}

// renew judges as identity does, but for the claims, which are not there any
// more: the roles they gave stand as long as the issuer gives roles that way.
func (s *signedJWT) renew(id Identity, _ Request) (Identity, error) {
	i := s.issuers[id.Issuer]
	if i == nil || !strings.HasPrefix(id.Principal, i.prefix) {
		return Identity{}, gone("the issuer")
	}
	fresh := s.known(id.Principal, i)
	fresh.Expires = id.Expires
	if id.RolesClaim != "" && id.RolesClaim == i.rolesClaim {
		fresh.Roles, fresh.RolesClaim = id.Roles, id.RolesClaim
	}
	return fresh, nil
}

// renew lets a local user resume only where the operating system says that it is
// the same.
func (n *noneScheme) renew(id Identity, r Request) (Identity, error) {
	switch {
	case strings.HasPrefix(id.Principal, uidPrefix):
		if r.Local && uidName(r.PeerUID) == id.Principal {
			return n.local(r.PeerUID)
		}
	case n.anonymous:
		return id, nil
	}
	return Identity{}, gone("the principal")
}
