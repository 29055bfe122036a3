// Package worker dispatches jobs to programs that are connected as clients (SPEC.md §7.8). A session
// registers an agent with the tools that the agent executes. Each job of such a tool is dispatched
// to a session with an agent for the tool. The frames of that session about the job are applied to
// the job.
//
// A Pool knows which sessions execute which tools. A call of a tool runs on the goroutine of the
// attempt and makes one dispatch after another until a worker accepts one. That goroutine alone
// applies the worker's frames, in order. While the goroutine blocks, frames queue, and the
// connection reads at most its bound of them.
package worker

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Config holds the dependencies of a Pool.
type Config struct {
	Tools        *tool.Registry
	Slots        *catalog.Slots
	SlotsChanged func(ref string) // is called after each change of Slots, without a lock
	Metrics      *metrics.Metrics
	Logger       zerolog.Logger

	// Heartbeat is the interval of job heartbeats. A worker may be without a connection for two
	// intervals, and has as long to accept a job. Not positive: the default.
	Heartbeat time.Duration
}

const (
	defaultHeartbeat   = 30 * time.Second
	reconnectIntervals = 2
)

// sourceName is the source of the Pool's tools in the registry.
const sourceName = "workers"

// Conn is the connection of a session.
type Conn interface {
	// Expect counts the bytes of the payload of an envelope that will be delivered. Expect and
	// Queued are called with the lock of the Pool: they must not call the Pool.
	Expect(bytes int)

	// Deliver queues an expected envelope and sets its members, except an id that is set. It
	// does not block. After the end of the connection envelopes are dropped.
	Deliver(env arcp.Envelope)

	// Queued returns how many bytes wait for the peer, with those that are expected.
	Queued() int

	// Registered reports that the session executes tools now. It is called once for each
	// registration, without a lock of the Pool.
	Registered()
}

// Pool assigns jobs to connected workers. Its methods may be called by many goroutines.
type Pool struct {
	cfg              Config
	reconnectTimeout time.Duration // also the time to accept a dispatch

	registering sync.Mutex // held by a registration: the registry changes in one step for each

	// tools are by reference. The map is replaced while registering and mu are held. It is read
	// without a lock, because callers of mayExecute may hold locks of their own.
	tools    atomic.Pointer[map[string]*workerTool]
	audience atomic.Pointer[map[string]*workerTool] // for mayExecute: tools, with the tools that are being registered

	mu     sync.Mutex
	agents map[agentKey]*agent
	// workers are by session id, because the row of an agent names its session by id, and the agent
	// is registered again after a restart before its session has a connection.
	workers map[arcp.SessionID]*workerSession
	byID    map[arcp.MessageID]*dispatch // that have not been released
	byJob   map[arcp.JobID]*dispatch     // that have not ended
	waiting map[string]chan struct{}     // by reference: closed when a worker may be free

	picks    uint64     // dispatches so far
	outgoing []delivery // for unlock, in order
	sending  bool       // a goroutine in unlock makes deliveries

	stopped bool // background starts no goroutine
	group   sync.WaitGroup
}

// delivery is an envelope for a connection.
type delivery struct {
	conn Conn
	env  arcp.Envelope
}

// unlock unlocks p.mu, and makes the deliveries of the critical section without the lock. If another
// goroutine is making deliveries, that goroutine makes these, too.
func (p *Pool) unlock() {
	defer p.mu.Unlock()
	if p.sending {
		return
	}
	p.sending = true
	for len(p.outgoing) > 0 {
		out := p.outgoing
		p.outgoing = nil
		p.mu.Unlock()
		for i := range out {
			out[i].conn.Deliver(out[i].env)
		}
		p.mu.Lock()
	}
	p.sending = false
}

// Stop waits for the goroutines of questions and interrupts, and starts no others. It is called
// after the engine has stopped, because they end with the attempts of their jobs.
func (p *Pool) Stop() {
	p.mu.Lock()
	p.stopped = true
	p.unlock()
	p.group.Wait()
}

// background runs f on a goroutine that Stop waits for. After Stop it does nothing: the attempt has
// ended, and the end of a dispatch refuses its open questions.
func (p *Pool) background(f func()) {
	p.mu.Lock()
	defer p.unlock()
	if !p.stopped {
		p.group.Go(f)
	}
}

// agentKey identifies an agent.
type agentKey struct{ principal, id string }

// workerTool is a tool of the pool. It does not change.
type workerTool struct {
	tool      *tool.Tool
	digest    string // of the declaration
	principal string // owner of the agents
	agents    []*agent
}

// agent is a registered agent.
type agent struct {
	key         agentKey
	name        string
	executes    []string // references
	concurrency int
	worker      *workerSession

	jobs     int            // dispatches, with those that have ended and that the worker still executes
	live     map[string]int // dispatches that have not ended, by reference
	lastPick uint64         // Pool.picks at the last dispatch
}

