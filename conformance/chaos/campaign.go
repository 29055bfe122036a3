package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Server is the runtime under test, in another process.
type Server interface {
	// Start starts the server with the data of the previous run. It returns the address,
	// HOST:PORT, that serves WebSockets at the path /arcp.
	Start(ctx context.Context) (addr string, err error)
	// Kill ends the server like SIGKILL.
	Kill() error
}

// Config is the configuration of a campaign. A zero member has the documented default.
type Config struct {
	Seed       uint64         // of all random actions; their timing still varies
	Time       time.Duration  // duration of the load; default 1 min
	Sessions   int            // default 64
	Principals []Principal    // required; owners of the sessions, in turn
	Dialects   []arcp.Dialect // of the sessions; each principal has all in turn; default both
	KillEvery  time.Duration  // average time between two kills; default 4 s
	Drain      time.Duration  // limit for unfinished work after the load; default 1 min + Time/2

	// Effects is the file with the effects of the workflow chaos.workflow, a line {job, " ", arguments}
	// for each call of the tools chaos.once and chaos.again. An interrupted call of chaos.once fails,
	// and one of chaos.again is repeated. The arguments of the workflow are {mark, to}, those of the
	// tools {mark, step}. The steps are charge (chaos.once, compensated by chaos.again of the step
	// refund), then count (demo.count) beside pack (chaos.again), then ship (chaos.once). Empty: the
	// server has no such workflow.
	Effects string

	// Progress receives the state of the campaign as a line of text, from time to time. May be nil.
	Progress func(line string)
}

func (c Config) withDefaults() Config {
	if c.Time == 0 {
		c.Time = time.Minute
	}
	if c.Sessions == 0 {
		c.Sessions = 64
	}
	if len(c.Dialects) == 0 {
		c.Dialects = []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft}
	}
	if c.KillEvery == 0 {
		c.KillEvery = 4 * time.Second
	}
	if c.Drain == 0 {
		c.Drain = time.Minute + c.Time/2
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	return c
}

// Run runs a campaign and ends at the first finding. An error means that the server could not be
// started or killed.
func Run(ctx context.Context, server Server, config Config) (*Outcome, error) {
	c := &campaign{Config: config.withDefaults(), server: server, started: time.Now()}
	var err error
	if c.relay, err = newRelay(c.Seed); err != nil {
		return nil, err
	}
	defer c.relay.close()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = server.Kill() }() // the campaign is over
	c.newClients()
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	c.drain(ctx)
	return c.outcome(), nil
}

// campaign is the state of one Run.
type campaign struct {
	Config
	server  Server
	relay   *relay
	clients []*client
	phase   atomic.Int32
	cuts    atomic.Int64
	kills   int
	effects []Effect
	started time.Time

	mu       sync.Mutex
	findings []Finding
	stop     context.CancelFunc // ends the current phase; nil between phases
}

// start starts the server and publishes its address to the relay.
func (c *campaign) start(ctx context.Context) error {
	addr, err := c.server.Start(ctx)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	c.relay.target.Store(&addr)
	return nil
}

// newClients creates the clients, one for each session.
func (c *campaign) newClients() {
	jobs := newSharedJobs()
	played := 0
	for n := range c.Sessions {
		cl := c.newClient(n, jobs)
		if c.Dialects[n/len(c.Principals)%len(c.Dialects)] == arcp.DialectDraft {
			cl.library = c.libraryOf(played)
			played++
		}
		c.clients = append(c.clients, cl)
	}
}

// libraryOf returns the library that the n-th client of the draft dialect plays. The seed selects the first.
func (c *campaign) libraryOf(n int) *library {
	return &libraries[(n+int(c.Seed%uint64(len(libraries))))%len(libraries)]
}

// newClient returns a client of the RFC's dialect.
func (c *campaign) newClient(n int, jobs *sharedJobs) *client {
	k := n % len(c.Principals)
	others := append(append([]Principal{}, c.Principals[:k]...), c.Principals[k+1:]...)
	rnd := rand.New(rand.NewPCG(c.Seed, uint64(1<<32+n)))
	return &client{n: n, principal: c.Principals[k], others: others, rnd: rnd, shared: jobs, url: c.relay.url(),
		phase: &c.phase, report: c.report, cuts: &c.cuts, workflows: c.Effects != "", acks: rnd.IntN(2) == 0, library: &rfc}
}

// report records a finding and ends the phase.
func (c *campaign) report(f Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.findings = append(c.findings, f)
	if c.stop != nil {
		c.stop()
	}
}

func (c *campaign) ok() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.findings) == 0
}

// runPhase calls f with a context that ends after d or with a finding.
func (c *campaign) runPhase(ctx context.Context, d time.Duration, f func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	c.mu.Lock()
	c.stop = cancel
	c.mu.Unlock()
	f(ctx)
}

// each calls f for every client at the same time and waits.
func (c *campaign) each(f func(*client)) {
	var all sync.WaitGroup
	for _, cl := range c.clients {
		all.Go(func() { f(cl) })
	}
	all.Wait()
}

