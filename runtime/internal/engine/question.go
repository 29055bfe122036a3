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

// Questions knows the sessions that can be asked: it says which ones a question is given to,
// and is told what becomes of it, always after that is durable and before it is
// delivered. It must neither block nor call the engine.
type Questions interface {
	// Audience is who is connected now and is to be given the question.
	Audience(q *approval.Row, now time.Time) []arcp.SessionID
	// Asked is told of a question that is pending, also again when something about
	// it has changed, with the id of its event.
	Asked(q approval.Row, request arcp.MessageID)
	// Settled is told of one that is not pending any more.
	Settled(q approval.Row)
}

// silence is the Questions of a runtime without sessions that can be asked: what waits for
// a person expires.
type silence struct{}

func (silence) Audience(*approval.Row, time.Time) []arcp.SessionID { return nil }
func (silence) Asked(approval.Row, arcp.MessageID)                 {}
func (silence) Settled(approval.Row)                               {}

// Bounds of the questions of a job.
const (
	maxQuestions = 64 // that are pending

	// Of those that are settled the latest stay in memory: for attempts that may ask
	// them again, and for those who answer too late.
	keptSettled      = 1024
	keptSettledBytes = 4 << 20
	keptLate         = 64 // when no other attempt can follow
)

// beforeCall is the ordinal of what is asked before the tool is called, which
// does not count among the tool's own questions: an attempt that goes on from a
// checkpoint asks it again, and not those before the checkpoint.
const beforeCall = -1

// question is one that the job asks or has asked. The supervisor owns it, but for
// the row.
type question struct {
	rev     uint64         // of its record; 0: unknown
	event   *store.Event   // on its way; nil: in the log
	request arcp.MessageID // the id of the event
	waiters int            // of the attempt: they are released when it is settled
	changed bool           // to be written
	size    int            // of its record
	done    chan struct{}  // closed when it is durable that it is not pending any more

	row approval.Row // guarded by run.mu
}

// NewQuestionID mints the id of a question.
func NewQuestionID() string { return arcp.NewID(approval.IDPrefix) }

// content is what makes two questions the same one for another attempt. It
// refuses what cannot be asked.
func content(q *approval.Row) (string, *arcp.Error) {
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

// requestBytes is what the event of a question has beside its content, at most.
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
	r.e.scrubQuestion(&row)
	row.CreatedAt, row.ExpiresAt = now, now.Add(min(wait, approval.MaxExpiry))
	var err *arcp.Error
	row.Digest, err = content(&row)
	return row, err
}

// ask has a question asked and waits for what becomes of it. Another attempt that
// asks again finds the question, and its answer.
func (s *supervisor) ask(ctx context.Context, row approval.Row, wait time.Duration) (approval.Row, error) {
	row, refusal := s.newQuestion(row, wait)
	if refusal != nil {
		return row, refusal
	}
	a := &raise{s: s, row: row, done: make(chan error, 1)}
	if s.isOver() || !s.post(a) {
		return row, errEnded
	}
	if err := <-a.done; err != nil { // it is always told
		return row, err
	}
	select {
	case <-a.q.done:
		return s.answered(a.q)
	case <-ctx.Done():
	}
	w := &withdraw{s: s, q: a.q, done: make(chan struct{})}
	if s.post(w) {
		<-w.done
	}
	if w.late { // somebody was told that the answer counts
		select {
		case <-a.q.done:
			return s.answered(a.q)
		case <-s.ctx.Done():
		}
	}
	return row, context.Cause(ctx)
}

// answered returns what has become of a question. One that was withdrawn with its job has
// no answer, but the reason why the attempt was told to stop.
func (s *supervisor) answered(q *question) (approval.Row, error) {
	row := s.answerOf(q)
	if row.Status == approval.Cancelled {
		return row, context.Cause(s.ctx)
	}
	return row, nil
}

// isOver reports whether nothing more of the attempt is taken.
func (s *supervisor) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

func (r *run) answerOf(q *question) approval.Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.row
}

// raise is a question that the tool of an attempt asks.
type raise struct {
	s    *supervisor
	row  approval.Row
	q    *question
	done chan error // buffered 1
}

