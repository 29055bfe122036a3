package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job/question"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// QuestionBroker delivers questions to sessions. Its methods are called after a change of a question is
// durable and before the event is delivered. They must neither block nor call the engine.
type QuestionBroker interface {
	// Audience returns the connected sessions that get the question.
	Audience(q *approval.Row, now time.Time) []arcp.SessionID
	// Asked is called for a question that is pending, and for each of its changes. request
	// is the id of its event.
	Asked(q approval.Row, request arcp.MessageID)
	// Closed is called for a question that is not pending any more.
	Closed(q approval.Row)
}

// noQuestions is used if no session can be asked: every question expires.
type noQuestions struct{}

func (noQuestions) Audience(*approval.Row, time.Time) []arcp.SessionID { return nil }
func (noQuestions) Asked(approval.Row, arcp.MessageID)                 {}
func (noQuestions) Closed(approval.Row)                                {}

// NewQuestionID returns a new id of a question.
func NewQuestionID() string { return arcp.NewID(approval.IDPrefix) }

// questionEvent is the event of a question on its way to the log.
type questionEvent struct {
	q     *question.Question
	event *store.Event
}

// newQuestion completes a question of the job. wait is how long it stays open.
func (r *run) newQuestion(row approval.Row, wait time.Duration) (approval.Row, *arcp.Error) {
	if row.ID == "" {
		row.ID = NewQuestionID()
	}
	row.Principal, row.Session, row.Job = r.row.Principal, r.row.Session, r.row.ID
	r.e.scrubber().question(&row)
	question.Complete(&row, time.Now(), wait)
	var err *arcp.Error
	row.Digest, err = question.Digest(&row, maxPayload)
	return row, err
}

// ask asks a question and waits until it is closed. A later attempt that asks again finds
// the question, and its answer.
func (tg toolGoroutine) ask(ctx context.Context, row approval.Row, wait time.Duration) (approval.Row, error) {
	s := tg.s
	row, refusal := s.newQuestion(row, wait)
	if refusal != nil {
		return row, refusal
	}
	a := &askQuestion{attempt: s, row: row, toolReply: newToolReply()}
	if tg.attemptEnded() || !s.post(a) {
		return row, errEnded
	}
	if err := <-a.done; err != nil { // apply, committed or rejected always sends
		return row, err
	}
	closed := s.questionDone(a.q)
	select {
	case <-closed:
		return tg.answered(a.q)
	case <-ctx.Done():
	}
	w := &withdrawQuestion{attempt: s, q: a.q, done: make(chan struct{})}
	if s.post(w) {
		<-w.done
	}
	if w.alreadyClosed { // the runtime has confirmed the answer of a client
		select {
		case <-closed:
			return tg.answered(a.q)
		case <-s.ctx.Done():
		}
	}
	return row, context.Cause(ctx)
}

// answered returns a closed question. For a question that was withdrawn with its job the
// error is the reason why the attempt was stopped.
func (tg toolGoroutine) answered(q *question.Question) (approval.Row, error) {
	row := tg.s.questionRow(q)
	if row.Status == approval.Cancelled {
		return row, context.Cause(tg.s.ctx)
	}
	return row, nil
}

// questionDone returns a channel that is closed when it is durable that a question is not pending.
func (r *run) questionDone(q *question.Question) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Closed {
		return closedc
	}
	c := r.answerc[q]
	if c == nil {
		c = make(chan struct{})
		if r.answerc == nil {
			r.answerc = make(map[*question.Question]chan struct{})
		}
		r.answerc[q] = c
	}
	return c
}

// attemptEnded reports whether nothing more of the attempt is written.
func (tg toolGoroutine) attemptEnded() bool {
	tg.s.mu.Lock()
	defer tg.s.mu.Unlock()
	return tg.s.events.closed
}

// questionRow returns a copy of the row of a question, on any goroutine.
func (r *run) questionRow(q *question.Question) approval.Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.Row
}

// askQuestion asks a question of the tool.
type askQuestion struct {
	attempt *supervisor
	row     approval.Row
	q       *question.Question
	toolReply
}

