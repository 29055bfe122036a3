package arcp

import (
	"reflect"
	"slices"
)

// Type is the name of a message type.
type Type string

// The message types (§3).
const (
	SessionOpen            Type = "session.open"
	SessionChallenge       Type = "session.challenge"
	SessionAuthenticate    Type = "session.authenticate"
	SessionAccepted        Type = "session.accepted"
	SessionUnauthenticated Type = "session.unauthenticated"
	SessionRejected        Type = "session.rejected"
	SessionRefresh         Type = "session.refresh"
	SessionEvicted         Type = "session.evicted"
	SessionClose           Type = "session.close"
	SessionClosed          Type = "session.closed"
	SessionResume          Type = "session.resume"
	SessionResumed         Type = "session.resumed"
	SessionPing            Type = "session.ping"
	SessionPong            Type = "session.pong"
	SessionAck             Type = "session.ack"
	SessionListJobs        Type = "session.list_jobs"
	SessionJobs            Type = "session.jobs"

	Ping              Type = "ping"
	Pong              Type = "pong"
	Ack               Type = "ack"
	Nack              Type = "nack"
	Cancel            Type = "cancel"
	CancelAccepted    Type = "cancel.accepted"
	CancelRefused     Type = "cancel.refused"
	Interrupt         Type = "interrupt"
	Resume            Type = "resume"
	Backpressure      Type = "backpressure"
	CheckpointCreate  Type = "checkpoint.create"
	CheckpointRestore Type = "checkpoint.restore"

	ToolInvoke       Type = "tool.invoke"
	ToolResult       Type = "tool.result"
	ToolError        Type = "tool.error"
	JobAccepted      Type = "job.accepted"
	JobStarted       Type = "job.started"
	JobProgress      Type = "job.progress"
	JobHeartbeat     Type = "job.heartbeat"
	JobCheckpoint    Type = "job.checkpoint"
	JobResultChunk   Type = "job.result_chunk"
	JobCompleted     Type = "job.completed"
	JobFailed        Type = "job.failed"
	JobCancelled     Type = "job.cancelled"
	JobSchedule      Type = "job.schedule"
	JobSubscribe     Type = "job.subscribe"
	JobSubscribed    Type = "job.subscribed"
	JobUnsubscribe   Type = "job.unsubscribe"
	WorkflowStart    Type = "workflow.start"
	WorkflowComplete Type = "workflow.complete"
	AgentDelegate    Type = "agent.delegate"
	AgentHandoff     Type = "agent.handoff"

	StreamOpen  Type = "stream.open"
	StreamChunk Type = "stream.chunk"
	StreamClose Type = "stream.close"
	StreamError Type = "stream.error"

	HumanInputRequest   Type = "human.input.request"
	HumanInputResponse  Type = "human.input.response"
	HumanChoiceRequest  Type = "human.choice.request"
	HumanChoiceResponse Type = "human.choice.response"
	HumanInputCancelled Type = "human.input.cancelled"

	PermissionRequest Type = "permission.request"
	PermissionGrant   Type = "permission.grant"
	PermissionDeny    Type = "permission.deny"
	LeaseGranted      Type = "lease.granted"
	LeaseRefresh      Type = "lease.refresh"
	LeaseExtended     Type = "lease.extended"
	LeaseRevoked      Type = "lease.revoked"

	Subscribe         Type = "subscribe"
	SubscribeAccepted Type = "subscribe.accepted"
	SubscribeEvent    Type = "subscribe.event"
	Unsubscribe       Type = "unsubscribe"
	SubscribeClosed   Type = "subscribe.closed"

	ArtifactPut     Type = "artifact.put"
	ArtifactRef     Type = "artifact.ref"
	ArtifactFetch   Type = "artifact.fetch"
	ArtifactRelease Type = "artifact.release"

	EventEmit Type = "event.emit"
	Log       Type = "log"
	Metric    Type = "metric"
	TraceSpan Type = "trace.span"
)

// Direction is the side that may send a message type.
type Direction uint8

// The directions.
const (
	FromClient Direction = 1 << iota
	FromRuntime
	Both = FromClient | FromRuntime
)

func (d Direction) String() string {
	return [...]string{"", "client → runtime", "runtime → client", "both"}[d&3]
}

// Phase is the set of phases in which a client may send a message type.
type Phase uint8

// The phases.
const (
	InOpening    Phase = 1 << iota // before session.accepted, without a challenge
	InChallenged                   // a challenge has no answer yet
	InAccepted                     // after session.accepted
)

