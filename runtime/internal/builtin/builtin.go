// Package builtin has the built-in tools: jobs.*, sessions.*, artifact.*, approval.*, registry.*, tools.*
// and host.* (SPEC.md §7). Each file has one group: the arguments, the tools in the method register,
// and a method for each tool.
package builtin

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/agentservice"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/jobview"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/resources"
	"github.com/arcpd/arcpd/runtime/internal/resourceservice"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Tools registers the built-in tools. Register is called once, before the runtime serves
// connections. The fields do not change afterwards.
type Tools struct {
	Store     store.Store
	Registry  *tool.Registry
	Engine    *engine.Engine
	Sessions  *session.Directory
	Questions *questions.Broker
	Agents    *agentservice.Service
	Resources *resourceservice.Service
	Artifacts *artifact.Store
	Jobs      *jobview.Reader
	Vault     *credential.Vault // nil: there are no provisioners
	Auth      *auth.Set
	Changes   txn.Committer
	Cursors   *paging.Cursors
	Metrics   *metrics.Metrics
	Audit     audit.Log
	Logger    zerolog.Logger

	// Refresh, if set, makes the sources of Registry list their tools again. It is not called
	// concurrently.
	Refresh func(ctx context.Context) error

	Workers Workers

	names map[string]bool
}

// Workers counts connected workers; see worker.Pool.
type Workers interface {
	ConnectedAgents(ref string) int
	Running(principal, agentID string) int
}

// IsBuiltin reports whether name is the name of a built-in tool.
func (t *Tools) IsBuiltin(name string) bool { return t.names[name] }

// Names returns the names of the built-in tools, which are the same in each runtime. It registers the tools without the
// services that their calls use.
func Names() map[string]bool {
	t := Tools{Registry: tool.NewRegistry(), Agents: new(agentservice.Service), Resources: &resourceservice.Service{Store: new(resources.Store)}}
	if err := t.Register(); err != nil { // every runtime would fail
		panic("builtin: names of the tools: " + err.Error())
	}
	return t.names
}

// Register adds the tools to the registry.
func (t *Tools) Register() error {
	r := &registrar{registry: t.Registry, audit: t.Audit, names: make(map[string]bool),
		callers: callers{store: t.Store, sessions: t.Sessions, auth: t.Auth, logger: t.Logger}}
	for _, group := range []interface{ register(r *registrar) }{
		&jobTools{engine: t.Engine, sessions: t.Sessions, jobs: t.Jobs, store: t.Store, vault: t.Vault, changes: t.Changes, audit: t.Audit,
			logger: t.Logger, callers: &r.callers},
		&scheduleTools{engine: t.Engine},
		&credentialTools{vault: t.Vault, changes: t.Changes, audit: t.Audit, logger: t.Logger},
		&sessionTools{
			store:    t.Store,
			sessions: t.Sessions,
			changes:  t.Changes,
			cursors:  t.Cursors,
			metrics:  t.Metrics,
			audit:    t.Audit,
			logger:   t.Logger,
		},
		&artifactTools{store: t.Artifacts, changes: t.Changes, cursors: t.Cursors, logger: t.Logger},
		&approvalTools{store: t.Store, engine: t.Engine, sessions: t.Sessions, questions: t.Questions, agents: t.Agents.Store,
			changes: t.Changes, cursors: t.Cursors, audit: t.Audit, logger: t.Logger, callers: &r.callers},
		&elevationTools{sessions: t.Sessions, audit: t.Audit},
		&registryTools{sessions: t.Sessions, resources: t.Resources, cursors: t.Cursors, audit: t.Audit},
		&catalogTools{registry: t.Registry, engine: t.Engine, sessions: t.Sessions, jobs: t.Jobs, cursors: t.Cursors, logger: t.Logger,
			workers: t.Workers, refresh: refresher{run: t.Refresh, slot: make(chan struct{}, 1)}},
		&hostTools{agents: t.Agents, questions: t.Questions, workers: t.Workers, cursors: t.Cursors},
	} {
		group.register(r)
	}
	t.names = r.names
	return errors.Join(r.errs...)
}

// registrar adds the tools to the registry.
type registrar struct {
	registry *tool.Registry
	audit    audit.Log
	callers  callers
	names    map[string]bool
	errs     []error
}

// register adds a tool. caller returns the view C of the calling job for run, or refuses the call.
func register[C, In, Out any](r *registrar, capability tool.Capability, caller func(tool.Job) (C, error),
	run func(context.Context, C, In) (Out, error)) {
	capability.Source, capability.Limits.MaxResponseBytes = tool.SourceBuiltin, -1
	t, err := tool.New(capability, func(ctx context.Context, job tool.Job, in In) (out Out, err error) {
		if l, ok := any(in).(largeArguments); ok {
			engine.CallOf(ctx).KeepArguments(l.withoutContent())
		}
		c, err := caller(job)
		if err == nil {
			out, err = run(ctx, c, in)
		}
		return out, r.auditDenial(capability.Name, job, err)
	})
	if err == nil {
		err = r.registry.RegisterBuiltin(t)
	}
	r.names[capability.Name] = true
	r.errs = append(r.errs, err)
}

