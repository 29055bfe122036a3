package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// WorkerCall is one attempt of a job in its worker. It is safe for concurrent use until the handler
// returns. Messages are sent in the order of the calls. An error means that the attempt or the client
// has ended.
type WorkerCall struct {
	JobID     arcp.JobID
	Tool      string // name@version
	Arguments arcp.Raw
	Attempt   uint32
	TraceID   string
	SpanID    string    // span of the job
	Lease     arcp.Raw  // lease of the job; nil: no permissions
	Deadline  time.Time // zero: none
	Restored  arcp.Raw  // data of the checkpoint to continue from; nil: none

	w        *worker
	dispatch arcp.MessageID
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// Guarded by worker.mu.
	interruptID    arcp.MessageID // open interrupt; empty: none
	interrupted    chan struct{}  // closed while an interrupt is open
	resumed        chan struct{}  // closed by the answer to the interrupt
	guidance       string
	heartbeat      arcp.MessageID // id of the latest heartbeat
	heartbeatCount uint64
	manual         bool // the handler sends the heartbeats
	done           bool // the outcome is sent, or the runtime does not wait for it any more
}

func newWorkerCall(w *worker, env *arcp.Envelope, p *arcp.ToolInvokePayload) *WorkerCall {
	call := &WorkerCall{JobID: env.JobID, Tool: p.Tool, Arguments: p.Arguments, Attempt: p.Attempt, TraceID: env.TraceID, SpanID: env.SpanID, Lease: p.Lease,
		Deadline: p.Deadline, w: w, dispatch: env.ID, interrupted: make(chan struct{}), resumed: make(chan struct{})}
	if p.Checkpoint != nil {
		call.Restored = p.Checkpoint.Data
	}
	call.ctx, call.cancel = context.WithCancelCause(w.c.life)
	return call
}

// run executes the attempt and sends its outcome.
func (call *WorkerCall) run(handle func(context.Context, *WorkerCall) (any, error)) {
	defer call.cancel(nil)
	env := call.outcome(call.try(handle))
	call.w.mu.Lock()
	call.done = true
	call.w.mu.Unlock()
	// Ignore an error: after the end of the session no answer arrives.
	if answer, err := call.w.c.Call(call.w.c.life, env); err == nil && answer.Type == arcp.Nack {
		call.w.c.opts.Log("outcome of a job refused", "job", call.JobID, "error", RemoteErrorOf(&answer))
	}
	call.w.mu.Lock()
	defer call.w.mu.Unlock()
	delete(call.w.running, call.dispatch)
}

func (call *WorkerCall) try(handle func(context.Context, *WorkerCall) (any, error)) (result any, err error) {
	defer func() {
		if v := recover(); v != nil {
			result, err = nil, arcp.Errorf(arcp.CodeInternal, "the worker's handler panicked: %v", v)
		}
	}()
	return handle(call.ctx, call)
}

// outcome returns the final message of the attempt.
func (call *WorkerCall) outcome(result any, err error) arcp.Envelope {
	if r, ok := result.(WorkerResult); ok && err == nil {
		return call.frame(arcp.ToolResult, arcp.ToolResultPayload{Summary: r.Summary})
	}
	if err == nil {
		var raw arcp.Raw
		if raw, err = arcp.Marshal(result); err == nil {
			return call.frame(arcp.ToolResult, arcp.ToolResultPayload{Value: raw})
		}
		err = fmt.Errorf("the result cannot be encoded: %w", err)
	}
	return call.frame(arcp.ToolError, errorOf(call.ctx, err))
}

// errorOf returns the error of a handler in its wire form. For a cancelled attempt it returns the
// cancellation.
func errorOf(ctx context.Context, err error) *arcp.Error {
	if cancelled, ok := errors.AsType[*arcp.Error](context.Cause(ctx)); ok {
		return cancelled
	}
	if e, ok := errors.AsType[*arcp.Error](err); ok {
		return e
	}
	if failed, ok := errors.AsType[*JobError](err); ok { // failure of a child job
		return &arcp.Error{Code: failed.Code, Message: failed.Message, Retryable: failed.Retryable, Details: failed.Details}
	}
	if ctx.Err() != nil {
		return arcp.Errorf(arcp.CodeUnavailable, "the worker ended")
	}
	return arcp.Errorf(arcp.CodeUnknown, "%s", err)
}

// frame returns a message about the attempt.
func (call *WorkerCall) frame(t arcp.Type, payload any) arcp.Envelope {
	env := arcp.Frame(t, payload)
	env.JobID, env.CorrelationID = call.JobID, call.dispatch
	return env
}

// Event sends an event of the job: log, job.progress, metric, trace.span or event.emit. It fails after the end
// of the attempt.
func (call *WorkerCall) Event(t arcp.Type, payload any) error {
	if call.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", t, context.Cause(call.ctx))
	}
	raw, err := arcp.Marshal(payload)
	if err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	env := arcp.Envelope{Type: t, JobID: call.JobID, CorrelationID: call.dispatch, Payload: raw}
	return call.w.c.send(call.ctx, &env, false)
}