func (p Phase) String() string {
	switch p {
	case InOpening:
		return "opening"
	case InOpening | InChallenged:
		return "opening, challenged"
	case InChallenged | InAccepted:
		return "challenged, accepted"
	case InAccepted:
		return "accepted"
	}
	return "any"
}

// Scope is the set of envelope members that a message type requires beside id, type, timestamp and
// payload. A client may omit session_id, which is then the session of the connection. An event has
// correlation_id only in the session that sent the command.
type Scope uint8

// The scopes, one for each envelope member.
const (
	ScopeSession Scope = 1 << iota
	ScopeJob
	ScopeStream
	ScopeSubscription
	ScopeCorrelation
	ScopeNone Scope = 0
)

var scopeNames = [...]string{"session_id", "job_id", "stream_id", "subscription_id", "correlation_id"}

// Members returns the names of the envelope members in the scope.
func (s Scope) Members() []string {
	var names []string
	for i, name := range scopeNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Delivery is the numbering of a message type: whether it is an event with event_seq.
type Delivery uint8

// The deliveries. A Sequenced type has event_seq when it is an event of an existing job. As an
// answer to a command it has none.
const (
	Plain Delivery = iota
	Sequenced
)

func (d Delivery) String() string { return [...]string{"plain", "sequenced"}[d] }

// Spec is one row of the catalog: the properties of one message type.
type Spec struct {
	Type     Type
	From     Direction
	Phase    Phase    // phases in which a client may send it
	Need     Feature  // capability without which the runtime does not send it; empty: none
	Scope    Scope    // required envelope members
	Delivery Delivery // whether it has an event_seq
	Quiet    bool     // the runtime never refuses it as UNIMPLEMENTED
	Directed bool     // sent to the addressed sessions, not to all followers of the job
	Section  string   // section of SPEC.md
	Bit      TypeSet  // its bit in a TypeSet; zero for plain types
	payload  reflect.Type

	// Handling of the message from a client.
	Served     bool // the runtime handles it; others are refused as UNIMPLEMENTED
	Command    bool // an observer may not send it
	Repeatable bool // a repetition is harmless: its id is not stored
	Worker     bool // a worker may send it about its job; §7.8 has the answers

	// Events of sessions that speak the draft dialect.
	Draft     bool    // every event of the type has a frame in the dialect
	DraftNeed Feature // feature without which the session does not receive it; empty: none
}

// NewPayload returns a pointer to a zero payload of the type.
func (s *Spec) NewPayload() any { return reflect.New(s.payload).Interface() }

// PayloadName returns the name of the Go type of the payload.
func (s *Spec) PayloadName() string { return s.payload.Name() }

// TypeSet is a set of sequenced message types.
type TypeSet uint64

// RuntimeMetrics is the bit of the metric events that the runtime itself adds to a job (§5.18). Sessions
// that negotiated FeatureMetrics are sent them. The metric events of tools have the bit of the type metric.
const RuntimeMetrics TypeSet = 1 << 62

// DraftChunks is the bit of the stream.chunk events that have a frame in the draft dialect: those of the
// streams of the kinds thought, log and metric. Sessions that negotiated FeatureStreaming are sent them, and
// all sessions of the draft dialect. Other stream.chunk events have the bit of their type.
const DraftChunks TypeSet = 1 << 61

const (
	needNone Feature = ""
)

func spec[P any](t Type, from Direction, phase Phase, need Feature, scope Scope, d Delivery, section string) Spec {
	return Spec{Type: t, From: from, Phase: phase, Need: need, Scope: scope, Delivery: d, Section: section,
		payload: reflect.TypeFor[P]()}
}

// The methods below set a column of a row.

func (s Spec) quiet() Spec    { s.Quiet = true; return s }
func (s Spec) directed() Spec { s.Directed = true; return s }

func (s Spec) served() Spec      { s.Served = true; return s }
func (s Spec) commanding() Spec  { s.Command = true; return s }
func (s Spec) repeatable() Spec  { s.Repeatable = true; return s }
func (s Spec) fromWorkers() Spec { s.Worker = true; return s }

func (s Spec) inDraft(need Feature) Spec { s.Draft, s.DraftNeed = true, need; return s }

// Catalog lists every message type in the order of SPEC.md. It must not be changed.
var Catalog = []Spec{
	spec[SessionOpenPayload](SessionOpen, FromClient, InOpening|InChallenged, needNone, ScopeNone, Plain, "§3.1"),
	spec[SessionChallengePayload](SessionChallenge, FromRuntime, 0, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.1"),
	spec[SessionAuthenticatePayload](SessionAuthenticate, FromClient, InChallenged|InAccepted, needNone, ScopeSession, Plain, "§3.1").served().repeatable(),
	spec[SessionAcceptedPayload](SessionAccepted, FromRuntime, 0, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.1"),
	spec[ErrorPayload](SessionUnauthenticated, FromRuntime, 0, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.1"),
	spec[ErrorPayload](SessionRejected, FromRuntime, 0, needNone, ScopeCorrelation, Plain, "§3.1"),
	spec[SessionRefreshPayload](SessionRefresh, FromRuntime, 0, FeatureRefresh, ScopeSession, Plain, "§3.1"),
	spec[SessionEvictedPayload](SessionEvicted, FromRuntime, 0, needNone, ScopeSession, Plain, "§3.1"),
	spec[SessionClosePayload](SessionClose, Both, InAccepted, needNone, ScopeSession, Plain, "§3.1").served(),
	spec[SessionClosedPayload](SessionClosed, FromRuntime, 0, needNone, ScopeSession, Plain, "§3.1"),
	spec[SessionResumePayload](SessionResume, FromClient, InOpening, needNone, ScopeNone, Plain, "§3.1"),
	spec[SessionResumedPayload](SessionResumed, FromRuntime, 0, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.1"),
	spec[SessionPingPayload](SessionPing, Both, InAccepted, FeatureHeartbeat, ScopeSession, Plain, "§3.1").served(),
	spec[SessionPongPayload](SessionPong, Both, InAccepted, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.1").quiet(),
	spec[SessionAckPayload](SessionAck, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.1").served().repeatable(),
	spec[SessionListJobsPayload](SessionListJobs, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.1").served(),
	spec[SessionJobsPayload](SessionJobs, FromRuntime, 0, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.1"),

	spec[PingPayload](Ping, Both, InAccepted, needNone, ScopeSession, Plain, "§3.2").served(),
	spec[PongPayload](Pong, Both, InAccepted, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.2").quiet(),
	spec[AckPayload](Ack, Both, InAccepted, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.2").quiet().fromWorkers(),
	spec[ErrorPayload](Nack, Both, InAccepted, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.2").quiet().fromWorkers(),
	spec[CancelPayload](Cancel, Both, InAccepted, needNone, ScopeSession, Plain, "§3.2").served().commanding(),
	spec[CancelAcceptedPayload](CancelAccepted, FromRuntime, 0, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.2"),
	spec[CancelRefusedPayload](CancelRefused, FromRuntime, 0, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.2"),
	spec[InterruptPayload](Interrupt, Both, InAccepted, needNone, ScopeSession, Plain, "§3.2").served().commanding(),
	spec[ResumePayload](Resume, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.2").served(),
	spec[BackpressurePayload](Backpressure, Both, InAccepted, needNone, ScopeSession, Plain, "§3.2").served().repeatable(),
	spec[CheckpointCreatePayload](CheckpointCreate, FromClient, InAccepted, needNone, ScopeSession|ScopeJob, Plain, "§3.2").served().commanding(),
	spec[CheckpointRestorePayload](CheckpointRestore, FromClient, InAccepted, needNone, ScopeSession|ScopeJob, Plain, "§3.2").served().commanding(),

	spec[ToolInvokePayload](ToolInvoke, Both, InAccepted, needNone, ScopeSession, Plain, "§3.3").served().commanding().fromWorkers(),
	spec[ToolResultPayload](ToolResult, Both, InAccepted, needNone, ScopeSession|ScopeCorrelation, Sequenced, "§3.3").fromWorkers().inDraft(needNone),
	spec[ErrorPayload](ToolError, Both, InAccepted, needNone, ScopeSession|ScopeCorrelation, Sequenced, "§3.3").fromWorkers().inDraft(needNone),
	spec[JobAcceptedPayload](JobAccepted, FromRuntime, 0, needNone, ScopeSession|ScopeJob|ScopeCorrelation, Sequenced, "§3.3"),
	spec[JobStartedPayload](JobStarted, FromRuntime, 0, needNone, ScopeSession|ScopeJob|ScopeCorrelation, Sequenced, "§3.3").inDraft(needNone),
	spec[JobProgressPayload](JobProgress, Both, InAccepted, needNone, ScopeSession|ScopeJob, Sequenced, "§3.3").fromWorkers().inDraft(FeatureProgress),
	spec[JobHeartbeatPayload](JobHeartbeat, Both, InAccepted, needNone, ScopeSession|ScopeJob, Plain, "§3.3").fromWorkers(),
	spec[JobCheckpointPayload](JobCheckpoint, Both, InAccepted, FeatureCheckpoints, ScopeSession|ScopeJob, Sequenced, "§3.3").fromWorkers().inDraft(needNone),
	spec[JobResultChunkPayload](JobResultChunk, Both, InAccepted, FeatureResultChunk, ScopeSession|ScopeJob, Sequenced, "§3.3").fromWorkers().inDraft(FeatureResultChunk),
	spec[JobCompletedPayload](JobCompleted, FromRuntime, 0, needNone, ScopeSession|ScopeJob|ScopeCorrelation, Sequenced, "§3.3").inDraft(needNone),
	spec[ErrorPayload](JobFailed, FromRuntime, 0, needNone, ScopeSession|ScopeJob|ScopeCorrelation, Sequenced, "§3.3").inDraft(needNone),
	spec[JobCancelledPayload](JobCancelled, FromRuntime, 0, needNone, ScopeSession|ScopeJob|ScopeCorrelation, Sequenced, "§3.3").inDraft(needNone),
	spec[JobSchedulePayload](JobSchedule, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.3").served().commanding(),
	spec[JobSubscribePayload](JobSubscribe, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.3").served(),
	spec[JobSubscribedPayload](JobSubscribed, FromRuntime, 0, needNone, ScopeSession|ScopeJob|ScopeCorrelation, Plain, "§3.3"),
	spec[JobUnsubscribePayload](JobUnsubscribe, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.3").served(),
	spec[WorkflowStartPayload](WorkflowStart, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.3").served().commanding(),
	spec[WorkflowCompletePayload](WorkflowComplete, FromRuntime, 0, needNone, ScopeSession|ScopeJob|ScopeCorrelation, Sequenced, "§3.3").inDraft(needNone),
	spec[AgentDelegatePayload](AgentDelegate, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.3").served().commanding().fromWorkers(),
	spec[AgentHandoffPayload](AgentHandoff, Both, InAccepted, needNone, ScopeSession, Plain, "§3.3").served().commanding(),

	spec[StreamOpenPayload](StreamOpen, Both, InAccepted, FeatureStreaming, ScopeSession|ScopeStream, Sequenced, "§3.4").served().commanding().repeatable().fromWorkers(),
	spec[StreamChunkPayload](StreamChunk, Both, InAccepted, FeatureStreaming, ScopeSession|ScopeStream, Sequenced, "§3.4").served().commanding().repeatable().fromWorkers(),
	spec[StreamClosePayload](StreamClose, Both, InAccepted, FeatureStreaming, ScopeSession|ScopeStream, Sequenced, "§3.4").served().commanding().repeatable().fromWorkers(),
	spec[ErrorPayload](StreamError, Both, InAccepted, FeatureStreaming, ScopeSession|ScopeStream, Sequenced, "§3.4").served().commanding().repeatable().fromWorkers(),

	spec[HumanInputRequestPayload](HumanInputRequest, Both, InAccepted, FeatureHumanInput, ScopeSession|ScopeJob, Sequenced, "§3.5").directed().fromWorkers().inDraft(needNone),
	spec[HumanInputResponsePayload](HumanInputResponse, Both, InAccepted, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.5").served(),
	spec[HumanChoiceRequestPayload](HumanChoiceRequest, Both, InAccepted, FeatureHumanInput, ScopeSession|ScopeJob, Sequenced, "§3.5").directed().fromWorkers().inDraft(needNone),
	spec[HumanChoiceResponsePayload](HumanChoiceResponse, Both, InAccepted, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.5").served(),
	spec[HumanInputCancelledPayload](HumanInputCancelled, FromRuntime, 0, FeatureHumanInput, ScopeSession|ScopeCorrelation, Sequenced, "§3.5").directed().inDraft(needNone),

	spec[PermissionRequestPayload](PermissionRequest, Both, InAccepted, needNone, ScopeSession, Sequenced, "§3.6").directed().served().commanding().fromWorkers().inDraft(needNone),
	spec[PermissionGrantPayload](PermissionGrant, Both, InAccepted, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.6").served().commanding(),
	spec[PermissionDenyPayload](PermissionDeny, Both, InAccepted, needNone, ScopeSession|ScopeCorrelation, Plain, "§3.6").served().commanding(),
	spec[LeaseGrantedPayload](LeaseGranted, FromRuntime, 0, needNone, ScopeSession|ScopeCorrelation, Sequenced, "§3.6").inDraft(needNone),
	spec[LeaseRefreshPayload](LeaseRefresh, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.6").served().commanding(),
	spec[LeaseExtendedPayload](LeaseExtended, FromRuntime, 0, needNone, ScopeSession|ScopeCorrelation, Sequenced, "§3.6").inDraft(needNone),
	spec[LeaseRevokedPayload](LeaseRevoked, Both, InAccepted, needNone, ScopeSession, Sequenced, "§3.6").served().inDraft(needNone),

	spec[SubscribePayload](Subscribe, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.7").served(),
	spec[SubscribeAcceptedPayload](SubscribeAccepted, FromRuntime, 0, needNone, ScopeSession|ScopeSubscription|ScopeCorrelation, Plain, "§3.7"),
	spec[SubscribeEventPayload](SubscribeEvent, FromRuntime, 0, needNone, ScopeSession|ScopeSubscription, Plain, "§3.7"),
	spec[UnsubscribePayload](Unsubscribe, Both, InAccepted, needNone, ScopeSession, Plain, "§3.7").served(),
	spec[SubscribeClosedPayload](SubscribeClosed, FromRuntime, 0, needNone, ScopeSession|ScopeSubscription, Plain, "§3.7"),

	spec[ArtifactPutPayload](ArtifactPut, Both, InAccepted, needNone, ScopeSession, Plain, "§3.8").served().commanding().fromWorkers(),
	spec[ArtifactRefPayload](ArtifactRef, FromRuntime, 0, needNone, ScopeSession, Sequenced, "§3.8").inDraft(needNone),
	spec[ArtifactFetchPayload](ArtifactFetch, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.8").served().fromWorkers(),
	spec[ArtifactReleasePayload](ArtifactRelease, FromClient, InAccepted, needNone, ScopeSession, Plain, "§3.8").served().commanding(),

	spec[EventEmitPayload](EventEmit, Both, InAccepted, needNone, ScopeSession, Sequenced, "§3.9").quiet().fromWorkers().inDraft(needNone),
	spec[LogPayload](Log, Both, InAccepted, needNone, ScopeSession, Sequenced, "§3.9").quiet().fromWorkers().inDraft(needNone),
	spec[MetricPayload](Metric, Both, InAccepted, needNone, ScopeSession, Sequenced, "§3.9").quiet().fromWorkers().inDraft(needNone),
	spec[TraceSpanPayload](TraceSpan, Both, InAccepted, needNone, ScopeSession, Sequenced, "§3.9").quiet().fromWorkers(),
}

var catalogIndex = func() map[Type]*Spec {
	m := make(map[Type]*Spec, len(Catalog))
	bit := TypeSet(1)
	for i := range Catalog {
		s := &Catalog[i]
		if s.Delivery == Sequenced {
			s.Bit, bit = bit, bit<<1
		}
		m[s.Type] = s
	}
	return m
}()

// Lookup returns the row of a type, or nil for an unknown type.
func Lookup(t Type) *Spec { return catalogIndex[t] }

// Directed is the set of the types that are sent to the addressed sessions only (§5.3).
var Directed = func() (set TypeSet) {
	for _, s := range catalogIndex { // not Catalog: the initializer of the index sets the bits
		if s.Directed {
			set |= s.Bit
		}
	}
	return set
}()

// Terminal reports whether t ends a job.
func (t Type) Terminal() bool {
	switch t {
	case JobCompleted, JobFailed, JobCancelled, WorkflowComplete, ToolResult, ToolError:
		return true
	}
	return false
}

// Visible returns the sequenced types that a session with the negotiated features receives. A type
// whose row needs a missing feature is hidden (§5.3).
func Visible(negotiated func(Feature) bool) TypeSet {
	var set TypeSet
	for i := range Catalog {
		if s := &Catalog[i]; s.Need == needNone || negotiated(s.Need) {
			set |= s.Bit
		}
	}
	if negotiated(FeatureMetrics) {
		set |= RuntimeMetrics
	}
	if negotiated(FeatureStreaming) {
		set |= DraftChunks
	}
	return set
}

// VisibleInDraft returns the sequenced types that a session of the draft dialect receives with the
// negotiated features. It has DraftChunks, but not stream.chunk.
func VisibleInDraft(negotiated func(Feature) bool) TypeSet {
	set := DraftChunks
	for i := range Catalog {
		if s := &Catalog[i]; s.Draft && (s.DraftNeed == needNone || negotiated(s.DraftNeed)) {
			set |= s.Bit
		}
	}
	return set
}

// Class is the kind of a type name, which may be unknown (§6.4).
type Class uint8

// The classes.
const (
	ClassCore         Class = iota // in the catalog
	ClassUnknownCore               // has the form of a core name, but is not in the catalog
	ClassExtension                 // a well-formed extension name
	ClassExperimental              // starts with x-
	ClassMalformed                 // any other name
)

var coreRoots = func() []string {
	var roots []string
	for i := range Catalog {
		root, _, _ := cutDot(string(Catalog[i].Type))
		if !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	return roots
}()
