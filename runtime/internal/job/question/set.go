// Package question decides about the questions of one job: the question that an attempt repeats, the
// answer that counts, expiry, escalation and withdrawal, and whether the job is blocked. Package
// approval decides about one question; this package decides about the questions of a job together.
//
// The package is pure: the time and new ids are arguments. The caller serializes the calls, stores
// the changed questions, and applies the returned effects.
package question

import (
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// Bounds of the questions of a job. The latest closed questions stay in the set, for attempts that
// ask them again and for late answers.
const (
	MaxPending     = 64
	MaxClosed      = 1024
	MaxClosedBytes = 4 << 20
	MaxClosedFinal = 64 // when no other attempt can follow
)

// BeforeCall is the ordinal of a question that is asked before the tool is called. The question does
// not count as a question of the tool: an attempt that starts from a checkpoint asks it again.
const BeforeCall = -1

// Question is a question of a job.
type Question struct {
	Row     approval.Row
	Request arcp.MessageID // id of its event; empty: the event is not in the log
	Queued  bool           // its event is on its way to the log
	Rev     uint64         // of its record; 0: unknown
	Size    int            // of its record, in bytes
	Unsaved bool           // the record is to be stored
	Closed  bool           // it is durable that the question is not pending

	waiters int // calls of the attempt that wait for the answer
}

// Pending reports whether the question has neither an answer nor another end.
func (q *Question) Pending() bool { return q.Row.Status == approval.Pending }

// SetLogged records that the event of the question is in the log.
func (q *Question) SetLogged(request arcp.MessageID) { q.Request, q.Queued = request, false }

// Set has the questions of a job. The zero value is empty. The job is blocked while a call of its
// attempt waits for a question.
type Set struct {
	list    []*Question
	ordinal int // questions of the attempt so far
	waiters int // of all questions
}

// Effect is the result of a change of a question, for the caller to apply in this order.
type Effect struct {
	Question *Question
	Closed   bool // the question is not pending any more
	Unblocks bool // the job waits for no question any more

	// Notified got the question and have not answered it. They get Notice.
	Notified []arcp.SessionID
	Notice   arcp.HumanInputCancelledPayload

	Escalated bool        // the question is to be delivered to its audience again
	Failure   *arcp.Error // the job fails; nil: it continues
}

// Load adds a stored question of an earlier process, the oldest first.
func (s *Set) Load(q *Question) {
	q.Closed = !q.Pending()
	if s.list = append(s.list, q); len(s.list) > 2*MaxClosed {
		s.Forget(MaxClosed)
	}
}

// BeginAttempt begins an attempt of which no call waits.
func (s *Set) BeginAttempt() {
	for _, q := range s.list {
		q.waiters = 0
	}
	s.ordinal, s.waiters = 0, 0
}

// Asked returns the number of questions of the attempt, for a checkpoint.
func (s *Set) Asked() int { return s.ordinal }

// SetAsked begins to count the attempt's questions behind those of a checkpoint.
func (s *Set) SetAsked(asked int) { s.ordinal = asked }

// All returns the questions, the oldest first. The caller must not change the list.
func (s *Set) All() []*Question { return s.list }

// Find returns a question; nil: there is none.
func (s *Set) Find(id string) *Question {
	for _, q := range s.list {
		if q.Row.ID == id {
			return q
		}
	}
	return nil
}

// Pending returns the oldest pending question; nil: there is none.
func (s *Set) Pending() *Question {
	for _, q := range s.list {
		if q.Pending() {
			return q
		}
	}
	return nil
}

// Interrupt returns the pending interrupt; nil: there is none.
func (s *Set) Interrupt() *Question {
	for _, q := range s.list {
		if q.Row.Interrupt && q.Pending() {
			return q
		}
	}
	return nil
}

// AwaitsApproval reports whether the call of the tool waits for an approval.
func (s *Set) AwaitsApproval() bool {
	return slices.ContainsFunc(s.list, func(q *Question) bool { return q.Row.Ordinal == BeforeCall && q.Pending() })
}

// AwaitsLogged is AwaitsApproval for a question whose event is in the log.
func (s *Set) AwaitsLogged() bool {
	return slices.ContainsFunc(s.list, func(q *Question) bool {
		return q.Row.Ordinal == BeforeCall && q.Pending() && q.Request != ""
	})
}

// Due returns when the next question expires or escalates; zero: never.
func (s *Set) Due() (due time.Time) {
	for _, q := range s.list {
		if d := q.Row.Deadline(); !d.IsZero() && (due.IsZero() || d.Before(due)) {
			due = d
		}
	}
	return due
}

// Repeat numbers a question that an attempt asks, and returns the question of an earlier attempt
// that it repeats; nil: it is new. A question is identified by its digest and its ordinal. A pending
// question may get another ordinal: attempts that ask several questions at once ask them in any
// order. A withdrawn question has no answer and is not repeated.
func (s *Set) Repeat(row *approval.Row) *Question {
	if row.Ordinal != BeforeCall {
		row.Ordinal = s.ordinal
		s.ordinal++
	}
	q := s.repeated(row)
	if q != nil && q.Row.Ordinal != row.Ordinal {
		q.Row.Ordinal, q.Unsaved = row.Ordinal, true
	}
	return q
}

func (s *Set) repeated(row *approval.Row) *Question {
	var other *Question
	for _, q := range s.list {
		switch {
		case q.Row.Interrupt || q.Row.Digest != row.Digest || q.Row.Status == approval.Cancelled:
		case q.Row.Ordinal == row.Ordinal:
			return q
		case other == nil && q.Pending() && q.waiters == 0:
			other = q
		}
	}
	return other
}

// CheckRoom refuses another pending question beyond MaxPending: RESOURCE_EXHAUSTED. retryAfter is in
// seconds.
func (s *Set) CheckRoom(retryAfter int) *arcp.Error {
	n := 0
	for _, q := range s.list {
		if q.Pending() {
			n++
		}
	}
	if n < MaxPending {
		return nil
	}
	return arcp.Errorf(arcp.CodeResourceExhausted, "the job asks %d questions already", MaxPending).RetryAfter(retryAfter)
}

// Add adds a pending question whose event is on its way to the log.
func (s *Set) Add(row approval.Row) *Question {
	q := &Question{Row: row, Queued: true, Unsaved: true}
	s.list = append(s.list, q)
	return q
}

// Wait records that a call waits for a question, and reports whether this blocks the job.
func (s *Set) Wait(q *Question) (blocks bool) {
	q.waiters++
	s.waiters++
	return s.waiters == 1
}

// Blocked reports whether a call waits for a question.
func (s *Set) Blocked() bool { return s.waiters > 0 }

// release removes the waiters of a question and reports whether this unblocks the job.
func (s *Set) release(q *Question) (unblocks bool) {
	n := q.waiters
	q.waiters = 0
	s.waiters -= n
	return n > 0 && s.waiters == 0
}

// Answerable returns the question that an actor wants to answer. q is nil if there is none. The
// error is a refusal of the actor, whatever the answer is.
func (s *Set) Answerable(id string, actor *approval.Actor) (q *Question, err *arcp.Error) {
	if q = s.Find(id); q == nil {
		return nil, NoSuchQuestion(id)
	}
	return q, q.Row.MayAnswer(actor)
}

// NoSuchQuestion is the refusal of a request about a question that the job does not have: NOT_FOUND.
func NoSuchQuestion(id string) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such question: %s", id)
}