// Log emits a log event.
func (call *WorkerCall) Log(level, message string, attributes any) error {
	p := arcp.LogPayload{Level: level, Message: message}
	if attributes != nil {
		raw, err := arcp.Marshal(attributes)
		if err != nil {
			return fmt.Errorf("log: %w", err)
		}
		p.Attributes = raw
	}
	return call.Event(arcp.Log, p)
}

// Progress reports the progress of the job.
func (call *WorkerCall) Progress(p arcp.JobProgressPayload) error {
	return call.Event(arcp.JobProgress, p)
}

// Metric emits a measurement. A name that begins with "cost." debits the budget of the job.
func (call *WorkerCall) Metric(p arcp.MetricPayload) error { return call.Event(arcp.Metric, p) }

// Span emits a span that has ended. The runtime refuses one without name and ids.
func (call *WorkerCall) Span(p arcp.TraceSpanPayload) error { return call.Event(arcp.TraceSpan, p) }

// Emit emits a named event.
func (call *WorkerCall) Emit(name string, data any) error {
	raw, err := arcp.Marshal(data)
	if err != nil {
		return fmt.Errorf("event.emit: %w", err)
	}
	return call.Event(arcp.EventEmit, arcp.EventEmitPayload{Name: name, Data: raw})
}

// Checkpoint stores data as a checkpoint and returns when it is durable. The next attempt receives
// data as Restored.
func (call *WorkerCall) Checkpoint(ctx context.Context, label string, data any) error {
	raw, err := arcp.Marshal(data)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	_, err = call.ask(ctx, arcp.JobCheckpoint, arcp.JobCheckpointPayload{Label: label, Data: raw}, arcp.Ack)
	return err
}

// WorkerStream is a stream of the job that a worker writes. One goroutine uses it.
type WorkerStream struct {
	ID arcp.StreamID // by which clients know the stream

	call *WorkerCall
	id   arcp.StreamID // by which the worker names it
	next uint64
}

// OpenStream opens a stream of the job. A job with too many open streams is a *RemoteError.
func (call *WorkerCall) OpenStream(ctx context.Context, p arcp.StreamOpenPayload) (*WorkerStream, error) {
	st := &WorkerStream{call: call, id: arcp.StreamID(arcp.NewID(arcp.StreamPrefix))}
	env, err := st.send(ctx, arcp.StreamOpen, p)
	st.ID = env.StreamID
	return st, err
}

// Chunk appends a chunk and numbers it. It returns when the runtime has taken the chunk, for which it may
// wait while a client slows the stream.
func (st *WorkerStream) Chunk(ctx context.Context, p arcp.StreamChunkPayload) error {
	p = withSidecar(st.call.w.c, p)
	p.Sequence = st.next
	if _, err := st.send(ctx, arcp.StreamChunk, p); err != nil {
		return err
	}
	st.next++
	return nil
}

// Close ends the stream.
func (st *WorkerStream) Close(ctx context.Context) error {
	_, err := st.send(ctx, arcp.StreamClose, st.end())
	return err
}

func (st *WorkerStream) end() (p arcp.StreamClosePayload) {
	if st.next > 0 {
		p.FinalSequence = new(st.next - 1)
	}
	return p
}

// CloseWithError ends the stream with an error.
func (st *WorkerStream) CloseWithError(ctx context.Context, e *arcp.Error) error {
	_, err := st.send(ctx, arcp.StreamError, e)
	return err
}

func (st *WorkerStream) send(ctx context.Context, t arcp.Type, payload any) (arcp.Envelope, error) {
	return st.request(ctx, t, payload, arcp.Ack)
}

func (st *WorkerStream) request(ctx context.Context, t arcp.Type, payload any, want arcp.Type) (arcp.Envelope, error) {
	ctx, stop := mergedContext(ctx, st.call.ctx)
	defer stop()
	env := st.call.frame(t, payload)
	env.StreamID = st.id
	return st.call.w.c.request(ctx, env, want, nil)
}

// ResultChunk appends a part of the result of the job, and returns when the runtime has taken it. The
// parts have one ResultID and one Encoding and are numbered from 0; the last one has no More, and the
// handler then returns a WorkerResult.
func (call *WorkerCall) ResultChunk(ctx context.Context, p arcp.JobResultChunkPayload) error {
	_, err := call.ask(ctx, arcp.JobResultChunk, p, arcp.Ack)
	return err
}

// WorkerResult ends a result that the handler has sent with WorkerCall.ResultChunk. The handler returns it
// in place of a value.
type WorkerResult struct {
	Summary string // for people
}

// Ask asks a person for a value. A question without an answer is a *RemoteError.
func (call *WorkerCall) Ask(ctx context.Context, p arcp.HumanInputRequestPayload) (arcp.HumanInputResponsePayload, error) {
	env, err := call.ask(ctx, arcp.HumanInputRequest, p, arcp.HumanInputResponse)
	if err != nil {
		return arcp.HumanInputResponsePayload{}, err
	}
	return arcp.DecodePayload[arcp.HumanInputResponsePayload](&env)
}

