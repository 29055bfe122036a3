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
func (f *fixture) scanner(handler HandlerFunc) *Scanner {
	return &Scanner{Store: f.registry, Handlers: handlers(f, handler), Now: func() time.Time { return f.now }}
}

func (f *fixture) scan(s *Scanner, q Request) Report {
	f.Helper()
	rep, err := s.Scan(context.Background(), q)
	f.must(err)
	return rep
}

func gone(context.Context, Lease, int) error { return nil }

func TestEndedLeaseIsCleanedUpOnce(t *testing.T) {
	f := newFixture(t)
	at := f.acquire(alice, sandbox("at once", 0))
	later := f.acquire(alice, sandbox("later", 60))
	var cleaned []string
	s := f.scanner(func(_ context.Context, l Lease, attempt int) error {
		cleaned = append(cleaned, fmt.Sprint(l.ExternalID, attempt))
		return nil
	})
	rep := f.scan(s, Request{})
	f.want("what lasts for no time is over", rep.Claimed == 1 && rep.Released == 1 && rep.Failed == 0 && rep.Skipped == 0, "%+v", rep)
	f.want("it is released", f.lease(at).State == StateReleased && f.lease(later).State == StateActive, "%+v", f.lease(at))
	e, err := f.registry.Entry(t.Context(), "sess_a", string(at.ID))
	f.want("and shown so", err == nil && e.Status == Released, "%+v, %v", e, err)
	f.after(time.Minute)
	f.scan(s, Request{})
	f.scan(s, Request{})
	f.want("each once", strings.Join(cleaned, ",") == "at once1,later1", "%v", cleaned)
}

func TestFailedCleanUpIsRetried(t *testing.T) {
	f := newFixture(t)
	l := f.acquire(alice, sandbox("x", 0))
	s := f.scanner(func(context.Context, Lease, int) error { return errors.New("the cloud is closed") })
	for attempt, wait := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute,
		8 * time.Minute, 16 * time.Minute,
		32 * time.Minute, time.Hour, time.Hour} {
		rep := f.scan(s, Request{})
		f.want("it fails", rep.Claimed == 1 && rep.Failed == 1, "%+v", rep)
		got := f.lease(l)
		f.want("and says why", got.State == StateCleanupFailed && got.CleanupAttempts == attempt+1 &&
			got.LastError == "the cloud is closed", "%+v", got)
		f.want("it waits", got.ExpiresAt.Equal(f.now.Add(wait)), "until %v, want %v", got.ExpiresAt.Sub(f.now), wait)
		f.after(wait - time.Second)
		f.want("for all of it", f.scan(s, Request{}).Claimed == 0, "attempt %d", attempt)
		f.after(time.Second)
	}
	e, err := f.registry.Entry(t.Context(), "sess_a", string(l.ID))
	f.want("the registry shows it", err == nil && e.Status == Failed, "%+v, %v", e, err)
	_, err = f.registry.Touch(t.Context(), f.now, "alice", l.ID)
	f.wantCode("it cannot be touched", err, arcp.CodeFailedPrecondition)
	again := f.acquire(alice, sandbox("x", 60))
	f.want("but taken again", again.ID == l.ID && again.State == StateActive && again.CleanupAttempts == 0 &&
		again.LastError == "", "%+v", again)
}

func TestCleanUpWithoutAHandlerFails(t *testing.T) {
	f := newFixture(t)
	l := f.acquire(alice, LeaseRequest{Identity: Identity{"elsewhere", "vm", "7"}})
	f.scan(f.scanner(gone), Request{})
	got := f.lease(l)
	f.want("that is said", got.State == StateCleanupFailed && strings.Contains(got.LastError,
		`no clean-up handler is registered for provider "elsewhere" and type "vm"`), "%+v", got)

	tool := LeaseRequest{Identity: Identity{"elsewhere", "vm", "8"}, CleanupTool: "vm.delete"}
	l = f.acquire(alice, tool)
	s := f.scanner(gone)
	var by string
	s.Fallback = HandlerFunc(func(_ context.Context, l Lease, _ int) error { by = l.CleanupTool; return nil })
	f.scan(s, Request{})
	f.want("a tool can", f.lease(l).State == StateReleased && by == "vm.delete", "%+v", f.lease(l))
}

