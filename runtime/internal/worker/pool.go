// Package worker has the jobs of a tool done by programs that are connected as
// clients (SPEC.md §7.8). What an agent executes is a tool like others; its jobs
// are given to a session that has registered such an agent, and what that session
// says of them is done to the job.
//
// A Pool knows who executes what and is connected. A call of one of its tools, on
// the goroutine of the attempt, is one dispatch after the other until a worker
// takes it; the goroutine alone does what the worker's frames say, in their order.
// What blocks it, blocks that worker: nothing more is read from its connection
// when too much waits.
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
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Config is what a Pool needs.
type Config struct {
	Tools   *tool.Registry
	Slots   *tool.Slots
	Recount func(ref string) // told of each change of Slots, without a lock
	Metrics *metrics.Metrics
	Logger  zerolog.Logger

	// Heartbeat is the interval of job heartbeats: a worker may be away for two of
	// them, and take as long to take a job. If it is off, the default counts.
	Heartbeat time.Duration
}

const (
	defaultHeartbeat = 30 * time.Second
	awayIntervals    = 2
)

// sourceName is the Pool's in the registry of tools.
const sourceName = "workers"

// Conn is the connection of a session. Deliver queues an envelope, which it stamps
// but for the id if there is one. It must neither block nor call the Pool; what
// comes after the connection's end is dropped. Queued is how many bytes wait for
// the peer.
type Conn interface {
	Deliver(env arcp.Envelope)
	Queued() int

	// Registered reports that the session executes tools now. It is called once for each
	// registration, without a lock of the Pool.
	Registered()
}

// Pool assigns jobs to connected workers. Its methods may be called by many goroutines.
type Pool struct {
	cfg  Config
	away time.Duration

	registering sync.Mutex // one at a time, each in one step for the registry

	// tools are by reference; another map is put in place with registering and mu.
	// Who may call them is asked by others with locks of theirs: what is read for
	// that is read without a lock.
	tools    atomic.Pointer[map[string]*provided]
	audience atomic.Pointer[map[string]*provided] // for may: also what the registry is about to have

	mu      sync.Mutex
	agents  map[agentKey]*agent
	links   map[arcp.SessionID]*link
	current map[arcp.MessageID]*dispatch // that are under way
	byJob   map[arcp.JobID]*dispatch     // likewise
	waiting map[string]chan struct{}     // by reference: closed when a worker may be free
	picked  uint64
	out     []delivery // to be made by unlock, in order
	sending bool       // a goroutine in unlock makes deliveries
}

// delivery is an envelope for a connection.
type delivery struct {
	conn Conn
	env  arcp.Envelope
}

// unlock unlocks p.mu, and makes the deliveries of the critical section without the lock. If
// another goroutine is making deliveries, that one makes these too.
func (p *Pool) unlock() {
	defer p.mu.Unlock()
	if p.sending {
		return
	}
	p.sending = true
	for len(p.out) > 0 {
		out := p.out
		p.out = nil
		p.mu.Unlock()
		for i := range out {
			out[i].conn.Deliver(out[i].env)
		}
		p.mu.Lock()
	}
	p.sending = false
}

// agentKey is what an agent is known by.
type agentKey struct{ principal, id string }

// provided is a tool of the pool. It is not changed once it is there.
type provided struct {
	tool      *tool.Tool
	digest    string // of what was declared
	principal string // whose agents execute it
	agents    []*agent
}

// agent is a registered agent.
type agent struct {
	key         agentKey
	executes    []string // references
	concurrency int
	link        *link // as long as the agent is there

	held   int            // dispatches, also those nobody waits for any more
	live   map[string]int // of them: those somebody waits for, by reference
	picked uint64         // when it was given one last
}

// link is a session with agents, or that may have some.
type link struct {
	session   arcp.SessionID
	principal string
	serves    atomic.Pointer[func(principal string) bool] // to nil: nobody else
	conn      Conn                                        // nil: none
	gone      uint64                                      // counts the times that it lost one
	timer     *time.Timer                                 // while it has none and is waited for
	agents    int
	counted   bool // in the metric of workers
	untaken   int  // dispatches that were neither taken nor refused
	answers   answerCache
	held      map[*dispatch]struct{}
}

// New returns a pool without tools.
func New(cfg Config) *Pool {
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = defaultHeartbeat
	}
	p := &Pool{cfg: cfg, away: awayIntervals * cfg.Heartbeat, agents: make(map[agentKey]*agent), links: make(map[arcp.SessionID]*link),
		current: make(map[arcp.MessageID]*dispatch), byJob: make(map[arcp.JobID]*dispatch), waiting: make(map[string]chan struct{})}
	p.tools.Store(new(map[string]*provided))
	p.audience.Store(p.tools.Load())
	return p
}

// tool is what is provided under a reference; nil: nothing.
func (p *Pool) tool(ref string) *provided { return (*p.tools.Load())[ref] }