func (a *raise) meet(s *supervisor, now time.Time) {
	if s != a.s || !s.running() || s.progress.Cancel != nil {
		a.done <- errEnded
		return
	}
	if a.row.Ordinal != beforeCall {
		a.row.Ordinal = s.ordinal
		s.ordinal++
	}
	if a.q = s.same(&a.row); a.q != nil { // an earlier attempt has asked it
		if a.q.row.Status == approval.Pending {
			s.await(now, a.q)
		}
		a.done <- nil
		return
	}
	q, err := s.pose(now, a.row)
	if err != nil {
		a.done <- err
		return
	}
	a.q = q
	s.await(now, q)
	s.asked = append(s.asked, a)
}

func (a *raise) settled(_ *supervisor, err error) {
	if err != nil {
		a.done <- errEnded
		return
	}
	a.done <- nil
}

func (a *raise) tooLate(*Engine, bool) { a.done <- errEnded }

// running reports whether there is an attempt.
func (s *supervisor) running() bool {
	state := s.m.State()
	return state == arcp.StateRunning || state == arcp.StateBlocked
}

// same finds the question of an earlier attempt that is this one. One that was
// withdrawn has no answer. One that is still pending is not asked a second time
// because the attempts ask in another order, as those do that ask several
// questions at once.
func (s *supervisor) same(row *approval.Row) *question {
	var other *question
	for _, q := range s.questions {
		switch {
		case q.row.Interrupt || q.row.Digest != row.Digest || q.row.Status == approval.Cancelled:
		case q.row.Ordinal == row.Ordinal:
			return q
		case other == nil && q.row.Status == approval.Pending && q.waiters == 0:
			other = q
		}
	}
	if other != nil {
		moved := s.answerOf(other)
		moved.Ordinal = row.Ordinal
		s.change(other, moved)
	}
	return other
}

