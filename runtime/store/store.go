// Package store keeps sessions, jobs and the events of jobs. A Store is the
// only thing in the runtime that survives the process.
//
// An event lives once, in the log of its job. A session's log holds only
// pointers, in runs, each with an event_seq: which session gets which events
// and numbers is decided inside Commit, by the view of the session, so no
// number is ever given to something that is then withheld.
//
// All stores pass one suite, in storetest.
package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Store is a durable home of sessions, jobs and events.
//
// Commit is called by one goroutine at a time. Everything else may be called by
// any number of goroutines, also while Commit runs, and sees either all of a
// write or nothing of it. What is returned must not be changed by the caller.
type Store interface {
	// Commit performs writes in order. Each is atomic: it happens whole or, when
	// results[i].Err is set, not at all. When Commit returns nil, everything is
	// durable, unless every write said NoSync. An error of Commit itself means
	// that nothing of the batch may be relied on and the store is broken.
	// len(results) must be len(writes); results are overwritten.
	Commit(writes []*Write, results []Result) error

	// Job returns a job's row; ErrNotFound if there is none.
	Job(ctx context.Context, id arcp.JobID) (Job, error)

	// Jobs calls fn for a principal's jobs in the order of (CreatedAt, ID),
	// starting after a position, until fn returns false.
	Jobs(ctx context.Context, q JobQuery, fn func(Job) bool) error

	// Live calls fn for every job that has not ended, of all principals, in the
	// order of their ids. Used at start-up.
	Live(ctx context.Context, fn func(Job) bool) error

	// JobEvents calls fn for a job's events with JSeq > after, in order, until
	// fn returns false. Events handed out are immutable and may be kept.
	JobEvents(ctx context.Context, id arcp.JobID, after uint64, fn func(*Event) bool) error

	// SessionEvents calls fn for what a session was given with event_seq >
	// after, in order and gap-free, until fn returns false. ErrTrimmed if
	// the first of them is no longer kept.
	SessionEvents(ctx context.Context, id arcp.SessionID, after uint64, fn func(Delivery) bool) error

	// Session returns a session's row; ErrNotFound if there is none.
	Session(ctx context.Context, id arcp.SessionID) (Session, error)

	// Sessions calls fn for every session in the order of their ids.
	Sessions(ctx context.Context, fn func(Session) bool) error

	// Get returns a record; Rev is 0 if there is none.
	Get(ctx context.Context, key string) (Record, error)

	// Stat says how large the store is.
	Stat() Stat

	// Close flushes and releases the store. No other call may be in progress.
	Close() error
}

// Errors of a Store. They are compared with errors.Is.
var (
	ErrNotFound = errors.New("not found")
	ErrFenced   = errors.New("another attempt has taken over")                             // Write.Attempt is not the job's
	ErrTerminal = errors.New("the job has ended")                                          // a job ends once
	ErrExists   = errors.New("exists already")                                             // a job or session id is taken
	ErrConflict = errors.New("the record was changed meanwhile")                           // a Record's Rev is not the stored one
	ErrInvalid  = errors.New("the write contradicts itself")                               // a mistake of the caller
	ErrTrimmed  = errors.New("the position is no longer kept")                             // below what was trimmed
	ErrBroken   = errors.New("the store failed and was shut")                              // after an error of Commit
	ErrLocked   = errors.New("another process uses the directory")                         // at open
	ErrFormat   = errors.New("the directory has a format that this version does not know") // at open
)

// Write is one atomic change. Its parts are optional and happen in the order of
// the fields.
type Write struct {
	// Session creates a session or, if one with its ID exists, replaces its row.
	// With NewSession an existing one is ErrExists.
	Session    *Session
	NewSession bool

	// Submit creates a job in its State (accepted or queued). Its submitting
	// session, if any, follows it from then on. When IdempotencyKey is set and
	// taken by the same principal, nothing of the write happens and the result
	// has Existing set.
	Submit *Job

	// Follow lets a session follow a job: it is given the job's events, those
	// so far after From and those to come. The submitting session follows from
	// the submit on, with the SubmitID as correlation id. Following again with
	// the same correlation id gives the history again and takes the new Types
	// and Origin. Unfollow ends the follow with the session, job and correlation
	// id; ending one that is not there changes nothing.
	Follow   *Follow
	Unfollow *Follow

	// Job and Attempt name whose log Events are appended to. Attempt must be the
	// job's, else ErrFenced; after the job has ended, ErrTerminal. A write with
	// Submit leaves both zero. NewAttempt takes over from Attempt: it raises the
	// job's by one before anything else happens.
	Job        arcp.JobID
	Attempt    uint32
	NewAttempt bool
	Events     []*Event

	// State, if not empty, is the job's new state. A terminal one ends the job:
	// the last of Events must then be its terminal event, else ErrInvalid as for
	// a terminal event anywhere else, and no later write for the job succeeds.
	State arcp.JobState
	Code  arcp.Code // with a terminal State: the failure's code, for lists

	// Trim forgets what the session was given up to and including Trim.Seq, at
	// most everything.
	Trim *Trim

	// Records are compare-and-set together with the rest. A key occurs once.
	Records []Record

	// Unlogged is delivered to whoever follows Job, neither stored nor numbered.
	// Who follows with Types is not given types that have no number.
	Unlogged *Event

	// Mark asks for the LastSeq of a session in the result, and nothing else.
	Mark arcp.SessionID

	// NoSync says that losing this write in a crash is harmless: a trim, a mark,
	// an unlogged event. A batch in which all do is not synced.
	NoSync bool
}

