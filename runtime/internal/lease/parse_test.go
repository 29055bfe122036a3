package lease

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

func TestSpellingsOfANamespaceAreEqual(t *testing.T) {
	spellings := map[string]string{"fs.write": "fs.write", "fs_write": "fs.write", "fs.read": "fs.read"}
	maps.Copy(spellings, aliases)
	for _, ns := range arcp.Namespaces {
		spellings[ns] = ns
	}
	for _, c := range []struct{ ns, pattern, target string }{
		{FSRead, "/a", "/a"}, {FSWrite, "/a", "/a"}, {NetFetch, "https://h/a", "https://h/a"}, {ToolCall, "a", "a"},
		{AgentDelegate, "a", "a"}, {ModelUse, "a", "a"},
	} {
		for in, ns := range spellings {
			if ns != c.ns {
				continue
			}
			l := lease(t, map[string][]string{in: {c.pattern}})
			for out, same := range spellings {
				if same == ns {
					wantCode(t, in+" asked for as "+out, l.Covers(out, c.target), "")
				}
			}
			if got, want := string(l.Encode()), fmt.Sprintf(`{%q:[%q]}`, ns, c.pattern); got != want {
				t.Errorf("%s in the store: %s, want %s", in, got, want)
			}
			if got, want := string(l.WireJSON()), fmt.Sprintf(`{%q:[%q],%q:[%q]}`, ns, c.pattern, snakeCase(ns), c.pattern); got != want {
				t.Errorf("%s in the RFC dialect: %s, want %s", in, got, want)
			}
		}
	}
	for _, key := range []string{"cost.budget", "cost_budget"} {
		l := lease(t, map[string][]string{key: {"USD:5.00"}})
		if got, want := string(l.WireJSON()), `{"cost.budget":["USD:5.00"],"cost_budget":["USD:5.00"]}`; got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

func TestParseReturnsCanonicalLease(t *testing.T) {
	later := func(d time.Duration) *arcp.LeaseConstraints { return &arcp.LeaseConstraints{ExpiresAt: t0.Add(d)} }
	for _, c := range []struct {
		why   string
		lease string
		at    *arcp.LeaseConstraints
		cost  []string
		want  string // Encode
	}{
		{"nothing is asked for", ``, nil, nil, `{}`},
		{"null is nothing", `null`, nil, nil, `{}`},
		{"an empty lease", `{}`, nil, nil, `{}`},
		{"keys are sorted, patterns are not", `{"tool_call":["b","a"],"fs.read":["/a"]}`, nil, nil, `{"fs.read":["/a"],"tool.call":["b","a"]}`},
		{"patterns are kept in canonical form, once", `{"net_fetch":["h/**","HTTPS://H:443/**"]}`, nil, nil, `{"net.fetch":["https://h/**"]}`},
		{"a closed namespace stays", `{"model.use":[]}`, nil, nil, `{"model.use":[]}`},
		{"no amounts are no budget", `{"cost.budget":[]}`, nil, nil, `{}`},
		{"permission names are kept", `{"payment.refund.create":["order:*"]}`, nil, nil, `{"payment.refund.create":["order:*"]}`},
		{"bare capabilities grant nothing", `{"capabilities":["fs.read"]}`, nil, nil, `{}`},
		{"capabilities of any kind", `{"capabilities":{"a":1}}`, nil, nil, `{}`},
		{"amounts of a currency add up", `{"cost_budget":["USD:1.50","EUR:2","usd:0.5"]}`, nil, nil, `{"cost.budget":["USD:2.00","EUR:2"]}`},
		{"a budget beside the lease", ``, nil, []string{"USD:5.00"}, `{"cost.budget":["USD:5.00"]}`},
		{"and inside, the same", `{"cost.budget":["usd:5"]}`, nil, []string{"USD:5.00"}, `{"cost.budget":["usd:5"]}`},
		{"two spellings that agree", `{"fs.read":["/a","/b"],"fs_read":["/b/","/a"]}`, nil, nil, `{"fs.read":["/a","/b"]}`},
		{"three spellings that agree", `{"fs.read":["/a"],"fs_read":["/a"],"filesystem.read":["/a"]}`, nil, nil, `{"fs.read":["/a"]}`},
		{"an expiry inside", `{"expires_at":"2026-05-09T14:00:00Z"}`, nil, nil, `{"expires_at":"2026-05-09T14:00:00.000000Z"}`},
		{"UTC in other words", `{"expires_at":"2026-05-09T14:00:00+00:00"}`, nil, nil, `{"expires_at":"2026-05-09T14:00:00.000000Z"}`},
		{"an expiry is cut, not rounded", `{"expires_at":"2026-05-09T14:00:00.0000009Z"}`, nil, nil,
			`{"expires_at":"2026-05-09T14:00:00.000000Z"}`},
		{"null is no expiry", `{"expires_at":null}`, nil, nil, `{}`},
		{"an expiry beside", ``, later(time.Minute), nil, `{"expires_at":"2026-05-09T13:01:00.000000Z"}`},
		{"no expiry beside", ``, &arcp.LeaseConstraints{}, nil, `{}`},
		{"the earlier is inside", `{"expires_at":"2026-05-09T14:00:00Z"}`, later(2 * time.Hour), nil,
			`{"expires_at":"2026-05-09T14:00:00.000000Z"}`},
		{"the earlier is beside", `{"expires_at":"2026-05-09T14:00:00Z"}`, later(time.Second), nil,
			`{"expires_at":"2026-05-09T13:00:01.000000Z"}`},
	} {
		l, err := Parse(t0, Request{arcp.Raw(c.lease), c.at, c.cost})
		if err != nil || string(l.Encode()) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.why, l.Encode(), err, c.want)
		}
	}
}

