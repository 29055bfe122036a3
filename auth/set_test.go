package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUnconfiguredSchemesAreRefused(t *testing.T) {
	set := NewSet(new(Config))
	for scheme, message := range map[string]string{
		Bearer:                  `auth scheme "bearer" is not configured`,
		SignedJWT:               `auth scheme "signed_jwt" is not configured`,
		OAuth2:                  `auth scheme "oauth2" is not configured`,
		MTLS:                    `auth scheme "mtls" is not configured`,
		"kerberos":              `auth scheme "kerberos" is not configured`,
		"":                      `auth scheme (not shown) is not configured`,
		"two words":             `auth scheme (not shown) is not configured`,
		"tok_misplaced_secret1": `auth scheme (not shown) is not configured`,
	} {
		for _, r := range []Request{{Token: "x"}, {}, {Principal: "alice"}} {
			r.Scheme, r.Now = scheme, now
			err := refused(t, set, r)
			wantRefusal(t, scheme, err, ReasonNotConfigured, message)
			want(t, scheme+": other credentials would not help", err.(*Error).Final, true)
			_, err = set.Verify(t.Context(), r, Proof{"nonce", "x"})
			wantRefusal(t, "answering "+scheme, err, ReasonNotConfigured, message)
		}
	}
}

func TestImmediateSchemes(t *testing.T) {
	all := hmacConfig(t, "anonymous: {enabled: true}")
	must(t, all.AddToken(Token{Principal: "alice", Secret: "tok"}))
	set := NewSet(all)
	for scheme, immediate := range map[string]bool{Bearer: true, None: true, SignedJWT: false, MTLS: false, "": false} {
		want(t, "scheme "+scheme, set.Immediate(scheme), immediate)
	}
	must(t, all.AddToken(Token{Principal: "bob", Secret: "tok2"}))
	want(t, "an extra scheme may wait", NewSet(all, fakeScheme{Bearer}).Immediate(Bearer), false)
}

func TestSchemesListsTheConfigured(t *testing.T) {
	want(t, "nothing is offered to the network", NewSet(new(Config)).Schemes(), nil)
	all := hmacConfig(t, "anonymous: {enabled: true}")
	must(t, all.AddToken(Token{Principal: "alice", Secret: "tok"}))
	set := NewSet(all, fakeScheme{MTLS}, fakeScheme{Bearer})
	want(t, "each scheme is named once", set.Schemes(), []string{Bearer, SignedJWT, None, MTLS})
	set.Schemes()[0] = "changed"
	want(t, "the caller's copy is its own", set.Schemes()[0], Bearer)
	want(t, "a Set prints its schemes", fmt.Sprint(set), "auth set [bearer signed_jwt none mtls]")
	want(t, "its String too", set.String(), fmt.Sprint(set))
}

func TestNoRoleImpliesAnother(t *testing.T) {
	id := Identity{Roles: []Role{RoleAdmin}}
	want(t, "a role it has", id.HasRole(RoleAdmin), true)
	want(t, "no role implies another", id.HasRole(RoleClient), false)
	want(t, "nobody has a role", Identity{}.HasRole(RoleClient), false)
}

// A challenge policy is followed for each scheme alike.
func TestChallengePolicyHoldsForEachScheme(t *testing.T) {
	jwt := signedToken(t, nil)
	for _, s := range []struct {
		request Request
		answer  func(challenge Secret) Secret
	}{
		{Request{Scheme: Bearer, Token: "tok"}, func(c Secret) Secret { return ChallengeResponse("tok", c) }},
		{Request{Scheme: SignedJWT, Token: jwt}, func(c Secret) Secret { return signedToken(t, map[string]any{"nonce": c.Reveal()}) }},
	} {
		t.Run(s.request.Scheme, func(t *testing.T) {
			r := s.request
			r.Fingerprint, r.Now = "sha256:ab", now
			prove := func(t *testing.T, set *Set, r Request) {
				t.Helper()
				challenge := challenged(t, set, r)
				id, err := set.Verify(t.Context(), r, Proof{challenge, s.answer(challenge)})
				must(t, err)
				want(t, "the answer gives the identity", id.Principal, "alice")
			}
			t.Run("never", func(t *testing.T) {
				begin(t, policySet(t, r.Scheme, "never"), r)
				begin(t, policySet(t, r.Scheme, ""), r)
			})
			t.Run("always", func(t *testing.T) {
				set := policySet(t, r.Scheme, "always")
				prove(t, set, r)
				prove(t, set, r)
			})
			t.Run("new", func(t *testing.T) {
				set := policySet(t, r.Scheme, "new")
				challenged(t, set, r)
				prove(t, set, r) // a challenge sent does not make it known
				begin(t, set, r)
				other := r
				other.Fingerprint = "sha256:cd"
				prove(t, set, other)
				other.Fingerprint = ""
				prove(t, set, other)
				prove(t, set, other)
			})
			t.Run("of the other scheme", func(t *testing.T) {
				other := map[string]string{Bearer: SignedJWT, SignedJWT: Bearer}[r.Scheme]
				begin(t, policySet(t, other, "always"), r)
			})
		})
	}
}

func policySet(t *testing.T, scheme, policy string) *Set {
	t.Helper()
	more := ""
	if policy != "" {
		more = fmt.Sprintf("challenge: {%s: %s}", scheme, policy)
	}
	c := hmacConfig(t, more)
	must(t, c.AddToken(Token{Principal: "alice", Secret: "tok"}))
	return NewSet(c)
}

