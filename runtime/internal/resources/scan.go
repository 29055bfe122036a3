package resources

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/store"
)

// Handler removes resources whose lease has ended.
type Handler interface {
	// Clean removes a resource. It may be called concurrently. ctx ends after a time limit; a call
	// that has not returned by then has failed.
	//
	// Clean is called again for the same lease after a failure, and when StaleClaim has passed
	// without a report. It must be idempotent: a resource that does not exist is a success.
	// attempt counts from 1.
	Clean(ctx context.Context, l Lease, attempt int) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, l Lease, attempt int) error

// Clean calls f.
func (f HandlerFunc) Clean(ctx context.Context, l Lease, attempt int) error {
	return f(ctx, l, attempt)
}

// Registration registers a handler for a kind of resource.
type Registration struct {
	Provider string
	Type     string // "": all types of the provider without a handler of their own
	Handler  Handler

	// Clients permits clients to lease such resources with registry.lease. If false, only tools
	// can, because the end of a lease removes the resource.
	Clients bool
}

// Handlers finds the handler of a resource.
type Handlers struct {
	byKind map[[2]string]Registration // by provider and type
}

// NewHandlers refuses registrations that are incomplete or for the same resources.
func NewHandlers(list []Registration) (Handlers, error) {
	h := Handlers{make(map[[2]string]Registration, len(list))}
	for _, r := range list {
		key := [2]string{r.Provider, r.Type}
		switch _, exists := h.byKind[key]; {
		case r.Provider == "" || r.Handler == nil:
			return h, errors.New("a clean-up handler needs a provider and a function")
		case exists:
			return h, fmt.Errorf("there are two clean-up handlers for provider %q and type %q", r.Provider, r.Type)
		}
		h.byKind[key] = r
	}
	return h, nil
}

// For returns the registration for a resource.
func (h Handlers) For(i *Identity) (Registration, bool) {
	r, ok := h.byKind[[2]string{i.Provider, i.Type}]
	if !ok {
		r, ok = h.byKind[[2]string{i.Provider, ""}]
	}
	return r, ok
}

// Bounds of a scan.
const (
	ScanLimit        = 64   // leases claimed by one scan
	maxDue           = 5000 // due leases read by one scan, without a principal's leases beyond maxDueOfOne
	maxHandlers      = 4    // handlers that run at the same time
	maxHandlersOfOne = 2    // handlers of one principal, so that slow ones do not delay other principals
	maxDueOfOne      = 8    // leases of one principal in a scan of all, for the same reason
	maxUnreturned    = 64   // handlers that have not returned; then no other one is called
	cleanTimeout     = time.Minute

	// namedTTL bounds the age of the answer of Scanner.Named. With an older answer the next scan
	// handles the lease, which may be named by now.
	namedTTL = time.Second
)

// errUnreturned ends a scan while too many handlers have not returned.
var errUnreturned = fmt.Errorf("%d clean-up handlers have not returned in time; no others are called", maxUnreturned)

// Scanner finds due leases and calls the handlers of their resources. Goroutines may call Scan
// at the same time; together they run at most maxHandlers handlers. The exported fields do not
// change after the first call.
type Scanner struct {
	Store    *Store
	Handlers Handlers

	// Fallback, if set, is called for leases without a handler.
	Fallback Handler

	// Named, if set, returns the due leases that jobs or questions still name; these are extended.
	// In doubt it returns a lease.
	Named func(ctx context.Context, due []Lease) (map[arcp.LeaseID]bool, error)

	// OnResult, if set, receives every claim and its result.
	OnResult func(result string)

	Timeout time.Duration    // of a handler; 0: a minute. It is less than StaleClaim
	Now     func() time.Time // nil: time.Now

	mu         sync.Mutex
	slots      semaphore                  // of all handlers
	principals map[string]*principalSlots // with handlers that run or wait
	unreturned int                        // handlers that have not returned, also after their time limit
}

// semaphore bounds the handlers that run at the same time. It has one element for each.
type semaphore chan struct{}

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// principalSlots bounds the handlers of one principal.
type principalSlots struct {
	semaphore
	users int // handlers that run or wait; guarded by Scanner.mu
}

// The results that OnResult receives.
const (
	CountClaimed  = "claimed"
	CountReleased = "released"
	CountFailed   = "failed"
	CountSkipped  = "skipped" // it is named, another cleaner has claimed it, or the next scan handles it
)

// Request selects the leases of a scan.
type Request struct {
	Principal string // "": all
	Limit     int    // 0: ScanLimit
	DryRun    bool   // only report the due leases
}

// Report is the result of a scan.
type Report struct {
	Claimed  int
	Released int
	Failed   int
	Skipped  int
	Due      []Lease // of a dry run
	More     bool    // there may be other due leases
}

