package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Receive handles one decoded frame. In the phases Closing and Closed it does nothing.
func (m *Machine) Receive(now time.Time, env *arcp.Envelope) {
	m.badFrames = 0
	switch m.phase {
	case Closing, Closed:
	case Accepted:
		m.activity.record(now, env.Type)
		if env.Type != arcp.Resume {
			m.endPositionWait()
		}
		admission{m}.admit(now, env)
		m.receivedAny = true
	default:
		m.handshake.receive(now, env)
	}
}

// Malformed handles a frame that cannot be decoded. maxBadFrames in a row end the connection.
func (m *Machine) Malformed(e *arcp.EncodingError) {
	if m.phase == Closing || m.phase == Closed {
		return
	}
	m.report(e.Reason, "", e.Message)
	if m.phase == Accepted && e.ID != "" && m.recentIDs.add(e.ID) {
		m.nack(e.ID, arcp.CodeInvalidRequest, "%s", e.Message)
	}
	if m.singleAttempt && m.phase == Opening {
		m.close(ClosePolicy, "the first frame does not open a session")
	}
	if m.badFrames++; m.badFrames >= maxBadFrames {
		m.close(ClosePolicy, "too many malformed frames in a row")
	}
}

// admission checks and dispatches the messages of an accepted session.
type admission struct{ *Machine }

// admit checks a message against its row of the catalog. Of several faults it reports the
// most basic one.
func (a admission) admit(now time.Time, env *arcp.Envelope) {
	spec := arcp.Lookup(env.Type)
	switch {
	case (spec == nil || !spec.Repeatable) && !a.recentIDs.add(env.ID):
		a.report("duplicate_id", env.Type, "")
	case !arcp.SupportedVersion(env.ARCP):
		a.refuse(env, "version", arcp.CodeUnimplemented, "protocol version %s is not supported", excerpt(env.ARCP))
	case spec == nil:
		a.refuseUnknown(env)
	case spec.From&arcp.FromClient == 0:
		a.refuse(env, "direction", arcp.CodeInvalidArgument, "%s is sent by the runtime, not by a client", env.Type)
	case spec.Phase&arcp.InAccepted == 0:
		a.refuse(env, "phase", arcp.CodeFailedPrecondition, "%s: the session is open already", env.Type)
	case !a.checkIDs(env, spec):
	default:
		a.dispatch(now, env, spec)
	}
}

func (a admission) refuse(env *arcp.Envelope, reason string, code arcp.Code, format string, args ...any) {
	a.report(reason, env.Type, "")
	a.nack(env.ID, code, format, args...)
}

// refuseUnknown refuses or ignores a type that is not in the catalog (§6.4).
func (a admission) refuseUnknown(env *arcp.Envelope) {
	switch arcp.Classify(env.Type) {
	case arcp.ClassExperimental:
		a.report("experimental", env.Type, "")
	case arcp.ClassExtension:
		if env.OptionalExtension() {
			a.report("extension", env.Type, "")
			return
		}
		a.refuse(env, "extension", arcp.CodeUnimplemented, "extension %s was not negotiated", env.Type)
	case arcp.ClassUnknownCore:
		a.refuse(env, "unknown_type", arcp.CodeUnimplemented, "message type %s is not known", env.Type)
	default:
		a.refuse(env, "malformed_type", arcp.CodeInvalidArgument, "%q is not a well-formed message type", env.Type)
	}
}

// checkIDs reports whether the identifiers of the envelope are valid, and refuses the message
// if they are not.
func (a admission) checkIDs(env *arcp.Envelope, spec *arcp.Spec) bool {
	for _, id := range [...]struct {
		name, prefix, value string
		scope               arcp.Scope
	}{
		{"session_id", arcp.SessionPrefix, string(env.SessionID), 0}, // optional: a connection has one session
		{"job_id", arcp.JobPrefix, string(env.JobID), arcp.ScopeJob},
		{"stream_id", arcp.StreamPrefix, string(env.StreamID), arcp.ScopeStream},
		{"subscription_id", arcp.SubscriptionPrefix, string(env.SubscriptionID), arcp.ScopeSubscription},
	} {
		switch {
		case id.value != "" && !arcp.HasPrefix(id.value, id.prefix):
			a.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidArgument, "%s must start with %s", id.name, id.prefix)
			return false
		case id.value == "" && spec.Scope&id.scope != 0 && spec.Served:
			a.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidRequest, "%s needs %s in its envelope", env.Type, id.name)
			return false
		}
	}
	if env.SessionID != "" && env.SessionID != a.id {
		a.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidArgument, "session_id is not this connection's session")
		return false
	}
	return true
}

