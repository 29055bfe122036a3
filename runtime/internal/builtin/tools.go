package builtin

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/jobs"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of tools.calls. A row is made of the row and the log of a job.
const (
	defaultCalls  = 50
	maxCallsBytes = 8 << 20 // of results, which are read for their digests
)

// refreshTimeout bounds the time in which sources list their tools again.
const refreshTimeout = time.Minute

// catalogTools are the tools tools.*.
type catalogTools struct {
	registry *tool.Registry
	engine   *engine.Engine
	sessions *session.Directory
	jobs     *jobs.Reader
	cursors  *paging.Cursors
	logger   zerolog.Logger
	refresh  refresher
}

func (t *catalogTools) register(r *registrar) {
	register(r, reads("tools.list", "the tools of the session's catalogue, by name"), as[engine.Viewer], t.list)
	register(r, reads("tools.describe", "all that is to know of a tool"), as[engine.Viewer], t.describe)
	register(r, reads("tools.policy", "what the session may do with the tools, and why not"), as[engine.Viewer], t.policy)
	register(r, reads("tools.calls", "the calls of tools that a job consists of and has made"), r.callers.of, t.calls)
	register(r, writes("tools.overlay", "sets what the session's catalogue is on top of the base"), as[engine.Viewer], t.overlay)
	register(r, tool.Capability{Name: "tools.refresh", SideEffect: tool.SideEffectExternal, Description: "has the sources of tools list them anew",
		Recovery: tool.RecoveryRerun, Limits: tool.Limits{Timeout: refreshTimeout}}, as[tool.Host], t.refreshTools)
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
		panic("builtin: approval: " + err.Error())
	}
	return raw
}

// listTools returns a page of the catalogue; row returns an item and its size. The position of
// a tool is its name, so that tools that come and go move no other tool.
func listTools[T any](t *catalogTools, v engine.Viewer, list string, in *toolsListIn, all bool, row func(*tool.Listed) (T, int)) (arcp.Page[T], error) {
	request := paging.Request{Scope: list + "\x00" + v.Principal() + "\x00" + in.Prefix, Cursor: in.Cursor, Limit: in.Limit}
	return paging.Page(t.cursors, request, func(after string, add paging.Add[T]) error {
		for l := range v.Catalogue().List(after, in.Prefix, all) {
			if item, size := row(&l); !add(l.Agent.Name, size, &item) {
				break
			}
		}
		return nil
	})
}

func (t *catalogTools) list(_ context.Context, v engine.Viewer, in toolsListIn) (out arcp.ToolPage, err error) {
	out.Generation = v.Catalogue().Generation()
	out.Page, err = listTools(t, v, "tools", &in, false, func(l *tool.Listed) (arcp.ToolEntry, int) {
		t := l.Tool
		e := arcp.ToolEntry{Name: l.Agent.Name, Version: t.Version, Versions: l.Agent.Versions, Description: t.Description,
			SideEffect: string(t.SideEffect), Source: t.Source, Approval: policyText(t), MinTrust: t.MinTrust}
		return e, len(e.Name) + len(e.Description) + len(e.Approval)
	})
	return out, err
}

type toolsDescribeIn struct {
	Name string `json:"name" jsonschema:"description=name or name@version"`
}

