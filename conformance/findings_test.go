package conformance

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
)

// A frame that violates rules is recorded under the first one of a chosen level, with the transcript up
// to the first such frame.
func TestFindings(t *testing.T) {
	run := newCheckRun(t.Context(), &Target{}, nil)
	run.levels = ProtocolLevels
	run.tr.add(1, Received, []byte("first"))
	house, must := violation{&rule{id: "utc", level: House}, "no Z"}, violation{&rule{id: "answers", level: Must}, "ack has no correlation_id"}
	run.judge([]violation{house, must})
	run.tr.add(1, Received, []byte("second"))
	run.judge([]violation{must, house})
	run.judge([]violation{house})
	run.judge(nil)
	res := run.findings.result(&Check{ID: "frames.answers", Level: Must})
	if res.Status != Failed || res.Reason != "ack has no correlation_id (in 2 of 4 frames)" || len(res.Transcript) != 1 {
		t.Errorf("the result is %+v, want the first of 2 frames", res)
	}
	if res := run.findings.result(&Check{ID: "frames.utc", Level: House}); res.Status != Passed {
		t.Errorf("a rule of a level that is not chosen: %s, want passed", res.Status)
	}
	if res := new(findings).result(&Check{ID: "frames.utc"}); res.Status != Skipped {
		t.Errorf("without frames: %s, want skipped", res.Status)
	}
}

// A check goes on after a frame that violates a rule. The rule is a result of its own, also if only
// other checks are selected.
func TestFramesFailNoCheck(t *testing.T) {
	target := fakeTarget(t)
	for _, levels := range [][]Level{Levels, ProtocolLevels} {
		target.plant = rewriting(func(frame string) string {
			return strings.Replace(frame, `"type":"pong"`, `"priority":"urgent","type":"pong","x":null`, 1)
		})
		report, err := Run(t.Context(), target, Options{IDs: []string{"control.ping"}, Levels: levels})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Results) != 2 || report.Results[0].Status != Passed || report.Results[1].ID != "frames.priority" || report.Results[1].Status != Failed {
			t.Errorf("with levels %v the results are %+v, want control.ping and one finding", levels, report.Results)
		}
	}
}

func TestDraftRules(t *testing.T) {
	for _, r := range strict.Rules {
		if got := draftRule(r); got.title == "" {
			t.Errorf("rule %s has no title", r)
		}
	}
	for _, c := range performed(Checks(arcp.DialectDraft)) {
		if c.Group() == framesGroup {
			t.Errorf("%s is performed", c.ID)
		}
	}
}
