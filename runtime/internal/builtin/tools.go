package builtin

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/jobview"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of tools.calls, which reads the row and the log of a job.
const (
	defaultCalls  = 50
	maxCallsBytes = 8 << 20 // bytes of results, which are read for their digests
)

// refreshTimeout bounds tools.refresh.
const refreshTimeout = time.Minute

// catalogTools has the tools tools.*.
type catalogTools struct {
	registry *tool.Registry
	engine   *engine.Engine
	sessions *session.Directory
	jobs     *jobview.Reader
	cursors  *paging.Cursors
	logger   zerolog.Logger
	workers  Workers
	refresh  refresher
}

func (t *catalogTools) register(r *registrar) {
	register(r, readTool("tools.list", "the tools of the session's catalogue, by name"), hostAs[engine.Viewer], t.list)
	register(r, readTool("tools.describe", "the complete description of a tool"), hostAs[engine.Viewer], t.describe)
	register(r, readTool("tools.policy", "the tools that the session may use, and the reasons against the others"),
		hostAs[engine.Viewer], t.policy)
	register(r, readTool("tools.calls", "the tool calls of a job"), r.callers.find, t.calls)
	register(r, writeTool("tools.overlay", "sets the overlay of the session's catalogue"), hostAs[engine.Viewer], t.overlay)
	register(r, tool.Capability{
		Name:        "tools.refresh",
		SideEffect:  tool.SideEffectExternal,
		Description: "makes the sources of tools list their tools again",
		Recovery:    tool.RecoveryRerun,
		Limits:      tool.Limits{Timeout: refreshTimeout},
	}, hostAs[tool.Host], t.refreshTools)
}

// toolsListIn has the arguments of tools.list and tools.policy.
type toolsListIn struct {
	Limit  int    `json:"limit,omitzero" jsonschema:"description=tools of a page,minimum=1,maximum=1000"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the previous page"`
	Prefix string `json:"prefix,omitzero" jsonschema:"description=prefix of the names,maxLength=256"`
}

// policyText returns the approval policy of a tool as JSON.
func policyText(t *tool.Tool) arcp.Raw {
	raw, err := arcp.Marshal(t.Approval)
	if err != nil { // a word or a text
		panic("builtin: approval: " + err.Error())
	}
	return raw
}

// listTools returns a page of the catalog. row returns an item and its size in bytes. The cursor
// has the name of the last tool, so that added and removed tools do not shift a page.
func listTools[T any](t *catalogTools, v engine.Viewer, list string, in *toolsListIn, all bool,
	row func(*catalog.Listed) (T, int)) (arcp.Page[T], error) {
	request := paging.Request{Scope: list + "\x00" + v.Principal() + "\x00" + in.Prefix, Cursor: in.Cursor, Limit: in.Limit}
	return paging.Page(t.cursors, request, func(after string, add paging.Add[T]) error {
		for l := range v.Catalog().List(after, in.Prefix, all) {
			if item, size := row(&l); !add(l.Agent.Name, size, &item) {
				break
			}
		}
		return nil
	})
}

func (t *catalogTools) list(_ context.Context, v engine.Viewer, in toolsListIn) (out arcp.ToolPage, err error) {
	out.Generation = v.Catalog().Generation()
	workers := t.workers
	out.Page, err = listTools(t, v, "tools", &in, false, func(l *catalog.Listed) (arcp.ToolEntry, int) {
		t := l.Tool
		e := arcp.ToolEntry{Name: l.Agent.Name, Version: t.Version, Versions: l.Agent.Versions, Description: t.Description,
			SideEffect: string(t.SideEffect), Source: string(t.Source), Approval: policyText(t), MinTrust: t.MinTrust}
		if t.Source == tool.SourceWorker {
			e.Workers = new(uint32(workers.ConnectedAgents(t.Ref())))
		}
		return e, len(e.Name) + len(e.Description) + len(e.Approval)
	})
	return out, err
}

type toolsDescribeIn struct {
	Name string `json:"name" jsonschema:"description=name or name@version"`
}

// describe handles tools.describe. It returns PERMISSION_DENIED for a tool above the trust level
// of the session.
func (*catalogTools) describe(_ context.Context, v engine.Viewer, in toolsDescribeIn) (d arcp.ToolView, err error) {
	t, refused := v.Catalog().Resolve(in.Name)
	switch {
	case refused != nil:
		return d, refused
	case !t.AllowsTrust(v.Trust()):
		return d, arcp.Errorf(arcp.CodePermissionDenied, "%s needs the trust level %s", t.Name, t.MinTrust)
	}
	l := t.Limits
	d = arcp.ToolView{Name: t.Name, Version: t.Version, Versions: v.Catalog().Versions(t.Name), Description: t.Description,
		InputSchema: schemaOrAny(t.InputSchema), OutputSchema: t.OutputSchema, SideEffect: string(t.SideEffect), Approval: policyText(t),
		MinTrust: t.MinTrust, Recovery: string(t.Recovery), Idempotent: *t.Idempotent, Interruptible: t.Interruptible, ReadsStreams: t.ReadsStreams, Source: string(t.Source),
		Limits: arcp.ToolLimits{TimeoutMS: limit(l.Timeout.Milliseconds()), MaxRequestBytes: limit(l.MaxRequestBytes),
			MaxResponseBytes: limit(l.MaxResponseBytes), Concurrency: limit(l.Concurrency), RatePerMin: limit(l.RatePerMin),
			StartTimeoutMS: limit(l.StartTimeout.Milliseconds())}}
	if t.Retry.MaxAttempts > 1 {
		d.Retry, err = arcp.Marshal(t.Retry)
	}
	return d, err
}

