package sequence

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Changes is what a batch does to what is stored. Sessions, jobs and feeds are
// each named once. Deletions and the ends of sessions come after everything
// else: no write of the batch makes anew what an earlier one has deleted.
type Changes struct {
	Sessions  []*SessionChange
	Jobs      []*JobChange
	Feeds     []*FeedChange
	Deletions []Deletion
	Follows   []FollowChange // in order: a later one of the same key wins
	Records   []RecordChange // in order: a later one of the same key wins
	LastID    arcp.MessageID // of the last event; empty: there were none
	Deleted   uint64         // highest revision that a deleted record had

	last *store.Event
}

// SessionChange is a session that the batch touched.
type SessionChange struct {
	ID    arcp.SessionID
	Row   *store.Session // the new row; nil: unchanged
	New   bool           // there was none before
	Ended bool           // there is none any more, nor follows of it, nor ids of its submits
	TrailChange

	session *session
}

// FeedChange is a principal's feed that the batch touched. Of the runs those
// without a job are announced: Events are theirs, in order.
type FeedChange struct {
	Principal string
	Events    []*store.Event
	TrailChange

	feed *feed
}

// TrailChange is what the batch did to a trail.
type TrailChange struct {
	Runs    []Run // appended
	Trimmed bool  // Trim has grown
	Last    uint64
	Trim    uint64 // up to where it is trimmed
}

// Deletion is a job that is deleted. Its records are among the changes.
type Deletion struct {
	Row    store.Job
	Key    bool // it held its idempotency key
	Submit bool // its submitting session knew it by the id of its submit
}

// JobChange is a job that the batch touched.
type JobChange struct {
	ID      arcp.JobID
	Created *store.Job     // the row of a new job as the batch leaves it; nil: not new
	Changed bool           // Status is new
	Ended   bool           // the batch ended it
	Status  Status         // as the batch leaves it
	First   uint64         // position of Events[0]
	Events  []*store.Event // appended

	job *job
}

// Status is the part of a job's row that changes. The stored LastJSeq and
// LastSeq of a live job may be behind its events.
type Status struct {
	State    arcp.JobState
	Attempt  uint32
	EndedAt  time.Time
	Code     arcp.Code
	LastJSeq uint64
	LastSeq  uint64
}

// Apply puts the status into a row.
func (s *Status) Apply(j *store.Job) {
	j.State, j.Attempt, j.EndedAt, j.Code = s.State, s.Attempt, s.EndedAt, s.Code
	j.LastJSeq, j.LastSeq = s.LastJSeq, s.LastSeq
}

// Run is consecutive events of one job with consecutive numbers in a trail. In
// a feed it has neither a correlation id nor an origin and, if it was announced, no
// job: then its numbers are its positions.
type Run struct {
	First         uint64 // number of the first
	Job           arcp.JobID
	CorrelationID arcp.MessageID
	Origin        bool
	JSeq          uint64 // position of the first
	N             uint64

	Head *store.Event // the first, in the changes of a feed
}

// FollowKey names a follow.
type FollowKey struct {
	Session       arcp.SessionID
	Job           arcp.JobID
	CorrelationID arcp.MessageID
}

// FollowChange puts or deletes the row of a follow. Off is a follow that the
// submit made and that has been ended.
type FollowChange struct {
	FollowKey
	Delete bool
	Off    bool
	Types  arcp.TypeSet
	Plain  arcp.TypeSet // with Origin: of these, what is followed without it
	Origin bool
}

// RecordChange is a record's new value; nil: it is deleted.
type RecordChange struct {
	Key   string
	Rev   uint64
	Value []byte
}

// These bound the room for runs that a reused change keeps. Of sessions there
// are many in a batch, of feeds few, which get all that is in it.
const (
	keptRuns     = 256
	keptFeedRuns = 8192
)

// reset empties c; what it pointed to is used again.
func (c *Changes) reset() {
	for _, jc := range c.Jobs {
		*jc = JobChange{}
	}
	for _, sc := range c.Sessions {
		*sc = SessionChange{TrailChange: sc.emptied(keptRuns)}
	}
	for _, fc := range c.Feeds {
		*fc = FeedChange{TrailChange: fc.emptied(keptFeedRuns)}
	}
	clear(c.Deletions)
	clear(c.Follows)
	clear(c.Records)
	*c = Changes{Sessions: c.Sessions[:0], Jobs: c.Jobs[:0], Feeds: c.Feeds[:0],
		Deletions: c.Deletions[:0], Follows: c.Follows[:0], Records: c.Records[:0]}
}

// emptied is an empty change with the room of one that is done with, if that is
// not too much.
func (tc *TrailChange) emptied(kept int) TrailChange {
	clear(tc.Runs)
	if cap(tc.Runs) > kept {
		return TrailChange{}
	}
	return TrailChange{Runs: tc.Runs[:0]}
}

// next extends s by one element, a used one if there is one behind its end.
func next[T any](s []*T) ([]*T, *T) {
	if len(s) < cap(s) {
		if s = s[:len(s)+1]; s[len(s)-1] == nil {
			s[len(s)-1] = new(T)
		}
		return s, s[len(s)-1]
	}
	v := new(T)
	return append(s, v), v
}

// finish takes over how the batch leaves the job.
func (jc *JobChange) finish() {
	j := jc.job
	jc.Status.State, jc.Status.Attempt = j.state, j.attempt
	jc.Status.LastJSeq, jc.Status.LastSeq = j.lastJSeq, j.lastSeq
	if jc.Created != nil {
		jc.Status.Apply(jc.Created)
	}
}

// add notes events that were appended, extending the run before if they follow
// on it.
func (tc *TrailChange) add(r Run) {
	tc.Last = r.First + r.N - 1
	if k := len(tc.Runs) - 1; k >= 0 && tc.Runs[k].precedes(&r) {
		tc.Runs[k].N += r.N
		return
	}
	tc.Runs = append(tc.Runs, r)
}

func (r *Run) precedes(next *Run) bool {
	return r.JSeq+r.N == next.JSeq && r.Job == next.Job && r.Origin == next.Origin && r.CorrelationID == next.CorrelationID
}
