package sequence

import (
	"fmt"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// verdict is what check says of a write.
type verdict struct {
	job      *job // the live job that Write.Job names
	existing arcp.JobID
	digest   string
	refused  error
}

// check decides whether a write may happen, without a trace. What it has
// allowed cannot fail except by an error of the source.
func (c *Core) check(w *store.Write) (v verdict) {
	if v.existing, v.digest = c.existing(w.Submit); v.existing != "" {
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
	(*Core).checkSession, (*Core).checkSubmit, (*Core).checkEvents,
	(*Core).checkFollows, (*Core).checkPosition, (*Core).checkRecords,
}

// existing returns the job that holds the idempotency key of a submit.
func (c *Core) existing(row *store.Job) (arcp.JobID, string) {
	if row == nil || row.IdempotencyKey == "" {
		return "", ""
	}
	if jc := c.keys[ikey{row.Principal, row.IdempotencyKey}]; jc != nil {
		return jc.ID, jc.Created.Digest
	}
	id, digest, err := c.src.Key(row.Principal, row.IdempotencyKey)
	if err != nil {
		c.fail(fmt.Errorf("idempotency key of %s: %w", row.Principal, err))
	}
	return id, digest
}

// claim returns the live job that a write is for, if its attempt is the job's.
func (c *Core) claim(w *store.Write) (*job, error) {
	j := c.jobs[w.Job]
	switch {
	case j == nil && c.ended(w.Job), j != nil && j.ended:
		return nil, store.ErrTerminal
	case j == nil:
		return nil, notFound("job", string(w.Job))
	case j.attempt != w.Attempt:
		return nil, store.ErrFenced
	}
	return j, nil
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

func (c *Core) checkSession(w *store.Write) error {
	switch {
	case w.Session == nil && !w.NewSession:
		return nil
	case w.Session == nil || w.Session.ID == "":
		return invalid("a session without an id")
	case w.NewSession && c.session(w.Session.ID) != nil:
		return store.ErrExists
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
	case c.jobs[row.ID] != nil || c.ended(row.ID):
		return store.ErrExists
	case row.Session != "" && !c.knowsSession(w, row.Session):
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
		case !c.knowsJob(w, f.Job):
			return notFound("job", string(f.Job))
		}
	}
	return nil
}

func (c *Core) checkPosition(w *store.Write) error {
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

// knowsSession reports whether a session is there or made by this write.
func (c *Core) knowsSession(w *store.Write, id arcp.SessionID) bool {
	return w.Session != nil && w.Session.ID == id || c.session(id) != nil
}

func (c *Core) knowsJob(w *store.Write, id arcp.JobID) bool {
	return w.Submit != nil && w.Submit.ID == id || c.jobs[id] != nil || c.ended(id)
}
