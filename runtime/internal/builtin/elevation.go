package builtin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Elevation are the arguments of approval.elevate.
type Elevation struct {
	Session arcp.SessionID `json:"session_id" jsonschema:"description=set by the runtime"`
	Request arcp.MessageID `json:"request_id" jsonschema:"description=set by the runtime"`
	Level   string         `json:"level" jsonschema:"description=of trust"`
	Reason  string         `json:"reason,omitzero" jsonschema:"description=for who decides,maxLength=16384"`
	Seconds uint64         `json:"seconds,omitzero" jsonschema:"description=how long"`
}

// SubmitElevation submits the job that asks for an elevation, unless there is one for the
// request: existing is told of that, and refused why there is none. Neither must block.
func (b *Tools) SubmitElevation(principal string, in Elevation, refused func(*arcp.Error), existing func(arcp.JobID)) {
	args, err := arcp.Marshal(in)
	if err != nil { // strings of a frame, and numbers
		panic("builtin: " + err.Error())
	}
	b.Engine.SubmitOwn(principal, "approval.elevate", args, "elevate/"+string(in.Session)+"/"+string(in.Request), refused, existing)
}

// ElevationDenied returns why the job of an elevation ended without one; empty: the job goes
// on, or the elevation was granted.
func (b *Tools) ElevationDenied(ctx context.Context, id arcp.JobID) (string, error) {
	j, err := b.Store.Job(ctx, id)
	if err != nil || !j.State.Terminal() {
		return "", err
	}
	if j.State != arcp.StateCompleted {
		return elevationWithdrawn, nil
	}
	raw, err := b.Jobs.Outcome(ctx, &j)
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

// Denial is the payload of permission.deny for a trust level.
func Denial(level, reason string) arcp.PermissionDenyPayload {
	return arcp.PermissionDenyPayload{Permission: elevationOf(level), Reason: reason}
}

// elevationOf is the permission that a level of trust is.
func elevationOf(level string) string { return "trust.elevate." + level }

// elevateJob asks for an elevation and, if it is given, holds it until its lease
// ends. It goes on after a restart.
func (b *Tools) elevateJob(ctx context.Context, job tool.Job, in Elevation) (arcp.OutcomeView, error) {
	gates, ok := job.Host().(engine.Gates)
	if !ok || gates.Session() != "" {
		return arcp.OutcomeView{}, arcp.Errorf(arcp.CodePermissionDenied, "only the runtime calls this: send permission.request with trust.elevate.%s", in.Level)
	}
	permission := elevationOf(in.Level)
	holds := func() bool { return gates.Holds(permission, "session", "elevate") }
	defer b.toolsChanged(in.Session)
	if s := b.Sessions.Find(in.Session); s != nil {
		defer s.Elevate(&session.Elevation{Level: in.Level, Request: in.Request, Holds: holds})() // before anybody is told
	}
	row, err := gates.Gate(ctx, approval.Row{System: true, Action: "trust session " + string(in.Session) + " as " + in.Level,
		Details: reasonOf(in.Reason), Barred: []arcp.SessionID{in.Session}}, 0)
	if err != nil {
		if !errors.Is(context.Cause(ctx), engine.ErrStopping) { // it does not go on
			b.tell(in.Session, in.Request, arcp.PermissionDeny, Denial(in.Level, elevationWithdrawn))
		}
		return arcp.OutcomeView{}, err
	}
	decided := func() {
		b.Audit.Event("elevate", row.ResolvedBy, in.Session).Str("target", in.Level).Str("decision", string(outcomeOf(&row))).Msg("audit")
	}
	if !row.Approved() {
		decided()
		b.tell(in.Session, in.Request, arcp.PermissionDeny, Denial(in.Level, deniedReason(row.Status, row.Reason)))
		return arcp.OutcomeView{Outcome: outcomeOf(&row), Approval: view(&row, "")}, nil
	}
	held, made, err := gates.Grant(ctx, lease.Permission{Permission: permission, Resource: "session", Operation: "elevate"},
		lease.Duration(lease.Seconds(in.Seconds), lease.MaxGrant), &row, in.Session, in.Request,
		engine.JobEvent{Type: arcp.Metric, Payload: arcp.MetricPayload{Name: "trust.elevations", Value: "1", Unit: "count"}},
		engine.JobEvent{Type: arcp.Log, Payload: arcp.LogPayload{Level: arcp.LevelWarn, Message: "session " + string(in.Session) + " is trusted as " + in.Level}})
	if err != nil {
		return arcp.OutcomeView{}, err
	}
	if made { // otherwise an earlier attempt has said so
		decided()
	}
	b.toolsChanged(in.Session)
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
func (b *Tools) tell(id arcp.SessionID, request arcp.MessageID, t arcp.Type, payload any) {
	if c := b.Sessions.ConnOf(id); c != nil {
		c.Send(request, t, payload)
	}
}
