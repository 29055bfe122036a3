package builtin

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/internal/hostservice"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/questions"
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

type hostTools struct {
	agents    *hostservice.Service
	questions *questions.Broker
	cursors   *paging.Cursors
}

func (t *hostTools) register(r *registrar) {
	register(r, writes("host.register_agent", "registers an agent of the caller's session"), r.callers.withSession, t.registerAgent)
	register(r, writes("host.unregister_agent", "removes an agent of the caller's session"), r.callers.of, t.unregisterAgent)
	register(r, writes("host.set_status", "says what an agent of the caller's session does"), r.callers.of, t.setStatus)
	register(r, reads("host.agents", "the caller's agents, by name"), r.callers.of, t.listAgents)
	register(r, reads("host.events", "the latest events of the caller's agents and approvals, the newest first"), r.callers.of, t.listEvents)
	register(r, tool.Capability{Name: "host.subscribe", SideEffect: tool.SideEffectExternal, Recovery: tool.RecoveryRerun, Endless: true,
		Limits:      tool.Limits{Timeout: -1, Concurrency: -1},
		Description: "emits what agents and approvals there are, and then every event of them, until it is cancelled"}, r.callers.of, t.subscribe)
}

func (t *hostTools) registerAgent(ctx context.Context, who *Caller, in registerAgentIn) (host.Agent, error) {
	if err := in.check(); err != nil {
		return host.Agent{}, err
	}
	if len(in.Executes) > 0 && !who.Worker {
		return host.Agent{}, arcp.Errorf(arcp.CodePermissionDenied, "an agent that executes jobs needs the role %s", auth.RoleWorker)
	}
	return t.agents.Register(ctx, in.agent(), who.Actor)
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

func (t *hostTools) unregisterAgent(ctx context.Context, who *Caller, in agentIDIn) (unregistered, error) {
	err := t.agents.Host.Unregister(ctx, who.Principal, who.Session, in.AgentID)
	return unregistered{err == nil}, t.agents.Failed(ctx, err)
}

func (t *hostTools) setStatus(ctx context.Context, who *Caller, in setStatusIn) (host.Agent, error) {
	if len(in.Payload) > maxHostPayload {
		return host.Agent{}, arcp.Errorf(arcp.CodeInvalidArgument, "payload: it may have at most %d bytes", maxHostPayload)
	}
	a, err := t.agents.Host.SetStatus(ctx, who.Principal, who.Session, in.AgentID,
		host.StatusChange{Status: host.Status(in.Status), CurrentTask: in.CurrentTask, Message: in.Message, Payload: in.Payload})
	return a, t.agents.Failed(ctx, err)
}

func (t *hostTools) listAgents(_ context.Context, who *Caller, in hostListIn) (arcp.Page[host.Agent], error) {
	request := paging.Request{Scope: "agents\x00" + who.Principal, Cursor: in.Cursor, Limit: in.Limit}
	return paging.Page(t.cursors, request, func(after string, add paging.Add[host.Agent]) error {
		var from host.Agent
		if end := strings.LastIndexByte(after, 0); end >= 0 { // ids are visible ASCII
			from.Name, from.ID = after[:end], after[end+1:]
		}
		for _, a := range t.agents.WithConnections(t.agents.Host.Agents(who.Principal)) {
			if host.Compare(a, from) > 0 && !add(a.Name+"\x00"+a.ID, len(a.Capabilities)+len(a.Metadata), &a) {
				break
			}
		}
		return nil
	})
}

func (t *hostTools) listEvents(_ context.Context, who *Caller, in hostEventsIn) (hostEventPage, error) {
	return hostEventPage{append([]host.Event{}, t.agents.Host.Events(who.Principal, cmp.Or(in.Limit, defaultEvents))...)}, nil
}