// workerSession is a session that has registered agents, or whose connection may register agents.
type workerSession struct {
	session           arcp.SessionID
	principal         string
	serves            atomic.Pointer[func(principal string) bool] // to nil: only its own principal
	conn              Conn                                        // nil: none
	disconnects       uint64                                      // number of lost connections
	timer             *time.Timer                                 // of the wait for a new connection; nil: none
	expires           time.Time                                   // when timer fires
	agents            int                                         // number of registered agents
	inMetric          bool                                        // in the metric of workers
	pendingDispatches int                                         // dispatches without ack or nack
	answers           answerCache
	dispatches        map[*dispatch]struct{}
	drained           chan struct{} // closed when a draining session has no dispatches; nil: it is not draining
}

// New returns a pool without tools.
func New(cfg Config) *Pool {
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = defaultHeartbeat
	}
	p := &Pool{
		cfg:              cfg,
		reconnectTimeout: reconnectIntervals * cfg.Heartbeat,
		agents:           make(map[agentKey]*agent),
		workers:          make(map[arcp.SessionID]*workerSession),
		byID:             make(map[arcp.MessageID]*dispatch),
		byJob:            make(map[arcp.JobID]*dispatch),
		waiting:          make(map[string]chan struct{}),
	}
	p.tools.Store(new(map[string]*workerTool))
	p.audience.Store(p.tools.Load())
	return p
}

// tool returns the tool of a reference; nil: there is none.
func (p *Pool) tool(ref string) *workerTool { return (*p.tools.Load())[ref] }

// Register registers the tools that an agent executes, in place of those before. An error changes
// nothing:
//
//   - PERMISSION_DENIED: the actor does not have the role worker
//   - INVALID_ARGUMENT: a declaration is not valid
//   - ALREADY_EXISTS: a name belongs to another source or principal
//   - FAILED_PRECONDITION: other agents describe the tool differently. The error is retryable if they
//     have no connection and only wait for their jobs.
//
// The agents with the ids of replaces are removed, if they are Replaceable still.
func (p *Pool) Register(a agents.Agent, actor approval.Actor, replaces ...string) *arcp.Error {
	if !actor.Worker {
		return arcp.Errorf(arcp.CodePermissionDenied, "executing jobs needs the role worker")
	}
	list, err := declarations(&a)
	if err != nil {
		return err
	}
	if list, err = p.permitted(list, &actor); err != nil {
		return err
	}
	p.registering.Lock()
	defer p.registering.Unlock()
	next := &agent{key: keyOf(&a), name: a.Name, concurrency: cmp.Or(a.Concurrency, defaultConcurrency), live: make(map[string]int)}
	replaced, err := replaceable(p, a.Principal, actor.Session, replaces)
	if err != nil {
		return err
	}
	tools, err := p.toolsWith(next, list, replaced...)
	if err != nil {
		return err
	}
	p.mu.Lock()
	next.worker = p.workerOf(&actor)
	next.worker.agents++
	p.updateMetric(next.worker)
	p.unlock()
	both := make(map[string]*workerTool)
	maps.Copy(both, *p.tools.Load())
	maps.Copy(both, tools)
	p.audience.Store(&both)
	if err := p.publish(tools); err != nil {
		p.audience.Store(p.tools.Load())
		p.mu.Lock()
		next.worker.agents--
		p.updateMetric(next.worker)
		p.removeIdle(next.worker)
		p.unlock()
		return err
	}
	p.replace(next, tools, replaced...)
	if conn := p.connOf(actor.Session); conn != nil && len(list) > 0 {
		conn.Registered()
	}
	return nil
}

// connOf returns the connection of a session that executes jobs, or nil.
func (p *Pool) connOf(session arcp.SessionID) Conn {
	p.mu.Lock()
	defer p.unlock()
	if ws := p.workers[session]; ws != nil {
		return ws.conn
	}
	return nil
}

// Unregister removes an agent. Its jobs continue while its session has a connection, and are lost
// otherwise.
func (p *Pool) Unregister(a agents.Agent) {
	p.registering.Lock()
	defer p.registering.Unlock()
	tools, _ := p.toolsWith(&agent{key: keyOf(&a)}, nil) // removing tools cannot fail
	if err := p.publish(tools); err != nil {
		p.cfg.Logger.Error().Str("reason", err.Message).Msg("tools of workers cannot be withdrawn")
	}
	p.replace(&agent{key: keyOf(&a)}, tools)
}