// largeArguments are arguments that a writeTool has, and that are stored without their content.
type largeArguments interface{ withoutContent() arcp.Raw }

// readTool describes a tool that only reads.
func readTool(name, description string) tool.Capability {
	return tool.Capability{Name: name, SideEffect: tool.SideEffectRead, Description: description}
}

// writeTool describes a tool that changes state of the runtime.
func writeTool(name, description string) tool.Capability {
	return tool.Capability{Name: name, SideEffect: tool.SideEffectWrite, Description: description}
}

// waitTool describes a tool without a time limit. It runs again after a restart.
func waitTool(name, description string) tool.Capability {
	return tool.Capability{Name: name, SideEffect: tool.SideEffectExternal, Description: description,
		Recovery: tool.RecoveryRerun, Limits: tool.Limits{Timeout: -1, Concurrency: -1}}
}

// audited is an error that the tool has audited.
type audited struct{ error }

func (a audited) Unwrap() error { return a.error }

// auditDenial audits a call that was refused with PERMISSION_DENIED, unless the tool has audited it. It returns the
// error of the call.
func (r *registrar) auditDenial(name string, job tool.Job, err error) error {
	if a, ok := errors.AsType[audited](err); ok {
		return a.error
	}
	e, ok := errors.AsType[*arcp.Error](err)
	c, called := job.Host().(engine.Caller)
	if ok && called && e.Code == arcp.CodePermissionDenied {
		r.audit.Event(name, c.Principal(), c.Session()).Str("job_id", string(job.ID())).Str("decision", "denied").
			Str("reason", e.Message).Msg("audit")
	}
	return err
}

// Caller is the session whose job calls a tool. The session id is empty for a job of the runtime.
type Caller struct {
	approval.Actor
	Job tool.Job
}

// callers returns the callers of tools.
type callers struct {
	store    store.Store
	sessions *session.Directory
	auth     *auth.Set
	logger   zerolog.Logger
}

var errNoCaller = errors.New("a built-in tool needs a caller")

// find returns the caller of a job with its present rights. If session.Session.Actor does not know
// them, it checks the stored identity again: UNAUTHENTICATED if it is not valid.
func (c *callers) find(job tool.Job) (*Caller, error) {
	host, ok := job.Host().(engine.Caller)
	if !ok {
		return nil, errNoCaller
	}
	s := c.sessions.Find(host.Session())
	if s == nil {
		return &Caller{approval.Actor{Principal: host.Principal(), Session: host.Session()}, job}, nil
	}
	if a, ok := s.Actor(); ok {
		return &Caller{a, job}, nil
	}
	a, err := actor.Stored(context.Background(), c.store, c.auth, host.Session())
	if err != nil {
		c.logger.Error().Err(err).Str("session_id", string(host.Session())).Msg("identity of a session")
		return nil, arcp.Errorf(arcp.CodeUnauthenticated, "the credentials of the session are not good any more")
	}
	return &Caller{a, job}, nil
}

// withSession returns the caller of a job, and refuses one without a session.
func (c *callers) withSession(job tool.Job) (*Caller, error) {
	caller, err := c.find(job)
	if err == nil && caller.Session == "" {
		err = arcp.Errorf(arcp.CodeFailedPrecondition, "an agent belongs to a session, and this job to none")
	}
	return caller, err
}

// hostAs returns the host of a job as one of the engine's interfaces.
func hostAs[View any](job tool.Job) (View, error) {
	v, ok := job.Host().(View)
	if !ok {
		return v, errNoCaller
	}
	return v, nil
}

// Bounds of approval.wait and jobs.wait.
const (
	defaultWait = 30 * time.Second
	maxWait     = time.Hour
)

// waitTimer returns a timer of ms milliseconds, at most maxWait; 0: defaultWait.
func waitTimer(ms int64) *time.Timer {
	if ms <= 0 {
		return time.NewTimer(defaultWait)
	}
	return time.NewTimer(min(time.Duration(ms)*time.Millisecond, maxWait))
}

// send sends a message, which is not in the log, to a session if it has a connection.
func send(d *session.Directory, id arcp.SessionID, request arcp.MessageID, t arcp.Type, payload any) {
	if c := d.ConnOf(id); c != nil {
		c.Send(request, t, payload)
	}
}

// toolsChanged makes the connection of a session announce the changes of its catalog.
func toolsChanged(d *session.Directory, id arcp.SessionID) {
	if c := d.ConnOf(id); c != nil {
		c.ToolsChanged()
	}
}
