package conformance

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// gated are the types that a client sends only with a capability, with a valid payload.
var gated = []struct {
	feature arcp.Feature
	typ     arcp.Type
	payload any
	with    func(*arcp.Envelope)
}{
	{arcp.FeatureScheduledJobs, arcp.JobSchedule, arcp.Raw(`{"job":{"type":"tool.invoke","payload":{"tool":"demo.echo","arguments":{}}},"when":{"after":3600}}`), nil},
	{arcp.FeatureInterrupt, arcp.Interrupt, arcp.InterruptPayload{Target: "job", TargetID: unknownJob, Prompt: "stop"}, nil},
	{arcp.FeatureCheckpoints, arcp.CheckpointCreate, arcp.CheckpointCreatePayload{Label: "l"}, inJob},
	{arcp.FeatureCheckpoints, arcp.CheckpointRestore, arcp.CheckpointRestorePayload{CheckpointID: "chk_1"}, inJob},
	{arcp.FeatureArtifacts, arcp.ArtifactPut, arcp.ArtifactPutPayload{MediaType: "text/plain", Data: "aGVsbG8="}, nil},
	{arcp.FeatureArtifacts, arcp.ArtifactFetch, arcp.ArtifactFetchPayload{ArtifactID: "art_00000000000000000000000000"}, nil},
	{arcp.FeatureSubscriptions, arcp.Subscribe, arcp.SubscribePayload{}, nil},
	{arcp.FeatureAgentHandoff, arcp.AgentHandoff, arcp.AgentHandoffPayload{Runtime: arcp.RuntimeInfo{Kind: "other", Version: "1", Fingerprint: "sha256:00"}}, inJob},
}

const unknownJob = "job_00000000000000000000000000"

func inJob(env *arcp.Envelope) { env.JobID = unknownJob }

// answered are the other types that the server must answer.
var answered = []struct {
	typ     arcp.Type
	payload any
	with    func(*arcp.Envelope)
}{
	{arcp.Resume, arcp.ResumePayload{AfterMessageID: "msg_00000000000000000000000000"}, nil},
	{arcp.WorkflowStart, arcp.WorkflowStartPayload{Workflow: "no.such.workflow"}, nil},
	{arcp.AgentDelegate, arcp.AgentDelegatePayload{Target: "no.such.agent", Task: "t"}, nil},
	{arcp.LeaseRefresh, arcp.LeaseRefreshPayload{LeaseID: "lease_00000000000000000000000000", AdditionalSeconds: 1}, nil},
	{arcp.PermissionGrant, arcp.PermissionGrantPayload{Permission: "p", Resource: "r", Operation: "o", LeaseSeconds: 1}, toUnknown},
	{arcp.PermissionDeny, arcp.PermissionDenyPayload{Permission: "p", Reason: "r"}, toUnknown},
	{arcp.HumanInputResponse, arcp.HumanInputResponsePayload{Value: arcp.Raw(`1`), RespondedBy: "x", RespondedAt: time.Unix(1, 0)}, toUnknown},
	{arcp.HumanChoiceResponse, arcp.HumanChoiceResponsePayload{ChoiceID: "x", RespondedBy: "x", RespondedAt: time.Unix(1, 0)}, toUnknown},
	{arcp.Backpressure, arcp.BackpressurePayload{Reason: "r"}, inStream},
	{arcp.StreamOpen, arcp.StreamOpenPayload{Kind: "text"}, inStream},
	{arcp.StreamChunk, arcp.StreamChunkPayload{Data: arcp.Raw(`"x"`)}, inStream},
	{arcp.StreamClose, arcp.StreamClosePayload{}, inStream},
	{arcp.JobProgress, arcp.JobProgressPayload{Current: 1}, inJob},
	{arcp.JobHeartbeat, arcp.JobHeartbeatPayload{Sequence: 1, State: "running"}, inJob},
	{arcp.JobCheckpoint, arcp.JobCheckpointPayload{CheckpointID: "chk_1"}, inJob},
	{arcp.JobResultChunk, arcp.JobResultChunkPayload{ResultID: "res_1", Encoding: "utf8"}, inJob},
	{arcp.ToolResult, arcp.ToolResultPayload{Value: arcp.Raw(`1`)}, inJobToUnknown},
	{arcp.ToolError, arcp.Errorf(arcp.CodeUnknown, "m"), inJobToUnknown},
	{arcp.HumanInputRequest, arcp.HumanInputRequestPayload{Prompt: "p", ExpiresAt: time.Unix(4e9, 0)}, inJob},
	{arcp.HumanChoiceRequest, arcp.HumanChoiceRequestPayload{Prompt: "p", Options: []arcp.Option{{ID: "a", Label: "A"}}, ExpiresAt: time.Unix(4e9, 0)}, inJob},
}

