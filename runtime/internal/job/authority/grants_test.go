package authority

import (
	"fmt"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

// granted returns a state with the permission lease "l" for an hour, which bob has granted in the
// session s2 to the holder s3.
func granted(t *testing.T) *State {
	t.Helper()
	s := new(State)
	c, err := s.Grant(t0, Grant{ID: "l", Permission: lease.Permission{Permission: "p", Resource: "r", Operation: "o"}, Duration: time.Hour,
		By: Party{"bob", "s2"}, Holder: "s3"})
	if err != nil || c.Type != arcp.LeaseGranted {
		t.Fatalf("Grant = %+v, %v; want lease.granted", c, err)
	}
	return s
}

func TestGrantAnswer(t *testing.T) {
	asked := arcp.PermissionTerm{Permission: "p", Resource: "r:*", Operation: "o", Seconds: 60}
	for _, c := range []struct {
		name  string
		grant arcp.PermissionTerm
		want  time.Duration
		code  arcp.Code
	}{
		{"as asked", asked, time.Minute, ""},
		{"for less time", arcp.PermissionTerm{Permission: "p", Resource: "r:*", Operation: "o", Seconds: 30}, 30 * time.Second, ""},
		{"for more time", arcp.PermissionTerm{Permission: "p", Resource: "r:*", Operation: "o", Seconds: 90}, time.Minute, ""},
		{"narrower", arcp.PermissionTerm{Permission: "p", Resource: "r:1", Operation: "o", Seconds: 60}, time.Minute, ""},
		{"wider", arcp.PermissionTerm{Permission: "p", Resource: "**", Operation: "o", Seconds: 60}, 0, arcp.CodeInvalidArgument},
		{"another operation", arcp.PermissionTerm{Permission: "p", Resource: "r:*", Operation: "x", Seconds: 60}, 0, arcp.CodeInvalidArgument},
		{"no time", arcp.PermissionTerm{Permission: "p", Resource: "r:*", Operation: "o"}, 0, arcp.CodeInvalidArgument},
	} {
		s := new(State)
		row := approval.Row{Permission: &asked, Grant: &c.grant, ResolvedBy: "bob", ResolvedIn: "s2"}
		change, err := s.GrantAnswer(t0, "l", &row, nil)
		if codeOf(err) != c.code {
			t.Errorf("%s: %v, want %q", c.name, err, c.code)
			continue
		}
		g, live := s.Grants.Get("l")
		if live != (err == nil) {
			t.Errorf("%s: the job has the lease: %v", c.name, live)
		}
		if err != nil {
			continue
		}
		p := change.Payload.(arcp.LeaseGrantedPayload)
		if d := g.ExpiresAt.Sub(t0); d != c.want || g.Principal != "bob" || g.Session != "s2" || p.LeaseID != "l" ||
			p.Resource != c.grant.Resource || !p.ExpiresAt.Equal(g.ExpiresAt) {
			t.Errorf("%s: lease %+v, event %+v, want one for %v", c.name, g, p, c.want)
		}
	}
}

// The configured lease of a principal bounds what it grants to its own jobs, and not what others grant to them.
func TestGrantWithinTheLimit(t *testing.T) {
	limit := leaseOf(t, `{"fs.read":["/a/**"],"order":["order:*"]}`)
	for _, c := range []struct {
		name                   string
		by, permission, target string
		now                    time.Time
		limit                  *lease.Lease
		code                   arcp.Code
	}{
		{"within", "alice", "fs.read", "/a/b", t0, limit, ""},
		{"another spelling", "alice", "fs_read", "/a/b", t0, limit, ""},
		{"a pattern within", "alice", "order", "order:7*", t0, limit, ""},
		{"beyond", "alice", "fs.read", "/b", t0, limit, arcp.CodePermissionDenied},
		{"a pattern beyond", "alice", "fs.read", "/**", t0, limit, arcp.CodePermissionDenied},
		{"an absent permission", "alice", "fs.write", "/a/b", t0, limit, arcp.CodePermissionDenied},
		{"after the end", "alice", "fs.read", "/a/b", t0.Add(2 * time.Hour), limit, arcp.CodeLeaseExpired},
		{"no limit", "alice", "fs.read", "/b", t0, nil, ""},
		{"another principal", "root", "fs.read", "/b", t0, limit, ""},
	} {
		s := new(State)
		term := arcp.PermissionTerm{Permission: c.permission, Resource: c.target, Operation: "o", Seconds: 60}
		row := approval.Row{Principal: "alice", Permission: &term, Grant: &term, ResolvedBy: c.by}
		if _, err := s.GrantAnswer(c.now, "l", &row, c.limit); codeOf(err) != c.code {
			t.Errorf("%s: %v, want %q", c.name, err, c.code)
		}
	}
}

// A new lease pushes the oldest ended ones out of the state.
func TestGrantDropsEndedLeases(t *testing.T) {
	s, dropped := new(State), 0
	for i := range 2*lease.MaxGrants + 1 {
		id := arcp.LeaseID(fmt.Sprint("l", i))
		c, err := s.Grant(t0.Add(time.Duration(i)*time.Hour),
			Grant{ID: id, Permission: lease.Permission{Permission: "p", Resource: "r"}, Duration: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, old := range c.Dropped {
			if want := arcp.LeaseID(fmt.Sprint("l", dropped)); old != want {
				t.Errorf("%s is dropped, want %s", old, want)
			}
			dropped++
		}
	}
	if dropped != lease.MaxGrants+1 {
		t.Errorf("%d leases are dropped", dropped)
	}
	if _, found := s.FindGrant("p"); !found {
		t.Error("the permission has no lease")
	}
	if _, found := s.FindGrant("q"); found {
		t.Error("another permission has a lease")
	}
}

func TestExtend(t *testing.T) {
	owner := Party{"alice", "s1"}
	for _, c := range []struct {
		name string
		id   arcp.LeaseID
		now  time.Time
		more time.Duration
		by   Party
		want time.Duration // of the lease
		code arcp.Code
	}{
		{"by the job's session", "l", t0, time.Minute, owner, time.Hour + time.Minute, ""},
		{"to the longest lifetime", "l", t0, 48 * time.Hour, owner, lease.MaxLifetime, ""},
		{"by another session", "l", t0, time.Minute, Party{"alice", "s4"}, time.Hour, arcp.CodePermissionDenied},
		{"by another principal", "l", t0, time.Minute, Party{"bob", "s1"}, time.Hour, arcp.CodeNotFound},
		{"by nothing", "l", t0, 0, owner, time.Hour, arcp.CodeInvalidArgument},
		{"an unknown lease", "x", t0, time.Minute, owner, time.Hour, arcp.CodeNotFound},
		{"too late", "l", t0.Add(2 * time.Hour), time.Minute, owner, time.Hour, arcp.CodeLeaseExpired},
	} {
		s := granted(t)
		change, err := s.Extend(c.now, Extension{Lease: c.id, More: c.more, By: c.by, Owner: owner})
		g, _ := s.Grants.Get("l")
		if d := g.ExpiresAt.Sub(t0); codeOf(err) != c.code || d != c.want {
			t.Errorf("%s: %v, the lease lasts %v, want %q %v", c.name, err, d, c.code, c.want)
		}
		if p, ok := change.Payload.(arcp.LeaseExtendedPayload); ok != (err == nil) || ok &&
			(change.Type != arcp.LeaseExtended || !p.ExpiresAt.Equal(g.ExpiresAt)) {
			t.Errorf("%s: event %+v", c.name, change)
		}
	}
}

func TestRevoke(t *testing.T) {
	owner := Party{"alice", "s1"}
	for _, c := range []struct {
		name  string
		id    arcp.LeaseID
		now   time.Time
		by    Party
		admin bool
		code  arcp.Code
	}{
		{"by its grantor", "l", t0, Party{"bob", "s5"}, false, ""},
		{"by an admin", "l", t0, Party{"root", "s6"}, true, ""},
		{"by the job's principal", "l", t0, owner, false, arcp.CodePermissionDenied},
		{"by another principal", "l", t0, Party{"eve", "s7"}, false, arcp.CodeNotFound},
		{"an unknown lease", "x", t0, Party{"root", "s6"}, true, arcp.CodeNotFound},
		{"too late", "l", t0.Add(2 * time.Hour), Party{"bob", "s5"}, false, arcp.CodeLeaseExpired},
	} {
		s := granted(t)
		change, err := s.Revoke(c.now, Revocation{Lease: c.id, Reason: "enough", By: c.by, Admin: c.admin, Owner: owner})
		g, _ := s.Grants.Get("l")
		if codeOf(err) != c.code || g.Revoked != (err == nil) {
			t.Errorf("%s: %v, revoked: %v, want %q", c.name, err, g.Revoked, c.code)
		}
		if p, ok := change.Payload.(arcp.LeaseRevokedPayload); ok != (err == nil) || ok &&
			(p.Reason != "enough" || len(change.To) != 1 || change.To[0] != "s3") {
			t.Errorf("%s: event %+v", c.name, change)
		}
		if n := len(s.ExpiredGrants(c.now)); (n == 1) != (c.code == arcp.CodeLeaseExpired) {
			t.Errorf("%s: %d leases have expired", c.name, n)
		}
	}
}
