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
// (machine.Handles). Each part of the connection lists its types.
var routes = joinRoutes(commandRoutes, authorityRoutes, ackRoutes, followRoutes, subscriptionRoutes, artifactRoutes, clientStreamRoutes)

func joinRoutes(parts ...map[arcp.Type]handler) map[arcp.Type]handler {
	all := make(map[arcp.Type]handler)
	for _, part := range parts {
		for t, h := range part {
			if all[t] != nil {
				panic("conn: two handlers of " + string(t))
			}
			all[t] = h
		}
	}
	return all
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

// errInvalid returns the error of a handler for a payload that decodes and is not valid.
func errInvalid(format string, args ...any) error {
	return arcp.Errorf(arcp.CodeInvalidRequest, format, args...)
}

// refuseID refuses a message because of an identifier in its payload.
func (c *conn) refuseID(now time.Time, env *arcp.Envelope, member, prefix string) {
	c.reportIncident(machine.Incident{Reason: arcp.ReasonBadID, Type: env.Type})
	c.nack(now, env.ID, arcp.Errorf(arcp.CodeInvalidArgument, "%s must start with %s", member, prefix))
}
