package machine

import (
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// Receive handles one decoded frame.
func (m *Machine) Receive(now time.Time, env *arcp.Envelope) {
	m.bad = 0
	switch m.phase {
	case Closing, Closed:
	case Accepted:
		m.lived(now, env.Type)
		if env.Type != arcp.Resume {
			m.proceed()
		}
		m.admit(now, env)
		m.spoken = true
	default:
		m.receiveEarly(now, env)
	}
}

// Malformed handles a frame that is not an envelope.
func (m *Machine) Malformed(e *arcp.EncodingError) {
	if m.phase == Closing || m.phase == Closed {
		return
	}
	m.note(e.Reason, "", e.Message)
	if m.phase == Accepted && e.ID != "" && m.seen.add(e.ID) {
		m.nack(e.ID, arcp.CodeInvalidRequest, "%s", e.Message)
	}
	if m.bad++; m.bad >= maxBadFrames {
		m.close(ClosePolicy, "too many malformed frames in a row")
	}
}

// admit applies what the catalogue says of a message, in an order in which the
// most basic fault is reported.
func (m *Machine) admit(now time.Time, env *arcp.Envelope) {
	spec := arcp.Lookup(env.Type)
	switch {
	case !routes[env.Type].repeatable && !m.seen.add(env.ID):
		m.note("duplicate_id", env.Type, "")
	case !arcp.SupportedVersion(env.ARCP):
		m.refuse(env, "version", arcp.CodeUnimplemented, "protocol version %s is not supported", clip.Ellipsis(env.ARCP, maxQuoted))
	case spec == nil:
		m.unknown(env)
	case spec.From&arcp.FromClient == 0:
		m.refuse(env, "direction", arcp.CodeInvalidArgument, "%s is sent by the runtime, not by a client", env.Type)
	case spec.Phase&arcp.InAccepted == 0:
		m.refuse(env, "phase", arcp.CodeFailedPrecondition, "%s: the session is open already", env.Type)
	case !m.scoped(env, spec):
	default:
		m.dispatch(now, env, spec)
	}
}

func (m *Machine) refuse(env *arcp.Envelope, reason string, code arcp.Code, format string, args ...any) {
	m.note(reason, env.Type, "")
	m.nack(env.ID, code, format, args...)
}

// unknown handles a type that is not in the catalogue (§6.4).
func (m *Machine) unknown(env *arcp.Envelope) {
	switch arcp.Classify(env.Type) {
	case arcp.ClassExperimental:
		m.note("experimental", env.Type, "")
	case arcp.ClassExtension:
		if env.OptionalExtension() {
			m.note("extension", env.Type, "")
			return
		}
		m.refuse(env, "extension", arcp.CodeUnimplemented, "extension %s was not negotiated", env.Type)
	case arcp.ClassUnknownCore:
		m.refuse(env, "unknown_type", arcp.CodeUnimplemented, "message type %s is not known", env.Type)
	default:
		m.refuse(env, "malformed_type", arcp.CodeInvalidArgument, "%q is not a well-formed message type", env.Type)
	}
}

// scoped checks the envelope's identifiers.
func (m *Machine) scoped(env *arcp.Envelope, spec *arcp.Spec) bool {
	for _, id := range [...]struct {
		name, prefix, value string
		scope               arcp.Scope
	}{
		{"session_id", arcp.SessionPrefix, string(env.SessionID), 0}, // may be left out: it is the connection's
		{"job_id", arcp.JobPrefix, string(env.JobID), arcp.ScopeJob},
		{"stream_id", arcp.StreamPrefix, string(env.StreamID), arcp.ScopeStream},
		{"subscription_id", arcp.SubscriptionPrefix, string(env.SubscriptionID), arcp.ScopeSubscription},
	} {
		switch {
		case id.value != "" && !arcp.HasPrefix(id.value, id.prefix):
			m.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidArgument, "%s must start with %s", id.name, id.prefix)
			return false
		case id.value == "" && spec.Scope&id.scope != 0 && served(spec.Type):
			m.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidRequest, "%s needs %s in its envelope", env.Type, id.name)
			return false
		}
	}
	if env.SessionID != "" && env.SessionID != m.id {
		m.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidArgument, "session_id is not this connection's session")
		return false
	}
	return true
}

// dispatch runs the one handler of a type.
func (m *Machine) dispatch(now time.Time, env *arcp.Envelope, spec *arcp.Spec) {
	route, ok := routes[env.Type]
	switch {
	case m.works(env):
		m.command(Work{env})
	case !ok && (env.Type == arcp.ToolResult || env.Type == arcp.ToolError):
		m.refuse(env, "not_served", arcp.CodeFailedPrecondition, "%s: this session executes nothing, or the job_id or correlation_id of the call is missing", env.Type)
	case !ok && spec.Quiet:
		m.note("ignored", env.Type, "")
	case !ok:
		m.refuse(env, "not_served", arcp.CodeUnimplemented, "%s is not offered by this runtime", env.Type)
	case route.command && !m.identity.Commands:
		m.refuse(env, ReasonRole, arcp.CodePermissionDenied, "%s: this principal may only observe", env.Type)
	default:
		if err := route.handle(m, now, env); err != nil {
			m.note(arcp.ReasonPayload, env.Type, err.Error())
			m.send(arcp.Nack, env.ID, badPayload(env.Type, err))
		}
	}
}

// badPayload is what a handler's error says to the client.
func badPayload(t arcp.Type, err error) *arcp.Error {
	if e, ok := errors.AsType[*arcp.Error](err); ok {
		return arcp.Errorf(e.Code, "%s: %s", t, e.Message)
	}
	return arcp.Errorf(arcp.CodeInvalidRequest, "%s: %s", t, err)
}
