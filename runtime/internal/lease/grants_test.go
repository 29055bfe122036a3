package lease

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

func grant(id, permission, resource, operation string, d time.Duration) Grant {
	return Grant{ID: arcp.LeaseID(id), Permission: permission, Resource: resource, Operation: operation,
		GrantedAt: t0, ExpiresAt: t0.Add(d), Session: "sess_1", Principal: "alice"}
}

func TestNextEndSkipsRevokedAndEndedGrants(t *testing.T) {
	var g Grants
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	want := func(why string, after, end time.Time) {
		t.Helper()
		if got := g.NextEnd(after); !got.Equal(end) {
			t.Errorf("%s: the next end after %s is %s, want %s", why, after, got, end)
		}
	}
	want("none", time.Time{}, time.Time{})
	for id, d := range map[string]time.Duration{"lease_1": 3 * time.Minute, "lease_2": time.Minute, "lease_3": 2 * time.Minute} {
		wantCode(t, "add", g.Add(grant(id, "p", "r", "o", d)), "")
	}
	want("the first", time.Time{}, at(time.Minute+Grace))
	want("it is over", at(time.Minute+Grace), at(2*time.Minute+Grace))
	_, err := g.Revoke(at(0), "lease_3")
	wantCode(t, "revoke", err, "")
	want("the other is revoked", at(time.Minute+Grace), at(3*time.Minute+Grace))
	want("all are over", at(time.Hour), time.Time{})
}

func TestDurationIsTheLeastOfItsBounds(t *testing.T) {
	for _, c := range []struct{ asked, granted, want time.Duration }{
		{0, time.Minute, time.Minute}, {time.Second, time.Minute, time.Second}, {time.Minute, time.Second, time.Second},
		{0, 2 * time.Hour, time.Hour}, {3 * time.Hour, 2 * time.Hour, time.Hour}, {time.Minute, 0, 0}, {0, -1, 0},
		{Seconds(math.MaxUint64), Seconds(math.MaxUint64), time.Hour},
	} {
		if got := Duration(c.asked, c.granted); got != c.want {
			t.Errorf("Duration(%v, %v) = %v, want %v", c.asked, c.granted, got, c.want)
		}
	}
}

func TestGrantMayOnlyNarrowItsRequest(t *testing.T) {
	asked := Permission{Permission: "payment.refund.create", Resource: "order:*", Operation: "refund"}
	for _, c := range []struct {
		why     string
		asked   Permission
		granted Permission
		ok      bool
	}{
		{"the same", asked, asked, true},
		{"one order", asked, Permission{Permission: asked.Permission, Resource: "order:1", Operation: "refund"}, true},
		{"wider", asked, Permission{Permission: asked.Permission, Resource: "**", Operation: "refund"}, false},
		{"another resource", asked, Permission{Permission: asked.Permission, Resource: "invoice:1", Operation: "refund"}, false},
		{"another operation", asked, Permission{Permission: asked.Permission, Resource: "order:1", Operation: "delete"}, false},
		{"no operation", asked, Permission{Permission: asked.Permission, Resource: "order:1", Operation: ""}, false},
		{"another permission", asked, Permission{Permission: "payment.refund", Resource: "order:1", Operation: "refund"}, false},
		{"no resource", asked, Permission{Permission: asked.Permission, Resource: "", Operation: "refund"}, false},
		{"another spelling", Permission{Permission: "fs.read", Resource: "/a/**", Operation: "read"},
			Permission{Permission: "filesystem.read", Resource: "/a/b/*", Operation: "read"}, true},
		{"a path that climbs", Permission{Permission: "fs.read", Resource: "/a/**", Operation: "read"},
			Permission{Permission: "fs.read", Resource: "/a/../b", Operation: "read"}, false},
		{"a resource that is none", Permission{Permission: "fs.read", Resource: "a", Operation: "read"},
			Permission{Permission: "fs.read", Resource: "a", Operation: "read"}, false},
		{"a URL", Permission{Permission: "x.get", Resource: "https://h/**", Operation: "get"},
			Permission{Permission: "x.get", Resource: "https://h/a", Operation: "get"}, true},
	} {
		want := arcp.CodeInvalidArgument
		if c.ok {
			want = ""
		}
		wantCode(t, c.why, CheckNarrower(c.asked, c.granted), want)
	}
}

