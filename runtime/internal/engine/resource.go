package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Resources holds the leases of jobs on external resources. Its methods may be called by many
// goroutines.
type Resources interface {
	Lease(ctx context.Context, t LeaseHolder, req tool.ResourceRequest) (tool.ResourceLease, error)
	LeaseDirectory(ctx context.Context, t LeaseHolder, req tool.DirectoryRequest) (path string, l tool.ResourceLease, err error)
}

// LeaseHolder is the job that holds a resource lease. Its members are also the authority of the job
// that cleans up the resource.
type LeaseHolder struct {
	Principal string
	Session   arcp.SessionID
	Job       arcp.JobID
	Trust     arcp.TrustLevel
	MaxJobs   int      // of the principal; 0: the engine's default
	Lease     arcp.Raw // encoded for lease.Decode; empty: the job has no lease
	Identity  arcp.Raw // for Config.Rights; empty: not known
}

// LeaseRequester is the job of a built-in tool that takes resource leases.
type LeaseRequester interface {
	LeaseHolder() (LeaseHolder, error)
}

func (j builtinJob) LeaseHolder() (LeaseHolder, error) { return j.holder() }

func (tg toolGoroutine) holder() (LeaseHolder, error) {
	s := tg.s
	t := LeaseHolder{Principal: s.row.Principal, Session: s.row.Session, Job: s.row.ID, Trust: s.trust, MaxJobs: s.maxJobs}
	if s.authority.Lease != nil {
		t.Lease = s.authority.Lease.Encode()
	}
	var err error
	t.Identity, err = tg.identity()
	return t, err
}

// identity returns the identity of the job's principal for Config.Rights: of the submit or, for a job of an
// earlier process, of the session that owns the job. It is empty if there is none.
func (tg toolGoroutine) identity() (arcp.Raw, error) {
	s := tg.s
	if len(s.identity) > 0 || s.e.cfg.Rights == nil {
		return s.identity, nil
	}
	row, err := s.e.cfg.Store.Session(context.Background(), s.owner())
	switch {
	case errors.Is(err, store.ErrNotFound): // it has ended, or the job has none
		return nil, nil
	case err != nil:
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("session of a job cannot be read")
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the rights of the principal cannot be read")
	}
	return row.Identity, nil
}

var errNoResources = arcp.Errorf(arcp.CodeFailedPrecondition, "this runtime has no leases on resources")

// checkLeasing refuses resource leases to an attempt that has ended.
func (tg toolGoroutine) checkLeasing() error {
	switch {
	case tg.s.e.cfg.Resources == nil:
		return errNoResources
	case tg.attemptEnded():
		return errEnded
	}
	return nil
}

func (j toolJob) Lease(ctx context.Context, req tool.ResourceRequest) (tool.ResourceLease, error) {
	if err := j.checkLeasing(); err != nil {
		return nil, err
	}
	holder, err := j.holder()
	if err != nil {
		return nil, err
	}
	return j.s.e.cfg.Resources.Lease(ctx, holder, req)
}

func (j toolJob) LeaseDirectory(ctx context.Context, req tool.DirectoryRequest) (string, tool.ResourceLease, error) {
	if err := j.checkLeasing(); err != nil {
		return "", nil, err
	}
	holder, err := j.holder()
	if err != nil {
		return "", nil, err
	}
	return j.s.e.cfg.Resources.LeaseDirectory(ctx, holder, req)
}

// EachLive calls fn with the principal, the id and the arguments of every job that has not ended, until
// fn returns false. It leaves out a job before clients get its end. fn must not call the engine.
func (e *Engine) EachLive(fn func(principal string, id arcp.JobID, args arcp.Raw) bool) {
	e.mu.Lock()
	jobs := e.jobs.unconcluded()
	e.mu.Unlock()
	for _, r := range jobs {
		if !fn(r.row.Principal, r.row.ID, r.row.Arguments) {
			return
		}
	}
}

// IsLive reports whether EachLive calls its function with a job.
func (e *Engine) IsLive(id arcp.JobID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs.uncountConcluded()
	r := e.jobs.runs[id]
	return r != nil && !r.entry.concluded
}

