package chaos

import (
	"fmt"
	"strconv"
	"strings"
)

// Rule is the promise of the runtime that a finding breaks.
type Rule string

// The rules.
const (
	RuleGap     Rule = "gap"     // event_seq counts from 1 without gaps (SPEC.md §5.3)
	RuleChanged Rule = "changed" // an event never changes (§5.3)
	RuleLost    Rule = "lost"    // events seen and jobs accepted stay (§1)
	RuleTwice   Rule = "twice"   // an event has one number in a session, but for answers that were asked for again (§5.2)
	RuleForeign Rule = "foreign" // everything is scoped to a principal (§1)
	RuleEnd     Rule = "end"     // a job ends exactly once (§5.6)
	RuleStory   Rule = "story"   // emitted events arrive in order (§5.6)
	RuleKey     Rule = "key"     // an idempotency key is good for one job (§5.2)
	RuleAnswer  Rule = "answer"  // a command is answered as it deserves (§5.2, §5.7)
	RuleOrigin  Rule = "origin"  // a forwarded event contains its number in the submitting session (§5.4)
	RuleList    Rule = "list"    // all jobs are listed, once (§5.5)
)

// Finding is a rule that was broken, and how that showed.
type Finding struct {
	Rule     Rule
	Observer string // the session or principal that saw it
	Detail   string
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Rule, f.Observer, f.Detail) }

// Outcome is the result of a campaign.
type Outcome struct {
	Seed     uint64
	Sessions int
	Jobs     int
	Events   int
	Kills    int
	Cuts     int
	Stalls   int
	Findings []Finding
}

// OK reports that no rule was broken.
func (o *Outcome) OK() bool { return len(o.Findings) == 0 }

// String is one line.
func (o *Outcome) String() string {
	done := fmt.Sprintf("%s sessions, %s jobs, %s events, %s kills, %s cuts",
		thousands(o.Sessions), thousands(o.Jobs), thousands(o.Events), thousands(o.Kills), thousands(o.Cuts))
	if o.OK() {
		return "chaos: ok: " + done
	}
	more := ""
	if n := len(o.Findings) - 1; n > 0 {
		more = fmt.Sprintf(" and %s more", thousands(n))
	}
	return fmt.Sprintf("chaos: FAILED: %s%s (seed %d, after %s)", o.Findings[0], more, o.Seed, done)
}

// thousands groups the digits of a number.
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
