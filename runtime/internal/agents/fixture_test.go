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
	f := &fixture{st: st, log: eventlog.New(st, eventlog.Options{}), gone: map[arcp.SessionID]bool{}}
	t.Cleanup(func() {
		if n := f.deferred.Load(); n != 0 {
			t.Errorf("the end of sessions is deferred %d times too often", n)
		}
		f.log.Close()
		_ = st.Close() // in memory
	})
	f.restart(t)
	return f
}

// restart makes a new host and loads the agents from the store.
func (f *fixture) restart(t testing.TB) {
	t.Helper()
	f.counts, f.released = map[Status]int{}, map[string]int{}
	f.Store = NewStore(Options{Log: f.log, Store: f.st, OnCount: func(s Status, n int) { f.counts[s] = n }, Sessions: f,
		OnRelease: func(a Agent) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.released[a.ID]++
		}})
	if err := f.Load(t.Context(), func(key string, err error) { t.Errorf("%s: %v", key, err) }); err != nil {
		t.Fatal(err)
	}
}

// flush waits until all emitted events are delivered.
func (f *fixture) flush(t testing.TB) {
	t.Helper()
	if _, err := f.log.Commit(t.Context(), &store.Write{NoSync: true}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) Lives(id arcp.SessionID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.gone[id]
}

func (f *fixture) DeferEnd(_ context.Context, id arcp.SessionID) (release func(), err error) {
	if !f.Lives(id) {
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "the session has ended")
	}
	f.deferred.Add(1)
	return func() { f.deferred.Add(-1) }, nil
}

func (f *fixture) AwaitEnd(_ context.Context, id arcp.SessionID) (ended bool, err error) {
	return !f.Lives(id), nil
}

func (f *fixture) end(id arcp.SessionID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone[id] = true
}

// counted returns the number of agents by status, from the calls of Count.
func (f *fixture) counted() map[Status]int {
	f.Store.mu.Lock()
	defer f.Store.mu.Unlock()
	m := maps.Clone(f.counts)
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
