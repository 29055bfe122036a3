package tool

import (
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/rule"
)

func TestApprovalInJSON(t *testing.T) {
	for text, want := range map[string]Approval{
		`"none"`: ApprovalNone, `"manual"`: ApprovalManual, `{"auto":{"rule":"attempt == 1"}}`: ApprovalAuto("attempt == 1"),
		`{"manual":{"quorum":2,"escalate_after_ms":60000}}`:                 {Mode: ModeManual, Quorum: 2, EscalateAfter: time.Minute},
		`{"manual":{"quorum":1}}`:                                           {Mode: ModeManual, Quorum: 1},
		`{"auto":{"rule":"true","quorum":16,"escalate_after_ms":86400000}}`: {Mode: ModeAuto, Rule: "true", Quorum: 16, EscalateAfter: MaxEscalation},
	} {
		var got Approval
		if err := arcp.Unmarshal(arcp.Raw(text), &got); err != nil || got != want {
			t.Errorf("%s = %+v, %v", text, got, err)
		}
		if raw, err := arcp.Marshal(want); err != nil || string(raw) != text {
			t.Errorf("%+v = %s, %v", want, raw, err)
		}
	}
	for _, text := range []string{`"auto"`, `"Manual"`, `""`, `{}`, `{"auto":{}}`, `{"auto":{"rule":""}}`, `{"auto":"true"}`, `{"auto":{"rule":"true","x":"y"}}`,
		`{"auto":{"rule":"true"},"manual":{}}`, `{"Auto":{"rule":"true"}}`, `null`, `true`, `[]`, `{"auto":{"rule":1}}`,
		`{"none":{"quorum":2}}`, `{"manual":null}`, `{"manual":2}`, `{"manual":{"quorum":0}}`, `{"manual":{"quorum":"2"}}`, `{"manual":{"quorum":1.5}}`, `{"manual":{"rule":"true"}}`,
		`{"manual":{"Quorum":2}}`, `{"manual":{"escalate_after_ms":-1}}`, `{"manual":{"escalate_after_ms":86400001}}`, `{"auto":{"quorum":2}}`, `{"auto":{"rule":"true","votes":2}}`} {
		got := ApprovalManual
		if err := arcp.Unmarshal(arcp.Raw(text), &got); err == nil && text != `null` {
			t.Errorf("%s is a policy: %+v", text, got)
		}
	}
}

// A policy that cannot be fulfilled, or has no effect, is refused.
func TestPoliciesOutOfBounds(t *testing.T) {
	for _, p := range []Approval{{Mode: ModeManual, Quorum: MaxQuorum + 1}, {Mode: ModeManual, Quorum: -1}, {Mode: ModeManual, EscalateAfter: -1}, {Mode: ModeManual, EscalateAfter: time.Microsecond},
		{Mode: ModeManual, EscalateAfter: MaxEscalation + 1}, {Mode: ModeNone, Quorum: 2}, {Quorum: 2}, {Mode: ModeManual, Rule: "true"}, {Mode: ModeAuto}, {Mode: "often"}} {
		if _, err := NewRaw(Capability{Name: "a", Approval: p}, echo); err == nil || !strings.Contains(err.Error(), "tool a@1.0.0: approval") {
			t.Errorf("%+v: error %v, want one about the approval", p, err)
		}
	}
}

func TestBrokenRulesAreRefused(t *testing.T) {
	for _, text := range []string{"true &&", "nobody == 1", "1 + 1", `"yes"`, "args", "attempt == '1'", strings.Repeat(" ", rule.MaxBytes) + "true",
		strings.Repeat("(", 500) + "true" + strings.Repeat(")", 500)} {
		if _, err := NewRaw(Capability{Name: "a", Approval: ApprovalAuto(text)}, echo); err == nil || !strings.Contains(err.Error(), "approval rule") {
			t.Errorf("%.40s: error %v, want one about the rule", text, err)
		}
	}
}

// A rule approves a call only if it returns true. With any other value, or an error, an
// approver is asked.
func TestOnlyATrueRuleApproves(t *testing.T) {
	call := ApprovalCall{Arguments: arcp.Raw(`{"n":7,"f":0.5,"s":"x","list":[1,2],"big":9007199254740993,"o":{"deep":true}}`), Principal: "alice",
		Roles: []string{"client", "approver"}, Lease: arcp.Raw(`{"tool.call":["a"]}`), Attempt: 2}
	for text, want := range map[string]bool{
		"true":                                 true,
		"false":                                false,
		`tool == "a" && version == "1.0.0"`:    true,
		`principal == "alice" && attempt == 2`: true,
		`"approver" in roles`:                  true,
		`"admin" in roles`:                     false,
		`side_effect == "read"`:                true,
		`args.n <= 7`:                          true,
		`args.n < 7`:                           false,
		`args.f < 1`:                           true,
		`args.big == 9007199254740993`:         true,
		`args.big == 9007199254740992`:         false,
		`args.o.deep`:                          true,
		`args.list.all(x, x > 0)`:              true,
		`"tool.call" in lease && lease["tool.call"][0] == "a"`: true,
		`args.missing == 1`:                false, // an error
		`!(args.missing == 1)`:             false, // so is this
		`args.s > 1`:                       false,
		`args.s`:                           false, // no bool
		`args.n / 0 == 1`:                  false,
		`has(args.missing) || args.n == 7`: true,
	} {
		tool := raw(t, Capability{Name: "a", SideEffect: SideEffectRead, Approval: ApprovalAuto(text)}, echo)
		if got, err := tool.Approves(t.Context(), call); got != want {
			t.Errorf("%s: %v (%v), want %v", text, got, err, want)
		}
	}
}

func TestPoliciesWithoutARule(t *testing.T) {
	for policy, want := range map[Approval]bool{ApprovalNone: true, ApprovalManual: false} {
		if yes, err := raw(t, Capability{Name: "a", Approval: policy}, echo).Approves(t.Context(), ApprovalCall{}); yes != want || err != nil {
			t.Errorf("policy %v approves = %v, %v, want %v", policy, yes, err, want)
		}
	}
}
