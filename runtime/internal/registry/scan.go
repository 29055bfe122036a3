package registry

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Handler takes things away. Clean may be called by many goroutines, also again
// for the same lease: after it has failed, or when a cleaner has not reported for
// StaleClaim. It has to do as little harm then as the first time, and that the
// thing is gone already is success. attempt counts from 1. ctx has a time limit; a
// Handler that goes on regardless is left behind, and has failed.
type Handler interface {
	Clean(ctx context.Context, l Lease, attempt int) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, l Lease, attempt int) error

// Clean calls f.
func (f HandlerFunc) Clean(ctx context.Context, l Lease, attempt int) error {
	return f(ctx, l, attempt)
}

// Registration says what a handler is for.
type Registration struct {
	Provider string
	Type     string // "": all of the provider that no other handler is for
	Handler  Handler

	// Clients reports whether clients may take leases on such things, by naming them.
	// Without it only tools can: who names a process or a file has it taken away.
	Clients bool
}

// Handlers are the registrations by what they are for.
type Handlers struct{ of map[[2]string]Registration }

// NewHandlers refuses registrations that are incomplete or for the same things.
func NewHandlers(list []Registration) (Handlers, error) {
	h := Handlers{make(map[[2]string]Registration, len(list))}
	for _, r := range list {
		key := [2]string{r.Provider, r.Type}
		switch _, twice := h.of[key]; {
		case r.Provider == "" || r.Handler == nil:
			return h, errors.New("a clean-up handler needs a provider and a function")
		case twice:
			return h, fmt.Errorf("there are two clean-up handlers for provider %q and type %q", r.Provider, r.Type)
		}
		h.of[key] = r
	}
	return h, nil
}

// For returns what is registered for a thing.
func (h Handlers) For(i *Identity) (Registration, bool) {
	r, ok := h.of[[2]string{i.Provider, i.Type}]
	if !ok {
		r, ok = h.of[[2]string{i.Provider, ""}]
	}
	return r, ok
}

// Bounds of a scan.
const (
	ScanLimit    = 64   // leases claimed in one go
	maxDue       = 5000 // due leases read for them; those whose principal has enough already are passed by unread
	cleanAtOnce  = 4    // handlers that run
	cleanOfOne   = 2    // of them, for one principal: who has many slow ones does not hold up the others
	dueOfOne     = 8    // leases of one principal in a scan of everybody's, for the same reason
	maxLeft      = 64   // handlers that were left behind and have not returned: more are not called
	cleanTimeout = time.Minute

	// A lease whose turn comes later than this after it was asked who names it is left
	// to the next scan: it may be named by now.
	namedFor = time.Second
)

// errLeft ends a scan that finds too many handlers that have not returned.
var errLeft = fmt.Errorf("%d clean-up handlers have not returned in time; no others are called", maxLeft)

// Scanner finds leases that are due and has what they are on cleaned up. Scan may
// be called by many goroutines; together they run a bounded number of handlers.
// The members are not changed after use.
type Scanner struct {
	Store    *Store
	Handlers Handlers

	// Fallback, if set, is called for what has no handler.
	Fallback Handler

	// Named, if set, says which of some leases are still named by somebody: they are
	// extended. One that it is not sure about is named.
	Named func(ctx context.Context, due []Lease) (map[arcp.LeaseID]bool, error)

	// Counted, if set, is told of every claim and what came of it.
	Counted func(result string)

	Timeout time.Duration    // of a handler; 0: a minute. It is less than StaleClaim
	Now     func() time.Time // nil: time.Now

	mu   sync.Mutex
	busy semaphore             // of all handlers
	of   map[string]*principal // those with leases that are cleaned up now
	left int                   // handlers that have not returned, also those that were left behind
}

// semaphore bounds the handlers that run at once: it has one element for each.
type semaphore chan struct{}

func (t semaphore) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// principal is the turns of one, which waiters share.
type principal struct {
	busy    semaphore
	waiters int // with Scanner.mu
}

// What becomes of a due lease, as Counted is told it.
const (
	CountClaimed  = "claimed"
	CountReleased = "released"
	CountFailed   = "failed"
	CountSkipped  = "skipped" // somebody names it, another cleaner was faster, or its turn is with the next scan
)

// Request is what to look for.
type Request struct {
	Principal string // "": everybody
	Limit     int    // 0: ScanLimit
	DryRun    bool   // say what is due, and change nothing
}

// Report is what came of a scan.
type Report struct {
	Claimed  int
	Released int
	Failed   int
	Skipped  int
	Due      []Lease // of a dry run
	More     bool    // there may be others that are due
}

