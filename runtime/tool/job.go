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

// Job is one attempt of a job as its tool sees it. It is a small handle, passed by
// value. Many goroutines may use it.
//
// Events are queued in the order of the calls and become durable in the background.
// A full queue blocks the caller. An error means that the job has ended, or that the
// event was refused (*arcp.Error): too large, or not encodable.
//
// The zero Job belongs to nothing. It can be passed to a tool that does not use it.
type Job struct{ host Host }

// NewJob returns the Job that h carries out.
func NewJob(h Host) Job { return Job{h} }

// IsZero reports whether j is the zero Job.
func (j Job) IsZero() bool { return j.host == nil }

// Host returns the Host of the job. Tools have no use for it.
func (j Job) Host() Host { return j.host }

// ID returns the job's id.
func (j Job) ID() arcp.JobID { return j.host.ID() }

// Attempt returns the number of the attempt, 1 for the first.
func (j Job) Attempt() uint32 { return j.host.Attempt() }

// TraceID returns the trace id of the submit; empty: none.
func (j Job) TraceID() string { return j.host.TraceID() }

// Logger returns a logger whose records become log events of the job. Attributes
// become members of the event's attributes, groups nested objects. Levels below
// slog.LevelDebug are trace, those from LevelCritical on critical. Messages are cut
// at 16 KiB, and attributes of more than 64 KiB are left out. A full queue of events
// blocks the caller; records after the end of the job are dropped.
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

// Progress reports how far the job is. Percent is computed from Current and Total
// unless it is set.
func (j Job) Progress(p arcp.JobProgressPayload) error {
	if !(p.Current >= 0) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "progress: current must be 0 or more")
	}
	if p.Percent == nil && p.Total != nil && *p.Total > 0 {
		p.Percent = new(100 * p.Current / *p.Total)
	}
	return j.host.Emit(arcp.JobProgress, p)
}

// Metric emits a measurement. One named cost.<name> debits the job's budget.
func (j Job) Metric(m arcp.MetricPayload) error {
	if m.Name == "" || m.Unit == "" {
		return arcp.Errorf(arcp.CodeInvalidArgument, "metric: name and unit are required")
	}
	return j.host.Emit(arcp.Metric, m)
}

// Emit emits a named event. data is encoded with arcp.Marshal; an arcp.Raw is
// emitted as it is; nil: none.
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

// Checkpoint makes data durable as a place to continue from: Restored returns it in
// the next attempt. It returns when the checkpoint is durable. The last 10 of a job
// are retained. During a shutdown of the runtime the error is ErrPaused: the attempt
// ends, and the next start of the runtime continues from the checkpoint.
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

// CheckpointWanted receives when a client waits for a checkpoint: the next one
// answers it. A tool that takes long between two checkpoints selects on it. A nil
// channel means that nothing asks for checkpoints.
func (j Job) CheckpointWanted() <-chan struct{} { return j.host.CheckpointWanted() }

// Restored returns the data of the checkpoint that this attempt continues from. It
// is nil without a checkpoint, and for a tool without RecoveryCheckpoint.
func (j Job) Restored() arcp.Raw { return j.host.Restored() }

// Yield waits while a client interrupts the job, and returns the guidance that came
// with the answer, if any. Without an interrupt it costs next to nothing. An
// interruptible tool calls it where it can pause.
func (j Job) Yield(ctx context.Context) (guidance string, err error) { return j.host.Yield(ctx) }

// Interrupted returns a channel that is closed while Yield would wait. A tool that
// waits for something else selects on it, and calls Interrupted before each wait.
func (j Job) Interrupted() <-chan struct{} { return j.host.Interrupted() }

// ManualHeartbeat makes the tool responsible for the job's heartbeats: from then on
// it must call Heartbeat at least once an interval.
func (j Job) ManualHeartbeat() { j.host.ManualHeartbeat() }

// Heartbeat reports that the tool is alive.
func (j Job) Heartbeat() { j.host.Heartbeat() }

// Ask asks a person for a value, and waits. Without an answer in time it returns
// the default or, without one, DEADLINE_EXCEEDED.
func (j Job) Ask(ctx context.Context, a InputAsk) (Answer, error) {
	if a.Prompt == "" {
		return Answer{}, errNoPrompt()
	}
	if err := CheckSchema(a.Schema); err != nil {
		return Answer{}, err
	}
	if len(a.Default) > 0 {
		if err := CheckValue(a.Schema, a.Default); err != nil {
			return Answer{}, arcp.Errorf(arcp.CodeInvalidArgument, "the default: %s", err.Message)
		}
	}
	return j.host.Ask(ctx, a)
}

// Choose asks a person for a choice, and waits. Without an answer in time it returns
// DEADLINE_EXCEEDED.
func (j Job) Choose(ctx context.Context, c ChoiceAsk) (Answer, error) {
	if c.Prompt == "" {
		return Answer{}, errNoPrompt()
	}
	return j.host.Choose(ctx, c)
}

func errNoPrompt() error { return arcp.Errorf(arcp.CodeInvalidArgument, "a question needs a prompt") }

