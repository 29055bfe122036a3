package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of what a worker asks for a job.
const (
	maxAsking   = 64       // questions and calls of a job that wait for an answer
	maxAnswers  = 64       // of a job that are kept for a worker that asks again under the same id
	maxKept     = 16 << 20 // bytes of answers kept for a session that asks again, and of those that wait for it
	maxAnswer   = 4 << 20  // bytes of a child's result: a frame carries it and more
	smallAnswer = 4 << 10  // bytes of one that is always given, as every refusal is
)

// asks is what a worker has asked for a job.
type asks struct {
	open    map[arcp.MessageID][]arcp.Envelope // what was answered so far
	settled []*cachedAnswers                   // the latest
	unsent  []arcp.Envelope                    // answers for when the worker comes back
	total   *answerCache
}

// answerCache holds answers of a session's dispatches, in case the worker asks again.
type answerCache struct {
	order   []*cachedAnswers // those that are large, the oldest first; some are not kept any more
	settled int              // bytes of them
	unsent  int              // bytes of those that wait for the worker
}

type cachedAnswers struct {
	id      arcp.MessageID
	answers []arcp.Envelope
	gone    bool // the answers are not kept any more
}

func size(answers []arcp.Envelope) (n int) {
	for i := range answers {
		n += len(answers[i].Payload)
	}
	return n
}

// keep keeps answers. The oldest give way when there is too much; that they were
// given stays known. Small ones are bounded by their number.
func (t *answerCache) keep(s *cachedAnswers) {
	n := size(s.answers)
	if n <= smallAnswer {
		return
	}
	t.settled += n
	for t.order = append(t.order, s); t.settled > maxKept; t.order = t.order[1:] {
		t.strip(t.order[0])
	}
	if len(t.order) > 2*maxKept/smallAnswer {
		t.order = slices.DeleteFunc(t.order, func(s *cachedAnswers) bool { return s.gone })
	}
}

func (t *answerCache) strip(s *cachedAnswers) {
	if n := size(s.answers); n > smallAnswer {
		t.settled -= n
	}
	s.answers, s.gone = nil, true
}

// begin notes a question; what was answered to it is not nil if it came before.
func (a *asks) begin(id arcp.MessageID) (before []arcp.Envelope, err *arcp.Error) {
	if said, again := a.open[id]; again {
		return append([]arcp.Envelope{}, said...), nil
	}
	for i := range a.settled {
		switch s := a.settled[i]; {
		case s.id != id:
		case s.gone:
			return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "it was answered before, and the answer is not kept any more: "+
				"at most %d bytes of answers are kept for a session", maxKept)
		default:
			return append([]arcp.Envelope{}, s.answers...), nil
		}
	}
	if len(a.open) >= maxAsking {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "%d questions and calls for the job wait for an answer", maxAsking).RetryAfter(1)
	}
	if a.open == nil {
		a.open = make(map[arcp.MessageID][]arcp.Envelope)
	}
	a.open[id] = nil
	return nil, nil
}

// questions are the types that wait for an answer.
var questions = map[arcp.Type]bool{arcp.PermissionRequest: true, arcp.HumanInputRequest: true, arcp.HumanChoiceRequest: true, arcp.ToolInvoke: true}

// refusals answer every question that is open with an error. A call whose child was
// accepted ends so.
func (a *asks) refusals(job arcp.JobID, err *arcp.Error) (list []arcp.Envelope) {
	for id, answers := range a.open {
		env := arcp.Frame(arcp.Nack, err)
		env.ID, env.JobID, env.CorrelationID = arcp.NewMessageID(), job, id
		if n := len(answers); n > 0 {
			if answers[n-1].Type != arcp.JobAccepted {
				continue // it was answered just now
			}
			env.Type, env.JobID = arcp.JobFailed, answers[n-1].JobID
		}
		list = append(list, env)
	}
	return list
}