// permitted returns the declared tools that the actor may execute. The error is PERMISSION_DENIED
// if tools are declared and the actor may execute none of them.
func (p *Pool) permitted(list []declared, actor *approval.Actor) ([]declared, *arcp.Error) {
	if actor.Executes == nil || len(list) == 0 {
		return list, nil
	}
	var permitted []declared
	for _, d := range list {
		if actor.Executes(d.capability.Name) {
			permitted = append(permitted, d)
			continue
		}
		p.cfg.Logger.Warn().Str("principal", actor.Principal).Str("tool", d.capability.Ref()).
			Msg("tool of a worker left out: its configuration does not allow it")
	}
	if len(permitted) == 0 {
		return nil, arcp.Errorf(arcp.CodePermissionDenied, "the configuration of the worker allows none of the tools that it executes")
	}
	return permitted, nil
}

func keyOf(a *agents.Agent) agentKey { return agentKey{a.Principal, a.ID} }

// toolsWith returns the pool's tools after next has replaced the agent with its key, and others. Called
// with p.registering.
func (p *Pool) toolsWith(next *agent, list []declared, replaced ...*agent) (map[string]*workerTool, *arcp.Error) {
	tools := make(map[string]*workerTool)
	owned := 0 // tools of the principal
	for ref, t := range *p.tools.Load() {
		rest := slices.DeleteFunc(slices.Clone(t.agents), func(a *agent) bool { return a.key == next.key || slices.Contains(replaced, a) })
		if len(rest) > 0 {
			tools[ref] = &workerTool{tool: t.tool, digest: t.digest, principal: t.principal, agents: rest}
		}
	}
	for _, t := range tools {
		if t.principal == next.key.principal {
			owned++
		}
	}
	for i := range list {
		ref := list[i].capability.Ref()
		if _, ok := tools[ref]; !ok {
			owned++
		}
		t, err := p.toolOf(tools, next.key.principal, &list[i])
		if err != nil {
			return nil, err
		}
		t.agents = append(t.agents, next)
		tools[ref] = t
		next.executes = append(next.executes, ref)
	}
	if owned > maxTools && len(list) > 0 {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "the agents of a principal execute at most %d tools", maxTools)
	}
	return tools, nil
}

// toolOf returns the declared tool. Agents with the same declaration share one. Called with
// p.registering.
func (p *Pool) toolOf(tools map[string]*workerTool, principal string, d *declared) (*workerTool, *arcp.Error) {
	ref := d.capability.Ref()
	for _, t := range tools {
		if t.tool.Name == d.capability.Name && t.principal != principal {
			return nil, errNameTaken(d.capability.Name)
		}
	}
	if t := tools[ref]; t != nil {
		if t.digest != d.digest {
			return nil, errDescription(p, t)
		}
		return t, nil
	}
	if t := p.tool(ref); t != nil && t.digest == d.digest && t.principal == principal {
		return &workerTool{tool: t.tool, digest: t.digest, principal: principal}, nil
	}
	other, _ := p.cfg.Tools.Resolve(d.capability.Name)
	if other != nil && other.Source != tool.SourceWorker || p.cfg.Tools.IsReserved(d.capability.Name, principal) {
		return nil, errNameTaken(d.capability.Name)
	}
	c := d.capability
	c.Audience = func(principal string) bool { return p.mayExecute(ref, principal) }
	t, err := tool.NewRaw(c, p.toolFunc(ref))
	if err != nil {
		return nil, invalid("%s", err)
	}
	return &workerTool{tool: t, digest: d.digest, principal: principal}, nil
}

func errNameTaken(name string) *arcp.Error {
	return arcp.Errorf(arcp.CodeAlreadyExists, "%s is the name of another tool, or reserved by the configuration of the runtime", name)
}

// publish replaces the pool's tools in the registry.
func (p *Pool) publish(tools map[string]*workerTool) *arcp.Error {
	var list []*tool.Tool
	for _, t := range tools {
		list = append(list, t.tool)
	}
	slices.SortFunc(list, func(a, b *tool.Tool) int { return cmp.Compare(a.Ref(), b.Ref()) })
	if err := p.cfg.Tools.Replace(sourceName, list); err != nil {
		return arcp.Errorf(arcp.CodeAlreadyExists, "%s", err)
	}
	return nil
}

// replace replaces the agent of next's key, and others. If next executes nothing it only removes them.
func (p *Pool) replace(next *agent, tools map[string]*workerTool, replaced ...*agent) {
	p.mu.Lock()
	refs := slices.Clone(next.executes)
	old := p.agents[next.key]
	delete(p.agents, next.key)
	if len(next.executes) > 0 {
		p.agents[next.key] = next
	}
	p.audience.Store(&tools)
	p.tools.Store(&tools)
	if old != nil && !slices.Contains(replaced, old) {
		replaced = append(replaced, old)
	}
	for _, old := range replaced {
		if old.key != next.key {
			delete(p.agents, old.key)
		}
		refs = append(refs, old.executes...)
		p.retire(old, next)
	}
	p.unlock()
	p.updateSlots(refs)
}

