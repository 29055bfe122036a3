package runtime

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of agents (SPEC.md §7.7).
const (
	maxCapabilities = 64 << 10 // bytes of JSON: the schemas of tools are in it
	maxMetadata     = 16 << 10
	maxHostPayload  = 16 << 10
	defaultEvents   = 100
)

type registerAgentIn struct {
	ID           string     `json:"id,omitzero" jsonschema:"description=of the agent; default a new one,minLength=1,maxLength=256"`
	Name         string     `json:"name" jsonschema:"description=of the agent; for people,minLength=1,maxLength=256"`
	Kind         string     `json:"kind" jsonschema:"description=what kind of agent it is,minLength=1,maxLength=64"`
	Capabilities arcp.Raw   `json:"capabilities,omitzero" jsonschema:"description=what it can do: an array or an object"`
	Executes     []string   `json:"executes,omitempty" jsonschema:"description=the tools whose jobs it is given; each a name@version,maxItems=64"`
	Concurrency  int        `json:"concurrency,omitzero" jsonschema:"description=jobs it is given at once,minimum=1,maximum=1000"`
	Project      string     `json:"project,omitzero" jsonschema:"description=what it works on,maxLength=256"`
	PID          int64      `json:"pid,omitzero" jsonschema:"description=its process,minimum=1"`
	Display      *displayIn `json:"display,omitzero" jsonschema:"description=how it wants to be shown"`
	Metadata     arcp.Raw   `json:"metadata,omitzero" jsonschema:"description=an object; never secrets"`
}

type displayIn struct {
	Label  string `json:"label,omitzero" jsonschema:"maxLength=256"`
	Icon   string `json:"icon,omitzero" jsonschema:"maxLength=256"`
	Accent string `json:"accent,omitzero" jsonschema:"maxLength=64"`
}

type agentIDIn struct {
	AgentID string `json:"agent_id" jsonschema:"description=of the agent"`
}

type unregistered struct {
	Unregistered bool `json:"unregistered"`
}

type setStatusIn struct {
	AgentID     string   `json:"agent_id" jsonschema:"description=of the agent"`
	Status      string   `json:"status" jsonschema:"description=what it does,enum=idle|running|waiting_for_approval|paused|completed|errored|stopped"`
	CurrentTask *string  `json:"current_task,omitzero" jsonschema:"description=what it works on; left out: as before,maxLength=1024"`
	Message     string   `json:"message,omitzero" jsonschema:"description=of the event,maxLength=4096"`
	Payload     arcp.Raw `json:"payload,omitzero" jsonschema:"description=of the event; default the agent"`
}

type hostListIn struct {
	Limit  int    `json:"limit,omitzero" jsonschema:"description=agents a page,minimum=1,maximum=1000"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the page before"`
}

type hostEventsIn struct {
	Limit int `json:"limit,omitzero" jsonschema:"description=events at most,minimum=1,maximum=500"`
}

type hostEventPage struct {
	Items []host.Event `json:"items"`
}

func (r *Runtime) registerHost() error {
	return errors.Join(
		builtin(r, "host.register_agent", tool.SideEffectWrite, "registers an agent of the caller's session", r.registerAgent),
		builtin(r, "host.unregister_agent", tool.SideEffectWrite, "removes an agent of the caller's session", r.unregisterAgent),
		builtin(r, "host.set_status", tool.SideEffectWrite, "says what an agent of the caller's session does", r.setStatus),
		builtin(r, "host.agents", tool.SideEffectRead, "the caller's agents, by name", r.hostAgents),
		builtin(r, "host.events", tool.SideEffectRead, "the latest events of the caller's agents and approvals, the newest first", r.hostEvents),
		builtinLike(r, tool.Capability{Name: "host.subscribe", SideEffect: tool.SideEffectExternal, Recovery: tool.RecoveryRerun, Endless: true,
			Limits:      tool.Limits{Timeout: -1, Concurrency: -1},
			Description: "emits what agents and approvals there are, and then every event of them, until it is cancelled"}, r.hostSubscribe),
	)
}