// A claim without a conclusion becomes stale. A late conclusion has no effect.
func TestLateCleanUpHasNoEffect(t *testing.T) {
	f := newFixture(t)
	l := f.acquire(alice, sandbox("x", 0))
	claim := func() *leaseRow {
		t.Helper()
		due, _, err := f.registry.due(t.Context(), f.now, "", 10)
		f.must(err)
		if len(due) != 1 {
			return nil
		}
		c, ok, err := f.registry.claim(t.Context(), f.now, &due[0])
		f.want("it is claimed", ok && err == nil, "%v, %v", ok, err)
		return c
	}
	first := claim()
	_, err := f.registry.Touch(t.Context(), f.now, "alice", l.ID)
	f.wantCode("there is no way back", err, arcp.CodeFailedPrecondition)
	_, err = f.registry.Acquire(t.Context(), f.now, alice, sandbox("x", 60))
	f.wantCode("not by taking it again either", err, arcp.CodeFailedPrecondition)
	f.after(StaleClaim - time.Second)
	f.want("it has its time", claim() == nil, "it was claimed")
	f.boot() // the claiming process is gone
	f.after(time.Second)
	second := claim()
	f.want("then another one's turn has come", second != nil && second.Value.CleanupAttempts == 2, "%+v", second)
	for _, failure := range []error{nil, errors.New("late")} {
		ok, err := f.registry.storeResult(t.Context(), f.now, first, failure)
		f.want("the first has lost", !ok && err == nil, "%v, %v", ok, err)
	}
	ok, err := f.registry.storeResult(t.Context(), f.now, second, nil)
	f.want("the second counts", ok && err == nil && f.lease(l).State == StateReleased, "%v, %v", ok, err)
	ok, err = f.registry.storeResult(t.Context(), f.now, second, nil)
	f.want("once", !ok && err == nil, "%v, %v", ok, err)
}

// Its owner may let go of a thing while it is cleaned up.
func TestReleaseDuringCleanUp(t *testing.T) {
	f := newFixture(t)
	l := f.acquire(alice, sandbox("x", 0))
	rep := f.scan(f.scanner(func(ctx context.Context, l Lease, _ int) error {
		_, err := f.registry.Release(ctx, f.now, "alice", l.ID)
		return errors.Join(err, errors.New("it is gone already"))
	}), Request{})
	got := f.lease(l)
	f.want("the owner was right", got.State == StateReleased && got.LastError == "" && rep.Failed == 0 && rep.Skipped == 1,
		"%+v, %+v", got, rep)
}

func TestNamedLeaseIsNotReaped(t *testing.T) {
	f := newFixture(t)
	short, long := f.acquire(alice, sandbox("short", 0)), f.acquire(alice, sandbox("long", 4000))
	f.after(4000 * time.Second)
	s := f.scanner(gone)
	asked := 0
	s.Named = func(_ context.Context, due []Lease) (map[arcp.LeaseID]bool, error) {
		asked += len(due)
		return map[arcp.LeaseID]bool{short.ID: true, long.ID: true}, nil
	}
	f.want("a dry run leaves it out, too", len(f.scan(s, Request{DryRun: true}).Due) == 0, "it is there")
	rep := f.scan(s, Request{})
	f.want("they are left alone", rep.Claimed == 0 && rep.Skipped == 2 && asked == 4, "%+v, %d", rep, asked)
	f.want("and last longer", f.lease(short).ExpiresAt.Equal(f.now.Add(minExtension)) &&
		f.lease(long).ExpiresAt.Equal(f.now.Add(maxExtension)),
		"%v, %v", f.lease(short).ExpiresAt, f.lease(long).ExpiresAt)
	s.Named = func(context.Context, []Lease) (map[arcp.LeaseID]bool, error) { return nil, errors.New("who knows") }
	f.after(maxExtension)
	_, err := s.Scan(t.Context(), Request{})
	f.want("without an answer nothing is reaped", err != nil && f.lease(long).State == StateActive, "%v", err)
}

