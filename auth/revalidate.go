package auth

import (
	"slices"
	"strings"
)

// Revalidate checks the identity of a session whose peer presents a resume token instead of its
// credential. It returns the identity as configured now. The error is an *Error if the credential has
// expired, the principal is not configured any more, or the scheme is not offered to this peer. A zero
// r.Now is the current time.
func (s *Set) Revalidate(id Identity, r Request) (Identity, error) {
	if id.Scheme == Program || r.Program != nil {
		return r.revalidateProgram(&id)
	}
	a, err := s.current.Load().scheme(id.Scheme)
	if err != nil {
		return Identity{}, err
	}
	if !id.Expires.IsZero() && !withTime(r).Now.Before(id.Expires) {
		return Identity{}, &Error{Reason: ReasonInvalid, Message: "the credential of the session has expired; open the session with a new one"}
	}
	if a, ok := a.(renewer); ok {
		return a.renew(id, r)
	}
	return id, nil
}

// renewer is a scheme that looks up its principals by name.
type renewer interface {
	renew(id Identity, r Request) (Identity, error)
}

func errNotKnown(subject string) *Error {
	return &Error{Reason: ReasonUnknown, Message: subject + " of the session is not known any more", Final: true}
}

// renew checks that the principal still has the token that opened the session. Another token of the same
// principal does not replace a revoked one.
func (b *bearer) renew(id Identity, _ Request) (Identity, error) {
	p := b.byName[id.Principal]
	if p == nil {
		return Identity{}, errNotKnown("the principal")
	}
	for _, hash := range p.tokens {
		if h := (holder{hash, p}).identity(); EqualSecrets(h.TokenFingerprint, id.TokenFingerprint) {
			return h, nil
		}
	}
	return Identity{}, errNotKnown("the token")
}

// renew is identity without the claims of the token. The issuer must still have the key that signed the token.
// Roles from a claim remain valid as long as the issuer has the same roles claim.
func (s *signedJWT) renew(id Identity, _ Request) (Identity, error) {
	i := s.issuers[id.Issuer]
	if i == nil || !strings.HasPrefix(id.Principal, i.prefix) {
		return Identity{}, errNotKnown("the issuer")
	}
	if id.KeyFingerprint != "" && !slices.ContainsFunc(i.keys, func(k *key) bool { return k.print == id.KeyFingerprint }) {
		return Identity{}, errNotKnown("the key of the JWT")
	}
	renewed := s.known(id.Principal, i)
	renewed.Expires, renewed.KeyFingerprint = id.Expires, id.KeyFingerprint
	if id.RolesClaim != "" && id.RolesClaim == i.rolesClaim {
		renewed.Roles, renewed.RolesClaim = id.Roles, id.RolesClaim
	}
	return renewed, nil
}

// renew allows a local user to resume only if the operating system reports the same user.
func (n *noneScheme) renew(id Identity, r Request) (Identity, error) {
	switch {
	case strings.HasPrefix(id.Principal, uidPrefix):
		if r.Local && uidName(r.PeerUID) == id.Principal {
			return n.local(r.PeerUID)
		}
	case n.anonymous:
		return id, nil
	}
	return Identity{}, errNotKnown("the principal")
}
