package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/registry"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/local"
)

// resources is what sessions have, and what is leased. One goroutine of its own
// looks what is due, so that a clean-up that takes long holds up nothing else.
type resources struct {
	rt      *Runtime
	log     zerolog.Logger
	book    *registry.Book
	scanner *registry.Scanner
	dirs    *local.Directories // nil: there is no place for them

	mu      sync.Mutex
	reaping map[string]chan struct{} // who has a registry.reap that runs; closed when it has ended

	// onEvent, if set, is told of registry.Event… with what has become of the resource,
	// a registry.Entry or a arcp.ResourceLeaseView. It must neither block nor call the registry. It
	// is set before start.
	onEvent func(ctx context.Context, event string, payload any)

	quit  context.CancelFunc // nil: it was not started
	donec chan struct{}
}

var _ engine.Resources = (*resources)(nil)

var entryStatuses = func() (list []string) {
	for _, s := range registry.Statuses {
		list = append(list, string(s))
	}
	return list
}()

func (r *Runtime) newResources() (err error) {
	m := r.metrics
	s := &resources{rt: r, log: r.cfg.Log, onEvent: r.showResource}
	if r.cfg.ResourceDir != "" {
		if s.dirs, err = local.OpenDirectories(r.cfg.ResourceDir); err != nil {
			return err
		}
	}
	handlers, err := registry.NewHandlers(append(s.own(), r.cfg.Handlers...))
	if err != nil {
		return errors.Join(err, s.closeDirs())
	}
	s.book = registry.NewBook(registry.Options{Log: r.changes(), Store: r.cfg.Store, Logger: r.cfg.Log, Retention: r.cfg.Retention,
		Lives: r.sessions.Lives,
		Entries: func(kind string, status registry.Status, more int) {
			m.Resource(kind, string(status), entryStatuses).Add(float64(more))
		},
		Leases: func(state registry.State, more int) {
			if !state.Known() {
				state = "unknown"
			}
			m.ResourceLeases.WithLabelValues(string(state)).Add(float64(more))
		},
		RegistryFailed: m.ResourceRegistryErrors.Inc,
		OnEvent:        s.event,
	})
	s.scanner = &registry.Scanner{Book: s.book, Handlers: handlers, Fallback: registry.HandlerFunc(s.byTool), Named: s.named,
		Counted: func(result string) { m.ResourceCleanup.WithLabelValues(result).Inc() }}
	r.resources = s
	return nil
}

func (s *resources) event(ctx context.Context, event string, payload any) {
	if s.onEvent == nil {
		return
	}
	if l, ok := payload.(registry.Lease); ok {
		payload = viewLease(&l) // what its clean-up tool may do is nobody's business
	}
	s.onEvent(ctx, event, payload)
}

// own are the handlers for what is on this machine.
func (s *resources) own() []registry.Registration {
	list := []registry.Registration{{Provider: local.Provider, Type: local.Process,
		Handler: registry.HandlerFunc(func(ctx context.Context, l registry.Lease, _ int) error { return local.End(ctx, l.ExternalID) })}}
	return append(list, registry.Registration{Provider: local.Provider, Type: local.Directory, Handler: registry.HandlerFunc(s.removeDirectory)})
}

var errNoDirectories = arcp.Errorf(arcp.CodeFailedPrecondition, "this runtime has no place for leased directories: Config.ResourceDir is not set")

func (s *resources) removeDirectory(ctx context.Context, l registry.Lease, _ int) error {
	if s.dirs == nil {
		return errNoDirectories
	}
	return s.dirs.Remove(ctx, l.ExternalID)
}

// authority is what the job of a clean-up tool may do, as a lease keeps it.
type authority struct {
	Trust   string   `json:"trust,omitzero"`
	MaxJobs int      `json:"max_jobs,omitzero"`
	Lease   arcp.Raw `json:"lease,omitzero"`
}

