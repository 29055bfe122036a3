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
	// Key returns the job that holds an idempotency key and its digest, or "".
	Key(principal, key string) (arcp.JobID, string, error)
	// Rev returns the revision of a record, or 0.
	Rev(key string) (uint64, error)
	// Events calls fn for a job's stored events after a position.
	Events(id arcp.JobID, after uint64, fn func(*store.Event) bool) error
}

// Core decides the writes of one store. It belongs to the goroutine that
// commits.
type Core struct {
	src      Source
	ids      *arcp.IDSource
	sessions map[arcp.SessionID]*session
	jobs     map[arcp.JobID]*job
	limit    int    // of sessions
	batch    uint64 // counts calls of Decide
	deleted  uint64 // highest revision that a deleted record had

	chg    Changes
	keys   map[ikey]*JobChange // taken in this batch
	recs   map[string]uint64   // revisions after this batch's changes
	runs   []store.Run         // slab for the results of this batch
	marks  []arcp.TypeSet      // the events' bits, of one write
	failed error               // of the source: nothing more can be decided
}

type ikey struct{ principal, key string }

// MaxSessions is how many sessions a Core keeps at most beside those that
// follow a live job: about 10 MB.
const MaxSessions = 1 << 16

// New returns a Core without live jobs. deleted is Changes.Deleted of the last
// batch that was stored, and ids must be past its LastID.
func New(src Source, ids *arcp.IDSource, deleted uint64) *Core {
	return &Core{src: src, ids: ids, limit: MaxSessions, deleted: deleted,
		sessions: make(map[arcp.SessionID]*session), jobs: make(map[arcp.JobID]*job),
		keys: make(map[ikey]*JobChange), recs: make(map[string]uint64)}
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
	c.end()
	return &c.chg, nil
}

func (c *Core) begin(writes []*store.Write) {
	c.chg.reset()
	c.batch++
	clear(c.keys)
	clear(c.recs)
	// The slab lives as long as a result that uses it: it is never reused.
	c.runs = make([]store.Run, 0, len(writes))
}

// decide refuses w in r.Err or performs it. An error is the source's.
func (c *Core) decide(w *store.Write, r *store.Result) error {
	p := c.check(w)
	switch {
	case c.failed != nil:
		return c.failed
	case p.existing != "":
		r.Existing, r.Digest = p.existing, p.digest
		return nil
	case p.refused != nil:
		r.Err = p.refused
		return nil
	}
	c.perform(w, p.job, r)
	return c.failed
}

// perform does what check has allowed; nothing in it can be refused.
func (c *Core) perform(w *store.Write, j *job, r *store.Result) {
	first := len(c.runs)
	if w.Session != nil {
		c.putSession(w.Session)
	}
	if w.Submit != nil {
		j = c.submit(w.Submit)
	}
	if w.Follow != nil {
		c.follow(w.Follow)
	}
	if w.Unfollow != nil {
		c.unfollow(w.Unfollow)
	}
	if j != nil {
		c.advance(j, w)
	}
	if w.Trim != nil {
		c.trim(w.Trim)
	}
	for i := range w.Records {
		c.putRecord(&w.Records[i])
	}
	if w.Unlogged != nil {
		r.Unlogged = c.unlogged(j, w.Unlogged)
	}
	r.LastSeq = c.lastSeq(w)
	if len(c.runs) > first {
		r.Runs = c.runs[first:len(c.runs):len(c.runs)]
	}
}

func (c *Core) lastSeq(w *store.Write) uint64 {
	switch {
	case w.Mark != "":
		return c.session(w.Mark).last
	case w.Follow != nil:
		return c.session(w.Follow.Session).last
	case w.Session != nil:
		return c.session(w.Session.ID).last
	}
	return 0
}

// end completes the changes and forgets what is no longer needed.
func (c *Core) end() {
	for _, jc := range c.chg.Jobs {
		jc.finish()
		if jc.job.change = nil; jc.job.ended {
			c.forget(jc.job)
		}
	}
	for _, sc := range c.chg.Sessions {
		sc.session.change = nil
	}
	c.chg.Deleted = c.deleted
	if c.chg.last != nil {
		c.chg.LastID = c.chg.last.ID()
	}
	c.evict()
}

// forget drops a job that has ended.
func (c *Core) forget(j *job) {
	for i := range j.followers {
		j.followers[i].session.follows--
	}
	delete(c.jobs, j.id)
}