func toUnknown(env *arcp.Envelope) { env.CorrelationID = "msg_00000000000000000000000000" }
func inStream(env *arcp.Envelope)  { env.StreamID = "str_00000000000000000000000000" }
func inJobToUnknown(env *arcp.Envelope) {
	inJob(env)
	toUnknown(env)
}

func unimplementedChecks() []Check {
	var list []Check
	for _, g := range gated {
		section, level := "RFC §6.3", Should
		switch g.typ {
		case arcp.JobSchedule:
			section, level = "RFC §10.6", Must
		case arcp.Interrupt:
			section, level = "RFC §10.5", Must
		case arcp.Subscribe: // a server may serve what it does not offer
			section, level = "SPEC §6.4", House
		}
		list = append(list, Check{ID: string(g.typ), Title: string(g.typ) + " is served, or nacked UNIMPLEMENTED and " + string(g.feature) + " is not offered",
			Section: section, Level: level, run: func(_ context.Context, t *checkRun) {
				unimplementedGated(t, g.feature, g.typ, g.payload, g.with)
			}})
	}
	for _, a := range answered {
		list = append(list, Check{ID: string(a.typ), Title: string(a.typ) + " that cannot be served is refused, not ignored",
			Section: "SPEC §6.4", Level: House, run: func(_ context.Context, t *checkRun) {
				unimplementedAnswered(t, a.typ, a.payload, a.with)
			}})
	}
	return list
}

func (c *checkConn) sendWith(typ arcp.Type, p any, with func(*arcp.Envelope)) arcp.MessageID {
	if with == nil {
		return c.Send(typ, p)
	}
	return c.Send(typ, p, with)
}

func unimplementedGated(t *checkRun, feature arcp.Feature, typ arcp.Type, p any, with func(*arcp.Envelope)) {
	c := t.Open(offer(feature))
	offered := t.server.offers(feature)
	if !offered {
		t.Want("a capability that the server does not offer is not negotiated", !c.Accepted.Capabilities.Flags[feature], "%s was negotiated", feature)
	}
	id := c.sendWith(typ, p, with)
	if !offered {
		c.ExpectNack("a message for a missing capability is refused", id, arcp.CodeUnimplemented)
		return
	}
	f := c.Answer("a message for an offered capability is answered", id)
	t.Want("an offered capability is implemented", f.Type != arcp.Nack || payload[arcp.ErrorPayload](t, f).Code != arcp.CodeUnimplemented,
		"%s is offered, but got %s", feature, f)
}

func unimplementedAnswered(t *checkRun, typ arcp.Type, p any, with func(*arcp.Envelope)) {
	c := t.Open()
	id := c.sendWith(typ, p, with)
	f := c.event("every command is answered")
	refusal := f.Type == arcp.Nack || f.Type == arcp.JobFailed || f.Type == arcp.StreamError
	t.Want("a command that the server cannot perform is refused", refusal && f.CorrelationID == id, "got %s", f)
	c.ExpectNothing("a command has exactly one answer")
}
