package builtin

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of the lists of calls: each of them is made of a job's row and log.
const (
	defaultCalls  = 50
	maxCallsBytes = 8 << 20 // results that are read for their digests; then the page is shorter
)

// refreshTimeout bounds the time that sources have to list their tools anew.
const refreshTimeout = time.Minute

func (b *Tools) registerTools() error {
	return errors.Join(
		builtin(b, "tools.list", tool.SideEffectRead, "the tools of the session's catalogue, by name", b.toolsList),
		builtin(b, "tools.describe", tool.SideEffectRead, "all that is to know of a tool", b.toolsDescribe),
		builtin(b, "tools.policy", tool.SideEffectRead, "what the session may do with the tools, and why not", b.toolsPolicy),
		builtin(b, "tools.calls", tool.SideEffectRead, "the calls of tools that a job consists of and has made", b.toolsCalls),
		builtin(b, "tools.overlay", tool.SideEffectWrite, "sets what the session's catalogue is on top of the base", b.toolsOverlay),
		builtinLike(b, tool.Capability{Name: "tools.refresh", SideEffect: tool.SideEffectExternal, Description: "has the sources of tools list them anew",
			Recovery: tool.RecoveryRerun, Limits: tool.Limits{Timeout: refreshTimeout}}, b.toolsRefresh),
	)
}

func viewer(job tool.Job) (engine.Viewer, error) {
	v, ok := job.Host().(engine.Viewer)
	if !ok {
		return nil, errNoCaller
	}
	return v, nil
}

// toolsListIn are the arguments of tools.list and tools.policy.
type toolsListIn struct {
	Limit  int    `json:"limit,omitzero" jsonschema:"description=tools a page,minimum=1,maximum=1000"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the page before"`
	Prefix string `json:"prefix,omitzero" jsonschema:"description=what the names begin with,maxLength=256"`
}

func policyText(t *tool.Tool) arcp.Raw {
	raw, err := arcp.Marshal(t.Approval)
	if err != nil { // a word or a text
		panic("runtime: approval: " + err.Error())
	}
	return raw
}

func entryOf(l *tool.Listed) arcp.ToolEntry {
	t := l.Tool
	return arcp.ToolEntry{Name: l.Agent.Name, Version: t.Version, Versions: l.Agent.Versions, Description: t.Description,
		SideEffect: string(t.SideEffect), Source: t.Source, Approval: policyText(t), MinTrust: t.MinTrust}
}

// page calls give for the names behind a cursor, and returns the next one. A cursor
// is a name: tools that come and go move none of the others. What give returns is about
// how many bytes its row has.
func (b *Tools) page(v engine.Viewer, what string, in *toolsListIn, all bool, give func(*tool.Listed) int) (next string, err error) {
	scope := []byte(what + "\x00" + v.Principal() + "\x00" + in.Prefix)
	after, err := b.Cursors.OpenKey(in.Cursor, scope)
	if err != nil {
		return "", err
	}
	n, size, last := 0, 0, ""
	for l := range v.Catalogue().List(after, in.Prefix, all) {
		if n == cmp.Or(in.Limit, paging.DefaultLen) || size >= paging.MaxBytes {
			return b.Cursors.SealKey(last, scope), nil
		}
		size += give(&l)
		n, last = n+1, l.Agent.Name
	}
	return "", nil
}

func (b *Tools) toolsList(_ context.Context, job tool.Job, in toolsListIn) (page arcp.ToolPage, err error) {
	v, err := viewer(job)
	if err != nil {
		return page, err
	}
	page.Items, page.Generation = []arcp.ToolEntry{}, v.Catalogue().Generation()
	page.NextCursor, err = b.page(v, "tools", &in, false, func(l *tool.Listed) int {
		e := entryOf(l)
		page.Items = append(page.Items, e)
		return len(e.Name) + len(e.Description) + len(e.Approval)
	})
	return page, err
}

type toolsDescribeIn struct {
	Name string `json:"name" jsonschema:"description=name or name@version"`
}