func TestClientIsChallengedAgainAfterThirtyDays(t *testing.T) {
	set := policySet(t, Bearer, "new")
	r := Request{Scheme: Bearer, Token: "tok", Fingerprint: "sha256:ab", Now: now}
	challenge := challenged(t, set, r)
	_, err := set.Verify(t.Context(), r, Proof{challenge, "wrong"})
	wantRefusal(t, "a wrong answer", err, ReasonResponse, "did not validate")
	challenge = challenged(t, set, r) // a wrong answer does not make it known
	_, err = set.Verify(t.Context(), r, Proof{challenge, ChallengeResponse("tok", challenge)})
	must(t, err)
	set.Reload(withChallenge(t, "new"))
	begin(t, set, r) // nor does a reload make it new
	r.Now = now.Add(knownFor + time.Second)
	challenged(t, set, r)
}

func withChallenge(t *testing.T, policy string) *Config {
	t.Helper()
	c := parse(t, "", "challenge: {bearer: "+policy+"}")
	must(t, c.AddToken(Token{Principal: "alice", Secret: "tok"}))
	return c
}

func TestBadTokensAreNotChallenged(t *testing.T) {
	set := policySet(t, Bearer, "always")
	_ = refused(t, set, Request{Scheme: Bearer, Token: "wrong", Principal: "alice", Now: now})
	_ = refused(t, set, Request{Scheme: Bearer, Now: now})
}

func TestANameWithoutATokenIsAlwaysChallenged(t *testing.T) {
	for _, policy := range []string{"", "never", "always", "new"} {
		for _, scheme := range []string{Bearer, SignedJWT} {
			set := policySet(t, scheme, policy)
			for _, name := range []string{"alice", "nobody"} {
				challenged(t, set, Request{Scheme: scheme, Principal: name, Now: now})
			}
		}
	}
}

func TestUnknownPrincipalFailsLikeAWrongAnswer(t *testing.T) {
	set := policySet(t, Bearer, "never")
	fail := func(name string) *Error {
		_, err := set.Verify(t.Context(), Request{Scheme: Bearer, Principal: name, Now: now}, Proof{"nonce", ChallengeResponse("x", "nonce")})
		wantRefusal(t, name, err, ReasonResponse, "challenge response did not validate")
		return err.(*Error)
	}
	want(t, "the refusals are alike", *fail("nobody"), *fail("alice"))
}

func TestVerifyNeedsAChallenge(t *testing.T) {
	set := policySet(t, Bearer, "always")
	_, err := set.Verify(t.Context(), Request{Scheme: Bearer, Token: "tok", Now: now}, Proof{"", ChallengeResponse("tok", "")})
	wantRefusal(t, "an answer to nothing", err, ReasonResponse, "did not validate")
}

func TestExtraSchemesSurviveReload(t *testing.T) {
	set := NewSet(new(Config), fakeScheme{MTLS})
	set.Reload(withTokens(t, map[Secret]string{"tok": "alice"}))
	want(t, "the extra scheme is asked", begin(t, set, Request{Scheme: MTLS, Now: now}).Principal, "fake")
	want(t, "with the time it is", begin(t, set, Request{Scheme: MTLS}).Expires.IsZero(), false)
}

// fakeScheme accepts every request.
type fakeScheme struct{ name string }

func (f fakeScheme) Scheme() string { return f.name }

func (f fakeScheme) Authenticate(_ context.Context, r Request) (Identity, error) {
	return Identity{Principal: "fake", Scheme: f.name, Expires: r.Now}, nil
}

func (f fakeScheme) Verify(context.Context, Request, Proof) (Identity, error) {
	return Identity{}, cannotChallenge(f.name)
}

// While configurations are swapped, each attempt sees one or the other.
func TestReloadIsSeenAsAWhole(t *testing.T) {
	configs := []func() *Config{
		func() *Config { return withTokens(t, map[Secret]string{"tok": "alice", "extra": "alice"}) },
		func() *Config { return withTokens(t, map[Secret]string{"tok": "bob", "more": "carol"}) },
	}
	set := NewSet(configs[0]())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				id, _, err := set.Begin(t.Context(), Request{Scheme: Bearer, Token: "tok", Now: now})
				if err != nil || (id.Principal != "alice" && id.Principal != "bob") {
					t.Errorf("principal %q, error %v", id.Principal, err)
				}
				id, err = set.Verify(t.Context(), Request{Scheme: Bearer, Principal: "alice", Now: now}, Proof{"n", ChallengeResponse("tok", "n")})
				if err == nil && !cmp.Equal(id.Principal, "alice") {
					t.Errorf("principal %q", id.Principal)
				}
			}
		})
	}
	for i := range 200 {
		set.Reload(configs[i%2]())
	}
	wg.Wait()
}

// A principal that can be the only one has all of the server's limits for itself.
func TestSeveralPrincipals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config) error
		extra  []Authenticator
		want   bool
	}{
		"none": {func(*Config) error { return nil }, nil, false},
		"one":  {func(c *Config) error { return c.AddPrincipal(Principal{Name: "alice"}) }, nil, false},
		"two": {func(c *Config) error {
			return errors.Join(c.AddPrincipal(Principal{Name: "alice"}), c.AddPrincipal(Principal{Name: "bob"}))
		}, nil, true},
		"anonymous":    {func(c *Config) error { c.AllowAnonymous(); return nil }, nil, true},
		"other scheme": {func(*Config) error { return nil }, []Authenticator{newNoneScheme(new(Config))}, true},
	} {
		cfg := NewConfig(Options{})
		if err := c.change(cfg); err != nil {
			t.Fatal(err)
		}
		if s := NewSet(cfg, c.extra...); s.HasSeveralPrincipals() != c.want {
			t.Errorf("%s: %v, want %v", name, !c.want, c.want)
		}
	}
}