// Scan claims leases that are due and has them cleaned up. It returns when all of
// them have been, or were left behind; when ctx ends handlers are told to, and what
// they have not done is tried again later.
func (s *Scanner) Scan(ctx context.Context, r Request) (rep Report, err error) {
	if r.Limit <= 0 || r.Limit > ScanLimit {
		r.Limit = ScanLimit
	}
	due, more, err := s.Store.due(ctx, s.now(), r.Principal, r.Limit)
	if err != nil {
		return rep, err
	}
	rep.More = more
	asked := s.now() // what is named from here on may not be heard of
	named, err := s.named(ctx, due)
	if err != nil {
		return rep, err
	}
	if r.DryRun {
		for i := range due {
			if !named[due[i].ID] {
				rep.Due = append(rep.Due, due[i].Lease)
			}
		}
		return rep, nil
	}
	err = s.cleanAll(ctx, due, named, asked, &rep)
	return rep, err
}

// named asks who is named of those that no cleaner is at: what is being cleaned up
// has no way back. Of a clean-up that has failed much may be left, also all of it.
func (s *Scanner) named(ctx context.Context, due []row) (map[arcp.LeaseID]bool, error) {
	var open []Lease
	for i := range due {
		if due[i].State != Cleaning {
			open = append(open, due[i].Lease)
		}
	}
	if s.Named == nil || len(open) == 0 {
		return nil, nil
	}
	return s.Named(ctx, open)
}

func (s *Scanner) cleanAll(ctx context.Context, due []row, named map[arcp.LeaseID]bool, asked time.Time, rep *Report) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make(chan error, len(due))
	for i := range due {
		r := &due[i]
		if named[r.ID] {
			errs <- s.Store.extend(ctx, s.now(), r)
			s.count(&mu, rep, CountSkipped)
			continue
		}
		wg.Go(func() {
			release, err := s.turn(ctx, r.Principal)
			if errs <- err; err != nil {
				return
			}
			defer release()
			if s.now().Sub(asked) > namedFor {
				s.count(&mu, rep, CountSkipped)
				return
			}
			for _, result := range s.clean(ctx, r) {
				s.count(&mu, rep, result)
			}
		})
	}
	wg.Wait()
	for range due {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func (s *Scanner) count(mu *sync.Mutex, rep *Report, result string) {
	mu.Lock()
	defer mu.Unlock()
	switch result {
	case CountClaimed:
		rep.Claimed++
	case CountReleased:
		rep.Released++
	case CountFailed:
		rep.Failed++
	case CountSkipped:
		rep.Skipped++
	}
	if s.Counted != nil {
		s.Counted(result)
	}
}

// turn waits until another handler may run for a principal.
func (s *Scanner) turn(ctx context.Context, name string) (release func(), err error) {
	p, err := s.enter(name)
	if err != nil {
		return nil, err
	}
	if err := p.busy.take(ctx); err != nil {
		s.leave(name, p)
		return nil, err
	}
	giveUp := func() {
		<-p.busy
		s.leave(name, p)
	}
	if err := s.busy.take(ctx); err != nil {
		giveUp()
		return nil, err
	}
	return func() { <-s.busy; giveUp() }, nil
}

func (s *Scanner) enter(name string) (*principal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left >= maxLeft {
		return nil, errLeft
	}
	if s.busy == nil {
		s.busy, s.of = make(semaphore, cleanAtOnce), make(map[string]*principal)
	}
	p := s.of[name]
	if p == nil {
		p = &principal{busy: make(semaphore, cleanOfOne)}
		s.of[name] = p
	}
	p.waiters++
	return p, nil
}

func (s *Scanner) leave(name string, p *principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.waiters--; p.waiters == 0 {
		delete(s.of, name)
	}
}

// clean claims a lease and has it cleaned up.
func (s *Scanner) clean(ctx context.Context, r *row) (results []string) {
	claim, ok, err := s.Store.claim(ctx, s.now(), r)
	if err != nil || !ok {
		s.failed(err, &r.Lease, "claim a lease")
		return []string{CountSkipped}
	}
	failure := s.call(ctx, claim)
	// The scan may have been told to end: what came of it is written all the same.
	ctx = context.WithoutCancel(ctx)
	if ok, err = s.Store.conclude(ctx, s.now(), claim, failure); err != nil || !ok {
		s.failed(err, &r.Lease, "write what came of a clean-up")
		return []string{CountClaimed, CountSkipped}
	}
	if failure != nil {
		s.Store.opts.Logger.Warn().Err(failure).Str("lease_id", string(r.ID)).Str("provider", r.Provider).Str("resource_type", r.Type).
			Int("attempt", claim.CleanupAttempts).Msg("clean-up of a leased resource failed")
		return []string{CountClaimed, CountFailed}
	}
	return []string{CountClaimed, CountReleased}
}

func (s *Scanner) failed(err error, l *Lease, what string) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.Store.opts.Logger.Error().Err(err).Str("lease_id", string(l.ID)).Msg(what)
	}
}

