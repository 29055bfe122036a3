package runtime

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/tool"
)

// trust is how much the session is trusted now.
func (c *conn) trust() string { return c.session.Trust(c.identity.Trust) }

// limit is what the principal's jobs may do at most; nil: it is not said. A
// configuration that cannot be read allows nothing.
func (c *conn) limit() *lease.Lease {
	if len(c.identity.Lease) == 0 {
		return nil
	}
	if !bytes.Equal(c.mayDoText, c.identity.Lease) {
		l, err := lease.Decode(c.identity.Lease)
		if err != nil {
			c.log.Error().Err(err).Str("principal", c.identity.Principal).Msg("the lease of a principal cannot be read: its jobs may do nothing")
			l = lease.Nothing()
		}
		c.mayDoText, c.mayDo = c.identity.Lease, l
	}
	return c.mayDo
}

// CheckLease says what is wrong with the lease of a principal.
func CheckLease(raw []byte) error {
	_, err := lease.Decode(raw)
	return err
}

// elevateIn are the arguments of approval.elevate.
type elevateIn struct {
	Session arcp.SessionID `json:"session_id" jsonschema:"description=set by the runtime"`
	Request arcp.MessageID `json:"request_id" jsonschema:"description=set by the runtime"`
	Level   string         `json:"level" jsonschema:"description=of trust"`
	Reason  string         `json:"reason,omitzero" jsonschema:"description=for who decides,maxLength=16384"`
	Seconds uint64         `json:"seconds,omitzero" jsonschema:"description=how long"`
}

// elevate has a job of the runtime's own ask for the session to be trusted more.
// It is answered with lease.granted, or permission.deny.
func (c *conn) elevate(now time.Time, cmd machine.Elevate) {
	rank := session.TrustRank(cmd.Level)
	switch {
	case rank <= 0:
		c.nack(now, cmd.Request, arcp.Errorf(arcp.CodeInvalidArgument, "%q is no level of trust", cmd.Level))
		return
	case c.identity.Anonymous:
		c.audit("elevate").Str("target", cmd.Level).Str("decision", "denied").Str("reason", "anonymous").Msg("audit")
		c.nack(now, cmd.Request, arcp.Errorf(arcp.CodePermissionDenied, "an anonymous session stays untrusted"))
		return
	case c.session.Elevating(cmd.Request): // over an earlier connection: the answer is still to come, or in the log
		return
	case rank <= session.TrustRank(c.trust()):
		c.nack(now, cmd.Request, arcp.Errorf(arcp.CodeFailedPrecondition, "the session is trusted as %s already", c.trust()))
		return
	}
	if err := c.rt.questions.Room(c.identity.Principal); err != nil {
		c.nack(now, cmd.Request, err)
		return
	}
	in := elevateIn{Session: c.id, Request: cmd.Request, Level: cmd.Level, Reason: cmd.Reason, Seconds: cmd.Seconds}
	args, err := arcp.Marshal(in)
	if err != nil { // strings of a frame, and numbers
		panic("runtime: " + err.Error())
	}
	c.audit("elevate").Str("target", cmd.Level).Str("decision", "asked").Msg("audit")
	key := "elevate/" + string(c.id) + "/" + string(cmd.Request)
	c.rt.submitOwn(c.identity.Principal, "approval.elevate", args, key, func(err *arcp.Error) {
		c.post(func(now time.Time) { c.nack(now, cmd.Request, err) })
	}, func(job arcp.JobID) {
		c.post(func(time.Time) { c.elevateAgain(cmd, job) })
	})
}

// elevateAgain answers a request that was made before, over another connection,
// if it was denied while there was none. A lease that was granted is in the log,
// and while nothing is decided the job has yet to answer.
func (c *conn) elevateAgain(cmd machine.Elevate, id arcp.JobID) {
	c.async(func() {
		reason, err := c.rt.elevationDenied(context.Background(), id)
		c.post(func(now time.Time) { c.tellElevation(now, cmd, id, reason, err) })
	})
}

func (c *conn) tellElevation(now time.Time, cmd machine.Elevate, id arcp.JobID, reason string, err error) {
	switch {
	case err != nil:
		c.log.Error().Err(err).Str("job_id", string(id)).Msg("read elevation")
		c.nack(now, cmd.Request, arcp.Errorf(arcp.CodeUnavailable, "what became of the request cannot be read"))
	case reason != "":
		c.reply(now, cmd.Request, arcp.PermissionDeny, denial(cmd.Level, reason))
	}
}