// RunCleanupTool runs a tool as a job of a lease holder's principal, without a session, and waits for its end.
// The job has the holder's lease and trust, as far as Config.Rights gives them to the principal now. The holder's
// session must not answer its gates. RunCleanupTool refuses a built-in tool and a tool that the principal must not
// call. When ctx ends the job is cancelled.
func (e *Engine) RunCleanupTool(ctx context.Context, holder LeaseHolder, name string, args arcp.Raw) error {
	rights, err := e.cleanupRights(&holder)
	if err != nil {
		return err
	}
	refusals := make(chan *arcp.Error, 1)
	refuse := func(err *arcp.Error) {
		select {
		case refusals <- err:
		default: // the first one counts
		}
	}
	s := Submit{Envelope: &arcp.Envelope{ID: arcp.NewMessageID(), Priority: arcp.PriorityNormal},
		Payload:   &arcp.ToolInvokePayload{Tool: name, Arguments: args},
		Principal: holder.Principal, Identity: holder.Identity, MaxJobs: rights.MaxJobs, Lease: rights.Lease, Trust: rights.Trust,
		Answers: refusalFunc(refuse)}
	if holder.Session != "" {
		s.Barred = []arcp.SessionID{holder.Session} // else it could approve its own clean-up
	}
	r, refused := s.prepare(e)
	if refused == nil && r.builtin() {
		refused = arcp.Errorf(arcp.CodePermissionDenied, "%s is a built-in tool for clients; it cannot be a clean-up tool", r.tool.Name)
	}
	if refused == nil {
		r.done.donec = make(chan struct{})
		refused = e.admit(r, s.MaxJobs)
	}
	if refused != nil {
		return refused
	}
	s.claim(r)
	return awaitCleanup(ctx, r, refusals)
}

// cleanupRights returns the rights of a clean-up tool: those of the holder's job, and at most those that the
// principal has now without elevations. The end of the job's lease does not count: without its clean-up the
// resource would stay for ever.
func (e *Engine) cleanupRights(holder *LeaseHolder) (Rights, error) {
	limit, err := holder.lease()
	if err != nil {
		return Rights{}, err
	}
	limit = limit.Until(time.Time{})
	stored := Rights{Trust: holder.Trust, MaxJobs: holder.MaxJobs, Lease: limit}
	if e.cfg.Rights == nil || len(holder.Identity) == 0 {
		return stored, nil
	}
	now, refusal := e.cfg.Rights(holder.Identity)
	if refusal == nil && now.Lease != nil {
		refusal = limit.CheckWithin(now.Lease)
	}
	if refusal != nil {
		return Rights{}, refusal
	}
	if now.Trust.Rank() > stored.Trust.Rank() {
		now.Trust = stored.Trust
	}
	now.Lease = cmp.Or(limit.Until(now.Lease.ExpiresAt()), now.Lease)
	return now, nil
}

func (lh *LeaseHolder) lease() (*lease.Lease, error) {
	if len(lh.Lease) == 0 {
		return nil, nil
	}
	return lease.Decode(lh.Lease)
}

// awaitCleanup waits for the end of a job that RunCleanupTool has submitted.
func awaitCleanup(ctx context.Context, r *run, refusals <-chan *arcp.Error) error {
	select {
	case <-r.done.donec:
	case err := <-refusals:
		return err
	case <-r.e.shutdown.quitc:
		return ErrStopping
	case <-ctx.Done():
		r.post(internalCancel(r.row.ID, "the clean-up took too long"))
		return context.Cause(ctx)
	}
	switch o := r.done.outcome; {
	case o == nil: // the job was refused, or continues after the next start
		select {
		case err := <-refusals:
			return err
		default:
			return ErrStopping
		}
	case o.State == arcp.StateCompleted:
		return nil
	case o.Err != nil:
		return o.Err
	default:
		return errors.New("the job was cancelled: " + o.Reason)
	}
}

// CheckCleanupTool returns the error with which RunCleanupTool would refuse a tool; nil: it would not.
func (e *Engine) CheckCleanupTool(holder LeaseHolder, name string) error {
	found, err := e.cfg.Catalog(holder.Session, holder.Principal, holder.Trust).Resolve(name)
	switch {
	case err != nil:
		return arcp.Errorf(arcp.CodeInvalidArgument, "cleanup_tool: %s", err.Message)
	case found.Source == tool.SourceBuiltin:
		return arcp.Errorf(arcp.CodeInvalidArgument, "cleanup_tool: %s is a built-in tool for clients; it cannot be a clean-up tool", found.Name)
	case !found.AllowsTrust(holder.Trust):
		return arcp.Errorf(arcp.CodePermissionDenied, "cleanup_tool: %s needs the trust level %s", found.Name, found.MinTrust)
	}
	return nil
}