// end notes that a question is answered.
func (a *asks) end(id arcp.MessageID) {
	answers, open := a.open[id]
	if !open {
		return
	}
	delete(a.open, id)
	s := &cachedAnswers{id: id, answers: answers}
	a.settled = append(a.settled, s)
	a.total.keep(s)
	if len(a.settled) > maxAnswers {
		a.total.strip(a.settled[0])
		a.settled = slices.Delete(a.settled, 0, 1)
	}
}

// hold keeps an answer for a worker that is away.
func (a *asks) hold(env arcp.Envelope) {
	a.unsent = append(a.unsent, env)
	a.total.unsent += len(env.Payload)
}

// held takes the answers that were kept for the worker.
func (a *asks) held() []arcp.Envelope {
	envs := a.unsent
	a.total.unsent -= size(envs)
	a.unsent = nil
	return envs
}

// drop forgets everything.
func (a *asks) drop() {
	a.held()
	for _, s := range a.settled {
		a.total.strip(s)
	}
	a.open, a.settled = nil, nil
}

// asking makes a relay of a function that takes its time, with a goroutine for
// each frame. A frame that comes again is answered again.
func asking[P any](f func(*dispatch, context.Context, arcp.MessageID, P) error) func(*dispatch, context.Context, *arcp.Envelope) error {
	return func(d *dispatch, ctx context.Context, env *arcp.Envelope) error {
		p, err := decode[P](env)
		if err != nil {
			return err
		}
		again, refused := d.repeat(env.ID)
		switch {
		case refused != nil:
			return refused
		case again:
			return nil
		}
		go func() {
			if err := f(d, ctx, env.ID, p); err != nil {
				d.reply(env.ID, arcp.Nack, d.jobID, refusalOf(err))
			}
			d.settle(env.ID)
		}()
		return nil
	}
}

// repeat begins a question, or says what was answered if it is one that came
// before.
func (d *dispatch) repeat(id arcp.MessageID) (again bool, err *arcp.Error) {
	d.p.mu.Lock()
	defer d.p.unlock()
	before, err := d.asks.begin(id)
	for _, env := range before {
		d.deliver(env)
	}
	return before != nil, err
}

func (d *dispatch) settle(id arcp.MessageID) {
	d.p.mu.Lock()
	defer d.p.unlock()
	d.asks.end(id)
}

// reply answers a question, also when the worker has to come back for it. A worker
// for which too much waits already is told so instead.
func (d *dispatch) reply(to arcp.MessageID, t arcp.Type, job arcp.JobID, payload any) {
	env := arcp.Frame(t, payload)
	if n := len(env.Payload); n > smallAnswer && d.waits()+n > maxKept {
		env = tooMuch(t, n)
	}
	d.p.mu.Lock()
	defer d.p.unlock()
	if d.over {
		return
	}
	env.ID, env.JobID, env.CorrelationID = arcp.NewMessageID(), job, to
	if _, open := d.asks.open[to]; open {
		d.asks.open[to] = append(d.asks.open[to], env)
	}
	if !d.deliver(env) {
		d.asks.hold(env)
	}
}

// waits returns how many bytes wait for the worker.
func (d *dispatch) waits() int {
	d.p.mu.Lock()
	conn, unsent := d.link.conn, d.link.answers.unsent
	d.p.unlock()
	if conn != nil {
		return conn.Queued()
	}
	return unsent
}

// tooMuch is in place of an answer of n bytes.
func tooMuch(t arcp.Type, n int) arcp.Envelope {
	err := arcp.Errorf(arcp.CodeResourceExhausted, "the answer, %s of %d bytes, is not given: more than %d bytes would wait for the worker, which does not read them", t, n, maxKept)
	err.Retryable = false
	if t == arcp.JobCompleted {
		return arcp.Frame(arcp.JobFailed, err)
	}
	return arcp.Frame(arcp.Nack, err)
}

