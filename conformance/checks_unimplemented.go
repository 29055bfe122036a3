package conformance

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// gated are the types that a client sends only with a capability, with a valid payload.
var gated = []gatedMessage{
	{arcp.FeatureScheduledJobs, arcp.JobSchedule, arcp.Raw(`{"job":{"type":"tool.invoke","payload":{"tool":"no.such.tool","arguments":{}}},"when":{"after":3600}}`), nil},
	{arcp.FeatureInterrupt, arcp.Interrupt, arcp.InterruptPayload{Target: "job", TargetID: unknownJob, Prompt: "stop"}, nil},
	{arcp.FeatureCheckpoints, arcp.CheckpointCreate, arcp.CheckpointCreatePayload{Label: "l"}, inJob},
	{arcp.FeatureCheckpoints, arcp.CheckpointRestore, arcp.CheckpointRestorePayload{CheckpointID: "chk_1"}, inJob},
	{arcp.FeatureArtifacts, arcp.ArtifactPut, arcp.ArtifactPutPayload{MediaType: "text/plain", Data: "aGVsbG8="}, nil},
	{arcp.FeatureArtifacts, arcp.ArtifactFetch, arcp.ArtifactFetchPayload{ArtifactID: "art_00000000000000000000000000"}, nil},
	{arcp.FeatureSubscriptions, arcp.Subscribe, arcp.SubscribePayload{}, nil},
	{arcp.FeatureAgentHandoff, arcp.AgentHandoff, arcp.AgentHandoffPayload{Runtime: arcp.RuntimeInfo{Kind: "other", Version: "1", Fingerprint: "sha256:00"}}, inJob},
}

// gatedMessage is a message of a type that belongs to a capability.
type gatedMessage struct {
	feature arcp.Feature
	typ     arcp.Type
	payload any
	with    func(*arcp.Envelope)
}

const unknownJob = "job_00000000000000000000000000"

func inJob(env *arcp.Envelope) { env.JobID = unknownJob }

// clientMessage is a message of a client with a valid payload.
type clientMessage struct {
	typ     arcp.Type
	payload any
	with    func(*arcp.Envelope)
}

// commands are the commands without a capability, about things that do not exist.
var commands = []clientMessage{
	{arcp.WorkflowStart, arcp.WorkflowStartPayload{Workflow: "no.such.workflow"}, nil},
	{arcp.AgentDelegate, arcp.AgentDelegatePayload{Target: "no.such.agent", Task: "t"}, nil},
}

// controlTypes are control messages with a capability. RFC 0001 tells them from commands (RFC §6.2, §6.5), and demands
// only of commands that a server refuses what it cannot accept (RFC §6.3).
var controlTypes = []arcp.Type{arcp.Interrupt, arcp.CheckpointCreate, arcp.CheckpointRestore}

// answered are types that are no commands, and that only SPEC.md has the server answer.
var answered = []clientMessage{
	{arcp.Resume, arcp.ResumePayload{AfterMessageID: "msg_00000000000000000000000000"}, nil},
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

// refusalSections have the server refuse a message of the type if it does not offer the capability.
var refusalSections = map[arcp.Type]string{arcp.JobSchedule: "RFC §10.6", arcp.AgentHandoff: "RFC §6.3"}

func unimplementedChecks() []Check {
	var list []Check
	for _, g := range gated {
		section, level := cmp.Or(refusalSections[g.typ], "RFC §7"), Must
		if slices.Contains(controlTypes, g.typ) {
			section, level = "SPEC §6.4", House
		}
		list = append(list, Check{ID: string(g.typ), Title: string(g.typ) + " is served, or refused and " + string(g.feature) + " is not offered",
			Section: section, Level: level, run: func(_ context.Context, t *checkRun) { unimplementedGated(t, &g) }})
	}
	add := func(m clientMessage, section string, level Level) {
		list = append(list, Check{ID: string(m.typ), Title: string(m.typ) + " that the server cannot perform is refused",
			Section: section, Level: level, run: func(_ context.Context, t *checkRun) { unimplementedAnswered(t, &m) }})
	}
	for _, m := range commands {
		add(m, "RFC §6.3", Must)
	}
	for _, m := range answered {
		add(m, "SPEC §6.4", House)
	}
	return list
}

// sendWith sends a message of a type that a server need not know.
func (c *checkConn) sendWith(typ arcp.Type, p any, with func(*arcp.Envelope)) arcp.MessageID {
	c.t.optional = true
	if with == nil {
		return c.Send(typ, p)
	}
	return c.Send(typ, p, with)
}

func unimplementedGated(t *checkRun, g *gatedMessage) {
	offered := t.server.offers(g.feature)
	if !offered && refusalSections[g.typ] == "" { // only SPEC.md has the server answer
		if !t.judges(House) {
			t.SkipWithout(capabilityNeed(string(g.feature)))
		}
		t.broke = House
	}
	c := t.Open(offer(g.feature))
	if !offered {
		t.Want("a capability that the server does not offer is not negotiated", !c.Accepted.Capabilities.Flags[g.feature], "%s was negotiated", g.feature)
	}
	id := c.sendWith(g.typ, g.payload, g.with)
	if !offered {
		f := c.Answer("a message for a missing capability is answered", id) // a server may serve what it does not offer
		otherError := slices.Contains(errorTypes, f.Type) && f.Type != arcp.Nack
		t.Want("a refused job.schedule is answered by nack", g.typ != arcp.JobSchedule || !otherError, "got %s", f) // RFC §10.6
		t.HouseWant("a message for a missing capability is nacked UNIMPLEMENTED", f.Type == arcp.Nack && f.errorCode() == arcp.CodeUnimplemented, "got %s", f)
		return
	}
	f := c.Answer("a message for an offered capability is answered", id)
	t.Want("an offered capability is implemented", f.Type != arcp.Nack || f.errorCode() != arcp.CodeUnimplemented, "%s is offered, but got %s", g.feature, f)
}

func unimplementedAnswered(t *checkRun, m *clientMessage) {
	c := t.Open()
	id := c.sendWith(m.typ, m.payload, m.with)
	f := c.Refusal("a command that the server cannot perform is refused", id)
	t.HouseWant("a command that the server cannot perform is refused by nack, job.failed or stream.error",
		slices.Contains([]arcp.Type{arcp.Nack, arcp.JobFailed, arcp.StreamError}, f.Type), "got %s", f)
	if t.judges(House) {
		c.ExpectNothing("a command has exactly one answer")
	}
}

// Refusal reads until an error with the correlation_id arrives, as RFC §6.3 demands it of a command
// that cannot be accepted. A job may be accepted before; another end of it fails the check.
func (c *checkConn) Refusal(rule string, id arcp.MessageID) *received {
	for {
		f := c.Answer(rule, id)
		switch {
		case slices.Contains(errorTypes, f.Type):
			return f
		case f.Type != arcp.JobAccepted && f.Type != arcp.JobStarted && f.Type != arcp.Ack:
			c.t.Failf("%s: got %s, want an error", rule, f)
		}
	}
}