func (a *askQuestion) apply(s *supervisor, now time.Time) {
	if s != a.attempt || !s.running() || s.progress.Cancel != nil {
		a.done <- errEnded
		return
	}
	s.mu.Lock()
	a.q = s.questions.Repeat(&a.row)
	s.mu.Unlock()
	if a.q != nil {
		if a.q.Pending() {
			questioner{s}.blockOn(now, a.q)
		}
		a.done <- nil
		return
	}
	q, err := questioner{s}.addQuestion(now, a.row)
	if err != nil {
		a.done <- err
		return
	}
	a.q = q
	questioner{s}.blockOn(now, q)
	s.write.addCommands(a)
}

// running reports whether there is an attempt.
func (s *supervisor) running() bool {
	state := s.machine.State()
	return state == arcp.StateRunning || state == arcp.StateBlocked
}

// questioner asks and closes the questions of a job. It is a part of the supervisor.
type questioner struct{ *supervisor }

// addQuestion asks a question. Its event and its row are written together.
func (s questioner) addQuestion(now time.Time, row approval.Row) (*question.Question, error) {
	if err := s.questions.CheckRoom(retryAfter); err != nil {
		return nil, err
	}
	row.Sent = s.audience(&row, now)
	row.Sent = row.Sent[:min(len(row.Sent), approval.MaxSent)]
	t, payload := question.Request(&row)
	ev := s.event(t, now, arcp.PriorityCritical, payload)
	if n := len(ev.Body); n > maxPayload {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "a question of %d bytes: an event may have at most %d", n, maxPayload)
	}
	ev.Route = &store.Route{To: row.Sent}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events.ending() {
		return nil, errEnded
	}
	if row.Kind == approval.Gate {
		s.events.push(s.event(arcp.EventEmit, now, s.row.Priority, question.ApprovalRequested(&row)))
	}
	s.events.push(ev)
	q := s.questions.Add(row)
	s.write.questions = append(s.write.questions, questionEvent{q, ev})
	return q, nil
}

// audience returns the sessions that get a question.
func (s questioner) audience(q *approval.Row, now time.Time) []arcp.SessionID {
	return slices.DeleteFunc(s.e.cfg.Questions.Audience(q, now), func(id arcp.SessionID) bool { return s.executes(q, id) })
}

// executes reports whether a session executes the job or an ancestor. Such a session must
// not answer a gate or grant a permission.
func (r *run) executes(q *approval.Row, id arcp.SessionID) bool {
	if q.Kind != approval.Gate && q.Kind != approval.Permission || r.e.cfg.Runs == nil {
		return false
	}
	ref := r.row.Agent
	for parent := r.row.Parent; !r.e.cfg.Runs(ref, id); {
		if parent == "" {
			return false
		}
		var err error
		if ref, parent, err = r.e.toolOf(parent); err != nil {
			return !errors.Is(err, store.ErrNotFound) // an ancestor that cannot be read may be executed by the session
		}
	}
	return true
}

// toolOf returns the tool and the parent of a job.
func (e *Engine) toolOf(id arcp.JobID) (ref string, parent arcp.JobID, err error) {
	if r := e.run(id); r != nil {
		return r.row.Agent, r.row.Parent, nil
	}
	j, err := e.cfg.Store.Job(context.Background(), id)
	return j.Agent, j.Parent, err
}

// blockOn blocks the job until a question is closed. The clocks of the job stand still.
func (s questioner) blockOn(now time.Time, q *question.Question) {
	if !s.questions.Wait(q) {
		return
	}
	s.machine.Block(now)
	s.due = s.machine.Deadline()
	if s.maxRuntime > 0 {
		s.progress.Blocked, s.progress.unsaved = now, true
	}
	s.limit.Pause(now)
}

// unblock lets the job run again.
func (s questioner) unblock(now time.Time) {
	s.machine.Unblock(now)
	s.due = s.machine.Deadline()
	s.progress.Unblock(now)
	s.progress.unsaved = s.progress.unsaved || s.maxRuntime > 0
	s.limit.Resume(now)
}

// update replaces the row of a question.
func (s questioner) update(now time.Time, q *question.Question, row approval.Row) {
	s.mu.Lock()
	e := s.questions.Update(q, row)
	s.mu.Unlock()
	s.applyEffect(now, e)
}

