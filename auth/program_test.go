package auth_test

import (
	"slices"
	"testing"
	"time"

	"github.com/arcpd/arcpd/auth"
)

// A program has the identity that the runtime assigns, whatever its process shows, and no
// other peer has it.
func TestProgramHasTheAssignedIdentity(t *testing.T) {
	var cfg auth.Config
	if err := cfg.AddToken(auth.Token{Principal: "alice", Secret: "a-long-secret"}); err != nil {
		t.Fatal(err)
	}
	set := auth.NewSet(&cfg)
	kid, other := auth.NewProgram("kid", []string{"kid.*"}), auth.NewProgram("other", nil)
	assigned := func(scheme string, token auth.Secret) auth.Request {
		return auth.Request{Scheme: scheme, Token: token, Principal: "alice", Program: &kid, Now: time.Now()}
	}
	for _, r := range []auth.Request{assigned(auth.None, ""), assigned(auth.Bearer, "a-long-secret"),
		assigned(auth.Bearer, ""), assigned("unknown", "x")} {
		id, challenge, err := set.Begin(t.Context(), r)
		if err != nil || challenge != "" || id.Principal != "program:kid" || !slices.Equal(id.Roles, []auth.Role{auth.RoleWorker}) || id.Scheme != auth.Program {
			t.Errorf("Begin(%s) = %+v, %q, %v, want program:kid", r.Scheme, id, challenge, err)
		}
	}
	if id, err := set.Verify(t.Context(), assigned(auth.Bearer, ""), auth.Proof{}); err != nil || id.Principal != "program:kid" {
		t.Errorf("Verify = %+v, %v", id, err)
	}
	alice, _, err := set.Begin(t.Context(), auth.Request{Scheme: auth.Bearer, Token: "a-long-secret"})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := set.Revalidate(kid, auth.Request{Program: &kid}); err != nil || id.Principal != "program:kid" {
		t.Errorf("its own session: %+v, %v", id, err)
	}
	for name, again := range map[string]func() (auth.Identity, error){
		"a session of another principal": func() (auth.Identity, error) { return set.Revalidate(alice, auth.Request{Program: &kid}) },
		"a session of another program":   func() (auth.Identity, error) { return set.Revalidate(other, auth.Request{Program: &kid}) },
		"its session from elsewhere":     func() (auth.Identity, error) { return set.Revalidate(kid, auth.Request{Local: true}) },
	} {
		if id, err := again(); err == nil {
			t.Errorf("%s: %+v, want an error", name, id)
		}
	}
	if auth.IsProgram("alice") || !auth.IsProgram(kid.Principal) {
		t.Error("IsProgram does not tell a program from others")
	}
	if err := new(auth.Config).AddToken(auth.Token{Principal: "program:kid", Secret: "a-long-secret"}); err == nil {
		t.Error("a token has the name of a program")
	}
}
