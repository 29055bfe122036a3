package conformance

import (
	"fmt"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// A gap or a repetition in event_seq is found, whatever the first number is.
func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		seqs  []uint64
		wrong bool
	}{{[]uint64{1, 2, 3}, false}, {[]uint64{7, 8}, false}, {[]uint64{7, 9}, true}, {[]uint64{7, 7}, true}, {[]uint64{7, 6}, true}} {
		var n numbers
		found := false
		for _, seq := range test.seqs {
			found = n.next(seq) != "" || found
		}
		if found != test.wrong {
			t.Errorf("the numbers %v are wrong: %v, want %v", test.seqs, found, test.wrong)
		}
	}
}

// A job.failed that refuses a submit needs no job_id. One that ends a job does.
func TestScopeOfRefusal(t *testing.T) {
	const submit = "msg_00000000000000000000000001"
	failed := `{"arcp":"1.1","id":"msg_00000000000000000000000003","type":"job.failed","timestamp":"2026-01-02T03:04:05Z","session_id":"sess_1","correlation_id":"` + submit +
		`","event_seq":2,"payload":{"code":"NOT_FOUND","message":"none"}}`
	accepted := `{"arcp":"1.1","id":"msg_00000000000000000000000002","type":"job.accepted","timestamp":"2026-01-02T03:04:05Z","session_id":"sess_1","job_id":"job_1","correlation_id":"` + submit +
		`","event_seq":1,"payload":{"job_id":"job_1"}}`
	for _, begun := range []bool{false, true} {
		v := newValidator(nil, func(string) bool { return true })
		if begun {
			v.frame([]byte(accepted))
		}
		_, broken := v.frame([]byte(failed))
		found := false
		for _, b := range broken {
			found = found || b.rule.id == "scope"
		}
		if found != begun {
			t.Errorf("job.failed without job_id after job.accepted %v: rule scope is broken: %v", begun, found)
		}
	}
}

// An event that is sent again on a later connection must not change. A number that is used twice on one connection breaks
// the rule numbers, and is no replay.
func TestDraftReplay(t *testing.T) {
	event := func(seq int, message string) []byte {
		return fmt.Appendf(nil, `{"arcp":"1.1","id":"m","type":"job.event","session_id":"sess_1","job_id":"job_1","event_seq":%d,`+
			`"payload":{"kind":"log","ts":"2026-01-02T03:04:05Z","body":{"level":"info","message":%q}}}`, seq, message)
	}
	for name, test := range map[string]struct {
		later  bool // the second event comes on a later connection
		second []byte
		want   map[string]Status
	}{
		"the same again":     {true, event(1, "one"), map[string]Status{"replay": Passed, "numbers": Passed}},
		"another again":      {true, event(1, "two"), map[string]Status{"replay": Failed, "numbers": Passed}},
		"a number two times": {false, event(1, "two"), map[string]Status{"replay": Skipped, "numbers": Failed}},
	} {
		run := newCheckRun(t.Context(), &Target{Dialect: arcp.DialectDraft}, nil)
		c := newDraftConn(&link{t: run}, nil)
		c.validate(event(1, "one"))
		if test.later {
			c = newDraftConn(&link{t: run}, c)
		}
		c.validate(test.second)
		for id, want := range test.want {
			if res := run.findings.result(&Check{ID: "draft.frames." + id}); res.Status != want {
				t.Errorf("%s: %s is %s, want %s", name, id, res.Status, want)
			}
		}
	}
}
