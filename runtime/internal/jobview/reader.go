// Package jobview reads jobs on behalf of a viewer: an actor that sees the jobs of its principal and
// of the principals that it observes.
package jobview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/store"
)

// Reader reads jobs. Any goroutine may call its methods, which read the store.
type Reader struct {
	Store     store.Store
	Engine    Engine
	Cursors   *paging.Cursors
	Audit     audit.Log
	Logger    zerolog.Logger
	IsBuiltin func(tool string) bool // reports whether a tool is built in
}

// Engine returns the lease of a job; see engine.Engine.
type Engine interface {
	LeaseOf(j *store.Job) (lease arcp.Raw, constraints *arcp.LeaseConstraints, budget arcp.Raw)
}

// Bounds of session.list_jobs (SPEC.md §5.5).
const (
	maxPage       = 1000
	jobEntryBytes = 512 // approximate bytes of an entry without its lease
)

// ErrNotFound returns the refusal of a job that does not exist, or that the viewer may not see.
func ErrNotFound(id arcp.JobID) *arcp.Error {
	return arcp.Errorf(arcp.CodeJobNotFound, "no such job: %s", id)
}

// Get returns a job, or ErrNotFound if the viewer may not see it. A viewer does not see calls of
// built-in tools by another principal, because their results are meant for that principal.
func (r *Reader) Get(ctx context.Context, viewer *approval.Actor, id arcp.JobID) (store.Job, *arcp.Error) {
	j, err := r.Store.Job(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Job{}, ErrNotFound(id)
	case err != nil:
		r.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read job")
		return store.Job{}, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read")
	case j.Principal == viewer.Principal:
		return j, nil
	}
	decision := "allowed"
	if !viewer.Observes(j.Principal) || r.isBuiltin(&j) {
		decision = "denied"
	}
	r.Audit.Event("observe", viewer.Principal, viewer.Session).Str("job_id", string(id)).Str("owner", j.Principal).
		Str("decision", decision).Msg("audit")
	if decision == "denied" {
		return store.Job{}, ErrNotFound(id)
	}
	return j, nil
}

// PageForm is the form of a page of jobs.
type PageForm struct {
	MaxBytes int                     // bounds the page except for its last job; 0: the bound of all pages
	Status   func(*store.Job) string // returns the status of a job
}

// Page lists jobs of the viewer's principal or, with a filter, of another principal
// (session.list_jobs, SPEC.md §5.5).
func (r *Reader) Page(ctx context.Context, viewer *approval.Actor, p *arcp.SessionListJobsPayload,
	form PageForm) (*arcp.SessionJobsPayload, *arcp.Error) {
	principal := viewer.Principal
	if f := p.Filter; f != nil && f.Principal != "" && f.Principal != principal {
		decision := "allowed"
		if !viewer.Observes(f.Principal) {
			decision = "denied"
		}
		r.Audit.Event("list_jobs", viewer.Principal, viewer.Session).Str("owner", f.Principal).Str("decision", decision).Msg("audit")
		if decision == "denied" {
			return nil, arcp.Errorf(arcp.CodePermissionDenied, "filter: the jobs of %s may not be observed", clip.Text(f.Principal, 64))
		}
		principal = f.Principal
	}
	return r.list(ctx, principal, principal != viewer.Principal, p, form)
}

// list lists jobs of a principal. foreign means that the viewer is of another principal, so that
// calls of built-in tools are omitted.
func (r *Reader) list(ctx context.Context, principal string, foreign bool, p *arcp.SessionListJobsPayload,
	form PageForm) (*arcp.SessionJobsPayload, *arcp.Error) {
	if p.Order != "" && !slices.Contains(arcp.JobOrders, p.Order) {
		return nil, arcp.Errorf(arcp.CodeInvalidRequest, "order: %q is none of %s, %s", clip.Text(string(p.Order), 64), arcp.OldestFirst, arcp.NewestFirst)
	}
	var filter arcp.JobFilter
	if p.Filter != nil {
		filter = *p.Filter
	}
	newest := p.Order == arcp.NewestFirst
	request := paging.Request{Scope: cursorScope(principal, &filter, newest), Cursor: p.Cursor, MaxBytes: form.MaxBytes}
	if p.Limit != nil {
		request.Limit = int(min(*p.Limit, maxPage))
	}
	page, err := nonEmptyPage(r.Cursors, request, func(after string, add paging.Add[arcp.JobEntry]) error {
		at, id := paging.ParseTimeKey(after)
		q := store.JobQuery{
			Principal:     principal,
			CreatedAfter:  filter.CreatedAfter,
			CreatedBefore: filter.CreatedBefore,
			AfterTime:     at,
			AfterID:       arcp.JobID(id),
			Live:          !selectsEnded(&filter),
			Newest:        newest,
		}
		return r.Store.Jobs(ctx, q, func(j store.Job) bool {
			key := paging.TimeKey(j.CreatedAt, string(j.ID))
			if !r.selects(&filter, &j) || foreign && r.isBuiltin(&j) {
				return add(key, 0, nil)
			}
			entry := r.entry(&j, form)
			return add(key, len(entry.Lease)+jobEntryBytes, entry)
		})
	})
	if _, ok := errors.AsType[*arcp.Error](err); ok {
		return nil, arcp.Errorf(arcp.CodeInvalidRequest, "cursor is not one of this list: use next_cursor of a page with the same filter")
	}
	if err != nil {
		if ctx.Err() == nil {
			r.Logger.Error().Err(err).Msg("list jobs")
		}
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read")
	}
	list := &arcp.SessionJobsPayload{Jobs: page.Items, Order: p.Order}
	if page.NextCursor != "" {
		list.NextCursor = &page.NextCursor
	}
	return list, nil
}

