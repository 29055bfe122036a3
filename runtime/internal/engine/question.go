package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Questions delivers questions to sessions. It is told of a question after its change is
// durable and before the event is delivered. It must neither block nor call the engine.
type Questions interface {
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

// Bounds of the questions of a job.
const (
	maxQuestions = 64 // that are pending

	// The latest closed questions stay in memory, for attempts that ask them again and
	// for late answers.
	maxClosed      = 1024
	maxClosedBytes = 4 << 20
	maxClosedLast  = 64 // when no other attempt can follow
)

// beforeCall is the ordinal of a question before the tool is called. It does not count as a
// question of the tool: an attempt that starts from a checkpoint asks it again.
const beforeCall = -1

// question is a question of the job. The supervisor owns it, except for the row.
type question struct {
	rev     uint64         // of its record; 0: unknown
	event   *store.Event   // on its way; nil: in the log
	request arcp.MessageID // id of the event
	waiters int            // calls of the attempt that wait for the answer
	changed bool           // the record is to be written
	size    int            // bytes of its record
	done    chan struct{}  // closed when it is durable that the question is not pending

	row approval.Row // changes with run.mu
}

func (q *question) pending() bool { return q.row.Status == approval.Pending }

// questionSet has the questions of a job. The supervisor owns it; list changes with run.mu.
// waiters is the sum over the questions: while it is not 0 the job is blocked.
type questionSet struct {
	list       []*question
	ordinal    int                  // questions of the attempt so far
	waiters    int                  // of the attempt
	deliveries []store.DeliverEvent // of questions to more sessions, with the next write
}

// begin begins an attempt.
func (s *questionSet) begin() {
	for _, q := range s.list {
		q.waiters = 0
	}
	s.ordinal, s.waiters, s.deliveries = 0, 0, nil
}

// find returns a question; nil: there is none.
func (s *questionSet) find(id string) *question {
	for _, q := range s.list {
		if q.row.ID == id {
			return q
		}
	}
	return nil
}

// interrupt returns the pending interrupt; nil: there is none.
func (s *questionSet) interrupt() *question {
	for _, q := range s.list {
		if q.row.Interrupt && q.pending() {
			return q
		}
	}
	return nil
}

// repeated returns the question of an earlier attempt that a new one repeats; nil: there is
// none. A withdrawn question has no answer. A pending one may have another ordinal, for
// attempts that ask several questions at once ask them in any order.
func (s *questionSet) repeated(row *approval.Row) *question {
	var other *question
	for _, q := range s.list {
		switch {
		case q.row.Interrupt || q.row.Digest != row.Digest || q.row.Status == approval.Cancelled:
		case q.row.Ordinal == row.Ordinal:
			return q
		case other == nil && q.pending() && q.waiters == 0:
			other = q
		}
	}
	return other
}

// pending returns the number of pending questions.
func (s *questionSet) pending() (n int) {
	for _, q := range s.list {
		if q.pending() {
			n++
		}
	}
	return n
}

// due returns when the next question expires or escalates; zero: there is none.
func (s *questionSet) due() (due time.Time) {
	for _, q := range s.list {
		due = earliest(due, q.row.Deadline())
	}
	return due
}

// wait adds a waiter and reports whether it is the only one.
func (s *questionSet) wait(q *question) bool {
	q.waiters++
	s.waiters++
	return s.waiters == 1
}

// release removes the waiters of a question and reports whether they were the last ones.
func (s *questionSet) release(q *question) bool {
	n := q.waiters
	q.waiters = 0
	s.waiters -= n
	return n > 0 && s.waiters == 0
}

// forgetClosed drops the oldest closed questions that are written: keep of them stay, and
// at most maxClosedBytes.
func forgetClosed(list []*question, keep int) []*question {
	bytes := 0
	for i, q := range slices.Backward(list) {
		if q.changed || q.pending() {
			continue
		}
		keep--
		if bytes += q.size; keep < 0 || bytes > maxClosedBytes {
			list[i] = nil
		}
	}
	return slices.DeleteFunc(list, func(q *question) bool { return q == nil })
}

// NewQuestionID returns a new id of a question.
func NewQuestionID() string { return arcp.NewID(approval.IDPrefix) }

// questionDigest identifies the content of a question for later attempts. It refuses a
// question that cannot be asked.
func questionDigest(q *approval.Row) (string, *arcp.Error) {
	if len(q.Action) > approval.MaxText {
		return "", tooLong("its text may have at most %d bytes", approval.MaxText)
	}
	raw, err := arcp.Marshal(approval.Row{Kind: q.Kind, Action: q.Action, Details: q.Details, Options: q.Options,
		Schema: q.Schema, Default: q.Default, Permission: q.Permission, Quorum: q.Quorum})
	if err == nil {
		raw, err = arcp.Canonical(raw)
	}
	switch {
	case err != nil:
		return "", arcp.Errorf(arcp.CodeInvalidArgument, "the question is not valid JSON")
	case arcp.DeeperThan(raw, tool.MaxDepth+1): // the row is a level, too
		return "", arcp.Errorf(arcp.CodeInvalidArgument, "the question is nested deeper than %d levels", tool.MaxDepth)
	case len(raw) > maxPayload-requestBytes:
		return "", tooLong("the question may have at most %d bytes", maxPayload-requestBytes)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

// requestBytes bounds the event of a question without its content.
const requestBytes = 1 << 10

func tooLong(format string, limit int) *arcp.Error {
	e := arcp.Errorf(arcp.CodeResourceExhausted, format, limit)
	e.Retryable = false // it would be as long again
	return e
}

// newQuestion completes a question of the job.
func (r *run) newQuestion(row approval.Row, wait time.Duration) (approval.Row, *arcp.Error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if wait <= 0 {
		wait = approval.DefaultExpiry
	}
	row.ID, row.Status = cmp.Or(row.ID, NewQuestionID()), approval.Pending
	row.Principal, row.Session, row.Job = r.row.Principal, r.row.Session, r.row.ID
	r.e.scrubber().question(&row)
	row.CreatedAt, row.ExpiresAt = now, now.Add(min(wait, approval.MaxExpiry))
	var err *arcp.Error
	row.Digest, err = questionDigest(&row)
	return row, err
}

// ask asks a question and waits until it is closed. A later attempt that asks again finds
// the question, and its answer.
func (j toolSide) ask(ctx context.Context, row approval.Row, wait time.Duration) (approval.Row, error) {
	s := j.s
	row, refusal := s.newQuestion(row, wait)
	if refusal != nil {
		return row, refusal
	}
	a := &askQuestion{s: s, row: row, done: make(chan error, 1)}
	if j.attemptEnded() || !s.post(a) {
		return row, errEnded
	}
	if err := <-a.done; err != nil { // it is always told
		return row, err
	}
	select {
	case <-a.q.done:
		return j.answered(a.q)
	case <-ctx.Done():
	}
	w := &withdrawQuestion{s: s, q: a.q, done: make(chan struct{})}
	if s.post(w) {
		<-w.done
	}
	if w.alreadyClosed { // a client was told that its answer counts
		select {
		case <-a.q.done:
			return j.answered(a.q)
		case <-s.ctx.Done():
		}
	}
	return row, context.Cause(ctx)
}

// answered returns a closed question. For a question that was withdrawn with its job the
// error is the reason why the attempt was stopped.
func (j toolSide) answered(q *question) (approval.Row, error) {
	row := j.s.answerOf(q)
	if row.Status == approval.Cancelled {
		return row, context.Cause(j.s.ctx)
	}
	return row, nil
}

// attemptEnded reports whether nothing more of the attempt is taken.
func (j toolSide) attemptEnded() bool {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return j.s.events.closed
}

func (r *run) answerOf(q *question) approval.Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.row
}

// askQuestion asks a question of the tool.
type askQuestion struct {
	s    *supervisor
	row  approval.Row
	q    *question
	done chan error // buffered 1
}

func (a *askQuestion) apply(s *supervisor, now time.Time) {
	if s != a.s || !s.running() || s.progress.Cancel != nil {
		a.done <- errEnded
		return
	}
	if a.row.Ordinal != beforeCall {
		a.row.Ordinal = s.questions.ordinal
		s.questions.ordinal++
	}
	if a.q = s.questions.repeated(&a.row); a.q != nil {
		if moved := s.answerOf(a.q); moved.Ordinal != a.row.Ordinal {
			moved.Ordinal = a.row.Ordinal
			questioner{s}.updateQuestion(a.q, moved)
		}
		if a.q.pending() {
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
	s.write.answerWith(a)
}

func (a *askQuestion) committed(_ *supervisor, err error) {
	if err != nil {
		a.done <- errEnded
		return
	}
	a.done <- nil
}

func (a *askQuestion) rejected(*Engine, bool) { a.done <- errEnded }

// running reports whether there is an attempt.
func (s *supervisor) running() bool {
	state := s.m.State()
	return state == arcp.StateRunning || state == arcp.StateBlocked
}

// questioner asks and closes the questions of a job. It is a part of the supervisor.
type questioner struct{ *supervisor }

// addQuestion asks a question. Its event and its row are written together.
func (s questioner) addQuestion(now time.Time, row approval.Row) (*question, error) {
	if s.questions.pending() >= maxQuestions {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "the job asks %d questions already", maxQuestions).RetryAfter(retryAfter)
	}
	row.Sent = s.audience(&row, now)
	row.Sent = row.Sent[:min(len(row.Sent), approval.MaxSent)]
	t, payload := requestOf(&row)
	q := &question{row: row, changed: true, done: make(chan struct{})}
	q.event = s.event(t, now, arcp.PriorityCritical, payload)
	if n := len(q.event.Body); n > maxPayload {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "a question of %d bytes: an event may have at most %d", n, maxPayload)
	}
	q.event.Route = &store.Route{To: row.Sent}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events.ending() {
		return nil, errEnded
	}
	if row.Kind == approval.Gate { // the followers of the job do not get the question
		s.events.push(s.event(arcp.EventEmit, now, s.row.Priority, askedEvent(&row)))
	}
	s.events.push(q.event)
	s.questions.list = append(s.questions.list, q)
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
		if ref, parent, err = toolOf(r.e, parent); err != nil {
			return !errors.Is(err, store.ErrNotFound) // an ancestor that cannot be read may be executed by the session
		}
	}
	return true
}

// toolOf returns the tool and the parent of a job.
func toolOf(e *Engine, id arcp.JobID) (ref string, parent arcp.JobID, err error) {
	if r := e.run(id); r != nil {
		return r.row.Agent, r.row.Parent, nil
	}
	j, err := e.cfg.Store.Job(context.Background(), id)
	return j.Agent, j.Parent, err
}

// askedEvent tells the followers of the job that it waits for an approval.
func askedEvent(q *approval.Row) arcp.EventEmitPayload {
	data, err := arcp.Marshal(arcp.ApprovalRequested{ApprovalID: q.ID, Action: q.Action, ExpiresAt: q.ExpiresAt})
	if err != nil { // two texts and a time
		panic("engine: approval: " + err.Error())
	}
	return arcp.EventEmitPayload{Name: arcp.EventApprovalRequested, Data: data}
}

// requestOf returns the message of a question.
func requestOf(q *approval.Row) (arcp.Type, any) {
	switch q.Kind {
	case approval.Permission:
		p := arcp.PermissionRequestPayload{Permission: q.Permission.Permission, Resource: q.Permission.Resource,
			Operation: q.Permission.Operation, Reason: q.Action, ApprovalID: q.ID}
		if q.Permission.Seconds > 0 {
			p.RequestedLeaseSeconds = &q.Permission.Seconds
		}
		return arcp.PermissionRequest, p
	case approval.Input:
		schema := q.Schema
		if len(schema) == 0 {
			schema = arcp.Raw("{}") // anything; published clients insist on the member
		}
		return arcp.HumanInputRequest, arcp.HumanInputRequestPayload{Prompt: q.Action, ResponseSchema: schema,
			Default: q.Default, ExpiresAt: q.ExpiresAt, ApprovalID: q.ID}
	}
	return arcp.HumanChoiceRequest, arcp.HumanChoiceRequestPayload{Prompt: q.Action, Options: q.Options,
		ExpiresAt: q.ExpiresAt, Details: q.Details, ApprovalID: q.ID}
}

// blockOn blocks the job until a question is closed. The clocks of the job stand still.
func (s questioner) blockOn(now time.Time, q *question) {
	if !s.questions.wait(q) {
		return
	}
	s.m.Block(now)
	s.due = s.m.Deadline()
	if s.maxRuntime > 0 {
		s.progress.Blocked, s.progress.unsaved = now, true
	}
	s.limit.Pause(now)
}

// unblock ends the wait for a question.
func (s questioner) unblock(now time.Time, q *question) {
	if !s.questions.release(q) {
		return
	}
	s.m.Unblock(now)
	s.due = s.m.Deadline()
	s.progress.Unblock(now)
	s.progress.unsaved = s.progress.unsaved || s.maxRuntime > 0
	s.limit.Resume(now)
}

// updateQuestion changes the row of a question.
func (s questioner) updateQuestion(q *question, row approval.Row) {
	s.mu.Lock()
	q.row, q.changed = row, true
	s.mu.Unlock()
}

// closeQuestion ends a question with its last row. The sessions that got it and have not
// answered are told. A question that is not in the log yet is not delivered.
func (s questioner) closeQuestion(now time.Time, q *question, row approval.Row) {
	if q.event != nil {
		s.mu.Lock()
		s.events.remove(q.event)
		q.event = nil
		s.mu.Unlock()
	}
	s.updateQuestion(q, row)
	s.unblock(now, q)
	s.write.answerWith(&questionClosed{q})
	if others := row.OtherSessions(); len(others) > 0 && q.request != "" {
		s.announce(now, arcp.HumanInputCancelled, cancelledOf(&row), &store.Route{To: others, ReplyTo: q.request})
	}
}

func cancelledOf(q *approval.Row) arcp.HumanInputCancelledPayload {
	switch {
	case q.Status == approval.Expired:
		return arcp.HumanInputCancelledPayload{Code: arcp.CodeDeadlineExceeded, Reason: "expired"}
	case q.Status == approval.Cancelled:
		return arcp.HumanInputCancelledPayload{Code: arcp.CodeCancelled, Reason: q.Reason}
	case q.Resolution == approval.ByDefault:
		return arcp.HumanInputCancelledPayload{Code: arcp.CodeDeadlineExceeded, Reason: "the default was taken"}
	}
	return arcp.HumanInputCancelledPayload{Code: arcp.CodeCancelled, Reason: "answered"}
}

// questionClosed tells that a question is closed when that is durable.
type questionClosed struct{ q *question }

func (d *questionClosed) apply(*supervisor, time.Time) {}

func (d *questionClosed) committed(s *supervisor, err error) {
	if err != nil {
		return
	}
	close(d.q.done)
	if d.q.request != "" { // it was asked
		s.e.cfg.Questions.Closed(s.answerOf(d.q))
	}
}

func (d *questionClosed) rejected(*Engine, bool) {}

// withdrawQuestion withdraws a question for which its attempt does not wait any more.
type withdrawQuestion struct {
	s             *supervisor
	q             *question
	alreadyClosed bool // it was closed otherwise
	done          chan struct{}
}

func (w *withdrawQuestion) apply(s *supervisor, now time.Time) {
	defer close(w.done)
	if s != w.s {
		return
	}
	if row := s.answerOf(w.q); row.Cancel(now.UTC(), "withdrawn") {
		questioner{s}.closeQuestion(now, w.q, row)
	} else {
		w.alreadyClosed = true
	}
}

func (w *withdrawQuestion) committed(*supervisor, error) {}
func (w *withdrawQuestion) rejected(*Engine, bool)       { close(w.done) }

// expireQuestions closes or escalates the questions that are due.
func (s questioner) expireQuestions(now time.Time) {
	for _, q := range s.questions.list {
		if d := q.row.Deadline(); d.IsZero() || now.Before(d) {
			continue
		}
		row := s.answerOf(q)
		if row.Advance(now.UTC()) {
			s.closeQuestion(now, q, row)
			if row.Interrupt {
				s.m.Fail(now, arcp.Errorf(arcp.CodeDeadlineExceeded, "nobody answered the interrupt in time"))
			}
		} else if row.Escalate(now) {
			s.deliverQuestion(q, row, s.audience(&row, now))
		}
	}
}

// deliverQuestion delivers a question to more sessions.
func (s questioner) deliverQuestion(q *question, row approval.Row, sessions []arcp.SessionID) {
	for _, id := range sessions {
		row.Sent = append(slices.Clip(row.Sent[max(0, len(row.Sent)+1-approval.MaxSent):]), id)
		s.questions.deliveries = append(s.questions.deliveries, store.DeliverEvent{Session: id, Job: s.row.ID, JSeq: row.JSeq})
	}
	s.updateQuestion(q, row)
	s.write.answerWith(&questionChanged{q})
}

// questionChanged tells of a change of a pending question when that is durable.
type questionChanged struct{ q *question }

func (d *questionChanged) apply(*supervisor, time.Time) {}

func (d *questionChanged) committed(s *supervisor, err error) {
	if row := s.answerOf(d.q); err == nil && row.Status == approval.Pending {
		s.e.cfg.Questions.Asked(row, d.q.request)
	}
}

func (d *questionChanged) rejected(*Engine, bool) {}

// dropQuestions withdraws the pending questions of a job that ends.
func (s questioner) dropQuestions(now time.Time) {
	for _, q := range s.questions.list {
		if !q.pending() {
			continue
		}
		if row := s.answerOf(q); row.Cancel(now.UTC(), "the job has ended") {
			s.closeQuestion(now, q, row)
		}
	}
}

// addQuestions adds the changed rows to the write of their events.
func (s questioner) addQuestions(w *store.Write) error {
	events := store.Find[*store.AppendEvents](w).Events
	for _, q := range s.questions.list {
		if !q.changed {
			continue
		}
		if q.event != nil {
			i := slices.Index(events, q.event)
			if i < 0 {
				continue // it goes with the next write
			}
			s.mu.Lock()
			q.row.JSeq = s.jseq + uint64(i) + 1
			s.mu.Unlock()
		}
		rec, err := jobRecords{s.run}.questionRecord(q)
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	for i := range s.questions.deliveries {
		w.Ops = slices.Insert(w.Ops, i, store.Op(&s.questions.deliveries[i]))
	}
	s.questions.deliveries = nil
	return nil
}

func (r jobRecords) questionRecord(q *question) (rec store.Record, err error) {
	row := r.answerOf(q)
	rec.Key = approval.RecordKey(&row)
	if rec.Rev, err = r.revision(rec.Key, q.rev); err != nil {
		return rec, err
	}
	rec.Value, err = arcp.Marshal(row)
	q.rev, q.size = rec.Rev, len(rec.Value)
	return rec, err
}

// questionsLogged records that questions are in the log. It is called before an event of
// the write is delivered: an answer may arrive at once.
func (s questioner) questionsLogged() {
	for _, q := range s.questions.list {
		if q.event != nil && q.event.JSeq > 0 {
			q.request, q.event = q.event.ID(), nil
			if row := s.answerOf(q); row.Status == approval.Pending {
				s.e.cfg.Questions.Asked(row, q.request)
			}
		}
	}
}

// questionsCommitted records that the rows are written.
func (s questioner) questionsCommitted() {
	closed := false
	for _, q := range s.questions.list {
		if q.changed && q.event == nil {
			q.changed, q.rev = false, nextRev(q.rev)
			closed = closed || !q.pending()
		}
	}
	if !closed {
		return
	}
	keep := maxClosed
	if s.tool.Recovery == tool.RecoveryFail && s.progress.Failed+1 >= s.retry.MaxAttempts {
		keep = maxClosedLast
	}
	s.mu.Lock()
	s.questions.list = forgetClosed(s.questions.list, keep)
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

func (j toolSide) answer(ctx context.Context, row approval.Row, wait time.Duration) (tool.Answer, error) {
	row, err := j.ask(ctx, row, wait)
	switch {
	case err != nil:
		return tool.Answer{}, err
	case row.Status != approval.Resolved:
		return tool.Answer{}, refusal(&row)
	}
	return tool.Answer{Value: row.Value, ChoiceID: row.Resolution, RespondedBy: row.RespondedBy, ResolvedBy: row.ResolvedBy, At: row.ResolvedAt}, nil
}

// gate asks another session for an approval. Every other answer is an error.
func (j toolSide) gate(ctx context.Context, row approval.Row, wait time.Duration) error {
	s := j.s
	row.Kind, row.Options = approval.Gate, approval.ApproveOrDeny
	row.Barred = slices.Clone(s.barred)
	if s.row.Session != "" {
		row.Barred = append(row.Barred, s.row.Session)
	}
	row, err := j.ask(ctx, row, wait)
	switch {
	case err != nil:
		return err
	case !row.Approved():
		return refusal(&row)
	}
	return nil
}

// refusal returns the error for a question that was not answered with yes.
func refusal(q *approval.Row) *arcp.Error {
	var e *arcp.Error
	switch {
	case q.Status == approval.Expired && (q.Kind == approval.Input || q.Kind == approval.Choice):
		return arcp.Errorf(arcp.CodeDeadlineExceeded, "nobody answered in time")
	case q.Status == approval.Expired:
		e = arcp.Errorf(arcp.CodePermissionDenied, "nobody answered in time")
		e.Cause = &arcp.Cause{Code: arcp.CodeDeadlineExceeded, Message: "the question expired"}
	case q.Status == approval.Cancelled:
		e = arcp.Errorf(arcp.CodeCancelled, "the question was withdrawn: %s", q.Reason)
	case q.Reason != "":
		e = arcp.Errorf(arcp.CodePermissionDenied, "denied: %s", q.Reason)
	default:
		e = arcp.Errorf(arcp.CodePermissionDenied, "denied")
	}
	return e
}