func (*catalogTools) describe(_ context.Context, v engine.Viewer, in toolsDescribeIn) (d arcp.ToolView, err error) {
	t, refused := v.Catalogue().Resolve(in.Name)
	switch {
	case refused != nil:
		return d, refused
	case !t.AllowsTrust(v.Trust()):
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

// limit returns a limit for a result; nil: it is off.
func limit[T int | int64](n T) *int64 {
	if n <= 0 {
		return nil
	}
	return new(int64(n))
}

// schemaOr returns a schema, or the one that permits any value.
func schemaOr(schema arcp.Raw) arcp.Raw {
	if schema == nil {
		return arcp.Raw("{}")
	}
	return schema
}

type toolsPolicyOut struct {
	Principal  string       `json:"principal"`
	SessionID  string       `json:"session_id,omitzero"`
	Trust      string       `json:"trust"`
	Roles      []string     `json:"roles"`
	Lease      arcp.Raw     `json:"lease,omitzero"` // of jobs without a lease_request; the upper bound of the others
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

// toolPolicy says what the session may do with a tool.
type toolPolicy struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Submit   bool     `json:"submit"` // as a job
	Call     bool     `json:"call"`   // by a job with the session's lease
	Delegate bool     `json:"delegate"`
	Reason   string   `json:"reason,omitzero"` // why the first of them is not allowed
	Approval arcp.Raw `json:"approval_policy"`
}

func (t *catalogTools) policy(_ context.Context, v engine.Viewer, in toolsListIn) (toolsPolicyOut, error) {
	rec := session.OverlayRecord{IncludeBase: true}
	if s := t.sessions.Find(v.Session()); s != nil {
		rec = s.Overlay().Record()
	}
	out := toolsPolicyOut{Principal: v.Principal(), SessionID: string(v.Session()), Trust: v.Trust(), Roles: append([]string{}, v.Roles()...),
		Generation: v.Catalogue().Generation(),
		Overlay:    overlayOut{rec.Revision, rec.IncludeBase, append([]string{}, rec.Tools...), append([]string{}, rec.Hide...), append([]string{}, rec.Prompts...)}}
	if l := v.JobLease(); l != nil {
		out.Lease = l.RFC()
	}
	page, err := listTools(t, v, "policy", &in, true, func(l *tool.Listed) (toolPolicy, int) {
		p := policyOf(v, l.Tool)
		return p, len(p.Name) + len(p.Approval) + len(p.Reason)
	})
	out.Items, out.NextCursor = page.Items, page.NextCursor
	return out, err
}

func policyOf(v engine.Viewer, t *tool.Tool) toolPolicy {
	p := toolPolicy{Name: t.Name, Version: t.Version, Approval: policyText(t), Submit: t.AllowsTrust(v.Trust())}
	call, delegate := v.JobLease().Covers(arcp.NamespaceToolCall, t.Name), v.JobLease().Covers(arcp.NamespaceAgentDelegate, t.Name)
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
	JobID  arcp.JobID `json:"job_id" jsonschema:"description=the job whose calls are listed"`
	Limit  int        `json:"limit,omitzero" jsonschema:"description=calls a page,minimum=1,maximum=200"`
	Cursor string     `json:"cursor,omitzero" jsonschema:"description=next_cursor of the page before"`
}

func (t *catalogTools) calls(ctx context.Context, who *Caller, in toolsCallsIn) (page arcp.Page[engine.CallRecord], err error) {
	j, refused := t.jobs.Visible(ctx, &who.Actor, in.JobID)
	if refused != nil {
		return page, refused
	}
	request := paging.Request{Scope: "calls\x00" + who.Principal + "\x00" + string(in.JobID), Cursor: in.Cursor, Limit: cmp.Or(in.Limit, defaultCalls), MaxBytes: maxCallsBytes}
	return paging.Page(t.cursors, request, func(after string, add paging.Add[engine.CallRecord]) error {
		return t.engine.Calls(ctx, &j, after, func(place string, c engine.CallRecord) bool { return add(place, c.Size, &c) })
	})
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

func (t *catalogTools) overlay(ctx context.Context, v engine.Viewer, in toolsOverlayIn) (out overlaySet, err error) {
	overlay, refused := tool.ParseOverlay(tool.Overlay{IncludeBase: in.IncludeBase, Tools: in.Tools, Hide: in.Hide, Prompts: in.Prompts})
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
	run   func(context.Context) error // nil: there is nothing to refresh
	turn  chan struct{}               // buffered 1; full while a refresh runs
	begun atomic.Uint64               // refreshes
	done  uint64                      // the latest one without an error; the holder of turn accesses it
}

// do waits for its turn and calls refresh, unless a whole refresh has run since the call of
// do.
func (r *refresher) do(ctx context.Context, refresh func(context.Context) error) error {
	called := r.begun.Load()
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.turn }()
	if r.done > called {
		return nil
	}
	round := r.begun.Add(1)
	err := refresh(ctx)
	if err == nil {
		r.done = round
	}
	return err
}