// elevationDenied is why the job of an elevation ended without one; empty: it has
// not, or there was one.
func (r *Runtime) elevationDenied(ctx context.Context, id arcp.JobID) (string, error) {
	j, err := r.cfg.Store.Job(ctx, id)
	if err != nil || !j.State.Terminal() {
		return "", err
	}
	if j.State != arcp.StateCompleted {
		return elevationWithdrawn, nil
	}
	raw, err := r.jobs.Outcome(ctx, &j)
	if err != nil {
		return "", err
	}
	env := arcp.Envelope{Payload: raw}
	done, err := arcp.DecodePayload[arcp.JobCompletedPayload](&env)
	if err != nil {
		return "", err
	}
	env.Payload = done.Value
	o, err := arcp.DecodePayload[arcp.OutcomeView](&env)
	if err != nil || o.Outcome == arcp.OutcomeApproved {
		return "", err
	}
	return deniedReason(o.Approval.Status, o.Approval.Reason), nil
}

const elevationWithdrawn = "nobody could be asked, or the question was withdrawn"

func denial(level, reason string) arcp.PermissionDenyPayload {
	return arcp.PermissionDenyPayload{Permission: elevationOf(level), Reason: reason}
}

// elevationOf is the permission that a level of trust is.
func elevationOf(level string) string { return "trust.elevate." + level }

// elevateJob asks for an elevation and, if it is given, holds it until its lease
// ends. It goes on after a restart.
func (r *Runtime) elevateJob(ctx context.Context, job tool.Job, in elevateIn) (arcp.OutcomeView, error) {
	gates, ok := job.(engine.Gates)
	if !ok || gates.Session() != "" {
		return arcp.OutcomeView{}, arcp.Errorf(arcp.CodePermissionDenied, "only the runtime calls this: send permission.request with trust.elevate.%s", in.Level)
	}
	permission := elevationOf(in.Level)
	holds := func() bool { return gates.Holds(permission, "session", "elevate") }
	defer r.announceTo(in.Session)
	if s := r.sessions.Find(in.Session); s != nil {
		defer s.Elevate(&session.Elevation{Level: in.Level, Request: in.Request, Holds: holds})() // before anybody is told
	}
	row, err := gates.Gate(ctx, approval.Row{System: true, Action: "trust session " + string(in.Session) + " as " + in.Level,
		Details: reasonOf(in.Reason), Barred: []arcp.SessionID{in.Session}}, 0)
	if err != nil {
		if !errors.Is(context.Cause(ctx), engine.ErrStopping) { // it does not go on
			r.tell(in.Session, in.Request, arcp.PermissionDeny, denial(in.Level, elevationWithdrawn))
		}
		return arcp.OutcomeView{}, err
	}
	decided := func() {
		r.audit.Event("elevate", row.ResolvedBy, in.Session).Str("target", in.Level).Str("decision", string(outcomeOf(&row))).Msg("audit")
	}
	if !row.Approved() {
		decided()
		r.tell(in.Session, in.Request, arcp.PermissionDeny, denial(in.Level, deniedReason(row.Status, row.Reason)))
		return arcp.OutcomeView{Outcome: outcomeOf(&row), Approval: view(&row, "")}, nil
	}
	held, made, err := gates.Grant(ctx, lease.Permission{Permission: permission, Resource: "session", Operation: "elevate"},
		lease.Duration(lease.Seconds(in.Seconds), lease.MaxGrant), &row, in.Session, in.Request,
		engine.Said{Type: arcp.Metric, Payload: arcp.MetricPayload{Name: "trust.elevations", Value: "1", Unit: "count"}},
		engine.Said{Type: arcp.Log, Payload: arcp.LogPayload{Level: arcp.LevelWarn, Message: "session " + string(in.Session) + " is trusted as " + in.Level}})
	if err != nil {
		return arcp.OutcomeView{}, err
	}
	if made { // otherwise an earlier attempt has said so
		decided()
	}
	r.announceTo(in.Session)
	for holds() {
		select {
		case <-time.After(min(elevationCheck, max(time.Until(held), time.Millisecond))):
		case <-ctx.Done():
			return arcp.OutcomeView{}, context.Cause(ctx)
		}
	}
	return arcp.OutcomeView{Outcome: outcomeOf(&row), Approval: view(&row, "")}, nil
}

// elevationCheck is how often the job of an elevation looks whether it has been
// revoked.
const elevationCheck = time.Second

func reasonOf(reason string) arcp.Raw {
	if reason == "" {
		return nil
	}
	raw, err := arcp.Marshal(map[string]string{"reason": reason})
	if err != nil { // a string
		panic("runtime: " + err.Error())
	}
	return raw
}

func deniedReason(s approval.Status, reason string) string {
	if s == approval.Expired {
		return "nobody answered in time"
	}
	return cmp.Or(reason, "denied")
}

// tell sends a session an answer that comes late, if it has a connection.
func (r *Runtime) tell(id arcp.SessionID, request arcp.MessageID, t arcp.Type, payload any) {
	if c := r.sessions.ConnOf(id); c != nil {
		c.Send(request, t, payload)
	}
}
