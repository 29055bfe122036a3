package proxy

import (
	"github.com/arcpd/arcpd/arcp"
)

// workerFaults break the rules for jobs that are assigned to workers.
var workerFaults = []Fault{
	{Name: "give another tool", Says: "a worker is told another version of its tool", Shows: []string{"workers.dispatch"},
		newRewriter: every(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("tool", "conformance.other@1.0.0") })},
	{Name: "give other arguments", Says: "the arguments of a job are lost", Shows: []string{"workers.dispatch"},
		newRewriter: every(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("arguments", struct{}{}) })},
	{Name: "give what is numbered", Says: "a job that is given has a number", Shows: []string{"workers.dispatch"},
		newRewriter: every(arcp.ToolInvoke, func(f frame) frame { return f.with("event_seq", 3) })},
	{Name: "give jobs twice", Says: "a worker is given every job twice", Shows: []string{"workers.queued", "workers.dispatch"},
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.ToolInvoke {
				return []frame{f, f}
			}
			return []frame{f}
		})},
	{Name: "take all jobs for alike", Says: "the priority of a submit is lost", Shows: []string{"workers.priority", "workers.passed"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame { return f.with("priority", nil) })},
	{Name: "pass no job", Says: "a job of a low priority is taken for one of the highest", Shows: []string{"workers.priority", "workers.passed"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame { return f.replace(`"priority":"low"`, `"priority":"critical"`) })},
	{Name: "one is enough", Says: "a tool's policy has no quorum", Shows: []string{"workers.quorum"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame { return f.replace(`"quorum":2`, `"quorum":1`) })},
	{Name: "lose jobs", Says: "a worker is not given its jobs", Shows: []string{"workers.absent"}, Mute: true, newRewriter: losing(arcp.ToolInvoke)},
	{Name: "count no attempts", Says: "every attempt is the first", Shows: []string{"workers.rerun"},
		newRewriter: every(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("attempt", 1) })},
	{Name: "begin anew", Says: "an attempt is not told the checkpoint", Shows: []string{"workers.checkpoint"},
		newRewriter: every(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("checkpoint", nil) })},
	{Name: "give as another", Says: "a job that is given again has another id", Shows: []string{"workers.comes-back"}, newRewriter: givenAsAnother},
	{Name: "take anything of workers", Says: "what a worker says out of turn is acknowledged", Shows: []string{"workers.not-taken", "workers.stale"},
		newRewriter: instead(arcp.CodeFailedPrecondition, arcp.Ack, struct{}{})},
	{Name: "take what is wrong of workers", Says: "what a worker says and cannot be done is acknowledged", Shows: []string{"workers.unreadable"},
		newRewriter: instead(arcp.CodeInvalidArgument, arcp.Ack, struct{}{})},
	{Name: "cancel behind the worker's back", Says: "the worker of a cancelled job is not told", Shows: []string{"workers.cancel"}, Mute: true, newRewriter: losing(arcp.Cancel)},
	{Name: "give up for good", Says: "a job whose worker is gone must not be tried again", Shows: []string{"workers.lost"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", false) })},
	{Name: "blame the runtime", Says: "a job that nobody takes is INTERNAL", Shows: []string{"workers.refused"},
		newRewriter: coded(arcp.CodeUnavailable, arcp.CodeInternal)},
	{Name: "answer the worker wrong", Says: "a worker is told another answer", Shows: []string{"workers.asks"},
		newRewriter: every(arcp.HumanInputResponse, func(f frame) frame { return f.withPayload("value", 8) })},
	{Name: "keep the guidance from the worker", Says: "a worker is not told how to go on", Shows: []string{"workers.interrupt"},
		newRewriter: every(arcp.HumanInputResponse, func(f frame) frame {
			return f.withPayload("value", map[string]string{"action": "continue"})
		})},
	{Name: "number a worker's calls", Says: "the end of a worker's call has a number", Shows: []string{"workers.child"},
		newRewriter: every(arcp.JobCompleted, func(f frame) frame {
			if !f.event() {
				f = f.with("event_seq", 3)
			}
			return f
		})},
	{Name: "tell of tools of others", Says: "a tool of somebody else is PERMISSION_DENIED", Shows: []string{"workers.names"},
		newRewriter: coded(arcp.CodeAgentNotAvailable, arcp.CodePermissionDenied)},
	{Name: "share names", Says: "a name that somebody has is given to others", Shows: []string{"workers.names"}, newRewriter: succeeds(arcp.CodeAlreadyExists)},
	{Name: "let anybody execute", Says: "a session that did not offer executes is given jobs", Shows: []string{"workers.capability"},
		newRewriter: succeeds(arcp.CodeFailedPrecondition)},
}

// losing makes a stage that loses the frames of a type.
func losing(typ arcp.Type) func() rewriter {
	return change(func(f frame) []frame {
		if f.Type == typ {
			return nil
		}
		return []frame{f}
	})
}

// givenAsAnother changes the id of a dispatch that the connection was given before
// any other message but the answer to its handshake: one that comes again.
func givenAsAnother() rewriter {
	n := 0
	return rewriter{in: func(f frame) []frame {
		if n++; n == 2 && f.Type == arcp.ToolInvoke {
			f = f.with("id", arcp.NewMessageID())
		}
		return []frame{f}
	}}
}
