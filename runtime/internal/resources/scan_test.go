package resources

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// scanner cleans up with a function, by the fixture's time.
func (r *fixture) scanner(f HandlerFunc) *Scanner {
	return &Scanner{Store: r.registry, Handlers: handlers(r, f), Now: func() time.Time { return r.now }}
}

func (r *fixture) scan(s *Scanner, q Request) Report {
	r.Helper()
	rep, err := s.Scan(context.Background(), q)
	r.no(err)
	return rep
}

func gone(context.Context, Lease, int) error { return nil }

func TestEndedLeaseIsCleanedUpOnce(t *testing.T) {
	r := newFixture(t)
	at := r.take(alice, sandbox("at once", 0))
	later := r.take(alice, sandbox("later", 60))
	var cleaned []string
	s := r.scanner(func(_ context.Context, l Lease, attempt int) error {
		cleaned = append(cleaned, fmt.Sprint(l.ExternalID, attempt))
		return nil
	})
	rep := r.scan(s, Request{})
	r.want("what lasts for no time is over", rep.Claimed == 1 && rep.Released == 1 && rep.Failed == 0 && rep.Skipped == 0, "%+v", rep)
	r.want("it is released", r.lease(at).State == Gone && r.lease(later).State == Held, "%+v", r.lease(at))
	e, err := r.registry.Entry(t.Context(), "sess_a", string(at.ID))
	r.want("and shown so", err == nil && e.Status == Released, "%+v, %v", e, err)
	r.after(time.Minute)
	r.scan(s, Request{})
	r.scan(s, Request{})
	r.want("each once", strings.Join(cleaned, ",") == "at once1,later1", "%v", cleaned)
}

func TestFailedCleanUpIsRetried(t *testing.T) {
	r := newFixture(t)
	l := r.take(alice, sandbox("x", 0))
	s := r.scanner(func(context.Context, Lease, int) error { return errors.New("the cloud is closed") })
	for attempt, wait := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute,
		32 * time.Minute, time.Hour, time.Hour} {
		rep := r.scan(s, Request{})
		r.want("it fails", rep.Claimed == 1 && rep.Failed == 1, "%+v", rep)
		got := r.lease(l)
		r.want("and says why", got.State == CleanupFailed && got.CleanupAttempts == attempt+1 && got.LastError == "the cloud is closed", "%+v", got)
		r.want("it waits", got.ExpiresAt.Equal(r.now.Add(wait)), "until %v, want %v", got.ExpiresAt.Sub(r.now), wait)
		r.after(wait - time.Second)
		r.want("for all of it", r.scan(s, Request{}).Claimed == 0, "attempt %d", attempt)
		r.after(time.Second)
	}
	e, err := r.registry.Entry(t.Context(), "sess_a", string(l.ID))
	r.want("the registry shows it", err == nil && e.Status == Failed, "%+v, %v", e, err)
	_, err = r.registry.Touch(t.Context(), r.now, "alice", l.ID)
	r.wantCode("it cannot be touched", err, arcp.CodeFailedPrecondition)
	again := r.take(alice, sandbox("x", 60))
	r.want("but taken again", again.ID == l.ID && again.State == Held && again.CleanupAttempts == 0 && again.LastError == "", "%+v", again)
}

func TestNoHandler(t *testing.T) {
	r := newFixture(t)
	l := r.take(alice, LeaseRequest{Identity: Identity{"elsewhere", "vm", "7"}})
	r.scan(r.scanner(gone), Request{})
	got := r.lease(l)
	r.want("that is said", got.State == CleanupFailed && strings.Contains(got.LastError, `no clean-up handler is registered for provider "elsewhere" and type "vm"`), "%+v", got)

	tool := LeaseRequest{Identity: Identity{"elsewhere", "vm", "8"}, CleanupTool: "vm.delete"}
	l = r.take(alice, tool)
	s := r.scanner(gone)
	var by string
	s.Fallback = HandlerFunc(func(_ context.Context, l Lease, _ int) error { by = l.CleanupTool; return nil })
	r.scan(s, Request{})
	r.want("a tool can", r.lease(l).State == Gone && by == "vm.delete", "%+v", r.lease(l))
}