func (r *Reader) entry(j *store.Job, form PageForm) *arcp.JobEntry {
	lease, _, _ := r.Engine.LeaseOf(j)
	e := &arcp.JobEntry{JobID: j.ID, Agent: j.Agent, Status: form.Status(j), Lease: lease, ParentJobID: j.Parent,
		CreatedAt: j.CreatedAt.UTC(), TraceID: j.TraceID, LastEventSeq: j.LastSeq, SessionID: j.Session}
	if !j.StartedAt.IsZero() {
		e.StartedAt = j.StartedAt.UTC()
	}
	if j.State.Terminal() {
		e.EndedAt = j.EndedAt.UTC()
	}
	return e
}

// nonEmptyPage returns the first page that has a job, or the last page. One call of rows reads at
// most paging.MaxScan jobs, so that a snapshot of the store is released soon.
func nonEmptyPage(c *paging.Cursors, r paging.Request, rows func(after string, add paging.Add[arcp.JobEntry]) error) (arcp.Page[arcp.JobEntry], error) {
	for {
		page, err := paging.Page(c, r, rows)
		if err != nil || len(page.Items) > 0 || page.NextCursor == "" {
			return page, err
		}
		r.Cursor = page.NextCursor
	}
}

// selectsEnded reports whether a filter selects jobs that have ended.
func selectsEnded(f *arcp.JobFilter) bool {
	return len(f.Status) == 0 || slices.ContainsFunc(f.Status, func(status string) bool {
		switch status {
		case "success", "error", "timed_out":
			return true
		}
		return arcp.JobState(status).Terminal()
	})
}

// hasStatus reports whether a job has a status of a filter: its state, or a word of the draft
// dialect.
func hasStatus(j *store.Job, status string) bool {
	switch status {
	case "pending":
		return j.State == arcp.StateAccepted || j.State == arcp.StateQueued
	case "success":
		return j.State == arcp.StateCompleted
	case "error":
		return j.State == arcp.StateFailed && !TimedOut(j)
	case "timed_out":
		return TimedOut(j)
	}
	return status == string(j.State)
}

// TimedOut reports whether a job has failed because it ran too long.
func TimedOut(j *store.Job) bool {
	return j.State == arcp.StateFailed && (j.Code == arcp.CodeTimeout || j.Code == arcp.CodeDeadlineExceeded)
}

// isBuiltin reports whether a job is a call of a built-in tool.
func (r *Reader) isBuiltin(j *store.Job) bool {
	name, _, _ := strings.Cut(j.Agent, "@")
	return r.IsBuiltin(name)
}

// selects reports whether a filter selects a job.
func (r *Reader) selects(f *arcp.JobFilter, j *store.Job) bool {
	name, _, _ := strings.Cut(j.Agent, "@")
	switch {
	case f.Agent == "" && r.isBuiltin(j): // calls of built-in tools are listed only if the filter names the tool
		return false
	case f.Agent != "" && f.Agent != j.Agent && f.Agent != name:
		return false
	case f.SessionID != "" && f.SessionID != j.Session:
		return false
	case len(f.Status) == 0:
		return true
	}
	return slices.ContainsFunc(f.Status, func(status string) bool { return hasStatus(j, status) })
}

// cursorScope returns the scope of the cursors of a list: its principal, its filter and its order.
func cursorScope(principal string, f *arcp.JobFilter, newest bool) string {
	raw, err := arcp.Marshal(f)
	if err != nil { // strings and times
		panic("jobview: " + err.Error())
	}
	list := "jobs"
	if newest {
		list = "newest jobs"
	}
	return list + "\x00" + principal + "\x00" + string(raw)
}

// Outcome returns the payload of a job's terminal event.
func (r *Reader) Outcome(ctx context.Context, j *store.Job) (arcp.Raw, error) {
	var payload arcp.Raw
	var failed error
	err := r.Store.JobEvents(ctx, j.ID, j.LastJSeq-1, func(e *store.Event) bool {
		env, err := arcp.Decode(store.AppendFrame(nil, store.FrameHead(arcp.Version, j.Session), 0, "", e))
		payload, failed = env.Payload, err
		return false
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("read outcome of %s: %w", j.ID, err)
	}
	return payload, nil
}

// VisibleToObservers reports whether other principals that observe the job's principal may see the
// job.
func (r *Reader) VisibleToObservers(ctx context.Context, id arcp.JobID) bool {
	j, err := r.Store.Job(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		r.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read job")
	}
	return err == nil && !r.isBuiltin(&j)
}
