package conn

import (
	"cmp"
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/jobview"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// commands handles the messages of the client that change jobs, answer questions, or ask for
// authority: those about jobs are in this file, the others in approvals.go, elevation.go and artifacts.go.
type commands struct{ c *conn }

// commandRoutes has the handlers of messages about jobs.
var commandRoutes = map[arcp.Type]handler{
	arcp.ToolInvoke:        submit,
	arcp.WorkflowStart:     submit,
	arcp.AgentDelegate:     submit,
	arcp.JobSchedule:       submit,
	arcp.Cancel:            on(commandsOf, (*commands).cancel),
	arcp.Interrupt:         on(commandsOf, (*commands).interrupt),
	arcp.CheckpointCreate:  on(commandsOf, (*commands).createCheckpoint),
	arcp.CheckpointRestore: on(commandsOf, (*commands).restoreCheckpoint),
	arcp.SessionListJobs:   on(commandsOf, (*commands).listJobs),
	arcp.AgentHandoff:      on(commandsOf, (*commands).handOff),
}

func commandsOf(c *conn) *commands { return &c.commands }

// requester returns the client as the sender of a request to the engine, and counts an
// unanswered command.
func (cm *commands) requester(request arcp.MessageID) engine.Requester {
	c := cm.c
	c.unanswered.add()
	return engine.Requester{
		Request:   request,
		Principal: c.principal.identity.Principal,
		Session:   c.id,
		Admin:     c.principal.actor().Admin,
		Answers:   answerSender{c},
	}
}

// submit handles the messages that submit a job to the engine. The engine answers all submits in
// order, and therefore also refuses the invalid ones.
func submit(c *conn, now time.Time, env *arcp.Envelope) error {
	in := new(invocation)
	p, s := &in.payload, &in.submit
	err := decodeSubmit(env, p)
	c.unanswered.add()
	c.rates.clampPriority(now, env)
	*s = c.commands.newSubmit(env)
	s.Payload = p
	switch refused := c.principal.program.refuse(p); {
	case err != nil:
		c.srv.opts.Engine.Refuse(s, arcp.Nack, arcp.PayloadError(env.Type, err))
	case refused != nil:
		c.srv.opts.Engine.Refuse(s, arcp.Nack, refused)
	default:
		if env.Type == arcp.AgentDelegate {
			c.principal.audit("delegate").Str("target", p.Tool).Str("message_id", string(env.ID)).Str("decision", "asked").Msg("audit")
		}
		c.srv.opts.Engine.Submit(s)
	}
	return nil
}

// invocation is the submit of a job and its payload, as one piece of memory.
type invocation struct {
	submit  engine.Submit
	payload arcp.ToolInvokePayload
}

// decodeSubmit decodes the payload of a message that submits a job into p: the tool.invoke that the
// message stands for. It checks the payload.
func decodeSubmit(env *arcp.Envelope, p *arcp.ToolInvokePayload) (err error) {
	switch env.Type {
	case arcp.WorkflowStart:
		var w arcp.WorkflowStartPayload
		if w, err = arcp.DecodeComplete[arcp.WorkflowStartPayload](env); err == nil && w.Direct {
			err = errInvalid("a workflow is not direct: it ends with workflow.complete")
		}
		*p = w.Invoke()
	case arcp.AgentDelegate:
		var d arcp.AgentDelegatePayload
		d, err = arcp.DecodeComplete[arcp.AgentDelegatePayload](env)
		*p = d.Invoke()
	case arcp.JobSchedule:
		var s arcp.JobSchedulePayload
		if s, err = arcp.DecodeComplete[arcp.JobSchedulePayload](env); err == nil {
			p.Tool = engine.ScheduleTool
			p.Arguments, err = scheduleArguments(env.Payload, &s)
		}
	default:
		err = arcp.DecodeCompleteTo(env, p)
	}
	if err == nil && p.OnDisconnect != "" && p.OnDisconnect != "continue" && p.OnDisconnect != "cancel" {
		err = errInvalid("on_disconnect must be continue or cancel")
	}
	return err
}

// scheduleArguments returns the payload of job.schedule without unknown members, which a message may have and
// the arguments of the tool may not. A payload without any stays as it is, since its digest identifies a repetition.
func scheduleArguments(payload arcp.Raw, s *arcp.JobSchedulePayload) (arcp.Raw, error) {
	var members map[string]arcp.Raw
	if err := arcp.Unmarshal(payload, &members); err != nil {
		return nil, err
	}
	if len(members) == 2 { // both are required
		return payload, nil
	}
	return arcp.Marshal(s)
}

// newSubmit returns the submit for a message of the client, without its payload.
func (cm *commands) newSubmit(env *arcp.Envelope) engine.Submit {
	c := cm.c
	return engine.Submit{
		Envelope:         env,
		Session:          c.id,
		Principal:        c.principal.identity.Principal,
		MaxJobs:          c.principal.identity.Limits.Jobs,
		Answers:          c.events.cursor,
		Lease:            c.principal.leaseLimit(&c.srv.opts.Logger),
		Trust:            c.principal.trust(),
		Roles:            c.principal.roleNames(),
		Identity:         c.session.row.Identity,
		Recheck:          c.handshake.resumed,
		Metrics:          c.dialect.name() == arcp.DialectRFC && c.session.negotiated(arcp.FeatureMetrics),
		OnDecided:        c.unanswered.onDone,
		AcceptedIsAnswer: c.dialect.acceptedIsAnswer(),
		OneFollow:        !c.dialect.correlatesEvents(),
	}
}

// cancel handles cancel for a job, a stream or a session (SPEC.md §5.7).
func (cm *commands) cancel(now time.Time, env *arcp.Envelope, p *arcp.CancelPayload) error {
	c := cm.c
	p.Reason = machine.ClipReason(p.Reason)
	switch p.Target {
	case arcp.TargetJob:
		if !arcp.JobID(p.TargetID).Valid() {
			c.reply(now, env.ID, arcp.CancelRefused, noTarget(p, arcp.CodeInvalidArgument, "malformed job id"))
			return nil
		}
		c.srv.opts.Engine.Cancel(cm.requester(env.ID), p)
	case arcp.TargetSession:
		cm.cancelSession(now, env, p)
	case arcp.TargetStream:
		if !arcp.StreamID(p.TargetID).Valid() {
			c.reply(now, env.ID, arcp.CancelRefused, noTarget(p, arcp.CodeInvalidArgument, "malformed stream id"))
			return nil
		}
		c.srv.opts.Engine.Streams().Cancel(cm.requester(env.ID), p)
	default:
		return errInvalid("target must be job, stream or session")
	}
	return nil
}

// noTarget returns the refusal to cancel a target that does not exist.
func noTarget(p *arcp.CancelPayload, code arcp.Code, message string) arcp.CancelRefusedPayload {
	return arcp.CancelRefusedPayload{TargetID: p.TargetID, Reason: engine.RefusedUnknown, Code: code, Message: message}
}

// cancelSession ends a session of the client's principal or, for an admin, of any principal.
func (cm *commands) cancelSession(now time.Time, env *arcp.Envelope, p *arcp.CancelPayload) {
	c := cm.c
	s := c.srv.opts.Sessions.Find(arcp.SessionID(p.TargetID))
	if s == nil || s.Principal != c.principal.identity.Principal && !c.principal.actor().Admin {
		if s != nil {
			c.principal.audit("evict").Str("target", p.TargetID).Str("decision", "denied").Msg("audit")
		}
		c.reply(now, env.ID, arcp.CancelRefused, noTarget(p, arcp.CodeNotFound, "no such session"))
		return
	}
	c.principal.audit("evict").Str("target", p.TargetID).Str("decision", "allowed").Msg("audit")
	c.unanswered.add()
	eviction := session.Eviction{Code: arcp.CodeCancelled, Reason: cmp.Or(p.Reason, "cancelled")}
	c.srv.opts.Sessions.End(s, eviction, func(err error) {
		c.unanswered.done()
		if err != nil {
			c.inbox.runOnLoop(func(now time.Time) { c.nack(now, env.ID, errEndNotStored()) })
			return
		}
		c.inbox.runOnLoop(func(now time.Time) {
			c.reply(now, env.ID, arcp.CancelAccepted, arcp.CancelAcceptedPayload{TargetID: p.TargetID})
		})
		c.srv.opts.Metrics.Evictions.WithLabelValues("cancelled").Inc()
	})
}

// errEndNotStored returns the refusal when the end of a session cannot be stored.
func errEndNotStored() *arcp.Error {
	return arcp.Errorf(arcp.CodeUnavailable, "the end of the session cannot be stored").RetryAfter(1)
}

// maxPrompt bounds the prompt of interrupt, in bytes.
const maxPrompt = approval.MaxText

// interrupt handles interrupt: the job stops and asks the client for guidance.
func (cm *commands) interrupt(now time.Time, env *arcp.Envelope, p *arcp.InterruptPayload) error {
	c := cm.c
	switch {
	case p.Target == arcp.TargetStream, p.Target == arcp.TargetSession:
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeUnimplemented, "only jobs can be interrupted"))
	case p.Target != arcp.TargetJob:
		return errInvalid("target must be job")
	case !arcp.JobID(p.TargetID).Valid():
		c.refuseID(now, env, "target_id", arcp.JobPrefix)
	case p.Prompt == "" || len(p.Prompt) > maxPrompt:
		return errInvalid("prompt must have 1 to %d bytes", maxPrompt)
	case !c.session.negotiated(arcp.FeatureHumanInput):
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeFailedPrecondition,
			"an interrupt asks for guidance: it needs a session that negotiated human_input"))
	default:
		c.srv.opts.Engine.Interrupt(cm.requester(env.ID), p)
	}
	return nil
}

