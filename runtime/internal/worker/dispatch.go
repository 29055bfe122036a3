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
	maxTries   = 3  // workers to which an attempt is dispatched, one after another
	maxUntaken = 16 // dispatches of a session without ack and nack: bounds the queue for a worker that does not read
)

// dispatch is an attempt of a job that was sent to a worker. The goroutine of the attempt owns it; state
// that others use is guarded by Pool.mu.
type dispatch struct {
	p       *Pool
	id      arcp.MessageID
	jobID   arcp.JobID
	ref     string
	link    *link
	job     tool.Job
	attempt tool.Attempt  // of job
	invoke  arcp.Envelope // the tool.invoke
	halts   bool          // the tool is interruptible
	wake    chan struct{} // buffered 1
	stop    context.CancelFunc

	// Guarded by Pool.mu.
	agent      *agent
	answered   bool      // by an ack or nack
	taken      bool      // by an ack
	resent     bool      // to a worker that has reconnected: its frames imply an ack
	hasOutcome bool      // further frames are refused
	ended      bool      // the attempt does not wait for it any more
	leaving    bool      // ended, and its worker was told so after it has reconnected: see endAgain
	lost       string    // why the dispatch is lost; "": it is not
	offered    time.Time // when it was sent last
	frames     []frame
	standing   []arcp.Envelope // a cancel or interrupt in force: sent again to a worker that reconnects
	asks       asks
	unserved   []*arcp.Envelope // received after the outcome; owned by the goroutine of the attempt
	unsent     []arcp.Envelope  // refusals for a worker that reconnects
}

// frame is a frame of the worker that has not been handled. done is called when it has.
type frame struct {
	env  *arcp.Envelope
	done func()
}

// refusal is the error of a dispatch that the worker has not taken.
type refusal struct{ err *arcp.Error }

func (r *refusal) Error() string { return r.err.Error() }

// run returns the function of a tool.
func (p *Pool) run(ref string) tool.Func {
	return func(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
		if _, ok := job.Host().(tool.Attempt); !ok {
			return nil, fmt.Errorf("%s is executed by a worker: its job must report the terms of the attempt", ref)
		}
		return p.execute(ctx, ref, job, args)
	}
}

