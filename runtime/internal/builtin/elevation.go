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

// Elevation has the arguments of approval.elevate.
type Elevation struct {
	Session arcp.SessionID  `json:"session_id" jsonschema:"description=set by the runtime"`
	Request arcp.MessageID  `json:"request_id" jsonschema:"description=set by the runtime"`
	Level   arcp.TrustLevel `json:"level" jsonschema:"description=trust level"`
	Reason  string          `json:"reason,omitzero" jsonschema:"description=information for the approver,maxLength=16384"`
	Seconds uint64          `json:"seconds,omitzero" jsonschema:"description=duration in seconds"`
}

// SubmitElevation submits the job that asks for an elevation. It calls existing if the request
// already has a job, and refused if the submit is refused. Neither function may block.
func (t *Tools) SubmitElevation(principal string, in Elevation, refused func(*arcp.Error), existing func(arcp.JobID)) {
	args, err := arcp.Marshal(in)
	if err != nil { // strings of a frame, and numbers
		panic("builtin: " + err.Error())
	}
	t.Engine.SubmitInternal(principal, "approval.elevate", args, "elevate/"+string(in.Session)+"/"+string(in.Request), refused, existing)
}

// ElevationDenied returns the reason why the job of an elevation has ended without a grant; "": the
// job is live, or the elevation was granted.
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

// Denial returns the payload of permission.deny for a trust level.
func Denial(level arcp.TrustLevel, reason string) arcp.PermissionDenyPayload {
	return arcp.PermissionDenyPayload{Permission: elevationPermission(level), Reason: reason}
}

// elevationPermission returns the name of the permission for a trust level.
func elevationPermission(level arcp.TrustLevel) string { return "trust.elevate." + string(level) }

type elevationTools struct {
	sessions *session.Directory
	audit    audit.Log
}

func (t *elevationTools) register(r *registrar) {
	register(r, waitTool("approval.elevate", "elevates the trust level of a session; only the runtime calls it"),
		hostAs[engine.Gates], t.elevate)
}

// elevate asks for an elevation. If it is granted, the job of the call lives until the lease ends,
// also across a restart.
func (t *elevationTools) elevate(ctx context.Context, gates engine.Gates, in Elevation) (none arcp.OutcomeView, err error) {
	if gates.Session() != "" {
		return none, arcp.Errorf(arcp.CodePermissionDenied,
			"only the runtime calls this: send permission.request with trust.elevate.%s", in.Level)
	}
	permission := elevationPermission(in.Level)
	granted := func() bool { return gates.Permits(permission, "session", "elevate") }
	defer toolsChanged(t.sessions, in.Session)
	if s := t.sessions.Find(in.Session); s != nil {
		defer s.Elevate(&session.Elevation{
			Level:   in.Level,
			Request: in.Request,
			Holds:   granted,
		})() // the elevation ends before the client is told
	}
	row, err := gates.Gate(ctx, approval.Row{System: true, Action: "trust session " + string(in.Session) + " as " + string(in.Level),
		Details: reasonDetails(in.Reason), Barred: []arcp.SessionID{in.Session}}, 0)
	if err != nil {
		if !errors.Is(context.Cause(ctx), engine.ErrStopping) { // otherwise the job runs again after the restart
			send(t.sessions, in.Session, in.Request, arcp.PermissionDeny, Denial(in.Level, elevationWithdrawn))
		}
		return none, err
	}
	outcome := arcp.OutcomeView{Outcome: outcomeOf(&row), Approval: viewOf(&row, "")}
	auditDecision := func() {
		t.audit.Event("elevate", row.ResolvedBy, in.Session).Str("target", string(in.Level)).Str("decision", string(outcome.Outcome)).Msg("audit")
	}
	if !row.Approved() {
		auditDecision()
		send(t.sessions, in.Session, in.Request, arcp.PermissionDeny, Denial(in.Level, deniedReason(row.Status, row.Reason)))
		return outcome, nil
	}
	until, made, err := gates.Grant(engine.GateGrant{
		Permission: lease.Permission{Permission: permission, Resource: "session", Operation: "elevate"},
		Duration:   lease.Duration(lease.Seconds(in.Seconds), lease.MaxGrant),
		Gate:       &row,
		Holder:     in.Session,
		Request:    in.Request,
		Events: []engine.JobEvent{
			{Type: arcp.Metric, Payload: arcp.MetricPayload{Name: "trust.elevations", Value: "1", Unit: "count"}},
			{Type: arcp.Log, Payload: arcp.LogPayload{
				Level:   arcp.LevelWarn,
				Message: "session " + string(in.Session) + " is trusted as " + string(in.Level),
			}},
		},
	})
	if err != nil {
		return none, err
	}
	if made { // otherwise an earlier attempt has audited it
		auditDecision()
	}
	toolsChanged(t.sessions, in.Session)
	for granted() {
		select {
		case <-time.After(min(elevationCheck, max(time.Until(until), time.Millisecond))):
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	return outcome, nil
}

// elevationCheck is the interval of the checks for a revocation.
const elevationCheck = time.Second

// reasonDetails returns the details of a question with a reason; nil: there is none.
func reasonDetails(reason string) arcp.Raw {
	if reason == "" {
		return nil
	}
	raw, err := arcp.Marshal(map[string]string{"reason": reason})
	if err != nil { // a string
		panic("builtin: " + err.Error())
	}
	return raw
}

// deniedReason returns the reason of a denial for the client.
func deniedReason(s approval.Status, reason string) string {
	if s == approval.Expired {
		return "nobody answered in time"
	}
	return cmp.Or(reason, "denied")
}
