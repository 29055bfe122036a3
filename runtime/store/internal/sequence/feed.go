package sequence

import (
	"fmt"

	"github.com/arcpd/arcpd/runtime/store"
)

// feed is what deciding needs of a principal's feed.
type feed struct {
	principal string
	trail
	jobs   int // live ones: it must stay
	change *FeedChange
}

func (f *feed) idle() bool { return f.jobs == 0 }

// feed returns a principal's feed, from memory or the source; a principal that
// has none gets an empty one.
func (c *Core) feed(principal string) *feed {
	f := c.feeds[principal]
	if f == nil {
		f = &feed{principal: principal}
		var err error
		if f.trimmed, f.last, err = c.src.Feed(principal); err != nil {
			c.fail(fmt.Errorf("feed of %s: %w", principal, err))
		}
		c.feeds[principal] = f
	}
	f.used = c.batch
	return f
}

func (c *Core) feedChange(f *feed) *FeedChange {
	if f.change == nil {
		c.chg.Feeds, f.change = next(c.chg.Feeds)
		f.change.Principal, f.change.feed, f.change.Last, f.change.Trim = f.principal, f, f.last, f.trimmed
	}
	return f.change
}

// publish appends events that a job was given to its principal's feed.
func (c *Core) publish(j *job, events []*store.Event) store.FeedRun {
	f := j.feed
	if f == nil || len(events) == 0 {
		return store.FeedRun{}
	}
	r := store.FeedRun{Principal: f.principal, First: f.last + 1, Job: j.id, Session: j.session, CorrelationID: j.submitID, Events: events}
	fc := c.feedChange(f)
	fc.add(Run{First: r.First, Job: j.id, JSeq: events[0].JSeq, N: uint64(len(events)), Head: events[0]})
	f.last = fc.Last
	return r
}

// announce appends events to a principal's feed that are of no job.
func (c *Core) announce(a *store.Announce) store.FeedRun {
	f := c.feed(a.Principal)
	r := store.FeedRun{Principal: f.principal, First: f.last + 1, Events: a.Events}
	store.SetIDs(a.Events, c.ids)
	for i, e := range a.Events {
		e.JSeq = r.First + uint64(i)
	}
	c.chg.last = a.Events[len(a.Events)-1]
	fc := c.feedChange(f)
	fc.Events = append(fc.Events, a.Events...)
	fc.add(Run{First: r.First, JSeq: r.First, N: uint64(len(a.Events)), Head: a.Events[0]})
	f.last = fc.Last
	return r
}

func (c *Core) trimFeed(t *store.TrimFeed) {
	if f := c.feed(t.Principal); f.trim(t.Position) {
		fc := c.feedChange(f)
		fc.Trim, fc.Trimmed = f.trimmed, true
	}
}
