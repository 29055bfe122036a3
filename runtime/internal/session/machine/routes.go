package machine

import (
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/approval"
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

// CreateCheckpoint asks a job for a checkpoint.
type CreateCheckpoint struct {
	Request arcp.MessageID
	Job     arcp.JobID
	Label   string
}

// RestoreCheckpoint has a job, or one like it, go on from a checkpoint.
type RestoreCheckpoint struct {
	Envelope   *arcp.Envelope // the one given to Receive
	Checkpoint string
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

// CancelJobs cancels the jobs of the session: session.close with open_jobs "cancel".
type CancelJobs struct{}

// Replay sets where the session's events go on: after a message or a
// checkpoint, whichever is earlier; without both, where they are.
type Replay struct {
	Request     arcp.MessageID
	After       arcp.MessageID
	Checkpoint  string
	OpenStreams bool
}

// Proceed says that the client does not say where to go on.
type Proceed struct{}

// OpenFeed starts a subscription.
type OpenFeed struct {
	Request arcp.MessageID
	Payload arcp.SubscribePayload
}

// CloseFeed ends one.
type CloseFeed struct {
	Request arcp.MessageID
	Feed    arcp.SubscriptionID
}

// SlowFeeds bounds how many events a second the subscriptions carry, 0 for any,
// and how many bytes until the client says so again. What is nil stays.
type SlowFeeds struct {
	Rate   *uint32
	Buffer *uint64
}

// Respond is an answer to a question that somebody was asked.
type Respond struct {
	Request  arcp.MessageID
	Type     arcp.Type // of the answer
	Question arcp.MessageID
	Answer   approval.Answer
}

// ExtendLease asks for more time for a permission lease.
type ExtendLease struct {
	Request arcp.MessageID
	Lease   arcp.LeaseID
	More    time.Duration
}

// RevokeLease ends a permission lease that the session has granted or, if it may, another one.
type RevokeLease struct {
	Request arcp.MessageID
	Lease   arcp.LeaseID
	Reason  string
}

// InterruptJob has a job stop and ask what to do.
type InterruptJob struct {
	Request arcp.MessageID
	Job     arcp.JobID
	Prompt  string
}

// Elevate asks for a higher level of trust for the session.
type Elevate struct {
	Request arcp.MessageID
	Level   string
	Reason  string
	Seconds uint64 // 0: as long as may be
}

// Work is what a worker says about a job that it was given.
type Work struct {
	Envelope *arcp.Envelope // the one given to Receive
}

func (*Invoke) command()           {}
func (Work) command()              {}
func (Respond) command()           {}
func (ExtendLease) command()       {}
func (RevokeLease) command()       {}
func (InterruptJob) command()      {}
func (Elevate) command()           {}
func (Replay) command()            {}
func (Proceed) command()           {}
func (OpenFeed) command()          {}
func (CloseFeed) command()         {}
func (SlowFeeds) command()         {}
func (CancelJob) command()         {}
func (CreateCheckpoint) command()  {}
func (RestoreCheckpoint) command() {}
func (CancelSession) command()     {}
func (ListJobs) command()          {}
func (FollowJob) command()         {}
func (UnfollowJob) command()       {}
func (Acknowledge) command()       {}
func (CancelJobs) command()        {}

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
	arcp.CheckpointCreate:    on((*Machine).createCheckpoint).commanding(),
	arcp.CheckpointRestore:   on((*Machine).restoreCheckpoint).commanding(),
	arcp.JobSubscribe:        on((*Machine).jobSubscribe),
	arcp.JobUnsubscribe:      on((*Machine).jobUnsubscribe),
	arcp.Interrupt:           on((*Machine).interrupt).commanding(),
	arcp.HumanInputResponse:  on((*Machine).inputResponse),
	arcp.HumanChoiceResponse: on((*Machine).choiceResponse),
	arcp.PermissionGrant:     on((*Machine).permissionGrant).commanding(),
	arcp.PermissionDeny:      on((*Machine).permissionDeny).commanding(),
	arcp.PermissionRequest:   on((*Machine).permissionRequest).commanding(),
	arcp.LeaseRefresh:        on((*Machine).leaseRefresh).commanding(),
	arcp.LeaseRevoked:        on((*Machine).leaseRevoked),
	arcp.Resume:              on((*Machine).resume),
	arcp.Subscribe:           on((*Machine).subscribe),
	arcp.Unsubscribe:         on((*Machine).unsubscribe),
	arcp.Backpressure:        on((*Machine).backpressure).anyTimes(),
	arcp.SessionAuthenticate: {handle: (*Machine).reauthenticate, repeatable: true},
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

func (m *Machine) sessionClose(now time.Time, env *arcp.Envelope, p arcp.SessionClosePayload) error {
	switch p.OpenJobs {
	case "", "detach", "cancel":
	default:
		return invalid("open_jobs must be detach or cancel")
	}
	if p.OpenJobs == "cancel" {
		m.command(CancelJobs{})
	}
	m.end = &ending{request: env.ID, reason: clip.Ellipsis(p.Reason, maxReason), deadline: now.Add(endWait)}
	if p.Forget {
		m.phase, m.out.Question = Closing, End{}
		return nil
	}
	m.closed()
	return nil
}

// closed answers session.close.
func (m *Machine) closed() {
	m.send(arcp.SessionClosed, m.end.request, arcp.SessionClosedPayload{Reason: m.end.reason})
	m.close(CloseNormal, "")
}

// Ended completes End. A session whose end could not be stored is not said to be closed:
// it can be resumed after a restart.
func (m *Machine) Ended(refused *arcp.Error) {
	switch {
	case m.phase != Closing:
	case refused != nil:
		m.send(arcp.Nack, m.end.request, refused)
		m.close(CloseInternal, refused.Message)
	default:
		m.closed()
	}
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

// maxReason bounds a reason that a client gives: it goes into rows and into events that
// others read.
const maxReason = 4 << 10

// Bounds of a cancel's deadline (SPEC.md §5.7).
const (
	DefaultCancelDeadline = 5 * time.Second
	MaxCancelDeadline     = time.Minute
)

func (m *Machine) cancel(_ time.Time, env *arcp.Envelope, p arcp.CancelPayload) error {
	deadline := DefaultCancelDeadline
	p.Reason = clip.Ellipsis(p.Reason, maxReason) // a cancel is not refused for its length
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

// maxLabel bounds a checkpoint's label: it becomes part of what a tool emits.
const maxLabel = 256

func (m *Machine) createCheckpoint(_ time.Time, env *arcp.Envelope, p arcp.CheckpointCreatePayload) error {
	if len(p.Label) > maxLabel {
		return invalid("label may have at most %d bytes", maxLabel)
	}
	m.command(CreateCheckpoint{env.ID, env.JobID, p.Label})
	return nil
}

func (m *Machine) restoreCheckpoint(_ time.Time, env *arcp.Envelope, p arcp.CheckpointRestorePayload) error {
	m.command(RestoreCheckpoint{env, p.CheckpointID})
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

// proceed ends the wait for a position.
func (m *Machine) proceed() {
	if !m.position.IsZero() {
		m.position = time.Time{}
		m.command(Proceed{})
	}
}

func (m *Machine) resume(_ time.Time, env *arcp.Envelope, p arcp.ResumePayload) error {
	if m.spoken {
		m.refuse(env, "phase", arcp.CodeFailedPrecondition, "resume has to be the first message after session.accepted")
		return nil
	}
	m.position = time.Time{}
	m.command(Replay{env.ID, p.AfterMessageID, p.CheckpointID, p.IncludeOpenStreams})
	return nil
}

// Bounds of a filter: each event is compared with it, as long as the subscription lasts.
const (
	maxFilterBytes = 64 << 10
	maxFilterTerms = 1000
)

func (m *Machine) subscribe(_ time.Time, env *arcp.Envelope, p arcp.SubscribePayload) error {
	if f := p.Filter; f != nil {
		switch {
		case f.MinPriority != "" && !f.MinPriority.Valid():
			return invalid("min_priority must be low, normal, high or critical")
		case len(env.Payload) > maxFilterBytes:
			return invalid("the filter may have at most %d bytes; subscribe more than once, each with a part of it", maxFilterBytes)
		case len(f.SessionID)+len(f.TraceID)+len(f.JobID)+len(f.StreamID)+len(f.Types) > maxFilterTerms:
			return invalid("the filter may name at most %d values; subscribe more than once, each with some of them", maxFilterTerms)
		}
	}
	m.command(OpenFeed{env.ID, p})
	return nil
}

func (m *Machine) unsubscribe(_ time.Time, env *arcp.Envelope, p arcp.UnsubscribePayload) error {
	if !arcp.HasPrefix(string(p.SubscriptionID), arcp.SubscriptionPrefix) {
		m.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidArgument, "subscription_id must start with %s", arcp.SubscriptionPrefix)
		return nil
	}
	m.command(CloseFeed{env.ID, p.SubscriptionID})
	return nil
}

// backpressure slows subscriptions: the session's numbered events are held back by the
// acknowledgement window instead.
func (m *Machine) backpressure(_ time.Time, env *arcp.Envelope, p arcp.BackpressurePayload) error {
	if env.StreamID != "" {
		m.refuse(env, "not_served", arcp.CodeUnimplemented, "streams are not offered by this runtime; without stream_id it slows subscriptions")
		return nil
	}
	if p.DesiredRatePerSecond != nil || p.BufferRemainingBytes != nil {
		m.command(SlowFeeds{p.DesiredRatePerSecond, p.BufferRemainingBytes})
	}
	return nil
}

// respond has an answer given to the question that it is correlated to.
func (m *Machine) respond(env *arcp.Envelope, a approval.Answer) error {
	if env.CorrelationID == "" {
		return invalid("correlation_id must be the id of the question")
	}
	m.command(Respond{env.ID, env.Type, env.CorrelationID, a})
	return nil
}

func (m *Machine) inputResponse(_ time.Time, env *arcp.Envelope, p arcp.HumanInputResponsePayload) error {
	if len(p.Value) == 0 {
		return invalid("payload member %q is required", "value")
	}
	return m.respond(env, approval.Answer{Value: p.Value, RespondedBy: p.RespondedBy})
}

func (m *Machine) choiceResponse(_ time.Time, env *arcp.Envelope, p arcp.HumanChoiceResponsePayload) error {
	return m.respond(env, approval.Answer{Resolution: p.ChoiceID, RespondedBy: p.RespondedBy})
}

func (m *Machine) permissionGrant(_ time.Time, env *arcp.Envelope, p arcp.PermissionGrantPayload) error {
	return m.respond(env, approval.Answer{Grant: &arcp.PermissionTerm{Permission: p.Permission, Resource: p.Resource,
		Operation: p.Operation, Seconds: p.LeaseSeconds}})
}

func (m *Machine) permissionDeny(_ time.Time, env *arcp.Envelope, p arcp.PermissionDenyPayload) error {
	return m.respond(env, approval.Answer{Resolution: approval.Deny, Reason: clip.Ellipsis(p.Reason, maxReason)})
}

// elevation begins the names of the permissions that a session may ask for.
const elevation = "trust.elevate."

// permissionRequest is a session's wish to be trusted more; nothing else is a
// client's to ask for.
func (m *Machine) permissionRequest(_ time.Time, env *arcp.Envelope, p arcp.PermissionRequestPayload) error {
	level, ok := strings.CutPrefix(p.Permission, elevation)
	switch {
	case !ok:
		m.nack(env.ID, arcp.CodeUnimplemented, "a client may ask for %s<level> only; other permissions are asked for by jobs", elevation)
		return nil
	case p.Resource != "session" || p.Operation != "elevate":
		m.nack(env.ID, arcp.CodeInvalidArgument, "%s has the resource session and the operation elevate", p.Permission)
		return nil
	}
	e := Elevate{Request: env.ID, Level: level, Reason: clip.Ellipsis(p.Reason, maxReason)}
	if p.RequestedLeaseSeconds != nil {
		e.Seconds = *p.RequestedLeaseSeconds
	}
	m.command(e)
	return nil
}

// leaseSeconds bounds the extension that a client asks for. It is longer than any lease.
const leaseSeconds = uint64(366 * 24 * time.Hour / time.Second)

func (m *Machine) leaseRefresh(_ time.Time, env *arcp.Envelope, p arcp.LeaseRefreshPayload) error {
	if !arcp.HasPrefix(string(p.LeaseID), arcp.LeasePrefix) {
		m.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidArgument, "lease_id must start with %s", arcp.LeasePrefix)
		return nil
	}
	m.command(ExtendLease{env.ID, p.LeaseID, time.Duration(min(p.AdditionalSeconds, leaseSeconds)) * time.Second})
	return nil
}

func (m *Machine) leaseRevoked(_ time.Time, env *arcp.Envelope, p arcp.LeaseRevokedPayload) error {
	if !arcp.HasPrefix(string(p.LeaseID), arcp.LeasePrefix) {
		m.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidArgument, "lease_id must start with %s", arcp.LeasePrefix)
		return nil
	}
	m.command(RevokeLease{env.ID, p.LeaseID, clip.Ellipsis(p.Reason, maxReason)})
	return nil
}

// maxPrompt bounds what a client has a person asked.
const maxPrompt = approval.MaxText

func (m *Machine) interrupt(_ time.Time, env *arcp.Envelope, p arcp.InterruptPayload) error {
	switch {
	case p.Target == arcp.TargetStream, p.Target == arcp.TargetSession:
		m.nack(env.ID, arcp.CodeUnimplemented, "only jobs can be interrupted")
	case p.Target != arcp.TargetJob:
		return invalid("target must be job")
	case !arcp.JobID(p.TargetID).Valid():
		m.refuse(env, arcp.ReasonBadID, arcp.CodeInvalidArgument, "target_id must start with %s", arcp.JobPrefix)
	case p.Prompt == "" || len(p.Prompt) > maxPrompt:
		return invalid("prompt must have 1 to %d bytes", maxPrompt)
	case !m.negotiate.has(arcp.FeatureHumanInput):
		m.nack(env.ID, arcp.CodeFailedPrecondition, "an interrupt asks for guidance: it needs a session that negotiated human_input")
	default:
		m.command(InterruptJob{env.ID, arcp.JobID(p.TargetID), p.Prompt})
	}
	return nil
}
