package sequence

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Changes is what a batch does to what is stored. Sessions and jobs are each
// named once.
type Changes struct {
	Sessions []*SessionChange
	Jobs     []*JobChange
	Follows  []FollowChange // in order: a later one of the same key wins
	Records  []RecordChange // in order: a later one of the same key wins
	LastID   arcp.MessageID // of the last event; empty: there were none
	Deleted  uint64         // highest revision that a deleted record had

	last *store.Event
}

// SessionChange is a session that the batch touched.
type SessionChange struct {
	ID      arcp.SessionID
	Row     *store.Session // the new row; nil: unchanged
	New     bool           // there was none before
	Runs    []Run          // what it was given
	Trimmed bool           // TrimmedTo has grown
	LastSeq uint64
	Trim    uint64 // TrimmedTo

	session *session
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

// Run is consecutive events of one job, given to a session with consecutive
// numbers.
type Run struct {
	First         uint64 // event_seq of the first
	Job           arcp.JobID
	CorrelationID arcp.MessageID
	Origin        bool
	JSeq          uint64 // position of the first
	N             uint64
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
	Origin bool
}

// RecordChange is a record's new value; nil: it is deleted.
type RecordChange struct {
	Key   string
	Rev   uint64
	Value []byte
}

// keptRuns bounds the room for runs that a reused SessionChange keeps.
const keptRuns = 256

// reset empties c; what it pointed to is used again.
func (c *Changes) reset() {
	for _, jc := range c.Jobs {
		*jc = JobChange{}
	}
	for _, sc := range c.Sessions {
		clear(sc.Runs)
		if cap(sc.Runs) > keptRuns {
			sc.Runs = nil
		}
		*sc = SessionChange{Runs: sc.Runs[:0]}
	}
	clear(c.Follows)
	clear(c.Records)
	*c = Changes{Sessions: c.Sessions[:0], Jobs: c.Jobs[:0], Follows: c.Follows[:0], Records: c.Records[:0]}
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

// addRun notes that the session was given n events of a job, extending the run
// before if they follow on it.
func (sc *SessionChange) addRun(f *follower, id arcp.JobID, first, jseq, n uint64) {
	if k := len(sc.Runs) - 1; k >= 0 && sc.Runs[k].precedes(f, id, jseq) {
		sc.Runs[k].N += n
		return
	}
	sc.Runs = append(sc.Runs, Run{First: first, Job: id, CorrelationID: f.corr, Origin: f.origin, JSeq: jseq, N: n})
}

func (r *Run) precedes(f *follower, id arcp.JobID, jseq uint64) bool {
	return r.JSeq+r.N == jseq && r.Job == id && r.Origin == f.origin && r.CorrelationID == f.corr
}
