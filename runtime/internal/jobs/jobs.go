// Package jobs reads jobs on behalf of a client: what a principal may see of its own jobs and
// of those that it observes.
package jobs

import (
	"context"
	"crypto/sha256"
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

// Reader reads jobs. Its methods may be called by any goroutine; they read the store.
type Reader struct {
	Store   store.Store
	Engine  Engine
	Cursors *paging.Cursors
	Audit   audit.Log
	Logger  zerolog.Logger
	Builtin func(tool string) bool // reports whether a tool is the runtime's own
}

// Engine knows the leases of jobs; see engine.Engine.
type Engine interface {
	LeaseOf(j *store.Job) (lease arcp.Raw, constraints *arcp.LeaseConstraints, budget arcp.Raw)
}

// Bounds of session.list_jobs (SPEC.md §5.5).
const (
	maxPage       = 1000
	jobEntryBytes = 512 // of an entry beside its lease, about
)

// ErrNotFound refuses a job that is not there, or that its reader must not see.
func ErrNotFound(id arcp.JobID) *arcp.Error {
	return arcp.Errorf(arcp.CodeJobNotFound, "no such job: %s", id)
}

// Visible returns a job that an actor may see, or an error as ErrNotFound. An actor sees the
// jobs of its own principal and of those that it observes. Of the latter it does not see calls
// of the runtime's own tools: their answers are for that principal only.
func (r *Reader) Visible(ctx context.Context, who *approval.Actor, id arcp.JobID) (store.Job, *arcp.Error) {
	j, err := r.Store.Job(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Job{}, ErrNotFound(id)
	case err != nil:
		r.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read job")
		return store.Job{}, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read")
	case j.Principal == who.Principal:
		return j, nil
	}
	decision := "allowed"
	if !who.Observes(j.Principal) || r.builtin(&j) {
		decision = "denied"
	}
	r.Audit.Event("observe", who.Principal, who.Session).Str("job_id", string(id)).Str("owner", j.Principal).Str("decision", decision).Msg("audit")
	if decision == "denied" {
		return store.Job{}, ErrNotFound(id)
	}
	return j, nil
}

// Page lists jobs of the actor's principal or, with a filter, of one that it may observe
// (session.list_jobs, SPEC.md §5.5).
func (r *Reader) Page(ctx context.Context, who *approval.Actor, p *arcp.SessionListJobsPayload) (*arcp.SessionJobsPayload, *arcp.Error) {
	principal := who.Principal
	if f := p.Filter; f != nil && f.Principal != "" && f.Principal != principal {
		decision := "allowed"
		if !who.Observes(f.Principal) {
			decision = "denied"
		}
		r.Audit.Event("list_jobs", who.Principal, who.Session).Str("owner", f.Principal).Str("decision", decision).Msg("audit")
		if decision == "denied" {
			return nil, arcp.Errorf(arcp.CodePermissionDenied, "filter: the jobs of %s may not be observed", clip.Text(f.Principal, 64))
		}
		principal = f.Principal
	}
	return r.list(ctx, principal, principal != who.Principal, p)
}

// list lists jobs of a principal. foreign says that another one asks: it does not
// see calls of the runtime's own tools.
func (r *Reader) list(ctx context.Context, principal string, foreign bool, p *arcp.SessionListJobsPayload) (*arcp.SessionJobsPayload, *arcp.Error) {
	limit := paging.DefaultLen
	if p.Limit != nil {
		limit = int(min(*p.Limit, maxPage))
	}
	var filter arcp.JobFilter
	if p.Filter != nil {
		filter = *p.Filter
	}
	q := store.JobQuery{Principal: principal, CreatedAfter: filter.CreatedAfter, CreatedBefore: filter.CreatedBefore}
	bound := cursorScope(principal, &filter)
	if p.Cursor != "" {
		at, id, ok := r.Cursors.OpenTime(p.Cursor, bound)
		if q.AfterTime, q.AfterID = at, arcp.JobID(id); !ok {
			return nil, arcp.Errorf(arcp.CodeInvalidRequest, "cursor is not one of this list: use next_cursor of a page with the same filter")
		}
	}
	page, last, more, err := r.scan(ctx, q, func(j *store.Job) bool { return r.selects(&filter, j) && !(foreign && r.builtin(j)) }, limit)
	if err != nil {
		r.Logger.Error().Err(err).Msg("list jobs")
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read")
	}
	if more {
		page.NextCursor = new(r.Cursors.SealTime(last.CreatedAt, string(last.ID), bound))
	}
	return page, nil
}

// scan collects a page; more says that the list may go on after last.
func (r *Reader) scan(ctx context.Context, q store.JobQuery, selects func(*store.Job) bool, limit int) (page *arcp.SessionJobsPayload, last store.Job, more bool, err error) {
	page = &arcp.SessionJobsPayload{Jobs: []arcp.JobEntry{}}
	scanned, size := 0, 0
	err = r.Store.Jobs(ctx, q, func(j store.Job) bool {
		if len(page.Jobs) == limit || scanned == paging.MaxScan || size >= paging.MaxBytes {
			more = true
			return false
		}
		scanned++
		last = j
		if selects(&j) {
			lease, _, _ := r.Engine.LeaseOf(&j)
			size += len(lease) + jobEntryBytes
			page.Jobs = append(page.Jobs, arcp.JobEntry{JobID: j.ID, Agent: j.Agent, Status: string(j.State),
				Lease: lease, ParentJobID: j.Parent, CreatedAt: j.CreatedAt.UTC(), TraceID: j.TraceID, LastEventSeq: j.LastSeq})
		}
		return true
	})
	return page, last, more, err
}

// statusAliases are words of the other dialect that are read too.
var statusAliases = map[string][]string{
	"pending": {"accepted", "queued"}, "success": {"completed"}, "error": {"failed"}, "timed_out": {"failed"},
}

// builtin reports whether a job is a call of one of the runtime's own tools.
func (r *Reader) builtin(j *store.Job) bool {
	name, _, _ := strings.Cut(j.Agent, "@")
	return r.Builtin(name)
}

func (r *Reader) selects(f *arcp.JobFilter, j *store.Job) bool {
	name, _, _ := strings.Cut(j.Agent, "@")
	switch {
	case f.Agent == "" && r.builtin(j): // calls of the runtime's own tools are found by name only
		return false
	case f.Agent != "" && f.Agent != j.Agent && f.Agent != name:
		return false
	case f.SessionID != "" && f.SessionID != j.Session:
		return false
	case len(f.Status) == 0:
		return true
	}
	return slices.ContainsFunc(f.Status, func(s string) bool {
		return s == string(j.State) || slices.Contains(statusAliases[s], string(j.State))
	})
}

// cursorScope is what a cursor is good for: one principal and one filter.
func cursorScope(principal string, f *arcp.JobFilter) []byte {
	raw, err := arcp.Marshal(f)
	if err != nil { // strings and times
		panic("runtime: " + err.Error())
	}
	sum := sha256.Sum256(append(append([]byte(principal), 0), raw...))
	return sum[:]
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

// Shows reports whether events of a job may be shown to another principal that observes
// its own.
func (r *Reader) Shows(ctx context.Context, id arcp.JobID) bool {
	j, err := r.Store.Job(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		r.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read job")
	}
	return err == nil && !r.builtin(&j)
}
