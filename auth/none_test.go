package auth

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestAnonymousPeersAreDifferentPrincipals(t *testing.T) {
	set := NewSet(parse(t, "", "anonymous: {enabled: true}"))
	r := Request{Scheme: None, Anonymous: true, Now: now}
	a, b := begin(t, set, r), begin(t, set, r)
	want(t, "two anonymous sessions are two principals", a.Principal == b.Principal, false)
	if rest, ok := strings.CutPrefix(a.Principal, "anonymous:"); !ok || len(rest) < 26 {
		t.Errorf("principal %q is not anonymous: and 26 random characters", a.Principal)
	}
	a.Principal = ""
	want(t, "an anonymous session may little", a, Identity{
		Scheme: None, Roles: []Role{RoleClient}, Trust: arcp.Untrusted, Anonymous: true,
	})
}

func TestNoneRefusalsHaveReasons(t *testing.T) {
	off, on := NewSet(new(Config)), NewSet(parse(t, "", "anonymous: {enabled: true}"))
	for _, c := range []struct {
		why             string
		set             *Set
		request         Request
		reason, message string
	}{
		{"off and not negotiated", off, Request{}, ReasonAnonymous, "anonymous access is off"},
		{"off, though negotiated", off, Request{Anonymous: true}, ReasonAnonymous, "anonymous access is off"},
		{"on, but not negotiated", on, Request{}, ReasonAnonymous, "requires capabilities.anonymous"},
		{"a uid without the system's word", on, Request{PeerUID: 1000}, ReasonAnonymous, "anonymous"},
		{"a name does not get a challenge", on, Request{Principal: "alice"}, ReasonAnonymous, "anonymous"},
		{"a local peer whose user is not known", off, Request{Local: true, PeerUID: -1}, ReasonMissing, "user of the local peer"},
	} {
		c.request.Scheme, c.request.Now = None, now
		err := refused(t, c.set, c.request)
		wantRefusal(t, c.why, err, c.reason, c.message)
		want(t, c.why+": other credentials would not help", err.(*Error).Final, true)
	}
}

func TestLocalPeerIsItsUser(t *testing.T) {
	set := NewSet(parse(t, "", `principals: [{name: "uid:7", roles: [observer], trust: constrained}]`))
	local := Request{Scheme: None, Local: true, PeerUID: 1000, Now: now}
	want(t, "the system vouches for the user, without anonymous", begin(t, set, local), Identity{
		Principal: "uid:1000", Scheme: None, Roles: []Role{RoleClient, RoleWorker, RoleApprover}, Trust: arcp.Trusted,
	})
	local.Anonymous = true
	want(t, "a local peer is never anonymous", begin(t, set, local).Principal, "uid:1000")
	local.PeerUID = 7
	want(t, "the auth file may say otherwise", begin(t, set, local), Identity{
		Principal: "uid:7", Scheme: None, Roles: []Role{RoleObserver}, Trust: arcp.Constrained,
	})
	_ = refused(t, set, Request{Scheme: Bearer, Local: true, PeerUID: 1000, Now: now})
}

func TestNoneCannotBeChallenged(t *testing.T) {
	set := NewSet(new(Config))
	_, err := set.Verify(t.Context(), Request{Scheme: None, Local: true, Now: now}, Proof{"nonce", "x"})
	wantRefusal(t, "there is nothing to prove", err, ReasonUnsupported, `auth scheme none cannot be challenged`)
}