func TestGrantCoversUntilItEnds(t *testing.T) {
	var g Grants
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	check := func(why string, d time.Duration, resource, operation string, code arcp.Code) {
		t.Helper()
		wantCode(t, why, g.Check(at(d), "payment.refund", resource, operation), code)
	}
	check("before there is one", 0, "order:1", "refund", arcp.CodePermissionDenied)
	wantCode(t, "add", g.Add(grant("lease_1", "payment.refund", "order:*", "refund", time.Minute)), "")
	wantCode(t, "the same id again", g.Add(grant("lease_1", "payment.refund", "order:*", "refund", time.Minute)), arcp.CodeAlreadyExists)
	wantCode(t, "no duration", g.Add(grant("lease_2", "payment.refund", "order:*", "refund", 0)), arcp.CodeInvalidArgument)
	wantCode(t, "no resource", g.Add(grant("lease_2", "payment.refund", "", "refund", 1)), arcp.CodeInvalidArgument)
	wantCode(t, "not UTF-8", g.Add(grant("lease_2", "payment.refund", "a", "\xff", time.Minute)), arcp.CodeInvalidArgument)
	check("it covers", 0, "order:1", "refund", "")
	check("any operation", 0, "order:1", "", "")
	check("another operation", 0, "order:1", "delete", arcp.CodePermissionDenied)
	check("another resource", 0, "invoice:1", "refund", arcp.CodePermissionDenied)
	check("a resource that is none", 0, "order:\x00", "refund", arcp.CodePermissionDenied)
	check("in the grace", time.Minute+Grace-1, "order:1", "refund", "")
	check("after it", time.Minute+Grace, "order:1", "refund", arcp.CodeLeaseExpired)
	check("another operation after it", time.Minute+Grace, "order:1", "delete", arcp.CodePermissionDenied)

	_, err := g.Refresh(at(0), "lease_9", time.Minute)
	wantCode(t, "refresh what is not there", err, arcp.CodeNotFound)
	_, err = g.Refresh(at(0), "lease_1", 0)
	wantCode(t, "refresh by nothing", err, arcp.CodeInvalidArgument)
	_, err = g.Refresh(at(time.Hour), "lease_1", time.Minute)
	wantCode(t, "refresh too late", err, arcp.CodeLeaseExpired)
	got, err := g.Refresh(at(30*time.Second), "lease_1", time.Minute)
	wantCode(t, "refresh", err, "")
	if want := at(2 * time.Minute); !got.ExpiresAt.Equal(want) {
		t.Errorf("refreshed until %v, want %v", got.ExpiresAt, want)
	}
	got, _ = g.Refresh(at(time.Minute), "lease_1", Seconds(math.MaxUint64))
	if want := at(MaxLifetime); !got.ExpiresAt.Equal(want) {
		t.Errorf("refreshed until %v, want %v", got.ExpiresAt, want)
	}
	got, err = g.Refresh(at(23*time.Hour), "lease_1", time.Hour)
	if wantCode(t, "at the end", err, ""); !got.ExpiresAt.Equal(at(MaxLifetime)) {
		t.Errorf("refreshed until %v", got.ExpiresAt)
	}

	_, err = g.Revoke(at(0), "lease_9")
	wantCode(t, "revoke what is not there", err, arcp.CodeNotFound)
	got, err = g.Revoke(at(0), "lease_1")
	if wantCode(t, "revoke", err, ""); !got.Revoked {
		t.Error("a revoked grant is not")
	}
	check("after that", 0, "order:1", "refund", arcp.CodeLeaseRevoked)
	_, err = g.Refresh(at(0), "lease_1", time.Minute)
	wantCode(t, "refresh after that", err, arcp.CodeLeaseRevoked)
	_, err = g.Revoke(at(0), "lease_1")
	wantCode(t, "revoke twice", err, arcp.CodeLeaseRevoked)
	wantCode(t, "another one", g.Add(grant("lease_2", "payment.refund", "order:1", "refund", time.Minute)), "")
	check("a live one counts", 0, "order:1", "refund", "")
	check("the latest that ended says how", time.Hour, "order:1", "refund", arcp.CodeLeaseExpired)

	var again Grants
	if err := again.Decode(g.Encode()); err != nil || string(again.Encode()) != string(g.Encode()) {
		t.Errorf("%s becomes %s, %v", g.Encode(), again.Encode(), err)
	}
	wantCode(t, "decoded", again.Check(t0, "payment.refund", "order:1", "refund"), "")
	if got, ok := again.Get("lease_2"); !ok || got.Principal != "alice" ||
		!strings.Contains(string(g.Encode()), `"granted_at":"2026-05-09T13:00:00.000000Z"`) {
		t.Errorf("Get = %v, %v of %s", got, ok, g.Encode())
	}
	if _, ok := again.Get("lease_9"); ok || again.Decode(arcp.Raw(`[{"resource":""}]`)) == nil || again.Decode(arcp.Raw(`{}`)) == nil {
		t.Error("what is not there was found, or read")
	}
}

