package script

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// Dialect has the message types and the forms of frames of one dialect of the protocol.
type Dialect struct {
	open     arcp.Type // opens a session
	accepted arcp.Type // answers open
	resumed  arcp.Type // answers a resume
	ping     arcp.Type
	pong     arcp.Type
	final    []arcp.Type // end a job
	refusals []arcp.Type // end the wait for the answer to a message

	correlated bool // an answer has the correlation_id of its request
	timestamps bool // every message has a timestamp
	newID      func() string
	members    map[string]Value // that every message has
	decode     func(frame []byte) (arcp.Envelope, error)
	verbs      map[string]func(a *action) (Value, error) // steps that differ from those in verbs
	barrier    Barrier
}

// RFC returns the dialect that opens with session.open.
func RFC() *Dialect { return &rfc }

var rfc = Dialect{
	open: arcp.SessionOpen, accepted: arcp.SessionAccepted, resumed: arcp.SessionResumed,
	ping: arcp.Ping, pong: arcp.Pong,
	final:      terminalTypes(),
	refusals:   append(terminalTypes(), answers...),
	correlated: true, timestamps: true,
	newID:  func() string { return string(arcp.NewMessageID()) },
	decode: looselyAfter(arcp.Decode),
}

// answers are types that a message is answered with once, and that are no events of a job.
var answers = []arcp.Type{arcp.Nack, arcp.Ack, arcp.CancelAccepted, arcp.CancelRefused, arcp.SubscribeAccepted, arcp.JobSubscribed, arcp.SessionJobs,
	arcp.ArtifactPut, arcp.LeaseGranted, arcp.LeaseExtended, arcp.HumanInputResponse, arcp.HumanChoiceResponse}

func terminalTypes() (types []arcp.Type) {
	for i := range arcp.Catalog {
		if t := arcp.Catalog[i].Type; t.Terminal() {
			types = append(types, t)
		}
	}
	return types
}

// Types of the draft dialect that the RFC does not have.
const (
	SessionHello   arcp.Type = "session.hello"
	SessionWelcome arcp.Type = "session.welcome"
	SessionError   arcp.Type = "session.error"
	SessionBye     arcp.Type = "session.bye"
	JobSubmit      arcp.Type = "job.submit"
	JobEvent       arcp.Type = "job.event"
	JobResult      arcp.Type = "job.result"
	JobError       arcp.Type = "job.error"
	JobCancel      arcp.Type = "job.cancel"
)

// Draft returns the dialect that opens with session.hello. Every message has an id from newID, and
// the members.
func Draft(newID func() string, members map[string]Value) *Dialect {
	return &Dialect{
		open: SessionHello, accepted: SessionWelcome, resumed: SessionWelcome,
		ping: arcp.SessionPing, pong: arcp.SessionPong,
		final:    []arcp.Type{JobResult, JobError},
		refusals: []arcp.Type{JobError, SessionError, arcp.Nack},
		newID:    newID, members: members,
		decode: looselyAfter(arcp.DecodeDraftFromRuntime), barrier: ByNonce,
		verbs: draftVerbs,
	}
}

// isFinal reports whether the frame is the last event of a job.
func (d *Dialect) isFinal(f *frame) bool { return slices.Contains(d.final, f.Type) }
