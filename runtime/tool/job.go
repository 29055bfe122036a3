package tool

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// Job is a tool's handle on one attempt of a job. Pass it by value. Many goroutines may use it.
//
// Methods that emit events queue them in the order of the calls; the events become durable in
// the background. A full queue blocks the caller. An error means that the job has ended, or that
// the event is too large or cannot be encoded (*arcp.Error).
//
// The zero Job has no attempt: its methods panic. A test may pass it to a tool that does not use
// its Job.
type Job struct{ host Host }

// NewJob returns a Job whose methods call h.
func NewJob(h Host) Job { return Job{h} }

// IsZero reports whether j is the zero Job.
func (j Job) IsZero() bool { return j.host == nil }

// Host returns the implementation of the job. A tool that forwards the work to another program
// asserts the type [Attempt] on it.
func (j Job) Host() Host { return j.host }

// ID returns the job's id.
func (j Job) ID() arcp.JobID { return j.host.ID() }

// Attempt returns the number of the attempt, 1 for the first.
func (j Job) Attempt() uint32 { return j.host.Attempt() }

// TraceID returns the trace id of the job.
func (j Job) TraceID() string { return j.host.TraceID() }

// Traceparent returns the W3C trace context of the job, for requests to other services. It is empty if
// the trace id of the submit is not a W3C trace id.
func (j Job) Traceparent() string { return arcp.Traceparent(j.host.TraceID(), j.host.SpanID()) }

// Logger returns a logger whose records become log events of the job. Attributes become members
// of the event's attributes, and groups nested objects. Levels below slog.LevelDebug become
// trace, LevelCritical and above critical. Messages are cut at 16 KiB, and attributes of more
// than 64 KiB are left out. A full queue of events blocks the caller. Records after the end of the
// job are dropped.
func (j Job) Logger() *slog.Logger { return slog.New(&logHandler{job: j}) }

// Log emits a log event; level is one of arcp.LogLevels. Unlike Logger it reports
// whether the event was accepted.
func (j Job) Log(level, message string, attributes any) error {
	if !slices.Contains(arcp.LogLevels, level) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "log: level must be one of %s", strings.Join(arcp.LogLevels, ", "))
	}
	p := arcp.LogPayload{Level: level, Message: message}
	var err error
	if p.Attributes, err = encodeEvent(attributes); err != nil {
		return err
	}
	return j.host.Emit(arcp.Log, p)
}

// Progress emits the progress of the job. Percent, if nil, is computed from Current and Total.
// The error is INVALID_ARGUMENT for a negative Current.
func (j Job) Progress(p arcp.JobProgressPayload) error {
	if !(p.Current >= 0) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "progress: current must be 0 or more")
	}
	if p.Percent == nil && p.Total != nil && *p.Total > 0 {
		p.Percent = new(100 * p.Current / *p.Total)
	}
	return j.host.Emit(arcp.JobProgress, p)
}

// ProgressOf is Progress with two numbers. A total that is not positive is not known.
func (j Job) ProgressOf(current, total float64) error {
	p := arcp.JobProgressPayload{Current: current}
	if total > 0 {
		p.Total = &total
	}
	return j.Progress(p)
}

// Metric emits a measurement. A metric with the name cost.<name> debits the job's budget in the
// currency Unit. The error is INVALID_ARGUMENT without a name or a unit.
func (j Job) Metric(m arcp.MetricPayload) error {
	if m.Name == "" || m.Unit == "" {
		return arcp.Errorf(arcp.CodeInvalidArgument, "metric: name and unit are required")
	}
	return j.host.Emit(arcp.Metric, m)
}

// Emit emits a named event. data is encoded with arcp.Marshal, an arcp.Raw is used unchanged, and
// nil is no data.
func (j Job) Emit(name string, data any) error {
	if name == "" {
		return arcp.Errorf(arcp.CodeInvalidArgument, "event.emit: name is required")
	}
	raw, err := encodeEvent(data)
	if err != nil {
		return err
	}
	return j.host.Emit(arcp.EventEmit, arcp.EventEmitPayload{Name: name, Data: raw})
}

// Checkpoint stores data from which a later attempt continues: Restored returns the data there.
// It returns when the checkpoint is durable. A job retains its last 10 checkpoints. During a
// shutdown of the runtime the error is ErrPaused: the tool returns it, and the next start of the
// runtime continues from the checkpoint.
func (j Job) Checkpoint(label string, data any) error {
	raw, err := encodeEvent(data)
	if err != nil {
		return err
	}
	if raw == nil {
		raw = arcp.Raw("null")
	}
	return j.host.Checkpoint(label, raw)
}

