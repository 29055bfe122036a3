package worker

import (
	"strconv"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/tool"
)

type nullConn struct{}

func (nullConn) Registered()           {}
func (nullConn) Deliver(arcp.Envelope) {}
func (nullConn) Expect(int)            {}
func (nullConn) Queued() int           { return 0 }

// worker returns a session of alice that executes the jobs of the principals for which serves
// is true.
func worker(session arcp.SessionID, serves func(string) bool) approval.Actor {
	return approval.Actor{Principal: "alice", Session: session, Worker: true, Serves: serves}
}

func agentOf(id string, executes ...string) agents.Agent {
	return agents.Agent{ID: id, Principal: "alice", Executes: executes}
}

func newPool(t *testing.T) (*Pool, *tool.Registry) {
	t.Helper()
	tools := tool.NewRegistry()
	return New(Config{Tools: tools, Slots: new(catalog.Slots), SlotsChanged: func(string) {},
		Metrics: metrics.New(prometheus.NewRegistry(), "test")}), tools
}

// The audience of a tool is read without the pool's lock: the engine and the catalogs read
// it under locks of their own, which come later in the lock order.
func TestAudienceIsLockFree(t *testing.T) {
	p, tools := newPool(t)
	asked := 0
	serves := func(principal string) bool {
		if asked++; !p.mu.TryLock() {
			t.Error("the pool's lock is held while an audience is asked for")
			return false
		}
		p.mu.Unlock()
		return principal == "bob"
	}
	if err := p.Register(agentOf("a", "one@1.0.0"), worker("sess_1", serves)); err != nil {
		t.Fatal(err)
	}
	one, err := tools.Resolve("one")
	if err != nil {
		t.Fatal(err)
	}
	for principal, want := range map[string]bool{"alice": true, "bob": true, "eve": false} {
		if got := one.VisibleTo(principal); got != want {
			t.Errorf("may %s call it: %t, want %t", principal, got, want)
		}
	}
	if asked != 2 {
		t.Errorf("serves was asked %d times, want 2: of bob and of eve", asked)
	}
	p.Attach(worker("sess_1", nil), nullConn{})
	if one.VisibleTo("bob") {
		t.Error("bob may call it although its session serves him no more")
	}
	p.Unregister(agentOf("a", "one@1.0.0"))
	if one.VisibleTo("alice") {
		t.Error("alice may call a tool that no worker executes")
	}
}

// The audience of a registered tool stays the same while other agents register and unregister.
func TestAudienceDuringRegistrations(t *testing.T) {
	p, tools := newPool(t)
	serves := func(principal string) bool { return principal == "bob" }
	if err := p.Register(agentOf("stays", "one@1.0.0"), worker("sess_1", serves)); err != nil {
		t.Fatal(err)
	}
	one, err := tools.Resolve("one")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if !one.VisibleTo("bob") || !one.VisibleTo("alice") || one.VisibleTo("eve") {
					t.Error("the audience of a tool that stays has changed")
					return
				}
			}
		})
	}
	for i := range 200 {
		id := "goes-" + strconv.Itoa(i%3)
		session := arcp.SessionID("sess_" + id)
		if err := p.Register(agentOf(id, "one@1.0.0", "two@1.0.0"), worker(session, serves)); err != nil {
			t.Errorf("Register of %s: %v", id, err)
		}
		p.Attach(worker(session, serves), nullConn{})
		p.Unregister(agentOf(id))
		p.Detach(session, nullConn{})
	}
	close(done)
	asking.Wait()
}

// A tool that a catalog is composed with while it is being registered is announced
// like any other.
func TestToolComposedDuringRegistrationIsAnnounced(t *testing.T) {
	p, tools := newPool(t)
	cat := catalog.New(tools, nil)
	v := catalog.Viewer{Principal: "alice"}
	before := cat.Snapshot(v, nil)
	tools.Watch(func(uint64) { // a callback may call the catalog, but not change the registry
		looked := make(chan struct{})
		go func() { defer close(looked); cat.Snapshot(v, nil) }()
		<-looked
	})
	if err := p.Register(agentOf("a", "one@1.0.0"), worker("sess_1", nil)); err != nil {
		t.Fatal(err)
	}
	now := cat.Snapshot(v, nil)
	if _, err := now.Resolve("one"); err != nil {
		t.Errorf("Resolve of the worker's tool: %v", err)
	}
	if change := now.Since(before); change.Empty() {
		t.Error("alice's sessions are not told of one@1.0.0")
	}
}

// A registration that is refused leaves nothing of itself.
func TestRefusedRegistrationLeavesNoLink(t *testing.T) {
	p, tools := newPool(t)
	made, err := tool.NewRaw(tool.Capability{Name: "other", Version: "1.0.0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tools.ReservePrefix("kept.")
	if err := tools.Replace("source", []*tool.Tool{made}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other@2.0.0", "kept.x@1.0.0"} {
		if err := p.Register(agentOf("a", name), worker("sess_1", nil)); err == nil {
			t.Errorf("%s was registered", name)
		}
	}
	if len(p.workers) != 0 {
		t.Errorf("%d links are left", len(p.workers))
	}
}
