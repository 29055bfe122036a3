package conformance

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// message is a valid message of a client. The job, the stream and the other things that it names do not exist.
type message struct {
	typ     arcp.Type
	payload any
	with    func(*arcp.Envelope) // nil: no other members
}

// moreMessages has messages of types that are neither in gated nor in answered.
var moreMessages = []message{
	{arcp.Ping, arcp.PingPayload{Nonce: "n"}, nil},
	{arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "no.such.tool", Arguments: arcp.Raw(`{}`)}, nil},
	{arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: unknownJob}, nil},
	{arcp.SessionListJobs, arcp.SessionListJobsPayload{}, nil},
	{arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: unknownJob}, nil},
}

// answeredMessages returns a message of each type that a server answers.
func answeredMessages() []message {
	list := slices.Clone(moreMessages)
	for _, g := range gated {
		list = append(list, message{g.typ, g.payload, g.with})
	}
	for _, a := range answered {
		list = append(list, message(a))
	}
	return list
}

// messageOf returns the message of a type. Types without an answer have an empty payload.
func messageOf(spec *arcp.Spec) message {
	for _, m := range answeredMessages() {
		if m.typ == spec.Type {
			return m
		}
	}
	return message{spec.Type, spec.NewPayload(), fillScope(spec)}
}

// refusals are the types of frames that refuse a message before there is a session.
var refusals = []arcp.Type{arcp.Nack, arcp.SessionRejected, arcp.SessionUnauthenticated}

// messageEarly sends a message before session.open. A server may refuse it, drop it or hang up.
func messageEarly(t *checkRun, m message) {
	c := t.Dial()
	c.opensAfter([]arcp.MessageID{c.sendWith(m.typ, m.payload, m.with)})
}

// opensAfter sends session.open after messages that came too early, which the server must not perform. It reports whether
// the session is accepted.
func (c *checkConn) opensAfter(early []arcp.MessageID) bool {
	c.Send(arcp.SessionOpen, c.t.openPayload())
	for {
		f := c.tryNext()
		if f == nil || f.Type == arcp.SessionAccepted {
			return f != nil
		}
		about := f.CorrelationID == "" || slices.Contains(early, f.CorrelationID)
		c.t.Want("nothing is performed before the session is accepted", !about || slices.Contains(refusals, f.Type), "got %s", f)
	}
}

func messageWithoutID(t *checkRun, m message) {
	c := t.Open()
	c.sendWith(m.typ, m.payload, both(m.with, func(env *arcp.Envelope) { env.ID = "" }))
	c.ExpectNothing("there is no id to answer to")
}

func messageWithoutObject(t *checkRun, m message) {
	c := t.Open()
	for _, payload := range []arcp.Raw{arcp.Raw(`[]`), arcp.Raw(`"text"`), arcp.Raw(`1`)} {
		id := c.sendWith(m.typ, payload, m.with)
		c.ExpectNack("a payload is an object", id, arcp.CodeInvalidRequest)
	}
}

// messageNewer sends a message with and without unknown members, and compares the two answers.
func messageNewer(t *checkRun, m message) {
	c := t.Open()
	plain := c.Answer("a command is answered", c.sendWith(m.typ, m.payload, m.with))
	c = t.Open()
	env := c.envelope(m.typ, m.payload)
	if m.with != nil {
		m.with(&env)
	}
	env.Payload = withMember(env.Payload)
	c.recordSent(&env)
	c.write(withMember(env.Append(nil)))
	newer := c.Answer("a command with unknown members is answered", env.ID)
	want(t, "the answer has the same type", newer.Type, plain.Type)
	want(t, "the answer has the same code", newer.errorCode(), plain.errorCode())
}

// withMember adds a member to an object.
func withMember(object arcp.Raw) arcp.Raw {
	const unknown = `{"x_conformance_unknown":{"a":[1]}`
	if string(object) == "{}" {
		return arcp.Raw(unknown + "}")
	}
	return append(arcp.Raw(unknown+","), object[1:]...)
}

// both returns a function that calls the functions that are not nil.
func both(fs ...func(*arcp.Envelope)) func(*arcp.Envelope) {
	return func(env *arcp.Envelope) {
		for _, f := range fs {
			if f != nil {
				f(env)
			}
		}
	}
}
