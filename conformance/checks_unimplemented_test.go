package conformance

import (
	"regexp"
	"testing"
	"time"
)

// Any error with the correlation_id of the command refuses it. The code and the type of the refusal are rules of
// SPEC.md only, but for job.schedule, which RFC §10.6 has refused by nack.
func TestRefusalsOfCommands(t *testing.T) {
	ids := []string{"unimplemented.agent.handoff", "unimplemented.job.schedule", "unimplemented.workflow.start"}
	for _, c := range []struct {
		name, old, change string
		levels            []Level
		want              []Status
		level             Level
	}{
		{"as it is", "", "", Levels, []Status{Passed, Passed, Passed}, ""},
		{"another code", `"code":"(UNIMPLEMENTED|NOT_FOUND)"`, `"code":"FAILED_PRECONDITION"`, ProtocolLevels, []Status{Passed, Passed, Passed}, ""},
		{"another code", `"code":"UNIMPLEMENTED"`, `"code":"FAILED_PRECONDITION"`, Levels, []Status{Failed, Failed, Passed}, House},
		{"another type", `"type":"nack"`, `"type":"tool.error"`, ProtocolLevels, []Status{Passed, Failed, Passed}, Must},
		{"no answer", `^.*"type":"(nack|job.failed)".*$`, "", ProtocolLevels, []Status{Failed, Failed, Failed}, Must},
		{"an answer to another", `"correlation_id":"[^"]*"`, `"correlation_id":"msg_1"`, ProtocolLevels, []Status{Failed, Failed, Failed}, Must},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := fakeTarget(t)
			old := regexp.MustCompile(c.old)
			target.plant = rewriting(func(frame string) string {
				if c.old == "" {
					return frame
				}
				return old.ReplaceAllString(frame, c.change)
			})
			r := &runner{target: &target, opts: &Options{Levels: c.levels, Timeout: time.Second}}
			clean := target
			clean.plant = nil
			r.server = (&runner{target: &clean, opts: r.opts}).probe(t.Context(), nil)
			for i, id := range ids {
				check, _ := FindCheck(id)
				res := r.runOne(t.Context(), &check)
				if res.Status != c.want[i] || res.Status == Failed && res.Level != c.level {
					t.Errorf("%s is %s of the level %s, want %s of the level %s: %s", id, res.Status, res.Level, c.want[i], c.level, res.Reason)
				}
			}
		})
	}
}

// Only SPEC.md has a server answer a message of a capability that it does not offer, unless a section of RFC 0001 has the
// message refused. A missing answer is a failure of the level House, and the message is not sent if that is not judged.
func TestNoAnswerWithoutCapability(t *testing.T) {
	target := fakeTarget(t)
	silent := regexp.MustCompile(`^.*"type":"nack".*$`)
	target.plant = rewriting(func(frame string) string { return silent.ReplaceAllString(frame, "") })
	for _, c := range []struct {
		id     string
		levels []Level
		want   Status
		level  Level
	}{
		{"unimplemented.artifact.put", ProtocolLevels, Skipped, Must},
		{"unimplemented.artifact.put", Levels, Failed, House},
		{"unimplemented.subscribe", Levels, Failed, House},
		{"unimplemented.job.schedule", Levels, Failed, Must},
	} {
		r := &runner{target: &target, opts: &Options{Levels: c.levels, Timeout: time.Second}, server: &server{}}
		check, _ := FindCheck(c.id)
		if res := r.runOne(t.Context(), &check); res.Status != c.want || res.Level != c.level {
			t.Errorf("%s is %s of the level %s, want %s of the level %s: %s", c.id, res.Status, res.Level, c.want, c.level, res.Reason)
		}
	}
}
