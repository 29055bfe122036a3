package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
)

// faultyStore is a store whose commits can be delayed or made to fail.
type faultyStore struct {
	store.Store

	mu   sync.Mutex
	gate chan struct{} // a commit receives from it; nil: commits do not wait
	fail error
	left int // commits until it fails; 0: any number
}

func (f *faultyStore) Commit(writes []*store.Write, results []store.Result) error {
	f.mu.Lock()
	gate, err := f.gate, f.fail
	if f.left > 0 {
		if f.left--; f.left == 0 {
			f.fail = errCrash
		}
	}
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if err != nil {
		return err
	}
	return f.Store.Commit(writes, results)
}

// Get is refused with a context that has ended, as a store may.
func (f *faultyStore) Get(ctx context.Context, key string) (store.Record, error) {
	if ctx.Err() != nil {
		return store.Record{}, context.Cause(ctx)
	}
	return f.Store.Get(ctx, key)
}

// hold holds commits up until the returned function is called.
func (f *faultyStore) hold() (release func()) {
	gate := make(chan struct{})
	f.mu.Lock()
	f.gate = gate
	f.mu.Unlock()
	return func() {
		f.mu.Lock()
		f.gate = nil
		f.mu.Unlock()
		close(gate)
	}
}

var errCrash = errors.New("crash")

// crashAfter has the store fail for good after a number of commits.
func (f *faultyStore) crashAfter(commits int) {
	f.mu.Lock()
	f.left = commits
	f.mu.Unlock()
}

func (f *faultyStore) breakWith(err error) {
	f.mu.Lock()
	f.fail = err
	f.mu.Unlock()
}

// fixture is an engine on a store in memory, in a synctest bubble. A bubble ends only when all
// its goroutines have ended, so every test detects leaks, too.
type fixture struct {
	*testing.T
	e       *Engine
	st      *faultyStore
	cfg     Config
	reg     *prometheus.Registry
	cursors map[arcp.SessionID]*eventlog.Cursor
	n       int
	stopped bool

	showWaits bool // frames also returns the events that say why jobs wait
}

// runEngine runs a test on an engine in a synctest bubble; change may be nil.
func runEngine(t *testing.T, change func(*Config), test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, st: &faultyStore{Store: mem.Open(mem.Options{})}, cursors: make(map[arcp.SessionID]*eventlog.Cursor)}
		f.cfg = Config{Store: f.st, Tools: tool.NewRegistry()}
		if change != nil {
			change(&f.cfg)
		}
		f.boot()
		defer func() {
			f.stop(0)
			time.Sleep(24 * time.Hour) // tools that ignored that end, too
		}()
		test(f)
	})
}

// boot starts an engine on the store, with new metrics.
func (f *fixture) boot() {
	f.reg = prometheus.NewRegistry()
	f.cfg.Metrics = metrics.New(f.reg, "test")
	f.cfg.Log = eventlog.New(f.st, eventlog.Options{})
	f.e = New(f.cfg)
	f.stopped = false
}

