package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
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
	"github.com/arcpd/arcpd/transport"
)

// errLate finds tests that depend on an order which is not promised.
var errLate = flag.Bool("late", false, "have some frames and commits wait while other goroutines run")

func beLate() {
	if rand.IntN(4) != 0 {
		return
	}
	for range rand.IntN(1 << rand.IntN(15)) {
		goruntime.Gosched()
	}
}

// recordingStore is a store that survives its Close, and records its use.
type recordingStore struct {
	store.Store

	mu      sync.Mutex
	closed  int // times
	delayed int // commits after that
	fail    error
	gate    chan struct{}        // a commit takes one; nil: none is needed
	soft    bool                 // the latest commit may be lost in a crash
	reads   func(w *store.Write) // if set, is told of each write before it is committed
	dwell   time.Duration        // between the reading of the next job's row and its return
	block   chan struct{}        // if set, job's rows are read when it is closed
}

func (l *recordingStore) Job(ctx context.Context, id arcp.JobID) (store.Job, error) {
	row, err := l.Store.Job(ctx, id)
	l.mu.Lock()
	d, block := l.dwell, l.block
	l.dwell = 0
	l.mu.Unlock()
	time.Sleep(d)
	if block != nil {
		<-block
	}
	return row, err
}

func (l *recordingStore) Commit(writes []*store.Write, results []store.Result) error {
	l.mu.Lock()
	gate, err := l.gate, l.fail
	l.soft = !slices.ContainsFunc(writes, func(w *store.Write) bool { return !w.NoSync })
	if l.closed > 0 {
		l.delayed++
	}
	for _, w := range writes {
		if l.reads != nil {
			l.reads(w)
		}
	}
	l.mu.Unlock()
	if *errLate {
		beLate()
	}
	if gate != nil {
		<-gate
	}
	if err != nil {
		return err
	}
	return l.Store.Commit(writes, results)
}

func (l *recordingStore) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed++
	return nil
}

func (l *recordingStore) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// fixture is a runtime in a bubble of its own time, which ends only when all
// goroutines have: every test is one for leaks, too.
type fixture struct {
	*testing.T
	rt    *runtime.Runtime
	st    *recordingStore
	cfg   runtime.Config
	reg   *prometheus.Registry
	serve sync.WaitGroup
	down  bool
	all   []*peer // that have resumed
}

// testTimeout is longer than any wait of a test. The time of a bubble advances as long as the
// runtime has timers, so a test that is stuck ends.
const testTimeout = 1000 * 24 * time.Hour

// watchdog ends the tests when the time of a bubble stands still, with the
// goroutines that keep it from going on. The name is the test's.
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
func inBubble(t *testing.T, change func(*runtime.Config), test func(b *fixture)) {
	t.Helper()
	defer watchdog(t.Name())()
	synctest.Test(t, func(t *testing.T) {
		stuck := time.AfterFunc(testTimeout, func() { panic(t.Name() + " waits for what does not come") })
		defer stuck.Stop()
		b := &fixture{T: t, st: &recordingStore{Store: mem.Open(mem.Options{})}}
		b.boot(change)
		defer func() {
			b.shutdown(0)
			b.serve.Wait()
			time.Sleep(24 * time.Hour) // tools that ignore the end
		}()
		test(b)
	})
}

