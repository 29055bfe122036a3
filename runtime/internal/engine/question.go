package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job"
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

// jobQuestions has the questions of a job, and the goroutines of the tool that wait for their ends.
// The supervisor changes it. Other goroutines read the list, the rows and whether a question is
// closed with mu, and these change with mu.
type jobQuestions struct {
	question.Set
	mu      *sync.Mutex                          // of the run
	waiters map[*question.Question]chan struct{} // closed when it is durable that the question is not pending
}

// done returns a channel that is closed when it is durable that a question is not pending.
func (jq *jobQuestions) done(q *question.Question) <-chan struct{} {
	jq.mu.Lock()
	defer jq.mu.Unlock()
	if q.Closed {
		return closedc
	}
	c := jq.waiters[q]
	if c == nil {
		c = make(chan struct{})
		if jq.waiters == nil {
			jq.waiters = make(map[*question.Question]chan struct{})
		}
		jq.waiters[q] = c
	}
	return c
}

// close records that it is durable that a question is not pending, and unblocks the tool.
func (jq *jobQuestions) close(q *question.Question) {
	jq.mu.Lock()
	q.Closed = true
	c := jq.waiters[q]
	delete(jq.waiters, q)
	jq.mu.Unlock()
	if c != nil {
		close(c)
	}
}

// row returns a copy of the row of a question, on any goroutine.
func (jq *jobQuestions) row(q *question.Question) approval.Row {
	jq.mu.Lock()
	defer jq.mu.Unlock()
	return q.Row
}

// committed records that the changed rows are written. It forgets closed questions beyond keep.
func (jq *jobQuestions) committed(keep int) {
	if !jq.Committed() {
		return
	}
	jq.mu.Lock()
	jq.Forget(keep)
	jq.mu.Unlock()
}

// maxClosedQuestions returns how many closed questions a job keeps: fewer in its last attempt. failed is
// the number of failed attempts.
func (d *definition) maxClosedQuestions(failed int) int {
	if d.tool.Recovery == tool.RecoveryFail && failed+1 >= d.retry.MaxAttempts {
		return question.MaxClosedFinal
	}
	return question.MaxClosed
}

// newQuestion completes a question of the job. owner is the session that owns the job, and wait is how long it stays open.
func (d *definition) newQuestion(row approval.Row, owner arcp.SessionID, wait time.Duration, scrub scrubber) (approval.Row, *arcp.Error) {
	if row.ID == "" {
		row.ID = NewQuestionID()
	}
	row.Principal, row.Session, row.Job = d.row.Principal, owner, d.row.ID
	scrub.question(&row)
	question.Complete(&row, time.Now(), wait)
	var err *arcp.Error
	row.Digest, err = question.Digest(&row, maxPayload)
	return row, err
}

// ask asks a question and waits until it is closed. A later attempt that asks again finds
// the question, and its answer.
func (tg toolGoroutine) ask(ctx context.Context, row approval.Row, wait time.Duration) (approval.Row, error) {
	s := tg.s
	row, refusal := s.newQuestion(row, s.owner(), wait, s.e.cfg.scrubber())
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
	closed := s.questions.done(a.q)
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
	row := tg.s.questions.row(q)
	if row.Status == approval.Cancelled {
		return row, context.Cause(tg.s.ctx)
	}
	return row, nil
}

// attemptEnded reports whether nothing more of the attempt is written.
func (tg toolGoroutine) attemptEnded() bool {
	tg.s.mu.Lock()
	defer tg.s.mu.Unlock()
	return tg.s.events.closed
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
			s.questioner().blockOn(now, a.q)
		}
		a.done <- nil
		return
	}
	a.row.Session = s.owner() // the job may have been handed over
	q, err := s.questioner().add(now, a.row)
	if err != nil {
		a.done <- err
		return
	}
	a.q = q
	s.questioner().blockOn(now, q)
	w := questionWait(q)
	logWaiting(s.run, w.view(s.tool.Ref()))
	s.write.addCommands(a)
}

// running reports whether there is an attempt.
func (s *supervisor) running() bool {
	state := s.machine.State()
	return state == arcp.StateRunning || state == arcp.StateBlocked
}

// attemptClock has the deadlines of an attempt, for which the time of a wait for an answer does not count.
type attemptClock struct {
	machine job.Machine
	due     time.Time     // the machine's deadline; zero: none
	limit   job.TimeLimit // of the tool
}

// block stops the clock.
func (c *attemptClock) block(now time.Time) {
	c.machine.Block(now)
	c.due = c.machine.Deadline()
	c.limit.Pause(now, job.PauseAnswer)
}

// unblock lets the clock run again.
func (c *attemptClock) unblock(now time.Time) {
	c.machine.Unblock(now)
	c.due = c.machine.Deadline()
	c.limit.Resume(now, job.PauseAnswer)
}

