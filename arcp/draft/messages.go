package draft

import (
	"reflect"

	"github.com/arcpd/arcpd/arcp"
)

// Type names a message type of the draft dialect.
type Type string

// The message types.
const (
	SessionHello    Type = "session.hello"
	SessionResume   Type = "session.resume"
	SessionWelcome  Type = "session.welcome"
	SessionError    Type = "session.error"
	SessionPing     Type = "session.ping"
	SessionPong     Type = "session.pong"
	SessionAck      Type = "session.ack"
	SessionListJobs Type = "session.list_jobs"
	SessionJobs     Type = "session.jobs"
	SessionClose    Type = "session.close"
	SessionBye      Type = "session.bye"
	SessionClosed   Type = "session.closed"

	JobSubmit      Type = "job.submit"
	JobAccepted    Type = "job.accepted"
	JobEvent       Type = "job.event"
	JobResult      Type = "job.result"
	JobError       Type = "job.error"
	JobCancel      Type = "job.cancel"
	JobCancelled   Type = "job.cancelled"
	JobSubscribe   Type = "job.subscribe"
	JobSubscribed  Type = "job.subscribed"
	JobUnsubscribe Type = "job.unsubscribe"

	Nack           Type = "nack"            // of the PHP library only
	SubscribeEvent Type = "subscribe.event" // of the PHP library only
)

// Message is a row of Messages.
type Message struct {
	Type    Type
	From    arcp.Direction
	Phase   arcp.Phase // when a client may send it; 0: never
	Section string     // of draft 1.1; empty: the draft does not have the type
	payload reflect.Type
	request requestKind
	decode  func(env *arcp.Envelope, r *request) error // of the types that a client may send
}

// NewPayload returns a pointer to a zero payload of the type.
func (m *Message) NewPayload() any { return reflect.New(m.payload).Interface() }

func message[P any](t Type, from arcp.Direction, phase arcp.Phase, section string) Message {
	return Message{Type: t, From: from, Phase: phase, Section: section, payload: reflect.TypeFor[P]()}
}

// decoded adds how a frame of a client is decoded.
func (m Message) decoded(request requestKind, decode func(env *arcp.Envelope, r *request) error) Message {
	m.request, m.decode = request, decode
	return m
}

// Messages lists every message type. It must not be changed.
var Messages = []Message{
	message[HelloPayload](SessionHello, arcp.FromClient, arcp.InOpening, "§6.2").decoded(requestOpen, decodeHello),
	message[ResumePayload](SessionResume, arcp.FromClient, arcp.InOpening, "§6.3").decoded(requestResume, decodeResume),
	message[WelcomePayload](SessionWelcome, arcp.FromRuntime, 0, "§6.2"),
	message[ErrorPayload](SessionError, arcp.FromRuntime, 0, ""),
	message[PingPayload](SessionPing, arcp.Both, arcp.InAccepted, "§6.4").decoded(requestOther, decodePing),
	message[PongPayload](SessionPong, arcp.Both, arcp.InAccepted, "§6.4").decoded(requestOther, decodePong),
	message[AckPayload](SessionAck, arcp.FromClient, arcp.InAccepted, "§6.5").decoded(requestOther, decodeAck),
	message[ListJobsPayload](SessionListJobs, arcp.FromClient, arcp.InAccepted, "§6.6").decoded(requestList, decodeListJobs),
	message[JobsPayload](SessionJobs, arcp.FromRuntime, 0, "§6.6"),
	message[ClosePayload](SessionClose, arcp.FromClient, arcp.InAccepted, "§6.7").decoded(requestClose, decodeClose),
	message[ClosePayload](SessionBye, arcp.Both, arcp.InAccepted, "").decoded(requestClose, decodeClose),
	message[ClosedPayload](SessionClosed, arcp.FromRuntime, 0, "§6.7"),

	message[SubmitPayload](JobSubmit, arcp.FromClient, arcp.InAccepted, "§7.1").decoded(requestSubmit, decodeSubmit),
	message[AcceptedPayload](JobAccepted, arcp.FromRuntime, 0, "§7.1"),
	message[EventPayload](JobEvent, arcp.FromRuntime, 0, "§8.1"),
	message[ResultPayload](JobResult, arcp.FromRuntime, 0, "§8.4"),
	message[ErrorPayload](JobError, arcp.FromRuntime, 0, "§12"),
	message[CancelPayload](JobCancel, arcp.FromClient, arcp.InAccepted, "§7.4").decoded(requestCancel, decodeCancel),
	message[CancelledPayload](JobCancelled, arcp.FromRuntime, 0, "§7.4"),
	message[SubscribePayload](JobSubscribe, arcp.FromClient, arcp.InAccepted, "§7.6").decoded(requestSubscribe, decodeSubscribe),
	message[SubscribedPayload](JobSubscribed, arcp.FromRuntime, 0, "§7.6"),
	message[UnsubscribePayload](JobUnsubscribe, arcp.FromClient, arcp.InAccepted, "§7.6").decoded(requestUnsubscribe, decodeUnsubscribe),

	message[ErrorPayload](Nack, arcp.FromRuntime, 0, ""),
	message[SubscribeEventPayload](SubscribeEvent, arcp.FromRuntime, 0, ""),
}

var messageIndex = func() map[Type]*Message {
	m := make(map[Type]*Message, len(Messages))
	for i := range Messages {
		m[Messages[i].Type] = &Messages[i]
	}
	return m
}()

// Lookup returns the row of a type, or nil.
func Lookup(t Type) *Message { return messageIndex[t] }

// The features of draft 1.1 (§6.2). Those that package arcp has under another name are
// arcp.FeatureSubscriptions and arcp.FeatureModelUse.
const (
	FeatureListJobs       arcp.Feature = "list_jobs"
	FeatureSubscribe      arcp.Feature = "subscribe"
	FeatureAgentVersions  arcp.Feature = "agent_versions"
	FeatureLeaseExpiresAt arcp.Feature = "lease_expires_at"
	FeatureCostBudget     arcp.Feature = "cost.budget"
	FeatureModelUse       arcp.Feature = "model.use"
)

// Features lists all features of draft 1.1.
var Features = []arcp.Feature{
	arcp.FeatureHeartbeat, arcp.FeatureAck, FeatureListJobs, FeatureSubscribe, FeatureAgentVersions, FeatureLeaseExpiresAt,
	FeatureCostBudget, FeatureModelUse, arcp.FeatureProvisionedCredentials, arcp.FeatureProgress, arcp.FeatureResultChunk,
}
