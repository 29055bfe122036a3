package sequence

import (
	"fmt"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// writeCheck is the result of checking a write.
type writeCheck struct {
	job      *job // the live job that Write.Job names
	existing arcp.JobID
	repeated bool
	digest   string
	refused  error
}

// allows reports whether the write may happen.
func (v *writeCheck) allows() bool { return v.existing == "" && v.refused == nil }

// answer tells the caller why the write does not happen, if it does not.
func (v *writeCheck) answer(r *store.Result) {
	if v.existing != "" {
		r.Existing, r.Repeated, r.Digest = v.existing, v.repeated, v.digest
		return
	}
	r.Err = v.refused
}

// check decides whether a write may happen, without a trace. What it has
// allowed cannot fail except by an error of the source.
func (c *Core) check(w *store.Write) (v writeCheck) {
	if v = c.existing(w); v.existing != "" {
		return v
	}
	if w.Job != "" {
		if v.job, v.refused = c.claim(w); v.refused != nil {
			return v
		}
	}
	for _, rule := range rules {
		if v.refused = rule(c, w); v.refused != nil {
			return v
		}
	}
	return v
}

// rules are the conditions of a write, in the order in which their errors win.
var rules = [...]func(*Core, *store.Write) error{
	(*Core).checkForm, (*Core).checkSession, (*Core).checkSubmit, (*Core).checkEvents,
	(*Core).checkFollows, (*Core).checkPosition, (*Core).checkRecords, (*Core).checkDelete,
}

// existing finds the job that a submit would make again.
func (c *Core) existing(w *store.Write) (v writeCheck) {
	row := w.Submit
	if row == nil {
		return v
	}
	if w.Recheck && row.Session != "" && row.SubmitID != "" && !c.isGone(row.Session) {
		v.existing, v.digest = c.submitted(row.Session, row.SubmitID)
		v.repeated = true
	}
	if (v.existing == "" || c.isDead(v.existing)) && row.IdempotencyKey != "" {
		v.existing, v.digest = c.holder(row.Principal, row.IdempotencyKey)
		v.repeated = false
	}
	if v.existing == "" || c.isDead(v.existing) {
		return writeCheck{}
	}
	return v
}

// holder returns the job that holds an idempotency key, also a dead one.
func (c *Core) holder(principal, key string) (arcp.JobID, string) {
	if jc := c.keys[ikey{principal, key}]; jc != nil {
		return jc.ID, jc.Created.Digest
	}
	id, digest, err := c.src.Key(principal, key)
	if err != nil {
		c.fail(fmt.Errorf("idempotency key of %s: %w", principal, err))
	}
	return id, digest
}

// submitted returns the job that a session submitted last with an id, also a
// dead one. It is asked for too rarely for an index of the batch.
func (c *Core) submitted(id arcp.SessionID, submit arcp.MessageID) (arcp.JobID, string) {
	for _, jc := range slices.Backward(c.chg.Jobs) {
		if row := jc.Created; row != nil && row.Session == id && row.SubmitID == submit {
			return row.ID, row.Digest
		}
	}
	job, digest, err := c.src.Submitted(id, submit)
	if err != nil {
		c.fail(fmt.Errorf("submits of %s: %w", id, err))
	}
	return job, digest
}

// claim returns the live job that a write is for, if its attempt is the job's.
func (c *Core) claim(w *store.Write) (*job, error) {
	if j := c.jobs[w.Job]; j != nil && !j.ended {
		if j.attempt != w.Attempt {
			return nil, store.ErrFenced
		}
		return j, nil
	}
	if c.knowsJob(w.Job) {
		return nil, store.ErrTerminal
	}
	return nil, notFound("job", string(w.Job))
}

func (c *Core) ended(id arcp.JobID) bool {
	ended, err := c.src.Ended(id)
	if err != nil {
		c.fail(fmt.Errorf("job %s: %w", id, err))
	}
	return ended
}

func notFound(kind, id string) error { return fmt.Errorf("%s %q: %w", kind, id, store.ErrNotFound) }

func invalid(what string) error { return fmt.Errorf("%w: %s", store.ErrInvalid, what) }

// checkForm refuses what cannot be meant, whatever is stored.
func (c *Core) checkForm(w *store.Write) error {
	switch {
	case w.Session == nil && (w.NewSession || w.Attach), w.Session != nil && w.Session.ID == "":
		return invalid("a session without an id")
	case w.NewSession && w.Attach:
		return invalid("a new session that was there before")
	case w.Session != nil && w.Session.ID == w.EndSession:
		return invalid("a session that is put and ended")
	case w.Recheck && w.Submit == nil:
		return invalid("a repeated submit without a submit")
	case w.DeleteJob != "" && touches(w, w.DeleteJob):
		return invalid("a job that is changed and deleted")
	case w.TrimFeed != nil && w.TrimFeed.Principal == "":
		return invalid("a feed without a principal")
	case w.Announce != nil && (w.Announce.Principal == "" || len(w.Announce.Events) == 0):
		return invalid("an announcement to nobody, or of nothing")
	case w.Announce != nil && len(w.Events) > 0:
		return invalid("events of a job and announced ones")
	case overlap(w):
		return invalid("writes that happen together and change the same")
	}
	return nil
}

// touches reports whether a write is about a job in another way than to delete
// it.
func touches(w *store.Write, id arcp.JobID) bool {
	return w.Job == id || w.Submit != nil && w.Submit.ID == id ||
		w.Follow != nil && w.Follow.Job == id || w.Unfollow != nil && w.Unfollow.Job == id ||
		slices.ContainsFunc(w.Give, func(g store.Give) bool { return g.Job == id })
}

// overlap reports whether writes that happen together change the same job or record:
// each of them is checked without the others.
func overlap(w *store.Write) bool {
	for i, part := range w.With {
		if len(part.With) > 0 || touchesSame(w, part) {
			return true
		}
		if slices.ContainsFunc(w.With[:i], func(other *store.Write) bool { return touchesSame(other, part) }) {
			return true
		}
	}
	return false
}

// touchesSame reports whether two writes change the same job or record.
func touchesSame(w, part *store.Write) bool {
	return w.Job != "" && touches(part, w.Job) || part.Job != "" && touches(w, part.Job) ||
		w.DeleteJob != "" && touches(part, w.DeleteJob) ||
		slices.ContainsFunc(w.Records, func(r store.Record) bool {
			return slices.ContainsFunc(part.Records, func(o store.Record) bool { return o.Key == r.Key })
		})
}

// checkSession lets only the connection with the stored epoch change a session.
// What has ended does not come back.
func (c *Core) checkSession(w *store.Write) error {
	if w.Session == nil {
		return nil
	}
	s := c.session(w.Session.ID)
	switch {
	case w.NewSession && (s != nil || c.isGone(w.Session.ID)):
		return store.ErrExists
	case w.NewSession:
		return nil
	case s == nil && w.Attach:
		return notFound("session", string(w.Session.ID))
	case s == nil && (w.Session.Epoch != 0 || c.isGone(w.Session.ID)):
		return store.ErrFenced
	case s != nil && s.epoch != w.Session.Epoch:
		return store.ErrFenced
	}
	return nil
}

func (c *Core) checkSubmit(w *store.Write) error {
	row := w.Submit
	switch {
	case row == nil:
		return nil
	case row.ID == "" || row.State == "" || row.State.Terminal():
		return invalid("a submit without an id, or of a job that has ended")
	case w.Job != "" || w.Attempt != 0 || w.NewAttempt:
		return invalid("a submit that also names a job")
	case c.knowsJob(row.ID), c.isDead(row.ID):
		return store.ErrExists
	case row.Session != "" && row.Parent == "" && !c.knowsSession(w, row.Session): // a child's may have ended before its parent
		return notFound("session", string(row.Session))
	}
	return nil
}

// checkEvents sees to it that a job has one terminal event, its last.
func (c *Core) checkEvents(w *store.Write) error {
	if w.Job == "" && w.Submit == nil {
		if len(w.Events) > 0 || w.State != "" || w.NewAttempt || w.Unlogged != nil {
			return invalid("events or a state without a job")
		}
		return nil
	}
	last := len(w.Events) - 1
	for i, e := range w.Events {
		if e.Type.Terminal() && (i < last || !w.State.Terminal()) {
			return invalid("a terminal event that does not end the job")
		}
	}
	if w.State.Terminal() && (last < 0 || !w.Events[last].Type.Terminal()) {
		return invalid("the end of a job without a terminal event")
	}
	return nil
}

func (c *Core) checkFollows(w *store.Write) error {
	for _, f := range [...]*store.Follow{w.Follow, w.Unfollow} {
		switch {
		case f == nil:
		case !c.knowsSession(w, f.Session):
			return notFound("session", string(f.Session))
		case !c.knowsJob(f.Job) && (w.Submit == nil || w.Submit.ID != f.Job):
			return notFound("job", string(f.Job))
		}
	}
	if w.Follow != nil && c.followsEnough(w) {
		return fmt.Errorf("session %q: %w", w.Follow.Session, store.ErrTooMany)
	}
	return nil
}

// followsEnough reports whether a follow would be one too many of its session.
func (c *Core) followsEnough(w *store.Write) bool {
	f := w.Follow
	s := c.session(f.Session)
	if f.Limit == 0 || f.Once || s == nil || s.others < f.Limit || s.others-c.justEnded(s) < f.Limit {
		return false
	}
	if w.Submit != nil && w.Submit.ID == f.Job {
		return w.Submit.Session != f.Session
	}
	j := c.jobs[f.Job]
	if j == nil || j.ended || j.session == f.Session {
		return false
	}
	_, already := s.jobs[j]
	return !already
}

// justEnded is how many jobs of others that a session follows have ended in this
// batch.
func (c *Core) justEnded(s *session) (n int) {
	for _, jc := range c.chg.Jobs {
		if _, follows := s.jobs[jc.job]; follows && jc.Ended && jc.job.session != s.id {
			n++
		}
	}
	return n
}

func (c *Core) checkPosition(w *store.Write) error {
	for i := range w.Give {
		switch g := &w.Give[i]; {
		case g.JSeq == 0:
			return invalid("an event without a position")
		case !c.knowsJob(g.Job) && (w.Submit == nil || w.Submit.ID != g.Job):
			return notFound("job", string(g.Job))
		}
	}
	if w.Trim != nil && !c.knowsSession(w, w.Trim.Session) {
		return notFound("session", string(w.Trim.Session))
	}
	if w.Mark != "" && !c.knowsSession(w, w.Mark) {
		return notFound("session", string(w.Mark))
	}
	return nil
}

func (c *Core) checkRecords(w *store.Write) error {
	for i := range w.Records {
		r := &w.Records[i]
		if slices.ContainsFunc(w.Records[:i], func(o store.Record) bool { return o.Key == r.Key }) {
			return invalid("two changes of one record")
		}
		if c.rev(r.Key) != r.Rev {
			return fmt.Errorf("record %q: %w", r.Key, store.ErrConflict)
		}
	}
	return nil
}

// checkDelete keeps live jobs.
func (c *Core) checkDelete(w *store.Write) error {
	if w.DeleteJob == "" {
		return nil
	}
	if j := c.jobs[w.DeleteJob]; j != nil && !j.ended {
		return fmt.Errorf("job %q: %w", w.DeleteJob, store.ErrLive)
	}
	return nil
}

// knowsSession reports whether a session is there, or made by this write, and
// not ended by it.
func (c *Core) knowsSession(w *store.Write, id arcp.SessionID) bool {
	return id != w.EndSession && (w.Session != nil && w.Session.ID == id || c.session(id) != nil)
}

// knowsJob reports whether a job is there, live or not.
func (c *Core) knowsJob(id arcp.JobID) bool {
	return !c.isDead(id) && (c.jobs[id] != nil || c.ended(id))
}
