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

// Bounds of the questions and calls of a worker for a job.
const (
	maxAsking   = 64       // open questions and calls of a job
	maxAnswers  = 64       // cached answers of a job, for a worker that repeats a question
	maxKept     = 16 << 20 // bytes of cached answers of a session, and of queued ones
	maxAnswer   = 4 << 20  // bytes of the result of a child: it must fit into a frame
	smallAnswer = 4 << 10  // bytes of an answer that maxKept does not apply to, as every refusal
)

// asks are the questions and calls of a worker for a job.
type asks struct {
	open     map[arcp.MessageID][]arcp.Envelope // with the answers so far
	answered []*cachedAnswers                   // oldest first
	unsent   []arcp.Envelope                    // answers for a worker that reconnects
	total    *answerCache
}

// answerCache bounds the cached answers of a session's dispatches.
type answerCache struct {
	order  []*cachedAnswers // large ones, oldest first; some are evicted
	cached int              // bytes of the large ones
	unsent int              // bytes of answers that wait for the worker to reconnect
}

type cachedAnswers struct {
	id      arcp.MessageID
	answers []arcp.Envelope
	evicted bool
}

func size(answers []arcp.Envelope) (n int) {
	for i := range answers {
		n += len(answers[i].Payload)
	}
	return n
}

// add adds answers, and evicts the oldest above maxKept; their ids stay known. Small answers are bounded by
// their number.
func (t *answerCache) add(s *cachedAnswers) {
	n := size(s.answers)
	if n <= smallAnswer {
		return
	}
	t.cached += n
	for t.order = append(t.order, s); t.cached > maxKept; t.order = t.order[1:] {
		t.evict(t.order[0])
	}
	if len(t.order) > 2*maxKept/smallAnswer {
		t.order = slices.DeleteFunc(t.order, func(s *cachedAnswers) bool { return s.evicted })
	}
}

func (t *answerCache) evict(s *cachedAnswers) {
	if n := size(s.answers); n > smallAnswer {
		t.cached -= n
	}
	s.answers, s.evicted = nil, true
}

// begin adds a question. If the worker has asked it before, the answers so far are returned, not nil.
func (a *asks) begin(id arcp.MessageID) (before []arcp.Envelope, err *arcp.Error) {
	if said, again := a.open[id]; again {
		return append([]arcp.Envelope{}, said...), nil
	}
	for i := range a.answered {
		switch s := a.answered[i]; {
		case s.id != id:
		case s.evicted:
			return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "it was answered before, and the answer is not cached any more: "+
				"at most %d bytes of answers are cached for a session", maxKept)
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

// questions are the types of frames that a worker waits for an answer of.
var questions = map[arcp.Type]bool{arcp.PermissionRequest: true, arcp.HumanInputRequest: true, arcp.HumanChoiceRequest: true, arcp.ToolInvoke: true}

// refusals returns an error as the answer to every open question and call. A call whose child was
// accepted gets job.failed.
func (a *asks) refusals(job arcp.JobID, err *arcp.Error) (list []arcp.Envelope) {
	for id, answers := range a.open {
		env := arcp.Frame(arcp.Nack, err)
		env.ID, env.JobID, env.CorrelationID = arcp.NewMessageID(), job, id
		if n := len(answers); n > 0 {
			if answers[n-1].Type != arcp.JobAccepted {
				continue // it has its answer
			}
			env.Type, env.JobID = arcp.JobFailed, answers[n-1].JobID
		}
		list = append(list, env)
	}
	return list
}

// end moves a question to the cache of answers.
func (a *asks) end(id arcp.MessageID) {
	answers, open := a.open[id]
	if !open {
		return
	}
	delete(a.open, id)
	s := &cachedAnswers{id: id, answers: answers}
	a.answered = append(a.answered, s)
	a.total.add(s)
	if len(a.answered) > maxAnswers {
		a.total.evict(a.answered[0])
		a.answered = slices.Delete(a.answered, 0, 1)
	}
}

// queue keeps an answer for a worker that reconnects.
func (a *asks) queue(env arcp.Envelope) {
	a.unsent = append(a.unsent, env)
	a.total.unsent += len(env.Payload)
}

// takeQueued removes and returns the queued answers.
func (a *asks) takeQueued() []arcp.Envelope {
	envs := a.unsent
	a.total.unsent -= size(envs)
	a.unsent = nil
	return envs
}

// drop removes everything.
func (a *asks) drop() {
	a.takeQueued()
	for _, s := range a.answered {
		a.total.evict(s)
	}
	a.open, a.answered = nil, nil
}

// asking returns a relay that calls f on a goroutine for each frame. A repeated frame is answered from the
// cache.
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
			d.endAsk(env.ID)
		}()
		return nil
	}
}