// Call runs another tool as a child job, waits for it and returns its result or its
// error. It needs tool.call of the tool's name.
//
// A repeated attempt finds the children of the earlier ones: the same call is the
// same child, which continues or has ended, and is not made twice. Of calls that are
// equal in all members the first finds the first. A child that did not complete is
// made anew when the attempt that called it has failed and is retried.
//
// The child's budget is taken out of the job's; the rest is returned when Call
// returns, unless a child of the child still runs. When ctx ends first the child
// continues; when the job ends the child is cancelled.
//
// A child waits for a slot of its tool like every job: a tool whose jobs wait for
// jobs of the same tool must have more slots than waiting ones.
func (j Job) Call(ctx context.Context, c Call) (arcp.Raw, error) { return j.host.Call(ctx, c) }

// Authority returns the part of the job that checks its lease and spends its budget.
func (j Job) Authority() Authority { return Authority(j) }

// Permissions returns the part of the job that asks for permissions beyond its lease.
func (j Job) Permissions() Permissions { return Permissions(j) }

// Resources returns the part of the job that leases things outside of the runtime.
func (j Job) Resources() Resources { return Resources(j) }

// Authority checks the authority of a job and spends its budget.
type Authority struct{ host Host }

// Allow reports whether the job may perform an operation now. target is a path, a URL, a name,
// or the target of the permission called namespace. A tool calls Allow before every operation
// that needs authority; Files and Fetcher do so themselves. An operation is allowed by the
// job's lease or by a permission lease. Errors, in this order: LEASE_EXPIRED, which also ends
// the job; PERMISSION_DENIED; BUDGET_EXHAUSTED.
func (a Authority) Allow(namespace, target string) error { return a.host.Allow(namespace, target) }

// UseModel is Allow of a model. The server's policy decides for jobs whose lease does
// not mention models.
func (a Authority) UseModel(model string) error { return a.host.UseModel(model) }

// Files returns the access to files within the job's authority.
func (a Authority) Files() *access.Files { return a.host.Files() }

// Fetcher returns the access to URLs within the job's authority.
func (a Authority) Fetcher() *access.Fetcher { return a.host.Fetcher() }

// Charge debits an amount before it is spent. It fits into the budget, or the error
// is BUDGET_EXHAUSTED and nothing was charged; LEASE_EXPIRED after the lease's end.
// The amount is reported as the metric cost.<name>. A cost that was incurred already
// is reported with Job.Metric, and always counts.
func (a Authority) Charge(name, currency string, amount arcp.Number) error {
	return a.host.Charge(name, currency, amount)
}

// Permissions asks for permissions that the job's lease does not have.
type Permissions struct{ host Host }

// Request asks for a permission and waits for the answer. The job is blocked
// meanwhile, and its maximum runtime does not pass. A refusal, or no answer in time,
// is PERMISSION_DENIED.
func (p Permissions) Request(ctx context.Context, a PermissionAsk) (PermissionLease, error) {
	if a.Permission == "" || a.Resource == "" || a.Operation == "" {
		return PermissionLease{}, arcp.Errorf(arcp.CodeInvalidArgument, "a permission needs a name, a resource and an operation")
	}
	return p.host.Permit(ctx, a)
}

// Check reports whether a permission lease, or the job's lease, covers an operation
// now: LEASE_EXPIRED, LEASE_REVOKED or PERMISSION_DENIED if not.
func (p Permissions) Check(permission, resource, operation string) error {
	return p.host.Permitted(permission, resource, operation)
}

// Extend asks for more time for a permission lease, within 24 h of its grant, and
// returns its new end.
func (p Permissions) Extend(ctx context.Context, id arcp.LeaseID, more time.Duration) (time.Time, error) {
	return p.host.Extend(ctx, id, more)
}

// Resources acquires leases on things that a tool makes outside of the runtime. The runtime
// cleans up a leased thing when its lease ends, also if the tool never does, its session ends,
// or the runtime is killed.
type Resources struct{ host Host }

// Lease takes a lease in the name of the job's principal and session, or refreshes
// the lease on the same provider, type and external id. It is durable when Lease
// returns. It does not end while the job lives. After that it lasts for its duration,
// and longer while another job or an approval names it.
//
// Take the lease before the thing is made, if its name can be known by then:
// nothing is lost in between.
func (r Resources) Lease(ctx context.Context, a ResourceAsk) (ResourceLease, error) {
	return r.host.Lease(ctx, a)
}

// Directory makes a directory for the job. It exists when Directory returns, and is
// removed with its content at the end of the lease. FAILED_PRECONDITION without a
// place for leased directories.
func (r Resources) Directory(ctx context.Context, a DirectoryAsk) (path string, l ResourceLease, err error) {
	return r.host.LeaseDirectory(ctx, a)
}

// UpstreamError returns the error of a job for an HTTP status of a service that it
// has called: 402, a credential's budget is used up, is BUDGET_EXHAUSTED.
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

// ErrPaused ends an attempt at a checkpoint because the runtime shuts down. The next
// start of the runtime continues from there; the tool's result is dropped.
var ErrPaused = errors.New("the runtime is shutting down; the job goes on from its checkpoint later")

// encodeEvent encodes a part of an event; nil and an empty arcp.Raw: none. A client reads at most MaxDepth
// levels.
func encodeEvent(v any) (raw arcp.Raw, err error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case arcp.Raw:
		if len(v) == 0 {
			return nil, nil
		}
		if !v.IsValid() {
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
