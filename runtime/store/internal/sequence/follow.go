package sequence

import (
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// follow gives a session what a job has so far and, while it lives, what comes.
func (c *Core) follow(w *store.Follow) {
	f := follower{session: c.session(w.Session), corr: w.CorrelationID, types: w.Types, origin: w.Origin, row: true}
	if f.types == 0 {
		f.types = everything
	}
	j := c.jobs[w.Job]
	c.history(&f, w.Job, j, w.From)
	if j == nil || j.ended {
		return
	}
	j.put(f)
	if j.home == f.session && j.submitID == f.corr {
		j.off = false
	}
	c.chg.Follows = append(c.chg.Follows, FollowChange{FollowKey: FollowKey{w.Session, w.Job, w.CorrelationID}, Types: f.types, Origin: f.origin})
}

// history gives the events after a position: the stored ones and then those of
// this batch.
func (c *Core) history(f *follower, id arcp.JobID, j *job, after uint64) {
	var pending []*store.Event
	isNew := false
	if j != nil && j.change != nil {
		pending, isNew = j.change.Events, j.change.Created != nil
	}
	if j != nil && after >= j.lastJSeq {
		return
	}
	var events []*store.Event
	if !isNew && (len(pending) == 0 || after+1 < pending[0].JSeq) {
		events = c.stored(id, after)
	}
	for _, e := range pending {
		if e.JSeq > after {
			events = append(events, e)
		}
	}
	if len(events) > 0 {
		c.giveMarked(f, id, events)
	}
}

func (c *Core) stored(id arcp.JobID, after uint64) (events []*store.Event) {
	err := c.src.Events(id, after, func(e *store.Event) bool {
		events = append(events, e)
		return true
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

// unfollow ends a follow; ending one that is not there changes nothing.
func (c *Core) unfollow(w *store.Follow) {
	k := FollowKey{w.Session, w.Job, w.CorrelationID}
	j := c.jobs[w.Job]
	if j == nil || j.ended {
		return
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
