package engine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Respond is an answer to a question of a job.
type Respond struct {
	Job     arcp.JobID
	ID      string // of the question
	Request arcp.MessageID
	Actor   approval.Actor
	Answer  approval.Answer

	// Done is called once, by any goroutine, with the question or with the reason why the
	// answer does not count. It must not block. A grant is also answered by lease.granted.
	Done func(row approval.Row, err *arcp.Error)

	// Call, if set, is the call of a built-in tool that gives the answer, after Call.Join.
	// It ends in the write in which the answer is stored, with the value that Value
	// returns for the question.
	Call  *Call
	Value func(approval.Row) arcp.Raw

	q *question
}

// Respond passes an answer to a job. The first valid answer counts: the job's supervisor
// decides, and Done is called when the answer is durable.
func (e *Engine) Respond(a Respond) {
	if r := e.run(a.Job); r == nil || !r.post(&a) {
		a.rejected(e, r != nil && r.stopped())
	}
}

func (a *Respond) apply(s *supervisor, now time.Time) {
	q := s.questions.find(a.ID)
	if q == nil {
		a.Done(approval.Row{}, errNoSuchQuestion(a.ID))
		return
	}
	a.q = q
	row := s.answerOf(q)
	err := row.MayAnswer(&a.Actor)
	if err == nil && s.executes(&row, a.Actor.Session) {
		err = arcp.Errorf(arcp.CodePermissionDenied, "a worker of the job, or of one above it, cannot approve it")
	}
	if err != nil {
		a.countRefused(s, &row)
		a.Done(approval.Row{}, err)
		return
	}
	if err := a.answer(s, now, &row); err != nil {
		a.countRefused(s, &row)
		a.Done(row, err)
		return
	}
	if a.Call != nil {
		s.write.calls = append(s.write.calls, joinedCall{a.Call, func() arcp.Raw { return a.Value(s.answerOf(q)) }})
	}
	// The questions are told before the respondent, which may look at once.
	if row.Status == approval.Pending { // one vote of several
		questioner{s}.updateQuestion(q, row)
		s.write.answerWith(&questionChanged{q}, a)
		return
	}
	questioner{s}.closeQuestion(now, q, row)
	s.write.answerWith(a)
	if row.Interrupt {
		a.guide(s, now, &row)
	}
}

// countRefused counts an answer that does not count.
func (a *Respond) countRefused(s *supervisor, q *approval.Row) {
	s.e.cfg.Metrics.Approvals.WithLabelValues(string(q.Kind), "refused").Inc()
}

// errNoSuchQuestion is the refusal of a command about a question that the job has not.
func errNoSuchQuestion(id string) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such question: %s", id)
}

// answer applies the answer to a row, and makes a grant.
func (a *Respond) answer(s *supervisor, now time.Time, row *approval.Row) *arcp.Error {
	answered := *row
	if err := answered.Answer(now.UTC(), &a.Actor, &a.Answer); err != nil {
		return err
	}
	if row.Kind == approval.Input {
		if err := tool.CheckValue(row.Schema, a.Answer.Value); err != nil {
			return err
		}
	}
	if answered.Resolution == approval.Granted {
		s.mu.Lock()
		c, err := s.auth.GrantAnswer(s.auth.now(), newLeaseID(), &answered)
		s.mu.Unlock()
		if err != nil {
			return err
		}
		answered.Lease = c.Lease.ID
		s.leaseChanged(now, &c, a.Actor.Session, a.Request)
	}
	*row = answered
	return nil
}

func (a *Respond) committed(s *supervisor, err error) { questionCommitted(s, a.q, err, a.Done) }

func (a *Respond) rejected(_ *Engine, stopped bool) { questionRejected(stopped, a.Done) }

// questionCommitted answers a command about a question; err is the error of its write.
func questionCommitted(s *supervisor, q *question, err error, done func(approval.Row, *arcp.Error)) {
	switch {
	case err == nil:
		done(s.answerOf(q), nil)
	case gone(err):
		done(approval.Row{}, errHasEnded())
	default:
		done(approval.Row{}, errStore())
	}
}

// questionRejected answers a command about a question that comes too late.
func questionRejected(stopped bool, done func(approval.Row, *arcp.Error)) {
	if stopped {
		done(approval.Row{}, errShuttingDown())
		return
	}
	done(approval.Row{}, errHasEnded())
}

func errStore() *arcp.Error { return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be written") }

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
		w.rejected(e, r != nil && r.stopped())
	}
}

// apply withdraws the question and cancels its job in one write, with the call.
func (w *Withdraw) apply(s *supervisor, now time.Time) {
	w.q = s.questions.find(w.ID)
	if w.q == nil {
		w.Done(approval.Row{}, errNoSuchQuestion(w.ID))
		return
	}
	row := s.answerOf(w.q)
	if !row.Cancel(now.UTC(), "withdrawn") {
		w.Done(row, arcp.Errorf(arcp.CodeFailedPrecondition, "the approval is %s", row.Status))
		return
	}
	if w.Call != nil {
		s.write.calls = append(s.write.calls, joinedCall{w.Call, func() arcp.Raw { return w.Value(s.answerOf(w.q)) }})
	}
	questioner{s}.closeQuestion(now, w.q, row)
	s.write.answerWith(w)
	ownCancel(s.row.ID, "withdrawn").apply(s, now)
}

func (w *Withdraw) committed(s *supervisor, err error) { questionCommitted(s, w.q, err, w.Done) }

func (w *Withdraw) rejected(_ *Engine, stopped bool) { questionRejected(stopped, w.Done) }

// Offer gives a question of a job to one more session, if the session may have it and has
// not got it.
func (e *Engine) Offer(job arcp.JobID, id string, who approval.Actor) {
	if r := e.run(job); r != nil {
		r.post(&offerQuestion{id, who})
	}
}

type offerQuestion struct {
	id    string
	actor approval.Actor
}

func (o *offerQuestion) apply(s *supervisor, now time.Time) {
	q := s.questions.find(o.id)
	if q == nil || q.event != nil || q.row.JSeq == 0 {
		return
	}
	if row := s.answerOf(q); row.IsFor(&o.actor, now) && !s.executes(&row, o.actor.Session) {
		questioner{s}.deliverQuestion(q, row, []arcp.SessionID{o.actor.Session})
	}
}

func (o *offerQuestion) committed(*supervisor, error) {}
func (o *offerQuestion) rejected(*Engine, bool)       {}
