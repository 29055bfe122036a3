package worker

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/tool"
)

// handle applies the received frames. A nil result means that the dispatch continues.
func (d *dispatch) handle(ctx context.Context) *result {
	d.pool.mu.Lock()
	frames, lost := d.frames, d.lost
	d.frames = nil
	d.pool.unlock()
	var o *result
	for _, f := range frames {
		if o == nil {
			o = d.relay(ctx, f.env)
		} else {
			d.unhandled = append(d.unhandled, f.env)
		}
		f.done()
	}
	if o == nil && lost != "" {
		return &result{label: metrics.DispatchLost, err: lossError(lost)}
	}
	return o
}

// relay applies one frame. An error is the answer to the worker.
func (d *dispatch) relay(ctx context.Context, env *arcp.Envelope) *result {
	switch env.Type {
	case arcp.Ack: // applied by Receive
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

// relays apply frames to the job, by type.
var relays = map[arcp.Type]func(*dispatch, context.Context, *arcp.Envelope) error{
	arcp.JobProgress:        (*dispatch).progress,
	arcp.JobCheckpoint:      (*dispatch).checkpoint,
	arcp.Log:                onPayload((*dispatch).log),
	arcp.Metric:             onPayload((*dispatch).metric),
	arcp.TraceSpan:          onPayload((*dispatch).span),
	arcp.EventEmit:          onPayload((*dispatch).event),
	arcp.PermissionRequest:  onQuestion(questionRelay.permit),
	arcp.HumanInputRequest:  onQuestion(questionRelay.input),
	arcp.HumanChoiceRequest: onQuestion(questionRelay.choose),
	arcp.ToolInvoke:         onQuestion(questionRelay.call),
	arcp.AgentDelegate:      onQuestion(questionRelay.delegate),
	arcp.StreamOpen:         onContent(questionRelay.openStream),
	arcp.StreamChunk:        onContent(questionRelay.streamChunk),
	arcp.StreamClose:        onContent(questionRelay.closeStream),
	arcp.StreamError:        onContent(questionRelay.failStream),
	arcp.JobResultChunk:     onContent(questionRelay.resultChunk),
	arcp.ArtifactPut:        (*dispatch).putArtifact,
	arcp.ArtifactFetch:      onArtifact(questionRelay.fetchArtifact),
}

// onPayload returns a relay that decodes the payload for f.
func onPayload[P any](f func(*dispatch, P) error) func(*dispatch, context.Context, *arcp.Envelope) error {
	return func(d *dispatch, _ context.Context, env *arcp.Envelope) error {
		p, err := decode[P](env)
		if err != nil {
			return err
		}
		return f(d, p)
	}
}

// decode decodes a payload and checks its required members.
func decode[P any](env *arcp.Envelope) (P, error) {
	p, err := arcp.DecodePayload[P](env)
	if err != nil {
		return p, arcp.Errorf(arcp.CodeInvalidRequest, "%s: %s", env.Type, err)
	}
	if name := arcp.MissingMember(env.Payload, p); name != "" {
		return p, arcp.Errorf(arcp.CodeInvalidRequest, "%s: payload member %q is required", env.Type, name)
	}
	return p, nil
}

// refusalOf returns an error of a job as the answer to its worker.
func refusalOf(err error) *arcp.Error {
	e, _ := arcp.AsError(err)
	return e
}

// progress reads percent alone as current of 100.
func (d *dispatch) progress(_ context.Context, env *arcp.Envelope) error {
	p, err := arcp.DecodePayload[arcp.JobProgressPayload](env)
	if err != nil {
		return arcp.Errorf(arcp.CodeInvalidRequest, "%s: %s", env.Type, err)
	}
	switch {
	case arcp.MissingMember(env.Payload, p) == "":
	case p.Percent == nil || p.Total != nil:
		return arcp.Errorf(arcp.CodeInvalidRequest, "%s: payload member %q is required, or percent alone", env.Type, "current")
	default:
		p.Current, p.Total = *p.Percent, new(100.0)
	}
	return d.job.Progress(p)
}

func (d *dispatch) metric(p arcp.MetricPayload) error   { return d.job.Metric(p) }
func (d *dispatch) span(p arcp.TraceSpanPayload) error  { return d.job.EmitSpan(p) }
func (d *dispatch) event(p arcp.EventEmitPayload) error { return d.job.Emit(p.Name, p.Data) }
func (d *dispatch) log(p arcp.LogPayload) error {
	return d.job.Log(p.Level, p.Message, p.Attributes)
}

// checkpoint sends an ack when the checkpoint is durable.
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

// completed returns the result of the worker.
func (d *dispatch) completed(env *arcp.Envelope) *result {
	d.answer(env.ID, arcp.Ack, arcp.AckPayload{})
	p, err := arcp.DecodePayload[arcp.ToolResultPayload](env)
	switch {
	case err != nil:
		return &result{label: metrics.DispatchError, err: arcp.Errorf(arcp.CodeInternal, "the worker's result cannot be read: %s", err)}
	case p.ResultRef != nil:
		return &result{label: metrics.DispatchError,
			err: arcp.Errorf(arcp.CodeUnimplemented, "a worker's result_ref is not offered by this runtime")}
	}
	if err := d.closeResult(p.Summary); err != nil {
		return &result{label: metrics.DispatchError, err: err}
	}
	return &result{label: metrics.DispatchOK, value: p.Value}
}

// failed returns the error of the worker. A nack before an ack is a refusal.
func (d *dispatch) failed(env *arcp.Envelope) *result {
	e, err := arcp.DecodePayload[arcp.Error](env)
	if err != nil || e.Code == "" {
		e = *arcp.Errorf(arcp.CodeUnavailable, "the worker failed without a reason")
	}
	d.pool.mu.Lock()
	refused := env.Type == arcp.Nack && !d.accepted
	d.pool.unlock()
	if refused {
		return &result{label: metrics.DispatchRefused, err: &refusal{&e}}
	}
	if env.Type == arcp.ToolError {
		d.answer(env.ID, arcp.Ack, arcp.AckPayload{})
	}
	if e.Code == arcp.CodeCancelled {
		return withdrawn(&e)
	}
	return &result{label: metrics.DispatchError, err: &e}
}

// answer sends an answer to a frame of the worker. It is dropped if the worker has no connection.
func (d *dispatch) answer(to arcp.MessageID, t arcp.Type, payload any) {
	env := arcp.Frame(t, payload)
	env.JobID, env.CorrelationID = d.jobID, to
	d.pool.mu.Lock()
	defer d.pool.unlock()
	d.deliver(env)
}

// pause interrupts the worker until the interrupt of a client is answered, and sends the worker the
// guidance of the answer.
func (d *dispatch) pause(ctx context.Context, resumed chan<- struct{}) {
	env := arcp.Frame(arcp.Interrupt, arcp.InterruptPayload{Target: arcp.TargetJob, TargetID: string(d.jobID),
		Prompt: "stop at the next safe point and wait for the answer"})
	env.JobID, env.CorrelationID = d.jobID, d.invoke.ID
	id := d.sendControl(env)
	guidance, err := d.job.Yield(ctx)
	if err != nil {
		return // the job is cancelled, or the dispatch has ended
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
	d.sendControl(env) // replaces the interrupt
	resumed <- struct{}{}
}
