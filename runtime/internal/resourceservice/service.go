// Package resourceservice connects the registry of resources and leases with the jobs that use them.
// Tools acquire leases through it, and it cleans up the resources of leases that have ended.
package resourceservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/resources"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/local"
)

// Service has the registry of resources and cleans up the resources of ended leases. A goroutine of
// its own scans for due leases, so that a slow clean-up delays nothing else. Its methods may be
// called by any goroutine.
type Service struct {
	Store   *resources.Store
	Scanner *resources.Scanner

	opts   Options
	engine Engine
	dirs   *local.Directories // nil: directories cannot be leased

	mu      sync.Mutex
	reaping map[string]chan struct{} // by principal: the running registry.reap; closed at its end

	quit  context.CancelFunc // nil: the service was not started
	donec chan struct{}
}

// Options of a Service.
type Options struct {
	Store     store.Store
	Changes   txn.Committer
	Logger    zerolog.Logger
	Metrics   *metrics.Metrics
	Agents    *agents.Store     // shows resources to its subscribers
	Questions *questions.Broker // the details of questions may name leases
	Sessions  resources.Sessions
	Broken    func() bool // reports whether the store has failed

	Handlers  []resources.Registration // besides the handlers for processes and directories of this machine
	Dir       string                   // of leased directories; empty: directories cannot be leased
	ReapEvery time.Duration            // approximate interval of the scans; not positive: never
	Retention time.Duration            // of released leases
}

// Engine runs the jobs of clean-up tools; see engine.Engine.
type Engine interface {
	RunCleanupTool(ctx context.Context, t engine.LeaseHolder, tool string, args arcp.Raw) error
	CheckCleanupTool(t engine.LeaseHolder, tool string) error
	EachLive(fn func(principal string, id arcp.JobID, args arcp.Raw) bool)
}

var _ engine.Resources = (*Service)(nil)

// errShutdown ends clean-ups when the service stops.
var errShutdown = errors.New("the runtime is shutting down")

// New returns a Service, and an error for handlers that contradict each other or a
// directory that cannot be opened.
func New(o Options) (*Service, error) {
	s := &Service{opts: o}
	var err error
	if o.Dir != "" {
		if s.dirs, err = local.OpenDirectories(o.Dir); err != nil {
			return nil, err
		}
	}
	handlers, err := resources.NewHandlers(append(s.localHandlers(), o.Handlers...))
	if err != nil {
		return nil, errors.Join(err, s.closeDirs())
	}
	m := o.Metrics
	s.Store = resources.NewStore(resources.Options{
		Log:       o.Changes,
		Store:     o.Store,
		Logger:    o.Logger,
		Retention: o.Retention,
		Sessions:  o.Sessions,
		OnEntryCount: func(kind string, status resources.Status, more int) {
			m.Resource(kind, string(status)).Add(float64(more))
		},
		OnLeaseCount: func(state resources.State, more int) {
			if !state.Known() {
				state = "unknown"
			}
			m.ResourceLeases.WithLabelValues(string(state)).Add(float64(more))
		},
		OnRegistryError: m.ResourceRegistryErrors.Inc,
		OnEvent:         s.onEvent,
	})
	s.Scanner = &resources.Scanner{
		Store:    s.Store,
		Handlers: handlers,
		Fallback: resources.HandlerFunc(s.callCleanupTool),
		Named:    s.namedLeases,
		OnResult: func(result string) { m.ResourceCleanup.WithLabelValues(result).Inc() },
	}
	return s, nil
}

// Connect sets the engine. It is called once, before Start.
func (s *Service) Connect(e Engine) { s.engine = e }

func (s *Service) onEvent(ctx context.Context, event string, payload any) {
	if l, ok := payload.(resources.Lease); ok {
		payload = ViewLease(&l) // without the authority of its clean-up tool
	}
	s.emit(ctx, event, payload)
}

// localHandlers returns the handlers for processes and directories of this machine.
func (s *Service) localHandlers() []resources.Registration {
	list := []resources.Registration{{Provider: local.Provider, Type: local.Process,
		Handler: resources.HandlerFunc(func(ctx context.Context, l resources.Lease, _ int) error { return local.End(ctx, l.ExternalID) })}}
	return append(list, resources.Registration{
		Provider: local.Provider,
		Type:     local.Directory,
		Handler:  resources.HandlerFunc(s.removeDirectory),
	})
}

var errNoDirectories = arcp.Errorf(arcp.CodeFailedPrecondition,
	"this runtime has no place for leased directories: Config.ResourceDir is not set")

func (s *Service) removeDirectory(ctx context.Context, l resources.Lease, _ int) error {
	if s.dirs == nil {
		return errNoDirectories
	}
	return s.dirs.Remove(ctx, l.ExternalID)
}