// maxLabel bounds the label of a checkpoint, in bytes. It becomes part of an event.
const maxLabel = 256

// createCheckpoint handles checkpoint.create.
func (cm *commands) createCheckpoint(_ time.Time, env *arcp.Envelope, p *arcp.CheckpointCreatePayload) error {
	c := cm.c
	if len(p.Label) > maxLabel {
		return errInvalid("label may have at most %d bytes", maxLabel)
	}
	c.srv.opts.Engine.CreateCheckpoint(cm.requester(env.ID), env.JobID, p)
	return nil
}

// restoreCheckpoint handles checkpoint.restore, which continues a job or a copy of it from a
// checkpoint.
func (cm *commands) restoreCheckpoint(_ time.Time, env *arcp.Envelope, p *arcp.CheckpointRestorePayload) error {
	c := cm.c
	c.unanswered.add()
	c.srv.opts.Engine.RestoreCheckpoint(new(cm.newSubmit(env)), p)
	return nil
}

// listJobs handles session.list_jobs.
func (cm *commands) listJobs(_ time.Time, env *arcp.Envelope, p *arcp.SessionListJobsPayload) error {
	c := cm.c
	if p.Limit != nil && *p.Limit == 0 {
		return errInvalid("limit must be at least 1")
	}
	viewer, form := c.principal.actor(), jobview.PageForm{MaxBytes: c.dialect.maxPage(), Status: c.dialect.status}
	ctx := c.tasks.connected
	c.tasks.backgroundInOrder(func(context.Context) func(time.Time) {
		page, err := c.srv.opts.Jobs.Page(ctx, &viewer, p, form)
		return func(now time.Time) {
			if err != nil {
				c.nack(now, env.ID, err)
				return
			}
			page.RequestID = env.ID
			c.reply(now, env.ID, arcp.SessionJobs, page)
		}
	})
	return nil
}