// A failed clean-up is not repeated while a job names the lease: the thing may still be
// intact. A claimed clean-up is repeated, as it may have removed the thing.
func TestNamedLeaseIsNotCleanedUpAgain(t *testing.T) {
	f := newFixture(t)
	l := f.acquire(alice, sandbox("x", 0))
	fails := func(context.Context, Lease, int) error { return errors.New("no") }
	s := f.scanner(fails)
	named := false
	s.Named = func(_ context.Context, due []Lease) (map[arcp.LeaseID]bool, error) {
		return map[arcp.LeaseID]bool{l.ID: named}, nil
	}
	rep := f.scan(s, Request{})
	f.want("the clean-up fails", rep.Failed == 1 && f.lease(l).State == StateCleanupFailed, "%+v", rep)
	named = true
	f.after(cleanupBackoff.Min)
	f.want("a dry run leaves it out", len(f.scan(s, Request{DryRun: true}).Due) == 0, "it is there")
	rep = f.scan(s, Request{})
	got := f.lease(l)
	f.want("it is left alone", rep.Claimed == 0 && rep.Skipped == 1, "%+v", rep)
	f.want("and has still failed", got.State == StateCleanupFailed && got.CleanupAttempts == 1 && got.LastError == "no" &&
		got.ExpiresAt.Equal(f.now.Add(minExtension)), "%+v", got)
	named = false
	f.after(minExtension)
	read, err := f.registry.read(t.Context(), l.Principal, l.ID)
	f.must(err)
	claim, ok, err := f.registry.claim(t.Context(), f.now, &read)
	f.want("nobody names it any more", err == nil && ok && claim.Value.CleanupAttempts == 2, "%+v, %v", claim, err)
	named = true
	f.after(StaleClaim)
	rep = f.scan(s, Request{})
	f.want("it was being cleaned up", rep.Claimed == 1 && f.lease(l).CleanupAttempts == 3, "%+v", rep)
}

func TestScanOfOnePrincipal(t *testing.T) {
	f := newFixture(t)
	mine, other := f.acquire(alice, sandbox("mine", 0)), f.acquire(Holder{Principal: "bob"}, sandbox("other", 0))
	s := f.scanner(gone)
	dry := f.scan(s, Request{Principal: "alice", DryRun: true})
	f.want("it says what it would do", len(dry.Due) == 1 && dry.Due[0].ID == mine.ID && dry.Claimed == 0, "%+v", dry)
	f.want("and does nothing", f.lease(mine).State == StateActive, "%+v", f.lease(mine))
	f.scan(s, Request{Principal: "alice"})
	f.want("hers only", f.lease(mine).State == StateReleased && f.lease(other).State == StateActive, "%+v", f.lease(other))
}

func TestScanIsBounded(t *testing.T) {
	f := newFixture(t)
	for i := range ScanLimit + 5 {
		f.acquire(Holder{Principal: "alice"}, sandbox(fmt.Sprint(i), 0))
	}
	f.acquire(Holder{Principal: "bob"}, sandbox("the last", 0))
	s := f.scanner(gone)
	rep := f.scan(s, Request{Limit: 10_000})
	f.want("each has a share", rep.Claimed == maxDueOfOne+1 && rep.More, "%+v", rep)
	rep = f.scan(s, Request{Principal: "alice", Limit: 10_000})
	f.want("so many at once", rep.Claimed == ScanLimit-maxDueOfOne+5 && !rep.More, "%+v", rep)
}

// A principal with many slow clean-ups does not delay another principal's.
func TestSlowCleanUpsDelayNoOtherPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for i := range 20 {
			f.acquire(Holder{Principal: "alice"}, sandbox(fmt.Sprint(i), 0))
		}
		f.acquire(Holder{Principal: "bob"}, sandbox("bob's", 0))
		began, at := time.Now(), time.Duration(-1)
		s := f.scanner(func(ctx context.Context, l Lease, _ int) error {
			if l.Principal == "bob" {
				at = time.Since(began)
				return nil
			}
			time.Sleep(30 * time.Second)
			return nil
		})
		s.Now = func() time.Time { return f.now.Add(time.Since(began)) }
		rep := f.scan(s, Request{})
		f.want("bob's is cleaned up at once", at == 0 && rep.Released == maxHandlersOfOne+1, "after %v: %+v", at, rep)
		f.want("some of alice's, too", time.Since(began) == 30*time.Second, "%v", time.Since(began))
		f.want("the others when it was asked again who names them", rep.Skipped == maxDueOfOne-maxHandlersOfOne && rep.More, "%+v", rep)
		f.want("nothing is kept of them", len(s.principals) == 0 && len(s.slots) == 0, "%v", s.principals)
	})
}

// A scan finds the leases of a principal behind any number of earlier due leases of another.
func TestManyDueLeasesHideNoOthers(t *testing.T) {
	f := newFixture(t)
	for i := range maxDue + 1 {
		f.acquire(Holder{Principal: "alice"}, sandbox(fmt.Sprint(i), 0))
	}
	f.after(time.Second)
	f.acquire(Holder{Principal: "bob"}, sandbox("bob's", 0))
	s := f.scanner(gone)
	rep := f.scan(s, Request{Principal: "bob"})
	f.want("who asks for their own has it", rep.Released == 1, "%+v", rep)
	l := f.acquire(Holder{Principal: "bob"}, sandbox("bob's", 0))
	rep = f.scan(s, Request{})
	f.want("and in a scan of everybody's", f.lease(l).State == StateReleased && rep.Released == maxDueOfOne+1 && rep.More,
		"%+v, %+v", f.lease(l), rep)
}

