package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ruleFirst begins the format of a violation whose first argument is the rule.
const ruleFirst = "%s: "

// maxGot bounds the observation of a finding, in bytes. Result.Reason has all of it.
const maxGot = 512

// splitViolation returns the rule of a violation, or "", and the first line of the observation. A
// verb of a script has a rule of its own: its observation is "RULE: got FRAME".
func splitViolation(format string, args []any) (rule, got string) {
	if rest, ok := strings.CutPrefix(format, ruleFirst); ok && len(args) > 0 {
		rule, format, args = fmt.Sprint(args[0]), rest, args[1:]
	}
	got, _, _ = strings.Cut(fmt.Sprintf(format, args...), "\n")
	if observed, ok := strings.CutPrefix(got, "got "); ok {
		return rule, observed
	}
	if own, observed, ok := strings.Cut(got, ": got "); ok && !strings.Contains(own, `"`) {
		return own, observed
	}
	return rule, got
}

// setFinding copies the finding of a failed check.
func (res *Result) setFinding(t *checkRun) {
	res.Rule, res.Got = t.rule, t.got
	if res.Got == "" { // the check itself panicked
		res.Got, _, _ = strings.Cut(t.failure, "\n")
	}
	if t.active != nil {
		res.Sent = t.active.lastSent()
	}
}

// Finding describes a failed check in one line: its id, level and section, the violated rule, the
// last message that was sent, and the observation.
func (res *Result) Finding() string {
	line := fmt.Sprintf("%s (%s, %s): %s", res.ID, strings.ToUpper(string(res.Level)), res.Section, res.rule())
	if res.Sent != "" {
		line += "; sent: " + res.Sent
	}
	line += "; got: " + res.observation()
	if res.During != "" {
		line += "; first during " + res.During
	}
	return line
}

// rule returns the violated rule: the one of the step that failed, or the title of the check.
func (res *Result) rule() string { return cmp.Or(res.Rule, res.Title) }

// observation returns what came, in one line.
func (res *Result) observation() string {
	reason, _, _ := strings.Cut(res.Reason, "\n")
	return cmp.Or(res.Got, reason) // an older report has no Got
}

// keepaliveTypes are the messages that a check sends to wait for answers, and in answer to a
// keepalive.
var keepaliveTypes = []string{"ping", "session.ping", "session.pong"}

// setSent keeps the type of a sent frame, and the last one that is not a keepalive.
func (l *link) setSent(typ string) {
	l.t.active, l.sentType = l, typ
	if !slices.Contains(keepaliveTypes, l.sentType) {
		l.sentCommand = l.sentType
	}
}

// lastSent returns the type of the last message sent on the connection, for example
// "cancel, then ping"; "" if nothing was sent.
func (l *link) lastSent() string {
	if l.sentCommand == "" || l.sentCommand == l.sentType {
		return l.sentType
	}
	return l.sentCommand + ", then " + l.sentType
}

// What lastSent calls frames without a type.
const (
	binaryFrame    = "binary frame"
	malformedFrame = "malformed frame"
)

// maxTypeText bounds the text of a type in a finding, in bytes.
const maxTypeText = 64

// typeOf returns the type of a frame that a check sends, which may be malformed.
func typeOf(frame []byte) string {
	var env struct {
		Type any `json:"type"`
	}
	if json.Unmarshal(frame, &env) != nil {
		return malformedFrame
	}
	name, ok := env.Type.(string)
	if !ok || name == "" || len(name) > maxTypeText {
		return "frame without a valid type"
	}
	return name
}