// handlers handle the types that change only the state of the machine. An error refuses the
// message as a bad payload.
var handlers = map[arcp.Type]func(admission, time.Time, *arcp.Envelope) error{
	arcp.Ping:                admission.ping,
	arcp.SessionPing:         admission.sessionPing,
	arcp.SessionClose:        admission.sessionClose,
	arcp.SessionAuthenticate: admission.reauthenticate,
}

// Handles reports whether the machine itself handles messages of type t in an accepted session.
// Other messages are returned as Output.Admitted.
func Handles(t arcp.Type) bool { return handlers[t] != nil }

// dispatch handles a message that admit has checked, or returns it as Output.Admitted.
func (a admission) dispatch(now time.Time, env *arcp.Envelope, spec *arcp.Spec) {
	switch handle := handlers[env.Type]; {
	case spec.Worker && a.isWorkerMessage(env):
		a.out.Admitted = Admitted{env, true}
	case !spec.Served && (env.Type == arcp.ToolResult || env.Type == arcp.ToolError):
		a.refuse(env, "not_served", arcp.CodeFailedPrecondition,
			"%s: this session executes nothing, or the job_id or correlation_id of the call is missing", env.Type)
	case !spec.Served && spec.Quiet:
		a.report("ignored", env.Type, "")
	case !spec.Served:
		a.refuse(env, "not_served", arcp.CodeUnimplemented, "%s is not offered by this runtime", env.Type)
	case spec.Command && !a.identity.Commands:
		a.refuse(env, ReasonRole, arcp.CodePermissionDenied, "%s: this principal may only observe", env.Type)
	case env.Type == arcp.Resume && a.receivedAny:
		a.refuse(env, "phase", arcp.CodeFailedPrecondition, "resume has to be the first message after session.accepted")
	case handle == nil:
		a.out.Admitted = Admitted{env, false}
	default:
		if err := handle(a, now, env); err != nil {
			a.report(arcp.ReasonPayload, env.Type, err.Error())
			a.send(arcp.Nack, env.ID, arcp.PayloadError(env.Type, err))
		}
	}
}

// isWorkerMessage reports whether a message is about a job that the session executes (§7.8).
// Such a message has the job_id of the job and the correlation_id of the dispatch. An ack or
// nack needs no job_id, a call on behalf of the job no correlation_id.
func (a admission) isWorkerMessage(env *arcp.Envelope) bool {
	if !a.negotiate.has(arcp.FeatureExecutes) {
		return false
	}
	switch env.Type {
	case arcp.ToolInvoke, arcp.AgentDelegate:
		return env.JobID != ""
	case arcp.Ack, arcp.Nack:
		return env.CorrelationID != ""
	}
	return env.JobID != "" && env.CorrelationID != ""
}

func (a admission) ping(_ time.Time, env *arcp.Envelope) error {
	p, err := arcp.DecodeComplete[arcp.PingPayload](env)
	if err == nil {
		a.send(arcp.Pong, env.ID, arcp.PongPayload(p))
	}
	return err
}

func (a admission) sessionPing(now time.Time, env *arcp.Envelope) error {
	p, err := arcp.DecodeComplete[arcp.SessionPingPayload](env)
	if err == nil {
		a.send(arcp.SessionPong, env.ID, arcp.SessionPongPayload{PingNonce: p.Nonce, ReceivedAt: now.UTC()})
	}
	return err
}

func (a admission) sessionClose(now time.Time, env *arcp.Envelope) error {
	p, err := arcp.DecodeComplete[arcp.SessionClosePayload](env)
	switch {
	case err != nil:
		return err
	case p.OpenJobs != "" && p.OpenJobs != "detach" && p.OpenJobs != "cancel":
		return arcp.Errorf(arcp.CodeInvalidRequest, "open_jobs must be detach or cancel")
	}
	a.out.CancelJobs = p.OpenJobs == "cancel"
	a.end = &ending{request: env.ID, reason: ClipReason(p.Reason), deadline: now.Add(endWait)}
	if p.Forget {
		a.phase, a.out.Request = Closing, EndRequest{}
		return nil
	}
	a.sendClosed()
	return nil
}

// sendClosed answers session.close and closes the connection.
func (m *Machine) sendClosed() {
	m.send(arcp.SessionClosed, m.end.request, arcp.SessionClosedPayload{Reason: m.end.reason})
	m.close(CloseNormal, "")
}

// Ended completes an EndRequest. If refused is set, the end is not stored: the answer is nack, because
// the session can be resumed after a restart.
func (m *Machine) Ended(refused *arcp.Error) {
	switch {
	case m.phase != Closing:
	case refused != nil:
		m.send(arcp.Nack, m.end.request, refused)
		m.close(CloseInternal, refused.Message)
	default:
		m.sendClosed()
	}
}
