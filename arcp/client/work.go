package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// WorkerConfig describes a worker.
type WorkerConfig struct {
	ID          string // of the agent; empty: the runtime makes one
	Name        string // for people; default the client's kind
	Kind        string // default "worker"
	Concurrency int    // jobs at once; default 1
	Tools       []WorkerTool

	// Grace is how long jobs may run after the end of the context of Work; default 10 s, negative:
	// not at all.
	Grace time.Duration
}

// WorkerTool is a tool that a worker executes.
type WorkerTool struct {
	Ref string // name@version

	// About describes the tool: the members of capabilities.tools (SPEC.md §7.8), such
	// as input_schema and recovery. It is encoded with arcp.Marshal; nil: nothing.
	About any

	// Handle does one attempt of a job. An *arcp.Error is reported as it is, any other
	// error as UNKNOWN with its text. ctx ends with the attempt, whose result is
	// ignored then; the cause of a cancellation is an *arcp.Error.
	Handle func(ctx context.Context, call *WorkerCall) (result any, err error)
}

// ErrNotWorker is the error of Work in a session that cannot be given jobs: its
// principal does not have the role worker, or Options.Capabilities take back executes.
var ErrNotWorker = errors.New("the session cannot be given jobs: its principal needs the role worker, and the client must not have taken back the capability executes")

// Work registers an agent and executes the jobs that the runtime assigns to it, each on a
// goroutine, until ctx or the client ends. It sends their heartbeats. With Connect it
// continues over later connections: jobs run meanwhile, and their outcomes are sent then. A
// client runs one Work at a time.
//
// When ctx ends, no more jobs are accepted, running ones get Grace to end, and the error is
// the cause of ctx.
func (c *Client) Work(ctx context.Context, cfg WorkerConfig) error {
	if caps := c.Session().Capabilities; !caps.Has(arcp.FeatureExecutes) {
		return ErrNotWorker
	}
	w := &worker{c: c, cfg: cfg.withDefaults(c), tools: make(map[string]*WorkerTool), running: make(map[arcp.MessageID]*WorkerCall)}
	args, err := w.registration()
	if err != nil {
		return err
	}
	if !c.worker.CompareAndSwap(nil, w) {
		return errors.New("the client works already")
	}
	defer c.worker.Store(nil)
	id, err := w.register(ctx, args)
	if err != nil {
		return fmt.Errorf("register worker: %w", err)
	}
	w.heartbeats(ctx.Done())
	return w.stop(ctx, id)
}

func (cfg WorkerConfig) withDefaults(c *Client) WorkerConfig {
	cfg.Name = cmp.Or(cfg.Name, c.opts.Client.Kind)
	cfg.Kind = cmp.Or(cfg.Kind, "worker")
	cfg.Concurrency = max(cfg.Concurrency, 1)
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	return cfg
}

// worker is a running Work.
type worker struct {
	c     *Client
	cfg   WorkerConfig
	tools map[string]*WorkerTool
	group sync.WaitGroup // of handlers

	mu      sync.Mutex
	running map[arcp.MessageID]*WorkerCall // by dispatch; also those whose outcome is not acknowledged
	ending  bool
}

func (w *worker) registration() (map[string]any, error) {
	about := make(map[string]any)
	var refs []string
	for i := range w.cfg.Tools {
		t := &w.cfg.Tools[i]
		if t.Handle == nil || t.Ref == "" {
			return nil, errors.New("register worker: a tool needs a Ref and a Handle")
		}
		if t.About != nil {
			about[t.Ref] = t.About
		}
		w.tools[t.Ref] = t
		refs = append(refs, t.Ref)
	}
	args := map[string]any{"name": w.cfg.Name, "kind": w.cfg.Kind, "executes": refs, "concurrency": w.cfg.Concurrency,
		"capabilities": map[string]any{"tools": about}}
	if w.cfg.ID != "" {
		args["id"] = w.cfg.ID
	}
	return args, nil
}

func (w *worker) register(ctx context.Context, args map[string]any) (id string, err error) {
	job, err := w.c.Invoke(ctx, InvokeRequest{Tool: "host.register_agent", Arguments: args, DiscardEvents: true})
	if err != nil {
		return "", err
	}
	r, err := job.Wait(ctx)
	if err != nil {
		return "", err
	}
	var agent struct {
		ID string `json:"id"`
	}
	err = arcp.Unmarshal(r.Value, &agent)
	return agent.ID, err
}

// defaultHeartbeat is for a runtime that announces no interval.
const defaultHeartbeat = 30 * time.Second

// heartbeats sends the heartbeats of running jobs until a channel is closed or the
// client ends.
func (w *worker) heartbeats(until <-chan struct{}) {
	interval := cmp.Or(w.c.Session().Heartbeat, defaultHeartbeat)
	t := time.NewTicker(max(interval/2, time.Millisecond)) // one may be late
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.heartbeatAll()
		case <-until:
			return
		case <-w.c.donec:
			return
		}
	}
}

// heartbeatAll sends a heartbeat for each call, unless there is no connection.
func (w *worker) heartbeatAll() {
	w.c.mu.Lock()
	down := w.c.down
	w.c.mu.Unlock()
	if down {
		return
	}
	w.mu.Lock()
	calls := make([]*WorkerCall, 0, len(w.running))
	for _, call := range w.running {
		if !call.done && !call.manual {
			calls = append(calls, call)
		}
	}
	w.mu.Unlock()
	for _, call := range calls {
		call.Heartbeat()
	}
}

