package client

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// InvokeParams is a job to submit.
type InvokeParams struct {
	Tool           string // name or name@version
	Arguments      any    // encoded with arcp.Marshal; an arcp.Raw is sent unchanged; nil: {}
	IdempotencyKey string
	TraceID        string // any text, or a W3C traceparent; empty: of Options.Traceparent
	Priority       arcp.Priority
	Options        arcp.SubmitOptions

	// JobID is the parent of the new job: a running job of this worker.
	JobID arcp.JobID
	// ID is the id of the envelope; empty: a new id. The runtime executes an id once.
	ID arcp.MessageID
	// DiscardEvents drops the events of the job: only Job.Wait is useful.
	DiscardEvents bool
}

// Event is a message of a job or of a feed.
type Event = arcp.Envelope

// Result is the outcome of a job that succeeded.
type Result struct {
	arcp.JobCompletedPayload
	Envelope arcp.Envelope // the final message
}

// Job is a handle of a submitted or followed job. It is safe for concurrent use.
type Job struct {
	c       *Client
	request arcp.MessageID // id of the submit; empty: followed by a subscription
	queue   *queue         // nil: events are discarded
	decided chan struct{}  // closed when the job is accepted, refused or ended
	donec   chan struct{}  // closed at the end

	id arcp.JobID // guarded by Client.mu; set once

	mu           sync.Mutex
	accepted     arcp.JobAcceptedPayload
	subscription arcp.JobSubscribedPayload
	isDecided    bool
	isDone       bool
	result       Result
	err          error // nil if the job succeeded
	writers      map[arcp.StreamID]*StreamWriter
}

func newJob(c *Client, id arcp.JobID) *Job {
	return &Job{c: c, id: id, decided: make(chan struct{}), donec: make(chan struct{}),
		queue: newQueue(c.opts.Limits.EventBuffer, c.opts.Limits.EventBytes)}
}

// Invoke submits a job and waits until it is accepted. A refusal is a *RemoteError. A job with
// Options.Direct is not accepted: Invoke returns at once, and Job.Wait returns a refusal.
//
// After the end of ctx the job may exist nevertheless. A submit with the same IdempotencyKey returns it.
func (c *Client) Invoke(ctx context.Context, r InvokeParams) (*Job, error) {
	env, err := r.envelope()
	if err != nil {
		return nil, err
	}
	if env.TraceID == "" && c.opts.Traceparent != nil {
		env.TraceID, env.SpanID, _ = arcp.ParseTraceparent(c.opts.Traceparent(ctx))
	}
	return c.submit(ctx, env, r.DiscardEvents, r.Options.Direct)
}

func (p *InvokeParams) envelope() (arcp.Envelope, error) {
	args := arcp.Raw("{}")
	if p.Arguments != nil {
		var err error
		if args, err = arcp.Marshal(p.Arguments); err != nil {
			return arcp.Envelope{}, fmt.Errorf("invoke %s: encode arguments: %w", p.Tool, err)
		}
	}
	payload, err := arcp.Marshal(arcp.ToolInvokePayload{Tool: p.Tool, Arguments: args, SubmitOptions: p.Options})
	if err != nil {
		return arcp.Envelope{}, fmt.Errorf("invoke %s: %w", p.Tool, err)
	}
	return arcp.Envelope{Type: arcp.ToolInvoke, ID: p.ID, JobID: p.JobID, IdempotencyKey: p.IdempotencyKey,
		TraceID: p.TraceID, Priority: p.Priority, Payload: payload}, nil
}

// Submit sends a command that is answered with job.accepted, such as agent.delegate, and waits
// until the job is accepted. A refusal is a *RemoteError.
func (c *Client) Submit(ctx context.Context, env arcp.Envelope) (*Job, error) {
	return c.submit(ctx, env, false, false)
}

func (c *Client) submit(ctx context.Context, env arcp.Envelope, discard, direct bool) (*Job, error) {
	if env.ID == "" {
		env.ID = arcp.NewMessageID()
	}
	j := newJob(c, "")
	j.request = env.ID
	if discard {
		j.queue = nil
	}
	if err := c.follow(j); err != nil {
		return nil, fmt.Errorf("%s: %w", env.Type, err)
	}
	err := c.send(ctx, &env, true)
	if err == nil && !direct {
		err = j.awaitDecision(ctx)
	}
	if err != nil {
		j.unfollow()
		return nil, fmt.Errorf("%s: %w", env.Type, err)
	}
	return j, nil
}

