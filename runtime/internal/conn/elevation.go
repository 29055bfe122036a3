package conn

import (
	"context"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/builtin"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// elevationPrefix is the prefix of the permissions that a client may request; a trust level
// follows.
const elevationPrefix = "trust.elevate."

// elevate handles permission.request: it submits a job of the runtime that asks an approver for a
// higher trust level of the session. The answer is lease.granted or permission.deny.
func (cm *commands) elevate(now time.Time, env *arcp.Envelope, p *arcp.PermissionRequestPayload) error {
	c := cm.c
	name, ok := strings.CutPrefix(p.Permission, elevationPrefix)
	level := arcp.TrustLevel(name)
	switch {
	case !ok:
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeUnimplemented,
			"a client may ask for %s<level> only; other permissions are asked for by jobs", elevationPrefix))
		return nil
	case p.Resource != "session" || p.Operation != "elevate":
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeInvalidArgument, "%s has the resource session and the operation elevate", p.Permission))
		return nil
	case level.Rank() <= 0:
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeInvalidArgument, "%q is no level of trust", level))
		return nil
	case c.principal.identity.Anonymous:
		c.principal.audit("elevate").Str("target", name).Str("decision", "denied").Str("reason", "anonymous").Msg("audit")
		c.nack(now, env.ID, arcp.Errorf(arcp.CodePermissionDenied, "an anonymous session stays untrusted"))
		return nil
	case c.session.Elevating(env.ID): // requested on an earlier connection: the answer follows, or is in the log
		return nil
	case level.Rank() <= c.principal.trust().Rank():
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeFailedPrecondition, "the session is trusted as %s already", c.principal.trust()))
		return nil
	}
	if err := c.srv.opts.Questions.CheckRoom(c.principal.identity.Principal); err != nil {
		c.nack(now, env.ID, err)
		return nil
	}
	c.principal.audit("elevate").Str("target", name).Str("decision", "asked").Msg("audit")
	in := builtin.Elevation{Session: c.id, Request: env.ID, Level: level, Reason: machine.ClipReason(p.Reason)}
	if p.RequestedLeaseSeconds != nil {
		in.Seconds = *p.RequestedLeaseSeconds
	}
	c.srv.opts.Builtin.SubmitElevation(c.principal.identity.Principal, in, func(err *arcp.Error) {
		c.inbox.runOnLoop(func(now time.Time) { c.nack(now, env.ID, err) })
	}, func(job arcp.JobID) {
		c.inbox.runOnLoop(func(time.Time) { repeatedElevation{c: c, request: env.ID, level: level, job: job}.read() })
	})
	return nil
}

// repeatedElevation is a permission.request that the client has sent before, on another connection.
type repeatedElevation struct {
	c       *conn
	request arcp.MessageID
	level   arcp.TrustLevel
	job     arcp.JobID // that asks for the level
}

// read answers the request if it was denied while the session had no connection. A grant is in the
// session's log. An undecided request is answered by its job later.
func (r repeatedElevation) read() {
	r.c.tasks.backgroundThenLoop(func(ctx context.Context) func(time.Time) {
		reason, err := r.c.srv.opts.Builtin.ElevationDenied(ctx, r.job)
		return func(now time.Time) { r.answer(now, reason, err) }
	})
}

func (r repeatedElevation) answer(now time.Time, reason string, err error) {
	switch {
	case err != nil:
		r.c.srv.opts.Logger.Error().Err(err).Str("job_id", string(r.job)).Msg("read elevation")
		r.c.nack(now, r.request, arcp.Errorf(arcp.CodeUnavailable, "what became of the request cannot be read"))
	case reason != "":
		r.c.reply(now, r.request, arcp.PermissionDeny, builtin.Denial(r.level, reason))
	}
}