// A claim without a conclusion becomes stale. A late conclusion has no effect.
func TestStaleCleaner(t *testing.T) {
	r := newFixture(t)
	l := r.take(alice, sandbox("x", 0))
	claim := func() *leaseRow {
		t.Helper()
		due, _, err := r.registry.due(t.Context(), r.now, "", 10)
		r.no(err)
		if len(due) != 1 {
			return nil
		}
		c, ok, err := r.registry.claim(t.Context(), r.now, &due[0])
		r.want("it is claimed", ok && err == nil, "%v, %v", ok, err)
		return c
	}
	first := claim()
	_, err := r.registry.Touch(t.Context(), r.now, "alice", l.ID)
	r.wantCode("there is no way back", err, arcp.CodeFailedPrecondition)
	_, err = r.registry.Acquire(t.Context(), r.now, alice, sandbox("x", 60))
	r.wantCode("not by taking it again either", err, arcp.CodeFailedPrecondition)
	r.after(StaleClaim - time.Second)
	r.want("it has its time", claim() == nil, "it was claimed")
	r.boot() // the claiming process is gone
	r.after(time.Second)
	second := claim()
	r.want("then another one's turn has come", second != nil && second.Value.CleanupAttempts == 2, "%+v", second)
	for _, failure := range []error{nil, errors.New("late")} {
		ok, err := r.registry.conclude(t.Context(), r.now, first, failure)
		r.want("the first has lost", !ok && err == nil, "%v, %v", ok, err)
	}
	ok, err := r.registry.conclude(t.Context(), r.now, second, nil)
	r.want("the second counts", ok && err == nil && r.lease(l).State == Gone, "%v, %v", ok, err)
	ok, err = r.registry.conclude(t.Context(), r.now, second, nil)
	r.want("once", !ok && err == nil, "%v, %v", ok, err)
}

// Its owner may let go of a thing while it is cleaned up.
func TestReleaseDuringCleanUp(t *testing.T) {
	r := newFixture(t)
	l := r.take(alice, sandbox("x", 0))
	rep := r.scan(r.scanner(func(ctx context.Context, l Lease, _ int) error {
		_, err := r.registry.Release(ctx, r.now, "alice", l.ID)
		return errors.Join(err, errors.New("it is gone already"))
	}), Request{})
	got := r.lease(l)
	r.want("the owner was right", got.State == Gone && got.LastError == "" && rep.Failed == 0 && rep.Skipped == 1, "%+v, %+v", got, rep)
}

func TestNamedLeaseIsNotReaped(t *testing.T) {
	r := newFixture(t)
	short, long := r.take(alice, sandbox("short", 0)), r.take(alice, sandbox("long", 4000))
	r.after(4000 * time.Second)
	s := r.scanner(gone)
	asked := 0
	s.Named = func(_ context.Context, due []Lease) (map[arcp.LeaseID]bool, error) {
		asked += len(due)
		return map[arcp.LeaseID]bool{short.ID: true, long.ID: true}, nil
	}
	r.want("a dry run leaves it out, too", len(r.scan(s, Request{DryRun: true}).Due) == 0, "it is there")
	rep := r.scan(s, Request{})
	r.want("they are left alone", rep.Claimed == 0 && rep.Skipped == 2 && asked == 4, "%+v, %d", rep, asked)
	r.want("and last longer", r.lease(short).ExpiresAt.Equal(r.now.Add(extendLeast)) && r.lease(long).ExpiresAt.Equal(r.now.Add(extendMost)),
		"%v, %v", r.lease(short).ExpiresAt, r.lease(long).ExpiresAt)
	s.Named = func(context.Context, []Lease) (map[arcp.LeaseID]bool, error) { return nil, errors.New("who knows") }
	r.after(extendMost)
	_, err := s.Scan(t.Context(), Request{})
	r.want("without an answer nothing is reaped", err != nil && r.lease(long).State == Held, "%v", err)
}

// A failed clean-up is not repeated while a job names the lease: the thing may still be
// intact. A claimed clean-up is repeated, as it may have removed the thing.
func TestNamedLeaseIsNotCleanedUpAgain(t *testing.T) {
	r := newFixture(t)
	l := r.take(alice, sandbox("x", 0))
	fails := func(context.Context, Lease, int) error { return errors.New("no") }
	s := r.scanner(fails)
	named := false
	s.Named = func(_ context.Context, due []Lease) (map[arcp.LeaseID]bool, error) {
		return map[arcp.LeaseID]bool{l.ID: named}, nil
	}
	rep := r.scan(s, Request{})
	r.want("the clean-up fails", rep.Failed == 1 && r.lease(l).State == CleanupFailed, "%+v", rep)
	named = true
	r.after(cleanupBackoff.Min)
	r.want("a dry run leaves it out", len(r.scan(s, Request{DryRun: true}).Due) == 0, "it is there")
	rep = r.scan(s, Request{})
	got := r.lease(l)
	r.want("it is left alone", rep.Claimed == 0 && rep.Skipped == 1, "%+v", rep)
	r.want("and has still failed", got.State == CleanupFailed && got.CleanupAttempts == 1 && got.LastError == "no" && got.ExpiresAt.Equal(r.now.Add(extendLeast)), "%+v", got)
	named = false
	r.after(extendLeast)
	read, err := r.registry.read(t.Context(), l.Principal, l.ID)
	r.no(err)
	claim, ok, err := r.registry.claim(t.Context(), r.now, &read)
	r.want("nobody names it any more", err == nil && ok && claim.Value.CleanupAttempts == 2, "%+v, %v", claim, err)
	named = true
	r.after(StaleClaim)
	rep = r.scan(s, Request{})
	r.want("it was being cleaned up", rep.Claimed == 1 && r.lease(l).CleanupAttempts == 3, "%+v", rep)
}

