package engine

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Respond is somebody's answer to a question of a job.
type Respond struct {
	Job     arcp.JobID
	ID      string // of the question
	Request arcp.MessageID
	Who     approval.Actor
	Answer  approval.Answer

	// Done is told once what has become of the question, or why the answer does not
	// count. It may be called by any goroutine and must not block. A grant is
	// answered by lease.granted besides.
	Done func(row approval.Row, err *arcp.Error)

	// Call, if set, is the call of a built-in tool that gives the answer, after Call.Join.
	// It ends in the write in which the answer is stored, with the value that Value
	// returns for the question.
	Call  *Call
	Value func(approval.Row) arcp.Raw

	q *question
}

// Respond gives an answer to a job that asks. The first valid one counts: that is
// decided by the one who writes the job's log, and said when it is durable.
func (e *Engine) Respond(a Respond) {
	if r := e.run(a.Job); r == nil || !r.post(&a) {
		a.tooLate(e, r != nil && r.isStopped())
	}
}

func (a *Respond) tooLate(_ *Engine, stopped bool) {
	if stopped {
		a.Done(approval.Row{}, errShuttingDown())
		return
	}
	a.Done(approval.Row{}, arcp.Errorf(arcp.CodeFailedPrecondition, "the job has ended"))
}

func (a *Respond) meet(s *supervisor, now time.Time) {
	q := s.question(a.ID)
	if q == nil {
		a.Done(approval.Row{}, arcp.Errorf(arcp.CodeNotFound, "no such question: %s", a.ID))
		return
	}
	a.q = q
	row := s.answerOf(q)
	err := row.MayAnswer(&a.Who)
	if err == nil && s.interested(&row, a.Who.Session) {
		err = arcp.Errorf(arcp.CodePermissionDenied, "a worker of the job, or of one above it, cannot approve it")
	}
	if err != nil {
		s.metric("refused", &row)
		a.Done(approval.Row{}, err)
		return
	}
	if err := s.take(now, &row, a); err != nil {
		s.metric("refused", &row)
		a.Done(row, err)
		return
	}
	if a.Call != nil {
		s.joined = append(s.joined, joined{a.Call, func() arcp.Raw { return a.Value(s.answerOf(q)) }})
	}
	// The desk is told before who answered: that one may look at once.
	if row.Status == approval.Pending { // one vote of several
		s.change(q, row)
		s.asked = append(s.asked, &renewal{q}, a)
		return
	}
	s.settle(now, q, row)
	s.asked = append(s.asked, a)
	if row.Interrupt {
		s.heed(now, &row)
	}
}

// take lets a row take an answer, and the job a grant.
func (s *supervisor) take(now time.Time, row *approval.Row, a *Respond) *arcp.Error {
	answered := *row
	if err := answered.Answer(now.UTC(), &a.Who, &a.Answer); err != nil {
		return err
	}
	if row.Kind == approval.Input {
		if err := tool.CheckValue(row.Schema, a.Answer.Value); err != nil {
			return err
		}
	}
	if answered.Resolution == approval.Granted {
		if err := s.grant(now, &answered, a); err != nil {
			return err
		}
	}
	*row = answered
	return nil
}

func (r *run) question(id string) *question {
	for _, q := range r.questions {
		if q.row.ID == id {
			return q
		}
	}
	return nil
}