// awaitDecision waits until the job was accepted or refused.
func (j *Job) awaitDecision(ctx context.Context) error {
	select {
	case <-j.decided:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.isDone && j.accepted.JobID == "" && j.result.Envelope.Type == "" {
		return j.err
	}
	return nil
}

// ID returns the job's id; empty only for a direct job that has not ended.
func (j *Job) ID() arcp.JobID {
	j.c.mu.Lock()
	defer j.c.mu.Unlock()
	return j.id
}

// RequestID returns the id of the message that submitted the job; empty for a
// subscription.
func (j *Job) RequestID() arcp.MessageID { return j.request }

// Accepted returns the payload of job.accepted.
func (j *Job) Accepted() arcp.JobAcceptedPayload {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.accepted
}

// Subscribed returns the payload of job.subscribed.
func (j *Job) Subscribed() arcp.JobSubscribedPayload {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.subscription
}

// Events iterates over the messages of the job, from job.accepted to the final message. An earlier end
// has an error: the error of ctx or of the connection, ErrReleased, or ErrEventBufferFull. A second
// iteration continues after the last message of the first.
func (j *Job) Events(ctx context.Context) iter.Seq2[Event, error] {
	if j.queue == nil {
		return func(func(Event, error) bool) {}
	}
	return j.queue.all(ctx)
}

// Done returns a channel that is closed when the outcome is known.
func (j *Job) Done() <-chan struct{} { return j.donec }

// Wait waits for the outcome of the job. A failed or cancelled job has a *JobError. A job that the session has
// handed over has a *HandedOverError. The events need not be read.
func (j *Job) Wait(ctx context.Context) (Result, error) {
	select {
	case <-j.donec:
	case <-ctx.Done():
		select {
		case <-j.donec:
		default:
			return Result{}, fmt.Errorf("wait for job: %w", context.Cause(ctx))
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.result, j.err
}

// Release stops following the job, which continues: Events and Wait end with ErrReleased. Releasing
// the last subscription to a job also ends the subscription at the runtime.
func (j *Job) Release() error {
	j.mu.Lock()
	done := j.isDone
	j.mu.Unlock()
	if done {
		return nil
	}
	j.endWithError(ErrReleased)
	j.unfollow()
	if j.request != "" || j.subscribed() {
		return nil
	}
	return j.c.Send(arcp.Frame(arcp.JobUnsubscribe, arcp.JobUnsubscribePayload{JobID: j.ID()}))
}

// receive handles a message of the job. The reader calls it with every message, in order.
func (j *Job) receive(env *arcp.Envelope) {
	if env.Type == arcp.Nack && !j.isEndedBy(env) {
		j.c.opts.Log("nack of an accepted job", "job", env.JobID)
		return
	}
	if env.Type == arcp.JobAccepted && !j.accept(env) {
		return
	}
	if env.Type == arcp.StreamError && env.EventSeq == 0 && j.endWriter(env) {
		return
	}
	if j.queue != nil && !j.queue.push(env) {
		j.c.opts.Log("event buffer full", "job", env.JobID)
	}
	if to := j.handedOverTo(env); to != "" {
		j.unfollow()
		j.endWithError(&HandedOverError{j.ID(), to})
		return
	}
	if env.Type.Terminal() || env.Type == arcp.Nack {
		j.acceptedAs(env.JobID)
		j.unfollow()
		j.endWithMessage(env)
	}
}

// handedOverTo returns the session to which this one has handed over the job, which it has submitted; empty:
// the message says no such thing.
func (j *Job) handedOverTo(env *arcp.Envelope) arcp.SessionID {
	const name = `{"name":"handoff"`
	if j.request == "" || env.Type != arcp.EventEmit || !bytes.HasPrefix(env.Payload, []byte(name)) {
		return ""
	}
	var p struct {
		Data arcp.Handoff `json:"data"`
	}
	if err := arcp.Unmarshal(env.Payload, &p); err != nil {
		j.c.opts.Log("decode the event handoff", "error", err)
	}
	if p.Data.From != j.c.Session().ID {
		return ""
	}
	return p.Data.To
}

// isEndedBy reports whether a nack can be the answer to the submit, or the end of a subscription, which
// answers no message.
func (j *Job) isEndedBy(nack *arcp.Envelope) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.request == "" {
		return nack.CorrelationID == ""
	}
	return !j.isDecided
}

// accept reports whether job.accepted is new. A repeated command is answered again.
func (j *Job) accept(env *arcp.Envelope) bool {
	p, err := arcp.DecodePayload[arcp.JobAcceptedPayload](env)
	if err != nil {
		j.c.opts.Log("decode job.accepted", "error", err)
	}
	if p.JobID == "" {
		p.JobID = env.JobID
	}
	j.acceptedAs(p.JobID)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.accepted.JobID != "" {
		return false
	}
	j.accepted = p
	j.markDecidedLocked()
	return true
}

// markDecidedLocked ends awaitDecision: the job was accepted or refused, or has ended.
func (j *Job) markDecidedLocked() {
	if !j.isDecided {
		j.isDecided = true
		j.c.out.answered(j.request)
		close(j.decided)
	}
}

// endWithMessage ends the handle with the outcome in the final message.
func (j *Job) endWithMessage(env *arcp.Envelope) {
	result, err := j.outcome(env)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.endLocked(result, err, endError{})
}

func (j *Job) outcome(env *arcp.Envelope) (Result, error) {
	result := Result{Envelope: *env}
	remote := RemoteErrorOf(env)
	switch {
	case env.Type == arcp.Nack: // the end of a subscription is not the end of the job
		return Result{}, remote
	case remote != nil && !j.wasAccepted() && env.Type != arcp.ToolError && env.Type != arcp.JobCancelled:
		return Result{}, remote
	case remote != nil && env.Type == arcp.JobCancelled:
		return result, &JobError{env.JobID, arcp.StateCancelled, remote}
	case remote != nil:
		return result, &JobError{env.JobID, arcp.StateFailed, remote}
	}
	var err error
	if result.JobCompletedPayload, err = arcp.DecodePayload[arcp.JobCompletedPayload](env); err != nil {
		return result, &ProtocolError{string(env.Type), err}
	}
	return result, nil
}

// wasAccepted reports whether the job existed before its final message. If not, a failure is a
// refusal.
func (j *Job) wasAccepted() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.request == "" || j.accepted.JobID != ""
}

// endWithError ends the handle without an outcome.
func (j *Job) endWithError(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.endLocked(Result{}, err, err)
}

// endLocked sets the results of Wait, and the error events that ends Events. Only the first call has
// an effect.
func (j *Job) endLocked(result Result, err, events error) {
	if j.isDone {
		return
	}
	j.isDone, j.result, j.err = true, result, err
	j.markDecidedLocked()
	if j.queue != nil {
		j.queue.finish(events)
	}
	close(j.donec)
}
