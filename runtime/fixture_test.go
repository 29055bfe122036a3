package runtime_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
)

// perturb makes some frames and commits wait while other goroutines run. It finds tests that depend
// on an order which is not promised.
var perturb = flag.Bool("late", false, "have some frames and commits wait while other goroutines run")

// yieldRandomly lets other goroutines run for a random time.
func yieldRandomly() {
	if rand.IntN(4) != 0 {
		return
	}
	for range rand.IntN(1 << rand.IntN(15)) {
		goruntime.Gosched()
	}
}

// recordingStore is a store that survives its Close, records its use, and delays or fails calls.
type recordingStore struct {
	store.Store

	mu           sync.Mutex
	closes       int                  // calls of Close
	lateCommits  int                  // commits after Close
	unsynced     bool                 // a crash may lose the latest commit
	onWrite      func(w *store.Write) // called before each write is committed; nil: not called
	commitErr    error                // result of Commit; nil: the writes are committed
	commitGate   chan struct{}        // Commit receives from it first; nil: it does not wait
	readGate     chan struct{}        // Job receives from it before it returns; nil: it does not wait
	nextReadTime time.Duration        // duration of the next call of Job
}

func (s *recordingStore) Job(ctx context.Context, id arcp.JobID) (store.Job, error) {
	row, err := s.Store.Job(ctx, id)
	s.mu.Lock()
	d, gate := s.nextReadTime, s.readGate
	s.nextReadTime = 0
	s.mu.Unlock()
	time.Sleep(d)
	if gate != nil {
		<-gate
	}
	return row, err
}

func (s *recordingStore) Commit(writes []*store.Write, results []store.Result) error {
	s.mu.Lock()
	gate, err := s.commitGate, s.commitErr
	s.unsynced = !slices.ContainsFunc(writes, func(w *store.Write) bool { return !w.NoSync })
	if s.closes > 0 {
		s.lateCommits++
	}
	for _, w := range writes {
		if s.onWrite != nil {
			s.onWrite(w)
		}
	}
	s.mu.Unlock()
	if *perturb {
		yieldRandomly()
	}
	if gate != nil {
		<-gate
	}
	if err != nil {
		return err
	}
	return s.Store.Commit(writes, results)
}

// mayLose reports whether a crash may lose the latest commit.
func (s *recordingStore) mayLose() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsynced
}

func (s *recordingStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closes++
	return nil
}

// set changes members while other goroutines use the store.
func (s *recordingStore) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// fixture is a runtime in a bubble of virtual time. A bubble ends when its last goroutine ends, so
// every test also finds leaked goroutines.
type fixture struct {
	*testing.T
	rt      *runtime.Runtime
	st      *recordingStore
	cfg     runtime.Config
	reg     *prometheus.Registry
	serve   sync.WaitGroup // calls of Serve
	stopped bool           // shutdown was called
	resumed []*peer        // peers that have resumed a session
}

// testTimeout is longer than any wait of a test. The time of a bubble advances as long as the
// runtime has timers, so a test that is stuck ends.
const testTimeout = 1000 * 24 * time.Hour

// watchdog panics if the test called name runs for 5 minutes of real time. The message has the stacks
// of the goroutines that keep the time of the bubble from advancing.
func watchdog(name string) (stop func()) {
	t := time.AfterFunc(5*time.Minute, func() {
		all := make([]byte, 64<<20)
		all = all[:goruntime.Stack(all, true)]
		var active []string
		for g := range strings.SplitSeq(string(all), "\n\n") {
			head, _, _ := strings.Cut(g, "\n")
			if strings.Contains(head, "synctest") && !strings.Contains(head, "durable") {
				active = append(active, g)
			}
		}
		panic(name + " does not come to its end:\n" + strings.Join(active, "\n\n"))
	})
	return func() { t.Stop() }
}

// inBubble runs a test on a runtime; change may be nil.
func inBubble(t *testing.T, change func(*runtime.Config), test func(f *fixture)) {
	t.Helper()
	defer watchdog(t.Name())()
	synctest.Test(t, func(t *testing.T) {
		stuck := time.AfterFunc(testTimeout, func() { panic(t.Name() + " waits for an event that does not come") })
		defer stuck.Stop()
		f := &fixture{T: t, st: &recordingStore{Store: mem.Open(mem.Options{})}}
		f.boot(change)
		defer func() {
			f.shutdown(0)
			f.serve.Wait()
			time.Sleep(24 * time.Hour) // tools that ignore the end
		}()
		test(f)
	})
}

