package mem

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// applyFeed applies the change of a feed. Each run of announced events gets a job of
// its own.
func (s *Store) applyFeed(c *sequence.FeedChange) {
	t := s.feeds[c.Principal]
	if t == nil {
		t = new(trail)
		s.feeds[c.Principal] = t
	}
	events := c.Events
	jobOf := func(r *sequence.Run) *job {
		if r.Job != "" {
			return s.jobs[r.Job]
		}
		own := &job{events: slices.Clone(events[:r.N])}
		events = events[r.N:]
		s.resize(own, jobBytes+sizeOfEvents(own.events))
		return own
	}
	s.applyTrail(t, &c.TrailChange, jobOf, func(dropped *run) {
		if dropped.announced() {
			s.resize(dropped.job, 0)
		}
	})
}

// feedOf returns a principal's feed. The lock must be held.
func (s *Store) feedOf(principal string) *trail {
	if t := s.feeds[principal]; t != nil {
		return t
	}
	return new(trail)
}

// Feed calls fn for the events of a principal's feed after a position.
func (s *Store) Feed(ctx context.Context, principal string, after uint64, fn func(store.FeedEvent) bool) error {
	rd := reader{name: "feed of " + principal, after: after, rows: true}
	rd.find = func() (*trail, error) { return s.feedOf(principal), nil }
	return s.read(&rd, func(p *piece) (bool, error) {
		j, err := p.row.unpack()
		if err != nil {
			return false, err
		}
		x := store.FeedEvent{Job: p.job.id, Session: j.Session, CorrelationID: j.SubmitID}
		return rd.emit(ctx, p, func(seq uint64, e *store.Event) bool {
			x.Position, x.Event = seq, e
			return fn(x)
		})
	})
}

// FeedBounds returns the last trimmed position of a principal's feed and the last one.
func (s *Store) FeedBounds(_ context.Context, principal string) (trimmed, last uint64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.feedOf(principal)
	return t.trimmed, t.last, s.broken
}

// FeedPosition searches a principal's feed for an id.
func (s *Store) FeedPosition(_ context.Context, principal string, id arcp.MessageID) (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.broken != nil {
		return 0, s.broken
	}
	t := s.feedOf(principal)
	r, err := t.runOf(id)
	if err != nil {
		return 0, err
	}
	if r != nil {
		position, err := r.position(id)
		if err != nil || position > t.trimmed {
			return position, err
		}
	}
	return 0, fmt.Errorf("event %s in the feed of %s: %w", id, principal, store.ErrNotFound)
}

// position returns the position of the event with an id in a run, or 0.
func (r *run) position(id arcp.MessageID) (uint64, error) {
	l, err := r.job.log().unpack()
	if err != nil {
		return 0, err
	}
	events := l.events[r.jseq-1:][:r.n]
	i := sort.Search(len(events), func(i int) bool { return events[i].ID() >= id })
	if i == len(events) || events[i].ID() != id {
		return 0, nil
	}
	return r.first + uint64(i), nil
}

// runOf returns the last run whose first id is not greater than id, or nil.
func (t *trail) runOf(id arcp.MessageID) (found *run, err error) {
	low, high := t.trimmed+1, t.last
	for low <= high {
		mid := low + (high-low)/2
		r := t.findLive(mid)
		if r == nil || r.first > high {
			high = mid - 1
			continue
		}
		e, err := r.job.log().at(r.jseq)
		switch {
		case err != nil:
			return nil, err
		case e.ID() <= id:
			found, low = r, r.end()
		default:
			high = min(mid, r.first) - 1
		}
	}
	return found, nil
}

// findLive returns the run with a number or, if its job was deleted and its ids are
// unknown, the next run of a job that exists.
func (t *trail) findLive(seq uint64) *run {
	i, k := t.find(seq)
	for ; i < len(t.pieces); i, k = i+1, 0 {
		for ; k < len(t.pieces[i]); k++ {
			if r := &t.pieces[i][k]; !r.job.deleted {
				return r
			}
		}
	}
	return nil
}

// Feeds calls fn for every principal that has a feed, in order.
func (s *Store) Feeds(ctx context.Context, fn func(principal string) bool) error {
	names, err := sorted(s, s.feeds)
	if err != nil {
		return err
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !fn(name) {
			return nil
		}
	}
	return nil
}
