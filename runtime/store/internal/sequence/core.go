package sequence

import (
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Source is what has been stored. It does not know of the batch being decided.
type Source interface {
	// Session returns a row with LastSeq and TrimmedTo; store.ErrNotFound.
	Session(id arcp.SessionID) (store.Session, error)
	// Ended reports whether there is a job that has ended under the id. It is
	// not asked about live ones.
	Ended(id arcp.JobID) (bool, error)
	// Job returns the row of a job; it is asked about those that are there.
	Job(id arcp.JobID) (store.Job, error)
	// Key returns the job that holds an idempotency key and its digest, or "".
	Key(principal, key string) (arcp.JobID, string, error)
	// Submitted returns the job that a session submitted last with an id, and its
	// digest, or "".
	Submitted(id arcp.SessionID, submit arcp.MessageID) (arcp.JobID, string, error)
	// Feed returns the bounds of a principal's feed.
	Feed(principal string) (trimmed, last uint64, err error)
	// Rev returns the revision of a record, or 0.
	Rev(key string) (uint64, error)
	// Keys calls fn for the keys of records that begin with a prefix.
	Keys(prefix string, fn func(key string)) error
	// Events calls fn for a job's stored events after a position.
	Events(id arcp.JobID, after uint64, fn func(*store.Event) bool) error
}

// Core decides the writes of one store. It belongs to the goroutine that
// commits.
type Core struct {
	src      Source
	ids      *arcp.IDSource
	sessions map[arcp.SessionID]*session
	feeds    map[string]*feed // by principal
	jobs     map[arcp.JobID]*job
	limits   limits
	batch    uint64 // counts calls of Decide
	deleted  uint64 // highest revision that a deleted record had

	chg    Changes
	keys   map[ikey]*JobChange         // taken in this batch
	recs   map[string]uint64           // revisions after this batch's changes
	gone   map[arcp.SessionID]struct{} // sessions that ended in this batch
	dead   map[arcp.JobID]struct{}     // jobs that were deleted in this batch
	runs   []store.Run                 // slab for the results of this batch
	marks  []arcp.TypeSet              // the events' bits, of one write
	failed error                       // of the source: nothing more can be decided
}

type ikey struct{ principal, key string }

// MaxSessions is how many sessions, and how many feeds, a Core keeps at most
// beside those that a live job points to: about 10 MB each.
const MaxSessions = 1 << 16

type limits struct{ sessions, feeds int }

// New returns a Core without live jobs. deleted is Changes.Deleted of the last
// batch that was stored, and ids must be past its LastID.
func New(src Source, ids *arcp.IDSource, deleted uint64) *Core {
	return &Core{src: src, ids: ids, limits: limits{MaxSessions, MaxSessions}, deleted: deleted,
		sessions: make(map[arcp.SessionID]*session), feeds: make(map[string]*feed), jobs: make(map[arcp.JobID]*job),
		keys: make(map[ikey]*JobChange), recs: make(map[string]uint64),
		gone: make(map[arcp.SessionID]struct{}), dead: make(map[arcp.JobID]struct{})}
}

// Decide decides writes in order; each sees the ones before it. What it
// returns is valid until the next call, and must be stored whole. After an
// error nothing of the batch may be stored and the Core is of no more use.
func (c *Core) Decide(writes []*store.Write, results []store.Result) (*Changes, error) {
	if len(results) != len(writes) {
		return nil, fmt.Errorf("%d writes with %d results", len(writes), len(results))
	}
	c.begin(writes)
	for i, w := range writes {
		results[i] = store.Result{}
		if err := c.decide(w, &results[i]); err != nil {
			return nil, fmt.Errorf("write %d: %w", i, err)
		}
	}
	if c.end(); c.failed != nil {
		return nil, c.failed
	}
	return &c.chg, nil
}

func (c *Core) begin(writes []*store.Write) {
	c.chg.reset()
	c.batch++
	clear(c.keys)
	clear(c.recs)
	clear(c.gone)
	clear(c.dead)
	// The slab lives as long as a result that uses it: it is never reused.
	c.runs = make([]store.Run, 0, len(writes))
}

// decide refuses w in r.Err or performs it. An error is the source's.
func (c *Core) decide(w *store.Write, r *store.Result) error {
	with, together := c.checkWith(w, r)
	d := c.check(w)
	d.report(r)
	switch {
	case c.failed != nil:
		return c.failed
	case !d.allows():
		return nil
	case !together:
		r.Err = store.ErrTogether
		return nil
	}
	for i, part := range w.With {
		c.perform(part, with[i].job, &r.With[i])
	}
	c.perform(w, d.job, r)
	return c.failed
}

// checkWith checks the writes in w.With. It reports whether all of them may happen.
func (c *Core) checkWith(w *store.Write, r *store.Result) (decisions []decision, together bool) {
	if len(w.With) == 0 {
		return nil, true
	}
	decisions, r.With, together = make([]decision, len(w.With)), make([]store.Result, len(w.With)), true
	for i, part := range w.With {
		decisions[i] = c.check(part)
		decisions[i].report(&r.With[i])
		together = together && decisions[i].allows()
	}
	return decisions, together
}

// perform performs a write that check has allowed; nothing in it can be refused. j is
// the job of AppendEvents, nil for the job of SubmitJob.
func (c *Core) perform(w *store.Write, j *job, r *store.Result) {
	first := len(c.runs)
	var read *session // whose LastSeq is reported
	for _, op := range w.Ops {
		switch op := op.(type) {
		case *store.OpenSession:
			read = c.putSession(op.Row, false)
			r.Epoch = read.epoch
		case *store.AttachSession:
			read = c.putSession(op.Row, true)
			r.Epoch = read.epoch
		case *store.PutSession:
			read = c.putSession(op.Row, false)
			r.Epoch = read.epoch
		case *store.EndSession:
			c.endSession(op.Session)
		case *store.SubmitJob:
			j = c.submit(op.Row)
		case *store.Follow:
			read = c.session(op.Session)
			c.followJob(op, r)
		case *store.Unfollow:
			c.unfollow(op)
		case *store.DeliverEvent:
			c.deliverEvent(op)
		case *store.AppendEvents:
			c.advance(j, op)
			r.Feed = c.publish(j, op.Events)
		case *store.Announce:
			r.Feed = c.announce(op)
		case *store.TrimSession:
			c.trim(op.Session, op.Seq)
		case *store.PutRecord:
			c.putRecord((*store.Record)(op))
		case *store.DeliverUnlogged:
			r.Unlogged = c.unlogged(op, j)
		case *store.ReadPosition:
			read = c.session(op.Session)
		case *store.ReadFeedPosition:
			r.FeedLast = c.feed(op.Principal).last
		case *store.DeleteJob:
			c.deleteJob(op.Job)
		case *store.TrimFeed:
			c.trimFeed(op)
		}
	}
	if read != nil {
		r.LastSeq = read.last
	}
	if len(c.runs) > first {
		r.Runs = c.runs[first:len(c.runs):len(c.runs)]
	}
}

// end completes the changes and forgets what is no longer needed.
func (c *Core) end() {
	for _, jc := range c.chg.Jobs {
		jc.finish()
		if jc.job.change = nil; jc.job.ended {
			jc.job.release()
			delete(c.jobs, jc.ID)
		}
	}
	for _, sc := range c.chg.Sessions {
		sc.session.change = nil
	}
	for _, fc := range c.chg.Feeds {
		fc.feed.change = nil
	}
	for i := range c.chg.Deletions {
		c.settle(&c.chg.Deletions[i])
	}
	c.chg.Deleted = c.deleted
	if c.chg.last != nil {
		c.chg.LastID = c.chg.last.ID()
	}
	evict(c.sessions, &c.limits.sessions)
	evict(c.feeds, &c.limits.feeds)
}