// retire removes the agent old, which next replaces. Its dispatches move to next if next belongs
// to the same session. Called with p.mu.
func (p *Pool) retire(old, next *agent) {
	ws := old.worker
	ws.agents--
	p.updateMetric(ws)
	for d := range ws.dispatches {
		switch {
		case d.agent != old:
		case next.worker == ws:
			d.agent = next
		case ws.conn == nil:
			d.lose(sessionEnded)
		}
	}
	if next.worker == ws {
		next.jobs, next.live, next.lastPick = old.jobs, old.live, old.lastPick
	}
	p.removeIdle(ws)
}

// workerOf returns the session of the actor. Called with p.mu.
func (p *Pool) workerOf(actor *approval.Actor) *workerSession {
	ws := p.workers[actor.Session]
	if ws == nil {
		ws = &workerSession{session: actor.Session, principal: actor.Principal, dispatches: make(map[*dispatch]struct{})}
		p.workers[actor.Session] = ws
	}
	serves := actor.Serves
	ws.serves.Store(&serves)
	return ws
}

// updateMetric counts a session as a worker while it has a connection and agents. Called with p.mu.
func (p *Pool) updateMetric(ws *workerSession) {
	switch working := ws.conn != nil && ws.agents > 0; {
	case working == ws.inMetric:
		return
	case working:
		p.cfg.Metrics.Workers.Inc()
	default:
		p.cfg.Metrics.Workers.Dec()
	}
	ws.inMetric = !ws.inMetric
}

// Sessions returns how many connected sessions execute each tool, by its name.
func (p *Pool) Sessions() map[string]int {
	p.mu.Lock()
	defer p.unlock()
	sessions := make(map[string]map[*workerSession]bool)
	for ref, t := range *p.tools.Load() {
		name := metrics.NameOf(ref)
		if sessions[name] == nil {
			sessions[name] = make(map[*workerSession]bool)
		}
		for _, a := range t.agents {
			if a.worker.conn != nil {
				sessions[name][a.worker] = true
			}
		}
	}
	counts := make(map[string]int, len(sessions))
	for name, list := range sessions {
		counts[name] = len(list)
	}
	return counts
}

// removeIdle removes a session without connection, agents and dispatches. Called with p.mu.
func (p *Pool) removeIdle(ws *workerSession) {
	if ws.conn == nil && ws.agents == 0 && len(ws.dispatches) == 0 {
		ws.stopTimer()
		delete(p.workers, ws.session)
	}
}

// mayExecute reports whether a worker of the tool executes jobs of a principal. It takes no lock.
func (p *Pool) mayExecute(ref, principal string) bool {
	t := (*p.audience.Load())[ref]
	return t != nil && (t.principal == principal ||
		slices.ContainsFunc(t.agents, func(a *agent) bool { return a.worker.executesFor(principal) }))
}

// executesFor reports whether a session executes jobs of a principal.
func (ws *workerSession) executesFor(principal string) bool {
	serves := *ws.serves.Load()
	return ws.principal == principal || serves != nil && serves(principal)
}

// Runs reports whether a session has an agent for a tool, or a dispatch of the tool.
func (p *Pool) Runs(ref string, session arcp.SessionID) bool {
	p.mu.Lock()
	defer p.unlock()
	if ws := p.workers[session]; ws != nil {
		for d := range ws.dispatches {
			if d.ref == ref {
				return true
			}
		}
	}
	t := p.tool(ref)
	return t != nil && slices.ContainsFunc(t.agents, func(a *agent) bool { return a.worker.session == session })
}

// Connected reports whether a session with a connection executes a tool for a principal.
func (p *Pool) Connected(ref, principal string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tool(ref)
	return t != nil && slices.ContainsFunc(t.agents, func(a *agent) bool {
		return a.worker.conn != nil && a.worker.executesFor(principal)
	})
}

// updateSlots updates how many jobs of each tool may run, and wakes attempts that wait for a worker.
func (p *Pool) updateSlots(refs []string) {
	p.mu.Lock()
	for _, ref := range refs {
		p.cfg.Slots.Set(ref, p.slots(ref))
		if c := p.waiting[ref]; c != nil {
			close(c)
			delete(p.waiting, ref)
		}
	}
	p.unlock()
	for _, ref := range refs {
		p.cfg.SlotsChanged(ref)
	}
}

// slots returns the number of jobs of a tool that its workers can execute at once, beside their jobs
// of other tools. A job that waits until its worker reconnects counts. A draining
// worker takes no new jobs. Called with p.mu.
func (p *Pool) slots(ref string) (n int) {
	t := p.tool(ref)
	if t == nil {
		return 0
	}
	for _, a := range t.agents {
		live := a.live[ref]
		if a.worker.conn == nil || a.worker.drained != nil {
			n += live
		} else {
			n += max(live, a.concurrency-(a.jobs-live))
		}
	}
	return n
}