func TestParseRefusesInvalidLeases(t *testing.T) {
	list := func(n int, s string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("%q", fmt.Sprintf(s, i)))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	keys := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"x.k%d":[]`, i))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	for _, c := range []struct{ why, lease, says string }{
		{"not an object", `[]`, "object"}, {"not an object", `"fs.read"`, "object"}, {"not JSON", `{`, "object"},
		{"twice the same key", `{"fs.read":["/a"],"fs.read":["/a"]}`, "object"},
		{"not an array", `{"fs.read":"/a"}`, "fs.read"}, {"not an array", `{"fs.read":null}`, "fs.read"},
		{"not an array", `{"x.y":{}}`, "x.y"}, {"not an array", `{"cost.budget":5}`, "cost.budget"},
		{"not strings", `{"fs.read":[1]}`, "fs.read"}, {"not strings", `{"fs.read":[null,{}]}`, "fs.read"},
		{"an empty pattern", `{"fs_read":[""]}`, "fs_read"}, {"an empty pattern", `{"x.y":[""]}`, "x.y"},
		{"an empty key", `{"":["a"]}`, "key"}, {"a key with a space", `{"a b":["a"]}`, "a b"},
		{"a long key", `{"` + strings.Repeat("k", 257) + `":[]}`, "256"},
		{"conflict", `{"fs.read":["/a"],"fs_read":["/b"]}`, "fs_read"},
		{"conflict", `{"fs.read":["/a"],"filesystem.read":["/a","/b"]}`, "filesystem.read"},
		{"conflict", `{"filesystem.write":["/a"],"fs_write":[]}`, "fs_write"},
		{"conflict", `{"net.fetch":["https://a/"],"network.fetch":["http://a/"]}`, "network.fetch"},
		{"conflict", `{"model.use":["a"],"model_use":["b"]}`, "model_use"},
		{"conflict", `{"cost.budget":["USD:1"],"cost_budget":["USD:2"]}`, "cost_budget"},
		{"an amount", `{"cost.budget":["5"]}`, "cost.budget"}, {"an amount", `{"cost.budget":["USD:-5"]}`, "cost.budget"},
		{"an amount", `{"cost.budget":["USD:1e3"]}`, "cost.budget"}, {"an amount", `{"cost.budget":["USD:+5"]}`, "cost.budget"},
		{"an amount", `{"cost.budget":["USD:NaN"]}`, "cost.budget"},
		{"an amount", `{"cost.budget":["USD:.5"]}`, "cost.budget"},
		{"an amount", `{"cost.budget":["USD:5."]}`, "cost.budget"}, {"an amount", `{"cost.budget":[":5"]}`, "cost.budget"},
		{"an amount", `{"cost_budget":["USD:` + strings.Repeat("1", 65) + `"]}`, "64"},
		{"an amount", `{"cost_budget":["USD:1:2"]}`, "cost_budget"},
		{"a time", `{"expires_at":1}`, "expires_at"}, {"a time", `{"expires_at":"tomorrow"}`, "expires_at"},
		{"a time", `{"expires_at":"2026-05-09T14:00:00"}`, "expires_at"}, {"a time", `{"expires_at":"2026-05-09 14:00:00Z"}`, "expires_at"},
		{"the past", `{"expires_at":"2026-05-09T12:59:59Z"}`, "future"},
		{"now", `{"expires_at":"2026-05-09T13:00:00Z"}`, "future"}, {"another zone", `{"expires_at":"2026-05-09T16:00:00+02:00"}`, "UTC"},
		{"too many keys", keys(MaxKeys + 1), "100"}, {"too many patterns", `{"x.y":` + list(MaxPatterns+1, "n%d") + `}`, "1000"},
		{"too many patterns in two keys", `{"x.y":` + list(600, "n%d") + `,"tool.call":` + list(401, "n%d") + `}`, "1000"},
		{"a long pattern", `{"tool.call":["` + strings.Repeat("a", MaxPattern+1) + `"]}`, "4096"},
		{"too many amounts", `{"cost.budget":` + list(MaxAmounts+1, "C%d:1") + `}`, "32"},
	} {
		l, err := Parse(t0, Request{Lease: arcp.Raw(c.lease)})
		if err == nil {
			t.Errorf("%s: %.100s became %s", c.why, c.lease, l.Encode())
			continue
		}
		wantCode(t, c.why, err, arcp.CodeInvalidRequest)
		if !strings.Contains(err.Message, c.says) {
			t.Errorf("%s: %q does not say %q", c.why, err.Message, c.says)
		}
	}
	for _, cost := range [][]string{{"x"}, {"USD:4"}, slices.Repeat([]string{"A:1"}, MaxAmounts+1)} {
		_, err := Parse(t0, Request{Lease: arcp.Raw(`{"cost.budget":["USD:5"]}`), CostBudget: cost})
		wantCode(t, "the budget beside the lease", err, arcp.CodeInvalidRequest)
	}
	_, err := Parse(t0, Request{Lease: arcp.Raw(`{"x.y":` + list(MaxPatterns, "n%d") + `,"cost.budget":` + list(MaxAmounts, "C%d:1") + `}`)})
	if err != nil {
		t.Errorf("a lease at its bounds: %v", err)
	}
	_, err = Parse(t0, Request{Constraints: &arcp.LeaseConstraints{ExpiresAt: t0}})
	wantCode(t, "lease_constraints", err, arcp.CodeInvalidRequest)
	_, err = Parse(t0, Request{Constraints: &arcp.LeaseConstraints{ExpiresAt: t0.Add(time.Hour).In(time.FixedZone("", 7200))}})
	wantCode(t, "lease_constraints in another zone", err, arcp.CodeInvalidRequest)
}

func TestNoLeaseCoversNothing(t *testing.T) {
	var l *Lease
	wantCode(t, "no lease", l.Covers(ToolCall, "a"), arcp.CodePermissionDenied)
	wantCode(t, "a lease without the namespace", parse(t, `{"fs.read":["/**"]}`).Covers(FSWrite, "/a"), arcp.CodePermissionDenied)
	wantCode(t, "a budget is no permission", parse(t, `{"cost.budget":["USD:5"]}`).
		Covers(arcp.NamespaceCostBudget, "USD:5"), arcp.CodePermissionDenied)
	wantCode(t, "nothing is within nothing", l.CheckSubset(nil), "")
	wantCode(t, "nothing is within nothing", parse(t, `{"fs.read":[]}`).CheckSubset(nil), "")
	wantCode(t, "an absent thought.write covers every role", parse(t, `{"thought.write":["plan"]}`).CheckSubset(parse(t, `{"fs.read":["/a"]}`)), "")
	wantCode(t, "a present one covers its roles", parse(t, `{"thought.write":["plan"]}`).CheckSubset(parse(t, `{"thought.write":["other"]}`)), arcp.CodeLeaseSubsetViolation)
	wantCode(t, "something is not", parse(t, `{"fs.read":["/a"]}`).CheckSubset(nil), arcp.CodeLeaseSubsetViolation)
	if l.Budget() != nil || !l.ExpiresAt().IsZero() || string(l.Encode()) != "{}" || l.Has(FSRead) {
		t.Error("a nil lease is not empty")
	}
}

func TestChildLeaseMustBeWithinItsParent(t *testing.T) {
	parent := parse(t, `{"fs.read":["/a/**"],"model.use":["m/*"],"cost.budget":["USD:5"],"expires_at":"2026-05-09T14:00:00Z"}`)
	for _, c := range []struct {
		why, child string
		ok         bool
	}{
		{"nothing", `{}`, true},
		{"the same", string(parent.Encode()), true},
		{"less", `{"fs_read":["/a/b"],"cost_budget":["usd:4.99"],"expires_at":"2026-05-09T13:59:59Z"}`, true},
		{"a limit in another currency", `{"cost.budget":["EUR:7"]}`, true},
		{"more money", `{"cost.budget":["usd:5.01"]}`, false},
		{"more money in two amounts", `{"cost.budget":["USD:3","usd:3"]}`, false},
		{"more time", `{"expires_at":"2026-05-09T14:00:00.000001Z"}`, false},
		{"another namespace", `{"fs.write":["/a/b"]}`, false},
		{"another model", `{"model.use":["n/a"]}`, false},
		{"one of two paths", `{"fs.read":["/a","/b"]}`, false},
	} {
		subset, within := arcp.CodeLeaseSubsetViolation, arcp.CodePermissionDenied
		if c.ok {
			subset, within = "", ""
		}
		wantCode(t, c.why, parse(t, c.child).CheckSubset(parent), subset)
		wantCode(t, c.why, parse(t, c.child).CheckWithin(parent), within)
	}
	if err := parse(t, `{"fs.read":["/a","/secret"]}`).CheckSubset(parent); err == nil || !strings.Contains(err.Message, `fs.read "/secret"`) {
		t.Errorf("%v does not name what is not covered", err)
	}
	wantCode(t, "a child may end before a parent that does not", parse(t, `{"expires_at":"2026-05-09T14:00:00Z"}`).
		CheckSubset(parse(t, `{}`)), "")
}

func TestChildInheritsBudgetExpiryAndModels(t *testing.T) {
	parent := parse(t, `{"fs.read":["/a/**"],"fs.write":["/b"],"model.use":["m/*"],"cost.budget":["USD:5","EUR:1"],"expires_at":"2026-05-09T14:00:00Z"}`)
	remaining := parent.Budget()
	for _, c := range []struct {
		why  string
		got  *Lease
		want string
	}{
		{"nothing of its own", (*Lease)(nil).Inherit(parent, remaining),
			`{"cost.budget":["USD:5","EUR:1"],"expires_at":"2026-05-09T14:00:00.000000Z","model.use":["m/*"]}`},
		{"its own",
			parse(t, `{"model.use":["m/a"],"cost.budget":["eur:0.5"],"expires_at":"2026-05-09T13:30:00Z"}`).Inherit(parent, remaining),
			`{"cost.budget":["eur:0.5","USD:5"],"expires_at":"2026-05-09T13:30:00.000000Z","model.use":["m/a"]}`},
		{"of a parent that bars thoughts", parse(t, `{"fs.read":["/a"]}`).Inherit(parse(t, `{"thought.write":[]}`), nil), `{"fs.read":["/a"],"thought.write":[]}`},
		{"fewer thoughts", parse(t, `{"thought.write":[]}`).Inherit(parse(t, `{"thought.write":["plan"]}`), nil), `{"thought.write":[]}`},
		{"of a parent without limits", parse(t, `{"fs.read":["/a"]}`).Inherit(nil, nil), `{"fs.read":["/a"]}`},
		{"of a parent that overspent", parse(t, `{}`).Inherit(nil, []Amount{{currency: "USD", value: whole(-1)}}), `{"cost.budget":["USD:0"]}`},
	} {
		if got := string(c.got.Encode()); got != c.want {
			t.Errorf("%s: %s, want %s", c.why, got, c.want)
		}
	}
	if got := string(parent.Encode()); strings.Contains(got, "eur") {
		t.Errorf("the parent has changed: %s", got)
	}
	if parent.Constraints() == nil || parse(t, `{}`).Constraints() != nil {
		t.Error("lease_constraints has the expiry of a lease")
	}
}

func TestDecodeReversesEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := map[string][]string{}
		add := func(key string, draw func(*rapid.T) string) {
			if rapid.Bool().Draw(t, key) {
				members[key] = rapid.SliceOfN(rapid.Custom(draw), 0, 4).Draw(t, key)
			}
		}
		add("fs_read", func(t *rapid.T) string { return drawGlob(t, true, 3) })
		add("network.fetch", func(t *rapid.T) string {
			return rapid.StringMatching(`(https?://)?(\*\*\.)?[a-zA-Z]{1,3}(:[1-9][0-9]{1,3})?(/[a-zé*%{]?2?5?)?`).Filter(func(s string) bool {
				_, err := compile(NetFetch, s)
				return err == nil
			}).Draw(t, "url")
		})
		add("tool.call", func(t *rapid.T) string { return drawGlob(t, false, 2) })
		add("model_use", func(t *rapid.T) string { return drawGlob(t, false, 3) })
		add("cost_budget", func(t *rapid.T) string {
			return rapid.StringMatching(`[A-Za-z_."]{1,3}:[0-9]{1,5}(\.[0-9]{1,20})?`).Draw(t, "amount")
		})
		add("x-vendor.a", func(t *rapid.T) string { return drawGlob(t, rapid.Bool().Draw(t, "path"), 3) })
		raw, _ := arcp.Marshal(members)
		r := Request{Lease: raw}
		if rapid.Bool().Draw(t, "expires") {
			r.Constraints = &arcp.LeaseConstraints{ExpiresAt: t0.Add(time.Duration(rapid.Int64Range(1000, 1e15).Draw(t, "in")))}
		}
		l, bad := Parse(t0, r)
		if bad != nil {
			t.Fatalf("%s: %v", raw, bad)
		}
		for _, form := range []arcp.Raw{l.Encode(), l.WireJSON()} {
			again, err := Decode(form)
			if err != nil || string(again.Encode()) != string(l.Encode()) {
				t.Fatalf("%s becomes %s, %v", form, again.Encode(), err)
			}
		}
		wantNoError(t, l.CheckSubset(l))
		wantNoError(t, l.CheckWithin(l))
		wantNoError(t, l.Inherit(l, l.Budget()).CheckSubset(l))
	})
}

