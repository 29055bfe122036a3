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

// Server is the runtime under test, in a process of its own.
type Server interface {
	// Start starts it on the data it had before and returns the address where it
	// accepts WebSockets under /arcp.
	Start(ctx context.Context) (addr string, err error)
	// Kill ends it as SIGKILL does.
	Kill() error
}

// Config is a campaign. Zero members have the documented default.
type Config struct {
	Seed       uint64        // of the actions of clients and connections; their times vary
	Time       time.Duration // of the load; default a minute
	Sessions   int           // default 64
	Principals []Principal   // required; the sessions are dealt out to them
	KillEvery  time.Duration // on average; default 4 s
	Settle     time.Duration // for everything that was begun to end; default a minute and half of Time

	// Progress, if set, is called now and then with the state of the campaign.
	Progress func(line string)
}

func (c Config) withDefaults() Config {
	if c.Time == 0 {
		c.Time = time.Minute
	}
	if c.Sessions == 0 {
		c.Sessions = 64
	}
	if c.KillEvery == 0 {
		c.KillEvery = 4 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = time.Minute + c.Time/2
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	return c
}

// Run runs a campaign. It ends early with the first finding. An error means that
// there was no campaign: the server did not start.
func Run(ctx context.Context, server Server, config Config) (*Outcome, error) {
	c := &campaign{Config: config.withDefaults(), server: server, started: time.Now()}
	var err error
	if c.wire, err = newWire(c.Seed); err != nil {
		return nil, err
	}
	defer c.wire.close()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = server.Kill() }() // it is not needed any more
	c.enlist()
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	c.settle(ctx)
	return c.outcome(), nil
}

// campaign is a run.
type campaign struct {
	Config
	server  Server
	wire    *wire
	clients []*client
	phase   atomic.Int32
	cuts    atomic.Int64
	kills   int
	started time.Time

	mu       sync.Mutex
	findings []Finding
	stop     context.CancelFunc // ends the phase; nil: between two
}

// start starts the server and lets clients reach it.
func (c *campaign) start(ctx context.Context) error {
	addr, err := c.server.Start(ctx)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	c.wire.target.Store(&addr)
	return nil
}

// enlist makes the clients.
func (c *campaign) enlist() {
	b := newBoard()
	for n := range c.Sessions {
		c.clients = append(c.clients, c.newClient(n, b))
	}
}

func (c *campaign) newClient(n int, b *board) *client {
	k := n % len(c.Principals)
	others := append(append([]Principal{}, c.Principals[:k]...), c.Principals[k+1:]...)
	rnd := rand.New(rand.NewPCG(c.Seed, uint64(1<<32+n)))
	return &client{n: n, principal: c.Principals[k], others: others, rnd: rnd, board: b, url: c.wire.url(),
		phase: &c.phase, found: c.found, cuts: &c.cuts, acks: rnd.IntN(2) == 0}
}

// found records a finding, which ends the phase.
func (c *campaign) found(f Finding) {
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

// during runs something with a context that ends after a time, or with a finding.
func (c *campaign) during(ctx context.Context, d time.Duration, f func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	c.mu.Lock()
	c.stop = cancel
	c.mu.Unlock()
	f(ctx)
}

// each runs something for every client at the same time.
func (c *campaign) each(f func(*client)) {
	var all sync.WaitGroup
	for _, cl := range c.clients {
		all.Go(func() { f(cl) })
	}
	all.Wait()
}

// load lets the clients work, and kills the server again and again.
func (c *campaign) load(ctx context.Context) (err error) {
	c.during(ctx, c.Time, func(ctx context.Context) {
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
		if err := c.start(context.WithoutCancel(ctx)); err != nil { // also when the time is up: it is needed to settle
			return err
		}
		c.Progress(fmt.Sprintf("%s: %d kills, %d cuts", time.Since(c.started).Round(time.Second), c.kills, c.cutCount()))
	}
}

func (c *campaign) cutCount() int { return int(c.cuts.Load() + c.wire.cuts.Load()) }

// settle waits until all begun work has ended, then checks the outcome.
func (c *campaign) settle(ctx context.Context) {
	c.wire.calm.Store(true)
	c.phase.Store(settling)
	if !c.ok() {
		return
	}
	c.Progress("settling")
	c.during(ctx, c.Settle, func(ctx context.Context) {
		c.each(func(cl *client) { cl.run(ctx, settling) })
	})
	c.unfinished()
	if !c.ok() {
		return
	}
	c.Progress("checking")
	c.phase.Store(checking)
	c.during(ctx, c.Settle, func(ctx context.Context) {
		c.each(func(cl *client) {
			if cl.stream != nil {
				cl.check(ctx)
			}
		})
		c.compare(ctx)
	})
}

// unfinished adds a finding for each job that has not ended.
func (c *campaign) unfinished() {
	for _, cl := range c.clients {
		if cl.stream == nil {
			continue
		}
		for _, what := range cl.stream.Open() {
			c.found(Finding{RuleLost, cl.String(), what})
		}
		for _, o := range cl.open {
			c.found(Finding{RuleAnswer, cl.String(), fmt.Sprintf("%s was not answered: %s", o.id, o.frame)})
		}
	}
}

// compare judges all sessions together.
func (c *campaign) compare(ctx context.Context) {
	if !c.ok() {
		return
	}
	lists := make(map[string][]arcp.JobEntry)
	for i, p := range c.Principals {
		lister := c.newClient(c.Sessions*len(c.Principals)+i, newBoard()) // the number makes it a session of p
		list, ok := lister.list(ctx)
		if !ok {
			c.found(Finding{RuleList, p.Name, "the jobs could not be listed"})
			return
		}
		lists[p.Name] = list
	}
	for _, f := range Judge(c.streams(), lists) {
		c.found(f)
	}
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
	o := &Outcome{Seed: c.Seed, Kills: c.kills, Cuts: c.cutCount(), Stalls: int(c.wire.stalls.Load()), Findings: c.findings}
	jobs := make(map[arcp.JobID]bool)
	for _, s := range c.streams() {
		o.Sessions++
		o.Events += int(s.Last())
		for id := range s.Jobs {
			jobs[id] = true
		}
	}
	o.Jobs = len(jobs)
	return o
}
