package builtin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/registry"
	"github.com/arcpd/arcpd/runtime/internal/resources"
	"github.com/arcpd/arcpd/runtime/tool"
)

// The arguments of the tools registry.… (SPEC.md §7.6). What their schemas do not
// say, because bytes are counted and not characters, the registry checks.
type (
	registerIn struct {
		ResourceID  string   `json:"resource_id" jsonschema:"description=unique in the session,minLength=1,maxLength=256"`
		Kind        string   `json:"kind" jsonschema:"description=for example sandbox or subagent,minLength=1,maxLength=64"`
		DisplayName string   `json:"display_name,omitzero" jsonschema:"description=for people,maxLength=256"`
		Status      string   `json:"status,omitzero" jsonschema:"description=active or completed or failed or released; default active"`
		Metadata    arcp.Raw `json:"metadata,omitzero" jsonschema:"description=an object of at most 16 KiB; no secrets"`
	}

	resourceIn struct {
		ResourceID string `json:"resource_id" jsonschema:"description=of the resource"`
	}

	resourceGetIn struct {
		ResourceID string         `json:"resource_id" jsonschema:"description=of the resource"`
		SessionID  arcp.SessionID `json:"session_id,omitzero" jsonschema:"description=whose resource; default the calling session"`
	}

	resourceStatusIn struct {
		ResourceID string `json:"resource_id" jsonschema:"description=of the resource"`
		Status     string `json:"status" jsonschema:"description=active or completed or failed or released"`
	}

	resourceListIn struct {
		SessionID arcp.SessionID `json:"session_id,omitzero" jsonschema:"description=whose resources; default the calling session"`
		Kind      string         `json:"kind,omitzero" jsonschema:"description=exactly"`
		Status    string         `json:"status,omitzero" jsonschema:"description=active or completed or failed or released"`
		Limit     int            `json:"limit,omitzero" jsonschema:"description=resources a page,minimum=1,maximum=1000"`
		Cursor    string         `json:"cursor,omitzero" jsonschema:"description=next_cursor of the page before"`
	}

	leaseIn struct {
		Provider    string   `json:"provider" jsonschema:"description=who has the thing,minLength=1,maxLength=64"`
		Type        string   `json:"resource_type" jsonschema:"description=what it is,minLength=1,maxLength=64"`
		ExternalID  string   `json:"external_id" jsonschema:"description=which it is,minLength=1,maxLength=1024"`
		Seconds     int64    `json:"lease_duration_seconds" jsonschema:"description=after which it is cleaned up unless it is touched,minimum=0,maximum=2592000"`
		DisplayName string   `json:"display_name,omitzero" jsonschema:"description=for people,maxLength=256"`
		Metadata    arcp.Raw `json:"metadata,omitzero" jsonschema:"description=an object of at most 16 KiB; no secrets"`
		CleanupTool string   `json:"cleanup_tool,omitzero" jsonschema:"description=called with provider and resource_type and external_id and attempt where the runtime has no handler,maxLength=256"`
	}

	leaseIDIn struct {
		LeaseID arcp.LeaseID `json:"lease_id" jsonschema:"description=of the lease"`
	}

	leaseListIn struct {
		State  string `json:"state,omitzero" jsonschema:"description=active or cleaning or released or cleanup_failed"`
		Limit  int    `json:"limit,omitzero" jsonschema:"description=leases a page,minimum=1,maximum=1000"`
		Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the page before"`
	}

	reapIn struct {
		DryRun bool `json:"dry_run,omitzero" jsonschema:"description=say what would be cleaned up and do nothing"`
	}
)

type deregistered struct {
	Removed bool `json:"removed"`
}

func (b *Tools) registerRegistry() error {
	const read, write = tool.SideEffectRead, tool.SideEffectWrite
	return errors.Join(
		builtin(b, "registry.register", write, "enters a resource of the calling session, or replaces it", b.registryRegister),
		builtin(b, "registry.update_status", write, "changes the status of a resource", b.registryStatus),
		builtin(b, "registry.get", read, "one resource", b.registryGet),
		builtin(b, "registry.list", read, "the resources of a session, the newest first", b.registryList),
		builtin(b, "registry.deregister", write, "removes a resource from the registry", b.registryDeregister),
		builtin(b, "registry.lease", write, "takes a lease on something outside, or refreshes it", b.registryLease),
		builtin(b, "registry.touch", write, "has a lease last for its whole duration again", b.registryTouch),
		builtin(b, "registry.release", write, "ends a lease: there is nothing to clean up", b.registryRelease),
		builtin(b, "registry.leases", read, "the caller's leases, the newest first; an admin sees everybody's", b.registryLeases),
		builtinFor(b, "registry.reap", "cleans up what the caller's leases that are over are on; an admin's call, everybody's", b.registryReap),
	)
}