// repeat begins a question. If the worker has asked it before, it sends the answers so far again.
func (d *dispatch) repeat(id arcp.MessageID) (again bool, err *arcp.Error) {
	d.p.mu.Lock()
	defer d.p.unlock()
	before, err := d.asks.begin(id)
	for _, env := range before {
		d.deliver(env)
	}
	return before != nil, err
}

func (d *dispatch) endAsk(id arcp.MessageID) {
	d.p.mu.Lock()
	defer d.p.unlock()
	d.asks.end(id)
}

// reply sends an answer to a question, or queues it for a worker that reconnects. If more than maxKept
// would wait for the worker, an error is sent instead.
func (d *dispatch) reply(to arcp.MessageID, t arcp.Type, job arcp.JobID, payload any) {
	env := arcp.Frame(t, payload)
	d.p.mu.Lock()
	defer d.p.unlock()
	if d.ended {
		return
	}
	if n := len(env.Payload); n > smallAnswer && d.link.waits()+n > maxKept {
		env = tooMuch(t, n)
	}
	env.ID, env.JobID, env.CorrelationID = arcp.NewMessageID(), job, to
	if _, open := d.asks.open[to]; open {
		d.asks.open[to] = append(d.asks.open[to], env)
	}
	if !d.deliver(env) {
		d.asks.queue(env)
	}
}

// waits returns how many bytes wait for the worker. Called with Pool.mu.
func (l *link) waits() int {
	if l.conn != nil {
		return l.conn.Queued()
	}
	return l.answers.unsent
}

// tooMuch returns the error that replaces an answer of n bytes.
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

// maxLeaseSeconds is longer than any lease.
const maxLeaseSeconds = 366 * 24 * 3600

func (d *dispatch) input(ctx context.Context, id arcp.MessageID, p arcp.HumanInputRequestPayload) error {
	a, err := d.job.Ask(ctx, tool.InputAsk{Prompt: p.Prompt, Schema: p.ResponseSchema, Default: p.Default, Expires: until(p.ExpiresAt)})
	if err != nil {
		return err
	}
	d.reply(id, arcp.HumanInputResponse, d.jobID, arcp.HumanInputResponsePayload{Value: a.Value, RespondedBy: a.RespondedBy, RespondedAt: a.At.UTC()})
	return nil
}

// until returns the time until t; after t it returns the shortest duration.
func until(t time.Time) time.Duration { return max(time.Until(t), 1) }

func (d *dispatch) choose(ctx context.Context, id arcp.MessageID, p arcp.HumanChoiceRequestPayload) error {
	a, err := d.job.Choose(ctx, tool.ChoiceAsk{Prompt: p.Prompt, Options: p.Options, Expires: until(p.ExpiresAt)})
	if err != nil {
		return err
	}
	d.reply(id, arcp.HumanChoiceResponse, d.jobID, arcp.HumanChoiceResponsePayload{ChoiceID: a.ChoiceID, RespondedBy: a.RespondedBy, RespondedAt: a.At.UTC()})
	return nil
}

// call runs a child of the job. The worker gets job.accepted and the outcome.
func (d *dispatch) call(ctx context.Context, id arcp.MessageID, p arcp.ToolInvokePayload) error {
	if e := lease.CheckZone(p.LeaseConstraints); e != nil {
		d.reply(id, arcp.JobFailed, "", e)
		return nil
	}
	var child arcp.JobID
	value, err := d.job.Call(ctx, tool.Call{Tool: p.Tool, Arguments: p.Arguments, Lease: p.LeaseRequest, Constraints: p.LeaseConstraints,
		CostBudget: p.CostBudget, Detach: p.Detach, OnChild: func(made arcp.JobID) {
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
