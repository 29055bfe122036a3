package sequence

import (
	"fmt"
	"math"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// followJob performs a Follow and reports the state of the job.
func (c *Core) followJob(w *store.Follow, r *store.Result) {
	r.From, r.More = c.follow(w)
	if j := c.jobs[w.Job]; j != nil {
		r.JobState, r.JobSeq = j.state, j.lastSeq
	}
}

// follow gives a session what a job has so far and, while it lives, what comes.
// If there is more than w.Max it gives that much, and more says from where on the
// rest is.
func (c *Core) follow(w *store.Follow) (from uint64, more bool) {
	f := follower{session: c.session(w.Session), corr: w.CorrelationID, types: w.Types, origin: w.Origin, row: true}
	if f.types == 0 {
		f.types = everything
	}
	if !f.origin {
		f.plain = f.types
	}
	j := c.jobs[w.Job]
	var before follower
	if j != nil && !j.ended {
		if i := j.find(w.Session, w.CorrelationID); i >= 0 {
			before = j.followers[i]
		}
	}
	if w.New && before.session != nil && before.types&f.types == f.types {
		return 0, false
	}
	if from, more = c.history(&f, w.Job, j, w.From, w.Max); more || w.Once || j == nil || j.ended {
		return from, more
	}
	f.types, f.plain = f.types|before.types, f.plain|before.plain
	f.origin = f.origin || before.origin
	j.put(f)
	if j.home == f.session && j.submitID == f.corr {
		j.off = false
	}
	c.chg.Follows = append(c.chg.Follows, f.change(j.id))
	return 0, false
}

// change is the row of a follow.
func (f *follower) change(id arcp.JobID) FollowChange {
	fc := FollowChange{FollowKey: FollowKey{f.session.id, id, f.corr}, Types: f.types, Origin: f.origin}
	if f.origin {
		fc.Plain = f.plain
	}
	return fc
}

// history gives the events after a position, at most limit of them if that is
// not 0: the stored ones and then those of this batch.
func (c *Core) history(f *follower, id arcp.JobID, j *job, after, limit uint64) (from uint64, more bool) {
	if j != nil && after >= j.lastJSeq {
		return 0, false
	}
	if limit == 0 {
		limit = math.MaxUint64 - 1
	}
	events := c.after(j, id, after, limit+1)
	if more = uint64(len(events)) > limit; more {
		events = events[:limit]
		from = events[limit-1].JSeq
	}
	if len(events) > 0 {
		c.giveMarked(f, id, events)
	}
	return from, more
}

func (c *Core) stored(id arcp.JobID, after, limit uint64) (events []*store.Event) {
	err := c.src.Events(id, after, func(e *store.Event) bool {
		events = append(events, e)
		return uint64(len(events)) < limit
	})
	if err != nil {
		c.fail(fmt.Errorf("events of %s: %w", id, err))
	}
	return events
}

func (c *Core) giveMarked(f *follower, id arcp.JobID, events []*store.Event) {
	var union, bit arcp.TypeSet
	var t arcp.Type
	marks := make([]arcp.TypeSet, len(events))
	for i, e := range events {
		if e.Type != t || i == 0 {
			t, bit = e.Type, bitOf(e.Type)
		}
		marks[i] = bit
		union |= bit
	}
	c.give(f, id, events, marks, union)
}

// deliverEvent adds one stored event of a job to the log of a session, if there is
// such a session.
func (c *Core) deliverEvent(w *store.DeliverEvent) {
	j := c.jobs[w.Job]
	f := follower{session: c.session(w.Session), types: everything, origin: true}
	if f.session == nil {
		return
	}
	if j != nil && !j.ended {
		f = j.receiver(f.session)
	}
	f.directed = true
	if events := c.after(j, w.Job, w.JSeq-1, 1); len(events) > 0 {
		c.giveMarked(&f, w.Job, events)
	}
}

// after returns up to limit of a job's events after a position: the stored ones
// and then those of this batch. j is nil for a job that has ended.
func (c *Core) after(j *job, id arcp.JobID, after, limit uint64) []*store.Event {
	var pending, events []*store.Event
	isNew := false
	if j != nil && j.change != nil {
		pending, isNew = j.change.Events, j.change.Created != nil
	}
	if !isNew && (len(pending) == 0 || after+1 < pending[0].JSeq) {
		events = c.stored(id, after, limit)
	}
	for _, e := range pending {
		if e.JSeq > after && uint64(len(events)) < limit {
			events = append(events, e)
		}
	}
	return events
}

// unfollow ends a follow, or only what was followed with origin; ending what is not
// there changes nothing.
func (c *Core) unfollow(w *store.Unfollow) {
	k := FollowKey{w.Session, w.Job, w.CorrelationID}
	j := c.jobs[w.Job]
	if j == nil || j.ended {
		return
	}
	if i := j.find(w.Session, w.CorrelationID); i >= 0 && w.Origin {
		f := &j.followers[i]
		if !f.origin {
			return
		}
		if f.plain != 0 {
			f.types, f.origin, f.row = f.plain, false, true
			c.chg.Follows = append(c.chg.Follows, f.change(j.id))
			return
		}
	}
	f, ok := j.drop(k)
	switch {
	case !ok:
		return
	case f.home:
		j.off = true
		c.chg.Follows = append(c.chg.Follows, FollowChange{FollowKey: k, Off: true})
	default:
		c.chg.Follows = append(c.chg.Follows, FollowChange{FollowKey: k, Delete: true})
	}
}