// An answer of Named that took longer than namedTTL is outdated: the leases are left to the
// next scan.
func TestOutdatedNamedAnswerIsDropped(t *testing.T) {
	f := newFixture(t)
	l := f.acquire(alice, sandbox("x", 0))
	s := f.scanner(gone)
	takes := namedTTL + time.Second
	s.Named = func(context.Context, []Lease) (map[arcp.LeaseID]bool, error) {
		f.after(takes)
		return nil, nil
	}
	rep := f.scan(s, Request{})
	f.want("it is left to the next scan", rep.Skipped == 1 && f.lease(l).State == StateActive, "%+v", rep)
	takes = 0
	rep = f.scan(s, Request{})
	f.want("which cleans it up", rep.Released == 1, "%+v", rep)
}

// Handlers that hang, or panic, hold up nothing.
func TestHandlersThatMisbehave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for i := range 10 {
			f.acquire(Holder{Principal: fmt.Sprint("p", i)}, sandbox(fmt.Sprint(i), 0))
		}
		most, running := 0, make(chan struct{}, 100)
		release := make(chan struct{})
		s := f.scanner(func(_ context.Context, l Lease, _ int) error {
			running <- struct{}{}
			f.mu.Lock()
			most = max(most, len(running))
			f.mu.Unlock()
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
		rep := f.scan(s, Request{})
		f.want("the others are cleaned up", rep.Released == 8 && rep.Failed == 2, "%+v", rep)
		f.want("few at a time", most <= maxHandlers, "%d", most)
		f.want("who hangs is left behind", time.Since(began) == cleanTimeout+grace, "after %v", time.Since(began))
		f.want("and known", s.unreturned == 1, "%d", s.unreturned)
		close(release)
		synctest.Wait()
		f.want("until it returns", s.unreturned == 0, "%d", s.unreturned)
		s.unreturned = maxUnreturned
		f.acquire(Holder{Principal: "alice"}, sandbox("more", 0))
		_, err := s.Scan(t.Context(), Request{})
		f.want("with very many of them no more are called", errors.Is(err, errUnreturned), "%v", err)
	})
}

// The end of a scan's context ends its handlers; the next scan retries the unfinished
// clean-ups.
func TestScanEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		l := f.acquire(alice, sandbox("x", 0))
		ctx, cancel := context.WithCancelCause(t.Context())
		s := f.scanner(func(ctx context.Context, _ Lease, _ int) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		time.AfterFunc(time.Second, func() { cancel(errors.New("we are closing")) })
		began := time.Now()
		rep, err := s.Scan(ctx, Request{})
		f.want("it ends", time.Since(began) == time.Second && err == nil && rep.Failed == 1, "%v, %+v, %v", time.Since(began), rep, err)
		f.want("and is due again", f.lease(l).State == StateCleanupFailed && f.lease(l).LastError == "we are closing", "%+v", f.lease(l))
	})
}

// A row of another version or a broken row does not affect other leases.
func TestUnreadableLeaseAffectsNoOther(t *testing.T) {
	f := newFixture(t)
	odd, fine := f.acquire(alice, sandbox("odd", 0)), f.acquire(alice, sandbox("fine", 0))
	rec, err := f.disk.Get(t.Context(), leaseKey("alice", odd.ID))
	f.must(err)
	for _, text := range []string{strings.Replace(string(rec.Value), `"active"`, `"moving"`, 1), "{"} {
		rec, err := f.disk.Get(t.Context(), rec.Key)
		f.must(err)
		rec.Value = []byte(text)
		f.must(f.put(rec))
		rep := f.scan(f.scanner(gone), Request{})
		f.want("they are left alone", rep.Failed == 0 && rep.Skipped == 0, "%+v", rep)
		f.boot()
	}
	f.want("the others are not", f.lease(fine).State == StateReleased, "%+v", f.lease(fine))
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
			t.Errorf("For(%s, %s) = %+v, %v; want known %v, for clients %v", c.provider, c.typ, got, ok, c.known, c.forClients)
		}
	}
	for _, bad := range [][]Registration{{{Provider: "a"}}, {{Handler: f}}, {{Provider: "a", Handler: f}, {Provider: "a", Handler: f}}} {
		if _, err := NewHandlers(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