// ExecutorRefusal is the refusal of an answer by a session that executes the job: PERMISSION_DENIED.
func ExecutorRefusal() *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, "a worker that executes the job, or a job above it, cannot approve it")
}

// WithAnswer returns the row of a question with an answer applied. The question itself is unchanged
// until Update. The first valid answer counts: FAILED_PRECONDITION if the question is not pending.
// validate checks a value by its schema.
func (q *Question) WithAnswer(now time.Time, actor *approval.Actor, a *approval.Answer,
	validate func(schema, value arcp.Raw) *arcp.Error) (approval.Row, *arcp.Error) {
	row := q.Row
	if err := row.Answer(now.UTC(), actor, a); err != nil {
		return q.Row, err
	}
	if row.Kind == approval.Input {
		if err := validate(row.Schema, a.Value); err != nil {
			return q.Row, err
		}
	}
	return row, nil
}

// Update replaces the row of a question. If the question is closed by that, its waiters are released
// and the sessions that got it are notified. A question whose event is not in the log was delivered
// to no session.
func (s *Set) Update(q *Question, row approval.Row) Effect {
	q.Row, q.Unsaved = row, true
	if q.Pending() {
		return Effect{Question: q}
	}
	q.Queued = false
	e := Effect{Question: q, Closed: true, Unblocks: s.release(q)}
	if others := row.OtherSessions(); len(others) > 0 && q.Request != "" {
		e.Notified, e.Notice = others, Notice(&row)
	}
	return e
}

