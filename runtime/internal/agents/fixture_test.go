package agents

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// fixture is a host with a store and a set of live sessions.
type fixture struct {
	*Store
	st  store.Store
	log *eventlog.Log

	deferred atomic.Int32 // callers of DeferEnd that have not called release

	mu       sync.Mutex
	gone     map[arcp.SessionID]bool
	counts   map[Status]int
	released map[string]int // by agent
}

func newFixture(t testing.TB) *fixture {
	st := mem.Open(mem.Options{})
	r := &fixture{st: st, log: eventlog.New(st, eventlog.Options{}), gone: map[arcp.SessionID]bool{}}
	t.Cleanup(func() {
		if n := r.deferred.Load(); n != 0 {
			t.Errorf("the end of sessions is deferred %d times too often", n)
		}
		r.log.Close()
		_ = st.Close() // in memory
	})
	r.restart(t)
	return r
}

// restart makes a new host and loads the agents from the store.
func (r *fixture) restart(t testing.TB) {
	t.Helper()
	r.counts, r.released = map[Status]int{}, map[string]int{}
	r.Store = NewStore(Options{Log: r.log, Store: r.st, OnCount: func(s Status, n int) { r.counts[s] = n }, Sessions: r,
		OnRelease: func(a Agent) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.released[a.ID]++
		}})
	if err := r.Load(t.Context(), func(key string, err error) { t.Errorf("%s: %v", key, err) }); err != nil {
		t.Fatal(err)
	}
}

// flush waits until all emitted events are delivered.
func (r *fixture) flush(t testing.TB) {
	t.Helper()
	if _, err := r.log.Commit(t.Context(), &store.Write{NoSync: true}); err != nil {
		t.Fatal(err)
	}
}

func (r *fixture) Lives(id arcp.SessionID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.gone[id]
}

func (r *fixture) DeferEnd(_ context.Context, id arcp.SessionID) (release func(), err error) {
	if !r.Lives(id) {
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "the session has ended")
	}
	r.deferred.Add(1)
	return func() { r.deferred.Add(-1) }, nil
}

func (r *fixture) AwaitEnd(_ context.Context, id arcp.SessionID) (ended bool, err error) {
	return !r.Lives(id), nil
}

func (r *fixture) end(id arcp.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[id] = true
}

// counted returns the number of agents by status, from the calls of Count.
func (r *fixture) counted() map[Status]int {
	r.Store.mu.Lock()
	defer r.Store.mu.Unlock()
	m := maps.Clone(r.counts)
	maps.DeleteFunc(m, func(_ Status, n int) bool { return n == 0 })
	return m
}

func codeOf(err error) arcp.Code {
	if e, ok := errors.AsType[*arcp.Error](err); ok {
		return e.Code
	}
	if err != nil {
		return "?" + arcp.Code(err.Error())
	}
	return ""
}