func (d *dispatch) permit(ctx context.Context, id arcp.MessageID, p arcp.PermissionRequestPayload) error {
	ask := tool.PermissionAsk{Permission: p.Permission, Resource: p.Resource, Operation: p.Operation, Reason: p.Reason}
	if p.RequestedLeaseSeconds != nil {
		ask.For = time.Duration(min(*p.RequestedLeaseSeconds, maxLeaseSeconds)) * time.Second
	}
	l, err := d.job.Permissions().Request(ctx, ask)
	if e, ok := errors.AsType[*arcp.Error](err); ok && e.Code == arcp.CodePermissionDenied {
		d.reply(id, arcp.PermissionDeny, d.jobID, arcp.PermissionDenyPayload{Permission: p.Permission, Reason: e.Message})
		return nil
	}
	if err != nil {
		return err
	}
	d.reply(id, arcp.PermissionGrant, d.jobID, arcp.PermissionGrantPayload{Permission: l.Permission, Resource: l.Resource, Operation: l.Operation,
		LeaseSeconds: uint64(max(time.Until(l.ExpiresAt), 0).Round(time.Second) / time.Second)})
	return nil
}

// maxLeaseSeconds is more than any lease can have.
const maxLeaseSeconds = 366 * 24 * 3600

func (d *dispatch) input(ctx context.Context, id arcp.MessageID, p arcp.HumanInputRequestPayload) error {
	a, err := d.job.Ask(ctx, tool.InputAsk{Prompt: p.Prompt, Schema: p.ResponseSchema, Default: p.Default, Expires: until(p.ExpiresAt)})
	if err != nil {
		return err
	}
	d.reply(id, arcp.HumanInputResponse, d.jobID, arcp.HumanInputResponsePayload{Value: a.Value, RespondedBy: a.RespondedBy, RespondedAt: a.At.UTC()})
	return nil
}

// until is how long a question may wait; one that is late expires at once.
func until(t time.Time) time.Duration { return max(time.Until(t), 1) }

func (d *dispatch) choose(ctx context.Context, id arcp.MessageID, p arcp.HumanChoiceRequestPayload) error {
	a, err := d.job.Choose(ctx, tool.ChoiceAsk{Prompt: p.Prompt, Options: p.Options, Expires: until(p.ExpiresAt)})
	if err != nil {
		return err
	}
	d.reply(id, arcp.HumanChoiceResponse, d.jobID, arcp.HumanChoiceResponsePayload{ChoiceID: a.ChoiceID, RespondedBy: a.RespondedBy, RespondedAt: a.At.UTC()})
	return nil
}

// call runs a child of the job. Of what is said about it the worker hears that it
// is accepted and how it ends.
func (d *dispatch) call(ctx context.Context, id arcp.MessageID, p arcp.ToolInvokePayload) error {
	if e := lease.CheckZone(p.LeaseConstraints); e != nil {
		d.reply(id, arcp.JobFailed, "", e)
		return nil
	}
	var child arcp.JobID
	value, err := d.job.Call(ctx, tool.Call{Tool: p.Tool, Arguments: p.Arguments, Lease: p.LeaseRequest, Constraints: p.LeaseConstraints,
		CostBudget: p.CostBudget, Detach: p.Detach, Made: func(made arcp.JobID) {
			child = made
			d.reply(id, arcp.JobAccepted, made, arcp.JobAcceptedPayload{JobID: made, Agent: p.Tool, ParentJobID: d.jobID, AcceptedAt: time.Now().UTC()})
		}})
	if err == nil && len(value) > maxAnswer {
		tooLarge := arcp.Errorf(arcp.CodeResourceExhausted, "the child completed with a result of %d bytes; a worker is given at most %d", len(value), maxAnswer)
		tooLarge.Retryable = false
		err = tooLarge
	}
	if err == nil {
		d.reply(id, arcp.JobCompleted, child, arcp.JobCompletedPayload{Value: value})
		return nil
	}
	e := refusalOf(err)
	if child != "" && e.Code == arcp.CodeCancelled {
		d.reply(id, arcp.JobCancelled, child, arcp.JobCancelledPayload{Reason: e.Message, Code: e.Code})
		return nil
	}
	d.reply(id, arcp.JobFailed, child, e)
	return nil
}
