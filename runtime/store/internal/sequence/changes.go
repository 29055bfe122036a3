package sequence

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Changes are the changes of a batch to the stored data. Each session, job and feed is
// listed once. Deletions and ends of sessions are to be applied last: no write of the
// batch creates an id again that an earlier write has deleted.
type Changes struct {
	Sessions  []*SessionChange
	Jobs      []*JobChange
	Feeds     []*FeedChange
	Deletions []Deletion
	Follows   []FollowChange // in order: the last of a key wins
	Records   []RecordChange // in order: the last of a key wins
	LastID    arcp.MessageID // of the last event; empty: no events
	Deleted   uint64         // highest revision that a deleted record had

	last *store.Event
}

// SessionChange is the change of a session.
type SessionChange struct {
	ID    arcp.SessionID
	Row   *store.Session // nil: unchanged
	New   bool           // created by the batch
	Ended bool           // delete the session with its follows and the ids of its submits
	TrailChange

	session *session
}

// FeedChange is the change of a principal's feed. Events are the announced events, in
// order: those of the runs without a job.
type FeedChange struct {
	Principal string
	Events    []*store.Event
	TrailChange

	feed *feed
}

// TrailChange is the change of the log of a session or of a feed.
type TrailChange struct {
	Runs    []Run // appended
	Trimmed bool  // Trim has grown
	Last    uint64
	Trim    uint64 // last trimmed number
}

// Deletion is the deletion of a job. The deletions of its records are in Changes.Records.
type Deletion struct {
	Row    store.Job
	Key    bool // the job held its idempotency key
	Submit bool // the id of its submit still referred to the job
}

// JobChange is the change of a job.
type JobChange struct {
	ID      arcp.JobID
	Created *store.Job     // the row of a new job after the batch; nil: not new
	Changed bool           // Status has changed
	Ended   bool           // the job has ended
	Status  Status         // after the batch
	First   uint64         // position of Events[0]
	Events  []*store.Event // appended

	job *job
}

// Status is the part of a job's row that changes. The stored LastJSeq and
// LastSeq of a live job may be behind its events.
type Status struct {
	State     arcp.JobState
	Attempt   uint32
	StartedAt time.Time
	EndedAt   time.Time
	Code      arcp.Code
	LastJSeq  uint64
	LastSeq   uint64
}

// Apply puts the status into a row.
func (s *Status) Apply(j *store.Job) {
	j.State, j.Attempt, j.StartedAt, j.EndedAt, j.Code = s.State, s.Attempt, s.StartedAt, s.EndedAt, s.Code
	j.LastJSeq, j.LastSeq = s.LastJSeq, s.LastSeq
}

// Run is a list of consecutive events of one job with consecutive numbers in a trail. A
// run in a feed has no CorrelationID and is not Forwarded. A run of announced events has no Job,
// and JSeq is First.
type Run struct {
	First         uint64 // number of the first
	Job           arcp.JobID
	CorrelationID arcp.MessageID
	Forwarded     bool
	JSeq          uint64 // position of the first
	N             uint64

	Head *store.Event // the first event; only in the changes of a feed
}

// FollowKey identifies a follow.
type FollowKey struct {
	Session       arcp.SessionID
	Job           arcp.JobID
	CorrelationID arcp.MessageID
}

// FollowChange stores or deletes the row of a follow. The follow of a submit has no row;
// a row with Unfollowed says that it has ended.
type FollowChange struct {
	FollowKey
	Delete     bool
	Unfollowed bool
	Types      arcp.TypeSet
	Plain      arcp.TypeSet // with Forwarded: the types that are also followed without it
	Forwarded  bool
}

// RecordChange is the new value of a record; a nil Value deletes.
type RecordChange struct {
	Key   string
	Rev   uint64
	Value []byte
}

// Largest capacity of TrailChange.Runs that is reused. A batch has many sessions, and
// few feeds with many runs.
const (
	maxReusedRuns     = 256
	maxReusedFeedRuns = 8192
)

// reset empties c and keeps its elements for the next batch.
func (c *Changes) reset() {
	for _, jc := range c.Jobs {
		*jc = JobChange{}
	}
	for _, sc := range c.Sessions {
		*sc = SessionChange{TrailChange: sc.emptied(maxReusedRuns)}
	}
	for _, fc := range c.Feeds {
		*fc = FeedChange{TrailChange: fc.emptied(maxReusedFeedRuns)}
	}
	clear(c.Deletions)
	clear(c.Follows)
	clear(c.Records)
	*c = Changes{Sessions: c.Sessions[:0], Jobs: c.Jobs[:0], Feeds: c.Feeds[:0],
		Deletions: c.Deletions[:0], Follows: c.Follows[:0], Records: c.Records[:0]}
}

// emptied returns an empty change that reuses the runs of tc, if there are at most limit.
func (tc *TrailChange) emptied(limit int) TrailChange {
	clear(tc.Runs)
	if cap(tc.Runs) > limit {
		return TrailChange{}
	}
	return TrailChange{Runs: tc.Runs[:0]}
}

// next extends s by one element, and reuses the element behind its end if there is one.
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

// finish sets the status after the batch.
func (jc *JobChange) finish() {
	j := jc.job
	jc.Status.State, jc.Status.Attempt, jc.Status.StartedAt = j.state, j.attempt, j.startedAt
	jc.Status.LastJSeq, jc.Status.LastSeq = j.lastJSeq, j.lastSeq
	if jc.Created != nil {
		jc.Status.Apply(jc.Created)
	}
}

// add appends a run, or extends the last run if the events are consecutive.
func (tc *TrailChange) add(r Run) {
	tc.Last = r.First + r.N - 1
	if k := len(tc.Runs) - 1; k >= 0 && tc.Runs[k].precedes(&r) {
		tc.Runs[k].N += r.N
		return
	}
	tc.Runs = append(tc.Runs, r)
}

func (r *Run) precedes(next *Run) bool {
	return r.JSeq+r.N == next.JSeq && r.Job == next.Job && r.Forwarded == next.Forwarded && r.CorrelationID == next.CorrelationID
}
