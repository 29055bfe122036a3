package runtime_test

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// A client that delegates follows the child as well, and sees in a list whose it
// is.
func TestDelegate(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		p := b.human("alice")
		id := p.send("tool.invoke", `{"tool":"demo.delegate","arguments":{"tool":"demo.spend","arguments":{"currency":"USD","amount":"0.10","times":3},`+
			`"lease_request":{"tool.call":["demo.spend"],"cost.budget":["USD:0.50"]}},`+
			`"lease_request":{"agent.delegate":["demo.*"],"tool.call":["demo.spend"],"cost.budget":["USD:1.00"]}}`)
		parent := p.until("job.accepted")
		p.until("event.emit")
		env := p.until("job.accepted")
		a, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&env)
		if err != nil || env.CorrelationID != "" || a.ParentJobID != parent.JobID || string(a.Budget) != `{"USD":0.50}` || a.TraceID != parent.TraceID {
			t.Errorf("the child is accepted with %s, %v", env.Payload, err)
		}
		p.until("job.completed")
		end := p.until("job.completed")
		if string(end.CorrelationID) != id || !strings.Contains(string(end.Payload), `"spent":"0.30"`) {
			t.Errorf("%s: %s", end.CorrelationID, end.Payload)
		}
		p.send("session.list_jobs", `{}`)
		if list := p.until("session.jobs"); strings.Count(string(list.Payload), `"parent_job_id":"`+string(parent.JobID)+`"`) != 1 {
			t.Errorf("%s", list.Payload)
		}

		p.send("tool.invoke", `{"tool":"demo.delegate","arguments":{"tool":"demo.echo","arguments":{}},"lease_request":{"tool.call":["demo.echo"]}}`)
		if e := refusal(t, p.until("job.failed")); e.Code != arcp.CodePermissionDenied {
			t.Errorf("without agent.delegate: %+v", e)
		}
	})
}