func (a *Respond) settled(s *supervisor, err error) {
	switch {
	case err == nil:
		a.Done(s.answerOf(a.q), nil)
	case gone(err):
		a.tooLate(s.e, false)
	default:
		a.Done(approval.Row{}, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be written"))
	}
}

// Withdraw ends a job whose tool only asks, and with it the question.
type Withdraw struct {
	Job arcp.JobID
	ID  string // of the question

	// Call is the call of a built-in tool, after Call.Join, or nil. It ends in the write
	// that withdraws the question, with the value that Value returns for the question.
	Call  *Call
	Value func(approval.Row) arcp.Raw

	// Done is called once, by any goroutine, when the question is withdrawn or cannot be.
	// It must not block.
	Done func(row approval.Row, err *arcp.Error)

	q *question
}

// Withdraw withdraws a question of a job. One that is answered first stays answered.
func (e *Engine) Withdraw(w Withdraw) {
	if r := e.run(w.Job); r == nil || !r.post(&w) {
		w.tooLate(e, r != nil && r.isStopped())
	}
}

// meet withdraws the question and cancels its job in one write: after a crash both have
// happened, with the call, or none has.
func (w *Withdraw) meet(s *supervisor, now time.Time) {
	w.q = s.question(w.ID)
	if w.q == nil {
		w.Done(approval.Row{}, arcp.Errorf(arcp.CodeNotFound, "no such question: %s", w.ID))
		return
	}
	row := s.answerOf(w.q)
	if !row.Cancel(now.UTC(), "withdrawn") {
		w.Done(row, arcp.Errorf(arcp.CodeFailedPrecondition, "the approval is %s", row.Status))
		return
	}
	if w.Call != nil {
		s.joined = append(s.joined, joined{w.Call, func() arcp.Raw { return w.Value(s.answerOf(w.q)) }})
	}
	s.settle(now, w.q, row)
	s.asked = append(s.asked, w)
	(&Cancel{Job: s.row.ID, Reason: "withdrawn", Answers: nobody{}}).meet(s, now)
}

func (w *Withdraw) settled(s *supervisor, err error) {
	switch {
	case err == nil:
		w.Done(s.answerOf(w.q), nil)
	case gone(err):
		w.tooLate(s.e, false)
	default:
		w.Done(approval.Row{}, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be written"))
	}
}

func (w *Withdraw) tooLate(_ *Engine, stopped bool) {
	if stopped {
		w.Done(approval.Row{}, errShuttingDown())
		return
	}
	w.Done(approval.Row{}, arcp.Errorf(arcp.CodeFailedPrecondition, "the job has ended"))
}

// metric counts what has become of an answer or a question.
func (s *supervisor) metric(outcome string, q *approval.Row) {
	s.e.cfg.Metrics.Approvals.WithLabelValues(string(q.Kind), outcome).Inc()
}

// Offer has a question of a job given to one more session, if that may have it
// and has not had it.
func (e *Engine) Offer(job arcp.JobID, id string, who approval.Actor) {
	if r := e.run(job); r != nil {
		r.post(&offer{id, who})
	}
}

type offer struct {
	id  string
	who approval.Actor
}

func (o *offer) meet(s *supervisor, now time.Time) {
	q := s.question(o.id)
	if q == nil || q.event != nil || q.row.JSeq == 0 {
		return
	}
	if row := s.answerOf(q); row.Wants(&o.who, now) && !s.interested(&row, o.who.Session) {
		s.offer(q, &row, []arcp.SessionID{o.who.Session})
		s.change(q, row)
		s.asked = append(s.asked, &renewal{q})
	}
}

func (o *offer) settled(*supervisor, error) {}
func (o *offer) tooLate(*Engine, bool)      {}

// Interrupt is a client's wish that a job stops at its next safe point and asks
// what to do.
type Interrupt struct {
	Request   arcp.MessageID
	Job       arcp.JobID
	Principal string
	Session   arcp.SessionID
	Prompt    string
	Answers   Answerer
}

// interruptExpires is how long an interrupted job waits for guidance (§5.14).
const interruptExpires = time.Hour

// What an interrupt may be answered with.
const (
	interruptContinue = "continue"
	interruptCancel   = "cancel"
)

var interruptSchema = arcp.Raw(`{"type":"object","properties":{"action":{"enum":["continue","cancel"]},"guidance":{"type":"string","maxLength":16384}},"required":["action"]}`)

// Interrupt has a job ask for guidance. It is acknowledged when the question is
// durable.
func (e *Engine) Interrupt(ctx context.Context, i Interrupt) {
	r := e.run(i.Job)
	switch {
	case r == nil:
		i.refuse(e.notLive(ctx, i.Job, i.Principal))
	case r.row.Principal != i.Principal:
		i.refuse(errNoSuchJob())
	case r.strict && r.row.Session != i.Session:
		e.auditDenied("interrupt", i.Principal, i.Session, string(i.Job), strictly)
		i.refuse(arcp.Errorf(arcp.CodePermissionDenied, "only the submitting session may interrupt this job"))
	case !r.tool.Interruptible:
		i.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "%s cannot be interrupted", r.tool.Name))
	case !r.post(&i):
		i.tooLate(e, r.isStopped())
	}
}

func (i *Interrupt) refuse(err *arcp.Error) { i.Answers.Answer(answerTo(i.Request, arcp.Nack, err)) }

func (i *Interrupt) tooLate(_ *Engine, stopped bool) {
	if stopped {
		i.refuse(errShuttingDown())
		return
	}
	i.refuse(errHasEnded())
}

func (i *Interrupt) meet(s *supervisor, now time.Time) {
	switch {
	case s.m.State().Terminal():
		i.refuse(errHasEnded())
		return
	case s.postpone(i):
		return
	case !s.running() || s.progress.Cancel != nil:
		i.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "no attempt of the job runs now"))
		return
	case s.interrupted() != nil:
		i.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "the job is interrupted already"))
		return
	}
	row, refusal := s.newQuestion(approval.Row{Kind: approval.Input, Interrupt: true, Action: i.Prompt, Schema: interruptSchema}, interruptExpires)
	if refusal != nil {
		i.refuse(refusal)
		return
	}
	q, err := s.pose(now, row)
	if err != nil {
		i.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "%s", err))
		return
	}
	s.await(now, q)
	s.alert()
	s.asked = append(s.asked, i)
}

// alert wakes a tool that waits for something else than an interrupt.
func (s *supervisor) alert() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halt != nil {
		close(s.halt)
		s.halt = nil
	}
}

func (i *Interrupt) settled(s *supervisor, err error) {
	switch {
	case err == nil:
		i.Answers.Answer(answerTo(i.Request, arcp.Ack, arcp.AckPayload{}))
	case gone(err):
		i.tooLate(s.e, false)
	default:
		i.refuse(arcp.Errorf(arcp.CodeUnavailable, "the store cannot be written"))
	}
}

// interrupted returns the interrupt that is not answered yet; nil: there is none.
// It is called by the supervisor, or with r.mu.
func (r *run) interrupted() *question {
	for _, q := range r.questions {
		if q.row.Interrupt && q.row.Status == approval.Pending {
			return q
		}
	}
	return nil
}

// heed does what the answer to an interrupt says.
func (s *supervisor) heed(now time.Time, row *approval.Row) {
	var said struct {
		Action   string `json:"action"`
		Guidance string `json:"guidance"`
	}
	if err := arcp.Unmarshal(row.Value, &said); err != nil { // it satisfies the schema
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("answer to an interrupt")
	}
	if said.Action == interruptCancel {
		(&Cancel{Job: s.row.ID, Reason: "cancelled at an interrupt", Answers: nobody{}}).meet(s, now)
		return
	}
	s.mu.Lock()
	s.guidance = said.Guidance
	s.mu.Unlock()
}