func (b *Tools) toolsDescribe(_ context.Context, job tool.Job, in toolsDescribeIn) (d arcp.ToolView, err error) {
	v, err := viewer(job)
	if err != nil {
		return d, err
	}
	t, refused := v.Catalogue().Resolve(in.Name)
	switch {
	case refused != nil:
		return d, refused
	case !t.Trusts(v.Trust()):
		return d, arcp.Errorf(arcp.CodePermissionDenied, "%s needs the trust level %s", t.Name, t.MinTrust)
	}
	l := t.Limits
	d = arcp.ToolView{Name: t.Name, Version: t.Version, Versions: v.Catalogue().Versions(t.Name), Description: t.Description,
		InputSchema: schemaOr(t.InputSchema), OutputSchema: t.OutputSchema, SideEffect: string(t.SideEffect), Approval: policyText(t),
		MinTrust: t.MinTrust, Recovery: string(t.Recovery), Idempotent: *t.Idempotent, Interruptible: t.Interruptible, Source: t.Source,
		Limits: arcp.ToolLimits{TimeoutMS: limit(l.Timeout.Milliseconds()), MaxRequestBytes: limit(l.MaxRequestBytes),
			MaxResponseBytes: limit(l.MaxResponseBytes), Concurrency: limit(l.Concurrency), RatePerMin: limit(l.RatePerMin)}}
	if t.Retry.MaxAttempts > 1 {
		d.Retry, err = arcp.Marshal(t.Retry)
	}
	return d, err
}

// limit is nil for one that is off.
func limit[T int | int64](n T) *int64 {
	if n <= 0 {
		return nil
	}
	return new(int64(n))
}

// schemaOr is the schema of a tool, or that by which anything goes.
func schemaOr(schema arcp.Raw) arcp.Raw {
	if schema == nil {
		return arcp.Raw("{}")
	}
	return schema
}

// toolsPolicyOut is what tools.policy returns.
type toolsPolicyOut struct {
	Principal  string       `json:"principal"`
	SessionID  string       `json:"session_id,omitzero"`
	Trust      string       `json:"trust"`
	Roles      []string     `json:"roles"`
	Lease      arcp.Raw     `json:"lease,omitzero"` // what jobs without a lease_request may do, and others at most
	Overlay    overlayOut   `json:"overlay"`
	Generation uint64       `json:"generation"`
	Items      []toolPolicy `json:"items"`
	NextCursor string       `json:"next_cursor,omitzero"`
}

type overlayOut struct {
	Revision    uint64   `json:"revision"`
	IncludeBase bool     `json:"include_base"`
	Tools       []string `json:"tools"`
	Hide        []string `json:"hide"`
	Prompts     []string `json:"prompts"`
}

// toolPolicy is what the session may do with a tool.
type toolPolicy struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Submit   bool     `json:"submit"` // as a job
	Call     bool     `json:"call"`   // by a job with the session's lease
	Delegate bool     `json:"delegate"`
	Reason   string   `json:"reason,omitzero"` // of the first that is not allowed
	Approval arcp.Raw `json:"approval_policy"`
}

func (b *Tools) toolsPolicy(_ context.Context, job tool.Job, in toolsListIn) (out toolsPolicyOut, err error) {
	v, err := viewer(job)
	if err != nil {
		return out, err
	}
	rec := session.OverlayRecord{IncludeBase: true}
	if s := b.Sessions.Find(v.Session()); s != nil {
		rec = s.Overlay().Record()
	}
	out = toolsPolicyOut{Principal: v.Principal(), SessionID: string(v.Session()), Trust: v.Trust(), Roles: append([]string{}, v.Roles()...),
		Generation: v.Catalogue().Generation(), Items: []toolPolicy{},
		Overlay: overlayOut{rec.Revision, rec.IncludeBase, append([]string{}, rec.Tools...), append([]string{}, rec.Hide...), append([]string{}, rec.Prompts...)}}
	if l := v.MayDo(); l != nil {
		out.Lease = l.RFC()
	}
	out.NextCursor, err = b.page(v, "policy", &in, true, func(l *tool.Listed) int {
		p := policyOf(v, l.Tool)
		out.Items = append(out.Items, p)
		return len(p.Name) + len(p.Approval) + len(p.Reason)
	})
	return out, err
}

func policyOf(v engine.Viewer, t *tool.Tool) toolPolicy {
	p := toolPolicy{Name: t.Name, Version: t.Version, Approval: policyText(t), Submit: t.Trusts(v.Trust())}
	call, delegate := v.MayDo().Covers(arcp.NamespaceToolCall, t.Name), v.MayDo().Covers(arcp.NamespaceAgentDelegate, t.Name)
	mine := p.Submit && t.Source != tool.SourceBuiltin
	p.Call, p.Delegate = mine && call == nil, mine && delegate == nil
	switch {
	case !p.Submit:
		p.Reason = "it needs the trust level " + t.MinTrust
	case !mine:
		p.Reason = "it is for clients; no job calls it"
	case call != nil:
		p.Reason = call.Message
	case delegate != nil:
		p.Reason = delegate.Message
	}
	return p
}

type toolsCallsIn struct {
	JobID  string `json:"job_id" jsonschema:"description=the job whose calls are listed"`
	Limit  int    `json:"limit,omitzero" jsonschema:"description=calls a page,minimum=1,maximum=200"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the page before"`
}