func (b *fixture) boot(change func(*runtime.Config)) {
	b.Helper()
	var ac auth.Config
	for _, name := range []string{"alice", "bob"} {
		if err := ac.AddToken(auth.Token{Principal: name, Secret: auth.Secret(name + "-" + token), Roles: auth.LocalRoles()}); err != nil {
			b.Fatal(err)
		}
	}
	tools := tool.NewRegistry()
	if err := demo.Register(tools); err != nil {
		b.Fatal(err)
	}
	b.reg = prometheus.NewRegistry()
	b.cfg = runtime.Config{Store: b.st, Auth: auth.NewSet(&ac), Tools: tools, Metrics: b.reg}
	if change != nil {
		change(&b.cfg)
	}
	rt, err := runtime.New(context.Background(), b.cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.rt, b.down = rt, false
}

func (b *fixture) shutdown(grace time.Duration) {
	if b.down {
		return
	}
	b.down = true
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := b.rt.Shutdown(ctx); err != nil {
		b.Errorf("Shutdown = %v", err)
	}
}

// peer is the other end of a connection. Frames wait until it reads.
type peer struct {
	*fixture
	conn    transport.Conn
	session arcp.SessionID
	n       int
	busy    bool // it does not look at changes of the tools
}

// connect makes a connection. info, if not nil, changes the runtime's information about it.
func (b *fixture) connect(info func(*transport.Info)) *peer {
	near, far := transport.Pipe(transport.Limits{})
	served := far
	if info != nil {
		i := far.Info()
		info(&i)
		served = informed{far, i}
	}
	if *errLate {
		served, near = delayed{served}, delayed{near}
	}
	b.serve.Go(func() { _ = b.rt.Serve(context.Background(), served) }) // the peer sees how it ended
	b.Cleanup(func() { _ = near.Abort() })
	return &peer{fixture: b, conn: near}
}

// delayed is a connection whose frames are late at times.
type delayed struct{ transport.Conn }

func (c delayed) Read() ([]byte, error) {
	frame, err := c.Conn.Read()
	beLate()
	return frame, err
}

// informed is a connection with another Info.
type informed struct {
	transport.Conn
	info transport.Info
}

func (c informed) Info() transport.Info { return c.info }

// dial opens a session of a principal.
func (b *fixture) dial(name string) *peer {
	b.Helper()
	p := b.connect(nil)
	p.open(name)
	p.expect("session.accepted")
	return p
}

func (p *peer) open(name string) {
	p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"%s-%s"},"client":{"kind":"test","version":"1"}}`, name, token))
}

// send sends a frame and returns its id.
func (p *peer) send(typ, payload string) string {
	p.Helper()
	id, err := p.try(typ, payload)
	if err != nil {
		p.Fatalf("send %s: %v", typ, err)
	}
	return id
}

func (p *peer) try(typ, payload string) (id string, err error) {
	p.n++
	id = fmt.Sprintf("msg_%d", p.n)
	frame := fmt.Sprintf(`{"arcp":"1.1","id":%q,"type":%q,"timestamp":"2030-01-02T15:04:05Z","payload":%s}`, id, typ, payload)
	return id, errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush())
}

// read waits for the next frame.
func (p *peer) read() arcp.Envelope {
	p.Helper()
	raw, err := p.conn.Read()
	if err != nil {
		p.Fatalf("read: %v", err)
	}
	env, err := arcp.Decode(raw)
	if err != nil {
		p.Fatalf("a frame of the runtime is none: %s: %v", raw, err)
	}
	if p.session == "" {
		p.session = env.SessionID
	}
	if p.busy && env.Type == arcp.EventEmit && bytes.Contains(env.Payload, []byte(`"tools.changed"`)) {
		return p.read()
	}
	return env
}

// expect reads frames of these types, in this order, and returns the last.
func (p *peer) expect(types ...arcp.Type) (env arcp.Envelope) {
	p.Helper()
	for _, t := range types {
		if env = p.read(); env.Type != t {
			p.Fatalf("sent %s %s, want %s", env.Type, env.Payload, t)
		}
	}
	return env
}

// until reads up to a frame of a type.
func (p *peer) until(t arcp.Type) arcp.Envelope {
	p.Helper()
	for {
		if env := p.read(); env.Type == t {
			return env
		}
	}
}

// closed reads up to the end and compares how the runtime closed.
func (p *peer) closed(why string, code transport.CloseCode) {
	p.Helper()
	for {
		_, err := p.conn.Read()
		if err == nil {
			continue
		}
		if te, ok := errors.AsType[*transport.Error](err); !ok || !te.Remote || te.Code != code {
			p.Fatalf("%s: the connection ended with %v, want the runtime to close it with %d", why, err, code)
		}
		return
	}
}

// refusal is the payload of a frame that reports a failure.
func refusal(t testing.TB, env arcp.Envelope) arcp.Error {
	t.Helper()
	e, err := arcp.DecodePayload[arcp.Error](&env)
	if err != nil || e.Code == "" {
		t.Fatalf("%s %s: want it to report a failure", env.Type, env.Payload)
	}
	return e
}

// sum is a metric over all its labels that contain a text.
func (b *fixture) sum(name, label string) (n float64) {
	b.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && strings.Contains(m.String(), label) {
				n += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// noneLeft checks that no connection is counted any more, and no session once the time has
// passed in which one that has not acknowledged everything can be resumed.
func (b *fixture) noneLeft() {
	b.Helper()
	if n := b.sum("arcp_jobs", "") + b.sum("arcp_sessions", `"connected"`) + b.sum("arcp_connections_open", ""); n != 0 {
		b.Errorf("%v jobs, connected sessions and connections are still counted", n)
	}
	time.Sleep(runtime.DefaultRetention + time.Hour)
	if n := b.sum("arcp_sessions", ""); n != 0 {
		b.Errorf("%v sessions are left after the retention", n)
	}
}
