package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
)

// cancelTimeout bounds the wait for the end of a job that is cancelled: by then the
// runtime waits for its tool no longer.
const cancelTimeout = 60 * time.Second

// call runs a job there for one here.
func (s *Source) call(ctx context.Context, job tool.Job, ref string, args arcp.Raw) (arcp.Raw, error) {
	c := s.current()
	if c == nil {
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the program %s does not run at the moment", s.cfg.Name).RetryAfter(1)
	}
	alive, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	k := s.calls.begin(job)
	defer s.calls.end(k)
	var watching sync.WaitGroup
	watching.Go(func() { k.watch(ctx, alive, giveUp, c) })
	value, err := k.run(alive, c, &client.InvokeRequest{ID: k.request, Tool: ref, Arguments: args, IdempotencyKey: string(job.ID()), TraceID: job.TraceID()})
	giveUp()
	watching.Wait()
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return value, nil
}

// run submits the job there and follows it to its end.
func (k *call) run(ctx context.Context, c *client.Client, r *client.InvokeRequest) (arcp.Raw, error) {
	there, err := c.Invoke(ctx, *r)
	if err != nil {
		return nil, err
	}
	defer there.Release() // if it is given up; it is not subscribed to, so that nothing is sent
	return k.follow(ctx, there)
}

// watch hands a cancel on, if need be when the job is accepted there. A job that
// stops because this runtime does goes on there, and is found again by its key.
func (k *call) watch(ctx, alive context.Context, giveUp context.CancelFunc, c *client.Client) {
	select {
	case <-alive.Done():
		return
	case <-ctx.Done():
	}
	defer giveUp()
	asked, ok := errors.AsType[*arcp.Error](context.Cause(ctx))
	if !ok {
		return
	}
	bounded, stop := context.WithTimeout(alive, cancelTimeout)
	defer stop()
	select {
	case <-k.accepted:
	case <-bounded.Done():
		return
	}
	if c.Cancel(bounded, client.CancelParams{JobID: k.there, Reason: asked.Message}) != nil {
		return // it has ended, or cannot be told
	}
	<-bounded.Done()
}

// follow relays what the job there says, and returns its result.
func (k *call) follow(ctx context.Context, there *client.Job) (arcp.Raw, error) {
	for ev, err := range there.Events(ctx) {
		if err != nil { // the outcome says why, unless there was too much
			if errors.Is(err, client.ErrEventBufferFull) {
				k.lose(true)
			}
			break
		}
		if ev.JobID == "" || ev.JobID == k.there { // not of a job that it has called
			relay(&ev, k.job)
		}
		if counts(&ev) {
			k.release(sizeOf(&ev))
		}
	}
	if k.hasLost() {
		_ = k.job.Log("warn", "events of the program were lost: it says more than can be kept", nil) // the job may have ended
	}
	result, err := there.Wait(ctx)
	switch {
	case err != nil:
		return nil, err
	case result.ResultID != "":
		return k.whole(&result.JobCompletedPayload)
	case result.ResultRef != nil:
		return nil, arcp.Errorf(arcp.CodeUnimplemented, "the result is an artifact of the program, which stays there")
	}
	return result.Value, nil
}

// relay makes an event here of one there. One that is refused is left out, and it
// is said so; the outcome is what counts.
func relay(ev *client.Event, job tool.Job) {
	if err := pass(ev, job); err != nil {
		_ = job.Log(arcp.LevelWarn, fmt.Sprintf("%s of the program was left out: %s", ev.Type, err), nil) // the job may have ended
	}
}

func pass(ev *client.Event, job tool.Job) error {
	switch ev.Type {
	case arcp.Log:
		if p, err := arcp.DecodePayload[arcp.LogPayload](ev); err == nil {
			var attributes any
			if len(p.Attributes) > 0 {
				attributes = p.Attributes
			}
			return job.Log(p.Level, p.Message, attributes)
		}
	case arcp.JobProgress:
		if p, err := arcp.DecodePayload[arcp.JobProgressPayload](ev); err == nil {
			return job.Progress(p)
		}
	case arcp.Metric:
		// What is left of its budget there is nothing that was measured.
		if p, err := arcp.DecodePayload[arcp.MetricPayload](ev); err == nil && !strings.HasPrefix(p.Name, "cost.budget.") {
			return job.Metric(p)
		}
	case arcp.EventEmit:
		if p, err := arcp.DecodePayload[arcp.EventEmitPayload](ev); err == nil {
			return job.Emit(p.Name, p.Data)
		}
	}
	return nil
}

// failure is the error of a job here for one of the job there.
func (s *Source) failure(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*arcp.Error](err); ok {
		return e
	}
	if e := jobError(err); e != nil {
		return &arcp.Error{Code: e.Code, Message: e.Message, Retryable: e.Retryable, Details: e.Details, Cause: e.Cause}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.cfg.Log.Warn().Err(err).Str("source", s.Name()).Msg("a job is given up")
	return arcp.Errorf(arcp.CodeAborted, "the session with the program %s ended while the job ran there; what came of it is not known", s.cfg.Name)
}

// jobError is what the program says of the job; nil if it says nothing of it, but
// of the session.
func jobError(err error) *client.RemoteError {
	e, ok := errors.AsType[*client.RemoteError](err)
	if !ok || errors.Is(err, client.ErrSessionLost) || errors.Is(err, client.ErrConnectionLost) || strings.HasPrefix(string(e.Type), "session.") {
		return nil
	}
	return e
}
