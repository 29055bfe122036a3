package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/tool"
)

// hear deals with what the worker has said; nil: the attempt goes on.
func (d *dispatch) hear(ctx context.Context) *outcomeOf {
	d.p.mu.Lock()
	frames, gone := d.frames, d.gone
	d.frames = nil
	d.p.unlock()
	var o *outcomeOf
	for _, f := range frames {
		if o == nil {
			o = d.relay(ctx, f.env)
		} else {
			d.unserved = append(d.unserved, f.env)
		}
		f.done()
	}
	if o == nil && gone != "" {
		return &outcomeOf{result: metrics.DispatchLost, err: fmt.Errorf("%w: %s", tool.ErrLost, gone)}
	}
	return o
}

// relay does what one frame says. What cannot be done is said to the worker.
func (d *dispatch) relay(ctx context.Context, env *arcp.Envelope) *outcomeOf {
	switch env.Type {
	case arcp.Ack: // all that it says is known: see Receive
		return nil
	case arcp.Nack, arcp.ToolError:
		return d.failed(env)
	case arcp.ToolResult:
		return d.completed(env)
	}
	r, ok := relays[env.Type]
	if !ok {
		d.answer(env.ID, arcp.Nack, arcp.Errorf(arcp.CodeUnimplemented, "%s of a worker is not offered by this runtime", env.Type))
		return nil
	}
	err := r(d, ctx, env)
	switch {
	case errors.Is(err, tool.ErrPaused):
		return withdrawn(err)
	case err != nil:
		d.answer(env.ID, arcp.Nack, refusalOf(err))
	}
	return nil
}

// relays is what there is a way for.
var relays = map[arcp.Type]func(*dispatch, context.Context, *arcp.Envelope) error{
	arcp.JobProgress:        (*dispatch).progress,
	arcp.JobCheckpoint:      (*dispatch).checkpoint,
	arcp.Log:                on((*dispatch).log),
	arcp.Metric:             on((*dispatch).metric),
	arcp.EventEmit:          on((*dispatch).event),
	arcp.PermissionRequest:  asking((*dispatch).permit),
	arcp.HumanInputRequest:  asking((*dispatch).input),
	arcp.HumanChoiceRequest: asking((*dispatch).choose),
	arcp.ToolInvoke:         asking((*dispatch).call),
}

// on makes a relay of a function and infers the payload from it.
func on[P any](f func(*dispatch, P) error) func(*dispatch, context.Context, *arcp.Envelope) error {
	return func(d *dispatch, _ context.Context, env *arcp.Envelope) error {
		p, err := decode[P](env)
		if err != nil {
			return err
		}
		return f(d, p)
	}
}

// decode reads a payload that must have all its required members.
func decode[P any](env *arcp.Envelope) (P, error) {
	p, err := arcp.DecodePayload[P](env)
	if err != nil {
		return p, arcp.Errorf(arcp.CodeInvalidRequest, "%s: %s", env.Type, err)
	}
	if name := arcp.Missing(env.Payload, p); name != "" {
		return p, arcp.Errorf(arcp.CodeInvalidRequest, "%s: payload member %q is required", env.Type, name)
	}
	return p, nil
}

// refusalOf is an error of a job as it is said to its worker.
func refusalOf(err error) *arcp.Error {
	e, _ := arcp.AsError(err)
	return e
}

// progress takes percent alone for current of 100.
func (d *dispatch) progress(_ context.Context, env *arcp.Envelope) error {
	p, err := arcp.DecodePayload[arcp.JobProgressPayload](env)
	if err != nil {
		return arcp.Errorf(arcp.CodeInvalidRequest, "%s: %s", env.Type, err)
	}
	switch {
	case arcp.Missing(env.Payload, p) == "":
	case p.Percent == nil || p.Total != nil:
		return arcp.Errorf(arcp.CodeInvalidRequest, "%s: payload member %q is required, or percent alone", env.Type, "current")
	default:
		p.Current, p.Total = *p.Percent, new(100.0)
	}
	return d.job.Progress(p)
}