// pose puts a question to the people: its event and its row are written together.
func (s *supervisor) pose(now time.Time, row approval.Row) (*question, error) {
	pending := 0
	for _, q := range s.questions {
		if q.row.Status == approval.Pending {
			pending++
		}
	}
	if pending >= maxQuestions {
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
	if s.over || s.point != nil && s.point.pause { // the attempt is about to end
		return nil, errEnded
	}
	if row.Kind == approval.Gate { // who asks is not asked
		s.push(s.event(arcp.EventEmit, now, s.row.Priority, askedEvent(&row)))
	}
	s.push(q.event)
	s.questions = append(s.questions, q)
	return q, nil
}

// audience is who is to be given a question.
func (s *supervisor) audience(q *approval.Row, now time.Time) []arcp.SessionID {
	return slices.DeleteFunc(s.e.questions().Audience(q, now), func(id arcp.SessionID) bool { return s.interested(q, id) })
}

// interested reports whether a session must not answer a gate or grant a permission
// because it does the job, or one above it that has caused it.
func (r *run) interested(q *approval.Row, id arcp.SessionID) bool {
	if q.Kind != approval.Gate && q.Kind != approval.Permission || r.e.cfg.Runs == nil {
		return false
	}
	ref := r.row.Agent
	for parent := r.row.Parent; !r.e.cfg.Runs(ref, id); {
		if parent == "" {
			return false
		}
		var err error
		if ref, parent, err = r.e.above(parent); err != nil {
			return !errors.Is(err, store.ErrNotFound) // what cannot be read may be the session's
		}
	}
	return true
}

// above says what does a job, and which job is above it.
func (e *Engine) above(id arcp.JobID) (ref string, parent arcp.JobID, err error) {
	if r := e.run(id); r != nil {
		return r.row.Agent, r.row.Parent, nil
	}
	j, err := e.cfg.Store.Job(context.Background(), id)
	return j.Agent, j.Parent, err
}

// askedEvent tells who follows the job that somebody else must approve it.
func askedEvent(q *approval.Row) arcp.EventEmitPayload {
	data, err := arcp.Marshal(arcp.ApprovalRequested{ApprovalID: q.ID, Action: q.Action, ExpiresAt: q.ExpiresAt})
	if err != nil { // two texts and a time
		panic("engine: approval: " + err.Error())
	}
	return arcp.EventEmitPayload{Name: arcp.EventApprovalRequested, Data: data}
}

// push adds an event to those that the tool has emitted, also where there is no
// room for more. Called with s.mu.
func (s *supervisor) push(ev *store.Event) {
	s.queue = append(s.queue, ev)
	s.bytes += len(ev.Body)
}

// requestOf is how a question is put on the wire.
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

// await blocks the job until a question is settled. Its time stands still.
func (s *supervisor) await(now time.Time, q *question) {
	q.waiters++
	if s.parked++; s.parked > 1 {
		return
	}
	s.m.Block(now)
	s.due = s.m.Deadline()
	if s.maxRuntime > 0 {
		s.progress.Blocked, s.unsaved = now, true
	}
	if !s.toolEnd.IsZero() {
		s.toolLeft, s.toolEnd = max(s.toolEnd.Sub(now), 1), time.Time{}
	}
}

// unpark ends the wait of the tool for a question.
func (s *supervisor) unpark(now time.Time, q *question) {
	n := q.waiters
	q.waiters = 0
	if s.parked -= n; n == 0 || s.parked > 0 {
		return
	}
	s.m.Unblock(now)
	s.due = s.m.Deadline()
	s.progress.resume(now)
	s.unsaved = s.unsaved || s.maxRuntime > 0
	if s.toolLeft > 0 {
		s.toolEnd, s.toolLeft = now.Add(s.toolLeft), 0
	}
}

// resume has the time of a job go on that stood still.
func (m *progress) resume(now time.Time) {
	if !m.Blocked.IsZero() && !m.Started.IsZero() {
		m.Started = m.Started.Add(max(0, now.Sub(m.Blocked)))
	}
	m.Blocked = time.Time{}
}

// waitOver says that the attempt, which ends, waits for nobody any more.
func (s *supervisor) waitOver(now time.Time) {
	if !s.progress.Blocked.IsZero() {
		s.progress.resume(now)
		s.unsaved = true
	}
}

// change gives a question another row.
func (s *supervisor) change(q *question, row approval.Row) {
	s.mu.Lock()
	q.row, q.changed = row, true
	s.mu.Unlock()
}

// settle ends a question: row is what has become of it. Who was given it and has
// not answered is told. One that is not in the log yet is given to nobody.
func (s *supervisor) settle(now time.Time, q *question, row approval.Row) {
	s.unask(q)
	s.change(q, row)
	s.unpark(now, q)
	s.asked = append(s.asked, &settlement{q})
	if others := row.Others(); len(others) > 0 && q.request != "" {
		ev := s.event(arcp.HumanInputCancelled, now, s.row.Priority, cancelledOf(&row))
		ev.Route = &store.Route{To: others, ReplyTo: q.request}
		s.mu.Lock()
		s.push(ev)
		s.mu.Unlock()
	}
}

// unask takes back the event of a question if that is still here.
func (s *supervisor) unask(q *question) {
	if q.event == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, q.event); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		s.bytes -= len(q.event.Body)
	}
	q.event = nil
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

// settlement tells everybody that a question is settled when that is durable.
type settlement struct{ q *question }

func (d *settlement) meet(*supervisor, time.Time) {}

func (d *settlement) settled(s *supervisor, err error) {
	if err != nil {
		return
	}
	close(d.q.done)
	if d.q.request != "" { // it was asked
		s.e.questions().Settled(s.answerOf(d.q))
	}
}

func (d *settlement) tooLate(*Engine, bool) {}

// withdraw takes back a question that its attempt does not wait for any more.
type withdraw struct {
	s    *supervisor
	q    *question
	late bool // it has been settled otherwise
	done chan struct{}
}

func (w *withdraw) meet(s *supervisor, now time.Time) {
	defer close(w.done)
	if s != w.s {
		return
	}
	if row := s.answerOf(w.q); row.Cancel(now.UTC(), "withdrawn") {
		s.settle(now, w.q, row)
	} else {
		w.late = true
	}
}

func (w *withdraw) settled(*supervisor, error) {}
func (w *withdraw) tooLate(*Engine, bool)      { close(w.done) }

// expire does what time has done to the questions.
func (s *supervisor) expire(now time.Time) {
	for _, q := range s.questions {
		if d := q.row.Deadline(); d.IsZero() || now.Before(d) {
			continue
		}
		row := s.answerOf(q)
		if row.Advance(now.UTC()) {
			s.settle(now, q, row)
			if row.Interrupt {
				s.m.Fail(now, arcp.Errorf(arcp.CodeDeadlineExceeded, "nobody answered the interrupt in time"))
			}
		} else if row.Escalate(now) {
			s.offer(q, &row, s.audience(&row, now))
			s.change(q, row)
			s.asked = append(s.asked, &renewal{q})
		}
	}
}

