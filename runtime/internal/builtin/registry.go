package builtin

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/resources"
	"github.com/arcpd/arcpd/runtime/internal/resourceservice"
	"github.com/arcpd/arcpd/runtime/internal/session"
)

// The arguments of the tools registry.* (SPEC.md §7.6). The registry checks the bounds in bytes,
// because schemas count characters.
type (
	registerIn struct {
		ResourceID  string   `json:"resource_id" jsonschema:"description=unique in the session,minLength=1,maxLength=256"`
		Kind        string   `json:"kind" jsonschema:"description=for example sandbox or subagent,minLength=1,maxLength=64"`
		DisplayName string   `json:"display_name,omitzero" jsonschema:"description=name for people,maxLength=256"`
		Status      string   `json:"status,omitzero" jsonschema:"description=active or completed or failed or released; default active"`
		Metadata    arcp.Raw `json:"metadata,omitzero" jsonschema:"description=an object of at most 16 KiB; no secrets"`
	}

	resourceIn struct {
		ResourceID string `json:"resource_id" jsonschema:"description=id of the resource"`
	}

	resourceGetIn struct {
		ResourceID string         `json:"resource_id" jsonschema:"description=id of the resource"`
		SessionID  arcp.SessionID `json:"session_id,omitzero" jsonschema:"description=session of the resource; default the calling session"`
	}

	resourceStatusIn struct {
		ResourceID string `json:"resource_id" jsonschema:"description=id of the resource"`
		Status     string `json:"status" jsonschema:"description=active or completed or failed or released"`
	}

	resourceListIn struct {
		SessionID arcp.SessionID `json:"session_id,omitzero" jsonschema:"description=session of the resources; default the calling session"`
		Kind      string         `json:"kind,omitzero" jsonschema:"description=kind of the resources"`
		Status    string         `json:"status,omitzero" jsonschema:"description=active or completed or failed or released"`
		Limit     int            `json:"limit,omitzero" jsonschema:"description=resources of a page,minimum=1,maximum=1000"`
		Cursor    string         `json:"cursor,omitzero" jsonschema:"description=next_cursor of the previous page"`
	}

	leaseIn struct {
		Provider    string   `json:"provider" jsonschema:"description=provider of the resource,minLength=1,maxLength=64"`
		Type        string   `json:"resource_type" jsonschema:"description=type of the resource,minLength=1,maxLength=64"`
		ExternalID  string   `json:"external_id" jsonschema:"description=id of the resource at the provider,minLength=1,maxLength=1024"`
		Seconds     int64    `json:"lease_duration_seconds" jsonschema:"description=duration until the resource is cleaned up unless the lease is touched,minimum=0,maximum=2592000"`
		DisplayName string   `json:"display_name,omitzero" jsonschema:"description=name for people,maxLength=256"`
		Metadata    arcp.Raw `json:"metadata,omitzero" jsonschema:"description=an object of at most 16 KiB; no secrets"`
		CleanupTool string   `json:"cleanup_tool,omitzero" jsonschema:"description=called with provider and resource_type and external_id and attempt where the runtime has no handler,maxLength=256"`
	}

	leaseIDIn struct {
		LeaseID arcp.LeaseID `json:"lease_id" jsonschema:"description=id of the lease"`
	}

	leaseListIn struct {
		State  string `json:"state,omitzero" jsonschema:"description=active or cleaning or released or cleanup_failed"`
		Limit  int    `json:"limit,omitzero" jsonschema:"description=leases of a page,minimum=1,maximum=1000"`
		Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the previous page"`
	}

	reapIn struct {
		DryRun bool `json:"dry_run,omitzero" jsonschema:"description=only list the resources that would be cleaned up"`
	}
)

type deregistered struct {
	Removed bool `json:"removed"`
}

type registryTools struct {
	sessions  *session.Directory
	resources *resourceservice.Service
	cursors   *paging.Cursors
	audit     audit.Log
}