func TestGrantsAreBounded(t *testing.T) {
	var g Grants
	add := func(i int, now time.Time) *arcp.Error {
		return g.Add(Grant{ID: arcp.LeaseID(fmt.Sprint("lease_", i)), Permission: "p", Resource: "r", Operation: "o",
			GrantedAt: now, ExpiresAt: now.Add(time.Minute)})
	}
	for i := range MaxGrants {
		wantCode(t, "up to the bound", add(i, t0), "")
	}
	wantCode(t, "past it", add(1000, t0), arcp.CodeResourceExhausted)
	for round := range 5 {
		now := t0.Add(time.Duration(round+1) * time.Hour)
		for i := range MaxGrants {
			wantCode(t, "when the others have ended", add((round+1)*100+i, now), "")
		}
	}
	if n := len(g.list); n > 2*MaxGrants {
		t.Errorf("%d grants are remembered", n)
	}
	wantCode(t, "the latest ones", g.Check(t0.Add(5*time.Hour), "p", "r", "o"), "")
}

func TestAuthorityChecksExpiryThenCoverageThenBudget(t *testing.T) {
	a := Authority{Lease: parse(t, `{"fs.read":["/a/**"],"cost.budget":["USD:1"],"expires_at":"2026-05-09T14:00:00Z"}`)}
	a.Budget = NewBudget(a.Lease.Budget())
	check := func(why string, d time.Duration, namespace, target, operation string, code arcp.Code) {
		t.Helper()
		wantCode(t, why, a.Check(t0.Add(d), namespace, target, operation), code)
	}
	check("covered", 0, "fs.read", "/a/b", "", "")
	check("not covered", 0, "fs.read", "/b", "", arcp.CodePermissionDenied)
	check("in the grace", time.Hour+Grace-1, "fs.read", "/a", "", "")
	check("expired comes first", time.Hour+Grace, "fs.read", "/b", "", arcp.CodeLeaseExpired)
	wantCode(t, "add", a.Grants.Add(grant("lease_1", "filesystem.write", "/a/*", "write", time.Minute)), "")
	check("granted", 0, "fs.write", "/a/b", "write", "")
	check("granted for another operation", 0, "fs.write", "/a/b", "delete", arcp.CodePermissionDenied)
	check("granted for another path", 0, "fs.write", "/a/../b", "write", arcp.CodePermissionDenied)
	check("the grant has ended", 2*time.Minute, "fs.write", "/a/b", "write", arcp.CodeLeaseExpired)
	a.Budget.Report("usd", "1.12")
	check("not covered comes before exhausted", 0, "fs.read", "/b", "", arcp.CodePermissionDenied)
	check("exhausted", 0, "fs.read", "/a/b", "", arcp.CodeBudgetExhausted)
	check("also what was granted", 0, "fs.write", "/a/b", "write", arcp.CodeBudgetExhausted)
	check("an ended lease ends what was granted", 2*time.Hour, "fs.write", "/a/b", "write", arcp.CodeLeaseExpired)
	var none Authority
	wantCode(t, "no authority", none.Check(t0, ToolCall, "a", ""), arcp.CodePermissionDenied)
}
