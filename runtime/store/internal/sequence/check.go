package sequence

import (
	"fmt"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// decision is the outcome of checking a write.
type decision struct {
	job      *job // the live job of AppendEvents; nil: none, or the job of SubmitJob
	existing arcp.JobID
	repeated bool
	digest   string
	refused  error
}

// allows reports whether the write may happen.
func (d *decision) allows() bool { return d.existing == "" && d.refused == nil }

// report sets the reason why the write does not happen, if there is one.
func (d *decision) report(r *store.Result) {
	if d.existing != "" {
		r.Existing, r.Repeated, r.Digest = d.existing, d.repeated, d.digest
		return
	}
	r.Err = d.refused
}

// check decides whether a write may happen and changes nothing. A write that it has
// allowed fails only by an error of the source.
func (c *Core) check(w *store.Write) decision {
	ch := checker{core: c, write: w}
	if ch.findExisting(); ch.existing != "" {
		return ch.decision
	}
	if hasConflicts(w) {
		ch.refused = invalid("writes that happen together change the same job or record")
		return ch.decision
	}
	for i, op := range w.Ops {
		if ch.refused = ch.op(i, op); ch.refused != nil {
			break
		}
	}
	return ch.decision
}

// checker is a write that is being checked, and the effects of its operations so far
// that matter to the operations after them.
type checker struct {
	decision
	core   *Core
	write  *store.Write
	kinds  opKinds
	row    arcp.SessionID      // of OpenSession, AttachSession or PutSession
	ended  arcp.SessionID      // of EndSession
	submit *store.Job          // of SubmitJob
	events bool                // AppendEvents has events
	keys   map[string]struct{} // of the records that the operations so far change; nil: a small write
}

// opKinds is a set of kinds of operations. A write has one operation of each kind.
type opKinds uint16

const (
	sessionRow opKinds = 1 << iota
	endSession
	submitJob
	follow
	unfollow
	appendEvents
	announce
	trimSession
	unlogged
	readPosition
	readFeedPosition
	deleteJob
	trimFeed
)

// kindOf returns the kind of an operation; 0: a write may have any number.
func kindOf(op store.Op) opKinds {
	switch op.(type) {
	case *store.OpenSession, *store.AttachSession, *store.PutSession:
		return sessionRow
	case *store.EndSession:
		return endSession
	case *store.SubmitJob:
		return submitJob
	case *store.Follow:
		return follow
	case *store.Unfollow:
		return unfollow
	case *store.AppendEvents:
		return appendEvents
	case *store.Announce:
		return announce
	case *store.TrimSession:
		return trimSession
	case *store.DeliverUnlogged:
		return unlogged
	case *store.ReadPosition:
		return readPosition
	case *store.ReadFeedPosition:
		return readFeedPosition
	case *store.DeleteJob:
		return deleteJob
	case *store.TrimFeed:
		return trimFeed
	}
	return 0
}

// op checks operation i of the write.
func (ch *checker) op(i int, op store.Op) error {
	kind := kindOf(op)
	if ch.kinds&kind != 0 {
		return invalid("two operations of one type")
	}
	ch.kinds |= kind
	switch op := op.(type) {
	case *store.OpenSession:
		return ch.openSession(op.Row)
	case *store.AttachSession:
		return ch.putSession(op.Row, true)
	case *store.PutSession:
		return ch.putSession(op.Row, false)
	case *store.EndSession:
		return ch.endSession(op.Session)
	case *store.SubmitJob:
		return ch.submitJob(op.Row)
	case *store.Follow:
		return ch.follow(op)
	case *store.Unfollow:
		return ch.sessionAndJob(op.Session, op.Job)
	case *store.DeliverEvent:
		return ch.deliverEvent(op)
	case *store.AppendEvents:
		return ch.appendEvents(op)
	case *store.Announce:
		return ch.announce(op)
	case *store.TrimSession:
		return ch.sessionExists(op.Session)
	case *store.PutRecord:
		return ch.putRecord(i, op)
	case *store.DeliverUnlogged:
		_, err := ch.liveJob(op.Job, op.Attempt)
		return err
	case *store.ReadPosition:
		return ch.sessionExists(op.Session)
	case *store.DeleteJob:
		return ch.deleteJob(op.Job)
	case *store.TrimFeed:
		if op.Principal == "" {
			return invalid("a feed without a principal")
		}
	}
	return nil
}

// findExisting finds the job that a submit would create a second time.
func (ch *checker) findExisting() {
	op := store.Find[*store.SubmitJob](ch.write)
	if op == nil {
		return
	}
	c, row := ch.core, op.Row
	var id arcp.JobID
	var digest string
	repeated := false
	if op.Recheck && row.Session != "" && row.SubmitID != "" && !c.sessions.hasEnded(row.Session) {
		id, digest = c.jobs.submitted(row.Session, row.SubmitID)
		repeated = true
	}
	if (id == "" || c.jobs.isDeleted(id)) && row.IdempotencyKey != "" {
		id, digest = c.jobs.holder(row.Principal, row.IdempotencyKey)
		repeated = false
	}
	if id != "" && !c.jobs.isDeleted(id) {
		ch.existing, ch.digest, ch.repeated = id, digest, repeated
	}
}

// sessionRow checks that a session row has an id, and that the write does not also
// end the session.
func (ch *checker) sessionRow(row *store.Session) error {
	switch {
	case row == nil || row.ID == "":
		return invalid("a session without an id")
	case row.ID == ch.ended:
		return invalid("a session that is stored and ended")
	}
	ch.row = row.ID
	return nil
}

func (ch *checker) openSession(row *store.Session) error {
	if err := ch.sessionRow(row); err != nil {
		return err
	}
	if ch.core.sessions.get(row.ID) != nil || ch.core.sessions.hasEnded(row.ID) {
		return store.ErrExists
	}
	return nil
}

// putSession checks that a row has the stored epoch: only the connection that
// attached last may change a session.
func (ch *checker) putSession(row *store.Session, attach bool) error {
	if err := ch.sessionRow(row); err != nil {
		return err
	}
	s := ch.core.sessions.get(row.ID)
	switch {
	case s == nil && attach:
		return notFound("session", string(row.ID))
	case s == nil && (row.Epoch != 0 || ch.core.sessions.hasEnded(row.ID)):
		return store.ErrFenced
	case s != nil && s.epoch != row.Epoch:
		return store.ErrFenced
	}
	return nil
}

func (ch *checker) endSession(id arcp.SessionID) error {
	if id != "" && id == ch.row {
		return invalid("a session that is stored and ended")
	}
	ch.ended = id
	return nil
}

func (ch *checker) submitJob(row *store.Job) error {
	switch {
	case row.ID == "" || row.State == "" || row.State.Terminal():
		return invalid("a submit without an id, or of a job that has ended")
	case ch.kinds&(appendEvents|unlogged) != 0:
		return invalid("events before the submit")
	case ch.core.jobs.exists(row.ID), ch.core.jobs.isDeleted(row.ID):
		return store.ErrExists
	case row.Session != "" && row.Parent == "": // the session of a child may have ended before its parent
		if err := ch.sessionExists(row.Session); err != nil {
			return err
		}
	}
	ch.submit = row
	return nil
}

func (ch *checker) follow(f *store.Follow) error {
	if err := ch.sessionAndJob(f.Session, f.Job); err != nil {
		return err
	}
	if ch.pastLimit(f) {
		return fmt.Errorf("session %q: %w", f.Session, store.ErrTooMany)
	}
	return nil
}

// pastLimit reports whether a follow exceeds its Limit.
func (ch *checker) pastLimit(f *store.Follow) bool {
	s := ch.core.sessions.get(f.Session)
	if f.Limit == 0 || f.Once || s == nil || s.foreignJobs < f.Limit || s.foreignJobs-ch.justEnded(s) < f.Limit {
		return false
	}
	if ch.submit != nil && ch.submit.ID == f.Job {
		return ch.submit.Session != f.Session
	}
	j := ch.core.jobs.live[f.Job]
	if j == nil || j.ended || j.session == f.Session {
		return false
	}
	_, already := s.jobs[j]
	return !already
}

// justEnded returns how many jobs of others that a session follows have ended in this
// batch.
func (ch *checker) justEnded(s *session) (n int) {
	for _, change := range ch.core.batch.changes.Jobs {
		if _, follows := s.jobs[change.job]; follows && change.Ended && change.job.session != s.id {
			n++
		}
	}
	return n
}

func (ch *checker) deliverEvent(op *store.DeliverEvent) error {
	if op.JSeq == 0 {
		return invalid("an event without a position")
	}
	return ch.jobExists(op.Job)
}

// appendEvents checks that a job has one terminal event, and no event after it.
func (ch *checker) appendEvents(op *store.AppendEvents) (err error) {
	if ch.job, err = ch.liveJob(op.Job, op.Attempt); err != nil {
		return err
	}
	last := len(op.Events) - 1
	ch.events = last >= 0
	switch {
	case ch.events && ch.kinds&announce != 0:
		return invalid("events of a job and announced events")
	case op.NewAttempt && ch.submit != nil:
		return invalid("a new attempt of a new job")
	case op.State.Terminal() && (last < 0 || !op.Events[last].Type.Terminal()):
		return invalid("the end of a job without a terminal event")
	}
	for i, e := range op.Events {
		if e.Type.Terminal() && (i < last || !op.State.Terminal()) {
			return invalid("a terminal event that does not end the job")
		}
	}
	return nil
}

// liveJob returns the live job with an id if the attempt is the job's; nil if the
// write submits the job.
func (ch *checker) liveJob(id arcp.JobID, attempt uint32) (*job, error) {
	switch {
	case ch.submit != nil && id == "" && attempt == 0:
		return nil, nil
	case ch.submit != nil:
		return nil, invalid("a submit, and events that name a job")
	case id == "":
		return nil, invalid("events or a state without a job")
	}
	if j := ch.core.jobs.live[id]; j != nil && !j.ended {
		if j.attempt != attempt {
			return nil, store.ErrFenced
		}
		return j, nil
	}
	if ch.core.jobs.exists(id) {
		return nil, store.ErrTerminal
	}
	return nil, notFound("job", string(id))
}

func (ch *checker) announce(op *store.Announce) error {
	switch {
	case op.Principal == "" || len(op.Events) == 0:
		return invalid("an announcement without a principal or events")
	case ch.events:
		return invalid("events of a job and announced events")
	}
	return nil
}

func (ch *checker) putRecord(i int, r *store.PutRecord) error {
	if ch.changedBefore(i, r.Key) {
		return invalid("two changes of one record")
	}
	if ch.core.records.rev(r.Key) != r.Rev {
		return fmt.Errorf("record %q: %w", r.Key, store.ErrConflict)
	}
	return nil
}

// smallWrite is the number of operations that are searched one by one, which needs no allocation.
const smallWrite = 16

// changedBefore reports whether an operation before operation i changes the record with a key.
func (ch *checker) changedBefore(i int, key string) bool {
	before := ch.write.Ops[:i]
	if i <= smallWrite {
		return slices.ContainsFunc(before, func(op store.Op) bool {
			r, ok := op.(*store.PutRecord)
			return ok && r.Key == key
		})
	}
	if ch.keys == nil {
		ch.keys = make(map[string]struct{}, len(ch.write.Ops))
		for _, op := range before {
			if r, ok := op.(*store.PutRecord); ok {
				ch.keys[r.Key] = struct{}{}
			}
		}
	}
	_, changed := ch.keys[key]
	ch.keys[key] = struct{}{}
	return changed
}

func (ch *checker) deleteJob(id arcp.JobID) error {
	if slices.ContainsFunc(ch.write.Ops, func(op store.Op) bool { return jobOf(op) == id }) {
		return invalid("a job that is changed and deleted")
	}
	if j := ch.core.jobs.live[id]; j != nil && !j.ended {
		return fmt.Errorf("job %q: %w", id, store.ErrLive)
	}
	return nil
}

func (ch *checker) sessionAndJob(session arcp.SessionID, job arcp.JobID) error {
	if err := ch.sessionExists(session); err != nil {
		return err
	}
	return ch.jobExists(job)
}

// sessionExists checks that a session is stored or opened by the write, and not ended
// by the write.
func (ch *checker) sessionExists(id arcp.SessionID) error {
	if id == ch.ended || id != ch.row && ch.core.sessions.get(id) == nil {
		return notFound("session", string(id))
	}
	return nil
}

// jobExists checks that a job is stored, live or not, or submitted by the write.
func (ch *checker) jobExists(id arcp.JobID) error {
	if !ch.core.jobs.exists(id) && (ch.submit == nil || ch.submit.ID != id) {
		return notFound("job", string(id))
	}
	return nil
}

func notFound(kind, id string) error { return fmt.Errorf("%s %q: %w", kind, id, store.ErrNotFound) }

func invalid(reason string) error { return fmt.Errorf("%w: %s", store.ErrInvalid, reason) }
