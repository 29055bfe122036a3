package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// eventPrinter prints the events of a job and assembles a result sent in parts. It belongs to one goroutine.
type eventPrinter struct {
	w     io.Writer
	json  bool // print envelopes as JSON lines, like all else on standard error
	all   bool // also print the start, checkpoints and similar events, with their numbers
	steps bool // the job is a workflow, whose events of steps replace the events of its calls
	bar   *progressBar

	console *console // asks questions; nil: the command that answers is printed

	streams client.Streams
	pipe    *streamPipe // prints one stream instead of the result; nil: none

	parts client.ResultParts
}

func (a *app) newEventPrinter(all bool) *eventPrinter {
	p := &eventPrinter{w: a.stderr, json: a.json, all: all}
	if !a.json && !all && redraws(a.stderr) {
		p.bar = &progressBar{w: a.stderr}
	}
	return p
}

// show prints an event, and asks it if it is a question.
func (p *eventPrinter) show(ctx context.Context, env *arcp.Envelope) {
	if p.console == nil {
		p.event(env)
		return
	}
	p.console.event(ctx, env, func() { p.event(env) })
}

// event prints an event. With a nil w it only assembles the result.
func (p *eventPrinter) event(env *arcp.Envelope) {
	p.parts.Receive(env)
	st, content, err := p.streams.Receive(env)
	if p.pipe != nil {
		p.pipe.receive(st, content, err)
	}
	switch {
	case p.w == nil:
	case p.json:
		env.Inline()
		_, _ = p.w.Write(append(env.Append(nil), '\n')) // a closed standard output is reported by the next write
	case p.bar != nil && env.Type == arcp.JobProgress:
		p.bar.show(payload[arcp.JobProgressPayload](env))
	case st != nil && p.all:
		p.text(env, describeStream(env.Type, st, content, err))
	case st == nil && env.Type != arcp.JobHeartbeat: // a person sees that the job has not ended
		p.line(env)
	}
}

func (p *eventPrinter) line(env *arcp.Envelope) {
	text, detail := describe(env)
	if p.steps && env.Type == arcp.EventEmit && payload[arcp.EventEmitPayload](env).Name == eventDelegate {
		detail = true
	}
	if detail && !p.all {
		return
	}
	p.text(env, text)
	if emitted := payload[arcp.EventEmitPayload](env); env.Type == arcp.EventEmit && emitted.Name == arcp.EventHostSnapshot {
		s := snapshotOf(emitted.Data)
		s.print(p.w)
	}
}

// text prints the text of an event, and how to answer it.
func (p *eventPrinter) text(env *arcp.Envelope, text string) {
	p.bar.clear()
	if p.all {
		text = fmt.Sprintf("%4d  %s", eventNumber(env), text)
	}
	fmt.Fprintln(p.w, text)
	if command := answerCommand(env); command != "" && p.console == nil {
		fmt.Fprintln(p.w, label("", "answer it with", command))
	}
}

// eventNumber returns the number of an event in the submitting session.
func eventNumber(env *arcp.Envelope) uint64 {
	var ext struct {
		Origin struct {
			EventSeq uint64 `json:"event_seq"`
		} `json:"arcpx.arcp.origin.v1"`
	}
	if len(env.Extensions) > 0 && arcp.Unmarshal(env.Extensions, &ext) == nil && ext.Origin.EventSeq > 0 {
		return ext.Origin.EventSeq
	}
	return env.EventSeq
}

// done ends the console and clears the progress bar.
func (p *eventPrinter) done() {
	if p.console != nil {
		p.console.stop()
	}
	p.bar.clear()
}

// payload decodes as much of a payload as it can, for display.
func payload[T any](env *arcp.Envelope) T {
	p, _ := arcp.DecodePayload[T](env) // the zero value of undecodable members is displayed
	return p
}

// eventDelegate is the name of the event of a call of another tool.
const eventDelegate = "delegate"

// describe returns an event as one line. detail reports an event of little interest, such as a checkpoint.
func describe(env *arcp.Envelope) (line string, detail bool) {
	switch env.Type {
	case arcp.JobAccepted:
		p := payload[arcp.JobAcceptedPayload](env)
		return label("accepted", p.JobID, p.Agent), true
	case arcp.JobStarted:
		return label("started", payload[arcp.JobStartedPayload](env).Description), true
	case arcp.JobHeartbeat:
		return label("heartbeat", "the job is", payload[arcp.JobHeartbeatPayload](env).State), true
	case arcp.JobProgress:
		return label("progress", progressText(payload[arcp.JobProgressPayload](env))), false
	case arcp.JobCheckpoint:
		return label("checkpoint", payload[arcp.JobCheckpointPayload](env).CheckpointID), true
	case arcp.JobResultChunk:
		p := payload[arcp.JobResultChunkPayload](env)
		return label("result", "part", p.ChunkSeq, "of", p.ResultID), true
	case arcp.Log:
		p := payload[arcp.LogPayload](env)
		return label(p.Level, p.Message, compact(p.Attributes)), false
	case arcp.ArtifactRef:
		a := payload[arcp.ArtifactRefPayload](env).Artifact
		return label("artifact", a.ArtifactID, a.MediaType, a.Size, "bytes, kept until", clock(a.ExpiresAt)), false
	case arcp.Metric:
		return describeMetric(payload[arcp.MetricPayload](env)), false
	case arcp.TraceSpan:
		p := payload[arcp.TraceSpanPayload](env)
		return label("span", p.Name, p.EndTime.Sub(p.StartTime), compact(p.Attributes)), false
	case arcp.EventEmit:
		return describeEmitted(payload[arcp.EventEmitPayload](env))
	}
	return describeQuestion(env)
}