// CheckpointWanted returns a channel that receives when a client waits for a checkpoint; the next
// checkpoint answers the client. A tool with long steps between its checkpoints selects on the
// channel. It is nil if clients cannot ask, as in a worker.
func (j Job) CheckpointWanted() <-chan struct{} { return j.host.CheckpointWanted() }

// Restored returns the data of the checkpoint from which this attempt continues. It is nil without
// a checkpoint, and for a tool without RecoveryCheckpoint.
func (j Job) Restored() arcp.Raw { return j.host.Restored() }

// Yield waits while a client interrupts the job, and returns the client's guidance, which may be
// empty. Without an interrupt it returns at once. An interruptible tool calls Yield between its
// steps.
func (j Job) Yield(ctx context.Context) (guidance string, err error) { return j.host.Yield(ctx) }

// Interrupted returns a channel that is closed while a client interrupts the job. A tool that
// waits selects on the channel, and calls Interrupted again before each wait.
func (j Job) Interrupted() <-chan struct{} { return j.host.Interrupted() }

// ManualHeartbeat makes the tool responsible for the job's heartbeats: it must then call
// Heartbeat at least once an interval.
func (j Job) ManualHeartbeat() { j.host.ManualHeartbeat() }

// Heartbeat reports that the tool is alive.
func (j Job) Heartbeat() { j.host.Heartbeat() }

// Ask asks a person for a value and waits for the answer. When the question expires, Ask returns
// the default of the question, or DEADLINE_EXCEEDED without a default. The error is
// INVALID_ARGUMENT for an invalid question.
func (j Job) Ask(ctx context.Context, req InputRequest) (Answer, error) {
	if req.Prompt == "" {
		return Answer{}, errNoPrompt()
	}
	if err := CheckSchema(req.Schema); err != nil {
		return Answer{}, err
	}
	if len(req.Default) > 0 {
		if err := CheckValue(req.Schema, req.Default); err != nil {
			return Answer{}, arcp.Errorf(arcp.CodeInvalidArgument, "the default: %s", err.Message)
		}
	}
	return j.host.Ask(ctx, req)
}

// Choose asks a person for one of several options and waits for the answer. The error is
// DEADLINE_EXCEEDED when the question expires.
func (j Job) Choose(ctx context.Context, req ChoiceRequest) (Answer, error) {
	if req.Prompt == "" {
		return Answer{}, errNoPrompt()
	}
	return j.host.Choose(ctx, req)
}

func errNoPrompt() error { return arcp.Errorf(arcp.CodeInvalidArgument, "a question needs a prompt") }

// Call runs another tool as a child job, waits for its end, and returns its result or its error.
// The lease of the job must allow tool.call of the tool's name.
//
// A repeated attempt does not repeat the calls of earlier attempts: an equal call finds the child
// of the earlier attempt, running or ended. Equal calls find their children in the order of the
// calls. Calls with a Key are equal if their keys are. After a failed attempt, a child that did not
// complete is created again.
//
// The child's budget is reserved from the job's budget. The unspent rest returns when Call
// returns, or later if a child of the child still runs. If ctx ends first, the child continues. If
// the job ends first, the child is cancelled.
//
// A child waits for a slot of its tool. A tool whose jobs call the same tool needs more slots
// than jobs that wait at once.
func (j Job) Call(ctx context.Context, c Call) (arcp.Raw, error) { return j.host.Call(ctx, c) }

// Authority returns the methods that check the lease and spend the budget of the job.
func (j Job) Authority() Authority { return Authority(j) }

// Permissions returns the methods that ask for permissions beyond the lease of the job.
func (j Job) Permissions() Permissions { return Permissions(j) }

// Resources returns the methods that lease resources outside of the runtime.
func (j Job) Resources() Resources { return Resources(j) }

// Authority checks the authority of a job and spends its budget.
type Authority struct{ host Host }

// Allow checks that the job's lease, or a permission lease, allows an operation now. target is a
// path, a URL or a name, as the namespace requires. The namespace may be a permission of your own,
// such as order.refund. A tool calls Allow before every operation that needs authority; Files and Fetcher
// call it themselves. The errors, in this order: LEASE_EXPIRED, which also ends the job;
// PERMISSION_DENIED; BUDGET_EXHAUSTED.
func (a Authority) Allow(namespace, target string) error { return a.host.Allow(namespace, target) }

// UseModel calls Allow with the namespace arcp.NamespaceModelUse. The server's policy decides for
// a job whose lease does not mention models.
func (a Authority) UseModel(model string) error { return a.host.UseModel(model) }

// Files returns a file API that checks the job's authority on each access.
func (a Authority) Files() *access.Files { return a.host.Files() }

// Fetcher returns an HTTP client that checks the job's authority on each request.
func (a Authority) Fetcher() *access.Fetcher { return a.host.Fetcher() }