func (s *Scanner) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// errNoHandler is the failure of what nobody can clean up.
func errNoHandler(i *Identity) error {
	return arcp.Errorf(arcp.CodeUnimplemented, "no clean-up handler is registered for provider %q and type %q, and the lease names no cleanup_tool", i.Provider, i.Type)
}

// call calls the handler of a lease. It returns when that does, or soon after its
// time is over.
func (s *Scanner) call(ctx context.Context, claim *row) error {
	handler := s.Fallback
	if r, ok := s.Handlers.For(&claim.Identity); ok {
		handler = r.Handler
	} else if claim.CleanupTool == "" || handler == nil {
		return errNoHandler(&claim.Identity)
	}
	limit := s.Timeout
	if limit <= 0 {
		limit = cleanTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	s.await(1)
	go func() {
		defer s.await(-1)
		done <- s.guarded(ctx, handler, claim.Lease)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(grace)
	defer grace.Stop()
	select {
	case err := <-done:
		return err
	case <-grace.C:
		return fmt.Errorf("the clean-up handler did not return in time: %w", context.Cause(ctx))
	}
}

// grace is how long a handler may take to return when its time is over.
const grace = time.Second

// await counts handlers that have not returned.
func (s *Scanner) await(d int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left += d
}

// guarded calls a handler; a panic is its failure.
func (s *Scanner) guarded(ctx context.Context, h Handler, l Lease) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errPanicked
			s.Store.opts.Logger.Error().Str("lease_id", string(l.ID)).Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).Msg(err.Error())
		}
	}()
	return h.Clean(ctx, l, l.CleanupAttempts)
}

var errPanicked = errors.New("the clean-up handler panicked; the log says where")

// due reads leases of a principal that are due, those first that have been for
// longest, at most limit; more says whether there may be others.
func (b *Store) due(ctx context.Context, now time.Time, principal string, limit int) (list []row, more bool, err error) {
	now = exact(now)
	seen, most := 0, limit
	if principal == "" {
		most = dueOfOne
	}
	each := make(map[string]int)
	var failed error
	err = b.opts.Store.Records(ctx, duePrefix, "", func(rec store.Record) bool {
		if timeOf(rec.Key, duePrefix).After(now) {
			return false
		}
		if len(list) == limit || seen == maxDue {
			more = true
			return false
		}
		if failed = context.Cause(ctx); failed != nil {
			return false
		}
		var p pointer
		if failed = arcp.Unmarshal(rec.Value, &p); failed != nil {
			failed = fmt.Errorf("record %s: %w", rec.Key, failed)
			return false
		}
		switch {
		case principal != "" && p.Principal != principal:
			return true
		case each[p.Principal] == most:
			more = true
			return true
		}
		seen++
		var r row
		switch r, failed = b.read(ctx, p.Principal, p.ID); {
		case isNotFound(failed): // unreadable, which was reported, or forgotten meanwhile
			failed = nil
		case failed == nil && r.IsDue(now):
			list = append(list, r)
			each[p.Principal]++
		}
		return failed == nil
	})
	return list, more, errors.Join(err, failed)
}

// extend puts off a lease that is named. Whoever has changed it meanwhile was
// right.
func (b *Store) extend(ctx context.Context, now time.Time, r *row) error {
	next := r.extended(exact(now))
	_, err := b.change(ctx, r, &next)
	return err
}

// claim makes a lease that was read the caller's to clean up; ok is false if it
// was changed since, or is not due.
func (b *Store) claim(ctx context.Context, now time.Time, r *row) (claim *row, ok bool, err error) {
	now = exact(now)
	if !r.IsDue(now) {
		return nil, false, nil
	}
	next := r.claimed(now)
	conflict, err := b.change(ctx, r, &next)
	if conflict || err != nil {
		return nil, false, err
	}
	return &row{next, r.rev + 1}, true, nil
}

// conclude writes what came of a clean-up; ok is false if the claim is not the
// caller's any more.
func (b *Store) conclude(ctx context.Context, now time.Time, claim *row, failure error) (ok bool, err error) {
	now = exact(now)
	for {
		r, err := b.read(ctx, claim.Principal, claim.ID)
		if err != nil {
			return false, err
		}
		if r.rev != claim.rev || !r.is(&claim.Lease) {
			return false, nil
		}
		next := r.cleaned(now)
		if failure != nil {
			next = r.failed(now, failure.Error())
		}
		conflict, err := b.change(ctx, &r, &next)
		if err != nil {
			return false, err
		}
		if conflict {
			continue
		}
		b.showCleaned(ctx, now, &next)
		return true, nil
	}
}

// showCleaned has the registry say what came of a clean-up.
func (b *Store) showCleaned(ctx context.Context, now time.Time, l *Lease) {
	if l.State == CleanupFailed {
		b.show(ctx, now, l, Failed)
		b.opts.OnEvent(ctx, EventCleanupFailed, *l)
		return
	}
	b.show(ctx, now, l, Released)
}