// byTool has a lease's own tool clean up, as its owner, who could have called it
// itself.
func (s *resources) byTool(ctx context.Context, l registry.Lease, attempt int) error {
	var a authority
	if len(l.Authority) > 0 {
		if err := arcp.Unmarshal(l.Authority, &a); err != nil {
			return fmt.Errorf("what the owner may do cannot be read: %w", err)
		}
	}
	args, err := arcp.Marshal(struct {
		Provider   string `json:"provider"`
		Type       string `json:"resource_type"`
		ExternalID string `json:"external_id"`
		Attempt    int    `json:"attempt"`
	}{l.Provider, l.Type, l.ExternalID, attempt})
	if err != nil {
		return fmt.Errorf("arguments of %s: %w", l.CleanupTool, err)
	}
	return s.rt.engine.Perform(ctx, engine.Tenant{Principal: l.Principal, Session: l.Session, Trust: a.Trust, MaxJobs: a.MaxJobs, Lease: a.Lease}, l.CleanupTool, args)
}

// holder is in whose name a job takes a lease. What a clean-up tool may do is kept
// only where there is one.
func holder(t engine.Tenant, cleanupTool string) (registry.Holder, error) {
	h := registry.Holder{Principal: t.Principal, Session: t.Session, Job: t.Job}
	if cleanupTool == "" {
		return h, nil
	}
	raw, err := arcp.Marshal(authority{t.Trust, t.MaxJobs, t.Lease})
	h.Authority = raw
	return h, err
}

// take takes a lease for a job; client says that it is a client who asks.
func (s *resources) take(ctx context.Context, t engine.Tenant, a registry.Ask, client bool) (registry.Lease, error) {
	if r, ok := s.scanner.Handlers.For(&a.Identity); ok && client && !r.Clients {
		return registry.Lease{}, arcp.Errorf(arcp.CodePermissionDenied, "only tools take leases on what the provider %q has", a.Provider)
	}
	if a.CleanupTool != "" {
		if err := s.rt.engine.Takes(t, a.CleanupTool); err != nil {
			return registry.Lease{}, err
		}
	}
	h, err := holder(t, a.CleanupTool)
	if err != nil {
		return registry.Lease{}, err
	}
	l, err := s.book.Take(ctx, time.Now(), h, a)
	return l, s.answer(err, "take a lease")
}

// answer is an error as a caller is told it.
func (s *resources) answer(err error, what string) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*arcp.Error](err); ok {
		return e
	}
	return txn.Unavailable(s.rt.cfg.Log, err, what)
}

// Lease takes a lease for a tool.
func (s *resources) Lease(ctx context.Context, t engine.Tenant, a tool.ResourceAsk) (tool.ResourceLease, error) {
	if a.For < 0 || a.For > registry.MaxDuration {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "a lease lasts for 0 s to %v", registry.MaxDuration)
	}
	l, err := s.take(ctx, t, registry.Ask{Identity: registry.Identity{Provider: a.Provider, Type: a.Type, ExternalID: a.ExternalID},
		Seconds: int64((a.For + time.Second - 1) / time.Second), DisplayName: a.DisplayName, Metadata: a.Metadata, Unlisted: a.Unlisted, CleanupTool: a.CleanupTool}, false)
	if err != nil {
		return nil, err
	}
	return &leased{s: s, l: l}, nil
}

// LeaseDirectory leases a directory before it makes it.
func (s *resources) LeaseDirectory(ctx context.Context, t engine.Tenant, a tool.DirectoryAsk) (string, tool.ResourceLease, error) {
	if s.dirs == nil {
		return "", nil, errNoDirectories
	}
	name := local.NewName()
	l, err := s.Lease(ctx, t, tool.ResourceAsk{Provider: local.Provider, Type: local.Directory, ExternalID: name, For: a.For, Unlisted: a.Unlisted})
	if err != nil {
		return "", nil, err
	}
	path, err := s.dirs.Make(name)
	if err != nil {
		return "", nil, errors.Join(err, l.Release(ctx))
	}
	return path, l, nil
}

