package engine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job/question"
	"github.com/arcpd/arcpd/runtime/tool"
)

// JobQuestions changes the questions of jobs that have not ended. Its methods may be called by many
// goroutines. They do not block.
type JobQuestions struct{ e *Engine }

// Questions returns the questions of the jobs.
func (e *Engine) Questions() JobQuestions { return JobQuestions{e} }

// QuestionReply receives the result of a command about a question: the question, or the refusal. It is
// called once, on any goroutine, and must not block.
type QuestionReply func(row approval.Row, err *arcp.Error)

// committed reports the result of the write that changes a question.
func (qr QuestionReply) committed(jw *jobWriter, q *question.Question, err error) {
	switch {
	case err == nil:
		qr(jw.run.questions.row(q), nil)
	case jobEnded(err):
		qr(approval.Row{}, errHasEnded())
	default:
		qr(approval.Row{}, errStore())
	}
}

// rejected reports the end of the job, or of the runtime if stopped is set.
func (qr QuestionReply) rejected(stopped bool) {
	if stopped {
		qr(approval.Row{}, errShuttingDown())
		return
	}
	qr(approval.Row{}, errHasEnded())
}

// Response is an answer to a question of a job.
type Response struct {
	Job     arcp.JobID
	ID      string // of the question
	Request arcp.MessageID
	Actor   approval.Actor
	Answer  approval.Answer

	Done QuestionReply // lease.granted also answers a grant

	// Call is the call of the built-in tool that sends the answer, after Call.Join; nil: there
	// is none. It ends in the write that stores the answer. Value returns the value of the
	// call for the question.
	Call  *Call
	Value func(approval.Row) arcp.Raw

	q *question.Question
}

// Respond passes an answer to a job. The first valid answer counts: the job's supervisor
// decides, and Done is called when the answer is durable.
func (q JobQuestions) Respond(a Response) {
	if r := q.e.run(a.Job); r == nil || !r.post(&a) {
		a.rejected(q.e, r != nil && r.stopped())
	}
}

func (rs *Response) apply(s *supervisor, now time.Time) {
	q, err := s.questions.Answerable(rs.ID, &rs.Actor)
	if q == nil {
		rs.Done(approval.Row{}, err)
		return
	}
	rs.q = q
	if err == nil && s.questioner().executes(&q.Row, rs.Actor.Session) {
		err = question.ExecutorRefusal()
	}
	if err != nil {
		rs.countRefused(s)
		rs.Done(approval.Row{}, err)
		return
	}
	row, err := rs.answer(s, now)
	if err != nil {
		rs.countRefused(s)
		rs.Done(row, err)
		return
	}
	if rs.Call != nil {
		s.write.calls = append(s.write.calls, joinedCall{rs.Call, func() arcp.Raw { return rs.Value(s.questions.row(q)) }})
	}
	s.questioner().update(now, q, row)
	s.write.addCommands(rs) // after the report to Questions, because the respondent may read the question at once
	if row.Interrupt && !q.Pending() {
		rs.applyGuidance(s, now, &row)
	}
}

// countRefused counts a refused answer.
func (rs *Response) countRefused(s *supervisor) {
	s.e.cfg.Metrics.Approvals.WithLabelValues(string(rs.q.Row.Kind), "refused").Inc()
}

// answer returns the row with the answer applied, and grants the permission that the answer grants.
// With an error it returns the unchanged row.
func (rs *Response) answer(s *supervisor, now time.Time) (approval.Row, *arcp.Error) {
	row, err := rs.q.WithAnswer(now, &rs.Actor, &rs.Answer, tool.CheckValue)
	if err != nil || row.Resolution != approval.Granted {
		return row, err
	}
	limit := decodeLease(rs.Actor.Lease)
	s.mu.Lock()
	c, err := s.authority.GrantAnswer(s.authority.now(), newLeaseID(), &row, limit)
	s.mu.Unlock()
	if err != nil {
		return rs.q.Row, err
	}
	row.Lease = c.Lease.ID
	s.leaseChanged(now, &c, rs.Actor.Session, rs.Request)
	return row, nil
}

func (rs *Response) committed(jw *jobWriter, err error) { rs.Done.committed(jw, rs.q, err) }

func (rs *Response) rejected(_ *Engine, stopped bool) { rs.Done.rejected(stopped) }

func errStore() *arcp.Error { return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be written") }

// Withdraw is a request to withdraw the question of a job whose tool only asks, and to cancel the job.
type Withdraw struct {
	Job arcp.JobID
	ID  string // of the question

	// Call is the call of the built-in tool that withdraws the question, after Call.Join; nil:
	// there is none. It ends in the write of the withdrawal. Value returns the value of the
	// call for the question.
	Call  *Call
	Value func(approval.Row) arcp.Raw

	Done QuestionReply

	q *question.Question
}

// Withdraw withdraws a question of a job. A question that is already answered stays answered.
func (q JobQuestions) Withdraw(w Withdraw) {
	if r := q.e.run(w.Job); r == nil || !r.post(&w) {
		w.rejected(q.e, r != nil && r.stopped())
	}
}

// apply withdraws the question and cancels its job in one write, with the call.
func (w *Withdraw) apply(s *supervisor, now time.Time) {
	w.q = s.questions.Find(w.ID)
	if w.q == nil {
		w.Done(approval.Row{}, question.NoSuchQuestion(w.ID))
		return
	}
	s.mu.Lock()
	e, withdrawn := s.questions.Withdraw(now, w.q, "withdrawn")
	s.mu.Unlock()
	if !withdrawn {
		w.Done(w.q.Row, arcp.Errorf(arcp.CodeFailedPrecondition, "the approval is %s", w.q.Row.Status))
		return
	}
	if w.Call != nil {
		s.write.calls = append(s.write.calls, joinedCall{w.Call, func() arcp.Raw { return w.Value(s.questions.row(w.q)) }})
	}
	s.questioner().applyEffect(now, e)
	s.write.addCommands(w)
	internalCancel(s.row.ID, "withdrawn").apply(s, now)
}

func (w *Withdraw) committed(jw *jobWriter, err error) { w.Done.committed(jw, w.q, err) }

func (w *Withdraw) rejected(_ *Engine, stopped bool) { w.Done.rejected(stopped) }

// Offer delivers a question of a job to one more session, if the session may have it and has not got
// it.
func (q JobQuestions) Offer(job arcp.JobID, id string, actor approval.Actor) {
	if r := q.e.run(job); r != nil {
		r.post(&offerQuestion{id: id, actor: actor})
	}
}

// offerQuestion delivers a question to one more session.
type offerQuestion struct {
	noAnswer
	id    string
	actor approval.Actor
}

func (o *offerQuestion) apply(s *supervisor, now time.Time) {
	q := s.questions.Find(o.id)
	if q != nil && q.CanDeliver(&o.actor, now) && !s.questioner().executes(&q.Row, o.actor.Session) {
		s.questioner().deliver(q, []arcp.SessionID{o.actor.Session})
		s.write.addCommands(&questionChanged{q: q})
	}
}