// applyEffect applies the effect of a changed question.
func (s questioner) applyEffect(now time.Time, e question.Effect) {
	if !e.Closed {
		s.write.addCommands(&questionChanged{q: e.Question})
		if e.Escalated {
			s.deliver(e.Question, s.audience(&e.Question.Row, now))
		}
		return
	}
	s.mu.Lock()
	s.write.dropQuestion(e.Question, &s.events)
	s.mu.Unlock()
	if e.Unblocks {
		s.unblock(now)
	}
	s.write.addCommands(&questionClosed{q: e.Question})
	if len(e.Notified) > 0 {
		s.emitRouted(now, arcp.HumanInputCancelled, e.Notice, &store.Route{To: e.Notified, ReplyTo: e.Question.Request})
	}
	if e.Failure != nil {
		s.machine.Fail(now, e.Failure)
	}
}

// dropQuestion removes the event of a question that is closed before it is in the log. Called with
// run.mu, which guards the queue of the event.
func (pw *pendingWrite) dropQuestion(q *question.Question, events *eventQueue) {
	pw.questions = slices.DeleteFunc(pw.questions, func(o questionEvent) bool {
		if o.q != q {
			return false
		}
		events.remove(o.event)
		return true
	})
}

// deliver delivers a question to more sessions with the next write.
func (s questioner) deliver(q *question.Question, sessions []arcp.SessionID) {
	s.mu.Lock()
	q.RecordDelivery(sessions)
	s.mu.Unlock()
	for _, id := range sessions {
		s.write.deliveries = append(s.write.deliveries, store.DeliverEvent{Session: id, Job: s.row.ID, JSeq: q.Row.JSeq})
	}
}

// questionClosed reports that a question is closed when that is durable.
type questionClosed struct {
	report
	q *question.Question
}

// report is embedded in commands that are created with a write and report its result.
type report struct{}

func (report) apply(*supervisor, time.Time) {}
func (report) rejected(*Engine, bool)       {}

func (d *questionClosed) committed(s *supervisor, err error) {
	if err != nil {
		return
	}
	s.mu.Lock()
	d.q.Closed = true
	c := s.answerc[d.q]
	delete(s.answerc, d.q)
	s.mu.Unlock()
	if c != nil {
		close(c)
	}
	if d.q.Request != "" { // it was asked
		s.e.cfg.Questions.Closed(s.questionRow(d.q))
	}
}

// questionChanged reports a change of a pending question when it is durable.
type questionChanged struct {
	report
	q *question.Question
}

func (d *questionChanged) committed(s *supervisor, err error) {
	if row := s.questionRow(d.q); err == nil && row.Status == approval.Pending {
		s.e.cfg.Questions.Asked(row, d.q.Request)
	}
}

// withdrawQuestion withdraws a question for which its attempt does not wait any more.
type withdrawQuestion struct {
	attempt       *supervisor
	q             *question.Question
	alreadyClosed bool // it was closed otherwise
	done          chan struct{}
}

func (w *withdrawQuestion) apply(s *supervisor, now time.Time) {
	defer close(w.done)
	if s != w.attempt {
		return
	}
	s.mu.Lock()
	e, withdrawn := s.questions.Withdraw(now, w.q, "withdrawn")
	s.mu.Unlock()
	if w.alreadyClosed = !withdrawn; withdrawn {
		questioner{s}.applyEffect(now, e)
	}
}

func (w *withdrawQuestion) committed(*supervisor, error) {}
func (w *withdrawQuestion) rejected(*Engine, bool)       { close(w.done) }

// advanceQuestions expires and escalates the questions that are due.
func (s questioner) advanceQuestions(now time.Time) {
	s.mu.Lock()
	effects := s.questions.Advance(now)
	s.mu.Unlock()
	for _, e := range effects {
		s.applyEffect(now, e)
	}
}

// withdrawQuestions withdraws the pending questions of a job that ends.
func (s questioner) withdrawQuestions(now time.Time) {
	s.mu.Lock()
	effects := s.questions.WithdrawAll(now)
	s.mu.Unlock()
	for _, e := range effects {
		s.applyEffect(now, e)
	}
}