// questioner asks and closes the questions of a job, on the goroutine of its supervisor. The event of a
// change and the row of the question belong to one write. The broker learns of the change when that is
// durable. The clock stands still while the job waits for an answer.
type questioner struct {
	job       *definition
	questions *jobQuestions
	progress  *progressState
	clock     *attemptClock
	queue     *eventQueue // guarded by questions.mu, which is run.mu
	write     *pendingWrite
	broker    QuestionBroker
	ancestry  ancestry
}

func (s *supervisor) questioner() questioner {
	return questioner{
		job:       &s.definition,
		questions: &s.questions,
		progress:  &s.progress,
		clock:     &s.attemptClock,
		queue:     &s.events,
		write:     &s.write.pendingWrite,
		broker:    s.e.cfg.Questions,
		ancestry:  ancestry{s.e},
	}
}

// add asks a question. Its event and its row are written together.
func (qr questioner) add(now time.Time, row approval.Row) (*question.Question, error) {
	if err := qr.questions.CheckRoom(retryAfter); err != nil {
		return nil, err
	}
	row.Sent = qr.audience(&row, now)
	row.Sent = row.Sent[:min(len(row.Sent), approval.MaxSent)]
	t, payload := question.Request(&row)
	ev := qr.job.event(t, now, arcp.PriorityCritical, payload)
	if n := len(ev.Body); n > maxPayload {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "a question of %d bytes: an event may have at most %d", n, maxPayload)
	}
	ev.Route = &store.Route{To: row.Sent}
	qr.questions.mu.Lock()
	defer qr.questions.mu.Unlock()
	if qr.queue.ending() {
		return nil, errEnded
	}
	if row.Kind == approval.Gate {
		qr.queue.push(qr.job.event(arcp.EventEmit, now, qr.job.row.Priority, question.ApprovalRequested(&row)))
	}
	qr.queue.push(ev)
	q := qr.questions.Add(row)
	qr.write.questions = append(qr.write.questions, questionEvent{q, ev})
	return q, nil
}

// audience returns the sessions that get a question.
func (qr questioner) audience(q *approval.Row, now time.Time) []arcp.SessionID {
	return slices.DeleteFunc(qr.broker.Audience(q, now), func(id arcp.SessionID) bool { return qr.executes(q, id) })
}

// executes reports whether a session executes the job or an ancestor, and must not decide about it.
func (qr questioner) executes(q *approval.Row, id arcp.SessionID) bool {
	return qr.ancestry.executes(&qr.job.row, q, id)
}

// blockOn blocks the job until a question is closed. The clocks of the job stand still.
func (qr questioner) blockOn(now time.Time, q *question.Question) {
	if !qr.questions.Wait(q) {
		return
	}
	qr.clock.block(now)
	if qr.job.maxRuntime > 0 {
		qr.progress.Blocked, qr.progress.unsaved = now, true
	}
}

// unblock lets the job run again.
func (qr questioner) unblock(now time.Time) {
	qr.clock.unblock(now)
	qr.progress.Unblock(now)
	qr.progress.unsaved = qr.progress.unsaved || qr.job.maxRuntime > 0
}

// update replaces the row of a question.
func (qr questioner) update(now time.Time, q *question.Question, row approval.Row) {
	qr.questions.mu.Lock()
	e := qr.questions.Update(q, row)
	qr.questions.mu.Unlock()
	qr.applyEffect(now, e)
}

// applyEffect applies the effect of a changed question.
func (qr questioner) applyEffect(now time.Time, e question.Effect) {
	if !e.Closed {
		qr.write.addCommands(&questionChanged{q: e.Question})
		if e.Escalated {
			qr.deliver(e.Question, qr.audience(&e.Question.Row, now))
		}
		return
	}
	qr.questions.mu.Lock()
	qr.write.dropQuestion(e.Question, qr.queue)
	qr.questions.mu.Unlock()
	if e.Unblocks {
		qr.unblock(now)
	}
	qr.write.addCommands(&questionClosed{q: e.Question})
	if len(e.Notified) > 0 {
		ev := qr.job.routedEvent(now, arcp.HumanInputCancelled, e.Notice, &store.Route{To: e.Notified, ReplyTo: e.Question.Request})
		qr.questions.mu.Lock()
		qr.queue.push(ev)
		qr.questions.mu.Unlock()
	}
	if e.Failure != nil {
		qr.clock.machine.Fail(now, e.Failure)
	}
}

// deliver delivers a question to more sessions with the next write.
func (qr questioner) deliver(q *question.Question, sessions []arcp.SessionID) {
	qr.questions.mu.Lock()
	q.RecordDelivery(sessions)
	qr.questions.mu.Unlock()
	for _, id := range sessions {
		qr.write.deliveries = append(qr.write.deliveries, store.DeliverEvent{Session: id, Job: qr.job.row.ID, JSeq: q.Row.JSeq})
	}
}

// advance expires and escalates the questions that are due.
func (qr questioner) advance(now time.Time) {
	qr.questions.mu.Lock()
	effects := qr.questions.Advance(now)
	qr.questions.mu.Unlock()
	for _, e := range effects {
		qr.applyEffect(now, e)
	}
}

