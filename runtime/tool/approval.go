package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types/ref"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// Approval is the approval policy of calls. The zero value is the default of the tool's source,
// which is ApprovalNone for most sources.
//
// The JSON of a policy is "none", "manual", {"manual":{…}} or {"auto":{"rule":"…",…}}. Both modes
// may have the members quorum and escalate_after_ms.
type Approval struct {
	Mode string // none, manual or auto
	Rule string // CEL expression of auto: true approves the call, anything else asks as manual does

	Quorum        int           // principals that must approve, at most MaxQuorum; 0 means 1
	EscalateAfter time.Duration // delay before admins of other principals are asked, at least 1 ms; 0: no escalation
}

// Bounds of a policy.
const (
	MaxQuorum     = 16
	MaxEscalation = 24 * time.Hour // a question expires then
)

// The policies without a rule.
var (
	ApprovalNone   = Approval{Mode: "none"}
	ApprovalManual = Approval{Mode: "manual"} // a principal with the role approver approves in another session
)

// ApprovalAuto returns the policy with a rule.
func ApprovalAuto(rule string) Approval { return Approval{Mode: "auto", Rule: rule} }

// orNone returns the effective policy.
func (a Approval) orNone() Approval { return cmp.Or(a, ApprovalNone) }

func (a Approval) String() string {
	if a.Rule != "" {
		return "auto: " + a.Rule
	}
	return a.orNone().Mode
}

// check refuses an inconsistent policy.
func (a Approval) check() error {
	switch {
	case (a.Rule != "") != (a.Mode == "auto") || a.Mode != "none" && a.Mode != "manual" && a.Mode != "auto":
		return fmt.Errorf("approval %q: it must be none, manual, or auto with a rule", a.Mode)
	case a.Mode == "none" && a != ApprovalNone:
		return errors.New("approval: where nobody is asked there is no quorum and no escalation")
	case a.Quorum < 0 || a.Quorum > MaxQuorum:
		return fmt.Errorf("approval: a quorum of %d; want 1 to %d", a.Quorum, MaxQuorum)
	case a.EscalateAfter != 0 && a.EscalateAfter < time.Millisecond || a.EscalateAfter > MaxEscalation:
		return fmt.Errorf("approval: escalation after %v; want 1ms to %v", a.EscalateAfter, MaxEscalation)
	}
	return nil
}

// policyOptions are the members of a policy in JSON.
type policyOptions struct {
	Rule       string `json:"rule,omitzero"`
	Quorum     int    `json:"quorum,omitzero"`
	EscalateMS int64  `json:"escalate_after_ms,omitzero"`
}

// MarshalJSON encodes the policy.
func (a Approval) MarshalJSON() ([]byte, error) {
	options := policyOptions{a.Rule, a.Quorum, a.EscalateAfter.Milliseconds()}
	if options == (policyOptions{}) {
		return arcp.Marshal(a.String())
	}
	return arcp.Marshal(map[string]policyOptions{a.Mode: options})
}

var errPolicy = errors.New(`approval: it must be "none", "manual", {"manual":{…}} or {"auto":{"rule":"…",…}}, with quorum and escalate_after_ms`)

// UnmarshalJSON decodes a policy. New and NewRaw compile the rule and check the bounds.
func (a *Approval) UnmarshalJSON(raw []byte) error {
	var word string
	if arcp.Unmarshal(raw, &word) == nil {
		switch word {
		case "none", "manual":
			*a = Approval{Mode: word}
			return nil
		}
		return fmt.Errorf("%w, not %q", errPolicy, clip.Ellipsis(word, 64))
	}
	var members map[string]map[string]arcp.Raw
	if err := arcp.Unmarshal(raw, &members); err != nil || len(members) != 1 {
		return errPolicy
	}
	for mode := range members {
		return a.decode(mode, raw, members[mode])
	}
	return nil
}

// decode decodes a policy with members.
func (a *Approval) decode(mode string, raw []byte, members map[string]arcp.Raw) error {
	var options map[string]policyOptions
	if err := arcp.Unmarshal(raw, &options); err != nil || members == nil || mode != "manual" && mode != "auto" {
		return errPolicy
	}
	h := options[mode]
	known := map[string]bool{"rule": h.Rule != "" && mode == "auto", "quorum": h.Quorum > 0, "escalate_after_ms": h.EscalateMS > 0}
	for name := range members {
		if !known[name] {
			return errPolicy
		}
	}
	if mode == "auto" && h.Rule == "" {
		return errPolicy
	}
	if h.EscalateMS > MaxEscalation.Milliseconds() {
		return fmt.Errorf("approval: escalate_after_ms %d; want 1 to %d", h.EscalateMS, MaxEscalation.Milliseconds())
	}
	*a = Approval{Mode: mode, Rule: h.Rule, Quorum: h.Quorum, EscalateAfter: time.Duration(h.EscalateMS) * time.Millisecond}
	return nil
}