// addQuestions adds the changed rows to the write of their events.
func (s questioner) addQuestions(w *store.Write) error {
	events := store.Find[*store.AppendEvents](w).Events
	for _, o := range s.write.questions {
		if i := slices.Index(events, o.event); i >= 0 {
			s.mu.Lock()
			o.q.Row.JSeq = s.lastJSeq + uint64(i) + 1
			s.mu.Unlock()
		}
	}
	for _, q := range s.questions.All() {
		if !q.Unsaved || q.Queued && q.Row.JSeq == 0 { // else the write of its event stores it
			continue
		}
		rec, err := s.records().question(q)
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	for i := range s.write.deliveries {
		w.Ops = slices.Insert(w.Ops, i, store.Op(&s.write.deliveries[i]))
	}
	s.write.deliveries = nil
	return nil
}

// question is the change of the record of a question.
func (jr jobRecords) question(q *question.Question) (rec store.Record, err error) {
	rec.Key = approval.RecordKey(&q.Row)
	if rec.Rev, err = jr.revision(rec.Key, q.Rev); err != nil {
		return rec, err
	}
	rec.Value, err = arcp.Marshal(q.Row)
	q.Rev, q.Size = rec.Rev, len(rec.Value)
	return rec, err
}

// questionsLogged records that questions are in the log. It is called before an event of
// the write is delivered: an answer may arrive at once.
func (s questioner) questionsLogged() {
	s.write.questions = slices.DeleteFunc(s.write.questions, func(o questionEvent) bool {
		if o.event.JSeq == 0 {
			return false
		}
		o.q.SetLogged(o.event.ID())
		if row := s.questionRow(o.q); row.Status == approval.Pending {
			s.e.cfg.Questions.Asked(row, o.q.Request)
		}
		return true
	})
}

// questionsCommitted records that the rows are written.
func (s questioner) questionsCommitted() {
	if !s.questions.Committed() {
		return
	}
	keep := question.MaxClosed
	if s.tool.Recovery == tool.RecoveryFail && s.progress.Failed+1 >= s.retry.MaxAttempts {
		keep = question.MaxClosedFinal
	}
	s.mu.Lock()
	s.questions.Forget(keep)
	s.mu.Unlock()
}

func (j toolJob) Ask(ctx context.Context, a tool.InputAsk) (tool.Answer, error) {
	return j.answer(ctx, approval.Row{Kind: approval.Input, Action: a.Prompt, Schema: a.Schema, Default: a.Default}, a.Expires)
}

func (j toolJob) Choose(ctx context.Context, c tool.ChoiceAsk) (tool.Answer, error) {
	if err := approval.CheckOptions(c.Options); err != nil {
		return tool.Answer{}, err
	}
	return j.answer(ctx, approval.Row{Kind: approval.Choice, Action: c.Prompt, Options: c.Options}, c.Expires)
}

func (tg toolGoroutine) answer(ctx context.Context, row approval.Row, wait time.Duration) (tool.Answer, error) {
	row, err := tg.ask(ctx, row, wait)
	switch {
	case err != nil:
		return tool.Answer{}, err
	case row.Status != approval.Resolved:
		return tool.Answer{}, question.Refusal(&row)
	}
	return tool.Answer{
		Value:       row.Value,
		ChoiceID:    row.Resolution,
		RespondedBy: row.RespondedBy,
		ResolvedBy:  row.ResolvedBy,
		At:          row.ResolvedAt,
	}, nil
}

// gate asks another session for an approval. Every other answer is an error.
func (tg toolGoroutine) gate(ctx context.Context, row approval.Row, wait time.Duration) error {
	s := tg.s
	row.Kind, row.Options = approval.Gate, approval.ApproveOrDeny
	row.Barred = slices.Clone(s.barred)
	if s.row.Session != "" {
		row.Barred = append(row.Barred, s.row.Session)
	}
	row, err := tg.ask(ctx, row, wait)
	switch {
	case err != nil:
		return err
	case !row.Approved():
		return question.Refusal(&row)
	}
	return nil
}
