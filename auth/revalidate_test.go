package auth

import (
	"fmt"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// revalidate expects an identity, as if it had been stored.
func revalidate(t *testing.T, why string, s *Set, id Identity) Identity {
	t.Helper()
	fresh, err := s.Revalidate(id, Request{Now: now})
	if err != nil {
		t.Fatalf("%s: Revalidate = %v, want no error", why, err)
	}
	return fresh
}

func wantRevoked(t *testing.T, why string, s *Set, id Identity) {
	t.Helper()
	fresh, err := s.Revalidate(id, Request{Now: now})
	wantRefusal(t, why, err, ReasonUnknown, "not known any more")
	want(t, "an identity does not come with a refusal", fresh, Identity{})
}

// A bearer session ends with its own token, whichever way it was proved, and gets the settings
// of the present configuration.
func TestBearerSessionEndsWithItsToken(t *testing.T) {
	file := func(tokens, role string) *Config {
		return parse(t, "", fmt.Sprintf("principals: [{name: alice, tokens: [%s], roles: [%s]}]", tokens, role))
	}
	first, second := "'"+FileHash("one")+"'", "'"+FileHash("two")+"'"
	set := NewSet(file(first+", "+second, "admin"))
	nonce := NewChallenge()
	byAnswer, err := set.Verify(t.Context(), Request{Scheme: Bearer, Principal: "alice", Now: now}, Proof{nonce, ChallengeResponse("two", nonce)})
	must(t, err)
	byToken := begin(t, set, Request{Scheme: Bearer, Token: "two", Now: now})
	want(t, "the answer tells which token it was", byAnswer, byToken)

	set.Reload(file(second, "observer"))
	fresh := revalidate(t, "its token is still there", set, byToken)
	want(t, "the roles are those of now", fresh.Roles, []Role{RoleObserver})
	want(t, "it can be renewed again", revalidate(t, "renewed", set, fresh), fresh)
	unknown := byToken
	unknown.TokenFingerprint = ""
	wantRevoked(t, "it is not known which token it was", set, unknown)
	set.Reload(file(first, "observer"))
	wantRevoked(t, "the principal has another token only", set, byToken)
	set.Reload(parse(t, "", "principals: [{name: bob, tokens: ["+second+"]}]"))
	wantRevoked(t, "the token is somebody else's", set, byToken)
}

// A JWT session gets its principal's present settings until the JWT expires.
func TestJWTSessionHasPresentSettingsUntilItExpires(t *testing.T) {
	const (
		groups = "    roles_claim: groups\n"
		alice  = "principals: [{name: alice, roles: [admin], trust: privileged, limits: {jobs: 7}}]\n"
	)
	set := NewSet(hmacConfig(t, alice))
	id := begin(t, set, jwtRequest(signedToken(t, nil)))
	want(t, "as long as nothing changes, nothing changes", revalidate(t, "", set, id), id)
	set.Reload(hmacConfig(t, "principals: [{name: alice, roles: [observer], trust: constrained}]"))
	want(t, "the entry has changed", revalidate(t, "", set, id), Identity{Principal: "alice", Scheme: SignedJWT, Roles: []Role{RoleObserver},
		Trust: arcp.Constrained, Expires: id.Expires, Issuer: id.Issuer, KeyFingerprint: id.KeyFingerprint})
	set.Reload(hmacConfig(t, ""))
	want(t, "the entry is gone", revalidate(t, "", set, id), Identity{Principal: "alice", Scheme: SignedJWT, Roles: clientRoles,
		Trust: arcp.Trusted, Expires: id.Expires, Issuer: id.Issuer, KeyFingerprint: id.KeyFingerprint})

	set.Reload(hmacConfig(t, groups+alice))
	id = begin(t, set, jwtRequest(signedToken(t, map[string]any{"groups": []string{"worker"}})))
	set.Reload(hmacConfig(t, groups))
	fresh := revalidate(t, "", set, id)
	want(t, "the issuer still gives roles so", fresh.Roles, []Role{RoleWorker})
	want(t, "the rest is not the entry's any more", string(fresh.Trust)+fmt.Sprint(fresh.Limits), string(arcp.Trusted)+"{0 0 0}")
	want(t, "it can be renewed again", revalidate(t, "", set, fresh), fresh)
	for why, more := range map[string]string{"it gives none any more": "", "it gives them by another claim": "    roles_claim: roles\n"} {
		set.Reload(hmacConfig(t, more))
		want(t, why, revalidate(t, why, set, id).Roles, clientRoles)
	}

	set.Reload(hmacConfig(t, "    prefix: 'x:'\n"))
	wantRevoked(t, "the issuer has no such principal any more", set, id)
	set.Reload(parse(t, writeFiles(t, map[string]string{"secret": "0123456789abcdef0123456789abcdef"}), `
issuers: [{issuer: another, key_files: [secret], algorithms: [HS256]}]`))
	wantRevoked(t, "the issuer is gone", set, id)
	set.Reload(hmacConfig(t, ""))
	_, err := set.Revalidate(id, Request{Now: id.Expires.Add(-time.Nanosecond)})
	must(t, err)
	_, err = set.Revalidate(id, Request{Now: id.Expires})
	wantRefusal(t, "the JWT has ended", err, ReasonInvalid, "expired")
}
