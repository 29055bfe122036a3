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
	maxOpen        = 64       // open questions and calls of a job
	maxAnswers     = 64       // cached answers of a job, for a worker that repeats a question
	maxCachedBytes = 16 << 20 // bytes of cached answers of a session, and of queued answers
	maxAnswer      = 4 << 20  // bytes of the result of a child: it must fit into a frame
	smallAnswer    = 4 << 10  // bytes of an answer to which maxCachedBytes does not apply, for example a refusal
)

// questionSet has the questions and calls of a worker for a job.
type questionSet struct {
	open     map[arcp.MessageID][]arcp.Envelope // with the answers so far
	answered []*cachedAnswers                   // the oldest first
	unsent   []arcp.Envelope                    // answers for a worker that reconnects
	cache    *answerCache                       // of the session
}

// answerCache bounds the cached answers of a session's dispatches.
type answerCache struct {
	large  []*cachedAnswers // the oldest first; some are evicted
	cached int              // bytes of large
	unsent int              // bytes of answers that wait until the worker reconnects
}

type cachedAnswers struct {
	id      arcp.MessageID
	answers []arcp.Envelope
	evicted bool
}

func size(answers []arcp.Envelope) (n int) {
	for i := range answers {
		n += bytesOf(&answers[i])
	}
	return n
}

// add adds answers, and evicts the oldest answers above maxCachedBytes. Their ids stay known. Small
// answers are bounded by their number.
func (c *answerCache) add(s *cachedAnswers) {
	n := size(s.answers)
	if n <= smallAnswer {
		return
	}
	c.cached += n
	for c.large = append(c.large, s); c.cached > maxCachedBytes; c.large = c.large[1:] {
		c.evict(c.large[0])
	}
	if len(c.large) > 2*maxCachedBytes/smallAnswer {
		c.large = slices.DeleteFunc(c.large, func(s *cachedAnswers) bool { return s.evicted })
	}
}

func (c *answerCache) evict(s *cachedAnswers) {
	if n := size(s.answers); n > smallAnswer {
		c.cached -= n
	}
	s.answers, s.evicted = nil, true
}

// begin adds a question. For a repeated question it returns the answers so far, which are not nil.
func (qs *questionSet) begin(id arcp.MessageID) (before []arcp.Envelope, err *arcp.Error) {
	if answers, ok := qs.open[id]; ok {
		return append([]arcp.Envelope{}, answers...), nil
	}
	for _, s := range qs.answered {
		switch {
		case s.id != id:
		case s.evicted:
			return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "it was answered before, and the answer is not cached any more: "+
				"at most %d bytes of answers are cached for a session", maxCachedBytes)
		default:
			return append([]arcp.Envelope{}, s.answers...), nil
		}
	}
	if len(qs.open) >= maxOpen {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "%d questions and calls for the job wait for an answer", maxOpen).RetryAfter(1)
	}
	if qs.open == nil {
		qs.open = make(map[arcp.MessageID][]arcp.Envelope)
	}
	qs.open[id] = nil
	return nil, nil
}

// questionTypes are the types of the frames of a worker that get an answer.
var questionTypes = map[arcp.Type]bool{
	arcp.PermissionRequest:  true,
	arcp.HumanInputRequest:  true,
	arcp.HumanChoiceRequest: true,
	arcp.ToolInvoke:         true,
	arcp.AgentDelegate:      true,
	arcp.StreamOpen:         true,
	arcp.StreamChunk:        true,
	arcp.StreamClose:        true,
	arcp.StreamError:        true,
	arcp.JobResultChunk:     true,
	arcp.ArtifactPut:        true,
	arcp.ArtifactFetch:      true,
}