// sessionFor returns the session that an actor names, or its own. It refuses sessions of other
// principals, but not to an admin.
func (b *Tools) sessionFor(who *approval.Actor, named arcp.SessionID) (arcp.SessionID, error) {
	if named == "" || named == who.Session {
		return who.Session, nil
	}
	if s := b.Sessions.Find(named); s != nil && (who.Admin || s.Principal == who.Principal) {
		return named, nil
	}
	return "", arcp.Errorf(arcp.CodeNotFound, "no such session: %s", named)
}

func (b *Tools) registryRegister(ctx context.Context, job tool.Job, in registerIn) (registry.Entry, error) {
	who, err := b.caller(job)
	if err != nil {
		return registry.Entry{}, err
	}
	e, err := b.Resources.Store.Register(ctx, time.Now(), registry.Entry{ResourceID: in.ResourceID, Session: who.Session, Principal: who.Principal,
		Kind: in.Kind, DisplayName: in.DisplayName, Status: registry.Status(in.Status), Metadata: in.Metadata})
	return e, b.Resources.Answer(err, "register a resource")
}

func (b *Tools) registryStatus(ctx context.Context, job tool.Job, in resourceStatusIn) (registry.Entry, error) {
	who, err := b.caller(job)
	if err != nil {
		return registry.Entry{}, err
	}
	e, err := b.Resources.Store.UpdateStatus(ctx, time.Now(), who.Session, in.ResourceID, registry.Status(in.Status))
	return e, b.Resources.Answer(err, "change a resource")
}

func (b *Tools) registryGet(ctx context.Context, job tool.Job, in resourceGetIn) (registry.Entry, error) {
	who, err := b.caller(job)
	if err != nil {
		return registry.Entry{}, err
	}
	session, err := b.sessionFor(&who, in.SessionID)
	if err != nil {
		return registry.Entry{}, err
	}
	e, err := b.Resources.Store.Entry(ctx, session, in.ResourceID)
	return e, b.Resources.Answer(err, "read a resource")
}

func (b *Tools) registryDeregister(ctx context.Context, job tool.Job, in resourceIn) (deregistered, error) {
	who, err := b.caller(job)
	if err != nil {
		return deregistered{}, err
	}
	removed, err := b.Resources.Store.Deregister(ctx, who.Session, in.ResourceID)
	return deregistered{removed}, b.Resources.Answer(err, "deregister a resource")
}

func (b *Tools) registryList(ctx context.Context, job tool.Job, in resourceListIn) (page arcp.Page[registry.Entry], err error) {
	who, err := b.caller(job)
	if err != nil {
		return page, err
	}
	if err := paging.OneOf("status", in.Status, registry.Statuses); err != nil {
		return page, err
	}
	session, err := b.sessionFor(&who, in.SessionID)
	if err != nil {
		return page, err
	}
	bound := []byte("resources\x00" + string(session) + "\x00" + in.Status + "\x00" + in.Kind)
	var after *registry.EntryPosition
	if in.Cursor != "" {
		at, id, ok := b.Cursors.OpenTime(in.Cursor, bound)
		if !ok {
			return page, paging.ErrCursor()
		}
		after = &registry.EntryPosition{CreatedAt: at, ResourceID: id}
	}
	list, more, err := b.Resources.Store.Entries(ctx, session, in.Kind, registry.Status(in.Status), after, cmp.Or(in.Limit, paging.DefaultLen), paging.MaxBytes)
	if err != nil {
		return page, b.Resources.Answer(err, "list resources")
	}
	page.Items = append([]registry.Entry{}, list...)
	if more {
		last := list[len(list)-1]
		page.NextCursor = b.Cursors.SealTime(last.CreatedAt, last.ResourceID, bound)
	}
	return page, nil
}

func (b *Tools) registryLease(ctx context.Context, job tool.Job, in leaseIn) (arcp.ResourceLeaseView, error) {
	t, ok := job.Host().(engine.HoldsLeases)
	if !ok {
		return arcp.ResourceLeaseView{}, errNoCaller
	}
	l, err := b.Resources.Take(ctx, t.Tenant(), registry.Ask{Identity: registry.Identity{Provider: in.Provider, Type: in.Type, ExternalID: in.ExternalID},
		Seconds: in.Seconds, DisplayName: in.DisplayName, Metadata: in.Metadata, CleanupTool: in.CleanupTool}, true)
	return resources.ViewLease(&l), err
}

