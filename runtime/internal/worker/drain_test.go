package worker

import (
	"context"
	"testing"
	"testing/synctest"
)

// Withdraw removes the tools of a principal, and of no other.
func TestWithdrawRemovesTheTools(t *testing.T) {
	p, tools := newPool(t)
	other := worker("sess_2", nil)
	other.Principal = "bob"
	theirs := agentOf("b", "two@1.0.0")
	theirs.Principal = "bob"
	if err := p.Register(agentOf("a", "one@1.0.0"), worker("sess_1", nil)); err != nil {
		t.Fatal(err)
	}
	if err := p.Register(theirs, other); err != nil {
		t.Fatal(err)
	}
	p.Withdraw("alice")
	if _, err := tools.Resolve("one"); err == nil {
		t.Error("the tool is in the catalog after Withdraw")
	}
	if _, err := tools.Resolve("two"); err != nil {
		t.Errorf("the tool of another principal: %v", err)
	}
	p.Withdraw("alice") // again: nothing is left
}

// Drain waits until the session has no dispatches, and a later session is not draining.
func TestDrainWaitsForDispatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPool(t)
		if err := p.Register(agentOf("a", "one@1.0.0"), worker("sess_1", nil)); err != nil {
			t.Fatal(err)
		}
		p.Drain(t.Context(), "alice") // no dispatch
		p.Drain(t.Context(), "eve")   // no session
		ws := p.workers["sess_1"]
		if ws.drained == nil {
			t.Fatal("the session is not draining")
		}
		if err := p.Register(agentOf("b", "one@1.0.0"), worker("sess_2", nil)); err != nil {
			t.Fatal(err)
		}
		second, d := p.workers["sess_2"], &dispatch{pool: p}
		if second.drained != nil {
			t.Error("a later session is draining")
		}
		second.dispatches[d] = struct{}{}
		drained := make(chan struct{})
		go func() { p.Drain(t.Context(), "alice"); close(drained) }()
		synctest.Wait()
		select {
		case <-drained:
			t.Fatal("Drain returned with a dispatch")
		default:
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.Drain(ctx, "alice")
		p.mu.Lock()
		delete(second.dispatches, d)
		second.checkDrained()
		second.checkDrained()
		p.unlock()
		<-drained
	})
}

// No job starts for a worker that is draining: its tool has places only for the jobs that it executes.
func TestDrainingWorkerHasNoPlaces(t *testing.T) {
	p, _ := newPool(t)
	if err := p.Register(agentOf("a", "one@1.0.0"), worker("sess_1", nil)); err != nil {
		t.Fatal(err)
	}
	p.Attach(worker("sess_1", nil), nullConn{})
	if n := p.cfg.Slots.Of("one@1.0.0"); n != 1 {
		t.Fatalf("a worker has %d places, want 1", n)
	}
	p.Drain(t.Context(), "alice")
	if n := p.cfg.Slots.Of("one@1.0.0"); n != 0 {
		t.Errorf("a draining worker has %d places, want none", n)
	}
	p.Attach(worker("sess_1", nil), nullConn{})
	if n := p.cfg.Slots.Of("one@1.0.0"); n != 0 {
		t.Errorf("after it is attached again it has %d places, want none", n)
	}
	if err := p.Register(agentOf("b", "one@1.0.0"), worker("sess_2", nil)); err != nil {
		t.Fatal(err)
	}
	p.Attach(worker("sess_2", nil), nullConn{})
	if n := p.cfg.Slots.Of("one@1.0.0"); n != 1 {
		t.Errorf("with another worker there are %d places, want 1", n)
	}
}
