// Package builtin has the runtime's own tools: jobs.*, sessions.*, approval.*, registry.*,
// tools.* and host.* (SPEC.md §7). Each file has one group.
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
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/hostservice"
	"github.com/arcpd/arcpd/runtime/internal/jobs"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/registryservice"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Tools registers the runtime's own tools. Register is called once, before anything is
// served; the fields do not change after that.
type Tools struct {
	Store     store.Store
	Registry  *tool.Registry
	Engine    *engine.Engine
	Sessions  *session.Directory
	Questions *questions.Broker
	Agents    *hostservice.Service
	Resources *registryservice.Service
	Jobs      *jobs.Reader
	Vault     *credential.Vault // nil: there are no provisioners
	Auth      *auth.Set
	Changes   txn.Committer
	Cursors   *paging.Cursors
	Metrics   *metrics.Metrics
	Audit     audit.Log
	Logger    zerolog.Logger

	// Refresh, if set, makes the sources of Registry list their tools again. It is called
	// by one goroutine at a time.
	Refresh func(ctx context.Context) error

	names map[string]bool
}

// Is reports whether name is the name of one of the tools.
func (t *Tools) Is(name string) bool { return t.names[name] }

// Register adds the tools to the registry.
func (t *Tools) Register() error {
	r := &registrar{registry: t.Registry, audit: t.Audit, callers: callers{t.Store, t.Sessions, t.Auth, t.Logger}, names: make(map[string]bool)}
	(&jobTools{t.Engine, t.Sessions, t.Jobs, t.Changes, t.Audit, t.Logger}).register(r)
	(&credentialTools{t.Vault, t.Changes, t.Audit, t.Logger}).register(r)
	(&sessionTools{t.Store, t.Sessions, t.Changes, t.Cursors, t.Metrics, t.Audit, t.Logger}).register(r)
	(&approvalTools{t.Store, t.Engine, t.Sessions, t.Questions, t.Agents.Host, t.Changes, t.Cursors, t.Audit, t.Logger}).register(r)
	(&elevationTools{t.Sessions, t.Audit}).register(r)
	(&registryTools{t.Sessions, t.Resources, t.Cursors, t.Audit}).register(r)
	(&catalogTools{t.Registry, t.Engine, t.Sessions, t.Jobs, t.Cursors, t.Logger, refresher{run: t.Refresh, turn: make(chan struct{}, 1)}}).register(r)
	(&hostTools{t.Agents, t.Questions, t.Cursors}).register(r)
	t.names = r.names
	return errors.Join(r.errs...)
}

// registrar adds tools to a registry.
type registrar struct {
	registry *tool.Registry
	audit    audit.Log
	callers  callers
	names    map[string]bool
	errs     []error
}

// register adds a tool. caller returns the view of the calling job that run needs, or
// refuses the call.
func register[C, In, Out any](r *registrar, c tool.Capability, caller func(tool.Job) (C, error), run func(context.Context, C, In) (Out, error)) {
	c.Source, c.Limits.MaxResponseBytes = tool.SourceBuiltin, -1
	t, err := tool.New(c, func(ctx context.Context, job tool.Job, in In) (out Out, err error) {
		who, err := caller(job)
		if err == nil {
			out, err = run(ctx, who, in)
		}
		r.auditDenial(c.Name, job, err)
		return out, err
	})
	if err == nil {
		err = r.registry.RegisterBuiltin(t)
	}
	r.names[c.Name] = true
	r.errs = append(r.errs, err)
}

func reads(name, description string) tool.Capability {
	return tool.Capability{Name: name, SideEffect: tool.SideEffectRead, Description: description}
}

func writes(name, description string) tool.Capability {
	return tool.Capability{Name: name, SideEffect: tool.SideEffectWrite, Description: description}
}

// waits describes a tool without a time limit, which runs again after a restart.
func waits(name, description string) tool.Capability {
	return tool.Capability{Name: name, SideEffect: tool.SideEffectExternal, Description: description,
		Recovery: tool.RecoveryRerun, Limits: tool.Limits{Timeout: -1, Concurrency: -1}}
}

// auditDenial records that a caller was refused with PERMISSION_DENIED.
func (r *registrar) auditDenial(name string, job tool.Job, err error) {
	e, ok := errors.AsType[*arcp.Error](err)
	c, called := job.Host().(engine.Caller)
	if ok && called && e.Code == arcp.CodePermissionDenied {
		r.audit.Event(name, c.Principal(), c.Session()).Str("job_id", string(job.ID())).Str("decision", "denied").Str("reason", e.Message).Msg("audit")
	}
}

// Caller is the session whose job calls a tool. A job of the runtime itself has no session.
type Caller struct {
	approval.Actor
	Job tool.Job
}

// callers finds the callers of tools.
type callers struct {
	store    store.Store
	sessions *session.Directory
	auth     *auth.Set
	logger   zerolog.Logger
}

var errNoCaller = errors.New("a built-in tool needs a caller")

// of returns the caller of a job. If its session has had no connection since the start of the
// runtime, the stored credentials are checked again: UNAUTHENTICATED if they are not valid.
func (c *callers) of(job tool.Job) (*Caller, error) {
	by, ok := job.Host().(engine.Caller)
	if !ok {
		return nil, errNoCaller
	}
	s := c.sessions.Find(by.Session())
	if s == nil {
		return &Caller{approval.Actor{Principal: by.Principal(), Session: by.Session()}, job}, nil
	}
	if who, ok := s.Actor(); ok {
		return &Caller{who, job}, nil
	}
	who, err := actor.Stored(context.Background(), c.store, c.auth, by.Session())
	if err != nil {
		c.logger.Error().Err(err).Str("session_id", string(by.Session())).Msg("identity of a session")
		return nil, arcp.Errorf(arcp.CodeUnauthenticated, "the credentials of the session are not good any more")
	}
	return &Caller{who, job}, nil
}

// withSession returns the caller of a job, and refuses one without a session.
func (c *callers) withSession(job tool.Job) (*Caller, error) {
	who, err := c.of(job)
	if err == nil && who.Session == "" {
		err = arcp.Errorf(arcp.CodeFailedPrecondition, "an agent belongs to a session, and this job to none")
	}
	return who, err
}

// as returns the calling job as the engine's view of it.
func as[View any](job tool.Job) (View, error) {
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

// waitTimer returns a timer for the timeout_ms of a caller; 0: defaultWait.
func waitTimer(ms int64) *time.Timer {
	if ms <= 0 {
		return time.NewTimer(defaultWait)
	}
	return time.NewTimer(min(time.Duration(ms)*time.Millisecond, maxWait))
}

// send sends a message outside of the log to a session that has a connection.
func send(d *session.Directory, id arcp.SessionID, request arcp.MessageID, t arcp.Type, payload any) {
	if c := d.ConnOf(id); c != nil {
		c.Send(request, t, payload)
	}
}

// toolsChanged makes the connection of a session compare its catalogue with the one that the
// client knows.
func toolsChanged(d *session.Directory, id arcp.SessionID) {
	if c := d.ConnOf(id); c != nil {
		c.ToolsChanged()
	}
}