// Charge debits an amount from the budget before the tool spends it, and reports the amount as
// the metric cost.<name>. An error debits nothing: BUDGET_EXHAUSTED if the budget is too small,
// LEASE_EXPIRED after the end of the lease. Report a cost that was incurred already with
// Job.Metric, which always debits it.
func (a Authority) Charge(name, currency string, amount arcp.Number) error {
	return a.host.Charge(name, currency, amount)
}

// Permissions asks for permissions that the job's lease does not have.
type Permissions struct{ host Host }

// Request asks a person for a permission and waits for the answer. The wait does not count
// towards the job's maximum runtime. The error is PERMISSION_DENIED for a refusal and when the
// request expires.
func (p Permissions) Request(ctx context.Context, req PermissionRequest) (PermissionLease, error) {
	if req.Permission == "" || req.Resource == "" || req.Operation == "" {
		return PermissionLease{}, arcp.Errorf(arcp.CodeInvalidArgument, "a permission needs a name, a resource and an operation")
	}
	return p.host.Permit(ctx, req)
}

// Check checks that a permission lease, or the job's lease, covers an operation now. The errors
// are LEASE_EXPIRED, LEASE_REVOKED and PERMISSION_DENIED.
func (p Permissions) Check(permission, resource, operation string) error {
	return p.host.Permitted(permission, resource, operation)
}

// Extend asks for more time for a permission lease and returns its new end. The end is at most
// 24 h after the grant.
func (p Permissions) Extend(ctx context.Context, id arcp.LeaseID, more time.Duration) (time.Time, error) {
	return p.host.Extend(ctx, id, more)
}

// Resources acquires leases on resources that a tool creates outside of the runtime. The runtime
// cleans up a leased resource when its lease ends, also after the end of its session or a crash of
// the runtime.
type Resources struct{ host Host }

// Lease acquires a lease for the job's principal and session, or refreshes the lease on the same
// provider, type and external id. The lease is durable when Lease returns. It does not end before
// the job. After the job it lasts for its duration, and longer while another job or an approval
// refers to it.
//
// Acquire the lease before you create the resource if its id is known by then: a crash in between
// loses nothing.
func (r Resources) Lease(ctx context.Context, req ResourceRequest) (ResourceLease, error) {
	return r.host.Lease(ctx, req)
}

// Directory creates an empty directory for the job. The runtime removes it with its content at
// the end of the lease. The error is FAILED_PRECONDITION if the runtime has no place for leased
// directories.
func (r Resources) Directory(ctx context.Context, req DirectoryRequest) (path string, l ResourceLease, err error) {
	return r.host.LeaseDirectory(ctx, req)
}

// UpstreamError returns the error of a tool for an HTTP status of a service that the tool called:
//
//   - 402 (the budget of the credential is used up): BUDGET_EXHAUSTED
//   - 401 and 403: PERMISSION_DENIED
//   - 429: RESOURCE_EXHAUSTED
//   - 500 and above: UNAVAILABLE
//   - others: UNKNOWN
func UpstreamError(status int, message string) error {
	switch {
	case status == http.StatusPaymentRequired:
		return arcp.Errorf(arcp.CodeBudgetExhausted, "the service reports that the budget is used up: %s", message)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return arcp.Errorf(arcp.CodePermissionDenied, "the service refuses: %s", message)
	case status == http.StatusTooManyRequests:
		return arcp.Errorf(arcp.CodeResourceExhausted, "the service is asked too often: %s", message)
	case status >= 500:
		return arcp.Errorf(arcp.CodeUnavailable, "the service failed: %s", message)
	}
	return arcp.Errorf(arcp.CodeUnknown, "the service answered %d: %s", status, message)
}

// ErrPaused is the error of Job.Checkpoint while the runtime shuts down. The next start of the
// runtime continues from the checkpoint and ignores the tool's result.
var ErrPaused = errors.New("the runtime is shutting down; the job continues from its checkpoint later")

// ErrNotCalled is the error of Job.Call for a Call with FindOnly that no earlier attempt has made.
var ErrNotCalled = errors.New("no earlier attempt has made the call")

// encodeEvent encodes a part of an event. It returns nil for nil and an empty arcp.Raw. The error
// is INVALID_ARGUMENT for invalid JSON and for more than MaxDepth levels.
func encodeEvent(v any) (raw arcp.Raw, err error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case arcp.Raw:
		if len(v) == 0 {
			return nil, nil
		}
		if !arcp.Valid(v) {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "event is not valid JSON")
		}
		raw = v // the host copies it before it returns
	default:
		if raw, err = arcp.Marshal(v); err != nil {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "event cannot be encoded as JSON: %s", err)
		}
	}
	if arcp.DeeperThan(raw, MaxDepth) {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "event: nested deeper than %d levels", MaxDepth)
	}
	return raw, nil
}
