package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of dispatches (SPEC.md §7.8).
const (
	maxTries      = 3  // workers to which an attempt is dispatched, one after another
	maxUnanswered = 16 // dispatches of a session without ack or nack; bounds the queue for a worker that does not read
)

// dispatch is an attempt of a job that was sent to a worker. It belongs to the goroutine of the
// attempt, except the fields guarded by Pool.mu.
type dispatch struct {
	pool          *Pool
	jobID         arcp.JobID
	ref           string
	worker        *workerSession
	job           tool.Job
	invoke        arcp.Envelope // the tool.invoke; its id is the dispatch of the protocol
	interruptible bool          // the tool is interruptible
	contents      contentSet
	wake          chan struct{} // buffered 1
	stop          context.CancelFunc

	// Guarded by Pool.mu.
	agent      *agent
	answered   bool             // by an ack or nack
	accepted   bool             // by an ack
	resent     bool             // to a worker that has reconnected: its frames imply an ack
	hasOutcome bool             // further frames are refused
	ended      bool             // the attempt does not wait any more
	cancelSent bool             // see cancelEnded
	lost       string           // reason for the loss of the worker; "": the worker is not lost
	sentAt     time.Time        // of the last sending
	waits      *tool.WorkerWait // as the attempt knows it; nil: it does not wait
	frames     []frame
	controls   []arcp.Envelope // a cancel or interrupt; sent again to a worker that reconnects
	questions  questionSet
	unhandled  []*arcp.Envelope // received after the outcome; owned by the goroutine of the attempt
	unsent     []arcp.Envelope  // refusals for a worker that reconnects
}

// frame is a frame of the worker that has not been handled. done is called after that.
type frame struct {
	env  *arcp.Envelope
	done func()
}

// refusal is the error of a dispatch that the worker has not accepted.
type refusal struct{ err *arcp.Error }

func (r *refusal) Error() string { return r.err.Error() }

// toolFunc returns the function of a tool.
func (p *Pool) toolFunc(ref string) tool.Func {
	return func(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
		if _, ok := job.Host().(tool.Attempt); !ok {
			return nil, fmt.Errorf("%s is executed by a worker: its job must report the terms of the attempt", ref)
		}
		return p.execute(ctx, ref, job, args)
	}
}

// execute dispatches an attempt until a worker accepts it, and returns the outcome.
func (p *Pool) execute(ctx context.Context, ref string, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
	tried := make(map[*workerSession]bool)
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
		last, tried[d.worker] = refused, true
	}
	return nil, last.err
}

// deadlineOf returns when an attempt that is dispatched now ends at the latest; zero: there is no limit.
func deadlineOf(info *tool.AttemptInfo, now time.Time) time.Time {
	if info.Limit <= 0 {
		return info.Deadline
	}
	if end := now.Add(info.Limit); info.Deadline.IsZero() || end.Before(info.Deadline) {
		return end
	}
	return info.Deadline
}

