package session

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Command is something the engine has to do; its answer goes to the message
// Request.
type Command interface{ command() }

// Invoke submits a job. When Refused is set the submit cannot be read, and the
// refusal only has to leave in its place among the answers to submits.
type Invoke struct {
	Envelope *arcp.Envelope // the one given to Receive
	Payload  arcp.ToolInvokePayload
	Refused  *arcp.Error
}

// CancelJob asks a job to end within Deadline.
type CancelJob struct {
	Request  arcp.MessageID
	Job      arcp.JobID
	Reason   string
	Deadline time.Duration
}

// CancelSession ends a session: the own one, or another of the same principal.
type CancelSession struct {
	Request arcp.MessageID
	Session arcp.SessionID
	Reason  string
}

// ListJobs asks for a page of jobs.
type ListJobs struct {
	Request arcp.MessageID
	Payload arcp.SessionListJobsPayload
}

// FollowJob starts following a job.
type FollowJob struct {
	Request arcp.MessageID
	Payload arcp.JobSubscribePayload
}

// UnfollowJob stops that.
type UnfollowJob struct{ Job arcp.JobID }

// Acknowledge says what the client has processed.
type Acknowledge struct{ Seq uint64 }

// Leave says that the client has closed the session in order.
type Leave struct {
	CancelJobs bool
	Forget     bool
}

func (*Invoke) command()       {}
func (CancelJob) command()     {}
func (CancelSession) command() {}
func (ListJobs) command()      {}
func (FollowJob) command()     {}
func (UnfollowJob) command()   {}
func (Acknowledge) command()   {}
func (Leave) command()         {}

// route is how one message type is handled.
type route struct {
	handle     func(*Machine, time.Time, *arcp.Envelope) error
	repeatable bool // harmless when it comes twice: its id is not remembered
	command    bool // needs a role that may command
}

// routes has every type a client may send that is served. What is missing here
// is refused with UNIMPLEMENTED.
var routes = map[arcp.Type]route{
	arcp.Ping:                on((*Machine).ping),
	arcp.SessionPing:         on((*Machine).sessionPing),
	arcp.SessionClose:        on((*Machine).sessionClose),
	arcp.SessionAck:          on((*Machine).sessionAck).anyTimes(),
	arcp.SessionListJobs:     on((*Machine).listJobs),
	arcp.ToolInvoke:          {handle: (*Machine).invoke, command: true},
	arcp.Cancel:              on((*Machine).cancel).commanding(),
	arcp.JobSubscribe:        on((*Machine).jobSubscribe),
	arcp.JobUnsubscribe:      on((*Machine).jobUnsubscribe),
	arcp.SessionAuthenticate: {handle: (*Machine).strayAuthenticate, repeatable: true},
}

// on makes a route of a handler and infers the payload's type from it.
func on[P any](h func(*Machine, time.Time, *arcp.Envelope, P) error) route {
	return route{handle: func(m *Machine, now time.Time, env *arcp.Envelope) error {
		p, err := decode[P](env)
		if err != nil {
			return err
		}
		return h(m, now, env, p)
	}}
}

// decode reads a payload that must have all its required members.
func decode[P any](env *arcp.Envelope) (P, error) {
	p, err := arcp.DecodePayload[P](env)
	if err != nil {
		return p, err
	}
	if name := arcp.Missing(env.Payload, p); name != "" {
		return p, invalid("payload member %q is required", name)
	}
	return p, nil
}

func (r route) anyTimes() route   { r.repeatable = true; return r }
func (r route) commanding() route { r.command = true; return r }

func served(t arcp.Type) bool { _, ok := routes[t]; return ok }

// Served reports whether a client may send messages of type t and have them
// acted upon once its session is accepted.
func Served(t arcp.Type) bool { return served(t) }

func (m *Machine) command(c Command) { m.out.Commands = append(m.out.Commands, c) }

// invalid is a payload that decodes but makes no sense.
func invalid(format string, args ...any) error {
	return arcp.Errorf(arcp.CodeInvalidRequest, format, args...)
}

func (m *Machine) ping(_ time.Time, env *arcp.Envelope, p arcp.PingPayload) error {
	m.send(arcp.Pong, env.ID, arcp.PongPayload(p))
	return nil
}

