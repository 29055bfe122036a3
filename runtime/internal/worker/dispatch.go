package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of dispatches (SPEC.md §7.8).
const (
	maxTries   = 3  // workers that are asked to take an attempt
	maxUntaken = 16 // dispatches that a session has neither taken nor refused: what waits for one that does not read
)

// dispatch is an attempt that a worker was given. The goroutine of the attempt
// serves it; what both sides know is guarded by Pool.mu.
type dispatch struct {
	p      *Pool
	id     arcp.MessageID
	jobID  arcp.JobID
	ref    string
	link   *link
	job    tool.Job
	terms  tool.Attempt  // of job
	invoke arcp.Envelope // what the worker was given
	halts  bool          // the tool is interruptible
	wake   chan struct{} // buffered 1
	stop   context.CancelFunc

	// Guarded by Pool.mu.
	agent    *agent
	answered bool      // by an ack or nack
	taken    bool      // by an ack
	back     bool      // given again to a worker that came back: what it says implies an ack
	said     bool      // its outcome: nothing more is taken
	over     bool      // nobody waits for it any more
	leaving  bool      // over, and its worker, which has come back, was told: see again
	gone     string    // why it is lost
	offered  time.Time // when it was given last
	frames   []frame
	standing []arcp.Envelope // what holds now: it is said again to a worker that comes back
	asks     asks
	unserved []*arcp.Envelope // the attempt's goroutine's: came when it had an outcome
	unheard  []arcp.Envelope  // refusals for when the worker comes back
}

// frame is one of the worker's that was not dealt with.
type frame struct {
	env  *arcp.Envelope
	done func()
}

// refusal says that a worker has not taken an attempt.
type refusal struct{ err *arcp.Error }

func (r *refusal) Error() string { return r.err.Error() }

// run is the function of a tool.
func (p *Pool) run(ref string) tool.Func {
	return func(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
		if _, ok := job.Host().(tool.Attempt); !ok {
			return nil, fmt.Errorf("%s is executed by a worker: its job must report the terms of the attempt", ref)
		}
		return p.execute(ctx, ref, job, args)
	}
}

// execute has an attempt made by a worker: the first that takes it.
func (p *Pool) execute(ctx context.Context, ref string, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
	tried := make(map[*link]bool)
	var last *refusal
	for range maxTries {
		d, err := p.assign(ctx, ref, job, args, tried)
		if err != nil {
			return nil, err
		}
		if d == nil {
			break // all that there are have refused
		}
		value, err := d.serve(ctx)
		refused, ok := errors.AsType[*refusal](err)
		if !ok {
			return value, err
		}
		last, tried[d.link] = refused, true
	}
	return nil, last.err
}