// refusals returns an error as the answer to every open question and call. A call whose child was
// accepted gets job.failed.
func (qs *questionSet) refusals(job arcp.JobID, err *arcp.Error) (list []arcp.Envelope) {
	for id, answers := range qs.open {
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

// end moves a question to the cached answers.
func (qs *questionSet) end(id arcp.MessageID) {
	answers, open := qs.open[id]
	if !open {
		return
	}
	delete(qs.open, id)
	s := &cachedAnswers{id: id, answers: answers}
	qs.answered = append(qs.answered, s)
	qs.cache.add(s)
	if len(qs.answered) > maxAnswers {
		qs.cache.evict(qs.answered[0])
		qs.answered = slices.Delete(qs.answered, 0, 1)
	}
}

// queue queues an answer for a worker that reconnects.
func (qs *questionSet) queue(env arcp.Envelope) {
	qs.unsent = append(qs.unsent, env)
	qs.cache.unsent += bytesOf(&env)
}

// dequeue removes the queued answers and returns them.
func (qs *questionSet) dequeue() []arcp.Envelope {
	envs := qs.unsent
	qs.cache.unsent -= size(envs)
	qs.unsent = nil
	return envs
}

// drop removes everything.
func (qs *questionSet) drop() {
	qs.dequeue()
	for _, s := range qs.answered {
		qs.cache.evict(s)
	}
	qs.open, qs.answered = nil, nil
}

// questionRelay passes the questions and calls of a worker to the job, and the answers to the worker.
// Its methods run on the goroutine of a question, except begin.
type questionRelay struct{ *dispatch }

// onQuestion returns a relay that calls f on a goroutine for each question. A repeated question is
// answered from the cache.
func onQuestion[P any](
	f func(questionRelay, context.Context, arcp.MessageID, P) error,
) func(*dispatch, context.Context, *arcp.Envelope) error {
	return func(d *dispatch, ctx context.Context, env *arcp.Envelope) error {
		p, err := decode[P](env)
		if err != nil {
			return err
		}
		qr := questionRelay{d}
		return qr.once(env.ID, func() {
			qr.pool.background(func() {
				if err := f(qr, ctx, env.ID, p); err != nil {
					qr.reply(env.ID, arcp.Nack, d.jobID, refusalOf(err))
				}
				qr.end(env.ID)
			})
		})
	}
}

// once begins a question and calls perform. For a repeated question it only sends the answers so far again.
func (qr questionRelay) once(id arcp.MessageID, perform func()) error {
	repeated, refused := qr.begin(id)
	if refused != nil {
		return refused
	}
	if !repeated {
		perform()
	}
	return nil
}

// begin begins a question. For a repeated question it sends the answers so far again.
func (qr questionRelay) begin(id arcp.MessageID) (repeated bool, err *arcp.Error) {
	qr.pool.mu.Lock()
	defer qr.pool.unlock()
	answers, err := qr.questions.begin(id)
	for _, env := range answers {
		qr.deliver(env)
	}
	return answers != nil, err
}

func (qr questionRelay) end(id arcp.MessageID) {
	qr.pool.mu.Lock()
	defer qr.pool.unlock()
	qr.questions.end(id)
}

// reply sends an answer to a question, or queues it for a worker that reconnects. If more than
// maxCachedBytes would wait for the worker, reply sends an error instead.
func (qr questionRelay) reply(to arcp.MessageID, t arcp.Type, job arcp.JobID, payload any) {
	qr.replyAbout(to, t, job, "", payload)
}

// replyAbout is reply with the id of a stream.
func (qr questionRelay) replyAbout(to arcp.MessageID, t arcp.Type, job arcp.JobID, stream arcp.StreamID, payload any) {
	env := arcp.Frame(t, payload)
	env.StreamID = stream
	qr.pool.mu.Lock()
	defer qr.pool.unlock()
	if qr.ended {
		return
	}
	if n := bytesOf(&env); n > smallAnswer && qr.worker.waitingBytes()+n > maxCachedBytes {
		env = unreadAnswer(t, n)
	}
	env.ID, env.JobID, env.CorrelationID = arcp.NewMessageID(), job, to
	if _, open := qr.questions.open[to]; open {
		qr.questions.open[to] = append(qr.questions.open[to], env)
	}
	if !qr.deliver(env) {
		qr.questions.queue(env)
	}
}

// waitingBytes returns the number of bytes that wait for the worker. Called with Pool.mu.
func (ws *workerSession) waitingBytes() int {
	if ws.conn != nil {
		return ws.conn.Queued()
	}
	return ws.answers.unsent
}

// unreadAnswer returns the error that replaces an answer of n bytes to a worker that does not read.
func unreadAnswer(t arcp.Type, n int) arcp.Envelope {
	err := arcp.Errorf(arcp.CodeResourceExhausted,
		"the answer, %s of %d bytes, is not given: more than %d bytes would wait for the worker, which does not read them", t, n, maxCachedBytes)
	err.Retryable = false
	if t == arcp.JobCompleted {
		return arcp.Frame(arcp.JobFailed, err)
	}
	return arcp.Frame(arcp.Nack, err)
}

func (qr questionRelay) permit(ctx context.Context, id arcp.MessageID, p arcp.PermissionRequestPayload) error {
	req := tool.PermissionRequest{Permission: p.Permission, Resource: p.Resource, Operation: p.Operation, Reason: p.Reason}
	if p.RequestedLeaseSeconds != nil {
		req.For = time.Duration(min(*p.RequestedLeaseSeconds, maxLeaseSeconds)) * time.Second
	}
	l, err := qr.job.Permissions().Request(ctx, req)
	if e, ok := errors.AsType[*arcp.Error](err); ok && e.Code == arcp.CodePermissionDenied {
		qr.reply(id, arcp.PermissionDeny, qr.jobID, arcp.PermissionDenyPayload{Permission: p.Permission, Reason: e.Message})
		return nil
	}
	if err != nil {
		return err
	}
	qr.reply(id, arcp.PermissionGrant, qr.jobID, arcp.PermissionGrantPayload{
		Permission:   l.Permission,
		Resource:     l.Resource,
		Operation:    l.Operation,
		LeaseSeconds: uint64(max(time.Until(l.ExpiresAt), 0).Round(time.Second) / time.Second),
	})
	return nil
}

// maxLeaseSeconds is longer than any lease.
const maxLeaseSeconds = 366 * 24 * 3600

func (qr questionRelay) input(ctx context.Context, id arcp.MessageID, p arcp.HumanInputRequestPayload) error {
	a, err := qr.job.Ask(ctx, tool.InputRequest{Prompt: p.Prompt, Schema: p.ResponseSchema, Default: p.Default, Expires: until(p.ExpiresAt)})
	if err != nil {
		return err
	}
	qr.reply(id, arcp.HumanInputResponse, qr.jobID, arcp.HumanInputResponsePayload{
		Value:       a.Value,
		RespondedBy: a.RespondedBy,
		RespondedAt: a.At.UTC(),
	})
	return nil
}

// until returns the time until t; after t it returns the shortest duration.
func until(t time.Time) time.Duration { return max(time.Until(t), 1) }

func (qr questionRelay) choose(ctx context.Context, id arcp.MessageID, p arcp.HumanChoiceRequestPayload) error {
	a, err := qr.job.Choose(ctx, tool.ChoiceRequest{Prompt: p.Prompt, Options: p.Options, Expires: until(p.ExpiresAt)})
	if err != nil {
		return err
	}
	qr.reply(id, arcp.HumanChoiceResponse, qr.jobID, arcp.HumanChoiceResponsePayload{
		ChoiceID:    a.ChoiceID,
		RespondedBy: a.RespondedBy,
		RespondedAt: a.At.UTC(),
	})
	return nil
}

// call calls a tool for the job.
func (qr questionRelay) call(ctx context.Context, id arcp.MessageID, p arcp.ToolInvokePayload) error {
	return qr.runChild(ctx, id, p, false)
}

// delegate delegates a task to an agent. Without a lease_request the child has the namespaces of the
// job's lease that the context names.
func (qr questionRelay) delegate(ctx context.Context, id arcp.MessageID, p arcp.AgentDelegatePayload) error {
	invoke := p.Invoke()
	if len(p.LeaseRequest) == 0 {
		var err *arcp.Error
		if invoke.LeaseRequest, err = inheritedLease(qr.attempt().Info().Lease, p.Context); err != nil {
			qr.reply(id, arcp.JobFailed, "", err)
			return nil
		}
	}
	return qr.runChild(ctx, id, invoke, true)
}

// inheritedLease returns the part of a lease that the context of agent.delegate names; nil: none.
func inheritedLease(lease, context arcp.Raw) (arcp.Raw, *arcp.Error) {
	var inherited arcp.DelegationContext
	if context.Kind() == '{' {
		if err := arcp.Unmarshal(context, &inherited); err != nil {
			return nil, arcp.Errorf(arcp.CodeInvalidRequest, "agent.delegate: context: %s", err)
		}
	}
	if len(inherited.PermissionsInherited) == 0 {
		return nil, nil
	}
	var all map[string]arcp.Raw
	if len(lease) > 0 {
		if err := arcp.Unmarshal(lease, &all); err != nil {
			return nil, arcp.Errorf(arcp.CodeInternal, "the lease of the job cannot be read")
		}
	}
	part := make(map[string]arcp.Raw)
	for _, namespace := range inherited.PermissionsInherited {
		patterns, ok := all[namespace]
		if !ok {
			return nil, arcp.Errorf(arcp.CodeLeaseSubsetViolation, "permissions_inherited: the lease of the job has no %s", namespace)
		}
		part[namespace] = patterns
	}
	raw, err := arcp.Marshal(part)
	if err != nil { // its members were decoded
		panic("worker: " + err.Error())
	}
	return raw, nil
}

// runChild runs a child of the job. The worker gets job.accepted and the outcome.
func (qr questionRelay) runChild(ctx context.Context, id arcp.MessageID, p arcp.ToolInvokePayload, delegate bool) error {
	if e := lease.CheckZone(p.LeaseConstraints); e != nil {
		qr.reply(id, arcp.JobFailed, "", e)
		return nil
	}
	var child arcp.JobID
	value, err := qr.job.Call(ctx, tool.Call{
		Tool:        p.Tool,
		Arguments:   p.Arguments,
		Lease:       p.LeaseRequest,
		Constraints: p.LeaseConstraints,
		CostBudget:  p.CostBudget,
		Detach:      p.Detach,
		Delegate:    delegate,
		OnChild: func(job arcp.JobID) {
			child = job
			qr.reply(id, arcp.JobAccepted, job, arcp.JobAcceptedPayload{
				JobID:       job,
				Agent:       p.Tool,
				ParentJobID: qr.jobID,
				AcceptedAt:  time.Now().UTC(),
			})
		},
	})
	if err == nil && len(value) > maxAnswer {
		tooLarge := arcp.Errorf(arcp.CodeResourceExhausted,
			"the child completed with a result of %d bytes; a worker is given at most %d", len(value), maxAnswer)
		tooLarge.Retryable = false
		err = tooLarge
	}
	if err == nil {
		qr.reply(id, arcp.JobCompleted, child, arcp.JobCompletedPayload{Value: value})
		return nil
	}
	e := refusalOf(err)
	if child != "" && e.Code == arcp.CodeCancelled {
		qr.reply(id, arcp.JobCancelled, child, arcp.JobCancelledPayload{Reason: e.Message, Code: e.Code})
		return nil
	}
	qr.reply(id, arcp.JobFailed, child, e)
	return nil
}
