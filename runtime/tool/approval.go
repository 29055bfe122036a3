package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/rule"
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

// Approves reports whether the policy approves a call without a person: it is ApprovalNone, or its
// rule is true. A rule that fails or exceeds its bounds does not approve; err is the failure.
func (t *Tool) Approves(ctx context.Context, c rule.Call) (approved bool, err error) {
	if t.rule == nil {
		return t.Approval == ApprovalNone, nil
	}
	c.Tool, c.Version, c.SideEffect = t.Name, t.Version, string(t.SideEffect)
	c.Arguments, c.Lease = orEmpty(c.Arguments), orEmpty(c.Lease)
	return t.rule.Approves(ctx, c)
}