// assign gives an attempt to a worker, after waiting for one. nil: those that are
// connected have all been tried.
func (p *Pool) assign(ctx context.Context, ref string, job tool.Job, args arcp.Raw, tried map[*link]bool) (*dispatch, error) {
	attempt := job.Host().(tool.Attempt)
	terms := attempt.Terms()
	payload := arcp.ToolInvokePayload{Tool: ref, Arguments: args, Dispatch: arcp.Dispatch{Attempt: job.Attempt(),
		Lease: terms.Lease, Deadline: terms.Deadline, Checkpoint: terms.Checkpoint}}
	raw, err := arcp.Marshal(payload)
	if err != nil { // all of it was decoded
		return nil, err
	}
	d := &dispatch{p: p, id: arcp.NewMessageID(), jobID: job.ID(), ref: ref, job: job, terms: attempt, wake: make(chan struct{}, 1)}
	d.invoke = arcp.Envelope{Type: arcp.ToolInvoke, ID: d.id, JobID: d.jobID, TraceID: job.TraceID(), SpanID: terms.SpanID,
		Priority: terms.Priority, Payload: raw}
	for {
		select { // the one before may have refused because of this
		case <-attempt.Ended():
			return nil, errOver
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		default:
		}
		given, others, c := p.give(d, terms.Principal, tried)
		switch {
		case given:
			p.recount(others)
			return d, nil
		case c == nil:
			return nil, nil
		}
		select {
		case <-c:
		case <-attempt.Ended():
			return nil, errOver
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

var errOver = arcp.Errorf(arcp.CodeAborted, "the attempt is over")

// give hands a dispatch to the least busy worker, and returns the tools whose slots
// change by that; or what is closed when one may have become free; nil: there is none
// that could.
func (p *Pool) give(d *dispatch, principal string, tried map[*link]bool) (given bool, others []string, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.unlock()
	t := p.tool(d.ref)
	var best *agent
	could := false
	if t != nil {
		d.halts = t.tool.Interruptible
		for _, a := range t.agents {
			if a.link.conn == nil || tried[a.link] || !a.link.does(principal) {
				continue
			}
			could = true
			if a.held < a.concurrency && a.link.untaken < maxUntaken && (best == nil || a.idler(best)) {
				best = a
			}
		}
	}
	switch {
	case best != nil:
		p.begin(d, best)
		return true, best.others(d.ref), nil
	case !could && len(tried) > 0:
		return false, nil, nil
	}
	c := p.waiting[d.ref]
	if c == nil {
		c = make(chan struct{})
		p.waiting[d.ref] = c
	}
	return false, nil, c
}

// idler reports whether a is less busy than b or, if they are as busy, was given
// its last job earlier.
func (a *agent) idler(b *agent) bool {
	if x, y := a.held*b.concurrency, b.held*a.concurrency; x != y {
		return x < y
	}
	return a.picked < b.picked
}

// refuse answers what the worker has asked and was not answered. A worker that is away
// hears it when it comes back. Called with Pool.mu, before the dispatch is over.
func (d *dispatch) refuse(why error) {
	err := errOver
	if why != nil {
		err = refusalOf(why)
	}
	for _, env := range d.asks.refusals(d.jobID, err) {
		if !d.deliver(env) {
			d.unheard = append(d.unheard, env)
		}
	}
	for _, f := range d.frames {
		d.unserved = append(d.unserved, f.env)
	}
	for _, env := range d.unserved {
		if env.Type != arcp.JobCheckpoint && !questions[env.Type] {
			continue
		}
		refused := arcp.Frame(arcp.Nack, err)
		refused.ID, refused.JobID, refused.CorrelationID = arcp.NewMessageID(), d.jobID, env.ID
		if !d.deliver(refused) {
			d.unheard = append(d.unheard, refused)
		}
	}
	d.unserved = nil
}

// others are the tools whose slots change when the agent is given a job of one:
// those that share its concurrency.
func (a *agent) others(ref string) (refs []string) {
	for _, r := range a.executes {
		if r != ref {
			refs = append(refs, r)
		}
	}
	return refs
}

// begin gives a dispatch to an agent. Called with p.mu.
func (p *Pool) begin(d *dispatch, a *agent) {
	p.picked++
	d.agent, d.link, d.asks.total = a, a.link, &a.link.answers
	a.held++
	a.live[d.ref]++
	a.picked = p.picked
	a.link.untaken++
	a.link.held[d] = struct{}{}
	p.current[d.id], p.byJob[d.jobID] = d, d
	d.offered = time.Now()
	d.send(d.invoke)
}

// again says to a worker that has come back what it may have missed. Called with
// p.mu.
func (d *dispatch) again() {
	if d.over {
		d.part()
		return
	}
	d.back, d.offered = true, time.Now()
	d.send(d.invoke)
	for _, env := range d.asks.held() {
		d.send(env)
	}
	for _, env := range d.standing {
		d.send(env)
	}
}

// part tells a worker that has come back of a dispatch that has ended meanwhile. It
// may never have heard of that: its place is free when it says that it has ended,
// and at the latest after a while. Called with p.mu.
func (d *dispatch) part() {
	for _, env := range d.unheard {
		d.send(env)
	}
	d.unheard = nil
	d.send(d.cancel("the attempt is over"))
	if d.leaving {
		return
	}
	d.leaving = true
	time.AfterFunc(d.p.away, func() {
		d.p.mu.Lock()
		d.release()
		refs := d.p.refsOf(d.link)
		d.p.unlock()
		d.p.recount(refs)
	})
}

// take notes that the worker has answered. Called with Pool.mu.
func (d *dispatch) take() {
	if !d.answered {
		d.answered = true
		d.link.untaken--
	}
}

// lose gives up the worker. Called with Pool.mu.
func (d *dispatch) lose(why string) {
	if d.over {
		d.release()
		return
	}
	d.gone = why
	d.signal()
}

func (d *dispatch) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// release gives the worker's place back. Called with Pool.mu.
func (d *dispatch) release() {
	if _, held := d.link.held[d]; !held {
		return
	}
	d.take()
	delete(d.link.held, d)
	delete(d.p.current, d.id)
	d.agent.held--
	d.p.tidy(d.link)
}

// quits frees the place of a dispatch that nobody waits for when its worker says
// that it has ended too, and returns the tools whose slots change. Called with
// Pool.mu; d may be nil.
func (d *dispatch) quits(t arcp.Type) []string {
	if d == nil || !d.over || !outcome(t) {
		return nil
	}
	d.release()
	return d.agent.executes
}

// serve does what the worker says until the attempt ends: with what came of it, a
// *refusal, tool.ErrLost, or because its job does not wait any longer.
func (d *dispatch) serve(ctx context.Context) (arcp.Raw, error) {
	var work context.Context
	work, d.stop = context.WithCancel(ctx)
	o := d.loop(ctx, work)
	if o.result != metrics.DispatchLost {
		d.stop() // what a lost worker has asked, the next one finds; it ends with ctx
	}
	d.finish(o)
	return o.value, o.err
}

// outcomeOf is what came of a dispatch.
type outcomeOf struct {
	result string // a label of the metric
	value  arcp.Raw
	err    error
}

func withdrawn(err error) *outcomeOf { return &outcomeOf{result: metrics.DispatchWithdrawn, err: err} }

func (d *dispatch) loop(ctx, work context.Context) *outcomeOf {
	untaken := time.NewTimer(d.p.away)
	defer untaken.Stop()
	done := ctx.Done()
	resumed := make(chan struct{}, 1)
	var halted <-chan struct{}
	if d.halts {
		halted = d.job.Interrupted()
	}
	for {
		select {
		case <-d.wake:
			if o := d.hear(work); o != nil {
				return o
			}
		case <-done:
			done = nil
			if o := ended(ctx); o != nil {
				return o
			}
			d.stand(d.cancel(context.Cause(ctx).Error())) // it may end by itself
		case <-d.terms.Ended():
			if failure := d.terms.Failure(); failure != nil {
				return withdrawn(failure)
			}
			return withdrawn(errOver)
		case <-untaken.C:
			o, wait := d.overdue()
			if o != nil {
				return o
			}
			if wait > 0 {
				untaken.Reset(wait)
			}
		case <-halted:
			halted = nil
			go d.pause(work, resumed)
		case <-resumed:
			halted = d.job.Interrupted()
		}
	}
}

// ended is what an attempt has come to whose context has ended; nil: the job is
// cancelled, and its worker may say how far it has come.
func ended(ctx context.Context) *outcomeOf {
	o := withdrawn(context.Cause(ctx))
	if e, ok := errors.AsType[*arcp.Error](o.err); ok {
		switch e.Code {
		case arcp.CodeCancelled:
			return nil
		case arcp.CodeHeartbeatLost:
			o.result = metrics.DispatchLost
		}
	}
	return o
}

func (d *dispatch) cancel(reason string) arcp.Envelope {
	env := arcp.Frame(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(d.jobID), Reason: reason})
	env.JobID, env.CorrelationID = d.jobID, d.id
	return env
}

// stand says something that holds from now on: that the job is cancelled or, one in
// place of the other, interrupted or not any more.
func (d *dispatch) stand(env arcp.Envelope) arcp.MessageID {
	d.p.mu.Lock()
	defer d.p.unlock()
	env.ID = arcp.NewMessageID()
	if env.Type != arcp.Cancel {
		d.standing = slices.DeleteFunc(d.standing, func(e arcp.Envelope) bool { return e.Type != arcp.Cancel })
	}
	d.standing = append(d.standing, env)
	d.deliver(env)
	return env.ID
}

// deliver sends an envelope to the worker, and reports false if the worker has no connection
// or the dispatch is over. Called with Pool.mu.
func (d *dispatch) deliver(env arcp.Envelope) (sent bool) {
	if d.link.conn == nil || d.over {
		return false
	}
	d.send(env)
	return true
}

// send sends an envelope to the worker, which has a connection, when Pool.mu is unlocked.
// Called with Pool.mu.
func (d *dispatch) send(env arcp.Envelope) {
	d.p.out = append(d.p.out, delivery{d.link.conn, env})
}

// overdue ends the wait for a worker that does not say whether it takes the job, or
// says how much longer it is waited for; 0: it has answered. One that has lost its
// connection is waited for otherwise, and has its time when it is back.
func (d *dispatch) overdue() (o *outcomeOf, wait time.Duration) {
	d.p.mu.Lock()
	defer d.p.unlock()
	if d.answered {
		return nil, 0
	}
	if d.link.conn == nil {
		return nil, d.p.away
	}
	if left := d.p.away - time.Since(d.offered); left > 0 {
		return nil, left
	}
	return &outcomeOf{result: metrics.DispatchRefused, err: &refusal{arcp.Errorf(arcp.CodeUnavailable, "the worker did not take the job within %v", d.p.away)}}, 0
}

// finish says that nobody waits for the dispatch any more. A worker that still
// works is told, and busy until it says that it has ended. What it has asked and was
// not answered is answered with the error that ended the attempt.
func (d *dispatch) finish(o *outcomeOf) {
	p, result := d.p, o.result
	p.mu.Lock()
	if result == metrics.DispatchWithdrawn && d.link.conn == nil { // its heartbeats were missed
		result = metrics.DispatchLost
	}
	p.cfg.Metrics.WorkerDispatches.WithLabelValues(result).Inc()
	works := !d.said && d.gone == ""
	d.refuse(o.err)
	if works {
		d.deliver(d.cancel("the attempt is over"))
	}
	d.over = true
	if d.agent.live[d.ref]--; d.agent.live[d.ref] <= 0 {
		delete(d.agent.live, d.ref)
	}
	if p.byJob[d.jobID] == d {
		delete(p.byJob, d.jobID)
	}
	frames := d.frames
	d.frames, d.standing = nil, nil
	d.asks.drop()
	if !works {
		d.release()
	}
	refs := d.agent.executes
	p.unlock()
	for _, f := range frames {
		f.done()
	}
	p.recount(refs)
}
