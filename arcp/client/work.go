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

// WorkerConfig is what a worker does for whom.
type WorkerConfig struct {
	ID          string // of the agent; empty: the runtime makes one
	Name        string // for people; default the client's kind
	Kind        string // default "worker"
	Concurrency int    // jobs at once; default 1
	Tools       []WorkerTool

	// Grace is how long jobs may go on when the context of Work has ended, before
	// theirs do; default 10 s, negative: not at all.
	Grace time.Duration
}

// WorkerTool is a tool that a worker executes.
type WorkerTool struct {
	Ref string // name@version

	// About says more of it: the members of capabilities.tools (SPEC.md §7.8), such
	// as input_schema and recovery; nil: nothing. It is encoded with arcp.Marshal.
	About any

	// Handle does one attempt of a job. An error that is an *arcp.Error is reported
	// as it is, any other as UNKNOWN with its text. ctx ends when the attempt does,
	// whatever Handle returns then.
	Handle func(ctx context.Context, call *WorkerCall) (result any, err error)
}

// ErrNotWorker is for a session that cannot be given jobs: its principal has not the
// role worker, or Options.Capabilities say that the client does not execute.
var ErrNotWorker = errors.New("the session cannot be given jobs: its principal needs the role worker, and the client must not have taken back the capability executes")

// Work registers an agent and does the jobs that it is given, each on a goroutine
// of its own, until ctx or the client ends. It sends their heartbeats. With Connect
// it goes on over another connection: jobs go on meanwhile, and what came of them is
// said then. There is one Work at a time for a client.
//
// When ctx ends, no more jobs are taken, those that run get Grace to end, and the
// error is the cause of ctx.
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
	w.beat(ctx)
	return w.leave(ctx, id)
}

func (cfg WorkerConfig) withDefaults(c *Client) WorkerConfig {
	cfg.Name = cmp.Or(cfg.Name, c.opts.Client.Kind)
	cfg.Kind = cmp.Or(cfg.Kind, "worker")
	cfg.Concurrency = max(cfg.Concurrency, 1)
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	return cfg
}

// worker is a Work under way.
type worker struct {
	c     *Client
	cfg   WorkerConfig
	tools map[string]*WorkerTool
	group sync.WaitGroup // of handlers

	mu      sync.Mutex
	running map[arcp.MessageID]*WorkerCall // by dispatch; also those whose outcome was not acknowledged
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

// defaultBeat is for a runtime that announces no interval.
const defaultBeat = 30 * time.Second

// beat sends the heartbeats of what runs until ctx or the client ends.
func (w *worker) beat(ctx context.Context) {
	interval := cmp.Or(w.c.Session().Heartbeat, defaultBeat)
	t := time.NewTicker(max(interval/2, time.Millisecond)) // one may be late
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.beatAll()
		case <-ctx.Done():
			return
		case <-w.c.donec:
			return
		}
	}
}

// beatAll sends a heartbeat for each call. Nothing waits for one: when there is no
// room, or no connection, there is no hurry either.
func (w *worker) beatAll() {
	w.c.mu.Lock()
	down := w.c.down
	w.c.mu.Unlock()
	if down {
		return
	}
	w.mu.Lock()
	calls := make([]*WorkerCall, 0, len(w.running))
	for _, call := range w.running {
		if !call.said && !call.manual {
			calls = append(calls, call)
		}
	}
	w.mu.Unlock()
	for _, call := range calls {
		call.Heartbeat()
	}
}

// leave ends the work: in order if the session is there.
func (w *worker) leave(ctx context.Context, id string) error {
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

func (w *worker) wait(done <-chan struct{}) {
	grace := time.NewTimer(max(w.cfg.Grace, 0))
	defer grace.Stop()
	beats := time.NewTicker(max(cmp.Or(w.c.Session().Heartbeat, defaultBeat)/2, time.Millisecond))
	defer beats.Stop()
	for {
		select {
		case <-done:
			return
		case <-beats.C:
			w.beatAll()
		case <-grace.C:
			return
		case <-w.c.donec:
			return
		}
	}
}

// unregisterTimeout bounds the farewell: the session's end says it, too.
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

// take reports whether a message is for the worker. Only the reader calls it.
func (w *worker) take(env *arcp.Envelope) bool {
	switch env.Type {
	case arcp.ToolInvoke:
		w.dispatch(env)
		return true
	case arcp.Cancel:
		p, _ := arcp.DecodePayload[arcp.CancelPayload](env) // that it is cancelled is enough
		return w.with(env.CorrelationID, func(call *WorkerCall) {
			call.cancel(arcp.Errorf(arcp.CodeCancelled, "%s", cmp.Or(p.Reason, "cancelled")))
		})
	case arcp.Interrupt:
		return w.with(env.CorrelationID, func(call *WorkerCall) { call.interrupt(env.ID) })
	case arcp.HumanInputResponse:
		return w.resume(env)
	case arcp.Nack:
		return w.disowned(env)
	}
	return false
}

// disowned cancels the call whose heartbeat the runtime has refused because the
// attempt is not the session's any more.
func (w *worker) disowned(env *arcp.Envelope) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.running {
		if call.beat != "" && call.beat == env.CorrelationID {
			if e, _ := arcp.DecodePayload[arcp.Error](env); e.Code == arcp.CodeFailedPrecondition {
				call.drop(e.Message)
			}
			return true
		}
	}
	return false
}

func (w *worker) with(dispatch arcp.MessageID, f func(*WorkerCall)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	call := w.running[dispatch]
	if call != nil {
		f(call)
	}
	return call != nil
}

// resume has a call go on that was interrupted by the message that this answers.
func (w *worker) resume(env *arcp.Envelope) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.running {
		if call.halted != "" && call.halted == env.CorrelationID {
			var p struct {
				Value struct {
					Guidance string `json:"guidance"`
				} `json:"value"`
			}
			_ = arcp.Unmarshal(env.Payload, &p) // no guidance is none
			call.resume(p.Value.Guidance)
			return true
		}
	}
	return false
}

// dispatch takes a job, or refuses it. One that is given again is acknowledged
// again: the runtime may not have heard it.
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

// supersede cancels what is left of an attempt of a job that is given again: the
// runtime does not wait for it. Called with w.mu.
func (w *worker) supersede(job arcp.JobID) {
	for _, call := range w.running {
		if call.JobID == job && !call.said {
			call.drop("the job was given again")
		}
	}
}

// busy reports whether as many calls run as may. Called with w.mu.
func (w *worker) busy() bool {
	n := 0
	for _, call := range w.running {
		if !call.said {
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
	w.c.out.putAnyway(&answer)
}
