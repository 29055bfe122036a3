package auth

import (
	"testing"
	"time"
)

func TestChallengeFollowsThePolicyOfTheScheme(t *testing.T) {
	cfg := new(Config)
	cfg.policies = map[string]ChallengePolicy{Bearer: ChallengeAlways, SignedJWT: ChallengeNew, None: ChallengeAlways}
	set := NewSet(cfg)
	want(t, "always", set.Challenge(Bearer) != "", true)
	want(t, "new: it is not known by what client it is", set.Challenge(SignedJWT) != "", true)
	first, second := set.Challenge(Bearer), set.Challenge(Bearer)
	want(t, "each is another one", first == second, false)
	want(t, "there is nothing to prove", set.Challenge(None).Reveal(), "")
	set.Reload(new(Config))
	want(t, "never", set.Challenge(Bearer).Reveal(), "")
}

func TestNewCredentialMustExpireLater(t *testing.T) {
	end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	id := Identity{Principal: "alice", Expires: end}
	for _, c := range []struct {
		fresh  Identity
		reason string
	}{
		{Identity{Principal: "alice", Expires: end.Add(1)}, ""},
		{Identity{Principal: "alice"}, ""},
		{Identity{Principal: "alice", Expires: end}, ReasonStale},
		{Identity{Principal: "bob"}, ReasonPrincipal},
		{Identity{Principal: "bob", Expires: end.Add(1)}, ReasonPrincipal},
	} {
		err := id.CanBeReplacedBy(c.fresh)
		if c.reason == "" {
			want(t, "it may take its place", err, nil)
			continue
		}
		e, _ := err.(*Error)
		if e == nil || e.Reason != c.reason || e.Final {
			t.Errorf("%+v: %+v, want %s", c.fresh, e, c.reason)
		}
	}
}