// withdrawAll withdraws the pending questions of a job that ends.
func (qr questioner) withdrawAll(now time.Time) {
	qr.questions.mu.Lock()
	effects := qr.questions.WithdrawAll(now)
	qr.questions.mu.Unlock()
	for _, e := range effects {
		qr.applyEffect(now, e)
	}
}

// ancestry reads a job and its ancestors.
type ancestry struct{ e *Engine }

// executes reports whether a session executes the job of a question or an ancestor. Such a session must
// not answer a gate or grant a permission.
func (a ancestry) executes(row *store.Job, q *approval.Row, id arcp.SessionID) bool {
	if q.Kind != approval.Gate && q.Kind != approval.Permission || a.e.cfg.Runs == nil {
		return false
	}
	ref := row.Agent
	for parent := row.Parent; !a.e.cfg.Runs(ref, id); {
		if parent == "" {
			return false
		}
		var err error
		if ref, parent, err = a.toolOf(parent); err != nil {
			return !errors.Is(err, store.ErrNotFound) // an ancestor that cannot be read may be executed by the session
		}
	}
	return true
}

// toolOf returns the tool and the parent of a job.
func (a ancestry) toolOf(id arcp.JobID) (ref string, parent arcp.JobID, err error) {
	if r := a.e.run(id); r != nil {
		return r.row.Agent, r.row.Parent, nil
	}
	j, err := a.e.cfg.Store.Job(context.Background(), id)
	return j.Agent, j.Parent, err
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

// questionClosed reports that a question is closed when that is durable.
type questionClosed struct {
	report
	q *question.Question
}

// report is embedded in commands that are created with a write and report its result.
type report struct{}

func (report) apply(*supervisor, time.Time) {}
func (report) rejected(*Engine, bool)       {}

func (qc *questionClosed) committed(jw *jobWriter, err error) {
	if err != nil {
		return
	}
	questions := &jw.run.questions
	questions.close(qc.q)
	if qc.q.Request != "" { // it was asked
		jw.run.e.cfg.Questions.Closed(questions.row(qc.q))
	}
}

// questionChanged reports a change of a pending question when it is durable.
type questionChanged struct {
	report
	q *question.Question
}

func (qc *questionChanged) committed(jw *jobWriter, err error) {
	if row := jw.run.questions.row(qc.q); err == nil && row.Status == approval.Pending {
		jw.run.e.cfg.Questions.Asked(row, qc.q.Request)
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
		s.questioner().applyEffect(now, e)
	}
}

func (w *withdrawQuestion) committed(*jobWriter, error) {}
func (w *withdrawQuestion) rejected(*Engine, bool)      { close(w.done) }

// addQuestions adds the changed rows to the write of their events. lastJSeq is the position of the event
// before the write.
func (pw *pendingWrite) addQuestions(w *store.Write, questions *jobQuestions, records jobRecords, lastJSeq uint64) error {
	events := store.Find[*store.AppendEvents](w).Events
	for _, o := range pw.questions {
		if i := slices.Index(events, o.event); i >= 0 {
			questions.mu.Lock()
			o.q.Row.JSeq = lastJSeq + uint64(i) + 1
			questions.mu.Unlock()
		}
	}
	for _, q := range questions.All() {
		if !q.Unsaved || q.Queued && q.Row.JSeq == 0 { // else the write of its event stores it
			continue
		}
		rec, err := records.question(q)
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	for i := range pw.deliveries {
		w.Ops = slices.Insert(w.Ops, i, store.Op(&pw.deliveries[i]))
	}
	pw.deliveries = nil
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
func (pw *pendingWrite) questionsLogged(questions *jobQuestions, broker QuestionBroker) {
	pw.questions = slices.DeleteFunc(pw.questions, func(o questionEvent) bool {
		if o.event.JSeq == 0 {
			return false
		}
		o.q.SetLogged(o.event.ID())
		if row := questions.row(o.q); row.Status == approval.Pending {
			broker.Asked(row, o.q.Request)
		}
		return true
	})
}

func (j toolJob) Ask(ctx context.Context, req tool.InputRequest) (tool.Answer, error) {
	return j.answer(ctx, approval.Row{Kind: approval.Input, Action: req.Prompt, Schema: req.Schema, Default: req.Default}, req.Expires)
}

func (j toolJob) Choose(ctx context.Context, req tool.ChoiceRequest) (tool.Answer, error) {
	if err := approval.CheckOptions(req.Options); err != nil {
		return tool.Answer{}, err
	}
	return j.answer(ctx, approval.Row{Kind: approval.Choice, Action: req.Prompt, Options: req.Options}, req.Expires)
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
	row.Barred = append(row.Barred, sessionsOf(s.run)...)
	row, err := tg.ask(ctx, row, wait)
	switch {
	case err != nil:
		return err
	case !row.Approved():
		return &tool.LoggableError{Err: question.Refusal(&row), Log: question.LogText(&row)}
	}
	return nil
}
