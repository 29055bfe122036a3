package runtime

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of session.list_jobs (§5.5).
const (
	maxPage       = 1000
	jobEntryBytes = 512 // of an entry beside its lease, about
)

// listJobs answers session.list_jobs.
func (c *conn) listJobs(cmd machine.ListJobs) {
	who := c.who()
	c.read(func(ctx context.Context) func(time.Time) {
		page, err := c.rt.pageOf(ctx, &who, &cmd.Payload)
		return func(now time.Time) {
			if err != nil {
				c.nack(now, cmd.Request, err)
				return
			}
			page.RequestID = cmd.Request
			c.reply(now, cmd.Request, arcp.SessionJobs, page)
		}
	})
}

// pageOf lists jobs of who's principal, or of one that it may observe.
func (r *Runtime) pageOf(ctx context.Context, who *approval.Who, p *arcp.SessionListJobsPayload) (*arcp.SessionJobsPayload, *arcp.Error) {
	principal := who.Principal
	if f := p.Filter; f != nil && f.Principal != "" && f.Principal != principal {
		decision := "allowed"
		if !who.Observes(f.Principal) {
			decision = "denied"
		}
		r.audit.Event("list_jobs", who.Principal, who.Session).Str("owner", f.Principal).Str("decision", decision).Msg("audit")
		if decision == "denied" {
			return nil, arcp.Errorf(arcp.CodePermissionDenied, "filter: the jobs of %s may not be observed", clip.Text(f.Principal, 64))
		}
		principal = f.Principal
	}
	return r.listJobs(ctx, principal, principal != who.Principal, p)
}

// listJobs lists jobs of a principal. foreign says that another one asks: it does not
// see calls of the runtime's own tools.
func (r *Runtime) listJobs(ctx context.Context, principal string, foreign bool, p *arcp.SessionListJobsPayload) (*arcp.SessionJobsPayload, *arcp.Error) {
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
		at, id, ok := r.cursors.OpenTime(p.Cursor, bound)
		if q.AfterTime, q.AfterID = at, arcp.JobID(id); !ok {
			return nil, arcp.Errorf(arcp.CodeInvalidRequest, "cursor is not one of this list: use next_cursor of a page with the same filter")
		}
	}
	page, last, more, err := r.scan(ctx, q, func(j *store.Job) bool { return selects(&filter, j) && !(foreign && ofRuntime(j)) }, limit)
	if err != nil {
		r.cfg.Log.Error().Err(err).Msg("list jobs")
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read")
	}
	if more {
		page.NextCursor = new(r.cursors.SealTime(last.CreatedAt, string(last.ID), bound))
	}
	return page, nil
}

// scan collects a page; more says that the list may go on after last.
func (r *Runtime) scan(ctx context.Context, q store.JobQuery, selects func(*store.Job) bool, limit int) (page *arcp.SessionJobsPayload, last store.Job, more bool, err error) {
	page = &arcp.SessionJobsPayload{Jobs: []arcp.JobEntry{}}
	scanned, size := 0, 0
	err = r.cfg.Store.Jobs(ctx, q, func(j store.Job) bool {
		if len(page.Jobs) == limit || scanned == paging.MaxScan || size >= paging.MaxBytes {
			more = true
			return false
		}
		scanned++
		last = j
		if selects(&j) {
			lease, _, _ := r.engine.LeaseOf(&j)
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

// ofRuntime reports whether a job is a call of one of the runtime's own tools.
func ofRuntime(j *store.Job) bool {
	name, _, _ := strings.Cut(j.Agent, "@")
	return slices.Contains(builtins, name)
}

func selects(f *arcp.JobFilter, j *store.Job) bool {
	name, _, _ := strings.Cut(j.Agent, "@")
	switch {
	case f.Agent == "" && ofRuntime(j): // calls of the runtime's own tools are found by name only
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
