package sequence

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// job is what deciding needs of a live job.
type job struct {
	id        arcp.JobID
	session   arcp.SessionID // that submitted it; may be empty, or have ended
	home      *session       // the same while it is there
	feed      *feed          // of its principal; nil: it has none
	submitID  arcp.MessageID
	followers []follower
	state     arcp.JobState
	attempt   uint32
	ended     bool // in this batch
	off       bool // the home session has ended the follow that the submit made
	lastJSeq  uint64
	lastSeq   uint64
	change    *JobChange
}

// follower is a session that is given a job's events.
type follower struct {
	session *session
	corr    arcp.MessageID
	types   arcp.TypeSet
	plain   arcp.TypeSet // of these, what it follows without origin
	origin  bool
	home    bool // its numbers are the job's origin numbers
	row     bool // it is stored; else it follows from the job's row

	directed bool // it is given an event of a directed type
}

const everything = ^arcp.TypeSet(0)

// Load adds a live job that is stored, with the follow rows of it.
func (c *Core) Load(row *store.Job, follows []FollowChange) error {
	j := c.addJob(row)
	j.state, j.attempt, j.lastJSeq, j.lastSeq = row.State, row.Attempt, row.LastJSeq, row.LastSeq
	for i := range follows {
		f := &follows[i]
		if f.Off {
			j.drop(f.FollowKey)
			j.off = j.home != nil
		} else if s := c.session(f.Session); s != nil {
			plain := f.Plain
			if !f.Origin {
				plain = f.Types
			}
			j.put(follower{session: s, corr: f.CorrelationID, types: f.Types, plain: plain, origin: f.Origin, row: true})
		}
	}
	return c.failed
}

func (c *Core) addJob(row *store.Job) *job {
	j := &job{id: row.ID, session: row.Session, submitID: row.SubmitID, state: row.State, attempt: max(row.Attempt, 1)}
	if row.Principal != "" {
		j.feed = c.feed(row.Principal)
		j.feed.jobs++
	}
	if row.Session != "" {
		if j.home = c.session(row.Session); j.home != nil {
			j.put(follower{session: j.home, corr: row.SubmitID, types: everything, plain: everything})
		}
	}
	c.jobs[j.id] = j
	return j
}

// put adds a follower or replaces the one with the same key. Their order is
// that in which they are given numbers: the one that the submit made first, the
// others by session and correlation id, also after a restart.
func (j *job) put(f follower) {
	f.home = f.session == j.home && f.corr == j.submitID
	if i := j.find(f.session.id, f.corr); i >= 0 {
		j.followers[i] = f
		return
	}
	f.session.hold(j)
	i := slices.IndexFunc(j.followers, func(o follower) bool { return f.before(&o) })
	if i < 0 {
		i = len(j.followers)
	}
	j.followers = slices.Insert(j.followers, i, f)
}

func (f *follower) before(o *follower) bool {
	switch {
	case f.home != o.home:
		return f.home
	case f.session != o.session:
		return f.session.id < o.session.id
	}
	return f.corr < o.corr
}

func (j *job) find(id arcp.SessionID, corr arcp.MessageID) int {
	return slices.IndexFunc(j.followers, func(f follower) bool { return f.session.id == id && f.corr == corr })
}

// drop removes the follower with the key, if any, and returns it.
func (j *job) drop(k FollowKey) (f follower, ok bool) {
	i := j.find(k.Session, k.CorrelationID)
	if i < 0 {
		return f, false
	}
	f = j.followers[i]
	j.followers = slices.Delete(j.followers, i, i+1)
	if f.session != j.home && !slices.ContainsFunc(j.followers, func(o follower) bool { return o.session == f.session }) {
		f.session.drop(j)
	}
	return f, true
}

// leave drops a session that ends, as a follower and as the home.
func (j *job) leave(s *session) {
	j.followers = slices.DeleteFunc(j.followers, func(f follower) bool { return f.session == s })
	if j.home == s {
		j.home, j.off = nil, false
	}
}

// release lets go of the sessions and the feed of a job that has ended.
func (j *job) release() {
	for i := range j.followers {
		j.followers[i].session.drop(j)
	}
	if j.home != nil {
		j.home.drop(j)
	}
	if j.feed != nil {
		j.feed.jobs--
	}
}

func (c *Core) jobChange(j *job) *JobChange {
	if j.change == nil {
		c.chg.Jobs, j.change = next(c.chg.Jobs)
		j.change.ID, j.change.job, j.change.First = j.id, j, j.lastJSeq+1
	}
	return j.change
}

func (c *Core) submit(row *store.Job) *job {
	created := *row
	created.Attempt = max(row.Attempt, 1)
	j := c.addJob(&created)
	jc := c.jobChange(j)
	jc.Created = &created
	if row.IdempotencyKey != "" {
		c.keys[ikey{row.Principal, row.IdempotencyKey}] = jc
	}
	return j
}

// advance appends events to the log of a job and changes its status.
func (c *Core) advance(j *job, w *store.AppendEvents) {
	if !w.NewAttempt && len(w.Events) == 0 && w.State == "" {
		return
	}
	jc := c.jobChange(j)
	if w.NewAttempt {
		j.attempt++
		jc.Changed = true
	}
	if len(w.Events) > 0 {
		c.append(j, w.Events)
	}
	if w.State == "" {
		return
	}
	j.state = w.State
	jc.Changed = true
	if w.State.Terminal() {
		j.ended, jc.Ended = true, true
		jc.Status.EndedAt, jc.Status.Code = w.Events[len(w.Events)-1].Time, w.Code
		c.deleteFollows(j)
	}
}

// deleteFollows deletes the follow rows of a job that ends.
func (c *Core) deleteFollows(j *job) {
	for i := range j.followers {
		if f := &j.followers[i]; f.row {
			c.chg.Follows = append(c.chg.Follows, FollowChange{FollowKey: FollowKey{f.session.id, j.id, f.corr}, Delete: true})
		}
	}
	if j.off {
		c.chg.Follows = append(c.chg.Follows, FollowChange{FollowKey: j.homeKey(), Delete: true})
	}
}

func (j *job) homeKey() FollowKey { return FollowKey{j.home.id, j.id, j.submitID} }