// stop stops the engine, with a grace for the jobs, and the log.
func (f *fixture) stop(grace time.Duration) {
	if f.stopped {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	f.stopEngine(ctx)
	f.cfg.Log.Close()
}

// stopEngine stops the engine alone. The test may fail before it returns: the end of the test then
// does not stop the engine again.
func (f *fixture) stopEngine(ctx context.Context) {
	f.stopped = true
	f.e.Stop(ctx)
}

// restart starts a new engine on the durable state without stopping the old one, and compares
// the number of recovered jobs.
func (f *fixture) restart(want int) {
	f.Helper()
	f.stop(0)
	f.st = &faultyStore{Store: f.st.Store}
	f.cfg.Store = f.st
	f.boot()
	for id, c := range f.cursors {
		f.reattach(id, c.Position())
	}
	f.recovered(want)
}

// recovered recovers and compares the number of jobs that were found.
func (f *fixture) recovered(want int) {
	f.Helper()
	if n, err := f.e.Recover(context.Background()); err != nil || n != want {
		f.Fatalf("Recover = %d, %v; want %d", n, err, want)
	}
}

// reattach gives a session a cursor on the present log.
func (f *fixture) reattach(id arcp.SessionID, after uint64) {
	c, errs := f.attach(id, after)
	if errs != nil {
		f.Fatal(errs)
	}
	f.cursors[id] = c
}

// tool registers a tool. By default it has external side effects, no time limit and unlimited
// concurrency.
func (f *fixture) tool(name string, change func(*tool.Capability), fn tool.Func) {
	f.Helper()
	if err := f.cfg.Tools.RegisterBuiltin(f.newTool(name, change, fn)); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) newTool(name string, change func(*tool.Capability), fn tool.Func) *tool.Tool {
	f.Helper()
	c := tool.Capability{Name: name, Limits: tool.Limits{Timeout: -1, Concurrency: -1, MaxResponseBytes: -1, MaxRequestBytes: -1}}
	if change != nil {
		change(&c)
	}
	t, err := tool.NewRaw(c, fn)
	if err != nil {
		f.Fatal(err)
	}
	return t
}

func withoutSideEffect(c *tool.Capability) { c.SideEffect = tool.SideEffectNone }
func oneAtATime(c *tool.Capability)        { c.Limits.Concurrency = 1 }

func echo(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) { return args, nil }

// wait runs until it is asked to stop.
func wait(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// sleeper sleeps for a while, whatever it is asked.
func sleeper(d time.Duration) tool.Func {
	return func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
		time.Sleep(d)
		return arcp.Raw(`"slept"`), nil
	}
}

// session returns the cursor of a session, which it creates if needed.
func (f *fixture) session(id arcp.SessionID) *eventlog.Cursor {
	f.Helper()
	if c := f.cursors[id]; c != nil {
		return c
	}
	return f.openSession(id, arcp.DialectRFC)
}

// openSession creates a session in a dialect.
func (f *fixture) openSession(id arcp.SessionID, dialect arcp.Dialect) *eventlog.Cursor {
	f.Helper()
	done := make(chan error, 1)
	f.cfg.Log.Append(store.NewWrite(&store.PutSession{Row: &store.Session{ID: id, Dialect: dialect, Principal: "alice", CreatedAt: time.Now(),
		Negotiated: []arcp.Feature{arcp.FeatureCheckpoints, arcp.FeatureHumanInput, arcp.FeatureResultChunk, arcp.FeatureStreaming}}}), func(res *store.Result) {
		f.cursors[id] = f.cfg.Log.Attach(id, 0, 0, eventlog.Loop{Wake: func() {}, Go: func(fn func()) { fn() }})
		done <- res.Err
	})
	if err := <-done; err != nil {
		f.Fatal(err)
	}
	return f.cursors[id]
}

// submitAtOnce holds the store while f runs, so that all jobs submitted by f are claimed before
// any of them starts.
func (f *fixture) submitAtOnce(submits func()) {
	f.Helper()
	f.session("sess_1")
	release := f.st.hold()
	submits()
	synctest.Wait()
	release()
}

// request is a submit in the making.
type request struct {
	Submit
	payload arcp.ToolInvokePayload
	env     arcp.Envelope
}

func (f *fixture) request(session arcp.SessionID, name, args string) *request {
	f.Helper()
	f.n++
	q := &request{payload: arcp.ToolInvokePayload{Tool: name, Arguments: arcp.Raw(args)},
		env: arcp.Envelope{ID: arcp.MessageID(fmt.Sprintf("msg_%d", f.n))}}
	q.Submit = Submit{Session: session, Principal: "alice", Answers: f.session(session)}
	return q
}

// send submits a request and returns its message id.
func (f *fixture) send(q *request) arcp.MessageID {
	s := q.Submit
	s.Envelope, s.Payload = &q.env, &q.payload
	f.e.Submit(&s)
	return q.env.ID
}

// submit submits a job of the session sess_1.
func (f *fixture) submit(name, args string) arcp.MessageID {
	f.Helper()
	return f.send(f.request("sess_1", name, args))
}

// frame is an envelope sent to a session.
type frame struct {
	arcp.Envelope
}

func (f frame) String() string {
	s := string(f.Type)
	if f.CorrelationID != "" {
		s += " " + string(f.CorrelationID)
	}
	if f.Type == arcp.CancelRefused {
		p, _ := arcp.DecodePayload[arcp.CancelRefusedPayload](&f.Envelope)
		return s + " " + p.Reason
	}
	if e, err := arcp.DecodePayload[arcp.Error](&f.Envelope); err == nil && e.Code != "" {
		s += " " + string(e.Code)
	}
	return s
}

// frames waits until the engine is idle and returns the frames sent to a session since the
// last call.
func (f *fixture) frames(session arcp.SessionID) (frames []frame) {
	f.Helper()
	synctest.Wait()
	c := f.session(session)
	last := c.Position()
	for {
		it, ok, err := c.Next()
		if err != nil {
			f.Fatal(err)
		}
		if !ok {
			return frames
		}
		if it.Event == nil {
			frames = append(frames, frame{Envelope: envelope(it.Answer)})
			continue
		}
		env, err := arcp.Decode(store.AppendFrame(nil, store.FrameHead("1.1", session), it.Seq, it.CorrelationID, it.Event))
		if err != nil {
			f.Fatal(err)
		}
		if it.Seq != 0 {
			if last++; it.Seq != last {
				f.Fatalf("event_seq %d after %d", it.Seq, last-1)
			}
		}
		if f.showWaits || !isWaiting(&env) {
			frames = append(frames, frame{Envelope: env})
		}
	}
}

// isWaiting reports whether an event says why its job waits.
func isWaiting(env *arcp.Envelope) bool {
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](env)
	return env.Type == arcp.EventEmit && err == nil && p.Name == arcp.EventWaiting
}