func (f *fixture) boot(change func(*runtime.Config)) {
	f.Helper()
	var ac auth.Config
	for _, name := range []string{"alice", "bob"} {
		if err := ac.AddToken(auth.Token{Principal: name, Secret: auth.Secret(name + "-" + token), Roles: auth.LocalRoles()}); err != nil {
			f.Fatal(err)
		}
	}
	tools := tool.NewRegistry()
	if err := demo.Register(tools); err != nil {
		f.Fatal(err)
	}
	f.reg = prometheus.NewRegistry()
	f.cfg = runtime.Config{Store: f.st, Auth: auth.NewSet(&ac), Tools: tools, Metrics: f.reg}
	if change != nil {
		change(&f.cfg)
	}
	rt, err := runtime.New(context.Background(), f.cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.rt, f.stopped = rt, false
}

func (f *fixture) shutdown(grace time.Duration) {
	if f.stopped {
		return
	}
	f.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := f.rt.Shutdown(ctx); err != nil {
		f.Errorf("Shutdown = %v", err)
	}
}

// sum returns the sum of a metric over its label sets that contain a text.
func (f *fixture) sum(name, label string) (n float64) {
	f.Helper()
	families, err := f.reg.Gather()
	if err != nil {
		f.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && strings.Contains(m.String(), label) {
				n += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// wantNoConnections checks that no connection is counted any more, and no session after the retention of
// sessions with unacknowledged events.
func (f *fixture) wantNoConnections() {
	f.Helper()
	if n := f.sum("arcp_jobs", "") + f.sum("arcp_sessions", `"connected"`) + f.sum("arcp_connections_open", ""); n != 0 {
		f.Errorf("%v jobs, connected sessions and connections are still counted", n)
	}
	time.Sleep(runtime.DefaultRetention + time.Hour)
	if n := f.sum("arcp_sessions", ""); n != 0 {
		f.Errorf("%v sessions are left after the retention", n)
	}
}

// loadPeople reads an auth file with the tokens of people.
func loadPeople(t *testing.T, people string) *auth.Config {
	t.Helper()
	var prints []any
	for _, name := range []string{"alice", "ann", "adam", "bob", "root", "limited"} {
		prints = append(prints, auth.FileHash(auth.Secret(name+"-"+token)))
	}
	file := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, people, prints...), 0o600); err != nil {
		t.Fatal(err)
	}
	ac, err := auth.Load(file, auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return ac
}

// withPeople is a configuration with the principals of people, and tools that need them.
func withPeople(t *testing.T) func(*runtime.Config) {
	t.Helper()
	ac := loadPeople(t, people)
	return func(c *runtime.Config) {
		c.Auth = auth.NewSet(ac)
		danger, err := tool.NewRaw(tool.Capability{Name: "danger", Approval: tool.ApprovalManual, Recovery: tool.RecoveryRerun},
			func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw(`"done"`), nil })
		grave, err3 := tool.NewRaw(tool.Capability{Name: "grave", Approval: tool.Approval{Mode: tool.ModeManual, Quorum: 2, EscalateAfter: time.Minute}, Recovery: tool.RecoveryRerun},
			func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw(`"done"`), nil })
		trusting, err2 := tool.NewRaw(tool.Capability{Name: "trusting", MinTrust: "privileged", SideEffect: tool.SideEffectNone},
			func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw(`"done"`), nil })
		if err := errors.Join(err, err2, err3, c.Tools.Register(danger), c.Tools.Register(grave), c.Tools.Register(trusting)); err != nil {
			t.Fatal(err)
		}
	}
}

// newRealTimeFixture starts a runtime in real time.
func newRealTimeFixture(t *testing.T) *fixture {
	t.Helper()
	var ac auth.Config
	for _, name := range []string{"alice", "bob"} {
		if err := ac.AddToken(auth.Token{Principal: name, Secret: auth.Secret(name + "-" + token), Roles: auth.LocalRoles()}); err != nil {
			t.Fatal(err)
		}
	}
	f := &fixture{T: t, reg: prometheus.NewRegistry()}
	tools := tool.NewRegistry()
	if err := demo.Register(tools); err != nil {
		t.Fatal(err)
	}
	rt, err := runtime.New(context.Background(), runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(&ac), Tools: tools, Metrics: f.reg})
	if err != nil {
		t.Fatal(err)
	}
	f.rt = rt
	t.Cleanup(func() { f.shutdown(0) })
	return f
}