// authority is the stored authority of a clean-up job.
type authority struct {
	Trust   arcp.TrustLevel `json:"trust,omitzero"`
	MaxJobs int             `json:"max_jobs,omitzero"`
	Lease   arcp.Raw        `json:"lease,omitzero"`

	Identity arcp.Raw `json:"identity,omitzero"` // earlier versions stored none
}

// callCleanupTool calls the clean-up tool of a lease with the authority of the lease holder.
func (s *Service) callCleanupTool(ctx context.Context, l resources.Lease, attempt int) error {
	var a authority
	if len(l.Authority) > 0 {
		if err := arcp.Unmarshal(l.Authority, &a); err != nil {
			return fmt.Errorf("the authority of the lease holder cannot be read: %w", err)
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
	return s.engine.RunCleanupTool(ctx, engine.LeaseHolder{
		Principal: l.Principal,
		Session:   l.Session,
		Trust:     a.Trust,
		MaxJobs:   a.MaxJobs,
		Lease:     a.Lease,
		Identity:  a.Identity,
	}, l.CleanupTool, args)
}

// holder returns the holder of a lease that a job acquires. The authority is stored only for a
// lease with a clean-up tool.
func holder(t engine.LeaseHolder, cleanupTool string) (resources.Holder, error) {
	h := resources.Holder{Principal: t.Principal, Session: t.Session, Job: t.Job}
	if cleanupTool == "" {
		return h, nil
	}
	raw, err := arcp.Marshal(authority{Trust: t.Trust, MaxJobs: t.MaxJobs, Lease: t.Lease, Identity: t.Identity})
	h.Authority = raw
	return h, err
}

// Acquire acquires a lease for a job. client says that a client calls, not a tool.
func (s *Service) Acquire(ctx context.Context, t engine.LeaseHolder, a resources.LeaseRequest, client bool) (resources.Lease, error) {
	if r, ok := s.Scanner.Handlers.For(&a.Identity); ok && client && !r.Clients {
		return resources.Lease{}, arcp.Errorf(arcp.CodePermissionDenied, "only tools take leases on what the provider %q has", a.Provider)
	}
	if a.CleanupTool != "" {
		if err := s.engine.CheckCleanupTool(t, a.CleanupTool); err != nil {
			return resources.Lease{}, err
		}
	}
	h, err := holder(t, a.CleanupTool)
	if err != nil {
		return resources.Lease{}, err
	}
	l, err := s.Store.Acquire(ctx, time.Now(), h, a)
	return l, s.Refusal(err, "take a lease")
}

// Refusal returns the error for the caller of a tool; see txn.Refusal. A nil err is returned as nil.
func (s *Service) Refusal(err error, operation string) error {
	if err == nil {
		return nil
	}
	return txn.Refusal(s.opts.Logger, err, operation)
}

// Lease acquires a lease for a tool.
func (s *Service) Lease(ctx context.Context, t engine.LeaseHolder, req tool.ResourceRequest) (tool.ResourceLease, error) {
	if req.For < 0 || req.For > resources.MaxDuration {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "a lease lasts for 0 s to %v", resources.MaxDuration)
	}
	l, err := s.Acquire(ctx, t, resources.LeaseRequest{
		Identity:    resources.Identity{Provider: req.Provider, Type: req.Type, ExternalID: req.ExternalID},
		Seconds:     int64((req.For + time.Second - 1) / time.Second),
		DisplayName: req.DisplayName,
		Metadata:    req.Metadata,
		Unlisted:    req.Unlisted,
		CleanupTool: req.CleanupTool,
	}, false)
	if err != nil {
		return nil, err
	}
	return &toolLease{s: s, l: l}, nil
}

// LeaseDirectory leases a directory, then makes it, and returns its path.
func (s *Service) LeaseDirectory(ctx context.Context, t engine.LeaseHolder, req tool.DirectoryRequest) (string, tool.ResourceLease, error) {
	if s.dirs == nil {
		return "", nil, errNoDirectories
	}
	name := local.NewName()
	l, err := s.Lease(ctx, t, tool.ResourceRequest{
		Provider:   local.Provider,
		Type:       local.Directory,
		ExternalID: name,
		For:        req.For,
		Unlisted:   req.Unlisted,
	})
	if err != nil {
		return "", nil, err
	}
	path, err := s.dirs.Make(name)
	if err != nil {
		return "", nil, errors.Join(err, l.Release(ctx))
	}
	return path, l, nil
}

// toolLease implements tool.ResourceLease.
type toolLease struct {
	s *Service
	l resources.Lease
}

func (l *toolLease) ID() arcp.LeaseID     { return l.l.ID }
func (l *toolLease) Provider() string     { return l.l.Provider }
func (l *toolLease) Type() string         { return l.l.Type }
func (l *toolLease) ExternalID() string   { return l.l.ExternalID }
func (l *toolLease) ExpiresAt() time.Time { return l.l.ExpiresAt }

func (l *toolLease) Touch(ctx context.Context) (time.Time, error) {
	got, err := l.s.Store.Touch(ctx, time.Now(), l.l.Principal, l.l.ID)
	return got.ExpiresAt, l.s.Refusal(err, "touch a lease")
}

func (l *toolLease) Release(ctx context.Context) error {
	_, err := l.s.Store.Release(ctx, time.Now(), l.l.Principal, l.l.ID)
	return l.s.Refusal(err, "release a lease")
}

// Start starts the goroutine that scans for due leases.
func (s *Service) Start() {
	if s.opts.ReapEvery <= 0 {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.quit, s.donec = func() { cancel(errShutdown) }, make(chan struct{})
	go s.run(ctx)
}

// Stop cancels the running clean-ups and waits for the goroutine. The next process repeats the
// clean-ups. A handler that does not return in time is abandoned.
func (s *Service) Stop() {
	if s.quit != nil {
		s.quit()
		<-s.donec
	}
}

// Close closes the directory of leased resources. It is called after Stop.
func (s *Service) Close() {
	if err := s.closeDirs(); err != nil {
		s.opts.Logger.Error().Err(err).Msg("close the directory of leased resources")
	}
}

func (s *Service) closeDirs() error {
	if s.dirs == nil {
		return nil
	}
	return s.dirs.Close()
}

func (s *Service) run(ctx context.Context) {
	defer close(s.donec)
	for {
		select {
		case <-time.After(jitter(s.opts.ReapEvery)):
			s.reap(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// jitter returns a duration that is up to a fifth shorter or longer, so that runtimes that were
// started together do not scan together.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.4*float64(d))
}

// reap scans until no lease is due.
func (s *Service) reap(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		rep, err := s.Scanner.Scan(ctx, resources.Request{})
		if err != nil {
			if ctx.Err() == nil && !s.opts.Broken() {
				s.opts.Logger.Error().Err(err).Msg("clean up leased resources")
			}
			return
		}
		more = rep.More && rep.Claimed+rep.Skipped > 0
	}
}

// AcquireReap waits until no other registry.reap of a principal runs: a scan reads the arguments of
// all live jobs.
func (s *Service) AcquireReap(ctx context.Context, principal string) (release func(), err error) {
	for {
		other, own := s.beginReap(principal)
		if other == nil {
			return func() { s.endReap(principal, own) }, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// beginReap begins a registry.reap and returns its channel, or the channel of the other one that
// runs.
func (s *Service) beginReap(principal string) (other, own chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other = s.reaping[principal]; other != nil {
		return other, nil
	}
	if s.reaping == nil {
		s.reaping = make(map[string]chan struct{})
	}
	own = make(chan struct{})
	s.reaping[principal] = own
	return nil, own
}

func (s *Service) endReap(principal string, own chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reaping, principal)
	close(own)
}

// ViewLease returns a lease as clients see it, without the authority of its clean-up tool.
func ViewLease(l *resources.Lease) arcp.ResourceLeaseView {
	return arcp.ResourceLeaseView{
		LeaseID:          l.ID,
		Principal:        l.Principal,
		SessionID:        l.Session,
		Provider:         l.Provider,
		Type:             l.Type,
		ExternalID:       l.ExternalID,
		DisplayName:      l.DisplayName,
		Metadata:         l.Metadata,
		CleanupTool:      l.CleanupTool,
		State:            l.State,
		Seconds:          l.Seconds,
		CreatedAt:        l.CreatedAt,
		TouchedAt:        l.TouchedAt,
		ExpiresAt:        l.ExpiresAt,
		CleanupStartedAt: l.CleanupStartedAt,
		CleanupAttempts:  l.CleanupAttempts,
		LastError:        l.LastError,
		ReleasedAt:       l.ReleasedAt,
	}
}

// maxName bounds the name of a resource in a message.
const maxName = 100

// emit adds a resource event to the events of its principal.
func (s *Service) emit(ctx context.Context, event string, payload any) {
	var principal, message string
	switch p := payload.(type) {
	case resources.Entry:
		principal, message = p.Principal, fmt.Sprintf("%s %q is %s", p.Kind, clip.Text(cmp.Or(p.DisplayName, p.ResourceID), maxName), p.Status)
	case arcp.ResourceLeaseView:
		principal, message = p.Principal, fmt.Sprintf("clean-up of %s %q has failed", p.Type,
			clip.Text(cmp.Or(p.DisplayName, p.ExternalID), maxName))
	}
	raw, err := arcp.Marshal(payload)
	if err != nil { // texts, times and metadata that was read
		s.opts.Logger.Error().Err(err).Str("event", event).Msg("event of a resource")
		return
	}
	s.opts.Agents.EmitIn(ctx, principal, agents.Event{Kind: event, Message: message, Payload: raw})
}