func (m *Machine) sessionPing(now time.Time, env *arcp.Envelope, p arcp.SessionPingPayload) error {
	m.send(arcp.SessionPong, env.ID, arcp.SessionPongPayload{PingNonce: p.Nonce, ReceivedAt: now.UTC()})
	return nil
}

func (m *Machine) sessionClose(_ time.Time, env *arcp.Envelope, p arcp.SessionClosePayload) error {
	switch p.OpenJobs {
	case "", "detach", "cancel":
	default:
		return invalid("open_jobs must be detach or cancel")
	}
	m.command(Leave{CancelJobs: p.OpenJobs == "cancel", Forget: p.Forget})
	m.send(arcp.SessionClosed, env.ID, arcp.SessionClosedPayload{Reason: p.Reason})
	m.close(CloseNormal, "")
	return nil
}

func (m *Machine) sessionAck(_ time.Time, _ *arcp.Envelope, p arcp.SessionAckPayload) error {
	m.command(Acknowledge{p.LastProcessedSeq})
	return nil
}

func (m *Machine) listJobs(_ time.Time, env *arcp.Envelope, p arcp.SessionListJobsPayload) error {
	if p.Limit != nil && *p.Limit == 0 {
		return invalid("limit must be at least 1")
	}
	m.command(ListJobs{env.ID, p})
	return nil
}

func (m *Machine) invoke(_ time.Time, env *arcp.Envelope) error {
	p, err := decode[arcp.ToolInvokePayload](env)
	if err == nil && p.OnDisconnect != "" && p.OnDisconnect != "continue" && p.OnDisconnect != "cancel" {
		err = invalid("on_disconnect must be continue or cancel")
	}
	c := &Invoke{Envelope: env, Payload: p}
	if err != nil {
		c.Refused = badPayload(env.Type, err)
	}
	m.command(c)
	return nil
}

// Bounds of a cancel's deadline (SPEC.md §5.7).
const (
	DefaultCancelDeadline = 5 * time.Second
	MaxCancelDeadline     = time.Minute
)

func (m *Machine) cancel(_ time.Time, env *arcp.Envelope, p arcp.CancelPayload) error {
	deadline := DefaultCancelDeadline
	if p.DeadlineMS != nil {
		deadline = time.Duration(min(*p.DeadlineMS, uint64(MaxCancelDeadline/time.Millisecond))) * time.Millisecond
		deadline = max(deadline, 1) // 0 is now; to the engine it would be the default
	}
	switch p.Target {
	case arcp.TargetJob:
		if !arcp.JobID(p.TargetID).Valid() {
			m.refuseCancel(env.ID, p.TargetID, "not_found", arcp.CodeInvalidArgument, "malformed job id")
			return nil
		}
		m.command(CancelJob{env.ID, arcp.JobID(p.TargetID), p.Reason, deadline})
	case arcp.TargetSession:
		m.command(CancelSession{env.ID, arcp.SessionID(p.TargetID), p.Reason})
	case arcp.TargetStream:
		m.refuseCancel(env.ID, p.TargetID, "not_found", arcp.CodeNotFound, "no such stream")
	default:
		return invalid("target must be job, stream or session")
	}
	return nil
}

func (m *Machine) refuseCancel(corr arcp.MessageID, target, reason string, code arcp.Code, message string) {
	m.send(arcp.CancelRefused, corr, arcp.CancelRefusedPayload{TargetID: target, Reason: reason, Code: code, Message: message})
}

func (m *Machine) jobSubscribe(_ time.Time, env *arcp.Envelope, p arcp.JobSubscribePayload) error {
	if !p.JobID.Valid() {
		m.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidArgument, "job_id must start with %s", arcp.JobPrefix)
		return nil
	}
	m.command(FollowJob{env.ID, p})
	return nil
}

func (m *Machine) jobUnsubscribe(_ time.Time, env *arcp.Envelope, p arcp.JobUnsubscribePayload) error {
	if !p.JobID.Valid() {
		m.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidArgument, "job_id must start with %s", arcp.JobPrefix)
		return nil
	}
	m.command(UnfollowJob{p.JobID})
	return nil
}

// strayAuthenticate drops a session.authenticate that answers nothing (§5.1).
func (m *Machine) strayAuthenticate(_ time.Time, env *arcp.Envelope) error {
	m.note("no_challenge", env.Type, "")
	return nil
}