// assign waits for a worker and dispatches an attempt to it. A nil dispatch means that all connected
// workers have been tried.
func (p *Pool) assign(ctx context.Context, ref string, job tool.Job, args arcp.Raw, tried map[*workerSession]bool) (*dispatch, error) {
	attempt := job.Host().(tool.Attempt)
	info := attempt.Info()
	payload := arcp.ToolInvokePayload{Tool: ref, Arguments: args, Dispatch: arcp.Dispatch{Attempt: job.Attempt(),
		Lease: info.Lease, Checkpoint: info.Checkpoint}}
	d := &dispatch{pool: p, jobID: job.ID(), ref: ref, job: job, wake: make(chan struct{}, 1)}
	d.invoke = arcp.Envelope{Type: arcp.ToolInvoke, ID: arcp.NewMessageID(), JobID: d.jobID, TraceID: job.TraceID(), SpanID: info.SpanID,
		Priority: info.Priority}
	for {
		payload.Deadline = deadlineOf(&info, time.Now())
		raw, err := arcp.Marshal(payload)
		if err != nil { // its members were decoded
			return nil, err
		}
		d.invoke.Payload = raw
		select { // the previous worker may have refused for this reason
		case <-attempt.Ended():
			return nil, errEnded
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		default:
		}
		if err := attempt.CheckLease(); err != nil { // it may have ended while the attempt waited
			return nil, err
		}
		sent, others, changed := p.tryDispatch(d, info.Principal, tried)
		switch {
		case sent:
			p.updateSlots(others)
			return d, nil
		case changed == nil:
			return nil, nil
		}
		select {
		case <-changed:
		case <-attempt.Ended():
			return nil, errEnded
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

var errEnded = arcp.Errorf(arcp.CodeAborted, "the attempt is over")

// attempt returns the host of the job; toolFunc has checked its type.
func (d *dispatch) attempt() tool.Attempt { return d.job.Host().(tool.Attempt) }

// tryDispatch sends a dispatch to the least busy worker, and returns the other tools whose slots
// change. If all workers are busy it returns a channel that is closed when one may be free. The
// channel is nil if all workers of the tool have been tried.
func (p *Pool) tryDispatch(d *dispatch, principal string,
	tried map[*workerSession]bool) (sent bool, others []string, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.unlock()
	t := p.tool(d.ref)
	var best *agent
	connected := false
	if t != nil {
		d.interruptible = t.tool.Interruptible
		for _, a := range t.agents {
			if a.worker.conn == nil || tried[a.worker] || !a.worker.executesFor(principal) {
				continue
			}
			connected = true
			if a.worker.drained != nil {
				continue
			}
			if a.jobs < a.concurrency && a.worker.pendingDispatches < maxUnanswered && (best == nil || a.lessBusy(best)) {
				best = a
			}
		}
	}
	switch {
	case best != nil:
		p.start(d, best)
		return true, best.otherTools(d.ref), nil
	case !connected && len(tried) > 0:
		return false, nil, nil
	}
	d.waitForWorker(connected)
	if changed = p.waiting[d.ref]; changed == nil {
		c := make(chan struct{})
		p.waiting[d.ref], changed = c, c
	}
	return false, nil, changed
}

// lessBusy reports whether a is less busy than b. Of two equally busy agents it is the one with
// the earlier last dispatch.
func (a *agent) lessBusy(b *agent) bool {
	if x, y := a.jobs*b.concurrency, b.jobs*a.concurrency; x != y {
		return x < y
	}
	return a.lastPick < b.lastPick
}

// answerQuestions answers the open questions of the worker with the error of the dispatch. A
// worker without a connection gets the answers when it reconnects. Called with Pool.mu, before
// the dispatch has ended.
func (d *dispatch) answerQuestions(failure error) {
	err := errEnded
	if failure != nil {
		err = refusalOf(failure)
	}
	for _, env := range d.questions.refusals(d.jobID, err) {
		if !d.deliver(env) {
			d.unsent = append(d.unsent, env)
		}
	}
	for _, f := range d.frames {
		d.unhandled = append(d.unhandled, f.env)
	}
	for _, env := range d.unhandled {
		if env.Type != arcp.JobCheckpoint && !questionTypes[env.Type] {
			continue
		}
		refused := arcp.Frame(arcp.Nack, err)
		refused.ID, refused.JobID, refused.CorrelationID = arcp.NewMessageID(), d.jobID, env.ID
		if !d.deliver(refused) {
			d.unsent = append(d.unsent, refused)
		}
	}
	d.unhandled = nil
}

// otherTools returns the tools that share the concurrency of the agent with ref.
func (a *agent) otherTools(ref string) (refs []string) {
	for _, r := range a.executes {
		if r != ref {
			refs = append(refs, r)
		}
	}
	return refs
}

// start sends a dispatch to an agent. Called with p.mu.
func (p *Pool) start(d *dispatch, a *agent) {
	p.picks++
	d.agent, d.worker, d.questions.cache = a, a.worker, &a.worker.answers
	a.jobs++
	a.live[d.ref]++
	a.lastPick = p.picks
	a.worker.pendingDispatches++
	a.worker.dispatches[d] = struct{}{}
	p.byID[d.invoke.ID], p.byJob[d.jobID] = d, d
	d.setWait(nil)
	d.sentAt = time.Now()
	d.send(d.invoke)
}

// resend sends the frames that a worker may have missed before it reconnected. Called with p.mu.
func (d *dispatch) resend() {
	if d.ended {
		d.cancelEnded()
		return
	}
	d.setWait(nil)
	d.resent, d.sentAt = true, time.Now()
	d.send(d.invoke)
	for _, env := range d.questions.dequeue() {
		d.send(env)
	}
	for _, env := range d.controls {
		d.send(env)
	}
}

// setWait says why the attempt waits for a worker; nil: a connected worker executes it. An ended dispatch
// does not set it, because the attempt may have another one. Called with Pool.mu.
func (d *dispatch) setWait(w *tool.WorkerWait) {
	if d.ended || w == nil && d.waits == nil {
		return
	}
	d.waits = w
	d.attempt().SetWait(w)
}

// waitForReconnect says that the attempt waits for its worker to reconnect. Called with Pool.mu.
func (d *dispatch) waitForReconnect(now time.Time) {
	if d.hasOutcome || d.lost != "" {
		return
	}
	d.setWait(&tool.WorkerWait{Reason: arcp.WaitReconnect, Since: now, Worker: d.workerName(), Until: now.Add(d.pool.reconnectTimeout)})
}

// waitForWorker says that the attempt waits for a connected worker, or for a free one. Called with
// Pool.mu.
func (d *dispatch) waitForWorker(connected bool) {
	reason := arcp.WaitWorker
	if connected {
		reason = arcp.WaitWorkerSlot
	}
	if d.waits == nil || d.waits.Reason != reason {
		d.setWait(&tool.WorkerWait{Reason: reason, Since: time.Now()})
	}
}

// cancelEnded cancels a dispatch that has ended before the worker reconnected. The slot is free
// when the worker sends the outcome, or after the reconnect timeout. Called with p.mu.
func (d *dispatch) cancelEnded() {
	for _, env := range d.unsent {
		d.send(env)
	}
	d.unsent = nil
	d.send(d.cancel("the attempt is over"))
	if d.cancelSent {
		return
	}
	d.cancelSent = true
	time.AfterFunc(d.pool.reconnectTimeout, func() {
		d.pool.mu.Lock()
		d.release()
		refs := d.pool.refsOf(d.worker)
		d.pool.unlock()
		d.pool.updateSlots(refs)
	})
}

// markAnswered records an ack or nack. Called with Pool.mu.
func (d *dispatch) markAnswered() {
	if !d.answered {
		d.answered = true
		d.worker.pendingDispatches--
	}
}

// lossError is the reason for the loss of an attempt.
type lossError string

func (e lossError) Error() string { return string(e) }
func (e lossError) Unwrap() error { return tool.ErrLost }

// lose ends a dispatch whose worker is lost. reason follows the name of the worker. Called with Pool.mu.
func (d *dispatch) lose(reason string) {
	if d.ended {
		d.release()
		return
	}
	d.lost = "the worker"
	if name := d.workerName(); name != "" {
		d.lost += " " + strconv.Quote(name)
	}
	d.lost += " " + reason
	d.signal()
}

// workerName returns the name of the worker; "": it is of another principal than the job. Called with Pool.mu.
func (d *dispatch) workerName() string {
	if d.worker.principal != d.attempt().Info().Principal {
		return ""
	}
	return d.agent.name
}

func (d *dispatch) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// release frees the slot of the worker. Called with Pool.mu.
func (d *dispatch) release() {
	if _, ok := d.worker.dispatches[d]; !ok {
		return
	}
	d.markAnswered()
	delete(d.worker.dispatches, d)
	d.worker.checkDrained()
	delete(d.pool.byID, d.invoke.ID)
	d.agent.jobs--
	d.pool.removeIdle(d.worker)
}

// releaseEnded frees the slot of an ended dispatch when the worker sends the outcome. It returns
// the tools whose slots change. d may be nil. Called with Pool.mu.
func (d *dispatch) releaseEnded(t arcp.Type) []string {
	if d == nil || !d.ended || !isOutcome(t) {
		return nil
	}
	d.release()
	return d.agent.executes
}

// serve applies the frames of the worker until the dispatch ends. The error is a *refusal,
// tool.ErrLost, the error of the worker, or the reason for the end of the attempt.
func (d *dispatch) serve(ctx context.Context) (arcp.Raw, error) {
	var questions context.Context
	questions, d.stop = context.WithCancel(ctx)
	o := d.loop(ctx, questions)
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

// loop returns the outcome of the dispatch. questions is the context of the questions of the worker.
func (d *dispatch) loop(ctx, questions context.Context) *result {
	answerTimer := time.NewTimer(d.pool.reconnectTimeout)
	defer answerTimer.Stop()
	done := ctx.Done()
	resumed := make(chan struct{}, 1)
	var interrupted <-chan struct{}
	if d.interruptible {
		interrupted = d.job.Interrupted()
	}
	for {
		select {
		case <-d.wake:
			if o := d.handle(questions); o != nil {
				return o
			}
		case <-done:
			done = nil
			if o := ended(ctx); o != nil {
				return o
			}
			d.sendControl(d.cancel(context.Cause(ctx).Error())) // the worker may still send an outcome
		case <-d.attempt().Ended():
			if failure := d.attempt().Failure(); failure != nil {
				return withdrawn(failure)
			}
			return withdrawn(errEnded)
		case <-answerTimer.C:
			o, wait := d.checkAnswered()
			if o != nil {
				return o
			}
			if wait > 0 {
				answerTimer.Reset(wait)
			}
		case <-interrupted:
			interrupted = nil
			d.pool.background(func() { d.pause(questions, resumed) })
		case <-resumed:
			interrupted = d.job.Interrupted()
		}
	}
}

// ended returns the result of a dispatch whose context has ended; nil: the job is cancelled, and
// the worker may still send an outcome.
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
	env.JobID, env.CorrelationID = d.jobID, d.invoke.ID
	return env
}

// sendControl sends a cancel, an interrupt, or the answer that ends an interrupt. A worker that
// reconnects gets it again. An interrupt and its answer replace each other.
func (d *dispatch) sendControl(env arcp.Envelope) arcp.MessageID {
	d.pool.mu.Lock()
	defer d.pool.unlock()
	env.ID = arcp.NewMessageID()
	if env.Type != arcp.Cancel {
		d.controls = slices.DeleteFunc(d.controls, func(e arcp.Envelope) bool { return e.Type != arcp.Cancel })
	}
	d.controls = append(d.controls, env)
	d.deliver(env)
	return env.ID
}

// deliver sends an envelope to the worker. It reports false if the worker has no connection or
// the dispatch has ended. Called with Pool.mu.
func (d *dispatch) deliver(env arcp.Envelope) (sent bool) {
	if d.worker.conn == nil || d.ended {
		return false
	}
	d.send(env)
	return true
}

// send sends an envelope to the worker, which has a connection, when Pool.mu is unlocked.
// Called with Pool.mu.
func (d *dispatch) send(env arcp.Envelope) {
	d.worker.conn.Expect(bytesOf(&env))
	d.pool.outgoing = append(d.pool.outgoing, delivery{d.worker.conn, env})
}

// checkAnswered returns a refusal for a worker that has not answered in time, or the time until
// the next check; 0: the worker has answered. For a worker without a connection the time begins
// when it reconnects.
func (d *dispatch) checkAnswered() (o *result, wait time.Duration) {
	d.pool.mu.Lock()
	defer d.pool.unlock()
	if d.answered {
		return nil, 0
	}
	if d.worker.conn == nil {
		return nil, d.pool.reconnectTimeout
	}
	if left := d.pool.reconnectTimeout - time.Since(d.sentAt); left > 0 {
		return nil, left
	}
	return &result{label: metrics.DispatchRefused,
		err: &refusal{arcp.Errorf(arcp.CodeUnavailable, "the worker did not take the job within %v", d.pool.reconnectTimeout)}}, 0
}

// finish ends the dispatch. A worker that has sent no outcome gets a cancel, and is busy until it
// sends one. Its open questions are answered with the error of the dispatch.
func (d *dispatch) finish(o *result) {
	p, label := d.pool, o.label
	p.mu.Lock()
	p.cfg.Metrics.WorkerDispatches.WithLabelValues(label).Inc()
	unfinished := !d.hasOutcome && d.lost == ""
	d.answerQuestions(o.err)
	if unfinished {
		d.deliver(d.cancel("the attempt is over"))
	}
	if label != metrics.DispatchLost { // the limit of a lost attempt stays paused until it ends
		d.setWait(nil)
	}
	d.ended = true
	if d.agent.live[d.ref]--; d.agent.live[d.ref] <= 0 {
		delete(d.agent.live, d.ref)
	}
	if p.byJob[d.jobID] == d {
		delete(p.byJob, d.jobID)
	}
	frames := d.frames
	d.frames, d.controls = nil, nil
	d.questions.drop()
	if !unfinished {
		d.release()
	}
	refs := d.agent.executes
	p.unlock()
	for _, f := range frames {
		f.done()
	}
	p.updateSlots(refs)
}
