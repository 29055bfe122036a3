package engine

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job/question"
)

// interrupts has the state of a job's interrupts that the tool reads.
type interrupts struct {
	guidance string        // of the latest answer; empty after the tool has read it
	signalc  chan struct{} // closed by the next interrupt; nil: the tool has not asked for it
}

// signal wakes the tool.
func (i *interrupts) signal() {
	if i.signalc != nil {
		close(i.signalc)
		i.signalc = nil
	}
}

// interruptJob is a request that a job waits for guidance at its next safe point.
type interruptJob struct {
	Requester
	Job    arcp.JobID
	Prompt string
}

// Interrupt makes the job target_id ask for guidance. The acknowledgement is sent when the question is
// durable.
func (e *Engine) Interrupt(from Requester, p *arcp.InterruptPayload) {
	i := interruptJob{from, arcp.JobID(p.TargetID), p.Prompt}
	r := e.run(i.Job)
	switch {
	case r == nil:
		i.refuseEnded(e, i.Job)
	case r.row.Principal != i.Principal:
		i.refuse(errNoSuchJob())
	case r.strictCancel && r.owner() != i.Session:
		e.cfg.audit().denied("interrupt", i.Principal, i.Session, string(i.Job), strictCancel)
		i.refuse(arcp.Errorf(arcp.CodePermissionDenied, "only the session that owns the job may interrupt it"))
	case !r.tool.Interruptible:
		i.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "%s cannot be interrupted", r.tool.Name))
	case !r.post(&i):
		i.rejected(e, r.stopped())
	}
}

func (i *interruptJob) refuse(err *arcp.Error) {
	i.Answers.AnswerBeforeEvents(answerTo(i.Request, arcp.Nack, err))
}

func (i *interruptJob) rejected(_ *Engine, stopped bool) {
	if stopped {
		i.refuse(errShuttingDown())
		return
	}
	i.refuse(errHasEnded())
}

func (i *interruptJob) apply(s *supervisor, now time.Time) {
	switch {
	case s.machine.State().Terminal():
		i.refuse(errHasEnded())
		return
	case s.postpone(i):
		return
	case !s.running() || s.progress.Cancel != nil:
		i.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "no attempt of the job runs now"))
		return
	case s.questions.Interrupt() != nil:
		i.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "the job is interrupted already"))
		return
	}
	row, refusal := s.newQuestion(question.NewInterrupt(i.Prompt), s.owner(), question.InterruptExpiry, s.e.cfg.scrubber())
	if refusal != nil {
		i.refuse(refusal)
		return
	}
	q, err := s.questioner().add(now, row)
	if err != nil {
		i.refuse(arcp.Errorf(arcp.CodeFailedPrecondition, "%s", err))
		return
	}
	s.questioner().blockOn(now, q)
	s.mu.Lock()
	s.interrupts.signal()
	s.mu.Unlock()
	s.write.addCommands(i)
}

func (i *interruptJob) committed(jw *jobWriter, err error) {
	switch {
	case err == nil:
		i.Answers.AnswerBeforeEvents(answerTo(i.Request, arcp.Ack, arcp.AckPayload{}))
	case jobEnded(err):
		i.rejected(jw.run.e, false)
	default:
		i.refuse(errStore())
	}
}

// applyGuidance applies the answer to an interrupt.
func (rs *Response) applyGuidance(s *supervisor, now time.Time, row *approval.Row) {
	guidance, err := question.GuidanceOf(row)
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("answer to an interrupt")
	}
	if guidance.Cancels() {
		internalCancel(s.row.ID, "cancelled at an interrupt").apply(s, now)
		return
	}
	s.mu.Lock()
	s.interrupts.guidance = guidance.Text
	s.mu.Unlock()
}

func (j toolJob) Yield(ctx context.Context) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	s := j.s
	s.mu.Lock()
	if s.events.closed {
		s.mu.Unlock()
		return "", errEnded
	}
	q := s.questions.Interrupt()
	if q == nil {
		guidance := s.interrupts.guidance
		s.interrupts.guidance = ""
		s.mu.Unlock()
		return guidance, nil
	}
	s.mu.Unlock()
	select {
	case <-s.questions.done(q):
		return j.Yield(ctx)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (j toolJob) Interrupted() <-chan struct{} {
	s := j.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.questions.Interrupt() != nil {
		return closedc
	}
	if s.interrupts.signalc == nil {
		s.interrupts.signalc = make(chan struct{})
	}
	return s.interrupts.signalc
}