// stop unregisters the agent if the session exists, and waits for the handlers.
func (w *worker) stop(ctx context.Context, id string) error {
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	done := make(chan struct{})
	go func() { w.group.Wait(); close(done) }()
	err := context.Cause(ctx)
	if ended := w.c.Err(); ended != nil {
		err = ended
	} else {
		w.unregister(id)
		w.wait(done)
	}
	w.cancelAll(err)
	<-done
	return err
}

// wait sends heartbeats until the handlers have returned, at most for the grace period.
func (w *worker) wait(done <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), max(w.cfg.Grace, 0))
	defer cancel()
	go func() { <-done; cancel() }()
	w.heartbeats(ctx.Done())
}

// unregisterTimeout bounds the unregistration: the end of the session implies it, too.
const unregisterTimeout = 5 * time.Second

func (w *worker) unregister(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), unregisterTimeout)
	defer cancel()
	job, err := w.c.Invoke(ctx, InvokeRequest{Tool: "host.unregister_agent", Arguments: map[string]string{"agent_id": id}, DiscardEvents: true})
	if err == nil {
		_, err = job.Wait(ctx)
	}
	if err != nil {
		w.c.opts.Log("unregister worker", "error", err)
	}
}

func (w *worker) cancelAll(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.running {
		call.cancel(err)
	}
}

// receive reports whether a message is for the worker. Only the reader calls it.
func (w *worker) receive(env *arcp.Envelope) bool {
	switch env.Type {
	case arcp.ToolInvoke:
		w.dispatch(env)
		return true
	case arcp.Cancel:
		p, _ := arcp.DecodePayload[arcp.CancelPayload](env) // an unreadable reason is none
		return w.withCall(env.CorrelationID, func(call *WorkerCall) {
			call.cancel(arcp.Errorf(arcp.CodeCancelled, "%s", cmp.Or(p.Reason, "cancelled")))
		})
	case arcp.Interrupt:
		return w.withCall(env.CorrelationID, func(call *WorkerCall) { call.interrupt(env.ID) })
	case arcp.HumanInputResponse:
		return w.resume(env)
	case arcp.Nack:
		return w.heartbeatRefused(env)
	}
	return false
}

// heartbeatRefused cancels the call whose heartbeat the runtime has refused because the
// attempt does not belong to the session any more.
func (w *worker) heartbeatRefused(env *arcp.Envelope) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.running {
		if call.heartbeat != "" && call.heartbeat == env.CorrelationID {
			if e, _ := arcp.DecodePayload[arcp.Error](env); e.Code == arcp.CodeFailedPrecondition {
				call.drop(e.Message)
			}
			return true
		}
	}
	return false
}

func (w *worker) withCall(dispatch arcp.MessageID, f func(*WorkerCall)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	call := w.running[dispatch]
	if call != nil {
		f(call)
	}
	return call != nil
}

// resume resumes the call whose interrupt the message answers.
func (w *worker) resume(env *arcp.Envelope) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.running {
		if call.interruptID != "" && call.interruptID == env.CorrelationID {
			var p struct {
				Value struct {
					Guidance string `json:"guidance"`
				} `json:"value"`
			}
			_ = arcp.Unmarshal(env.Payload, &p) // an unreadable guidance is none
			call.resume(p.Value.Guidance)
			return true
		}
	}
	return false
}

// dispatch accepts a job, or refuses it. A repeated dispatch is acknowledged again: the
// runtime may not have received the first acknowledgement.
func (w *worker) dispatch(env *arcp.Envelope) {
	p, err := arcp.DecodePayload[arcp.ToolInvokePayload](env)
	w.mu.Lock()
	defer w.mu.Unlock()
	tool := w.tools[p.Tool]
	switch call := w.running[env.ID]; {
	case call != nil:
		w.answer(env, arcp.Ack, arcp.AckPayload{})
		return
	case err != nil:
		w.answer(env, arcp.Nack, arcp.Errorf(arcp.CodeInvalidRequest, "tool.invoke: %s", err))
		return
	case tool == nil:
		w.answer(env, arcp.Nack, arcp.Errorf(arcp.CodeUnimplemented, "the worker does not execute %s", p.Tool))
		return
	case w.ending || w.c.life.Err() != nil:
		w.answer(env, arcp.Nack, arcp.Errorf(arcp.CodeUnavailable, "the worker is about to end"))
		return
	}
	w.supersede(env.JobID)
	if w.busy() {
		w.answer(env, arcp.Nack, arcp.Errorf(arcp.CodeResourceExhausted, "the worker is busy"))
		return
	}
	call := newWorkerCall(w, env, &p)
	w.running[env.ID] = call
	w.answer(env, arcp.Ack, arcp.AckPayload{})
	w.group.Go(func() { call.run(tool.Handle) })
}

// supersede cancels an earlier attempt of a job that is dispatched again: the runtime
// does not wait for it. Called with w.mu.
func (w *worker) supersede(job arcp.JobID) {
	for _, call := range w.running {
		if call.JobID == job && !call.done {
			call.drop("the job was given again")
		}
	}
}

// busy reports whether Concurrency calls run. Called with w.mu.
func (w *worker) busy() bool {
	n := 0
	for _, call := range w.running {
		if !call.done {
			n++
		}
	}
	return n >= w.cfg.Concurrency
}

// answer is called by the reader, which must not wait.
func (w *worker) answer(env *arcp.Envelope, t arcp.Type, payload any) {
	answer := arcp.Frame(t, payload)
	answer.JobID, answer.CorrelationID = env.JobID, env.ID
	w.c.stamp(&answer)
	w.c.out.putNow(&answer)
}
