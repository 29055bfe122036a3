package sequence

import (
	"fmt"

	"github.com/arcpd/arcpd/runtime/store"
)

// feed is the state of a principal's feed.
type feed struct {
	principal string
	trail
	jobs   int // live jobs; a feed with any is not evicted
	change *FeedChange
}

func (f *feed) idle() bool { return f.jobs == 0 }

// feeds are the feeds in memory.
type feeds struct {
	*batch
	byPrincipal map[string]*feed
	limit       int
}

// get returns a principal's feed, from memory or the source; an empty feed if the
// principal has none.
func (fs *feeds) get(principal string) *feed {
	f := fs.byPrincipal[principal]
	if f == nil {
		f = &feed{principal: principal}
		var err error
		if f.trimmed, f.last, err = fs.source.Feed(principal); err != nil {
			fs.fail(fmt.Errorf("feed of %s: %w", principal, err))
		}
		fs.byPrincipal[principal] = f
	}
	f.used = fs.number
	return f
}

// changeOf returns the change of a feed in this batch.
func (fs *feeds) changeOf(f *feed) *FeedChange {
	if f.change == nil {
		fs.changes.Feeds, f.change = next(fs.changes.Feeds)
		f.change.Principal, f.change.feed, f.change.Last, f.change.Trim = f.principal, f, f.last, f.trimmed
	}
	return f.change
}

// publish appends the new events of a job to the feed of the job's principal.
func (fs *feeds) publish(j *job, events []*store.Event) store.FeedRun {
	f := j.feed
	if f == nil || len(events) == 0 {
		return store.FeedRun{}
	}
	r := store.FeedRun{Principal: f.principal, First: f.last + 1, Job: j.id, Session: j.session, CorrelationID: j.submitID, Events: events}
	change := fs.changeOf(f)
	change.add(Run{First: r.First, Job: j.id, JSeq: events[0].JSeq, N: uint64(len(events)), Head: events[0]})
	f.last = change.Last
	return r
}

// announce appends events of no job to a principal's feed.
func (fs *feeds) announce(a *store.Announce) store.FeedRun {
	f := fs.get(a.Principal)
	r := store.FeedRun{Principal: f.principal, First: f.last + 1, Events: a.Events}
	setIDs(a.Events, fs.ids)
	for i, e := range a.Events {
		e.JSeq = r.First + uint64(i)
	}
	fs.changes.last = a.Events[len(a.Events)-1]
	change := fs.changeOf(f)
	change.Events = append(change.Events, a.Events...)
	change.add(Run{First: r.First, JSeq: r.First, N: uint64(len(a.Events)), Head: a.Events[0]})
	f.last = change.Last
	return r
}

func (fs *feeds) trim(t *store.TrimFeed) {
	if f := fs.get(t.Principal); f.trim(t.Position) {
		change := fs.changeOf(f)
		change.Trim, change.Trimmed = f.trimmed, true
	}
}

func (fs *feeds) endBatch() {
	for _, change := range fs.changes.Feeds {
		change.feed.change = nil
	}
	evict(fs.byPrincipal, &fs.limit)
}
