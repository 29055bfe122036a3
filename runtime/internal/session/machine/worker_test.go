package machine

import (
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// workerTypes are the types that a worker sends about its job by SPEC.md §7.8, listed
// independently of the catalog.
var workerTypes = words(`ack nack tool.invoke agent.delegate tool.result tool.error job.progress job.heartbeat job.checkpoint job.result_chunk log metric
	event.emit trace.span permission.request human.input.request human.choice.request stream.open stream.chunk stream.close
	stream.error artifact.put artifact.fetch`)

// receives reports whether a machine accepts a frame as a worker's frame about its job.
func receives(t *testing.T, executes bool, typ arcp.Type, job arcp.JobID, request arcp.MessageID) bool {
	t.Helper()
	m := reach(t, Accepted)
	if executes {
		m.negotiate.features = append(m.negotiate.features, arcp.FeatureExecutes)
	}
	env := frameOf(t, typ)
	env.JobID, env.CorrelationID = job, request
	m.Receive(t0, env)
	return m.TakeOutput().Admitted.Worker
}

func TestWorkerMessages(t *testing.T) {
	for i := range arcp.Catalog {
		typ := arcp.Catalog[i].Type
		if got, want := receives(t, true, typ, "job_1", "msg_d"), slices.Contains(workerTypes, typ); got != want {
			t.Errorf("%s of a worker about its job: %v, want %v", typ, got, want)
		}
		if receives(t, false, typ, "job_1", "msg_d") {
			t.Errorf("%s of a session that does not execute is a worker's", typ)
		}
		if got, want := receives(t, true, typ, "job_1", ""), typ == arcp.ToolInvoke || typ == arcp.AgentDelegate; got != want {
			t.Errorf("%s without a dispatch: %v, want %v", typ, got, want)
		}
		if got, want := receives(t, true, typ, "", "msg_d"), typ == arcp.Ack || typ == arcp.Nack; got != want {
			t.Errorf("%s without a job: %v, want %v", typ, got, want)
		}
	}
}

// A session without the role does not negotiate executes.
func TestExecutesNeedsTheRole(t *testing.T) {
	for _, worker := range []bool{true, false} {
		n := negotiation{features: []arcp.Feature{arcp.FeatureAck, arcp.FeatureExecutes}}
		n.restrict(&Identity{Worker: worker}, "test")
		if n.has(arcp.FeatureExecutes) != worker || !n.has(arcp.FeatureAck) {
			t.Errorf("with the role %v: %v", worker, n.features)
		}
	}
}