// limit returns a limit for a result; nil: there is none.
func limit[T int | int64](n T) *int64 {
	if n <= 0 {
		return nil
	}
	return new(int64(n))
}

// schemaOrAny returns a schema; for nil the schema that permits any value.
func schemaOrAny(schema arcp.Raw) arcp.Raw {
	if schema == nil {
		return arcp.Raw("{}")
	}
	return schema
}

type toolsPolicyOut struct {
	Principal  string          `json:"principal"`
	SessionID  string          `json:"session_id,omitzero"`
	Trust      arcp.TrustLevel `json:"trust"`
	Roles      []string        `json:"roles"`
	Lease      arcp.Raw        `json:"lease,omitzero"` // lease of a job without a lease_request, and the bound of other jobs
	Overlay    overlayOut      `json:"overlay"`
	Refusal    *arcp.Error     `json:"refusal,omitzero"` // why every job of the session would be refused now; nil: one would be accepted
	Generation uint64          `json:"generation"`
	Items      []toolPolicy    `json:"items"`
	NextCursor string          `json:"next_cursor,omitzero"`
}

type overlayOut struct {
	Revision    uint64   `json:"revision"`
	IncludeBase bool     `json:"include_base"`
	Tools       []string `json:"tools"`
	Hide        []string `json:"hide"`
	Prompts     []string `json:"prompts"`
}

// toolPolicy tells the ways in which the session may use a tool.
type toolPolicy struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Submit   bool     `json:"submit"` // as a job
	Call     bool     `json:"call"`   // by a job with the session's lease
	Delegate bool     `json:"delegate"`
	Reason   string   `json:"reason,omitzero"` // why the first one is not allowed
	Approval arcp.Raw `json:"approval_policy"`
}

// policy handles tools.policy. It returns the rights of the session, and a page of what it may
// do with each tool.
func (t *catalogTools) policy(_ context.Context, v engine.Viewer, in toolsListIn) (toolsPolicyOut, error) {
	rec := session.OverlayRecord{IncludeBase: true}
	if s := t.sessions.Find(v.Session()); s != nil {
		rec = s.Overlay().Record()
	}
	out := toolsPolicyOut{
		Principal:  v.Principal(),
		SessionID:  string(v.Session()),
		Trust:      v.Trust(),
		Roles:      append([]string{}, v.Roles()...),
		Refusal:    v.JobRefusal(),
		Generation: v.Catalog().Generation(),
		Overlay: overlayOut{
			rec.Revision, rec.IncludeBase,
			append([]string{}, rec.Tools...), append([]string{}, rec.Hide...), append([]string{}, rec.Prompts...),
		},
	}
	if l := v.JobLease(); l != nil {
		out.Lease = l.WireJSON()
	}
	page, err := listTools(t, v, "policy", &in, true, func(l *catalog.Listed) (toolPolicy, int) {
		p := policyOf(v, l.Tool)
		return p, len(p.Name) + len(p.Approval) + len(p.Reason)
	})
	out.Items, out.NextCursor = page.Items, page.NextCursor
	return out, err
}

func policyOf(v engine.Viewer, t *tool.Tool) toolPolicy {
	p := toolPolicy{Name: t.Name, Version: t.Version, Approval: policyText(t), Submit: t.AllowsTrust(v.Trust())}
	call, delegate := v.JobLease().Covers(arcp.NamespaceToolCall, t.Name), v.JobLease().Covers(arcp.NamespaceAgentDelegate, t.Name)
	ended := t.Source != tool.SourceBuiltin && v.JobLease().Expired(time.Now())
	callable := p.Submit && t.Source != tool.SourceBuiltin
	p.Call, p.Delegate = callable && call == nil, callable && delegate == nil
	if ended {
		p.Submit, p.Call, p.Delegate = false, false, false
	}
	switch {
	case ended:
		p.Reason = "the principal's lease ended at " + v.JobLease().ExpiresAt().UTC().Format(time.RFC3339)
	case !p.Submit:
		p.Reason = "it needs the trust level " + string(t.MinTrust)
	case !callable:
		p.Reason = "it is for clients; no job calls it"
	case call != nil:
		p.Reason = call.Message
	case delegate != nil:
		p.Reason = delegate.Message
	}
	return p
}

