package auth

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Set is the set of offered schemes. It is safe for concurrent use, also during Reload: each step
// of an attempt uses one configuration.
//
// An attempt is Begin and, after a challenge, Verify. The slices of an Identity are shared and must
// not be changed.
type Set struct {
	current      atomic.Pointer[offer]
	extra        []Authenticator
	knownClients *knownClients
}

// offer is one configuration, ready for use. It is immutable.
type offer struct {
	schemes map[string]Authenticator
	names   []string
	policy  func(scheme string) ChallengePolicy

	principals int  // configured by name
	several    bool // more than one principal can authenticate
}

// NewSet returns a Set with the schemes configured by cfg and the extra schemes. An extra scheme
// replaces a built-in scheme of the same name, also after Reload. The Set owns cfg.
func NewSet(cfg *Config, extra ...Authenticator) *Set {
	s := &Set{extra: slices.Clone(extra), knownClients: newKnownClients(maxKnown)}
	s.Reload(cfg)
	return s
}

// Reload replaces the configuration. Sessions and known clients are not affected. The Set owns cfg.
func (s *Set) Reload(cfg *Config) { s.current.Store(newOffer(cfg, s.extra)) }

func newOffer(cfg *Config, extra []Authenticator) *offer {
	o := &offer{schemes: map[string]Authenticator{}, policy: cfg.policy, principals: len(cfg.principals),
		several: len(cfg.principals) > 1 || len(cfg.issuers) > 0 || cfg.anonymous || len(extra) > 0}
	if b := newBearer(cfg); b != nil {
		o.add(b, true)
	}
	if j := newSignedJWT(cfg); j != nil {
		o.add(j, true)
	}
	o.add(newNoneScheme(cfg), cfg.anonymous)
	for _, a := range extra {
		o.add(a, true)
	}
	return o
}

// add offers a scheme. named reports whether a remote peer may use it.
func (o *offer) add(a Authenticator, named bool) {
	o.schemes[a.Scheme()] = a
	if named && !slices.Contains(o.names, a.Scheme()) {
		o.names = append(o.names, a.Scheme())
	}
}

// Schemes returns the names of the schemes that a remote peer may use.
func (s *Set) Schemes() []string { return slices.Clone(s.current.Load().names) }

// Principals returns the number of principals that are configured by name. Those of issuers are not known.
func (s *Set) Principals() int { return s.current.Load().principals }

// HasSeveralPrincipals reports whether more than one principal can authenticate: more than one is configured
// by name, or an issuer of JWTs, anonymous access or an extra scheme is configured. Local users that are not
// configured by name, and programs that the runtime starts, do not count.
func (s *Set) HasSeveralPrincipals() bool { return s.current.Load().several }

// LoadKnownClients adds the known clients of an earlier process, as returned by KnownClientChanges.
// The challenge policy "new" does not challenge them.
func (s *Set) LoadKnownClients(stored []KnownClient) { s.knownClients.restore(stored) }

// KnownClientChanges returns up to limit changes that no earlier call returned. The caller stores them,
// and the next process passes them to LoadKnownClients. A client not seen for 30 days is forgotten. Above
// 100,000 clients the oldest is forgotten. A client is returned at most once an hour.
func (s *Set) KnownClientChanges(now time.Time, limit int) []KnownClient {
	return s.knownClients.changes(now, limit)
}

// Offers reports whether a remote peer may use the scheme.
func (s *Set) Offers(scheme string) bool { return slices.Contains(s.current.Load().names, scheme) }

// Immediate reports whether Begin and Verify of the scheme never wait: they look into memory only.
func (s *Set) Immediate(scheme string) bool {
	switch s.current.Load().schemes[scheme].(type) {
	case *bearer, *noneScheme:
		return true
	}
	return false
}

// Format prints only the names of the schemes.
func (s *Set) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "auth set %v", s.Schemes()) // fmt.State records the error
}

// String returns only the names of the schemes.
func (s *Set) String() string { return fmt.Sprintf("%v", s) }

// Begin starts an attempt. It returns the identity, or a challenge to send to the peer, or an *Error
// (SPEC.md §5.1). Verify needs the challenge together with the answer. A peer that names a principal
// without a token is always challenged, so it cannot find out which principals exist. A zero r.Now is the
// current time.
//
// Begin may block on the network until ctx ends, if a scheme does.
func (s *Set) Begin(ctx context.Context, r Request) (id Identity, challenge Secret, err error) {
	if id, ok := r.assigned(); ok {
		return id, "", nil
	}
	o := s.current.Load()
	a, err := o.scheme(r.Scheme)
	if err != nil {
		return Identity{}, "", err
	}
	if r.Token == "" && r.Principal != "" && challengeable(r.Scheme) {
		return Identity{}, NewChallenge(), nil
	}
	r = withTime(r)
	id, err = a.Authenticate(ctx, r)
	if err != nil {
		return Identity{}, "", err
	}
	if s.due(o, id, r) {
		return Identity{}, NewChallenge(), nil
	}
	return id, "", nil
}

// Verify completes an attempt after a challenge and returns the identity. r is the Request of Begin,
// except for Now. The caller guarantees that p.Challenge is the challenge from Begin, younger than
// ChallengeTTL and not used before. The error is an *Error.
func (s *Set) Verify(ctx context.Context, r Request, p Proof) (Identity, error) {
	if id, ok := r.assigned(); ok {
		return id, nil
	}
	o := s.current.Load()
	a, err := o.scheme(r.Scheme)
	if err != nil {
		return Identity{}, err
	}
	if p.Challenge == "" {
		return Identity{}, wrongAnswer(errNoChallenge)
	}
	r = withTime(r)
	id, err := a.Verify(ctx, r, p)
	if err != nil {
		return Identity{}, err
	}
	s.recordKnown(o, id, r)
	return id, nil
}

func (o *offer) scheme(name string) (Authenticator, error) {
	if a, ok := o.schemes[name]; ok {
		return a, nil
	}
	return nil, notConfigured(name)
}

// challengeable reports whether the scheme proves possession of a secret.
func challengeable(scheme string) bool { return scheme == Bearer || scheme == SignedJWT }

func withTime(r Request) Request {
	if r.Now.IsZero() {
		r.Now = time.Now()
	}
	return r
}

// due reports whether a valid credential also needs a challenge.
func (s *Set) due(o *offer, id Identity, r Request) bool {
	switch o.policy(r.Scheme) {
	case ChallengeAlways:
		return true
	case ChallengeNew:
		client, ok := clientOf(id, r.Fingerprint)
		return !ok || !s.knownClients.knows(client, r.Now)
	}
	return false
}

// recordKnown adds a client that answered a challenge, if the policy makes use of that.
func (s *Set) recordKnown(o *offer, id Identity, r Request) {
	if o.policy(r.Scheme) != ChallengeNew {
		return
	}
	if client, ok := clientOf(id, r.Fingerprint); ok {
		s.knownClients.add(client, r.Now)
	}
}
