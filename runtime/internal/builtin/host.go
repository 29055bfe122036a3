package builtin

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/agentservice"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of agents (SPEC.md §7.7).
const (
	maxCapabilities = 64 << 10 // bytes of JSON, with the schemas of tools
	maxMetadata     = 16 << 10
	maxHostPayload  = 16 << 10
	defaultEvents   = 100
)

type registerAgentIn struct {
	ID           string     `json:"id,omitzero" jsonschema:"description=id of the agent; default a new id,minLength=1,maxLength=256"`
	Name         string     `json:"name" jsonschema:"description=name of the agent for people,minLength=1,maxLength=256"`
	Kind         string     `json:"kind" jsonschema:"description=kind of the agent,minLength=1,maxLength=64"`
	Capabilities arcp.Raw   `json:"capabilities,omitzero" jsonschema:"description=capabilities of the agent: an array or an object"`
	Executes     []string   `json:"executes,omitempty" jsonschema:"description=tools whose jobs the agent executes; each a name@version,maxItems=64"`
	Concurrency  int        `json:"concurrency,omitzero" jsonschema:"description=maximum of jobs at the same time,minimum=1,maximum=1000"`
	Project      string     `json:"project,omitzero" jsonschema:"description=project of the agent,maxLength=256"`
	PID          int64      `json:"pid,omitzero" jsonschema:"description=process id of the agent,minimum=1"`
	Display      *displayIn `json:"display,omitzero" jsonschema:"description=texts and colour for a display"`
	Metadata     arcp.Raw   `json:"metadata,omitzero" jsonschema:"description=an object without secrets"`
}

type displayIn struct {
	Label  string `json:"label,omitzero" jsonschema:"maxLength=256"`
	Icon   string `json:"icon,omitzero" jsonschema:"maxLength=256"`
	Accent string `json:"accent,omitzero" jsonschema:"maxLength=64"`
}

type agentIDIn struct {
	AgentID string `json:"agent_id" jsonschema:"description=id of the agent"`
}

type unregistered struct {
	Unregistered bool `json:"unregistered"`
}

type setStatusIn struct {
	AgentID     string   `json:"agent_id" jsonschema:"description=id of the agent"`
	Status      string   `json:"status" jsonschema:"description=status of the agent,enum=idle|running|waiting_for_approval|paused|completed|errored|stopped"`
	CurrentTask *string  `json:"current_task,omitzero" jsonschema:"description=current task of the agent; absent: unchanged,maxLength=1024"`
	Message     string   `json:"message,omitzero" jsonschema:"description=message of the event,maxLength=4096"`
	Payload     arcp.Raw `json:"payload,omitzero" jsonschema:"description=payload of the event; default the agent"`
}

type hostListIn struct {
	Limit    int    `json:"limit,omitzero" jsonschema:"description=agents of a page,minimum=1,maximum=1000"`
	Cursor   string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the previous page"`
	Observed bool   `json:"observed,omitzero" jsonschema:"description=also agents of the other principals that the caller may observe"`
	AgentID  string `json:"agent_id,omitzero" jsonschema:"description=only the agent with this id"`
}

type hostEventsIn struct {
	Limit int `json:"limit,omitzero" jsonschema:"description=maximum of events,minimum=1,maximum=500"`
}

type hostEventPage struct {
	Items []agents.Event `json:"items"`
}

type hostTools struct {
	agents    *agentservice.Service
	questions *questions.Broker
	workers   Workers
	cursors   *paging.Cursors
}

func (t *hostTools) register(r *registrar) {
	register(r, writeTool("host.register_agent", "registers an agent of the caller's session"), r.callers.withSession, t.registerAgent)
	register(r, writeTool("host.unregister_agent", "removes an agent of the caller's session"), r.callers.find, t.unregisterAgent)
	register(r, writeTool("host.set_status", "sets the status of an agent of the caller's session"), r.callers.find, t.setStatus)
	register(r, readTool("host.agents", "the caller's agents, by name; with observed those of every principal that it may observe"), r.callers.find, t.listAgents)
	register(r, readTool("host.events", "the latest events of the caller's agents and approvals, the newest first"),
		r.callers.find, t.listEvents)
	register(r, tool.Capability{
		Name:        "host.subscribe",
		SideEffect:  tool.SideEffectExternal,
		Recovery:    tool.RecoveryRerun,
		Endless:     true,
		Limits:      tool.Limits{Timeout: -1, Concurrency: -1},
		Description: "emits the agents and approvals of the caller and then each of their events, until it is cancelled",
	}, r.callers.find, t.subscribe)
}

func (t *hostTools) registerAgent(ctx context.Context, caller *Caller, in registerAgentIn) (agents.Agent, error) {
	if err := in.check(); err != nil {
		return agents.Agent{}, err
	}
	if len(in.Executes) > 0 && !caller.Worker {
		return agents.Agent{}, arcp.Errorf(arcp.CodePermissionDenied, "an agent that executes jobs needs the role %s", auth.RoleWorker)
	}
	return t.agents.Register(ctx, in.agent(), caller.Actor)
}

