package conn

import (
	"context"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/builtin"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// elevationPrefix begins the names of the permissions that a client may ask for.
const elevationPrefix = "trust.elevate."

// elevate submits a job of the runtime that asks for a higher trust level of the session. The
// answer is lease.granted or permission.deny.
func (c *conn) elevate(now time.Time, env *arcp.Envelope, p *arcp.PermissionRequestPayload) error {
	level, ok := strings.CutPrefix(p.Permission, elevationPrefix)
	rank := session.TrustRank(level)
	switch {
	case !ok:
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeUnimplemented, "a client may ask for %s<level> only; other permissions are asked for by jobs", elevationPrefix))
		return nil
	case p.Resource != "session" || p.Operation != "elevate":
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeInvalidArgument, "%s has the resource session and the operation elevate", p.Permission))
		return nil
	case rank <= 0:
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeInvalidArgument, "%q is no level of trust", level))
		return nil
	case c.principal.identity.Anonymous:
		c.audit("elevate").Str("target", level).Str("decision", "denied").Str("reason", "anonymous").Msg("audit")
		c.nack(now, env.ID, arcp.Errorf(arcp.CodePermissionDenied, "an anonymous session stays untrusted"))
		return nil
	case c.session.Elevating(env.ID): // on an earlier connection: the answer is to come, or in the log
		return nil
	case rank <= session.TrustRank(c.trust()):
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeFailedPrecondition, "the session is trusted as %s already", c.trust()))
		return nil
	}
	if err := c.srv.opts.Questions.Room(c.principal.identity.Principal); err != nil {
		c.nack(now, env.ID, err)
		return nil
	}
	c.audit("elevate").Str("target", level).Str("decision", "asked").Msg("audit")
	in := builtin.Elevation{Session: c.id, Request: env.ID, Level: level, Reason: machine.ClipReason(p.Reason)}
	if p.RequestedLeaseSeconds != nil {
		in.Seconds = *p.RequestedLeaseSeconds
	}
	c.srv.opts.Builtin.SubmitElevation(c.principal.identity.Principal, in, func(err *arcp.Error) {
		c.complete(func(now time.Time) { c.nack(now, env.ID, err) })
	}, func(job arcp.JobID) {
		c.complete(func(time.Time) { c.repeatElevation(env.ID, level, job) })
	})
	return nil
}

// repeatElevation answers a request that was first sent on another connection, if it was denied
// while there was no connection. A lease that was granted is in the log. While nothing is
// decided, the job has yet to answer.
func (c *conn) repeatElevation(request arcp.MessageID, level string, id arcp.JobID) {
	c.tasks.async(func() {
		reason, err := c.srv.opts.Builtin.ElevationDenied(context.Background(), id)
		c.complete(func(now time.Time) { c.answerElevation(now, request, level, id, reason, err) })
	})
}

// answerElevation completes repeatElevation.
func (c *conn) answerElevation(now time.Time, request arcp.MessageID, level string, id arcp.JobID, reason string, err error) {
	switch {
	case err != nil:
		c.srv.opts.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read elevation")
		c.nack(now, request, arcp.Errorf(arcp.CodeUnavailable, "what became of the request cannot be read"))
	case reason != "":
		c.reply(now, request, arcp.PermissionDeny, builtin.Denial(level, reason))
	}
}
