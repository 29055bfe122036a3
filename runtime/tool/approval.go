package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	Mode ApprovalMode // "": the default of the source
	Rule string       // CEL expression of ModeAuto: true approves the call, any other result asks as ModeManual does

	Quorum        int           // principals that must approve, at most MaxQuorum; 0 means 1
	EscalateAfter time.Duration // delay before admins of other principals are asked, at least 1 ms; 0: no escalation
}

// ApprovalMode selects whether people approve calls.
type ApprovalMode string

// The modes.
const (
	ModeNone   ApprovalMode = "none"   // no approval is needed
	ModeManual ApprovalMode = "manual" // a principal with the role approver approves each call in another session
	ModeAuto   ApprovalMode = "auto"   // a rule approves calls; the other calls need approval as with ModeManual
)

// MaxQuorum bounds Approval.Quorum.
const MaxQuorum = 16

// MaxEscalation bounds Approval.EscalateAfter, because a question expires after 24 h.
const MaxEscalation = 24 * time.Hour

// The policies without a rule.
var (
	ApprovalNone   = Approval{Mode: ModeNone}
	ApprovalManual = Approval{Mode: ModeManual}
)

// ApprovalAuto returns the policy with a rule, a CEL expression. New and NewRaw compile it.
func ApprovalAuto(rule string) Approval { return Approval{Mode: ModeAuto, Rule: rule} }

// orNone returns the effective policy.
func (a Approval) orNone() Approval { return cmp.Or(a, ApprovalNone) }

func (a Approval) String() string {
	if a.Rule != "" {
		return "auto: " + a.Rule
	}
	return string(a.orNone().Mode)
}

// check refuses an inconsistent policy.
func (a Approval) check() error {
	switch {
	case !slices.Contains([]ApprovalMode{ModeNone, ModeManual, ModeAuto}, a.Mode) || (a.Rule != "") != (a.Mode == ModeAuto):
		return fmt.Errorf("approval %q: it must be none, manual, or auto with a rule", a.Mode)
	case a.Mode == ModeNone && a != ApprovalNone:
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
	return arcp.Marshal(map[ApprovalMode]policyOptions{a.Mode: options})
}

var errPolicy = errors.New(`approval: it must be "none", "manual", {"manual":{…}} or {"auto":{"rule":"…",…}}, with quorum and escalate_after_ms`)

// UnmarshalJSON decodes a policy. New and NewRaw compile the rule and check the bounds.
func (a *Approval) UnmarshalJSON(raw []byte) error {
	var mode ApprovalMode
	if arcp.Unmarshal(raw, &mode) == nil {
		if mode != ModeNone && mode != ModeManual {
			return fmt.Errorf("%w, not %q", errPolicy, clip.Ellipsis(string(mode), 64))
		}
		*a = Approval{Mode: mode}
		return nil
	}
	var members map[ApprovalMode]map[string]arcp.Raw
	if err := arcp.Unmarshal(raw, &members); err != nil || len(members) != 1 {
		return errPolicy
	}
	for mode := range members {
		return a.decode(mode, raw, members[mode])
	}
	return nil
}

// decode decodes a policy with members.
func (a *Approval) decode(mode ApprovalMode, raw []byte, members map[string]arcp.Raw) error {
	var options map[ApprovalMode]policyOptions
	if err := arcp.Unmarshal(raw, &options); err != nil || members == nil || mode != ModeManual && mode != ModeAuto {
		return errPolicy
	}
	o := options[mode]
	known := map[string]bool{
		"rule":              o.Rule != "" && mode == ModeAuto,
		"quorum":            o.Quorum > 0,
		"escalate_after_ms": o.EscalateMS > 0,
	}
	for name := range members {
		if !known[name] {
			return errPolicy
		}
	}
	if mode == ModeAuto && o.Rule == "" {
		return errPolicy
	}
	if o.EscalateMS > MaxEscalation.Milliseconds() {
		return fmt.Errorf("approval: escalate_after_ms %d; want 1 to %d", o.EscalateMS, MaxEscalation.Milliseconds())
	}
	*a = Approval{Mode: mode, Rule: o.Rule, Quorum: o.Quorum, EscalateAfter: time.Duration(o.EscalateMS) * time.Millisecond}
	return nil
}

// ApprovalCall describes a call to the rule of an approval policy.
type ApprovalCall struct {
	Arguments arcp.Raw
	Principal string
	Roles     []string // nil: unknown; a rule that uses roles does not approve
	Lease     arcp.Raw // in the RFC dialect; empty: no lease
	Attempt   uint32
}

// Approves reports whether the policy approves a call without a person: it is ApprovalNone, or its
// rule is true. A rule that fails or exceeds its bounds does not approve; err is the failure. The
// runtime calls it before each attempt.
func (t *Tool) Approves(ctx context.Context, c ApprovalCall) (approved bool, err error) {
	if t.rule == nil {
		return t.Approval == ApprovalNone, nil
	}
	return t.rule.Approves(ctx, rule.Call{
		Tool:       t.Name,
		Version:    t.Version,
		SideEffect: string(t.SideEffect),
		Arguments:  orEmpty(c.Arguments),
		Principal:  c.Principal,
		Roles:      c.Roles,
		Lease:      orEmpty(c.Lease),
		Attempt:    c.Attempt,
	})
}