// check returns INVALID_ARGUMENT for arguments that the schema allows and an agent may not have.
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

// agent returns the agent to register, with a random id if the arguments have none.
func (in *registerAgentIn) agent() agents.Agent {
	a := agents.Agent{
		ID:           in.ID,
		Name:         in.Name,
		Kind:         in.Kind,
		Capabilities: in.Capabilities,
		Executes:     in.Executes,
		Concurrency:  in.Concurrency,
		Project:      in.Project,
		PID:          in.PID,
		Metadata:     in.Metadata,
	}
	if a.ID == "" {
		b := make([]byte, 6)
		rand.Read(b) // never fails
		a.ID = "agent-" + hex.EncodeToString(b)
	}
	if d := in.Display; d != nil {
		a.Display = &agents.Display{Label: d.Label, Icon: d.Icon, Accent: d.Accent}
	}
	return a
}

func (t *hostTools) unregisterAgent(ctx context.Context, caller *Caller, in agentIDIn) (unregistered, error) {
	err := t.agents.Store.Unregister(ctx, caller.Principal, caller.Session, in.AgentID)
	return unregistered{err == nil}, t.agents.Refusal(ctx, err)
}

func (t *hostTools) setStatus(ctx context.Context, caller *Caller, in setStatusIn) (agents.Agent, error) {
	if len(in.Payload) > maxHostPayload {
		return agents.Agent{}, arcp.Errorf(arcp.CodeInvalidArgument, "payload: it may have at most %d bytes", maxHostPayload)
	}
	a, err := t.agents.Store.SetStatus(ctx, caller.Principal, caller.Session, in.AgentID,
		agents.StatusChange{Status: agents.Status(in.Status), CurrentTask: in.CurrentTask, Message: in.Message, Payload: in.Payload})
	return a, t.agents.Refusal(ctx, err)
}

// listAgents handles host.agents. With observed the agents are sorted by principal, name and id.
func (t *hostTools) listAgents(_ context.Context, caller *Caller, in hostListIn) (arcp.Page[agents.Agent], error) {
	request := paging.Request{Scope: "agents\x00" + in.AgentID + "\x00" + caller.Principal, Cursor: in.Cursor, Limit: in.Limit}
	list := func() []agents.Agent { return t.agents.Store.Agents(caller.Principal) }
	key := func(a *agents.Agent) string { return a.Name + "\x00" + a.ID }
	if in.Observed {
		request.Scope = "observed " + request.Scope
		list = func() []agents.Agent { return t.observedAgents(caller) }
		key = func(a *agents.Agent) string {
			return fmt.Sprintf("%d:%s%s\x00%s", len(a.Principal), a.Principal, a.Name, a.ID)
		}
	}
	return paging.Page(t.cursors, request, func(after string, add paging.Add[agents.Agent]) error {
		from := agentOfKey(after, in.Observed)
		selected := list()
		if in.AgentID != "" {
			selected = slices.DeleteFunc(selected, func(a agents.Agent) bool { return a.ID != in.AgentID })
		}
		for _, a := range t.agents.WithConnections(selected) {
			a.Running = t.workers.Running(a.Principal, a.ID)
			if comparePrincipals(a, from) > 0 && !add(key(&a), len(a.Capabilities)+len(a.Metadata), &a) {
				break
			}
		}
		return nil
	})
}

// observedAgents returns the agents of the principals that the caller may observe, in the order of comparePrincipals.
func (t *hostTools) observedAgents(caller *Caller) []agents.Agent {
	list := t.agents.Store.AgentsOf(caller.Observes)
	slices.SortFunc(list, comparePrincipals)
	return list
}

// comparePrincipals compares agents by principal, name and id. An agent without a principal is of the same one.
func comparePrincipals(a, b agents.Agent) int {
	if b.Principal == "" {
		return agents.Compare(a, b)
	}
	return cmp.Or(strings.Compare(a.Principal, b.Principal), agents.Compare(a, b))
}

// agentOfKey returns the principal, the name and the id in a key of listAgents.
func agentOfKey(key string, observed bool) (a agents.Agent) {
	if observed {
		length, rest, _ := strings.Cut(key, ":")
		n, _ := strconv.Atoi(length) // the cursor is authenticated
		a.Principal, key = rest[:min(n, len(rest))], rest[min(n, len(rest)):]
	}
	if end := strings.LastIndexByte(key, 0); end >= 0 { // ids are visible ASCII
		a.Name, a.ID = key[:end], key[end+1:]
	}
	return a
}

func (t *hostTools) listEvents(_ context.Context, caller *Caller, in hostEventsIn) (hostEventPage, error) {
	return hostEventPage{append([]agents.Event{}, t.agents.Store.Events(caller.Principal, cmp.Or(in.Limit, defaultEvents))...)}, nil
}
