package builtin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/internal/session"
)

// Elevation are the arguments of approval.elevate.
type Elevation struct {
	Session arcp.SessionID `json:"session_id" jsonschema:"description=set by the runtime"`
	Request arcp.MessageID `json:"request_id" jsonschema:"description=set by the runtime"`
	Level   string         `json:"level" jsonschema:"description=of trust"`
	Reason  string         `json:"reason,omitzero" jsonschema:"description=for who decides,maxLength=16384"`
	Seconds uint64         `json:"seconds,omitzero" jsonschema:"description=how long"`
}

// SubmitElevation submits the job that asks for an elevation. If the request has a job
// already, existing is called with the job's id. If the submit is refused, refused is called.
// Neither may block.
func (t *Tools) SubmitElevation(principal string, in Elevation, refused func(*arcp.Error), existing func(arcp.JobID)) {
	args, err := arcp.Marshal(in)
	if err != nil { // strings of a frame, and numbers
		panic("builtin: " + err.Error())
	}
	t.Engine.SubmitInternal(principal, "approval.elevate", args, "elevate/"+string(in.Session)+"/"+string(in.Request), refused, existing)
}

// ElevationDenied returns why the job of an elevation ended without a grant. It returns "" if
// the job is running or the elevation was granted.
func (t *Tools) ElevationDenied(ctx context.Context, id arcp.JobID) (string, error) {
	j, err := t.Store.Job(ctx, id)
	if err != nil || !j.State.Terminal() {
		return "", err
	}
	if j.State != arcp.StateCompleted {
		return elevationWithdrawn, nil
	}
	raw, err := t.Jobs.Outcome(ctx, &j)
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

// elevationOf returns the name of the permission for a trust level.
func elevationOf(level string) string { return "trust.elevate." + level }

type elevationTools struct {
	sessions *session.Directory
	audit    audit.Log
}

func (t *elevationTools) register(r *registrar) {
	register(r, waits("approval.elevate", "holds a session's elevation; only the runtime calls it"), as[engine.Gates], t.elevate)
}

// elevate asks for an elevation. If it is granted, elevate holds it until its lease ends, and
// does so again after a restart.
func (t *elevationTools) elevate(ctx context.Context, gates engine.Gates, in Elevation) (none arcp.OutcomeView, err error) {
	if gates.Session() != "" {
		return none, arcp.Errorf(arcp.CodePermissionDenied, "only the runtime calls this: send permission.request with trust.elevate.%s", in.Level)
	}
	permission := elevationOf(in.Level)
	holds := func() bool { return gates.Permits(permission, "session", "elevate") }
	defer toolsChanged(t.sessions, in.Session)
	if s := t.sessions.Find(in.Session); s != nil {
		defer s.Elevate(&session.Elevation{Level: in.Level, Request: in.Request, Holds: holds})() // before the client is told
	}
	row, err := gates.Gate(ctx, approval.Row{System: true, Action: "trust session " + string(in.Session) + " as " + in.Level,
		Details: reasonOf(in.Reason), Barred: []arcp.SessionID{in.Session}}, 0)
	if err != nil {
		if !errors.Is(context.Cause(ctx), engine.ErrStopping) { // the job does not run again
			send(t.sessions, in.Session, in.Request, arcp.PermissionDeny, Denial(in.Level, elevationWithdrawn))
		}
		return none, err
	}
	outcome := arcp.OutcomeView{Outcome: outcomeOf(&row), Approval: view(&row, "")}
	decided := func() {
		t.audit.Event("elevate", row.ResolvedBy, in.Session).Str("target", in.Level).Str("decision", string(outcome.Outcome)).Msg("audit")
	}
	if !row.Approved() {
		decided()
		send(t.sessions, in.Session, in.Request, arcp.PermissionDeny, Denial(in.Level, deniedReason(row.Status, row.Reason)))
		return outcome, nil
	}
	until, made, err := gates.Grant(ctx, lease.Permission{Permission: permission, Resource: "session", Operation: "elevate"},
		lease.Duration(lease.Seconds(in.Seconds), lease.MaxGrant), &row, in.Session, in.Request,
		engine.JobEvent{Type: arcp.Metric, Payload: arcp.MetricPayload{Name: "trust.elevations", Value: "1", Unit: "count"}},
		engine.JobEvent{Type: arcp.Log, Payload: arcp.LogPayload{Level: arcp.LevelWarn, Message: "session " + string(in.Session) + " is trusted as " + in.Level}})
	if err != nil {
		return none, err
	}
	if made { // else an earlier attempt has recorded it
		decided()
	}
	toolsChanged(t.sessions, in.Session)
	for holds() {
		select {
		case <-time.After(min(elevationCheck, max(time.Until(until), time.Millisecond))):
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	return outcome, nil
}

// elevationCheck is the interval at which the job of an elevation checks for a revocation.
const elevationCheck = time.Second

func reasonOf(reason string) arcp.Raw {
	if reason == "" {
		return nil
	}
	raw, err := arcp.Marshal(map[string]string{"reason": reason})
	if err != nil { // a string
		panic("builtin: " + err.Error())
	}
	return raw
}

func deniedReason(s approval.Status, reason string) string {
	if s == approval.Expired {
		return "nobody answered in time"
	}
	return cmp.Or(reason, "denied")
}