// Register has an agent execute the jobs of what it names, in place of what it
// named before: PERMISSION_DENIED without the role, INVALID_ARGUMENT for what is
// no tool, ALREADY_EXISTS for a name that somebody else has, FAILED_PRECONDITION
// if agents that are there describe the tool otherwise. An error changes nothing.
func (p *Pool) Register(a host.Agent, who approval.Actor) *arcp.Error {
	if !who.Worker {
		return arcp.Errorf(arcp.CodePermissionDenied, "executing jobs needs the role worker")
	}
	list, err := declarations(&a)
	if err != nil {
		return err
	}
	if list, err = p.permitted(list, &who); err != nil {
		return err
	}
	p.registering.Lock()
	defer p.registering.Unlock()
	next := &agent{key: keyOf(&a), concurrency: cmp.Or(a.Concurrency, defaultConcurrency), live: make(map[string]int)}
	tools, err := p.provide(next, list)
	if err != nil {
		return err
	}
	p.mu.Lock()
	next.link = p.link(&who)
	next.link.agents++
	p.tally(next.link)
	p.unlock()
	both := make(map[string]*provided)
	maps.Copy(both, *p.tools.Load())
	maps.Copy(both, tools)
	p.audience.Store(&both)
	if err := p.publish(tools); err != nil {
		p.audience.Store(p.tools.Load())
		p.mu.Lock()
		next.link.agents--
		p.tally(next.link)
		p.tidy(next.link)
		p.unlock()
		return err
	}
	p.replace(next, tools)
	if conn := p.connOf(who.Session); conn != nil && len(list) > 0 {
		conn.Registered()
	}
	return nil
}

// connOf returns the connection of a session that executes jobs; nil: it has none.
func (p *Pool) connOf(session arcp.SessionID) Conn {
	p.mu.Lock()
	defer p.unlock()
	if l := p.links[session]; l != nil {
		return l.conn
	}
	return nil
}

// Unregister ends that: the jobs that the agent does go on while its session has a
// connection, and are lost otherwise.
func (p *Pool) Unregister(a host.Agent) {
	p.registering.Lock()
	defer p.registering.Unlock()
	tools, _ := p.provide(&agent{key: keyOf(&a)}, nil) // what others have stays: nothing can be refused
	if err := p.publish(tools); err != nil {
		p.cfg.Logger.Error().Str("reason", err.Message).Msg("tools of workers cannot be withdrawn")
	}
	p.replace(&agent{key: keyOf(&a)}, tools)
}

// permitted returns the tools that the actor may execute. If it declares tools and may
// execute none of them, the error is PERMISSION_DENIED.
func (p *Pool) permitted(list []declared, who *approval.Actor) ([]declared, *arcp.Error) {
	if who.Executes == nil || len(list) == 0 {
		return list, nil
	}
	var permitted []declared
	for _, d := range list {
		if who.Executes(d.capability.Name) {
			permitted = append(permitted, d)
			continue
		}
		p.cfg.Logger.Warn().Str("principal", who.Principal).Str("tool", d.capability.Ref()).Msg("tool of a worker left out: its configuration does not allow it")
	}
	if len(permitted) == 0 {
		return nil, arcp.Errorf(arcp.CodePermissionDenied, "the configuration of the worker allows none of the tools that it executes")
	}
	return permitted, nil
}

func keyOf(a *host.Agent) agentKey { return agentKey{a.Principal, a.ID} }

// provide is what the pool's tools will be when next replaces the agent of its key.
// Called with p.registering.
func (p *Pool) provide(next *agent, list []declared) (map[string]*provided, *arcp.Error) {
	tools := make(map[string]*provided)
	mine := 0
	for ref, t := range *p.tools.Load() {
		rest := slices.DeleteFunc(slices.Clone(t.agents), func(a *agent) bool { return a.key == next.key })
		if len(rest) > 0 {
			tools[ref] = &provided{t.tool, t.digest, t.principal, rest}
		}
	}
	for _, t := range tools {
		if t.principal == next.key.principal {
			mine++
		}
	}
	for i := range list {
		ref := list[i].capability.Ref()
		if _, there := tools[ref]; !there {
			mine++
		}
		t, err := p.share(tools, next.key.principal, &list[i])
		if err != nil {
			return nil, err
		}
		t.agents = append(t.agents, next)
		tools[ref] = t
		next.executes = append(next.executes, ref)
	}
	if mine > maxTools && len(list) > 0 {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "the agents of a principal execute at most %d tools", maxTools)
	}
	return tools, nil
}