// load runs the clients and kills the server repeatedly.
func (c *campaign) load(ctx context.Context) (err error) {
	c.runPhase(ctx, c.Time, func(ctx context.Context) {
		var killer sync.WaitGroup
		killer.Go(func() { err = c.kill(ctx) })
		c.each(func(cl *client) { cl.run(ctx, loading) })
		killer.Wait()
	})
	return err
}

func (c *campaign) kill(ctx context.Context) error {
	rnd := rand.New(rand.NewPCG(c.Seed, 1<<33))
	for {
		sleep(ctx, c.KillEvery/2+time.Duration(rnd.Int64N(int64(c.KillEvery))))
		if ctx.Err() != nil {
			return nil
		}
		if err := c.server.Kill(); err != nil {
			return fmt.Errorf("kill the server: %w", err)
		}
		c.kills++
		sleep(ctx, time.Duration(rnd.Int64N(int64(500*time.Millisecond))))
		if err := c.start(context.WithoutCancel(ctx)); err != nil { // also after the load: the clients drain next
			return err
		}
		c.Progress(fmt.Sprintf("%s: %d kills, %d cuts", time.Since(c.started).Round(time.Second), c.kills, c.cutCount()))
	}
}

func (c *campaign) cutCount() int { return int(c.cuts.Load() + c.relay.cuts.Load()) }

// drain waits until all unfinished work has ended, and then checks the result.
func (c *campaign) drain(ctx context.Context) {
	c.relay.undisturbed.Store(true)
	c.phase.Store(draining)
	if !c.ok() {
		return
	}
	c.Progress("draining")
	c.runPhase(ctx, c.Drain, func(ctx context.Context) {
		c.each(func(cl *client) { cl.run(ctx, draining) })
	})
	c.unfinished()
	if !c.ok() {
		return
	}
	c.Progress("checking")
	c.phase.Store(checking)
	c.runPhase(ctx, c.Drain, func(ctx context.Context) {
		c.each(func(cl *client) {
			if cl.stream != nil {
				cl.check(ctx)
			}
		})
		c.compare(ctx)
	})
}

// unfinished reports a finding for each job without an end and each command without an answer.
func (c *campaign) unfinished() {
	for _, cl := range c.clients {
		if cl.stream == nil {
			continue
		}
		for _, work := range cl.stream.Pending() {
			c.report(Finding{RuleLost, cl.String(), work})
		}
		for _, o := range cl.pending {
			c.report(Finding{RuleAnswer, cl.String(), fmt.Sprintf("%s was not answered: %s", o.ID, o.Append(nil))})
		}
	}
}

// compare lists the jobs of each principal in each dialect and compares all sessions.
func (c *campaign) compare(ctx context.Context) {
	if !c.ok() {
		return
	}
	var err error
	if c.effects, err = readEffects(c.Effects); err != nil {
		c.report(Finding{RuleEffect, "the effects", err.Error()})
		return
	}
	for _, d := range c.Dialects {
		lists, ok := c.lists(ctx, d)
		if !ok {
			return
		}
		for _, f := range Compare(c.streams(), lists, c.effects) {
			c.report(f)
		}
		if !c.ok() {
			return
		}
	}
}

// lists lists the jobs of each principal in a dialect.
func (c *campaign) lists(ctx context.Context, d arcp.Dialect) (lists map[string][]arcp.JobEntry, ok bool) {
	lists = make(map[string][]arcp.JobEntry)
	for i, p := range c.Principals {
		lister := c.newClient(c.Sessions*len(c.Principals)+i, newSharedJobs()) // this number selects the principal p
		if d == arcp.DialectDraft {
			lister.library = c.libraryOf(i)
		}
		if lists[p.Name], ok = lister.list(ctx); !ok {
			c.report(Finding{RuleList, p.Name, fmt.Sprintf("the jobs could not be listed in the dialect %s", d)})
			return nil, false
		}
	}
	return lists, true
}

func (c *campaign) streams() (list []*Stream) {
	for _, cl := range c.clients {
		if cl.stream != nil {
			list = append(list, cl.stream)
		}
	}
	return list
}

func (c *campaign) outcome() *Outcome {
	o := &Outcome{Seed: c.Seed, Kills: c.kills, Cuts: c.cutCount(), Stalls: int(c.relay.stalls.Load()), Effects: len(c.effects), Findings: c.findings}
	jobs := [...]map[arcp.JobID]bool{arcp.DialectRFC: make(map[arcp.JobID]bool), arcp.DialectDraft: make(map[arcp.JobID]bool)}
	for _, s := range c.streams() {
		o.Sessions++
		o.Draft += int(s.Dialect)
		o.Events += int(s.Last())
		o.Children += len(s.Children)
		for id := range s.Jobs {
			jobs[s.Dialect][id] = true
		}
	}
	for id := range jobs[arcp.DialectDraft] {
		if jobs[arcp.DialectRFC][id] {
			o.Common++
		}
	}
	o.Jobs = len(jobs[arcp.DialectRFC]) + len(jobs[arcp.DialectDraft]) - o.Common
	return o
}