// Choose asks a person to choose an option. A question without an answer is a *RemoteError.
func (call *WorkerCall) Choose(ctx context.Context, p arcp.HumanChoiceRequestPayload) (arcp.HumanChoiceResponsePayload, error) {
	env, err := call.ask(ctx, arcp.HumanChoiceRequest, p, arcp.HumanChoiceResponse)
	if err != nil {
		return arcp.HumanChoiceResponsePayload{}, err
	}
	return arcp.DecodePayload[arcp.HumanChoiceResponsePayload](&env)
}

// Permit requests a permission that is not in the lease of the job. A denial is an *arcp.Error with
// the code PERMISSION_DENIED.
func (call *WorkerCall) Permit(ctx context.Context, p arcp.PermissionRequestPayload) (arcp.PermissionGrantPayload, error) {
	env, err := call.ask(ctx, arcp.PermissionRequest, p, arcp.PermissionGrant)
	if err != nil && env.Type == arcp.PermissionDeny {
		deny, _ := arcp.DecodePayload[arcp.PermissionDenyPayload](&env) // an invalid payload has no reason
		return arcp.PermissionGrantPayload{}, arcp.Errorf(arcp.CodePermissionDenied, "%s", deny.Reason)
	}
	if err != nil {
		return arcp.PermissionGrantPayload{}, err
	}
	return arcp.DecodePayload[arcp.PermissionGrantPayload](&env)
}

// Invoke submits a child job within the lease of this job. It sets JobID, and DiscardEvents because
// a worker receives no events: only Job.Wait is of use.
func (call *WorkerCall) Invoke(ctx context.Context, r InvokeParams) (*Job, error) {
	r.JobID, r.DiscardEvents = call.JobID, true
	return call.w.c.Invoke(ctx, r)
}

// Call is Invoke and Job.Wait. The error of a failed child is a *JobError.
func (call *WorkerCall) Call(ctx context.Context, r InvokeParams) (arcp.Raw, error) {
	job, err := call.Invoke(ctx, r)
	if err != nil {
		return nil, err
	}
	result, err := job.Wait(ctx)
	return result.Value, err
}

// ask sends a request and waits for the answer, over as many connections as needed.
func (call *WorkerCall) ask(ctx context.Context, t arcp.Type, payload any, want arcp.Type) (arcp.Envelope, error) {
	ctx, stop := mergedContext(ctx, call.ctx)
	defer stop()
	return call.w.c.request(ctx, call.frame(t, payload), want, nil)
}

// mergedContext returns a context that ends with a or b.
func mergedContext(a, b context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(a)
	undo := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() { undo(); cancel(nil) }
}

// Interrupted returns a channel that is closed while a client interrupts the job. After each Yield
// a new channel is used.
func (call *WorkerCall) Interrupted() <-chan struct{} {
	call.w.mu.Lock()
	defer call.w.mu.Unlock()
	return call.interrupted
}

// Yield waits while a client interrupts the job, and returns the guidance in the answer.
// Interruptible tools call Yield at points where they can pause.
func (call *WorkerCall) Yield(ctx context.Context) (guidance string, err error) {
	for {
		call.w.mu.Lock()
		interruptID, resumed := call.interruptID, call.resumed
		guidance, call.guidance = call.guidance, ""
		call.w.mu.Unlock()
		if interruptID == "" {
			return guidance, context.Cause(call.ctx)
		}
		select {
		case <-resumed:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-call.ctx.Done():
			return "", context.Cause(call.ctx)
		}
	}
}

// ManualHeartbeat makes the handler responsible for the heartbeats of the job. It must then call
// Heartbeat at least once in each interval.
func (call *WorkerCall) ManualHeartbeat() {
	call.w.mu.Lock()
	defer call.w.mu.Unlock()
	call.manual = true
}

// Heartbeat sends a heartbeat of the job. A heartbeat without a connection or with a full send
// buffer is dropped.
func (call *WorkerCall) Heartbeat() {
	call.w.mu.Lock()
	defer call.w.mu.Unlock()
	call.heartbeatCount++
	env := call.frame(arcp.JobHeartbeat, arcp.JobHeartbeatPayload{Sequence: call.heartbeatCount, State: string(arcp.StateRunning)})
	call.w.c.stamp(&env)
	call.heartbeat = env.ID
	_, _ = call.w.c.out.tryPut(&env, false) // the next heartbeat replaces a dropped one
}

// drop ends a call because the runtime does not wait for its outcome any more. The caller holds
// worker.mu.
func (call *WorkerCall) drop(reason string) {
	call.done = true
	call.cancel(arcp.Errorf(arcp.CodeCancelled, "%s", reason))
}

// interrupt opens an interrupt. The caller holds worker.mu.
func (call *WorkerCall) interrupt(id arcp.MessageID) {
	if call.interruptID == "" {
		close(call.interrupted)
		call.resumed = make(chan struct{})
	}
	call.interruptID = id
}

// resume closes the interrupt. The caller holds worker.mu.
func (call *WorkerCall) resume(guidance string) {
	if call.interruptID == "" {
		return
	}
	call.interruptID, call.guidance = "", guidance
	call.interrupted = make(chan struct{})
	close(call.resumed)
}