// share is the tool that is declared: one that there is, or a new one. Called with
// p.registering.
func (p *Pool) share(tools map[string]*provided, principal string, d *declared) (*provided, *arcp.Error) {
	ref := d.capability.Ref()
	for _, t := range tools {
		if t.tool.Name == d.capability.Name && t.principal != principal {
			return nil, taken(d.capability.Name)
		}
	}
	if t := tools[ref]; t != nil {
		if t.digest != d.digest {
			return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "agents that execute %s describe it otherwise; give what is new another version", ref)
		}
		return t, nil
	}
	if t := p.tool(ref); t != nil && t.digest == d.digest && t.principal == principal {
		return &provided{tool: t.tool, digest: t.digest, principal: principal}, nil
	}
	if t, _ := p.cfg.Tools.Resolve(d.capability.Name); t != nil && t.Source != tool.SourceWorker || p.cfg.Tools.HasReservedPrefix(d.capability.Name) {
		return nil, taken(d.capability.Name)
	}
	c := d.capability
	c.Audience = func(who string) bool { return p.may(ref, who) }
	t, err := tool.NewRaw(c, p.run(ref))
	if err != nil {
		return nil, invalid("%s", err)
	}
	return &provided{tool: t, digest: d.digest, principal: principal}, nil
}

func taken(name string) *arcp.Error {
	return arcp.Errorf(arcp.CodeAlreadyExists, "%s is the name of a tool that is there already, or may come from a server of the runtime's", name)
}

// publish makes the tools what the registry has of the pool.
func (p *Pool) publish(tools map[string]*provided) *arcp.Error {
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

// replace puts an agent, if it executes something, in place of the one of its key.
func (p *Pool) replace(next *agent, tools map[string]*provided) {
	p.mu.Lock()
	refs := slices.Clone(next.executes)
	old := p.agents[next.key]
	delete(p.agents, next.key)
	if len(next.executes) > 0 {
		p.agents[next.key] = next
	}
	p.audience.Store(&tools)
	p.tools.Store(&tools) // now that next has its link
	if old != nil {
		refs = append(refs, old.executes...)
		p.retire(old, next)
	}
	p.unlock()
	p.recount(refs)
}

// retire takes an agent out. What it does is done by the one that replaces it, if
// that is of the same session. Called with p.mu.
func (p *Pool) retire(old, next *agent) {
	l := old.link
	l.agents--
	p.tally(l)
	for d := range l.held {
		switch {
		case d.agent != old:
		case next.link == l:
			d.agent = next
		case l.conn == nil:
			d.lose("the worker's session has ended")
		}
	}
	if next.link == l {
		next.held, next.live, next.picked = old.held, old.live, old.picked
	}
	p.tidy(l)
}

// link is that of a session, made if there is none. Called with p.mu.
func (p *Pool) link(who *approval.Actor) *link {
	l := p.links[who.Session]
	if l == nil {
		l = &link{session: who.Session, principal: who.Principal, held: make(map[*dispatch]struct{})}
		p.links[who.Session] = l
	}
	serves := who.Serves
	l.serves.Store(&serves)
	return l
}

// tally counts a session as a worker while it has a connection and agents: many that
// could be given jobs never are. Called with p.mu.
func (p *Pool) tally(l *link) {
	switch works := l.conn != nil && l.agents > 0; {
	case works == l.counted:
		return
	case works:
		p.cfg.Metrics.Workers.Inc()
	default:
		p.cfg.Metrics.Workers.Dec()
	}
	l.counted = !l.counted
}

// tidy forgets a link that nothing hangs on. Called with p.mu.
func (p *Pool) tidy(l *link) {
	if l.conn == nil && l.agents == 0 && len(l.held) == 0 {
		l.stop()
		delete(p.links, l.session)
	}
}

// may reports whether a principal's jobs are done by those who execute a tool. It
// takes no lock.
func (p *Pool) may(ref, principal string) bool {
	t := (*p.audience.Load())[ref]
	return t != nil && (t.principal == principal || slices.ContainsFunc(t.agents, func(a *agent) bool { return a.link.does(principal) }))
}

// does reports whether a session does a principal's jobs.
func (l *link) does(principal string) bool {
	serves := *l.serves.Load()
	return l.principal == principal || serves != nil && serves(principal)
}

// Runs reports whether a session may be given the jobs of a tool, or still does one.
func (p *Pool) Runs(ref string, session arcp.SessionID) bool {
	p.mu.Lock()
	defer p.unlock()
	if l := p.links[session]; l != nil {
		for d := range l.held {
			if d.ref == ref {
				return true
			}
		}
	}
	t := p.tool(ref)
	return t != nil && slices.ContainsFunc(t.agents, func(a *agent) bool { return a.link.session == session })
}

// recount says how many jobs of each tool may run now, and has those who wait for
// a worker look again.
func (p *Pool) recount(refs []string) {
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
		p.cfg.Recount(ref)
	}
}

// slots is how many jobs of a tool its workers can do: what they are not busy with
// otherwise. A job that waits for its worker to come back has its own. Called with
// p.mu.
func (p *Pool) slots(ref string) (n int) {
	t := p.tool(ref)
	if t == nil {
		return 0
	}
	for _, a := range t.agents {
		live := a.live[ref]
		if a.link.conn == nil {
			n += live
		} else {
			n += max(live, a.concurrency-(a.held-live))
		}
	}
	return n
}
