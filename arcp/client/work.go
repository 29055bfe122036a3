package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/backoff"
)

// WorkerConfig configures a worker.
type WorkerConfig struct {
	ID          string // id of the agent; empty: chosen by the runtime
	Name        string // for people; default: the kind of the client
	Kind        string // default "worker"
	Concurrency int    // jobs that run at the same time; default 1
	Tools       []WorkerTool

	// Grace is the time that running jobs have to end after the context of Work; default
	// 10 s, negative: none.
	Grace time.Duration
}

// WorkerTool is a tool that a worker executes.
type WorkerTool struct {
	Ref string // name@version

	// Description is the entry of the tool in capabilities.tools (§7.8), with members such
	// as input_schema and recovery. It is encoded with arcp.Marshal; nil: none.
	Description any

	// Handle performs one attempt of a job. An *arcp.Error is reported unchanged, any other
	// error as UNKNOWN with its text. ctx ends with the attempt, and the result is then
	// ignored. The cause of a cancellation is an *arcp.Error.
	Handle func(ctx context.Context, call *WorkerCall) (result any, err error)
}

// ErrNotWorker is the error of Work in a session without the capability executes: its principal does
// not have the role worker, or Options.Capabilities disables executes.
var ErrNotWorker = errors.New("the session cannot execute jobs: " +
	"its principal needs the role worker, and Options.Capabilities must not disable executes")

// ErrReplaced is the error of Work if another program has replaced the agent. A new Work registers the tools
// again, which the runtime refuses while the other program describes them differently.
var ErrReplaced = errors.New("another program has replaced the agent of the worker: it is given no jobs any more")

// Work registers an agent and executes the jobs that the runtime assigns to it, until ctx or the client
// ends. Each job runs on its own goroutine, and Work sends its heartbeats. With Connect, Work continues
// over later connections: jobs run while the connection is down, and their outcomes are sent later. A
// client runs one Work at a time. Work repeats a registration that is refused with a retryable error, for
// example while a killed worker may return to its jobs; Options.Log has the refusals.
//
// A later program with the same tools may replace the agent while the session has no connection. Work then
// returns an error that is ErrReplaced when the session is resumed.
//
// When ctx ends, Work accepts no more jobs, waits at most Grace for running jobs, and returns the cause
// of ctx.
func (c *Client) Work(ctx context.Context, cfg WorkerConfig) error {
	if c.opts.Dialect == arcp.DialectDraft {
		return &UnsupportedError{Feature: "workers"}
	}
	if caps := c.Session().Capabilities; !caps.Has(arcp.FeatureExecutes) {
		return ErrNotWorker
	}
	w := &worker{c: c, cfg: cfg.withDefaults(c), tools: make(map[string]*WorkerTool), running: make(map[arcp.MessageID]*WorkerCall),
		resumedc: make(chan struct{}, 1)}
	args, err := w.registration()
	if err != nil {
		return err
	}
	if !c.worker.CompareAndSwap(nil, w) {
		return errors.New("Work is running already")
	}
	defer c.worker.Store(nil)
	id, err := w.register(ctx, args)
	if err != nil {
		return fmt.Errorf("register worker: %w", err)
	}
	ctx, replaced := context.WithCancelCause(ctx)
	defer replaced(nil)
	w.handlers.Go(func() { w.checkAgent(ctx, id, replaced) })
	w.heartbeats(ctx.Done())
	return w.stop(ctx, id)
}

// checkAgent calls replaced with ErrReplaced if a resumed session does not own the agent any more.
func (w *worker) checkAgent(ctx context.Context, id string, replaced func(error)) {
	for {
		select {
		case <-w.resumedc:
		case <-ctx.Done():
			return
		case <-w.c.donec:
			return
		}
		var owned bool
		err := w.repeat(ctx, "look for the agent of the worker", func() (err error) {
			owned, err = w.ownsAgent(ctx, id)
			return err
		})
		switch {
		case err == nil && !owned:
			replaced(fmt.Errorf("agent %s: %w", id, ErrReplaced))
		case err != nil && ctx.Err() == nil && w.c.Err() == nil:
			w.c.opts.Log("look for the agent of the worker", "error", err)
		}
	}
}

// ownsAgent reports whether the session owns the agent.
func (w *worker) ownsAgent(ctx context.Context, id string) (bool, error) {
	var page struct {
		Items []struct {
			Session arcp.SessionID `json:"session_id"`
			EndedAt string         `json:"ended_at"`
		} `json:"items"`
	}
	if err := w.call(ctx, "host.agents", map[string]any{"agent_id": id}, &page); err != nil {
		return false, err
	}
	for _, a := range page.Items {
		if a.Session == w.c.Session().ID {
			return a.EndedAt == "", nil
		}
	}
	return false, nil
}

// call calls a tool and decodes its result.
func (w *worker) call(ctx context.Context, tool string, args, result any) error {
	job, err := w.c.Invoke(ctx, InvokeParams{Tool: tool, Arguments: args, DiscardEvents: true})
	if err != nil {
		return err
	}
	r, err := job.Wait(ctx)
	if err != nil {
		return err
	}
	return arcp.Unmarshal(r.Value, result)
}

// repeat repeats a call after retryable refusals, and returns its last error.
func (w *worker) repeat(ctx context.Context, purpose string, call func() error) error {
	delays := backoff.Backoff{Policy: backoff.Policy{Min: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.5}}
	for {
		err := call()
		if refusal, ok := errors.AsType[*RemoteError](err); !ok || !refusal.Retryable || ctx.Err() != nil {
			return err
		}
		w.c.opts.Log(purpose+"; it is repeated", "error", err)
		if err := backoff.Sleep(ctx, delays.Next()); err != nil {
			return err
		}
	}
}