type toolsCallsIn struct {
	JobID  arcp.JobID `json:"job_id" jsonschema:"description=the job whose calls are listed"`
	Limit  int        `json:"limit,omitzero" jsonschema:"description=calls of a page,minimum=1,maximum=200"`
	Cursor string     `json:"cursor,omitzero" jsonschema:"description=next_cursor of the previous page"`
}

func (t *catalogTools) calls(ctx context.Context, caller *Caller, in toolsCallsIn) (page arcp.Page[engine.CallRecord], err error) {
	j, refused := t.jobs.Get(ctx, &caller.Actor, in.JobID)
	if refused != nil {
		return page, refused
	}
	request := paging.Request{
		Scope:    "calls\x00" + caller.Principal + "\x00" + string(in.JobID),
		Cursor:   in.Cursor,
		Limit:    cmp.Or(in.Limit, defaultCalls),
		MaxBytes: maxCallsBytes,
	}
	return paging.Page(t.cursors, request, func(after string, add paging.Add[engine.CallRecord]) error {
		return t.engine.Calls(ctx, &j, after, func(position string, c engine.CallRecord) bool { return add(position, c.Size, &c) })
	})
}

type toolsOverlayIn struct {
	Tools            []string `json:"tools,omitzero" jsonschema:"description=tools of the base to include; each a name or a name@version"`
	IncludeBase      bool     `json:"include_base" jsonschema:"description=include all tools of the base,default=true"`
	Hide             []string `json:"hide,omitzero" jsonschema:"description=tools to hide; each a name or a name@version"`
	Prompts          []string `json:"prompts,omitzero" jsonschema:"description=contributions to a prompt"`
	ExpectRevision   *uint64  `json:"expect_revision,omitzero" jsonschema:"description=refuse unless the overlay has this revision"`
	ExpectGeneration *uint64  `json:"expect_generation,omitzero" jsonschema:"description=refuse unless the tools have this generation"`
}

type overlaySet struct {
	Revision   uint64 `json:"revision"`
	Generation uint64 `json:"generation"`
}

func (t *catalogTools) overlay(ctx context.Context, v engine.Viewer, in toolsOverlayIn) (out overlaySet, err error) {
	overlay, refused := catalog.ParseOverlay(catalog.Overlay{IncludeBase: in.IncludeBase, Tools: in.Tools, Hide: in.Hide, Prompts: in.Prompts})
	if refused != nil {
		return out, refused
	}
	s := t.sessions.Find(v.Session())
	if s == nil {
		return out, arcp.Errorf(arcp.CodeFailedPrecondition, "only a session has an overlay, and yours has ended")
	}
	q := session.OverlayChange{Trust: v.Trust(), Overlay: overlay, Revision: in.ExpectRevision, Generation: in.ExpectGeneration}
	o, snap, err := t.sessions.SetOverlay(ctx, s, q, func() { toolsChanged(t.sessions, s.ID) })
	if err != nil {
		return out, err
	}
	return overlaySet{o.Revision, snap.Generation()}, nil
}

type toolsRefreshed struct {
	Generation uint64 `json:"generation"`
}

// refreshTools makes the sources list their tools again.
func (t *catalogTools) refreshTools(ctx context.Context, _ tool.Host, _ struct{}) (toolsRefreshed, error) {
	if t.refresh.run != nil {
		if err := t.refresh.do(ctx, t.listSources); err != nil {
			return toolsRefreshed{}, err
		}
	}
	return toolsRefreshed{t.registry.Generation()}, nil
}

func (t *catalogTools) listSources(ctx context.Context) error {
	err := t.refresh.run(ctx)
	if _, ok := errors.AsType[*arcp.Error](err); ok || err == nil {
		return err
	}
	t.logger.Error().Err(err).Msg("refresh tools")
	return arcp.Errorf(arcp.CodeUnavailable, "not all sources could list their tools; the log says why").RetryAfter(1)
}

// refresher runs one refresh at a time.
type refresher struct {
	run       func(context.Context) error // nil: no source can refresh
	slot      chan struct{}               // buffered 1: full while a refresh runs
	started   atomic.Uint64               // number of started refreshes
	completed uint64                      // number of the latest refresh without an error; the holder of slot accesses it
}

// do waits for a running refresh and then calls refresh. It does not call it if another refresh has
// started after the call of do and has succeeded.
func (r *refresher) do(ctx context.Context, refresh func(context.Context) error) error {
	called := r.started.Load()
	select {
	case r.slot <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.slot }()
	if r.completed > called {
		return nil
	}
	round := r.started.Add(1)
	err := refresh(ctx)
	if err == nil {
		r.completed = round
	}
	return err
}