// newHost makes the host of the runtime.
func (r *Runtime) newHost() *host.Host {
	for _, s := range host.Statuses {
		r.metrics.Agents.WithLabelValues(string(s)).Set(0)
	}
	return host.New(host.Options{Log: r.log, Store: r.cfg.Store, Released: r.released,
		Count: func(s host.Status, n int) { r.metrics.Agents.WithLabelValues(string(s)).Set(float64(n)) },
		Lives: r.sessions.Lives})
}

func (r *Runtime) registerAgent(ctx context.Context, job tool.Job, in registerAgentIn) (host.Agent, error) {
	who, err := r.owner(job)
	if err != nil {
		return host.Agent{}, err
	}
	if err := in.check(); err != nil {
		return host.Agent{}, err
	}
	if err := mayExecute(&who, in.Executes); err != nil {
		return host.Agent{}, err
	}
	a := in.agent()
	a.Principal, a.Session = who.Principal, who.Session
	a, err = r.host.Register(ctx, a, func(next, old *host.Agent) (func(bool), *arcp.Error) { return r.claimNames(next, old, who) })
	return a, r.hostFailed(ctx, err)
}

// owner is the session of a caller that has one: agents belong to sessions.
func (r *Runtime) owner(job tool.Job) (approval.Who, error) {
	who, err := r.caller(job)
	if err == nil && who.Session == "" {
		err = arcp.Errorf(arcp.CodeFailedPrecondition, "an agent belongs to a session, and this job to none")
	}
	return who, err
}

func (in *registerAgentIn) check() *arcp.Error {
	switch {
	case strings.ContainsFunc(in.ID, func(c rune) bool { return c <= ' ' || c > '~' }):
		return arcp.Errorf(arcp.CodeInvalidArgument, "id: it must be visible ASCII characters")
	case len(in.Capabilities) > maxCapabilities || len(in.Capabilities) > 0 && !strings.ContainsRune("[{", rune(in.Capabilities.Kind())):
		return arcp.Errorf(arcp.CodeInvalidArgument, "capabilities: it must be an array or an object of at most %d bytes", maxCapabilities)
	case len(in.Metadata) > maxMetadata || len(in.Metadata) > 0 && in.Metadata.Kind() != '{':
		return arcp.Errorf(arcp.CodeInvalidArgument, "metadata: it must be an object of at most %d bytes", maxMetadata)
	case len(in.Executes) == 0 && in.Concurrency > 0:
		return arcp.Errorf(arcp.CodeInvalidArgument, "concurrency is for agents that say what they execute")
	}
	for i, ref := range in.Executes {
		parsed, err := arcp.ParseAgentRef(ref)
		switch {
		case err != nil || parsed.Version == "":
			return arcp.Errorf(arcp.CodeInvalidArgument, "executes: %q is not a name@version", ref)
		case slices.Contains(in.Executes[:i], ref):
			return arcp.Errorf(arcp.CodeInvalidArgument, "executes: %s is there twice", ref)
		}
	}
	return nil
}

func (in *registerAgentIn) agent() host.Agent {
	a := host.Agent{ID: in.ID, Name: in.Name, Kind: in.Kind, Capabilities: in.Capabilities, Executes: in.Executes, Concurrency: in.Concurrency,
		Project: in.Project, PID: in.PID, Metadata: in.Metadata}
	if a.ID == "" {
		b := make([]byte, 6)
		rand.Read(b) // never fails
		a.ID = "agent-" + hex.EncodeToString(b)
	}
	if d := in.Display; d != nil {
		a.Display = &host.Display{Label: d.Label, Icon: d.Icon, Accent: d.Accent}
	}
	return a
}