// Result is what came of a write.
type Result struct {
	Err      error
	Existing arcp.JobID // the job that holds the idempotency key
	Digest   string     // the digest that job was submitted with
	LastSeq  uint64     // of Mark, or of the session in Session or Follow, after the write
	Runs     []Run      // what sessions were given
	Unlogged []Delivery // receivers of Write.Unlogged: Seq is 0
}

// Run is a piece of a session's log: the events of one job that the session's
// view shows, numbered from First without a gap. Runs of several sessions and
// the Write may share Events.
type Run struct {
	Session       arcp.SessionID
	First         uint64
	CorrelationID arcp.MessageID
	Origin        bool // the session did not submit the job: it gets a forwarded copy
	Events        []*Event
}

// Delivery is one event as one session gets it.
type Delivery struct {
	Session       arcp.SessionID
	Seq           uint64
	CorrelationID arcp.MessageID
	Origin        bool
	Event         *Event
}

// Follow says that a session follows a job. A session may follow a job more
// than once, with different correlation ids.
type Follow struct {
	Session       arcp.SessionID
	Job           arcp.JobID
	CorrelationID arcp.MessageID
	From          uint64       // JSeq; what comes after it is given
	Types         arcp.TypeSet // zero: everything the view shows
	Origin        bool
}

// Trim names a position of a session.
type Trim struct {
	Session arcp.SessionID
	Seq     uint64
}

// Record is a value under a key of its own. To create one, Rev is 0; to change
// one, Rev is the revision that was read, and it is raised by one. A nil Value
// deletes. A key never gets a revision again that it had before.
type Record struct {
	Key   string
	Rev   uint64
	Value []byte
}

// Session is the row of a session. What it was given (LastSeq) is not part of
// the row: a Write that replaces the row leaves it.
type Session struct {
	ID         arcp.SessionID
	Principal  string
	Anonymous  bool
	Version    string         // what its client says in arcp
	ClientKind string         //
	Negotiated []arcp.Feature // decides which events it is given
	TokenHash  [32]byte       // SHA-256 of its resume token
	CreatedAt  time.Time
	DetachedAt time.Time // since when it has no connection; zero: it has one
	EndedAt    time.Time // evicted or forgotten; zero: it lives
	LastSeq    uint64    // read only: the highest number given
	TrimmedTo  uint64    // read only
}

// View is the set of event types the session is given.
func (s *Session) View() arcp.TypeSet {
	return arcp.Visible(func(f arcp.Feature) bool {
		return slices.Contains(s.Negotiated, f)
	})
}

// Job is the row of a job.
type Job struct {
	ID             arcp.JobID
	Principal      string
	Session        arcp.SessionID // that submitted it; may be empty
	SubmitID       arcp.MessageID // of the submit; correlates its events
	Agent          string         // resolved name@version
	Arguments      arcp.Raw
	Options        arcp.Raw // arcp.SubmitOptions as received
	TraceID        string
	SpanID         string
	ParentSpanID   string
	Priority       arcp.Priority
	Parent         arcp.JobID
	IdempotencyKey string
	Digest         string // of the canonical request
	CreatedAt      time.Time

	State    arcp.JobState
	Attempt  uint32    // fence; 1 for the first attempt
	EndedAt  time.Time // zero: not ended
	Code     arcp.Code // why it failed
	LastJSeq uint64    // number of its events
	LastSeq  uint64    // the event_seq its last event had in its submitting session
}

// JobQuery selects jobs of a principal. Zero members select everything.
type JobQuery struct {
	Principal     string
	AfterTime     time.Time  // with AfterID: the position to start after
	AfterID       arcp.JobID //
	CreatedAfter  time.Time  // exclusive
	CreatedBefore time.Time  // exclusive
}

// Stat describes a store.
type Stat struct {
	Jobs, LiveJobs, Sessions int   // estimates are fine
	Bytes                    int64 // on disk, or in memory
}
