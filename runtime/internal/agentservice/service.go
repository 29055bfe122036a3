// Package agentservice connects the agents that sessions register with the workers that execute
// jobs for them.
package agentservice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/internal/worker"
	"github.com/arcpd/arcpd/runtime/store"
)

// Service registers agents. Its methods may be called by any goroutine.
type Service struct {
	Store   *agents.Store
	Workers Workers

	opts Options

	// announcing is held while the events about a connection are queued, so that they have the order of the
	// changes.
	announcing sync.Mutex
}

// Options of a Service.
type Options struct {
	Store     store.Store
	Log       txn.Log
	Sessions  *session.Directory
	Workers   *worker.Pool
	Auth      *auth.Set
	Metrics   *metrics.Metrics
	Logger    zerolog.Logger
	Audit     audit.Log
	Retention time.Duration // of agents whose session has ended; not positive: for ever
}

// New returns a Service without agents.
func New(o Options) *Service {
	s := &Service{opts: o}
	s.Workers = workers{&s.opts}
	s.Store = agents.NewStore(agents.Options{Log: o.Log, Store: o.Store, OnRelease: s.released,
		OnCount:  func(s agents.Status, n int) { o.Metrics.Agents.WithLabelValues(string(s)).Set(float64(n)) },
		Sessions: o.Sessions})
	return s
}

// Register registers an agent of the caller's session, or replaces it. An error of type
// *arcp.Error is for the caller.
func (s *Service) Register(ctx context.Context, a agents.Agent, caller approval.Actor) (agents.Agent, error) {
	a.Principal, a.Session = caller.Principal, caller.Session
	var replaces []string
	if len(a.Executes) > 0 {
		replaces = s.Workers.Replaceable(a)
	}
	a, err := s.Store.Register(ctx, a, func(next, old *agents.Agent, replaced []agents.Agent) (func(bool), *arcp.Error) {
		if len(replaced) == 0 {
			return s.claimNames(next, old, caller)
		}
		return s.replaceNames(next, old, replaced, caller)
	}, replaces...)
	return a, s.Refusal(ctx, err)
}

// replaceNames is claimNames for an agent that replaces agents of other sessions, whose tools it
// unregisters. done restores them if the rows were not written.
func (s *Service) replaceNames(a, old *agents.Agent, replaced []agents.Agent, caller approval.Actor) (done func(ok bool), err *arcp.Error) {
	var ids []string
	for i := range replaced {
		ids = append(ids, replaced[i].ID)
	}
	claimed, err := s.claimNames(a, old, caller, ids...)
	if err != nil {
		return nil, err
	}
	return func(ok bool) {
		claimed(ok)
		for i := range replaced {
			r := &replaced[i]
			if ok {
				s.opts.Logger.Info().Str("principal", r.Principal).Str("agent_id", r.ID).Str("session_id", string(r.Session)).
					Str("replaced_by", a.ID).Msg("an agent without a connection is replaced")
				s.forgetAway(r.Principal, r.Session)
			} else if err := s.reregister(context.Background(), *r); err != nil {
				s.opts.Logger.Error().Err(err).Str("agent_id", r.ID).Msg("an agent does not execute its tools any more")
			}
		}
	}, nil
}

// claimNames registers the tools that an agent executes, and unregisters the tools of old, the agent
// before, and of the agents that it replaces. done restores old if the row was not written.
func (s *Service) claimNames(a, old *agents.Agent, caller approval.Actor, replaces ...string) (done func(ok bool), err *arcp.Error) {
	executed := old != nil && len(old.Executes) > 0
	if len(a.Executes) == 0 {
		return func(ok bool) {
			if ok && executed {
				s.Workers.Unregister(*old)
			}
		}, nil
	}
	if err := s.Workers.Register(*a, caller, replaces...); err != nil {
		return nil, err
	}
	return func(ok bool) {
		switch {
		case ok:
		case executed:
			if err := s.Workers.Register(*old, caller); err != nil {
				s.opts.Logger.Error().Err(err).Str("agent_id", a.ID).Msg("an agent does not execute its tools any more")
			}
		default:
			s.Workers.Unregister(*a)
		}
	}, nil
}

// released unregisters the tools of an agent that has lost its session.
func (s *Service) released(a agents.Agent) {
	s.forgetAway(a.Principal, a.Session)
	if len(a.Executes) > 0 {
		s.Workers.Unregister(a)
	}
}

// Refusal returns an error of the host for the caller of a tool; see txn.Refusal.
func (s *Service) Refusal(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return txn.Refusal(s.opts.Logger, err, "change an agent")
}

// WithConnections returns the agents with the status Disconnected for those whose session
// has no connection.
func (s *Service) WithConnections(list []agents.Agent) []agents.Agent {
	list = slices.Clone(list)
	for i := range list {
		if list[i].IsLive() && s.isAway(list[i].Session) {
			list[i].Status = agents.Disconnected
		}
	}
	return list
}

// Load reads the agents of the store. It stops agents whose sessions have ended. Agents that
// execute jobs are registered before any job is recovered.
func (s *Service) Load(ctx context.Context) error {
	err := s.Store.Load(ctx, func(key string, err error) {
		s.opts.Logger.Error().Err(err).Str("record", key).Msg("an agent cannot be read and is left out")
	})
	if err == nil {
		err = s.Sweep(ctx, time.Now())
	}
	if err != nil {
		return err
	}
	for _, a := range s.Store.All() {
		if len(a.Executes) == 0 {
			continue
		}
		if refused := s.reregister(ctx, a); refused != nil {
			s.opts.Logger.Error().Err(refused).Str("agent_id", a.ID).Str("principal", a.Principal).Msg("an agent does not execute jobs any more")
			reason := fmt.Sprintf("%s does not execute jobs any more: %s", a.Name, refused.Message)
			if err := s.Store.Fail(ctx, a.Principal, a.ID, reason); err != nil {
				return err
			}
		}
	}
	return nil
}

// reregister registers the tools that an agent executed before a restart.
func (s *Service) reregister(ctx context.Context, a agents.Agent) *arcp.Error {
	owner, err := actor.Stored(ctx, s.opts.Store, s.opts.Auth, a.Session)
	if err != nil {
		s.opts.Logger.Error().Err(err).Str("session_id", string(a.Session)).Msg("identity of a session")
		return arcp.Errorf(arcp.CodeUnauthenticated, "the identity of its session is not known")
	}
	if !owner.Worker {
		return arcp.Errorf(arcp.CodePermissionDenied, "its session does not have the role %s", auth.RoleWorker)
	}
	return s.Workers.Register(a, owner)
}

// Sweep stops agents of sessions that have ended, and deletes agents that were stopped longer ago
// than the retention.
func (s *Service) Sweep(ctx context.Context, now time.Time) error {
	var before time.Time
	if s.opts.Retention > 0 {
		before = now.Add(-s.opts.Retention)
	}
	return s.Store.Sweep(ctx, before, s.opts.Sessions.HasSessions)
}