// execute dispatches an attempt until a worker takes it, and returns its outcome.
func (p *Pool) execute(ctx context.Context, ref string, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
	tried := make(map[*link]bool)
	var last *refusal
	for range maxTries {
		d, err := p.assign(ctx, ref, job, args, tried)
		if err != nil {
			return nil, err
		}
		if d == nil {
			break // all connected workers have refused
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

// assign waits for a worker and dispatches an attempt to it. A nil dispatch means that all connected
// workers have been tried.
func (p *Pool) assign(ctx context.Context, ref string, job tool.Job, args arcp.Raw, tried map[*link]bool) (*dispatch, error) {
	attempt := job.Host().(tool.Attempt)
	info := attempt.Info()
	payload := arcp.ToolInvokePayload{Tool: ref, Arguments: args, Dispatch: arcp.Dispatch{Attempt: job.Attempt(),
		Lease: info.Lease, Deadline: info.Deadline, Checkpoint: info.Checkpoint}}
	raw, err := arcp.Marshal(payload)
	if err != nil { // its members were decoded
		return nil, err
	}
	d := &dispatch{p: p, id: arcp.NewMessageID(), jobID: job.ID(), ref: ref, job: job, attempt: attempt, wake: make(chan struct{}, 1)}
	d.invoke = arcp.Envelope{Type: arcp.ToolInvoke, ID: d.id, JobID: d.jobID, TraceID: job.TraceID(), SpanID: info.SpanID,
		Priority: info.Priority, Payload: raw}
	for {
		select { // the previous worker may have refused for this reason
		case <-attempt.Ended():
			return nil, errEnded
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		default:
		}
		sent, others, c := p.offer(d, info.Principal, tried)
		switch {
		case sent:
			p.recount(others)
			return d, nil
		case c == nil:
			return nil, nil
		}
		select {
		case <-c:
		case <-attempt.Ended():
			return nil, errEnded
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

var errEnded = arcp.Errorf(arcp.CodeAborted, "the attempt is over")

// offer sends a dispatch to the least busy worker, and returns the other tools whose slots change. If all
// workers are busy it returns a channel that is closed when one may be free; nil: no untried
// worker executes the tool.
func (p *Pool) offer(d *dispatch, principal string, tried map[*link]bool) (sent bool, others []string, changed <-chan struct{}) {
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

// idler reports whether a is less busy than b or, if they are equally busy, had its last dispatch
// earlier.
func (a *agent) idler(b *agent) bool {
	if x, y := a.held*b.concurrency, b.held*a.concurrency; x != y {
		return x < y
	}
	return a.picked < b.picked
}

// refuse answers the open questions of the worker with an error. A worker without a connection gets
// the answers when it reconnects. Called with Pool.mu, before the dispatch has ended.
func (d *dispatch) refuse(why error) {
	err := errEnded
	if why != nil {
		err = refusalOf(why)
	}
	for _, env := range d.asks.refusals(d.jobID, err) {
		if !d.deliver(env) {
			d.unsent = append(d.unsent, env)
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
			d.unsent = append(d.unsent, refused)
		}
	}
	d.unserved = nil
}

// others returns the other tools of the agent: they share its concurrency with ref.
func (a *agent) others(ref string) (refs []string) {
	for _, r := range a.executes {
		if r != ref {
			refs = append(refs, r)
		}
	}
	return refs
}

// begin sends a dispatch to an agent. Called with p.mu.
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

// resend sends the frames that a worker may have missed before it reconnected. Called with p.mu.
func (d *dispatch) resend() {
	if d.ended {
		d.endAgain()
		return
	}
	d.resent, d.offered = true, time.Now()
	d.send(d.invoke)
	for _, env := range d.asks.takeQueued() {
		d.send(env)
	}
	for _, env := range d.standing {
		d.send(env)
	}
}

// endAgain cancels a dispatch that has ended before the worker reconnected. The slot is free when the
// worker sends its outcome, or after the away time. Called with p.mu.
func (d *dispatch) endAgain() {
	for _, env := range d.unsent {
		d.send(env)
	}
	d.unsent = nil
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

// markAnswered records an ack or nack. Called with Pool.mu.
func (d *dispatch) markAnswered() {
	if !d.answered {
		d.answered = true
		d.link.untaken--
	}
}

// lose ends a dispatch whose worker is lost. Called with Pool.mu.
func (d *dispatch) lose(why string) {
	if d.ended {
		d.release()
		return
	}
	d.lost = why
	d.signal()
}

func (d *dispatch) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// release frees the slot of the worker. Called with Pool.mu.
func (d *dispatch) release() {
	if _, held := d.link.held[d]; !held {
		return
	}
	d.markAnswered()
	delete(d.link.held, d)
	delete(d.p.current, d.id)
	d.agent.held--
	d.p.removeIdle(d.link)
}

// releaseEnded frees the slot of an ended dispatch on the worker's outcome, and returns the tools whose slots
// change. d may be nil. Called with Pool.mu.
func (d *dispatch) releaseEnded(t arcp.Type) []string {
	if d == nil || !d.ended || !outcome(t) {
		return nil
	}
	d.release()
	return d.agent.executes
}

// serve applies the frames of the worker until the dispatch ends. The error is a *refusal, tool.ErrLost,
// the error of the worker, or why the job does not wait any longer.
func (d *dispatch) serve(ctx context.Context) (arcp.Raw, error) {
	var work context.Context
	work, d.stop = context.WithCancel(ctx)
	o := d.loop(ctx, work)
	if o.label != metrics.DispatchLost {
		d.stop() // after a loss the questions stay open for the next dispatch, until ctx ends
	}
	d.finish(o)
	return o.value, o.err
}

// result is the outcome of a dispatch.
type result struct {
	label string // of the metric
	value arcp.Raw
	err   error
}

func withdrawn(err error) *result { return &result{label: metrics.DispatchWithdrawn, err: err} }

func (d *dispatch) loop(ctx, work context.Context) *result {
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
			if o := d.handle(work); o != nil {
				return o
			}
		case <-done:
			done = nil
			if o := ended(ctx); o != nil {
				return o
			}
			d.stand(d.cancel(context.Cause(ctx).Error())) // the worker may still send an outcome
		case <-d.attempt.Ended():
			if failure := d.attempt.Failure(); failure != nil {
				return withdrawn(failure)
			}
			return withdrawn(errEnded)
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

// ended returns the result of a dispatch whose context has ended. nil: the job is cancelled, and the worker
// may still send an outcome.
func ended(ctx context.Context) *result {
	o := withdrawn(context.Cause(ctx))
	if e, ok := errors.AsType[*arcp.Error](o.err); ok {
		switch e.Code {
		case arcp.CodeCancelled:
			return nil
		case arcp.CodeHeartbeatLost:
			o.label = metrics.DispatchLost
		}
	}
	return o
}

func (d *dispatch) cancel(reason string) arcp.Envelope {
	env := arcp.Frame(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(d.jobID), Reason: reason})
	env.JobID, env.CorrelationID = d.jobID, d.id
	return env
}

// stand sends a cancel, an interrupt, or the answer that ends an interrupt, and keeps it in force for a worker
// that reconnects. The latter two replace each other.
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
	if d.link.conn == nil || d.ended {
		return false
	}
	d.send(env)
	return true
}

// send sends an envelope to the worker, which has a connection, when Pool.mu is unlocked.
// Called with Pool.mu.
func (d *dispatch) send(env arcp.Envelope) {
	d.link.conn.Expect(len(env.Payload))
	d.p.out = append(d.p.out, delivery{d.link.conn, env})
}

// overdue returns a refusal for a worker that has not answered in time, or how much longer to wait; 0: it
// has answered. The time of a worker without a connection begins when it reconnects.
func (d *dispatch) overdue() (o *result, wait time.Duration) {
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
	return &result{label: metrics.DispatchRefused, err: &refusal{arcp.Errorf(arcp.CodeUnavailable, "the worker did not take the job within %v", d.p.away)}}, 0
}

// finish ends the dispatch. A worker that has sent no outcome gets a cancel, and is busy until it sends one.
// Its open questions are answered with the error of the dispatch.
func (d *dispatch) finish(o *result) {
	p, result := d.p, o.label
	p.mu.Lock()
	if result == metrics.DispatchWithdrawn && d.link.conn == nil { // heartbeats were missed
		result = metrics.DispatchLost
	}
	p.cfg.Metrics.WorkerDispatches.WithLabelValues(result).Inc()
	works := !d.hasOutcome && d.lost == ""
	d.refuse(o.err)
	if works {
		d.deliver(d.cancel("the attempt is over"))
	}
	d.ended = true
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