func (t *registryTools) register(r *registrar) {
	register(r, writeTool("registry.register", "registers a resource of the calling session, or replaces it"), r.callers.find, t.registerEntry)
	register(r, writeTool("registry.update_status", "changes the status of a resource"), r.callers.find, t.updateStatus)
	register(r, readTool("registry.get", "one resource"), r.callers.find, t.get)
	register(r, readTool("registry.list", "the resources of a session, the newest first"), r.callers.find, t.list)
	register(r, writeTool("registry.deregister", "removes a resource from the registry"), r.callers.find, t.deregister)
	register(r, writeTool("registry.lease", "takes a lease on an external resource, or refreshes it"), hostAs[engine.LeaseRequester], t.lease)
	register(r, writeTool("registry.touch", "extends a lease by its whole duration"), r.callers.find, t.changeLease(t.resources.Store.Touch))
	register(r, writeTool("registry.release", "ends a lease without a clean-up"), r.callers.find, t.changeLease(t.resources.Store.Release))
	register(r, readTool("registry.leases", "the caller's leases, the newest first; for an admin all leases"), r.callers.find, t.leases)
	register(r, waitTool("registry.reap", "cleans up the resources of the caller's expired leases; for an admin of all expired leases"),
		r.callers.find, t.reap)
}

// sessionFor returns the named session; "": the actor's. Only an admin may name the session of
// another principal.
func (t *registryTools) sessionFor(actor *approval.Actor, named arcp.SessionID) (arcp.SessionID, error) {
	if named == "" || named == actor.Session {
		return actor.Session, nil
	}
	if s := t.sessions.Find(named); s != nil && (actor.Admin || s.Principal == actor.Principal) {
		return named, nil
	}
	return "", arcp.Errorf(arcp.CodeNotFound, "no such session: %s", named)
}

func (t *registryTools) registerEntry(ctx context.Context, caller *Caller, in registerIn) (resources.Entry, error) {
	e, err := t.resources.Store.Register(ctx, time.Now(), resources.Entry{
		ResourceID:  in.ResourceID,
		Session:     caller.Session,
		Principal:   caller.Principal,
		Kind:        in.Kind,
		DisplayName: in.DisplayName,
		Status:      resources.Status(in.Status),
		Metadata:    in.Metadata,
	})
	return e, t.resources.Refusal(err, "register a resource")
}

func (t *registryTools) updateStatus(ctx context.Context, caller *Caller, in resourceStatusIn) (resources.Entry, error) {
	e, err := t.resources.Store.UpdateStatus(ctx, time.Now(), caller.Session, in.ResourceID, resources.Status(in.Status))
	return e, t.resources.Refusal(err, "change a resource")
}

func (t *registryTools) get(ctx context.Context, caller *Caller, in resourceGetIn) (resources.Entry, error) {
	session, err := t.sessionFor(&caller.Actor, in.SessionID)
	if err != nil {
		return resources.Entry{}, err
	}
	e, err := t.resources.Store.Entry(ctx, session, in.ResourceID)
	return e, t.resources.Refusal(err, "read a resource")
}

func (t *registryTools) deregister(ctx context.Context, caller *Caller, in resourceIn) (deregistered, error) {
	removed, err := t.resources.Store.Deregister(ctx, caller.Session, in.ResourceID)
	return deregistered{removed}, t.resources.Refusal(err, "deregister a resource")
}

// list handles registry.list. It lists the resources of one session, the newest first; only an
// admin may name a session of another principal.
func (t *registryTools) list(ctx context.Context, caller *Caller, in resourceListIn) (page arcp.Page[resources.Entry], err error) {
	if err := paging.OneOf("status", in.Status, resources.Statuses); err != nil {
		return page, err
	}
	session, err := t.sessionFor(&caller.Actor, in.SessionID)
	if err != nil {
		return page, err
	}
	request := paging.Request{
		Scope:  "resources\x00" + string(session) + "\x00" + in.Status + "\x00" + in.Kind,
		Cursor: in.Cursor,
		Limit:  in.Limit,
	}
	page, err = paging.Page(t.cursors, request, func(after string, add paging.Add[resources.Entry]) error {
		var from *resources.EntryPosition
		if after != "" {
			at, id := paging.ParseTimeKey(after)
			from = &resources.EntryPosition{CreatedAt: at, ResourceID: id}
		}
		return t.resources.Store.Entries(ctx, session, in.Kind, resources.Status(in.Status), from, func(e *resources.Entry) bool {
			return add(paging.TimeKey(e.CreatedAt, e.ResourceID), len(e.Metadata)+resources.MaxKind, e)
		})
	})
	return page, t.resources.Refusal(err, "list resources")
}