// Bounds of a rule and of its evaluation. An evaluation that exceeds its bounds does not approve.
const (
	maxRule     = 4 << 10 // bytes
	maxRuleCost = 100_000 // in the unit of CEL; some milliseconds
	ruleTimeout = 100 * time.Millisecond
)

// rule is a compiled rule.
type rule struct{ program cel.Program }

// ruleEnv declares the variables of rules.
var ruleEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("tool", cel.StringType),
		cel.Variable("version", cel.StringType),
		cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("principal", cel.StringType),
		cel.Variable("roles", cel.ListType(cel.StringType)),
		cel.Variable("side_effect", cel.StringType),
		cel.Variable("lease", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("attempt", cel.IntType),
	)
})

// compileRule compiles a rule. The error is that the text is invalid or cannot be a bool.
func compileRule(text string) (*rule, error) {
	if len(text) > maxRule {
		return nil, fmt.Errorf("the rule has %d bytes; at most %d", len(text), maxRule)
	}
	env, err := ruleEnv()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("the rule gives %s, not bool", t)
	}
	program, err := env.Program(ast, cel.CostLimit(maxRuleCost), cel.InterruptCheckFrequency(64))
	if err != nil {
		return nil, err
	}
	return &rule{program}, nil
}

// RuleCall holds the variables of a rule that do not come from the tool.
type RuleCall struct {
	Arguments arcp.Raw
	Principal string
	Roles     []string // nil: unknown; a rule that uses roles does not approve
	Lease     arcp.Raw // in the RFC dialect; empty: no lease
	Attempt   uint32
}

// Approves reports whether the policy approves a call without a person: it is ApprovalNone, or its
// rule is true. A rule that fails or exceeds its bounds does not approve; err is the failure.
func (t *Tool) Approves(ctx context.Context, c RuleCall) (approved bool, err error) {
	if t.Approval == ApprovalNone {
		return true, nil
	}
	if t.rule == nil {
		return false, nil
	}
	defer func() {
		if p := recover(); p != nil {
			approved, err = false, fmt.Errorf("the rule panicked: %v", p)
		}
	}()
	args, err := ruleValue(orEmpty(c.Arguments))
	if err != nil {
		return false, err
	}
	lease, err := ruleValue(orEmpty(c.Lease))
	if err != nil {
		return false, err
	}
	vars := map[string]any{"tool": t.Name, "version": t.Version, "args": args, "principal": c.Principal,
		"side_effect": string(t.SideEffect), "lease": lease, "attempt": int64(c.Attempt)}
	if c.Roles != nil {
		vars["roles"] = c.Roles
	}
	ctx, cancel := context.WithTimeout(ctx, ruleTimeout)
	defer cancel()
	out, _, err := t.rule.program.ContextEval(ctx, vars)
	if err != nil {
		return false, err
	}
	return isTrue(out)
}

func isTrue(v ref.Val) (bool, error) {
	yes, err := v.ConvertToNative(reflect.TypeFor[bool]())
	if err != nil {
		return false, fmt.Errorf("the rule gave %s, not bool", v.Type().TypeName())
	}
	return yes == true, nil
}

// ruleValue decodes JSON for CEL. The error is that CEL cannot represent a number exactly: the rule
// would compare another number.
func ruleValue(raw arcp.Raw) (any, error) {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	return exact(doc)
}

func exact(doc any) (any, error) {
	switch v := doc.(type) {
	case json.Number:
		return exactNumber(string(v))
	case map[string]any:
		for name, m := range v {
			e, err := exact(m)
			if err != nil {
				return nil, err
			}
			v[name] = e
		}
	case []any:
		for i, m := range v {
			e, err := exact(m)
			if err != nil {
				return nil, err
			}
			v[i] = e
		}
	}
	return doc, nil
}

// exactNumber returns an int64, or a float64 whose shortest decimal form has the digits of s. Such
// numbers keep their order.
func exactNumber(s string) (any, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) || !strings.ContainsAny(s, ".eE") || digits(s) != digits(strconv.FormatFloat(f, 'e', -1, 64)) {
		return nil, fmt.Errorf("the number %s is not one that a rule can compare exactly", clip.Ellipsis(s, 64))
	}
	return f, nil
}

// digits returns the significant digits of a number.
func digits(s string) string {
	s, _, _ = strings.Cut(strings.ToLower(s), "e")
	return strings.Trim(strings.NewReplacer(".", "", "-", "", "+", "").Replace(s), "0")
}
