package runtime_test

import (
	"fmt"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// A client that has read an answer finds its effect, also on another connection. Each test
// looks immediately after the answer, often enough to catch an effect that comes a moment
// later.

const repetitions = 50

func TestParentEndIsVisibleAtOnce(t *testing.T) {
	inBubble(t, withCaller(t, 0), func(f *fixture) {
		p := f.dial("alice")
		for range repetitions {
			p.send("tool.invoke", `{"tool":"caller","lease_request":{"tool.call":["*"]}}`)
			parent := p.until("job.accepted").JobID
			child := p.until("job.accepted").JobID
			for p.until("job.completed").JobID != parent {
			}
			p.must("jobs.delete", ofJob(child))
		}
	})
}

// job.subscribed of a job that has ended has no budget.
func TestEndedJobHasNoBudget(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p, other := f.dial("alice"), f.dial("alice")
		for range repetitions {
			p.send("tool.invoke", `{"tool":"demo.echo","lease_request":{"cost.budget":["USD:1"]}}`)
			id := p.until("job.accepted").JobID
			p.until("job.completed")
			other.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, id))
			env := other.expect("job.subscribed")
			if told, err := arcp.DecodePayload[arcp.JobSubscribedPayload](&env); err != nil || told.Budget != nil || told.CurrentStatus != "completed" {
				t.Fatalf("%s, %v", env.Payload, err)
			}
		}
	})
}