// Withdraw closes a question without an answer; ok is false if the question is not pending.
func (s *Set) Withdraw(now time.Time, q *Question, reason string) (e Effect, ok bool) {
	row := q.Row
	if !row.Cancel(now.UTC(), reason) {
		return Effect{}, false
	}
	return s.Update(q, row), true
}

// WithdrawAll closes the pending questions of a job that ends.
func (s *Set) WithdrawAll(now time.Time) (effects []Effect) {
	for _, q := range s.list {
		if e, ok := s.Withdraw(now, q, "the job has ended"); ok {
			effects = append(effects, e)
		}
	}
	return effects
}

// WithdrawApprovals closes the pending approvals of the tool's call, which is made without them.
func (s *Set) WithdrawApprovals(now time.Time) (effects []Effect) {
	for _, q := range s.list {
		if q.Row.Ordinal != BeforeCall {
			continue
		}
		if e, ok := s.Withdraw(now, q, "the call needs no approval any more"); ok {
			effects = append(effects, e)
		}
	}
	return effects
}

// Advance expires and escalates the questions that are due. An input with a default is answered with
// it. A job whose interrupt expires fails.
func (s *Set) Advance(now time.Time) (effects []Effect) {
	for _, q := range s.list {
		if d := q.Row.Deadline(); d.IsZero() || now.Before(d) {
			continue
		}
		row := q.Row
		switch {
		case row.Advance(now.UTC()):
			e := s.Update(q, row)
			if row.Interrupt {
				e.Failure = arcp.Errorf(arcp.CodeDeadlineExceeded, "no answer to the interrupt arrived in time")
			}
			effects = append(effects, e)
		case row.Escalate(now):
			e := s.Update(q, row)
			e.Escalated = true
			effects = append(effects, e)
		}
	}
	return effects
}

// CanDeliver reports whether a question can be delivered to one more session: its event is in the log,
// and the session may have it and has not got it.
func (q *Question) CanDeliver(actor *approval.Actor, now time.Time) bool {
	return q.Request != "" && q.Row.IsFor(actor, now)
}

// MoveTo makes a session the one that the question asks. The answer to a gate is from none of owners.
func (q *Question) MoveTo(to arcp.SessionID, owners []arcp.SessionID) {
	q.Row.Session = to
	if q.Row.Kind == approval.Gate {
		q.Row.Barred = slices.Compact(slices.Sorted(slices.Values(slices.Concat(q.Row.Barred, owners))))
	}
	q.Unsaved = true
}

// RecordDelivery records that sessions get a question. The latest MaxSent of them are notified of its end.
func (q *Question) RecordDelivery(sessions []arcp.SessionID) {
	for _, id := range sessions {
		sent := q.Row.Sent
		q.Row.Sent = append(slices.Clip(sent[max(0, len(sent)+1-approval.MaxSent):]), id)
	}
	q.Unsaved = true
}

// Committed records that the changed questions are stored, except those whose event is on its way,
// and reports whether a closed one is among them. It increments the known revisions.
func (s *Set) Committed() (closed bool) {
	for _, q := range s.list {
		if !q.Unsaved || q.Queued {
			continue
		}
		if q.Unsaved = false; q.Rev != 0 {
			q.Rev++
		}
		closed = closed || !q.Pending()
	}
	return closed
}

// Forget removes the oldest closed questions that are stored: the latest keep of them remain, and at most
// MaxClosedBytes.
func (s *Set) Forget(keep int) {
	bytes := 0
	for i, q := range slices.Backward(s.list) {
		if q.Unsaved || q.Pending() {
			continue
		}
		keep--
		if bytes += q.Size; keep < 0 || bytes > MaxClosedBytes {
			s.list[i] = nil
		}
	}
	s.list = slices.DeleteFunc(s.list, func(q *Question) bool { return q == nil })
}