// envelope returns an answer as it is sent.
func envelope(answer any) arcp.Envelope {
	if deferred, ok := answer.(eventlog.DeferredAnswer); ok {
		return deferred(context.Background())
	}
	return answer.(arcp.Envelope)
}

func lines(frames []frame) (all []string) {
	for _, f := range frames {
		all = append(all, f.String())
	}
	return all
}

// want compares the frames sent to sess_1, one argument a frame. An argument may be a prefix
// of the frame's text. The reason why must not be empty.
func (f *fixture) want(why string, want ...string) []frame {
	f.Helper()
	return f.wantOf("sess_1", why, want...)
}

// wantOf is want for any session.
func (f *fixture) wantOf(session arcp.SessionID, why string, want ...string) []frame {
	f.Helper()
	if why == "" {
		f.Fatal("want has no reason")
	}
	frames := f.frames(session)
	got := lines(frames)
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = got[i] == want[i] || strings.HasPrefix(got[i], want[i]+" ")
	}
	if !ok {
		f.Fatalf("%s: %s is sent\n\t%s\nwant\n\t%s", why, session, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	return frames
}

// jobOf is the job that a submit was accepted as.
func jobOf(frames []frame, submit arcp.MessageID) arcp.JobID {
	i := slices.IndexFunc(frames, func(f frame) bool { return f.JobID != "" && f.CorrelationID == submit })
	if i < 0 {
		return ""
	}
	return frames[i].JobID
}

// row is a job's row in the store.
func (f *fixture) row(id arcp.JobID) store.Job {
	f.Helper()
	j, err := f.st.Job(context.Background(), id)
	if err != nil {
		f.Fatal(err)
	}
	return j
}

// cancel cancels a job for sess_1.
func (f *fixture) cancel(id arcp.JobID, deadline time.Duration) arcp.MessageID {
	f.Helper()
	f.n++
	from := f.requester()
	f.e.Cancel(from, &arcp.CancelPayload{TargetID: string(id), Reason: "enough", DeadlineMS: milliseconds(deadline)})
	return from.Request
}

// requester is sess_1 with request number n.
func (f *fixture) requester() Requester {
	return Requester{Request: arcp.MessageID(fmt.Sprintf("msg_%d", f.n)), Principal: "alice", Session: "sess_1", Answers: f.session("sess_1")}
}

// milliseconds is the deadline of a cancel; nil for 0.
func milliseconds(d time.Duration) *uint64 {
	if d == 0 {
		return nil
	}
	return new(uint64(d / time.Millisecond))
}

// requesterOf is a session without answers.
func requesterOf(request arcp.MessageID, actor approval.Actor) Requester {
	return Requester{Request: request, Principal: actor.Principal, Session: actor.Session, Admin: actor.Admin}
}

// expectNoState fails the test unless the engine has no jobs, queues and submit orders.
func (f *fixture) expectNoState(why string) {
	f.Helper()
	synctest.Wait()
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	if len(f.e.jobs.runs)+len(f.e.jobs.perPrincipal)+len(f.e.jobs.perSession)+len(f.e.queues.byTool)+len(f.e.order.waiting) != 0 {
		f.Fatalf("%s: %d jobs, principals %v, sessions %v, %d tool queues, %d submit orders remain", why, len(f.e.jobs.runs),
			f.e.jobs.perPrincipal, f.e.jobs.perSession, len(f.e.queues.byTool), len(f.e.order.waiting))
	}
	if n := f.gauge("arcp_jobs"); n != 0 {
		f.Fatalf("%s: arcp_jobs counts %v jobs that have not ended", why, n)
	}
}

// gauge returns the sum of a metric over its labels.
func (f *fixture) gauge(name string) (sum float64) {
	families, err := f.reg.Gather()
	if err != nil {
		f.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// attach attaches to a session and waits until that is done.
func (f *fixture) attach(id arcp.SessionID, after uint64) (c *eventlog.Cursor, err error) {
	done := make(chan error, 1)
	f.cfg.Log.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: id}}, NoSync: true}, func(res *store.Result) {
		if res.Err == nil {
			c = f.cfg.Log.Attach(id, after, res.LastSeq, eventlog.Loop{Wake: func() {}, Go: func(fn func()) { fn() }})
		}
		done <- res.Err
	})
	err = <-done
	return c, err
}

// delete deletes a job that has ended.
func (f *fixture) delete(id arcp.JobID) error {
	done := make(chan error, 1)
	f.cfg.Log.Append(store.NewWrite(&store.DeleteJob{Job: id}), func(res *store.Result) { done <- res.Err })
	return <-done
}
