package auth

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Set has the schemes on offer. Many goroutines may use it, also while it is reloaded: each step
// of an attempt sees one configuration.
//
// An attempt is Begin, and if that yields a challenge, Verify. The slices of an
// Identity are shared: they are not to be changed.
type Set struct {
	current      atomic.Pointer[offer]
	extra        []Authenticator
	knownClients *knownClients
}

// offer is one configuration, ready for use. It does not change.
type offer struct {
	schemes map[string]Authenticator
	names   []string
	policy  func(scheme string) policy
}

// NewSet returns a Set of the schemes that cfg configures and of extra schemes. An extra
// scheme replaces a built-in one of its name and survives Reload. The Set owns cfg from now
// on.
func NewSet(cfg *Config, extra ...Authenticator) *Set {
	s := &Set{extra: slices.Clone(extra), knownClients: newSeen(maxSeen)}
	s.Reload(cfg)
	return s
}

// Reload replaces the configuration. It does not touch sessions, nor forget which
// clients were seen. cfg is the set's from now on.
func (s *Set) Reload(cfg *Config) { s.current.Store(newOffer(cfg, s.extra)) }

func newOffer(cfg *Config, extra []Authenticator) *offer {
	o := &offer{schemes: map[string]Authenticator{}, policy: cfg.policy}
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

// add offers a scheme; it is named if a peer from the network may use it.
func (o *offer) add(a Authenticator, named bool) {
	o.schemes[a.Scheme()] = a
	if named && !slices.Contains(o.names, a.Scheme()) {
		o.names = append(o.names, a.Scheme())
	}
}

// Schemes returns the names of the schemes that a remote peer may use, for the log.
func (s *Set) Schemes() []string { return slices.Clone(s.current.Load().names) }

// LoadKnownClients takes over which clients have proved themselves to an earlier process,
// as Sightings has told of them. They need no challenge where only new ones do.
func (s *Set) LoadKnownClients(kept []KnownClient) { s.knownClients.restore(kept) }

// KnownClientChanges returns up to limit changes that no earlier call returned; the next process passes
// them to Restore. A client not seen for 30 days is forgotten; above 100,000 clients the
// oldest is. One client is returned at most once an hour.
func (s *Set) KnownClientChanges(now time.Time, limit int) []KnownClient {
	return s.knownClients.changes(now, limit)
}

// Offers reports whether a peer from the network may use a scheme.
func (s *Set) Offers(scheme string) bool { return slices.Contains(s.current.Load().names, scheme) }

// Format names the schemes, and nothing else.
func (s *Set) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "auth set %v", s.Schemes()) // a fmt.State keeps its own error
}

// String names the schemes, and nothing else.
func (s *Set) String() string { return fmt.Sprintf("%v", s) }

// Begin starts an attempt. It returns either the identity, or a challenge to send
// to the peer and to give to Verify with the answer, or an *Error (SPEC.md §5.1).
// A peer that shows no token but names a principal is always challenged, so that
// it does not learn which principals exist. A zero r.Now is the current time.
//
// It may block on the network if a scheme does, until ctx ends.
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
	r = timed(r)
	id, err = a.Authenticate(ctx, r)
	if err != nil {
		return Identity{}, "", err
	}
	if s.due(o, id, r) {
		return Identity{}, NewChallenge(), nil
	}
	return id, "", nil
}

// Verify ends a challenged attempt and returns the identity. r is the Request of Begin, except
// for Now. The caller guarantees that the challenge is its own, younger than ChallengeTTL and
// not used before. The error is an *Error.
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
	r = timed(r)
	id, err := a.Verify(ctx, r, p)
	if err != nil {
		return Identity{}, err
	}
	s.met(o, id, r)
	return id, nil
}

func (o *offer) scheme(name string) (Authenticator, error) {
	if a, ok := o.schemes[name]; ok {
		return a, nil
	}
	return nil, notConfigured(name)
}

// challengeable reports whether a scheme proves possession of a secret.
func challengeable(scheme string) bool { return scheme == Bearer || scheme == SignedJWT }

func timed(r Request) Request {
	if r.Now.IsZero() {
		r.Now = time.Now()
	}
	return r
}

// due reports whether a valid credential needs a challenge besides.
func (s *Set) due(o *offer, id Identity, r Request) bool {
	switch o.policy(r.Scheme) {
	case challengeAlways:
		return true
	case challengeNew:
		who, ok := clientOf(id, r.Fingerprint)
		return !ok || !s.knownClients.knows(who, r.Now)
	}
	return false
}

// met remembers a client that proved itself, if that spares it a challenge.
func (s *Set) met(o *offer, id Identity, r Request) {
	if o.policy(r.Scheme) != challengeNew {
		return
	}
	if who, ok := clientOf(id, r.Fingerprint); ok {
		s.knownClients.add(who, r.Now)
	}
}