func (t *registryTools) lease(ctx context.Context, job engine.LeaseRequester, in leaseIn) (arcp.ResourceLeaseView, error) {
	holder, err := job.LeaseHolder()
	if err != nil {
		return arcp.ResourceLeaseView{}, err
	}
	l, err := t.resources.Acquire(ctx, holder, resources.LeaseRequest{
		Identity:    resources.Identity{Provider: in.Provider, Type: in.Type, ExternalID: in.ExternalID},
		Seconds:     in.Seconds,
		DisplayName: in.DisplayName,
		Metadata:    in.Metadata,
		CleanupTool: in.CleanupTool,
	}, true)
	return resourceservice.ViewLease(&l), err
}

// leaseOwner returns the principal for which an actor changes a lease: its own or, for an admin,
// the principal of the lease.
func (t *registryTools) leaseOwner(ctx context.Context, actor *approval.Actor, id arcp.LeaseID) (string, error) {
	if !actor.Admin {
		return actor.Principal, nil
	}
	l, err := t.resources.Store.Find(ctx, id)
	if err == nil && l.Principal != actor.Principal {
		t.audit.Event("lease", actor.Principal, actor.Session).Str("target", string(id)).Str("owner", l.Principal).
			Str("decision", "allowed").Msg("audit")
	}
	return l.Principal, t.resources.Refusal(err, "find a lease")
}

// changeLease makes a tool of a function that changes one lease.
func (t *registryTools) changeLease(
	change func(context.Context, time.Time, string, arcp.LeaseID) (resources.Lease, error),
) func(context.Context, *Caller, leaseIDIn) (arcp.ResourceLeaseView, error) {
	return func(ctx context.Context, caller *Caller, in leaseIDIn) (arcp.ResourceLeaseView, error) {
		owner, err := t.leaseOwner(ctx, &caller.Actor, in.LeaseID)
		if err != nil {
			return arcp.ResourceLeaseView{}, err
		}
		l, err := change(ctx, time.Now(), owner, in.LeaseID)
		return resourceservice.ViewLease(&l), t.resources.Refusal(err, "change a lease")
	}
}

func (t *registryTools) leases(ctx context.Context, caller *Caller, in leaseListIn) (page arcp.Page[arcp.ResourceLeaseView], err error) {
	if err := paging.OneOf("state", in.State, arcp.ResourceLeaseStates); err != nil {
		return page, err
	}
	principal := leasesOf(caller)
	request := paging.Request{Scope: "leases\x00" + principal + "\x00" + in.State, Cursor: in.Cursor, Limit: in.Limit}
	page, err = paging.Page(t.cursors, request, func(after string, add paging.Add[arcp.ResourceLeaseView]) error {
		return t.resources.Store.Leases(ctx, principal, after, func(key string, l *resources.Lease) bool {
			if in.State != "" && string(l.State) != in.State {
				return add(key, 0, nil)
			}
			return add(key, len(l.Metadata)+len(l.ExternalID), new(resourceservice.ViewLease(l)))
		})
	})
	return page, t.resources.Refusal(err, "list leases")
}

// leasesOf returns the principal whose leases a caller lists and cleans up; "", for an admin: all
// principals.
func leasesOf(caller *Caller) string {
	if caller.Admin {
		return ""
	}
	return caller.Principal
}

// reap handles registry.reap. It scans until no due lease is left, or a scan makes no progress.
// With dry_run it lists the due leases and changes nothing.
func (t *registryTools) reap(ctx context.Context, caller *Caller, in reapIn) (all arcp.ReapReport, err error) {
	leave, err := t.resources.AcquireReap(ctx, caller.Principal)
	if err != nil {
		return all, err
	}
	defer leave()
	principal := leasesOf(caller)
	if in.DryRun {
		rep, err := t.resources.Scanner.Scan(ctx, resources.Request{Principal: principal, DryRun: true})
		all := arcp.ReapReport{DryRun: true, More: rep.More}
		for i := range rep.Due {
			all.Due = append(all.Due, resourceservice.ViewLease(&rep.Due[i]))
		}
		return all, t.resources.Refusal(err, "look for leases that are over")
	}
	if principal == "" {
		t.audit.Event("reap", caller.Principal, caller.Session).Str("target", "everybody").Str("decision", "allowed").Msg("audit")
	}
	for {
		rep, err := t.resources.Scanner.Scan(ctx, resources.Request{Principal: principal})
		all.Claimed += rep.Claimed
		all.Released += rep.Released
		all.Failed += rep.Failed
		all.Skipped += rep.Skipped
		if err != nil || !rep.More || rep.Claimed+rep.Skipped == 0 {
			return all, t.resources.Refusal(err, "clean up leased resources")
		}
	}
}