func (d *dispatch) metric(p arcp.MetricPayload) error   { return d.job.Metric(p) }
func (d *dispatch) event(p arcp.EventEmitPayload) error { return d.job.Emit(p.Name, p.Data) }
func (d *dispatch) log(p arcp.LogPayload) error {
	return d.job.Log(p.Level, p.Message, p.Attributes)
}

// checkpoint is acknowledged when it is durable: the id is the runtime's.
func (d *dispatch) checkpoint(_ context.Context, env *arcp.Envelope) error {
	p, err := arcp.DecodePayload[arcp.JobCheckpointPayload](env)
	if err != nil {
		return arcp.Errorf(arcp.CodeInvalidRequest, "%s: %s", env.Type, err)
	}
	if err := d.job.Checkpoint(p.Label, p.Data); err != nil {
		return err
	}
	d.answer(env.ID, arcp.Ack, arcp.AckPayload{})
	return nil
}

// completed takes the result.
func (d *dispatch) completed(env *arcp.Envelope) *outcomeOf {
	d.answer(env.ID, arcp.Ack, arcp.AckPayload{})
	p, err := arcp.DecodePayload[arcp.ToolResultPayload](env)
	switch {
	case err != nil:
		return &outcomeOf{result: metrics.DispatchError, err: arcp.Errorf(arcp.CodeInternal, "the worker's result cannot be read: %s", err)}
	case p.ResultRef != nil:
		return &outcomeOf{result: metrics.DispatchError, err: arcp.Errorf(arcp.CodeUnimplemented, "a worker's result_ref is not offered by this runtime")}
	}
	return &outcomeOf{result: metrics.DispatchOK, value: p.Value}
}

// failed takes an error: before the job was taken it is for another worker.
func (d *dispatch) failed(env *arcp.Envelope) *outcomeOf {
	e, err := arcp.DecodePayload[arcp.Error](env)
	if err != nil || e.Code == "" {
		e = *arcp.Errorf(arcp.CodeUnavailable, "the worker failed without saying why")
	}
	d.p.mu.Lock()
	refused := env.Type == arcp.Nack && !d.taken
	d.p.unlock()
	if refused {
		return &outcomeOf{result: metrics.DispatchRefused, err: &refusal{&e}}
	}
	if env.Type == arcp.ToolError {
		d.answer(env.ID, arcp.Ack, arcp.AckPayload{})
	}
	if e.Code == arcp.CodeCancelled {
		return withdrawn(&e)
	}
	return &outcomeOf{result: metrics.DispatchError, err: &e}
}

// answer answers a frame of the worker. Of one that has no connection nobody
// waits for it.
func (d *dispatch) answer(to arcp.MessageID, t arcp.Type, payload any) {
	env := arcp.Frame(t, payload)
	env.JobID, env.CorrelationID = d.jobID, to
	d.p.mu.Lock()
	defer d.p.unlock()
	d.deliver(env)
}

// pause has the worker stop while a client's interrupt is not answered, and go on
// with what the answer says.
func (d *dispatch) pause(ctx context.Context, resumed chan<- struct{}) {
	env := arcp.Frame(arcp.Interrupt, arcp.InterruptPayload{Target: arcp.TargetJob, TargetID: string(d.jobID),
		Prompt: "stop at the next safe point and wait for the answer"})
	env.JobID, env.CorrelationID = d.jobID, d.id
	id := d.stand(env)
	guidance, err := d.job.Yield(ctx)
	if err != nil {
		return // it is cancelled, or over
	}
	value, err := arcp.Marshal(struct {
		Action   string `json:"action"`
		Guidance string `json:"guidance,omitzero"`
	}{"continue", guidance})
	if err != nil { // two texts
		panic("worker: guidance: " + err.Error())
	}
	env = arcp.Frame(arcp.HumanInputResponse, arcp.HumanInputResponsePayload{Value: value, RespondedAt: time.Now().UTC()})
	env.JobID, env.CorrelationID = d.jobID, id
	d.stand(env) // in place of the interrupt
	resumed <- struct{}{}
}