// mayExecute refuses an agent that wants to execute jobs and must not, or cannot.
func mayExecute(who *approval.Who, names []string) *arcp.Error {
	if len(names) > 0 && !who.Worker {
		return arcp.Errorf(arcp.CodePermissionDenied, "an agent that executes jobs needs the role %s", auth.RoleWorker)
	}
	return nil
}

// claimNames has an agent execute what it names from now on, instead of what it
// named before. settle undoes it if its row cannot be written.
func (r *Runtime) claimNames(a, old *host.Agent, who approval.Who) (settle func(ok bool), err *arcp.Error) {
	had := old != nil && len(old.Executes) > 0
	if len(a.Executes) == 0 {
		return func(ok bool) {
			if ok && had {
				r.executors.Unregister(*old)
			}
		}, nil
	}
	if err := r.executors.Register(*a, who); err != nil {
		return nil, err
	}
	return func(ok bool) {
		switch {
		case ok:
		case had:
			if err := r.executors.Register(*old, who); err != nil {
				r.cfg.Log.Error().Err(err).Str("agent_id", a.ID).Msg("an agent does not execute any more what it did")
			}
		default:
			r.executors.Unregister(*a)
		}
	}, nil
}

// released is told of an agent that its session has no more.
func (r *Runtime) released(a host.Agent) {
	if len(a.Executes) > 0 {
		r.executors.Unregister(a)
	}
}

// hostFailed is an error of the host as its caller is told.
func (r *Runtime) hostFailed(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	if e, ok := errors.AsType[*arcp.Error](err); ok {
		return e
	}
	return txn.Unavailable(r.cfg.Log, err, "change an agent")
}

func (r *Runtime) unregisterAgent(ctx context.Context, job tool.Job, in agentIDIn) (unregistered, error) {
	who, err := r.caller(job)
	if err != nil {
		return unregistered{}, err
	}
	err = r.host.Unregister(ctx, who.Principal, who.Session, in.AgentID)
	return unregistered{err == nil}, r.hostFailed(ctx, err)
}

func (r *Runtime) setStatus(ctx context.Context, job tool.Job, in setStatusIn) (host.Agent, error) {
	who, err := r.caller(job)
	if err != nil {
		return host.Agent{}, err
	}
	if len(in.Payload) > maxHostPayload {
		return host.Agent{}, arcp.Errorf(arcp.CodeInvalidArgument, "payload: it may have at most %d bytes", maxHostPayload)
	}
	a, err := r.host.SetStatus(ctx, who.Principal, who.Session, in.AgentID,
		host.StatusChange{Status: host.Status(in.Status), CurrentTask: in.CurrentTask, Message: in.Message, Payload: in.Payload})
	return a, r.hostFailed(ctx, err)
}

func (r *Runtime) hostAgents(_ context.Context, job tool.Job, in hostListIn) (page arcp.Page[host.Agent], err error) {
	who, err := r.caller(job)
	if err != nil {
		return page, err
	}
	list := r.host.Agents(who.Principal)
	bound := []byte("agents\x00" + who.Principal)
	after, err := r.cursors.OpenKey(in.Cursor, bound)
	if err != nil {
		return page, err
	}
	if end := strings.LastIndexByte(after, 0); end >= 0 { // ids are visible ASCII
		i, found := slices.BinarySearchFunc(list, host.Agent{Name: after[:end], ID: after[end+1:]}, host.Compare)
		if found {
			i++
		}
		list = list[i:]
	}
	page.Items = r.withConnections(list[:pageLen(list, cmp.Or(in.Limit, paging.DefaultLen))])
	if n := len(page.Items); n < len(list) {
		page.NextCursor = r.cursors.SealKey(list[n-1].Name+"\x00"+list[n-1].ID, bound)
	}
	if page.Items == nil {
		page.Items = []host.Agent{}
	}
	return page, nil
}

// pageLen returns how many agents of the list fit into a page.
func pageLen(list []host.Agent, limit int) int {
	size := 0
	for i := range list {
		if i == limit || size >= paging.MaxBytes {
			return i
		}
		size += len(list[i].Capabilities) + len(list[i].Metadata)
	}
	return len(list)
}