// Scan claims due leases and calls their handlers. It returns when all handlers have returned
// or exceeded their time limit. When ctx ends, so do the contexts of the handlers; a later
// scan retries the unfinished clean-ups.
func (s *Scanner) Scan(ctx context.Context, r Request) (rep Report, err error) {
	if r.Limit <= 0 || r.Limit > ScanLimit {
		r.Limit = ScanLimit
	}
	due, more, err := s.Store.due(ctx, s.now(), r.Principal, r.Limit)
	if err != nil {
		return rep, err
	}
	rep.More = more
	asked := s.now() // Named may miss names that are added from here on
	named, err := s.named(ctx, due)
	if err != nil {
		return rep, err
	}
	if r.DryRun {
		for i := range due {
			if !named[due[i].Value.ID] {
				rep.Due = append(rep.Due, due[i].Value)
			}
		}
		return rep, nil
	}
	err = s.cleanAll(ctx, due, named, asked, &rep)
	return rep, err
}

// named returns the named leases that no cleaner has claimed. A clean-up that has begun is not
// undone. After a failed clean-up the resource may still be intact.
func (s *Scanner) named(ctx context.Context, due []leaseRow) (map[arcp.LeaseID]bool, error) {
	var unclaimed []Lease
	for i := range due {
		if due[i].Value.State != StateCleaning {
			unclaimed = append(unclaimed, due[i].Value)
		}
	}
	if s.Named == nil || len(unclaimed) == 0 {
		return nil, nil
	}
	return s.Named(ctx, unclaimed)
}

// cleanAll extends the named leases and cleans up the others. asked is the time before the call of
// Named.
func (s *Scanner) cleanAll(ctx context.Context, due []leaseRow, named map[arcp.LeaseID]bool, asked time.Time, rep *Report) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make(chan error, len(due))
	for i := range due {
		r := &due[i]
		if named[r.Value.ID] {
			errs <- s.Store.extend(ctx, s.now(), r)
			s.count(&mu, rep, CountSkipped)
			continue
		}
		wg.Go(func() {
			release, err := s.acquire(ctx, r.Value.Principal)
			if errs <- err; err != nil {
				return
			}
			defer release()
			if s.now().Sub(asked) > namedTTL {
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
	if s.OnResult != nil {
		s.OnResult(result)
	}
}

// acquire waits until another handler of a principal may run.
func (s *Scanner) acquire(ctx context.Context, principal string) (release func(), err error) {
	p, err := s.acquireSlots(principal)
	if err != nil {
		return nil, err
	}
	if err := p.acquire(ctx); err != nil {
		s.releaseSlots(principal, p)
		return nil, err
	}
	releaseOwn := func() {
		<-p.semaphore
		s.releaseSlots(principal, p)
	}
	if err := s.slots.acquire(ctx); err != nil {
		releaseOwn()
		return nil, err
	}
	return func() { <-s.slots; releaseOwn() }, nil
}

// acquireSlots returns the slots of a principal, which exist until releaseSlots.
func (s *Scanner) acquireSlots(principal string) (*principalSlots, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreturned >= maxUnreturned {
		return nil, errUnreturned
	}
	if s.slots == nil {
		s.slots, s.principals = make(semaphore, maxHandlers), make(map[string]*principalSlots)
	}
	p := s.principals[principal]
	if p == nil {
		p = &principalSlots{semaphore: make(semaphore, maxHandlersOfOne)}
		s.principals[principal] = p
	}
	p.users++
	return p, nil
}

func (s *Scanner) releaseSlots(principal string, p *principalSlots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(s.principals, principal)
	}
}

// clean claims a lease and calls its handler.
func (s *Scanner) clean(ctx context.Context, r *leaseRow) (results []string) {
	claim, ok, err := s.Store.claim(ctx, s.now(), r)
	if err != nil || !ok {
		s.logFailure(err, &r.Value, "claim a lease")
		return []string{CountSkipped}
	}
	failure := s.call(ctx, claim)
	// The result is stored even if the scan is cancelled.
	ctx = context.WithoutCancel(ctx)
	if ok, err = s.Store.storeResult(ctx, s.now(), claim, failure); err != nil || !ok {
		s.logFailure(err, &r.Value, "store the result of a clean-up")
		return []string{CountClaimed, CountSkipped}
	}
	if failure != nil {
		s.Store.opts.Logger.Warn().Err(failure).Str("lease_id", string(r.Value.ID)).Str("provider", r.Value.Provider).
			Str("resource_type", r.Value.Type).Int("attempt", claim.Value.CleanupAttempts).Msg("clean-up of a leased resource failed")
		return []string{CountClaimed, CountFailed}
	}
	return []string{CountClaimed, CountReleased}
}

func (s *Scanner) logFailure(err error, l *Lease, operation string) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.Store.opts.Logger.Error().Err(err).Str("lease_id", string(l.ID)).Msg(operation)
	}
}

func (s *Scanner) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// errNoHandler is the failure of a lease without a handler.
func errNoHandler(i *Identity) error {
	return arcp.Errorf(arcp.CodeUnimplemented,
		"no clean-up handler is registered for provider %q and type %q, and the lease names no cleanup_tool", i.Provider, i.Type)
}

