package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// handler handles an admitted message of one type. An error refuses the message as a bad
// payload.
type handler func(c *conn, now time.Time, env *arcp.Envelope) error

// routes has the one handler of each type that the machine admits and does not handle itself.
var routes = map[arcp.Type]handler{
	arcp.SessionAck:      of(ackOf, (*ackWindow).receive),
	arcp.SessionListJobs: on((*conn).listJobs),
	arcp.Resume:          of(ackOf, (*ackWindow).resume),

	arcp.ToolInvoke:        (*conn).invoke,
	arcp.Cancel:            on((*conn).cancel),
	arcp.Interrupt:         on((*conn).interrupt),
	arcp.CheckpointCreate:  on((*conn).createCheckpoint),
	arcp.CheckpointRestore: on((*conn).restoreCheckpoint),
	arcp.JobSubscribe:      of(followsOf, (*follows).subscribe),
	arcp.JobUnsubscribe:    of(followsOf, (*follows).unsubscribe),

	arcp.HumanInputResponse:  responding(inputAnswer),
	arcp.HumanChoiceResponse: responding(choiceAnswer),
	arcp.PermissionRequest:   on((*conn).elevate),
	arcp.PermissionGrant:     responding(grantAnswer),
	arcp.PermissionDeny:      responding(denyAnswer),
	arcp.LeaseRefresh:        on((*conn).extendLease),
	arcp.LeaseRevoked:        on((*conn).revokeLease),

	arcp.Subscribe:    of(subscriptionsOf, (*subscriptions).open),
	arcp.Unsubscribe:  of(subscriptionsOf, (*subscriptions).unsubscribe),
	arcp.Backpressure: of(subscriptionsOf, (*subscriptions).backpressure),
}

// on makes a handler of a function of the decoded payload. A payload that cannot be decoded,
// or lacks a required member, is an error.
func on[P any](h func(*conn, time.Time, *arcp.Envelope, *P) error) handler {
	return func(c *conn, now time.Time, env *arcp.Envelope) error {
		p, err := arcp.DecodeComplete[P](env)
		if err != nil {
			return err
		}
		return h(c, now, env, &p)
	}
}

// of is on for a part of the connection that has the state of the handler.
func of[T, P any](part func(*conn) *T, h func(*T, time.Time, *arcp.Envelope, *P) error) handler {
	return on(func(c *conn, now time.Time, env *arcp.Envelope, p *P) error { return h(part(c), now, env, p) })
}

func ackOf(c *conn) *ackWindow               { return &c.ack }
func followsOf(c *conn) *follows             { return &c.follows }
func subscriptionsOf(c *conn) *subscriptions { return &c.subscriptions }

// handle handles a message that the machine has admitted.
func (c *conn) handle(now time.Time, a machine.Admitted) {
	if a.Worker {
		c.worker.receive(now, a.Envelope)
		return
	}
	if err := routes[a.Envelope.Type](c, now, a.Envelope); err != nil {
		c.note(machine.Incident{Reason: arcp.ReasonPayload, Type: a.Envelope.Type, Detail: err.Error()})
		c.nack(now, a.Envelope.ID, arcp.PayloadError(a.Envelope.Type, err))
	}
}

// invalid is the error of a payload that decodes and is not valid.
func invalid(format string, args ...any) error {
	return arcp.Errorf(arcp.CodeInvalidRequest, format, args...)
}

// badID refuses a message because of an identifier in its payload.
func (c *conn) badID(now time.Time, env *arcp.Envelope, member, prefix string) {
	c.note(machine.Incident{Reason: arcp.ReasonBadID, Type: env.Type})
	c.nack(now, env.ID, arcp.Errorf(arcp.CodeInvalidArgument, "%s must start with %s", member, prefix))
}