// describeEmitted describes an event that a tool, or the runtime, has emitted under a name.
func describeEmitted(p arcp.EventEmitPayload) (line string, detail bool) {
	switch p.Name {
	case arcp.EventApprovalRequested:
		a := approvalOf(p.Data)
		return label("approval", a.Action+"?", "an approver decides:", "arcp approvals approve", a.ApprovalID), false
	case workflow.EventStep:
		return describeStep(p.Data), false
	case arcp.EventWaiting:
		return describeWaiting(p.Data), false
	case arcp.EventHost:
		return describeHostEvent(p.Data), false
	case arcp.EventHostSnapshot:
		s := snapshotOf(p.Data)
		return s.describe(), false
	}
	return label("event", p.Name, compact(p.Data)), p.Name == workflow.EventSteps
}

// describeMetric describes a measurement, or the rest of a budget.
func describeMetric(p arcp.MetricPayload) string {
	if p.Name == "cost.budget.remaining" {
		return label("budget", p.Value, p.Unit, "left")
	}
	return label("metric", p.Name, p.Value, p.Unit, compact(p.Dims))
}

// describeWaiting describes why a job waits.
func describeWaiting(data arcp.Raw) string {
	var w arcp.JobWaiting
	_ = arcp.Unmarshal(data, &w) // the zero value of undecodable members is displayed
	return label("waiting", localTimes(w.Message))
}

func approvalOf(data arcp.Raw) (a arcp.ApprovalRequested) {
	_ = arcp.Unmarshal(data, &a) // the zero value of undecodable members is displayed
	return a
}

// describeQuestion describes an event about a question to people.
func describeQuestion(env *arcp.Envelope) (line string, detail bool) {
	switch env.Type {
	case arcp.PermissionRequest:
		p := payload[arcp.PermissionRequestPayload](env)
		return label("permission", requested(&p).String()+"?", p.Reason), false
	case arcp.HumanInputRequest:
		return label("input", payload[arcp.HumanInputRequestPayload](env).Prompt), false
	case arcp.HumanChoiceRequest:
		p := payload[arcp.HumanChoiceRequestPayload](env)
		return label("choice", p.Prompt, "["+optionNames(p.Options)+"]", compact(p.Details)), false
	case arcp.HumanInputCancelled:
		p := payload[arcp.HumanInputCancelledPayload](env)
		return label("withdrawn", cmp.Or(p.Message, p.Reason, string(p.Code))), false
	case arcp.LeaseGranted:
		p := payload[arcp.LeaseGrantedPayload](env)
		return label("lease", p.LeaseID, "granted until", clock(p.ExpiresAt)+":", p.Permission, "on", p.Resource, "to", p.Operation), false
	case arcp.LeaseExtended:
		p := payload[arcp.LeaseExtendedPayload](env)
		return label("lease", p.LeaseID, "extended until", clock(p.ExpiresAt)), false
	case arcp.LeaseRevoked:
		p := payload[arcp.LeaseRevokedPayload](env)
		return label("lease", p.LeaseID, "revoked", p.Reason), false
	}
	return describeEnd(env)
}

// requested returns the requested permission.
func requested(p *arcp.PermissionRequestPayload) *arcp.PermissionTerm {
	w := &arcp.PermissionTerm{Permission: p.Permission, Resource: p.Resource, Operation: p.Operation}
	if p.RequestedLeaseSeconds != nil {
		w.Seconds = *p.RequestedLeaseSeconds
	}
	return w
}

func describeEnd(env *arcp.Envelope) (line string, detail bool) {
	switch env.Type {
	case arcp.JobCompleted, arcp.WorkflowComplete, arcp.ToolResult:
		return label("completed"), true
	case arcp.JobFailed, arcp.ToolError:
		p := payload[arcp.ErrorPayload](env)
		return label("failed", p.Code, failureText(p.Code, p.Message)), true
	case arcp.JobCancelled:
		p := payload[arcp.JobCancelledPayload](env)
		return label("cancelled", p.Code, p.Reason), true
	}
	return label(string(env.Type), compact(env.Payload)), false
}

// label returns a line with a name in a column and the non-empty parts.
func label(name string, parts ...any) string {
	var words []string
	for _, p := range parts {
		if word := fmt.Sprint(p); word != "" {
			words = append(words, word)
		}
	}
	return strings.TrimRight(fmt.Sprintf("%-10s %s", name, oneLine(strings.Join(words, " "))), " ")
}

// oneLine replaces line breaks and removes control characters.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, s)
}

// compact returns a JSON value as one line; "" for null and {}.
func compact(v arcp.Raw) string {
	v = v.Clone()
	if len(v) == 0 || v.Compact() != nil || string(v) == "{}" || string(v) == "null" {
		return ""
	}
	return string(v)
}