func TestScanOfOnePrincipal(t *testing.T) {
	r := newFixture(t)
	mine, other := r.take(alice, sandbox("mine", 0)), r.take(Holder{Principal: "bob"}, sandbox("other", 0))
	s := r.scanner(gone)
	dry := r.scan(s, Request{Principal: "alice", DryRun: true})
	r.want("it says what it would do", len(dry.Due) == 1 && dry.Due[0].ID == mine.ID && dry.Claimed == 0, "%+v", dry)
	r.want("and does nothing", r.lease(mine).State == Held, "%+v", r.lease(mine))
	r.scan(s, Request{Principal: "alice"})
	r.want("hers only", r.lease(mine).State == Gone && r.lease(other).State == Held, "%+v", r.lease(other))
}

func TestScanIsBounded(t *testing.T) {
	r := newFixture(t)
	for i := range ScanLimit + 5 {
		r.take(Holder{Principal: "alice"}, sandbox(fmt.Sprint(i), 0))
	}
	r.take(Holder{Principal: "bob"}, sandbox("the last", 0))
	s := r.scanner(gone)
	rep := r.scan(s, Request{Limit: 10_000})
	r.want("each has a share", rep.Claimed == maxDueOfOne+1 && rep.More, "%+v", rep)
	rep = r.scan(s, Request{Principal: "alice", Limit: 10_000})
	r.want("so many at once", rep.Claimed == ScanLimit-maxDueOfOne+5 && !rep.More, "%+v", rep)
}

// A principal with many slow clean-ups does not delay another principal's.
func TestSlowCleanUpsDelayNoOtherPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t)
		for i := range 20 {
			r.take(Holder{Principal: "alice"}, sandbox(fmt.Sprint(i), 0))
		}
		r.take(Holder{Principal: "bob"}, sandbox("bob's", 0))
		began, at := time.Now(), time.Duration(-1)
		s := r.scanner(func(ctx context.Context, l Lease, _ int) error {
			if l.Principal == "bob" {
				at = time.Since(began)
				return nil
			}
			time.Sleep(30 * time.Second)
			return nil
		})
		s.Now = func() time.Time { return r.now.Add(time.Since(began)) }
		rep := r.scan(s, Request{})
		r.want("bob's is cleaned up at once", at == 0 && rep.Released == maxHandlersOfOne+1, "after %v: %+v", at, rep)
		r.want("some of alice's, too", time.Since(began) == 30*time.Second, "%v", time.Since(began))
		r.want("the others when it was asked again who names them", rep.Skipped == maxDueOfOne-maxHandlersOfOne && rep.More, "%+v", rep)
		r.want("nothing is kept of them", len(s.principals) == 0 && len(s.slots) == 0, "%v", s.principals)
	})
}

// A scan finds the leases of a principal behind any number of earlier due leases of another.
func TestManyDueLeasesHideNoOthers(t *testing.T) {
	r := newFixture(t)
	for i := range maxDue + 1 {
		r.take(Holder{Principal: "alice"}, sandbox(fmt.Sprint(i), 0))
	}
	r.after(time.Second)
	r.take(Holder{Principal: "bob"}, sandbox("bob's", 0))
	s := r.scanner(gone)
	rep := r.scan(s, Request{Principal: "bob"})
	r.want("who asks for their own has it", rep.Released == 1, "%+v", rep)
	l := r.take(Holder{Principal: "bob"}, sandbox("bob's", 0))
	rep = r.scan(s, Request{})
	r.want("and in a scan of everybody's", r.lease(l).State == Gone && rep.Released == maxDueOfOne+1 && rep.More, "%+v, %+v", r.lease(l), rep)
}

