package builtin

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/internal/paging"
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

func (b *Tools) registerHost() error {
	return errors.Join(
		builtin(b, "host.register_agent", tool.SideEffectWrite, "registers an agent of the caller's session", b.registerAgent),
		builtin(b, "host.unregister_agent", tool.SideEffectWrite, "removes an agent of the caller's session", b.unregisterAgent),
		builtin(b, "host.set_status", tool.SideEffectWrite, "says what an agent of the caller's session does", b.setStatus),
		builtin(b, "host.agents", tool.SideEffectRead, "the caller's agents, by name", b.hostAgents),
		builtin(b, "host.events", tool.SideEffectRead, "the latest events of the caller's agents and approvals, the newest first", b.hostEvents),
		builtinLike(b, tool.Capability{Name: "host.subscribe", SideEffect: tool.SideEffectExternal, Recovery: tool.RecoveryRerun, Endless: true,
			Limits:      tool.Limits{Timeout: -1, Concurrency: -1},
			Description: "emits what agents and approvals there are, and then every event of them, until it is cancelled"}, b.hostSubscribe),
	)
}

func (b *Tools) registerAgent(ctx context.Context, job tool.Job, in registerAgentIn) (host.Agent, error) {
	who, err := b.owner(job)
	if err != nil {
		return host.Agent{}, err
	}
	if err := in.check(); err != nil {
		return host.Agent{}, err
	}
	if err := mayExecute(&who, in.Executes); err != nil {
		return host.Agent{}, err
	}
	return b.Agents.Register(ctx, in.agent(), who)
}

// owner is the session of a caller that has one: agents belong to sessions.
func (b *Tools) owner(job tool.Job) (approval.Actor, error) {
	who, err := b.caller(job)
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
func mayExecute(who *approval.Actor, names []string) *arcp.Error {
	if len(names) > 0 && !who.Worker {
		return arcp.Errorf(arcp.CodePermissionDenied, "an agent that executes jobs needs the role %s", auth.RoleWorker)
	}
	return nil
}

func (b *Tools) unregisterAgent(ctx context.Context, job tool.Job, in agentIDIn) (unregistered, error) {
	who, err := b.caller(job)
	if err != nil {
		return unregistered{}, err
	}
	err = b.Agents.Host.Unregister(ctx, who.Principal, who.Session, in.AgentID)
	return unregistered{err == nil}, b.Agents.Failed(ctx, err)
}

func (b *Tools) setStatus(ctx context.Context, job tool.Job, in setStatusIn) (host.Agent, error) {
	who, err := b.caller(job)
	if err != nil {
		return host.Agent{}, err
	}
	if len(in.Payload) > maxHostPayload {
		return host.Agent{}, arcp.Errorf(arcp.CodeInvalidArgument, "payload: it may have at most %d bytes", maxHostPayload)
	}
	a, err := b.Agents.Host.SetStatus(ctx, who.Principal, who.Session, in.AgentID,
		host.StatusChange{Status: host.Status(in.Status), CurrentTask: in.CurrentTask, Message: in.Message, Payload: in.Payload})
	return a, b.Agents.Failed(ctx, err)
}

func (b *Tools) hostAgents(_ context.Context, job tool.Job, in hostListIn) (page arcp.Page[host.Agent], err error) {
	who, err := b.caller(job)
	if err != nil {
		return page, err
	}
	list := b.Agents.Host.Agents(who.Principal)
	bound := []byte("agents\x00" + who.Principal)
	after, err := b.Cursors.OpenKey(in.Cursor, bound)
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
	page.Items = b.Agents.WithConnections(list[:pageLen(list, cmp.Or(in.Limit, paging.DefaultLen))])
	if n := len(page.Items); n < len(list) {
		page.NextCursor = b.Cursors.SealKey(list[n-1].Name+"\x00"+list[n-1].ID, bound)
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

func (b *Tools) hostEvents(_ context.Context, job tool.Job, in hostEventsIn) (page hostEventPage, err error) {
	who, err := b.caller(job)
	if err != nil {
		return page, err
	}
	page.Items = b.Agents.Host.Events(who.Principal, cmp.Or(in.Limit, defaultEvents))
	if page.Items == nil {
		page.Items = []host.Event{}
	}
	return page, nil
}