// leaseOwner returns the principal in whose name an actor changes a lease: its own or, for an
// admin, that of the lease.
func (b *Tools) leaseOwner(ctx context.Context, who *approval.Actor, id arcp.LeaseID) (string, error) {
	if !who.Admin {
		return who.Principal, nil
	}
	l, err := b.Resources.Store.Find(ctx, id)
	if err == nil && l.Principal != who.Principal {
		b.Audit.Event("lease", who.Principal, who.Session).Str("target", string(id)).Str("owner", l.Principal).Str("decision", "allowed").Msg("audit")
	}
	return l.Principal, b.Resources.Answer(err, "find a lease")
}

func (b *Tools) registryTouch(ctx context.Context, job tool.Job, in leaseIDIn) (arcp.ResourceLeaseView, error) {
	return b.changeLease(ctx, job, in.LeaseID, b.Resources.Store.Touch)
}

func (b *Tools) registryRelease(ctx context.Context, job tool.Job, in leaseIDIn) (arcp.ResourceLeaseView, error) {
	return b.changeLease(ctx, job, in.LeaseID, b.Resources.Store.Release)
}

func (b *Tools) changeLease(ctx context.Context, job tool.Job, id arcp.LeaseID,
	change func(context.Context, time.Time, string, arcp.LeaseID) (registry.Lease, error)) (arcp.ResourceLeaseView, error) {
	who, err := b.caller(job)
	if err != nil {
		return arcp.ResourceLeaseView{}, err
	}
	owner, err := b.leaseOwner(ctx, &who, id)
	if err != nil {
		return arcp.ResourceLeaseView{}, err
	}
	l, err := change(ctx, time.Now(), owner, id)
	return resources.ViewLease(&l), b.Resources.Answer(err, "change a lease")
}

func (b *Tools) registryLeases(ctx context.Context, job tool.Job, in leaseListIn) (page arcp.Page[arcp.ResourceLeaseView], err error) {
	who, err := b.caller(job)
	if err != nil {
		return page, err
	}
	if err := paging.OneOf("state", in.State, arcp.ResourceLeaseStates); err != nil {
		return page, err
	}
	of := b.reach(&who)
	bound := []byte("leases\x00" + of + "\x00" + in.State)
	after, err := b.Cursors.OpenKey(in.Cursor, bound)
	if err != nil {
		return page, err
	}
	page.Items = []arcp.ResourceLeaseView{}
	scanned, size, last := 0, 0, ""
	err = b.Resources.Store.Leases(ctx, of, after, func(key string, l *registry.Lease) bool {
		if len(page.Items) == cmp.Or(in.Limit, paging.DefaultLen) || scanned == paging.MaxScan || size >= paging.MaxBytes {
			page.NextCursor = b.Cursors.SealKey(last, bound)
			return false
		}
		scanned, last = scanned+1, key
		if in.State == "" || string(l.State) == in.State {
			page.Items = append(page.Items, resources.ViewLease(l))
			size += len(l.Metadata) + len(l.ExternalID)
		}
		return true
	})
	return page, b.Resources.Answer(err, "list leases")
}

// reach returns the principal whose leases an actor sees and cleans up; empty, for an admin:
// all principals.
func (b *Tools) reach(who *approval.Actor) string {
	if who.Admin {
		return ""
	}
	return who.Principal
}

func (b *Tools) registryReap(ctx context.Context, job tool.Job, in reapIn) (arcp.ReapReport, error) {
	who, err := b.caller(job)
	if err != nil {
		return arcp.ReapReport{}, err
	}
	leave, err := b.Resources.ReapTurn(ctx, who.Principal)
	if err != nil {
		return arcp.ReapReport{}, err
	}
	defer leave()
	of := b.reach(&who)
	if in.DryRun {
		rep, err := b.Resources.Scanner.Scan(ctx, registry.Request{Principal: of, DryRun: true})
		all := arcp.ReapReport{DryRun: true, More: rep.More}
		for i := range rep.Due {
			all.Due = append(all.Due, resources.ViewLease(&rep.Due[i]))
		}
		return all, b.Resources.Answer(err, "look for leases that are over")
	}
	if of == "" {
		b.Audit.Event("reap", who.Principal, who.Session).Str("target", "everybody").Str("decision", "allowed").Msg("audit")
	}
	return b.reapAll(ctx, of)
}

func (b *Tools) reapAll(ctx context.Context, of string) (all arcp.ReapReport, err error) {
	for {
		rep, err := b.Resources.Scanner.Scan(ctx, registry.Request{Principal: of})
		all.Claimed += rep.Claimed
		all.Released += rep.Released
		all.Failed += rep.Failed
		all.Skipped += rep.Skipped
		if err != nil || !rep.More || rep.Claimed+rep.Skipped == 0 {
			return all, b.Resources.Answer(err, "clean up leased resources")
		}
	}
}
