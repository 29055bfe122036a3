package authority

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

var t0 = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// leaseOf returns a lease that ends an hour after t0.
func leaseOf(t *testing.T, text string) *lease.Lease {
	t.Helper()
	l, err := lease.Parse(t0, lease.Request{Lease: arcp.Raw(text), Constraints: &arcp.LeaseConstraints{ExpiresAt: t0.Add(time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// codeOf returns the code of an error; empty: there is none.
func codeOf(err *arcp.Error) arcp.Code {
	if err == nil {
		return ""
	}
	return err.Code
}

// dotted returns the members of a lease with dotted names. It leaves out the expiry.
func dotted(t *testing.T, l *lease.Lease) string {
	t.Helper()
	raw, _ := WireForm(l)
	if len(raw) == 0 {
		return ""
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool { return strings.Contains(name, "_") })
	text, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSubmitLease(t *testing.T) {
	limit := leaseOf(t, `{"fs.read":["/a/**"],"cost.budget":["USD:5"]}`)
	for _, c := range []struct {
		name    string
		options arcp.SubmitOptions
		limit   *lease.Lease
		want    string // the lease in its wire form; empty: the job has none
		code    arcp.Code
	}{
		{name: "no request and no limit"},
		{name: "no request", limit: limit, want: dotted(t, limit)},
		{name: "null", options: arcp.SubmitOptions{LeaseRequest: arcp.Raw("null")}, limit: limit, want: dotted(t, limit)},
		{name: "no limit", options: arcp.SubmitOptions{LeaseRequest: arcp.Raw(`{"fs.read":["/b"]}`)}, want: `{"fs.read":["/b"]}`},
		{name: "an empty request", options: arcp.SubmitOptions{LeaseRequest: arcp.Raw("{}")}, limit: limit, want: `{"cost.budget":["USD:5"]}`},
		{name: "only a budget", options: arcp.SubmitOptions{CostBudget: []string{"USD:2"}}, limit: limit,
			want: `{"cost.budget":["USD:2"],"fs.read":["/a/**"]}`},
		{name: "within the limit", options: arcp.SubmitOptions{LeaseRequest: arcp.Raw(`{"fs.read":["/a/b"]}`)},
			limit: limit, want: `{"cost.budget":["USD:5"],"fs.read":["/a/b"]}`},
		{name: "beyond the limit", options: arcp.SubmitOptions{LeaseRequest: arcp.Raw(`{"fs.read":["/b"]}`)}, limit: limit,
			code: arcp.CodePermissionDenied},
		{name: "not a lease", options: arcp.SubmitOptions{LeaseRequest: arcp.Raw(`{"fs.read":1}`)}, limit: limit, code: arcp.CodeInvalidRequest},
	} {
		l, err := SubmitLease(t0, &c.options, c.limit)
		if got := dotted(t, l); got != c.want || codeOf(err) != c.code {
			t.Errorf("%s: %s %v, want %s %s", c.name, got, err, c.want, c.code)
		}
	}
}

// A submit is refused after the end of the limit, its grace included, whatever it requests.
func TestSubmitAfterTheLimit(t *testing.T) {
	limit := leaseOf(t, `{"fs.read":["/a/**"]}`)
	end := limit.ExpiresAt().Add(lease.Grace)
	for name, o := range map[string]arcp.SubmitOptions{"no request": {}, "an empty request": {LeaseRequest: arcp.Raw("{}")}} {
		if _, err := SubmitLease(end.Add(-1), &o, limit); err != nil {
			t.Errorf("%s: within the grace: %v", name, err)
		}
		if _, err := SubmitLease(end, &o, limit); codeOf(err) != arcp.CodeLeaseExpired {
			t.Errorf("%s: after the end: %v, want LEASE_EXPIRED", name, err)
		}
		if _, err := BuiltinLease(end, &o, limit); err != nil {
			t.Errorf("%s: of a built-in tool after the end: %v", name, err)
		}
	}
}

// An operation that is refused because the job's lease has ended marks the state as lapsed; other
// refusals do not.
func TestOnlyTheEndOfTheLeaseMarksLapsed(t *testing.T) {
	read := func(target string) func(*lease.Authority, time.Time) *arcp.Error {
		return func(a *lease.Authority, now time.Time) *arcp.Error {
			return a.Check(now, arcp.NamespaceFSRead, target, "")
		}
	}
	var s State
	s.SetLease(leaseOf(t, `{"fs.read":["/a"],"cost.budget":["USD:5"]}`))
	end := t0.Add(time.Hour + lease.Grace)
	if !s.EndsAt().Equal(end) {
		t.Errorf("the lease ends at %v, want %v", s.EndsAt(), end)
	}
	for _, c := range []struct {
		name      string
		now       time.Time
		operation func(*lease.Authority, time.Time) *arcp.Error
		code      arcp.Code
		lapsed    bool
	}{
		{"covered", t0, read("/a"), "", false},
		{"not covered", t0, read("/b"), arcp.CodePermissionDenied, false},
		{"any model", t0, UseModel("m", false), "", false},
		{"a model without a lease for it", t0, UseModel("m", true), arcp.CodePermissionDenied, false},
		{"within the grace", end.Add(-1), read("/a"), "", false},
		{"after the end", end, read("/a"), arcp.CodeLeaseExpired, true},
		{"it stays lapsed", t0, read("/a"), "", true},
	} {
		if err := s.Decide(c.now, c.operation); codeOf(err) != c.code || s.Lapsed != c.lapsed {
			t.Errorf("%s: %v, lapsed: %v, want %q %v", c.name, err, s.Lapsed, c.code, c.lapsed)
		}
	}
	if new(State).Expired(end) || !new(State).EndsAt().IsZero() {
		t.Error("a job without a lease has an expired one")
	}
}

// A state that cannot be decoded allows nothing.
func TestUndecodableStateAllowsNothing(t *testing.T) {
	for name, c := range map[string][2]string{"budget": {"{", ""}, "grants": {"", "{"}} {
		var s State
		s.SetLease(leaseOf(t, `{"fs.read":["/a"]}`))
		if err := s.Restore(arcp.Raw(c[0]), arcp.Raw(c[1])); err == nil {
			t.Errorf("%s: it was decoded", name)
		}
		if s.Check(t0, arcp.NamespaceFSRead, "/a", "") == nil || s.Lease.Has(arcp.NamespaceFSRead) {
			t.Errorf("%s: the job may still do something", name)
		}
	}
}
