package conformance

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
)

// A frame that violates rules is recorded under each one of a chosen level, with the transcript up to the first such
// frame of the rule.
func TestFindings(t *testing.T) {
	run := newCheckRun(t.Context(), &Target{}, nil)
	run.levels = ProtocolLevels
	run.tr.add(1, Received, []byte("first"))
	house, must := violation{&rule{id: "utc", level: House}, "no Z"}, violation{&rule{id: "answers", level: Must}, "ack has no correlation_id"}
	should := violation{&rule{id: "stream-kinds", level: Should}, "kind is x"}
	f := &judged{Envelope: arcp.Envelope{Type: arcp.Ack}}
	run.judge(rules, f, []violation{house, must})
	run.tr.add(1, Received, []byte("second"))
	run.judge(rules, f, []violation{must, should, should, house})
	run.judge(rules, f, []violation{house})
	run.judge(rules, f, nil)
	run.judge(rules, nil, nil)
	for id, want := range map[string]string{"frames.answers": "ack has no correlation_id (in 2 of 5 frames)", "frames.stream-kinds": "kind is x (in 1 of 5 frames)"} {
		if res := run.findings.result(&Check{ID: id}); res.Status != Failed || res.Reason != want {
			t.Errorf("%s is %s: %s, want failed: %s", id, res.Status, res.Reason, want)
		}
	}
	if res := run.findings.result(&Check{ID: "frames.answers"}); len(res.Transcript) != 1 {
		t.Errorf("the transcript is %v, want the one of the first frame", res.Transcript)
	}
	if res := run.findings.result(&Check{ID: "frames.utc", Level: House}); res.Status != Passed {
		t.Errorf("a rule of a level that is not chosen: %s, want passed", res.Status)
	}
	if res := new(findings).result(&Check{ID: "frames.utc"}); res.Status != Skipped {
		t.Errorf("without frames: %s, want skipped", res.Status)
	}
}

// A rule passes only if it had something to judge. Some rules look into a subscribe.event too.
func TestFramesOfSubjects(t *testing.T) {
	log := `{"arcp":"1.1","id":"msg_1","type":"log","timestamp":"2026-01-02T03:04:05Z","job_id":"job_1","event_seq":1,"payload":{"level":"info","message":"m"}}`
	forwarded := `{"arcp":"1.1","id":"msg_2","type":"subscribe.event","timestamp":"2026-01-02T03:04:05Z","subscription_id":"sub_1","payload":{"event":` + log + `}}`
	for _, c := range []struct {
		frame string
		want  map[string]string // reason of each skipped check, by its id
	}{
		{log, map[string]string{"frames.log-levels": "", "frames.numbers": "", "frames.scope": "", "frames.timestamp": "", "frames.forwarded": "no subscribe.event was sent",
			"frames.one-end": "no end of a job was sent", "frames.codes": "no frame with a code was sent", "frames.replay": "no event was sent again",
			"frames.answers": "no ack, nack, cancel.accepted, cancel.refused or subscribe.accepted was sent"}},
		{forwarded, map[string]string{"frames.log-levels": "", "frames.forwarded": "", "frames.numbers": "no event with an event_seq was sent"}},
	} {
		run := newCheckRun(t.Context(), &Target{}, nil)
		f, err := parseFrame([]byte(c.frame))
		if err != nil {
			t.Fatal(err)
		}
		run.judge(rules, &judged{f.Envelope, f.repeated}, nil)
		for id, want := range c.want {
			status := Passed
			if want != "" {
				status = Skipped
			}
			if res := run.findings.result(&Check{ID: id}); res.Status != status || res.Reason != want {
				t.Errorf("%s is %s %q, want %s %q", id, res.Status, res.Reason, status, want)
			}
		}
	}
}

func TestSubjectsAreOfRules(t *testing.T) {
	for id := range subjects {
		if c, ok := FindCheck(id); !ok || !c.frames {
			t.Errorf("%s has a subject and is no rule of frames", id)
		}
	}
}

// A check goes on after a frame that violates rules. Each rule is a result of its own, also if only
// other checks are selected.
func TestFramesFailNoCheck(t *testing.T) {
	target := fakeTarget(t)
	for _, c := range []struct {
		levels []Level
		want   string
	}{
		{Levels, "control.ping passed, frames.priority failed, frames.decodes failed, frames.nulls failed"},
		{ProtocolLevels, "control.ping passed, frames.priority failed"},
	} {
		target.plant = rewriting(func(frame string) string {
			return strings.Replace(frame, `"type":"pong"`, `"priority":"urgent","type":"pong","x":null`, 1)
		})
		report, err := Run(t.Context(), target, Options{IDs: []string{"control.ping"}, Levels: c.levels})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, res := range report.Results {
			got = append(got, res.ID+" "+string(res.Status))
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("with levels %v the results are %s, want %s", c.levels, got, c.want)
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
