package conn

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/builtin"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// principal is the authenticated identity of the client, with what is derived from it.
type principal struct {
	identity  auth.Identity
	mayDo     *lease.Lease // of the principal's jobs at most, from mayDoText; see limit
	mayDoText []byte
	roles     []string // see roleNames
}

// trust is how much the session is trusted now.
func (c *conn) trust() string { return c.session.Trust(c.principal.identity.Trust) }

// limit returns the lease that bounds the principal's jobs; nil: none is configured. A lease
// that cannot be decoded allows nothing.
func (c *conn) limit() *lease.Lease {
	if len(c.principal.identity.Lease) == 0 {
		return nil
	}
	if !bytes.Equal(c.principal.mayDoText, c.principal.identity.Lease) {
		l, err := lease.Decode(c.principal.identity.Lease)
		if err != nil {
			c.srv.opts.Logger.Error().Err(err).Str("principal", c.principal.identity.Principal).Msg("the lease of a principal cannot be read: its jobs may do nothing")
			l = lease.Nothing()
		}
		c.principal.mayDoText, c.principal.mayDo = c.principal.identity.Lease, l
	}
	return c.principal.mayDo
}

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
	case c.session.Elevating(env.ID): // over an earlier connection: the answer is still to come, or in the log
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
		c.complete(func(time.Time) { c.elevateAgain(env.ID, level, job) })
	})
	return nil
}

// elevateAgain answers a request that was made before, over another connection,
// if it was denied while there was none. A lease that was granted is in the log,
// and while nothing is decided the job has yet to answer.
func (c *conn) elevateAgain(request arcp.MessageID, level string, id arcp.JobID) {
	c.async(func() {
		reason, err := c.srv.opts.Builtin.ElevationDenied(context.Background(), id)
		c.complete(func(now time.Time) { c.tellElevation(now, request, level, id, reason, err) })
	})
}

func (c *conn) tellElevation(now time.Time, request arcp.MessageID, level string, id arcp.JobID, reason string, err error) {
	switch {
	case err != nil:
		c.srv.opts.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read elevation")
		c.nack(now, request, arcp.Errorf(arcp.CodeUnavailable, "what became of the request cannot be read"))
	case reason != "":
		c.reply(now, request, arcp.PermissionDeny, builtin.Denial(level, reason))
	}
}
