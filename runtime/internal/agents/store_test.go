package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Many sessions, on two hosts with one store, register the same agent. One succeeds; the
// errors of the others name the owner.
func TestOneSessionOwnsAnAgent(t *testing.T) {
	const sessions = 32
	f := newFixture(t)
	other := NewStore(Options{Log: f.log, Store: f.st, OnCount: func(Status, int) {}, Sessions: f, OnRelease: func(Agent) {}})
	var won atomic.Int32
	var all sync.WaitGroup
	for i := range sessions {
		h := f.Store
		if i%2 == 1 {
			h = other
		}
		all.Go(func() {
			_, err := h.Register(t.Context(), Agent{ID: "x", Name: "x", Kind: "k", Principal: "alice",
				Session: arcp.SessionID(fmt.Sprint("sess_", i))}, nil)
			switch codeOf(err) {
			case "":
				won.Add(1)
			case arcp.CodePermissionDenied:
				if !strings.Contains(err.Error(), "owned by another session") {
					t.Errorf("Register by a second session = %v, want that another session owns the agent", err)
				}
			default:
				t.Errorf("Register by a second session = %v, want PERMISSION_DENIED", err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d sessions own the agent", won.Load())
	}
}

// A claim is settled once, as the row was written, and no two of an agent are
// under way at once.
func TestClaimsOfAnAgentAreExclusive(t *testing.T) {
	f := newFixture(t)
	var inside atomic.Int32
	var ok, failed atomic.Int32
	claim := func(_, _ *Agent, _ []Agent) (func(bool), *arcp.Error) {
		if inside.Add(1) != 1 {
			t.Error("two claims of one agent at once")
		}
		return func(written bool) {
			inside.Add(-1)
			if written {
				ok.Add(1)
			} else {
				failed.Add(1)
			}
		}, nil
	}
	a := Agent{ID: "x", Name: "x", Kind: "k", Principal: "alice", Session: "sess_1"}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := f.Register(t.Context(), a, claim); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if ok.Load() != 20 || failed.Load() != 0 {
		t.Errorf("%d claims settled as written, %d as not", ok.Load(), failed.Load())
	}
	refusal := arcp.Errorf(arcp.CodeAlreadyExists, "no")
	if _, err := f.Register(t.Context(), a, func(_, old *Agent, _ []Agent) (func(bool), *arcp.Error) {
		if old == nil || old.ID != "x" {
			t.Errorf("the claim of an agent that is registered is not told of it: %v", old)
		}
		return nil, refusal
	}); !errors.Is(err, refusal) {
		t.Errorf("a claim that refuses: %v", err)
	}
	f.log.Close() // nothing can be written any more
	if _, err := f.Register(t.Context(), a, claim); err == nil || failed.Load() != 1 {
		t.Errorf("a row that is not written: %v, and %d claims settled so", err, failed.Load())
	}
	if list := f.Agents("alice"); len(list) != 1 {
		t.Errorf("the agent is gone from memory: %v", list)
	}
}

// The agent of an ended session is released before another session takes it over, also if the
// end of the session was not noticed.
func TestTakeoverReleasesOldAgent(t *testing.T) {
	f := newFixture(t)
	a := Agent{ID: "x", Name: "x", Kind: "k", Principal: "alice", Session: "sess_1", Executes: []string{"build@1"}}
	if _, err := f.Register(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	f.end("sess_1")
	if _, err := f.Register(t.Context(), a, nil); codeOf(err) != arcp.CodeFailedPrecondition {
		t.Errorf("Register for a session that has ended = %v, want FAILED_PRECONDITION", err)
	}
	a.Session, a.Executes = "sess_2", nil
	_, err := f.Register(t.Context(), a, func(_, old *Agent, _ []Agent) (func(bool), *arcp.Error) {
		if old != nil || f.released["x"] != 1 {
			t.Errorf("claimed from agent %v after the releases %v, want no agent and one release of x", old, f.released)
		}
		return func(bool) {}, nil
	})
	if list := f.Agents("alice"); err != nil || len(list) != 1 || list[0].Session != "sess_2" || list[0].Status != Idle {
		t.Errorf("Register in the next session = %v, then Agents = %+v, want one idle agent of sess_2", err, list)
	}
}

func TestAgentsOfASessionAndAPrincipalAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	f := newFixture(t)
	register := func(s, id string, metadata int) error {
		a := Agent{ID: id, Name: id, Kind: "k", Principal: "alice", Session: arcp.SessionID(s)}
		if metadata > 0 {
			a.Metadata, _ = arcp.Marshal(map[string]string{"x": strings.Repeat("x", metadata)})
		}
		_, err := f.Register(t.Context(), a, nil)
		return err
	}
	fill := func(s string, n int) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if err := register(s, fmt.Sprint(s, i), 0); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	fill("sess_1", maxOfSession)
	if err := register("sess_1", "more", 0); codeOf(err) != arcp.CodeResourceExhausted {
		t.Errorf("Register of agent %d of a session = %v, want RESOURCE_EXHAUSTED", maxOfSession+1, err)
	}
	if err := register("sess_1", "sess_10", 0); err != nil {
		t.Errorf("Register of a registered agent = %v, want no error", err)
	}
	fill("sess_2", maxOfPrincipal-maxOfSession)
	if err := register("sess_3", "more", 0); codeOf(err) != arcp.CodeResourceExhausted {
		t.Errorf("Register of agent %d of a principal = %v, want RESOURCE_EXHAUSTED", maxOfPrincipal+1, err)
	}
	f.end("sess_1")
	if err := f.EndSession(t.Context(), "alice", "sess_1"); err != nil {
		t.Fatal(err)
	}
	if err := register("sess_3", "more", 0); err != nil {
		t.Errorf("Register after a session has ended = %v, want no error: its agent is evicted", err)
	}
	if n := len(f.Agents("alice")); n != maxOfPrincipal {
		t.Errorf("%d agents of the principal, want %d", n, maxOfPrincipal)
	}
	var err error
	n := 0
	for ; err == nil && n < 2*maxBytes/(15<<10); n++ {
		err = register("sess_3", fmt.Sprint("large", n), 15<<10)
	}
	if codeOf(err) != arcp.CodeResourceExhausted {
		t.Errorf("Register of large agent %d = %v, want RESOURCE_EXHAUSTED", n, err)
	}
	if p := f.principals["alice"]; !p.isIdle() || p.bytes > maxBytes || p.bytes != f.bytes {
		t.Errorf("principal is idle: %t, has %d bytes, want an idle one with the %d bytes of the store, at most %d",
			p.isIdle(), p.bytes, f.bytes, maxBytes)
	}
}

// The agents of all principals are bounded: agents without a session are evicted, the oldest
// first.
func TestAllAgentsAreBounded(t *testing.T) {
	f := newFixture(t)
	register := func(p string) error {
		a := Agent{ID: "x", Name: "x", Kind: "k", Principal: p, Session: arcp.SessionID("sess_" + p)}
		_, err := f.Register(t.Context(), a, nil)
		return err
	}
	if err := register("alice"); err != nil {
		t.Fatal(err)
	}
	f.Store.mu.Lock()
	f.bytes += maxAllBytes - 300 // as if there were very many
	f.Store.mu.Unlock()
	if err := register("bob"); codeOf(err) != arcp.CodeResourceExhausted {
		t.Errorf("where everybody is connected: %v", err)
	}
	f.end("sess_alice")
	if err := f.EndSession(t.Context(), "alice", "sess_alice"); err != nil {
		t.Fatal(err)
	}
	if err := register("bob"); err != nil || len(f.Agents("alice")) != 0 {
		t.Errorf("where one has left: %v, alice has %v", err, f.Agents("alice"))
	}
}

// Between a snapshot and the following events no event is missing or repeated, with concurrent
// emitters. Skipped events are counted.
func TestSnapshotThenLive(t *testing.T) {
	const emitters, each, watchers = 8, 400, 24
	f := newFixture(t)
	var emit, watch sync.WaitGroup
	for w := range watchers {
		watch.Go(func() {
			for range w * 20 {
				f.Events("alice", 1) // some come later
			}
			sub, snap, err := f.Subscribe("alice", MaxEvents)
			if err != nil {
				t.Error(err)
				return
			}
			defer sub.Close()
			list := slices.Clone(snap.Events)
			slices.Reverse(list)
			total, gap := int(sub.next), len(list) < int(sub.next)
			for total < emitters*each {
				if w%4 == 0 {
					time.Sleep(time.Millisecond) // a slow one, in real time: it may have gaps, and may not
				}
				events, skipped, err := sub.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if skipped > 0 {
					gap = true
				}
				list = append(list, events...)
				total += len(events) + int(skipped)
			}
			if total != emitters*each {
				t.Errorf("%d events and skipped ones, want %d", total, emitters*each)
			}
			var last [emitters]int
			for i, e := range list {
				var principal, n int
				if _, err := fmt.Sscanf(e.Message, "%d %d", &principal, &n); err != nil {
					t.Error(err)
				}
				if n <= last[principal] || !gap && n != last[principal]+1 || i > 0 && e.ID <= list[i-1].ID {
					t.Errorf("%s (%s) after %d", e.Message, e.ID, last[principal])
					return
				}
				last[principal] = n
			}
		})
	}
	for principal := range emitters {
		emit.Go(func() {
			for n := range each {
				f.Emit("alice", Event{Kind: "resource.x", Message: fmt.Sprint(principal, " ", n+1)})
			}
		})
	}
	emit.Wait()
	watch.Wait()
}

// A subscriber that does not read slows down no emitter and retains at most the ring. Next
// returns the number of events it has missed.
func TestSubscriberFallsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		slow, _, _ := f.Subscribe("alice", 0)
		quick, _, _ := f.Subscribe("alice", 0)
		for i := range 10 * MaxEvents {
			f.Emit("alice", Event{Kind: "resource.x", Message: fmt.Sprint(i)})
			events, skipped, err := quick.Next(t.Context())
			if err != nil || skipped > 0 || len(events) != 1 || events[0].Message != fmt.Sprint(i) {
				t.Fatalf("%v, %d skipped, %v", events, skipped, err)
			}
		}
		events, skipped, err := slow.Next(t.Context())
		if err != nil || skipped != 9*MaxEvents || events[0].Message != fmt.Sprint(9*MaxEvents) {
			t.Fatalf("%v …, %d skipped, %v", events[0], skipped, err)
		}
		for n := len(events); n < MaxEvents; n += len(events) {
			if events, skipped, err = slow.Next(t.Context()); err != nil || skipped > 0 {
				t.Fatal(skipped, err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		go func() {
			synctest.Wait()
			cancel(gone)
		}()
		if _, _, err := slow.Next(ctx); !errors.Is(err, gone) {
			t.Errorf("a wait that is given up: %v", err)
		}
		slow.Close()
		quick.Close()
	})
}

func TestRingIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	f := newFixture(t)
	const fill = maxRingBytes/maxEventBytes + 1
	large, _ := arcp.Marshal(strings.Repeat("x", maxEventBytes-2))
	for range fill {
		f.Emit("alice", Event{Kind: "resource.x", Payload: large})
	}
	f.flush(t)
	if p := f.principals["alice"]; p.ring.bytes > maxRingBytes || len(p.ring.events) < maxRingBytes/maxEventBytes-1 {
		t.Errorf("%d bytes in %d events", p.ring.bytes, len(p.ring.events))
	}
	f.Emit("alice", Event{Kind: "resource.x", Payload: append(large, ' ')})
	f.flush(t)
	if got := string(f.Events("alice", 1)[0].Payload); got != fmt.Sprintf(`{"truncated_bytes":%d}`, maxEventBytes+1) {
		t.Errorf("payload %.80s", got)
	}
	for range 2 * MaxEvents {
		f.Emit("alice", Event{Kind: "resource.x"})
	}
	f.flush(t)
	if n := len(f.Events("alice", 2*MaxEvents)); n != MaxEvents {
		t.Errorf("%d events", n)
	}
	const principals = maxRingsBytes/maxRingBytes + 4
	for i := range principals {
		for range fill {
			f.Emit(fmt.Sprint("p", i), Event{Kind: "resource.x", Payload: large})
		}
	}
	f.flush(t)
	total := 0
	for _, p := range f.principals {
		total += p.ring.bytes
	}
	if total != f.ringBytes || total > maxRingsBytes+principals*2*maxEventBytes || len(f.Events(fmt.Sprint("p", principals-1), 10)) == 0 {
		t.Errorf("the rings of everybody have %d bytes, counted as %d", total, f.ringBytes)
	}
	for range maxSubscriptions {
		if _, _, err := f.Subscribe("alice", 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := f.Subscribe("alice", 0); codeOf(err) != arcp.CodeResourceExhausted {
		t.Errorf("one more subscription: %v", err)
	}
}

// The ring of a principal is dropped with its last session, unless it has a subscriber.
func TestIdleRingsAreDropped(t *testing.T) {
	f := newFixture(t)
	here := map[string]bool{"alice": true}
	sub, _, _ := f.Subscribe("carol", 0)
	for _, p := range []string{"alice", "bob", "carol", "dave"} {
		f.Emit(p, Event{Kind: "resource.x"})
	}
	f.flush(t)
	if _, err := f.Register(t.Context(), Agent{ID: "x", Name: "x", Kind: "k", Principal: "dave", Session: "sess_d"}, nil); err != nil {
		t.Fatal(err)
	}
	sweep := func() {
		if err := f.Sweep(t.Context(), time.Time{}, func(p string) bool { return here[p] }); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	for p, want := range map[string]int{"alice": 1, "bob": 0, "carol": 1, "dave": 0} {
		if n := len(f.Events(p, 10)); n != want {
			t.Errorf("%s has %d events, want %d", p, n, want)
		}
	}
	if f.principals["bob"] != nil || len(f.Agents("dave")) != 1 {
		t.Errorf("bob %v, dave %v", f.principals["bob"], f.Agents("dave"))
	}
	sub.Close()
	sweep()
	if f.ringBytes != f.principals["alice"].ring.bytes {
		t.Errorf("%d bytes of events are counted, and alice has %d", f.ringBytes, f.principals["alice"].ring.bytes)
	}
	if f.principals["carol"] != nil {
		t.Error("a principal that nobody watches any more is kept")
	}
}

// Agents that a registration replaces stop in the write of the registration, or stay as they were.
func TestReplacedAgentsStopWithTheRegistration(t *testing.T) {
	f := newFixture(t)
	for _, a := range []Agent{{ID: "b", Session: "sess_1"}, {ID: "z", Session: "sess_1"}, {ID: "own", Session: "sess_2"}} {
		a.Name, a.Kind, a.Principal = a.ID, "k", "alice"
		if _, err := f.Register(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
	}
	next := Agent{ID: "z", Name: "next", Kind: "k", Principal: "alice", Session: "sess_2"}
	var replaced []string
	var outcome []bool
	claim := func(_, old *Agent, list []Agent) (func(bool), *arcp.Error) {
		if old != nil {
			t.Errorf("old agent of the session is %v, want none: another session has it", old)
		}
		for _, a := range list {
			replaced = append(replaced, a.ID)
		}
		return func(ok bool) { outcome = append(outcome, ok) }, nil
	}
	if _, err := f.Register(t.Context(), next, claim, "b", "own", "z", "unknown"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"z", "b"}; !slices.Equal(replaced, want) || !slices.Equal(outcome, []bool{true}) {
		t.Errorf("replaced %v with outcomes %v, want %v, the agents of the other session, and true", replaced, outcome, want)
	}
	states := func() (list []string) {
		for _, a := range f.Agents("alice") {
			list = append(list, fmt.Sprint(a.ID, " ", a.Session, " ", a.Status, " ", !a.EndedAt.IsZero()))
		}
		return list
	}
	want := []string{"b sess_1 stopped true", "z sess_2 idle false", "own sess_2 idle false"}
	if got := states(); !slices.Equal(got, want) {
		t.Errorf("agents = %q, want %q", got, want)
	}
	kinds := []string{}
	for _, e := range f.Events("alice", 2) {
		kinds = append(kinds, e.Kind+" "+e.AgentID)
	}
	if want := []string{"agent.registered z", "agent.status_changed b"}; !slices.Equal(kinds, want) {
		t.Errorf("last events = %q, want %q, the newest first", kinds, want)
	}
	_, err := f.SetStatus(t.Context(), "alice", "sess_1", "b", StatusChange{Status: Running})
	if codeOf(err) != arcp.CodePermissionDenied || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("SetStatus of a replaced agent = %v, want PERMISSION_DENIED because it was replaced", err)
	}
	if len(f.released) != 0 {
		t.Errorf("%v are released, want none: their claim has replaced them", f.released)
	}
	f.restart(t)
	if got := states(); !slices.Equal(got, want) {
		t.Errorf("agents after a restart = %q, want %q", got, want)
	}

	f.log.Close() // nothing can be written any more
	next.ID, next.Session, outcome = "c", "sess_3", nil
	if _, err := f.Register(t.Context(), next, func(_, _ *Agent, _ []Agent) (func(bool), *arcp.Error) {
		return func(ok bool) { outcome = append(outcome, ok) }, nil
	}, "z"); err == nil || !slices.Equal(outcome, []bool{false}) || !slices.Equal(states(), want) {
		t.Errorf("a registration that is not written = %v with outcomes %v and agents %q, want an error, false and %q", err, outcome, states(), want)
	}
}