// leased is a lease as a tool has it.
type leased struct {
	s *resources
	l registry.Lease
}

func (l *leased) ID() arcp.LeaseID     { return l.l.ID }
func (l *leased) Provider() string     { return l.l.Provider }
func (l *leased) Type() string         { return l.l.Type }
func (l *leased) ExternalID() string   { return l.l.ExternalID }
func (l *leased) ExpiresAt() time.Time { return l.l.ExpiresAt }

func (l *leased) Touch(ctx context.Context) (time.Time, error) {
	got, err := l.s.book.Touch(ctx, time.Now(), l.l.Principal, l.l.ID)
	return got.ExpiresAt, l.s.answer(err, "touch a lease")
}

func (l *leased) Release(ctx context.Context) error {
	_, err := l.s.book.Release(ctx, time.Now(), l.l.Principal, l.l.ID)
	return l.s.answer(err, "release a lease")
}

// start begins to look what is due.
func (s *resources) start() {
	if s.rt.cfg.ReapEvery <= 0 {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.quit, s.donec = func() { cancel(ErrShutdown) }, make(chan struct{})
	go s.run(ctx)
}

// stop ends the clean-ups that run: what they have not done is tried again after
// the next start. A handler that does not end is left behind.
func (s *resources) stop() {
	if s.quit != nil {
		s.quit()
		<-s.donec
	}
}

func (s *resources) close() {
	if err := s.closeDirs(); err != nil {
		s.log.Error().Err(err).Msg("close the directory of leased resources")
	}
}

func (s *resources) closeDirs() error {
	if s.dirs == nil {
		return nil
	}
	return s.dirs.Close()
}

func (s *resources) run(ctx context.Context) {
	defer close(s.donec)
	for {
		select {
		case <-time.After(jitter(s.rt.cfg.ReapEvery)):
			s.reap(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// jitter is a duration that is up to a fifth shorter or longer: what was started
// together does not stay together.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.4*float64(d))
}

// reap goes on while there is something that is due.
func (s *resources) reap(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		rep, err := s.scanner.Scan(ctx, registry.Request{})
		if err != nil {
			if ctx.Err() == nil && s.rt.broken.Load() == nil {
				s.log.Error().Err(err).Msg("clean up leased resources")
			}
			return
		}
		more = rep.More && rep.Claimed+rep.Skipped > 0
	}
}

// reapTurn waits until no other registry.reap of a principal runs: to look who is
// named takes the whole runtime's time.
func (s *resources) reapTurn(ctx context.Context, principal string) (leave func(), err error) {
	for {
		other, mine := s.enterReap(principal)
		if other == nil {
			return func() { s.leaveReap(principal, mine) }, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// enterReap returns the turn that runs, or else a new one.
func (s *resources) enterReap(principal string) (other, mine chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other = s.reaping[principal]; other != nil {
		return other, nil
	}
	if s.reaping == nil {
		s.reaping = make(map[string]chan struct{})
	}
	mine = make(chan struct{})
	s.reaping[principal] = mine
	return nil, mine
}

func (s *resources) leaveReap(principal string, mine chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reaping, principal)
	close(mine)
}

// sweepEvery is how often the janitor looks at the resources of sessions that have
// ended.
const sweepEvery = time.Minute

// registry removes the resources of sessions that have ended for good, and leases
// that were released longer ago than the retention.
func (j *janitor) registry(ctx context.Context, now time.Time) (more bool, err error) {
	book := j.rt.resources.book
	if more, err = book.Forget(ctx, now, janitorStep); more || err != nil {
		return more, err
	}
	if j.resources == "" && now.Sub(j.swept) < sweepEvery {
		return false, nil
	}
	j.swept = now
	j.resources, err = book.Sweep(ctx, j.resources, janitorStep)
	return j.resources != "" && err == nil, err
}