func (b *Tools) toolsCalls(ctx context.Context, job tool.Job, in toolsCallsIn) (page arcp.Page[engine.CallRecord], err error) {
	who, err := b.caller(job)
	if err != nil {
		return page, err
	}
	j, refused := b.Jobs.Visible(ctx, &who, arcp.JobID(in.JobID))
	if refused != nil {
		return page, refused
	}
	scope := []byte("calls\x00" + who.Principal + "\x00" + in.JobID)
	after, err := b.Cursors.OpenKey(in.Cursor, scope)
	if err != nil {
		return page, err
	}
	page.Items = []engine.CallRecord{}
	last, size := "", 0
	err = b.Engine.Calls(ctx, &j, after, func(place string, c engine.CallRecord) bool {
		if len(page.Items) == cmp.Or(in.Limit, defaultCalls) || size > maxCallsBytes {
			page.NextCursor = b.Cursors.SealKey(last, scope)
			return false
		}
		page.Items, last = append(page.Items, c), place
		size += c.Size
		return true
	})
	return page, err
}

type toolsOverlayIn struct {
	Tools            []string `json:"tools,omitzero" jsonschema:"description=names or name@version of the base"`
	IncludeBase      bool     `json:"include_base" jsonschema:"description=begin with all tools there are,default=true"`
	Hide             []string `json:"hide,omitzero" jsonschema:"description=names or name@version that are not there"`
	Prompts          []string `json:"prompts,omitzero" jsonschema:"description=contributions to a prompt"`
	ExpectRevision   *uint64  `json:"expect_revision,omitzero" jsonschema:"description=refuse unless the overlay has this revision"`
	ExpectGeneration *uint64  `json:"expect_generation,omitzero" jsonschema:"description=refuse unless the tools have this generation"`
}

type overlaySet struct {
	Revision   uint64 `json:"revision"`
	Generation uint64 `json:"generation"`
}

func (b *Tools) toolsOverlay(ctx context.Context, job tool.Job, in toolsOverlayIn) (out overlaySet, err error) {
	v, err := viewer(job)
	if err != nil {
		return out, err
	}
	layer, refused := tool.NewLayer(tool.Overlay{IncludeBase: in.IncludeBase, Tools: in.Tools, Hide: in.Hide, Prompts: in.Prompts})
	if refused != nil {
		return out, refused
	}
	s := b.Sessions.Find(v.Session())
	if s == nil {
		return out, arcp.Errorf(arcp.CodeFailedPrecondition, "only a session has an overlay, and yours has ended")
	}
	q := session.OverlayChange{Trust: v.Trust(), Layer: layer, Revision: in.ExpectRevision, Generation: in.ExpectGeneration}
	o, snap, err := b.Sessions.SetOverlay(ctx, s, q, func() { b.toolsChanged(s.ID) })
	if err != nil {
		return out, err
	}
	return overlaySet{o.Revision, snap.Generation()}, nil
}

type toolsRefreshed struct {
	Generation uint64 `json:"generation"`
}

// toolsRefresh has the sources asked, by one at a time. Whoever waited while a
// whole round was made since has what it wants.
func (b *Tools) toolsRefresh(ctx context.Context, _ tool.Job, _ struct{}) (toolsRefreshed, error) {
	if b.Refresh == nil {
		return toolsRefreshed{b.Registry.Generation()}, nil
	}
	asked := b.refresh.begun.Load()
	select {
	case b.refresh.turn <- struct{}{}:
	case <-ctx.Done():
		return toolsRefreshed{}, context.Cause(ctx)
	}
	defer func() { <-b.refresh.turn }()
	if b.refresh.done > asked {
		return toolsRefreshed{b.Registry.Generation()}, nil
	}
	round := b.refresh.begun.Add(1)
	if err := b.Refresh(ctx); err != nil {
		if _, ok := errors.AsType[*arcp.Error](err); ok {
			return toolsRefreshed{}, err
		}
		b.Logger.Error().Err(err).Msg("refresh tools")
		return toolsRefreshed{}, arcp.Errorf(arcp.CodeUnavailable, "not all sources could list their tools; the log says why").RetryAfter(1)
	}
	b.refresh.done = round
	return toolsRefreshed{b.Registry.Generation()}, nil
}

// refreshTurns lets one call of tools.refresh at a time ask the sources.
type refreshTurns struct {
	turn  chan struct{} // full while a call asks
	begun atomic.Uint64 // rounds
	done  uint64        // the latest round that every source answered; with turn
}

// toolsChanged makes the connection of a session look at its catalogue.
func (b *Tools) toolsChanged(id arcp.SessionID) {
	if c := b.Sessions.ConnOf(id); c != nil {
		c.ToolsChanged()
	}
}