// offer gives a question to more sessions.
func (s *supervisor) offer(q *question, row *approval.Row, sessions []arcp.SessionID) {
	for _, id := range sessions {
		row.Sent = append(slices.Clip(row.Sent[max(0, len(row.Sent)+1-approval.MaxSent):]), id)
		s.gives = append(s.gives, store.DeliverEvent{Session: id, Job: s.row.ID, JSeq: row.JSeq})
	}
}

// renewal tells the desk of a change of a question that stays pending.
type renewal struct{ q *question }

func (d *renewal) meet(*supervisor, time.Time) {}

func (d *renewal) settled(s *supervisor, err error) {
	if row := s.answerOf(d.q); err == nil && row.Status == approval.Pending {
		s.e.questions().Asked(row, d.q.request)
	}
}

func (d *renewal) tooLate(*Engine, bool) {}

// questionsDue is when the next question expires; zero: there is none.
func (r *run) questionsDue() (due time.Time) {
	for _, q := range r.questions {
		if d := q.row.Deadline(); !d.IsZero() && (due.IsZero() || d.Before(due)) {
			due = d
		}
	}
	return due
}

// dropQuestions withdraws what is still asked when the job ends.
func (s *supervisor) dropQuestions(now time.Time) {
	for _, q := range s.questions {
		if q.row.Status != approval.Pending {
			continue
		}
		if row := s.answerOf(q); row.Cancel(now.UTC(), "the job has ended") {
			s.settle(now, q, row)
		}
	}
}

// addQuestions adds the rows that have changed to the write of their events.
func (s *supervisor) addQuestions(w *store.Write) error {
	events := store.Find[*store.AppendEvents](w).Events
	for _, q := range s.questions {
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
		rec, err := s.questionRecord(q)
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	for i := range s.gives {
		w.Ops = slices.Insert(w.Ops, i, store.Op(&s.gives[i]))
	}
	s.gives = nil
	return nil
}

func (r *run) questionRecord(q *question) (rec store.Record, err error) {
	row := r.answerOf(q)
	rec.Key = approval.RecordKey(&row)
	if rec.Rev, err = r.revision(rec.Key, q.rev); err != nil {
		return rec, err
	}
	rec.Value, err = arcp.Marshal(row)
	q.rev, q.size = rec.Rev, len(rec.Value)
	return rec, err
}

// posed notes that questions are in the log. It is called before anything of the
// write is delivered: an answer may come at once.
func (s *supervisor) posed() {
	for _, q := range s.questions {
		if q.event != nil && q.event.JSeq > 0 {
			q.request, q.event = q.event.ID(), nil
			if row := s.answerOf(q); row.Status == approval.Pending {
				s.e.questions().Asked(row, q.request)
			}
		}
	}
}

// questionsWritten notes that the rows are written.
func (s *supervisor) questionsWritten() {
	settled := false
	for _, q := range s.questions {
		if q.changed && q.event == nil {
			q.changed, q.rev = false, raised(q.rev)
			settled = settled || q.row.Status != approval.Pending
		}
	}
	if settled {
		s.mu.Lock()
		s.questions = forgetSettled(s.questions, s.keeps())
		s.mu.Unlock()
	}
}

// keeps is how many settled questions the job keeps in memory.
func (r *run) keeps() int {
	if r.tool.Recovery == tool.RecoveryFail && r.progress.Failed+1 >= r.retry.MaxAttempts {
		return keptLate
	}
	return keptSettled
}

// forgetSettled drops the oldest settled questions that are written, so that at
// most so many stay, and no more than so many bytes of them.
func forgetSettled(list []*question, keep int) []*question {
	bytes := 0
	for i, q := range slices.Backward(list) {
		if q.changed || q.row.Status == approval.Pending {
			continue
		}
		keep--
		if bytes += q.size; keep < 0 || bytes > keptSettledBytes {
			list[i] = nil
		}
	}
	return slices.DeleteFunc(list, func(q *question) bool { return q == nil })
}
