package chaos

import (
	"fmt"
	"strconv"
	"strings"
)

// Rule is the promise of the runtime that a finding violates.
type Rule string

// The rules.
const (
	RuleGap      Rule = "gap"      // event_seq counts from 1 without gaps (SPEC.md §5.3)
	RuleChanged  Rule = "changed"  // an event never changes (§5.3)
	RuleLost     Rule = "lost"     // received events and accepted jobs are not lost (§1)
	RuleTwice    Rule = "twice"    // an event has one number in a session, except in answers to repeated commands (§5.2)
	RuleForeign  Rule = "foreign"  // a principal receives no data of another (§1)
	RuleEnd      Rule = "end"      // a job ends exactly once (§5.6)
	RuleOrder    Rule = "order"    // emitted events arrive in order (§5.6)
	RuleKey      Rule = "key"      // an idempotency key identifies one job (§5.2)
	RuleAnswer   Rule = "answer"   // a command has the specified answer (§5.2, §5.7)
	RuleOrigin   Rule = "origin"   // a forwarded event contains its number in the submitting session (§5.4)
	RuleList     Rule = "list"     // each job is listed once (§5.5)
	RuleChild    Rule = "child"    // a child is named by its parent, ends once, and is cancelled with its parent (§5.6)
	RuleEffect   Rule = "effect"   // a workflow repeats no call (docs/workflows.md)
	RuleSchedule Rule = "schedule" // an occurrence fires once (§5.19)
	RuleLibrary  Rule = "library"  // the client library decodes each frame and acts on it as meant (§9)
)

// Finding is a violated rule and the evidence.
type Finding struct {
	Rule     Rule
	Observer string // the session or principal with the evidence
	Detail   string
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Rule, f.Observer, f.Detail) }

// Outcome is the result of a campaign.
type Outcome struct {
	Seed     uint64
	Sessions int
	Draft    int // sessions of the draft dialect
	Jobs     int
	Common   int // jobs that sessions of both dialects received events of
	Children int // jobs that jobs and schedules started
	Effects  int // effects of workflows
	Events   int
	Kills    int
	Cuts     int
	Stalls   int
	Findings []Finding
}

// OK reports whether there are no findings.
func (o *Outcome) OK() bool { return len(o.Findings) == 0 }

// String returns the outcome as one line.
func (o *Outcome) String() string {
	done := fmt.Sprintf("%s sessions (%s draft), %s jobs (%s in both dialects), %s children, %s effects, %s events, %s kills, %s cuts",
		thousands(o.Sessions), thousands(o.Draft), thousands(o.Jobs), thousands(o.Common), thousands(o.Children), thousands(o.Effects), thousands(o.Events), thousands(o.Kills), thousands(o.Cuts))
	if o.OK() {
		return "chaos: ok: " + done
	}
	more := ""
	if n := len(o.Findings) - 1; n > 0 {
		more = fmt.Sprintf(" and %s more", thousands(n))
	}
	return fmt.Sprintf("chaos: FAILED: %s%s (seed %d, after %s)", o.Findings[0], more, o.Seed, done)
}

// thousands returns n with its digits in groups of three.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
