package sequence

import (
	"fmt"
	"math"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// follower is a session that gets the events of a job.
type follower struct {
	session     *session
	correlation arcp.MessageID
	types       arcp.TypeSet
	plain       arcp.TypeSet // of these, the types followed without Forwarded
	forwarded   bool         // gets forwarded copies
	primary     bool         // the follow of the submit: its numbers are the OriginSeq of the job's events
	stored      bool         // has a row of its own; else it follows from the job's row
	directed    bool         // gets an event of a directed type
}

const allTypes = ^arcp.TypeSet(0)

// before reports whether f gets its numbers before o: the primary follow first, the
// others by session and correlation id, so that the order survives a restart.
func (f *follower) before(o *follower) bool {
	switch {
	case f.primary != o.primary:
		return f.primary
	case f.session != o.session:
		return f.session.id < o.session.id
	}
	return f.correlation < o.correlation
}

// mask returns the types that the follower sees.
func (f *follower) mask() arcp.TypeSet {
	set := f.session.view & f.types &^ hidden
	if !f.directed {
		set &^= arcp.Directed
	}
	return set
}

// seesUnlogged reports whether the follower gets an unlogged event. Types without a
// number are in no TypeSet: only a follower of everything gets them.
func (f *follower) seesUnlogged(bit arcp.TypeSet) bool {
	if bit == hidden {
		return f.types == allTypes
	}
	return f.mask()&bit != 0
}

func (f *follower) run(id arcp.JobID, first, jseq, n uint64) Run {
	return Run{First: first, Job: id, CorrelationID: f.correlation, Forwarded: f.forwarded, JSeq: jseq, N: n}
}

// change returns the row of the follow.
func (f *follower) change(id arcp.JobID) FollowChange {
	change := FollowChange{FollowKey: FollowKey{f.session.id, id, f.correlation}, Types: f.types, Forwarded: f.forwarded}
	if f.forwarded {
		change.Plain = f.plain
	}
	return change
}

// follows changes which sessions follow which jobs.
type follows struct {
	*batch
	jobs     *jobs
	sessions *sessions
	appender *appender
}

func (fs *follows) add(change FollowChange) {
	fs.changes.Follows = append(fs.changes.Follows, change)
}

// follow performs a Follow and reports the state of the job.
func (fs *follows) follow(op *store.Follow, r *store.Result) {
	j := fs.jobs.live[op.Job]
	if j != nil {
		r.JobState, r.JobSeq = j.state, j.lastSeq
	}
	f := follower{session: fs.sessions.get(op.Session), correlation: op.CorrelationID, types: op.Types, forwarded: op.Forwarded, stored: true}
	if f.types == 0 {
		f.types = allTypes
	}
	if !f.forwarded {
		f.plain = f.types
	}
	live := j != nil && !j.ended
	known := op.New && live && j.reaches(f.session, f.types)
	if !known {
		if r.From, r.More = fs.deliverHistory(&f, op, j); r.More {
			return
		}
	}
	if live && !op.Once {
		fs.extend(j, f, known)
	}
}

// extend extends the follow of a live job that has the key of f. If there is none, it adds f,
// unless the session gets the events by another follow.
func (fs *follows) extend(j *job, f follower, known bool) {
	i := j.find(f.session.id, f.correlation)
	if i < 0 && known {
		return
	}
	if i >= 0 {
		before := &j.followers[i]
		f.types, f.plain = f.types|before.types, f.plain|before.plain
		f.forwarded = f.forwarded || before.forwarded
		if f.types == before.types && f.plain == before.plain && f.forwarded == before.forwarded {
			return
		}
	}
	j.put(f)
	if j.submitter == f.session && j.submitID == f.correlation {
		j.unfollows = false
	}
	fs.add(f.change(j.id))
}

// deliverHistory delivers the events of a job after op.From, at most op.Max if that is
// not 0. more reports that there are more, after position from. j is nil for a job that
// has ended.
func (fs *follows) deliverHistory(f *follower, op *store.Follow, j *job) (from uint64, more bool) {
	if j != nil && op.From >= j.lastJSeq {
		return 0, false
	}
	limit := op.Max
	if limit == 0 {
		limit = math.MaxUint64 - 1
	}
	events := fs.events(j, op.Job, op.From, limit+1)
	if more = uint64(len(events)) > limit; more {
		events = events[:limit]
		from = events[limit-1].JSeq
	}
	if len(events) > 0 {
		fs.appender.deliverStored(f, op.Job, events)
	}
	return from, more
}

// events returns up to limit events of a job after a position: the stored events, then
// those of this batch. j is nil for a job that has ended.
func (fs *follows) events(j *job, id arcp.JobID, after, limit uint64) []*store.Event {
	var pending, events []*store.Event
	isNew := false
	if j != nil && j.changed != nil {
		pending, isNew = j.changed.Events, j.changed.Created != nil
	}
	if !isNew && (len(pending) == 0 || after+1 < pending[0].JSeq) {
		events = fs.storedEvents(id, after, limit)
	}
	for _, e := range pending {
		if e.JSeq > after && uint64(len(events)) < limit {
			events = append(events, e)
		}
	}
	return events
}

func (fs *follows) storedEvents(id arcp.JobID, after, limit uint64) (events []*store.Event) {
	err := fs.source.Events(id, after, func(e *store.Event) bool {
		events = append(events, e)
		return uint64(len(events)) < limit
	})
	if err != nil {
		fs.fail(fmt.Errorf("events of %s: %w", id, err))
	}
	return events
}

// deliverEvent delivers one stored event of a job to a session. An unknown session
// changes nothing.
func (fs *follows) deliverEvent(op *store.DeliverEvent) {
	j := fs.jobs.live[op.Job]
	f := follower{session: fs.sessions.get(op.Session), types: allTypes, forwarded: true}
	if f.session == nil {
		return
	}
	if j != nil && !j.ended {
		f = j.receiver(f.session)
	}
	f.directed = true
	if events := fs.events(j, op.Job, op.JSeq-1, 1); len(events) > 0 {
		fs.appender.deliverStored(&f, op.Job, events)
	}
}

// unfollow ends a follow, or with Forwarded its forwarded part. An unknown follow changes
// nothing.
func (fs *follows) unfollow(op *store.Unfollow) {
	k := FollowKey{op.Session, op.Job, op.CorrelationID}
	j := fs.jobs.live[op.Job]
	if j == nil || j.ended {
		return
	}
	if i := j.find(op.Session, op.CorrelationID); i >= 0 && op.Forwarded {
		f := &j.followers[i]
		if !f.forwarded {
			return
		}
		if f.plain != 0 {
			f.types, f.forwarded, f.stored = f.plain, false, true
			fs.add(f.change(j.id))
			return
		}
	}
	f, ok := j.remove(k)
	switch {
	case !ok:
		return
	case f.primary:
		j.unfollows = true
		fs.add(FollowChange{FollowKey: k, Unfollowed: true})
	default:
		fs.add(FollowChange{FollowKey: k, Delete: true})
	}
}

// deleteFollows deletes the stored follows of a job that ends.
func (fs *follows) deleteFollows(j *job) {
	for i := range j.followers {
		if f := &j.followers[i]; f.stored {
			fs.add(FollowChange{FollowKey: FollowKey{f.session.id, j.id, f.correlation}, Delete: true})
		}
	}
	if j.unfollows {
		fs.add(FollowChange{FollowKey: FollowKey{j.submitter.id, j.id, j.submitID}, Delete: true})
	}
}
