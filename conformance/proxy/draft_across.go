package proxy

import (
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// draftAcrossFaults are defects of a server that serves both dialects.
var draftAcrossFaults = []Fault{
	{Defect: "session.jobs lists no job of a running state", Checks: []string{"draft.across.list-rfc-job", "draft.across.list-draft-job"}, House: true,
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame { return f.withPayload("jobs", []int{}) })},
	{Defect: "the end of a job that another session submitted is reported as of another job", Silent: true,
		Checks: []string{"draft.across.follow-rfc-job", "draft.across.follow-draft-job"}, House: true,
		newRewriter: renameFollowed},
	{Defect: "a cancelled job ends well", Checks: []string{"draft.across.cancel-draft-job", "draft.across.follow-live"}, House: true,
		newRewriter: editReceived(script.JobError, func(f frame) frame {
			return f.with("type", script.JobResult).with("payload", map[string]any{"job_id": f.JobID, "final_status": "success", "completed_at": "2026-01-01T00:00:00Z"})
		})},
	{Defect: "an idempotency key is unknown in the other dialect", Checks: []string{"draft.across.key"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame {
			if !f.event() { // of the draft dialect
				return f
			}
			other := string(arcp.NewJobID())
			return f.with("job_id", other).withPayload("job_id", other)
		})},
	{Defect: "a session of the other dialect is resumed by session.hello", Checks: []string{"draft.across.foreign-resume-draft"}, House: true,
		newRewriter: editReceived("session.error", func(f frame) frame { return f.with("type", script.SessionWelcome) })},
	{Defect: "a session of the other dialect is resumed by session.open", Checks: []string{"draft.across.foreign-resume-rfc"}, House: true,
		newShared: adoptSession},
	{Defect: "session.hello opens a session in a session", Checks: []string{"draft.across.hello-after-open"}, House: true,
		newRewriter: editReceived(arcp.Nack, func(f frame) frame { return f.with("type", script.SessionWelcome) })},
	{Defect: "session.open in a session of the draft dialect is answered by session.welcome", Checks: []string{"draft.across.open-after-hello"}, House: true,
		newRewriter: func() rewriter {
			return rewriter{in: func(f frame) []frame {
				if f.Type != arcp.SessionPong {
					return []frame{f}
				}
				return []frame{f.with("type", script.SessionWelcome), f}
			}}
		}},
}

// renameFollowed changes the job of each numbered event of a job that this connection did not submit.
func renameFollowed() rewriter {
	own := map[arcp.JobID]bool{}
	return rewriter{in: func(f frame) []frame {
		if f.Type == arcp.JobAccepted && len(f.Extensions) == 0 {
			own[f.JobID] = true
		}
		if f.event() && !own[f.JobID] {
			f = f.with("job_id", arcp.NewJobID())
		}
		return []frame{f}
	}}
}

// adoptSession gives every session of a check the id of the first.
func adoptSession() func() rewriter {
	var first json.RawMessage
	return func() rewriter {
		return rewriter{in: func(f frame) []frame {
			if f.Type != script.SessionWelcome && f.Type != arcp.SessionAccepted {
				return []frame{f}
			}
			if first == nil {
				first = encode(f.SessionID)
			}
			return []frame{f.with("session_id", first).withPayload("session_id", first)}
		}}
	}
}