// call calls the handler of a lease. It returns when the handler returns, at the latest a
// grace period after the time limit.
func (s *Scanner) call(ctx context.Context, claim *leaseRow) error {
	handler := s.Fallback
	if r, ok := s.Handlers.For(&claim.Value.Identity); ok {
		handler = r.Handler
	} else if claim.Value.CleanupTool == "" || handler == nil {
		return errNoHandler(&claim.Value.Identity)
	}
	limit := s.Timeout
	if limit <= 0 {
		limit = cleanTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	s.countRunning(1)
	go func() {
		defer s.countRunning(-1)
		done <- s.callSafely(ctx, handler, claim.Value)
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

// grace is the time in which a handler has to return after its time limit.
const grace = time.Second

// countRunning counts handlers that have not returned.
func (s *Scanner) countRunning(d int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreturned += d
}

// callSafely calls a handler. A panic becomes an error.
func (s *Scanner) callSafely(ctx context.Context, h Handler, l Lease) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errPanicked
			s.Store.opts.Logger.Error().Str("lease_id", string(l.ID)).Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).Msg(err.Error())
		}
	}()
	return h.Clean(ctx, l, l.CleanupAttempts)
}

var errPanicked = errors.New("the clean-up handler panicked; the log says where")

// due returns the due leases of a principal, or of all, in the order of the times at which they
// became due, at most limit; more reports whether there may be others.
func (t *leaseTable) due(ctx context.Context, now time.Time, principal string, limit int) (list []leaseRow, more bool, err error) {
	now = roundTime(now)
	read, limitOfOne := 0, limit
	if principal == "" {
		limitOfOne = maxDueOfOne
	}
	found := make(map[string]int) // by principal
	var failed error
	err = t.pointers.Scan(ctx, duePrefix, "", func(at records.Row[pointer], bad error) bool {
		if timeOf(at.Key, duePrefix).After(now) {
			return false
		}
		if len(list) == limit || read == maxDue {
			more = true
			return false
		}
		if failed = errors.Join(context.Cause(ctx), bad); failed != nil {
			return false
		}
		switch p := at.Value; {
		case principal != "" && p.Principal != principal:
		case found[p.Principal] == limitOfOne:
			more = true
		default:
			read++
			var row leaseRow
			switch row, failed = t.read(ctx, p.Principal, p.ID); {
			case hasCode(failed, arcp.CodeNotFound): // unreadable, which was reported, or deleted meanwhile
				failed = nil
			case failed == nil && row.Value.IsDue(now):
				list = append(list, row)
				found[p.Principal]++
			}
		}
		return failed == nil
	})
	return list, more, errors.Join(err, failed)
}

// extend extends a due lease that is named. A change since the row was read has priority.
func (t *leaseTable) extend(ctx context.Context, now time.Time, r *leaseRow) error {
	_, err := t.replaceUnchanged(ctx, r, r.Value.extended(roundTime(now)))
	return err
}

// replaceUnchanged replaces a lease. ok is false if the lease has changed since the row was read.
func (t *leaseTable) replaceUnchanged(ctx context.Context, r *leaseRow, next Lease) (ok bool, err error) {
	if err = t.put(ctx, r, next); errors.Is(err, store.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// claim claims a lease for the caller. ok is false if the lease is not due, or has changed since
// the row was read.
func (t *leaseTable) claim(ctx context.Context, now time.Time, r *leaseRow) (claim *leaseRow, ok bool, err error) {
	now = roundTime(now)
	if !r.Value.IsDue(now) {
		return nil, false, nil
	}
	next := r.Value.claimed(now)
	if ok, err = t.replaceUnchanged(ctx, r, next); !ok {
		return nil, false, err
	}
	return &leaseRow{Key: r.Key, Rev: r.Rev + 1, Value: next}, true, nil
}

// storeResult stores the result of a clean-up; ok is false if the claim is no longer valid.
func (t *leaseTable) storeResult(ctx context.Context, now time.Time, claim *leaseRow, failure error) (ok bool, err error) {
	now = roundTime(now)
	err = records.Retry(func() error {
		row, err := t.read(ctx, claim.Value.Principal, claim.Value.ID)
		if err != nil {
			return err
		}
		if ok = row.Rev == claim.Rev && row.Value.hasClaim(&claim.Value); !ok {
			return nil
		}
		next := row.Value.cleaned(now)
		if failure != nil {
			next = row.Value.failed(now, failure.Error())
		}
		if err = t.put(ctx, &row, next); err == nil {
			t.reportCleaned(ctx, now, &next)
		}
		return err
	})
	return ok && err == nil, err
}

// reportCleaned reports the result of a clean-up in the registry.
func (t *leaseTable) reportCleaned(ctx context.Context, now time.Time, l *Lease) {
	if l.State == StateCleanupFailed {
		t.updateEntry(ctx, now, l, Failed)
		t.opts.OnEvent(ctx, EventCleanupFailed, *l)
		return
	}
	t.updateEntry(ctx, now, l, Released)
}