// An answer of Named that took longer than namedTTL is outdated: the leases are left to the
// next scan.
func TestOutdatedNamedAnswerIsDropped(t *testing.T) {
	r := newFixture(t)
	l := r.take(alice, sandbox("x", 0))
	s := r.scanner(gone)
	takes := namedTTL + time.Second
	s.Named = func(context.Context, []Lease) (map[arcp.LeaseID]bool, error) {
		r.after(takes)
		return nil, nil
	}
	rep := r.scan(s, Request{})
	r.want("it is left to the next scan", rep.Skipped == 1 && r.lease(l).State == Held, "%+v", rep)
	takes = 0
	rep = r.scan(s, Request{})
	r.want("which cleans it up", rep.Released == 1, "%+v", rep)
}

// Handlers that hang, or panic, hold up nothing.
func TestHandlersThatMisbehave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t)
		for i := range 10 {
			r.take(Holder{Principal: fmt.Sprint("p", i)}, sandbox(fmt.Sprint(i), 0))
		}
		most, running := 0, make(chan struct{}, 100)
		release := make(chan struct{})
		s := r.scanner(func(_ context.Context, l Lease, _ int) error {
			running <- struct{}{}
			r.mu.Lock()
			most = max(most, len(running))
			r.mu.Unlock()
			defer func() { <-running }()
			switch l.ExternalID {
			case "0":
				panic("no")
			case "1":
				<-release // ignores ctx
			}
			return nil
		})
		began := time.Now()
		rep := r.scan(s, Request{})
		r.want("the others are cleaned up", rep.Released == 8 && rep.Failed == 2, "%+v", rep)
		r.want("few at a time", most <= maxHandlers, "%d", most)
		r.want("who hangs is left behind", time.Since(began) == cleanTimeout+grace, "after %v", time.Since(began))
		r.want("and known", s.unreturned == 1, "%d", s.unreturned)
		close(release)
		synctest.Wait()
		r.want("until it returns", s.unreturned == 0, "%d", s.unreturned)
		s.unreturned = maxUnreturned
		r.take(Holder{Principal: "alice"}, sandbox("more", 0))
		_, err := s.Scan(t.Context(), Request{})
		r.want("with very many of them no more are called", errors.Is(err, errUnreturned), "%v", err)
	})
}

// The end of a scan's context ends its handlers; the next scan retries the unfinished
// clean-ups.
func TestScanEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t)
		l := r.take(alice, sandbox("x", 0))
		ctx, cancel := context.WithCancelCause(t.Context())
		s := r.scanner(func(ctx context.Context, _ Lease, _ int) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		time.AfterFunc(time.Second, func() { cancel(errors.New("we are closing")) })
		began := time.Now()
		rep, err := s.Scan(ctx, Request{})
		r.want("it ends", time.Since(began) == time.Second && err == nil && rep.Failed == 1, "%v, %+v, %v", time.Since(began), rep, err)
		r.want("and is due again", r.lease(l).State == CleanupFailed && r.lease(l).LastError == "we are closing", "%+v", r.lease(l))
	})
}

// A row of another version or a broken row does not affect other leases.
func TestUnreadableLeases(t *testing.T) {
	r := newFixture(t)
	odd, fine := r.take(alice, sandbox("odd", 0)), r.take(alice, sandbox("fine", 0))
	rec, err := r.disk.Get(t.Context(), leaseKey("alice", odd.ID))
	r.no(err)
	for _, text := range []string{strings.Replace(string(rec.Value), `"active"`, `"moving"`, 1), "{"} {
		rec, err := r.disk.Get(t.Context(), rec.Key)
		r.no(err)
		rec.Value = []byte(text)
		r.no(r.put(rec))
		rep := r.scan(r.scanner(gone), Request{})
		r.want("they are left alone", rep.Failed == 0 && rep.Skipped == 0, "%+v", rep)
		r.boot()
	}
	r.want("the others are not", r.lease(fine).State == Gone, "%+v", r.lease(fine))
}

func TestHandlersAreFound(t *testing.T) {
	f := HandlerFunc(gone)
	h, err := NewHandlers([]Registration{{Provider: "a", Handler: f}, {Provider: "a", Type: "t", Handler: f, Clients: true}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		provider, typ     string
		known, forClients bool
	}{{"a", "t", true, true}, {"a", "u", true, false}, {"b", "t", false, false}} {
		got, ok := h.For(&Identity{Provider: c.provider, Type: c.typ})
		if ok != c.known || got.Clients != c.forClients {
			t.Errorf("%s %s: %+v, %v", c.provider, c.typ, got, ok)
		}
	}
	for _, bad := range [][]Registration{{{Provider: "a"}}, {{Handler: f}}, {{Provider: "a", Handler: f}, {Provider: "a", Handler: f}}} {
		if _, err := NewHandlers(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