func wantNoError(t *rapid.T, err *arcp.Error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range evasions {
		raw, err := arcp.Marshal(map[string][]string{s.namespace: {s.pattern}})
		if err == nil && len(raw) < 1000 && len(s.target) < 1000 {
			f.Add([]byte(raw), s.namespace, s.target)
		}
	}
	f.Add([]byte(`{"cost_budget":["USD:5.00"],"model_use":["tier-fast/*"],"expires_at":"2026-05-09T14:00:00Z"}`), "model.use", "tier-fast/a")
	f.Add([]byte(`{"fs.read":["/%"],"net.fetch":["https://h/%2","http://[::1"]}`), "net.fetch", "https://h/%")
	f.Fuzz(func(t *testing.T, raw []byte, namespace, target string) {
		if text, err := canonical(namespace, target); err == nil {
			if again, err := canonical(namespace, text); err != nil || again != text {
				t.Fatalf("%q is not canonical: %q, %v", text, again, err)
			}
		}
		l, bad := Parse(t0, Request{Lease: raw})
		if bad != nil {
			return
		}
		again, err := Decode(l.Encode())
		if err != nil || string(again.Encode()) != string(l.Encode()) {
			t.Fatalf("%s becomes %s, %v", l.Encode(), again.Encode(), err)
		}
		if (l.Covers(namespace, target) == nil) != (again.Covers(namespace, target) == nil) {
			t.Fatalf("%s covers %q only before it was encoded, or after", l.Encode(), target)
		}
		if err := l.CheckSubset(again); err != nil {
			t.Fatal(err)
		}
	})
}
