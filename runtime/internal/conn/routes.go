package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// route calls the handler of a message that the machine has admitted.
func (c *conn) route(now time.Time, a machine.Admitted) {
	if a.Worker {
		c.worker.receive(now, a.Envelope)
		return
	}
	if err := routes[a.Envelope.Type](c, now, a.Envelope); err != nil {
		c.reportIncident(machine.Incident{Reason: arcp.ReasonPayload, Type: a.Envelope.Type, Detail: err.Error()})
		c.nack(now, a.Envelope.ID, arcp.PayloadError(a.Envelope.Type, err))
	}
}

// handler handles an admitted message of one type. An error refuses the message as a bad payload;
// the handler itself sends any other answer.
type handler func(c *conn, now time.Time, env *arcp.Envelope) error

// routes has the handler of each type that clients send and the machine does not handle itself
// (machine.Handles).
var routes = map[arcp.Type]handler{
	arcp.SessionAck:      on(ackOf, (*ackWindow).handleAck),
	arcp.SessionListJobs: on(commandsOf, (*commands).listJobs),
	arcp.Resume:          on(ackOf, (*ackWindow).handleResume),

	arcp.ToolInvoke:        func(c *conn, now time.Time, env *arcp.Envelope) error { return c.commands.invoke(now, env) },
	arcp.Cancel:            on(commandsOf, (*commands).cancel),
	arcp.Interrupt:         on(commandsOf, (*commands).interrupt),
	arcp.CheckpointCreate:  on(commandsOf, (*commands).createCheckpoint),
	arcp.CheckpointRestore: on(commandsOf, (*commands).restoreCheckpoint),
	arcp.JobSubscribe:      on(followsOf, (*follows).subscribe),
	arcp.JobUnsubscribe:    on(followsOf, (*follows).unsubscribe),

	arcp.HumanInputResponse:  onAnswer(inputAnswer),
	arcp.HumanChoiceResponse: onAnswer(choiceAnswer),
	arcp.PermissionRequest:   on(commandsOf, (*commands).elevate),
	arcp.PermissionGrant:     onAnswer(grantAnswer),
	arcp.PermissionDeny:      onAnswer(denyAnswer),
	arcp.LeaseRefresh:        on(commandsOf, (*commands).extendLease),
	arcp.LeaseRevoked:        on(commandsOf, (*commands).revokeLease),

	arcp.Subscribe:    on(subscriptionsOf, (*subscriptions).subscribe),
	arcp.Unsubscribe:  on(subscriptionsOf, (*subscriptions).unsubscribe),
	arcp.Backpressure: on(subscriptionsOf, (*subscriptions).backpressure),
}

// on makes a handler of a method of a part of the connection that takes the decoded payload. A
// payload that cannot be decoded, or lacks a required member, is an error.
func on[T, P any](part func(*conn) *T, h func(*T, time.Time, *arcp.Envelope, *P) error) handler {
	return func(c *conn, now time.Time, env *arcp.Envelope) error {
		p, err := arcp.DecodeComplete[P](env)
		if err != nil {
			return err
		}
		return h(part(c), now, env, &p)
	}
}

func ackOf(c *conn) *ackWindow               { return &c.ack }
func commandsOf(c *conn) *commands           { return &c.commands }
func followsOf(c *conn) *follows             { return &c.follows }
func subscriptionsOf(c *conn) *subscriptions { return &c.subscriptions }

// invalid returns the error of a handler for a payload that decodes and is not valid.
func invalid(format string, args ...any) error {
	return arcp.Errorf(arcp.CodeInvalidRequest, format, args...)
}

// refuseID refuses a message because of an identifier in its payload.
func (c *conn) refuseID(now time.Time, env *arcp.Envelope, member, prefix string) {
	c.reportIncident(machine.Incident{Reason: arcp.ReasonBadID, Type: env.Type})
	c.nack(now, env.ID, arcp.Errorf(arcp.CodeInvalidArgument, "%s must start with %s", member, prefix))
}