// resumed is called when the session has a connection again. It does not block.
func (w *worker) resumed() {
	select {
	case w.resumedc <- struct{}{}:
	default: // the check has not begun
	}
}

func (cfg WorkerConfig) withDefaults(c *Client) WorkerConfig {
	cfg.Name = cmp.Or(cfg.Name, c.opts.Client.Kind)
	cfg.Kind = cmp.Or(cfg.Kind, "worker")
	cfg.Concurrency = max(cfg.Concurrency, 1)
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	return cfg
}

// worker is the state of a running Work.
type worker struct {
	c        *Client
	cfg      WorkerConfig
	tools    map[string]*WorkerTool
	handlers sync.WaitGroup // running
	resumedc chan struct{}  // has an element when the session was resumed

	mu      sync.Mutex
	running map[arcp.MessageID]*WorkerCall // by id of the tool.invoke; includes calls with an unacknowledged outcome
	ending  bool
}

func (w *worker) registration() (map[string]any, error) {
	descriptions := make(map[string]any)
	var refs []string
	for i := range w.cfg.Tools {
		t := &w.cfg.Tools[i]
		if t.Handle == nil || t.Ref == "" {
			return nil, errors.New("register worker: a tool needs a Ref and a Handle")
		}
		if t.Description != nil {
			descriptions[t.Ref] = t.Description
		}
		w.tools[t.Ref] = t
		refs = append(refs, t.Ref)
	}
	args := map[string]any{"name": w.cfg.Name, "kind": w.cfg.Kind, "executes": refs, "concurrency": w.cfg.Concurrency,
		"capabilities": map[string]any{"tools": descriptions}}
	if w.cfg.ID != "" {
		args["id"] = w.cfg.ID
	}
	return args, nil
}

// register registers the agent. It repeats the registration after retryable refusals.
func (w *worker) register(ctx context.Context, args map[string]any) (id string, err error) {
	var agent struct {
		ID string `json:"id"`
	}
	err = w.repeat(ctx, "register worker", func() error { return w.call(ctx, "host.register_agent", args, &agent) })
	return agent.ID, err
}

// defaultHeartbeat is the interval if the runtime announces none.
const defaultHeartbeat = 30 * time.Second

// heartbeats sends heartbeats of the running jobs until the channel until is closed or the client ends.
func (w *worker) heartbeats(until <-chan struct{}) {
	interval := cmp.Or(w.c.Session().Heartbeat, defaultHeartbeat)
	t := time.NewTicker(max(interval/2, time.Millisecond)) // twice an interval: one may be late
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

// heartbeatAll sends a heartbeat for each call. Without a connection it does nothing.
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

// stop unregisters the agent if the session still exists, and waits for the handlers.
func (w *worker) stop(ctx context.Context, id string) error {
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	done := make(chan struct{})
	go func() { w.handlers.Wait(); close(done) }()
	err := context.Cause(ctx)
	if ended := w.c.Err(); ended != nil {
		err = ended
	} else if !errors.Is(err, ErrReplaced) {
		w.unregister(id)
		w.wait(done)
	}
	w.cancelAll(err)
	<-done
	return err
}

// wait sends heartbeats until the handlers have returned or the grace period has ended.
func (w *worker) wait(done <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), max(w.cfg.Grace, 0))
	defer cancel()
	go func() { <-done; cancel() }()
	w.heartbeats(ctx.Done())
}

// unregisterTimeout bounds the unregistration. The end of the session also unregisters the agent.
const unregisterTimeout = 5 * time.Second

func (w *worker) unregister(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), unregisterTimeout)
	defer cancel()
	job, err := w.c.Invoke(ctx, InvokeParams{Tool: "host.unregister_agent", Arguments: map[string]string{"agent_id": id}, DiscardEvents: true})
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

// receive reports whether the message is for the worker. Only the reader calls it.
func (w *worker) receive(env *arcp.Envelope) bool {
	switch env.Type {
	case arcp.ToolInvoke:
		w.dispatch(env)
		return true
	case arcp.Cancel:
		p, _ := arcp.DecodePayload[arcp.CancelPayload](env) // an invalid payload has no reason
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

// heartbeatRefused cancels the call whose heartbeat the runtime refused. The attempt does not belong to
// this session any more.
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
			_ = arcp.Unmarshal(env.Payload, &p) // an invalid payload has no guidance
			call.resume(p.Value.Guidance)
			return true
		}
	}
	return false
}

// dispatch accepts or refuses a job. A repeated dispatch is acknowledged again, because the runtime
// may not have received the first acknowledgement.
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
		w.answer(env, arcp.Nack, arcp.Errorf(arcp.CodeUnavailable, "the worker is stopping"))
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
	w.handlers.Go(func() { call.run(tool.Handle) })
}

// supersede cancels an earlier attempt of a job that is dispatched again. The runtime does not wait for
// its outcome. The caller holds w.mu.
func (w *worker) supersede(job arcp.JobID) {
	for _, call := range w.running {
		if call.JobID == job && !call.done {
			call.drop("the job was assigned again")
		}
	}
}

// busy reports whether Concurrency calls run. The caller holds w.mu.
func (w *worker) busy() bool {
	n := 0
	for _, call := range w.running {
		if !call.done {
			n++
		}
	}
	return n >= w.cfg.Concurrency
}

// answer sends an answer without waiting, because the reader calls it.
func (w *worker) answer(env *arcp.Envelope, t arcp.Type, payload any) {
	answer := arcp.Frame(t, payload)
	answer.JobID, answer.CorrelationID = env.JobID, env.ID
	w.c.stamp(&answer)
	w.c.out.putNow(&answer)
}