// withConnections returns the agents with the status Disconnected for those whose session
// has no connection.
func (r *Runtime) withConnections(list []host.Agent) []host.Agent {
	list = slices.Clone(list)
	for i := range list {
		switch list[i].Status {
		case host.Completed, host.Errored, host.Stopped:
		default:
			if s := r.sessions.Find(list[i].Session); s != nil && s.Conn() == nil {
				list[i].Status = host.Disconnected
			}
		}
	}
	return list
}

func (r *Runtime) hostEvents(_ context.Context, job tool.Job, in hostEventsIn) (page hostEventPage, err error) {
	who, err := r.caller(job)
	if err != nil {
		return page, err
	}
	page.Items = r.host.Events(who.Principal, cmp.Or(in.Limit, defaultEvents))
	if page.Items == nil {
		page.Items = []host.Event{}
	}
	return page, nil
}

// loadHost takes over the agents of the store: those whose sessions have ended are
// stopped, and those that execute jobs do so before any is recovered.
func (r *Runtime) loadHost(ctx context.Context) error {
	err := r.host.Load(ctx, func(key string, err error) {
		r.cfg.Log.Error().Err(err).Str("record", key).Msg("an agent cannot be read and is left out")
	})
	if err == nil {
		err = r.sweepHost(ctx, time.Now())
	}
	if err != nil {
		return err
	}
	for _, a := range r.host.All() {
		if len(a.Executes) == 0 {
			continue
		}
		if refused := r.executeAgain(ctx, a); refused != nil {
			r.cfg.Log.Error().Err(refused).Str("agent_id", a.ID).Str("principal", a.Principal).Msg("an agent does not execute jobs any more")
			if err := r.host.Fail(ctx, a.Principal, a.ID, fmt.Sprintf("%s does not execute jobs any more: %s", a.Name, refused.Message)); err != nil {
				return err
			}
		}
	}
	return nil
}

// executeAgain has an agent execute what it did before a restart.
func (r *Runtime) executeAgain(ctx context.Context, a host.Agent) *arcp.Error {
	who, err := r.stored(ctx, a.Session)
	if err != nil {
		r.cfg.Log.Error().Err(err).Str("session_id", string(a.Session)).Msg("identity of a session")
		return arcp.Errorf(arcp.CodeUnauthenticated, "it is not known who its session is")
	}
	if !who.Worker {
		return arcp.Errorf(arcp.CodePermissionDenied, "its session does not have the role %s", auth.RoleWorker)
	}
	return r.executors.Register(a, who)
}

// stored is who a session is, by what its credentials stand for now: nobody is
// there to show them.
func (r *Runtime) stored(ctx context.Context, id arcp.SessionID) (approval.Who, error) {
	row, err := r.cfg.Store.Session(ctx, id)
	if err != nil {
		return approval.Who{}, err
	}
	var identity auth.Identity
	if err := arcp.Unmarshal(row.Identity, &identity); err != nil {
		return approval.Who{}, err
	}
	request := auth.Request{Now: time.Now()}
	if uid, ok := strings.CutPrefix(identity.Principal, "uid:"); ok && identity.Scheme == auth.None { // the store is as good as the system that said so
		if request.PeerUID, err = strconv.Atoi(uid); err != nil {
			return approval.Who{}, err
		}
		request.Local = true
	}
	if identity, err = r.cfg.Auth.Again(identity, request); err != nil {
		return approval.Who{}, err
	}
	return whoOf(&identity, id, slices.Contains(row.Negotiated, arcp.FeatureHumanInput)), nil
}

// sweepHost is what the janitor does for the host.
func (r *Runtime) sweepHost(ctx context.Context, now time.Time) error {
	var before time.Time
	if r.cfg.Retention > 0 {
		before = now.Add(-r.cfg.Retention)
	}
	return r.host.Sweep(ctx, before, r.sessions.Has)
}
