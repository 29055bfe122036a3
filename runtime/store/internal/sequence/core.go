package sequence

import (
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Core decides the writes of one store. Only the goroutine that commits may call it.
type Core struct {
	batch    *batch
	sessions *sessions
	feeds    *feeds
	jobs     *jobs
	records  *records
	appender *appender
	follows  *follows
}

// MaxSessions bounds the sessions, and the feeds, that a Core keeps in memory besides
// those of live jobs: about 10 MB each.
const MaxSessions = 1 << 16

// New returns a Core without live jobs. deleted is Changes.Deleted of the last stored
// batch. The next id of ids must be greater than LastID of that batch.
func New(src Source, ids *arcp.IDSource, deleted uint64) *Core {
	b := &batch{source: src, ids: ids}
	c := &Core{batch: b,
		sessions: &sessions{batch: b, limit: MaxSessions, byID: make(map[arcp.SessionID]*session), ended: make(map[arcp.SessionID]struct{})},
		feeds:    &feeds{batch: b, limit: MaxSessions, byPrincipal: make(map[string]*feed)},
		records:  &records{batch: b, deleted: deleted, revs: make(map[string]uint64)},
	}
	c.jobs = &jobs{batch: b, sessions: c.sessions, feeds: c.feeds,
		live: make(map[arcp.JobID]*job), keys: make(map[idempotencyKey]*JobChange), deleted: make(map[arcp.JobID]struct{})}
	c.appender = &appender{batch: b, sessions: c.sessions}
	c.follows = &follows{batch: b, jobs: c.jobs, sessions: c.sessions, appender: c.appender}
	return c
}

// Load adds a stored live job with its stored follows.
func (c *Core) Load(row *store.Job, follows []FollowChange) error {
	c.jobs.load(row, follows)
	return c.batch.err
}

// Decide decides writes in order; each sees the writes before it. The returned Changes
// are valid until the next call and must be stored whole. After an error nothing of the
// batch may be stored and the Core must not be used again.
func (c *Core) Decide(writes []*store.Write, results []store.Result) (*Changes, error) {
	if len(results) != len(writes) {
		return nil, fmt.Errorf("%d writes with %d results", len(writes), len(results))
	}
	c.begin(len(writes))
	for i, w := range writes {
		results[i] = store.Result{}
		if err := c.decide(w, &results[i]); err != nil {
			return nil, fmt.Errorf("write %d: %w", i, err)
		}
	}
	if c.end(); c.batch.err != nil {
		return nil, c.batch.err
	}
	return &c.batch.changes, nil
}

func (c *Core) begin(writes int) {
	c.batch.changes.reset()
	c.batch.number++
	clear(c.sessions.ended)
	clear(c.jobs.keys)
	clear(c.jobs.deleted)
	clear(c.records.revs)
	c.appender.runs = make([]store.Run, 0, writes) // results refer to it: it is never reused
}

// decide performs a write, or sets r.Err. It returns an error of the source.
func (c *Core) decide(w *store.Write, r *store.Result) error {
	with, together := c.checkWith(w, r)
	d := c.check(w)
	d.report(r)
	switch {
	case c.batch.err != nil:
		return c.batch.err
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
	return c.batch.err
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

// perform performs a write that check has allowed; no operation can be refused. j is
// the job of AppendEvents, nil for the job of SubmitJob.
func (c *Core) perform(w *store.Write, j *job, r *store.Result) {
	first := len(c.appender.runs)
	var read *session // its last number is Result.LastSeq
	for _, op := range w.Ops {
		switch op := op.(type) {
		case *store.OpenSession:
			read = c.sessions.put(op.Row, false)
			r.Epoch = read.epoch
		case *store.AttachSession:
			read = c.sessions.put(op.Row, true)
			r.Epoch, r.Followed = read.epoch, read.followed()
		case *store.PutSession:
			read = c.sessions.put(op.Row, false)
			r.Epoch = read.epoch
		case *store.EndSession:
			c.sessions.end(op.Session)
		case *store.SubmitJob:
			j = c.jobs.submit(op.Row)
		case *store.Follow:
			read = c.sessions.get(op.Session)
			c.follows.follow(op, r)
		case *store.Unfollow:
			c.follows.unfollow(op)
		case *store.DeliverEvent:
			c.follows.deliverEvent(op)
		case *store.AppendEvents:
			c.appendEvents(j, op)
			r.Feed = c.feeds.publish(j, op.Events)
		case *store.Announce:
			r.Feed = c.feeds.announce(op)
		case *store.TrimSession:
			c.sessions.trim(op.Session, op.Seq)
		case *store.PutRecord:
			c.records.put((*store.Record)(op))
		case *store.DeliverUnlogged:
			r.Unlogged = c.deliverUnlogged(op, j)
		case *store.ReadPosition:
			read = c.sessions.get(op.Session)
		case *store.ReadFeedPosition:
			r.FeedLast = c.feeds.get(op.Principal).last
		case *store.DeleteJob:
			c.deleteJob(op.Job)
		case *store.TrimFeed:
			c.feeds.trim(op)
		}
	}
	if read != nil {
		r.LastSeq = read.last
	}
	if runs := c.appender.runs; len(runs) > first {
		r.Runs = runs[first:len(runs):len(runs)]
	}
}

// appendEvents appends events to the log of a job and changes the job's status.
func (c *Core) appendEvents(j *job, op *store.AppendEvents) {
	if !op.NewAttempt && len(op.Events) == 0 && op.State == "" {
		return
	}
	change := c.jobs.changeOf(j)
	if op.NewAttempt {
		j.attempt++
		change.Changed = true
	}
	if len(op.Events) > 0 {
		c.appender.append(j, op.Events)
		if j.start(op.Events) {
			change.Changed = true
		}
	}
	if op.State == "" {
		return
	}
	j.state = op.State
	change.Changed = true
	if op.State.Terminal() {
		j.ended, change.Ended = true, true
		change.Status.EndedAt, change.Status.Code = op.Events[len(op.Events)-1].Time, op.Code
		c.follows.deleteFollows(j)
	}
}

// deliverUnlogged addresses an event that is not stored to the followers that see it.
// submitted is the job of SubmitJob in the same write.
func (c *Core) deliverUnlogged(op *store.DeliverUnlogged, submitted *job) []store.Delivery {
	j := submitted
	if op.Job != "" {
		j = c.jobs.live[op.Job]
	}
	setID(op.Event, c.batch.ids)
	return j.receiversOf(op.Event)
}

// deleteJob deletes a job that has ended, its records, and the log of its session up
// to its last event. An unknown job changes nothing.
func (c *Core) deleteJob(id arcp.JobID) {
	if !c.jobs.exists(id) {
		return
	}
	row := c.jobs.delete(id)
	c.records.deletePrefix(store.JobRecordPrefix(id))
	if row.Session != "" && c.sessions.get(row.Session) != nil {
		c.sessions.trim(row.Session, row.LastSeq)
	}
}

// end completes the changes and drops the state of the batch.
func (c *Core) end() {
	c.jobs.endBatch()
	c.sessions.endBatch()
	c.feeds.endBatch()
	changes := &c.batch.changes
	changes.Deleted = c.records.deleted
	if changes.last != nil {
		changes.LastID = changes.last.ID()
	}
}
