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
	"fmt"
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
	// after, in order and gap-free, until fn returns false. *TrimmedError if what
	// comes next is no longer kept.
	SessionEvents(ctx context.Context, id arcp.SessionID, after uint64, fn func(Delivery) bool) error

	// Feed calls fn for the events of all of a principal's jobs, and for what was
	// announced to it, with a position > after, in the order of their commits, until
	// fn returns false. *TrimmedError if what comes next is no longer kept.
	Feed(ctx context.Context, principal string, after uint64, fn func(FeedEvent) bool) error

	// FeedBounds returns the position of the last event that was trimmed from a
	// principal's feed and that of its last event; both are 0 when there was none.
	FeedBounds(ctx context.Context, principal string) (trimmed, last uint64, err error)

	// FeedPosition returns the position of the event with an id in a principal's
	// feed; ErrNotFound if it is not there or no longer kept. Ids ascend in a feed.
	FeedPosition(ctx context.Context, principal string, id arcp.MessageID) (uint64, error)

	// Feeds calls fn for every principal that has a feed, in order.
	Feeds(ctx context.Context, fn func(principal string) bool) error

	// Ended calls fn for the jobs that ended before a time, of all principals,
	// the first ended first, until fn returns false.
	Ended(ctx context.Context, before time.Time, fn func(Job) bool) error

	// Records calls fn for the records whose key begins with prefix and is greater
	// than after, in the order of the keys, until fn returns false.
	Records(ctx context.Context, prefix, after string, fn func(Record) bool) error

	// Session returns a session's row; ErrNotFound if there is none.
	Session(ctx context.Context, id arcp.SessionID) (Session, error)

	// Sessions calls fn for every session in the order of their ids.
	Sessions(ctx context.Context, fn func(Session) bool) error

	// Get returns a record; Rev is 0 if there is none.
	Get(ctx context.Context, key string) (Record, error)

	// Stat says how large the store is.
	Stat() Stat

	// Backup writes a consistent copy of what is durable now into a directory that
	// does not exist yet, while the store is in use; Open opens it. ErrUnsupported
	// if the store has no files.
	Backup(ctx context.Context, dir string) error

	// Close flushes and releases the store; it is not called while Commit runs.
	// Other calls that are in progress end as if there were no Close, or with an
	// error; a Backup is given up. What is called later fails. fn of none of them
	// may call Close.
	Close() error
}

// Errors of a Store. They are compared with errors.Is. The operations of a Write
// document which of them they return.
var (
	ErrNotFound    = errors.New("not found")
	ErrFenced      = errors.New("another attempt has taken over")
	ErrLive        = errors.New("the job has not ended")
	ErrTerminal    = errors.New("the job has ended")
	ErrExists      = errors.New("exists already")
	ErrConflict    = errors.New("the record was changed meanwhile")
	ErrInvalid     = errors.New("the write contradicts itself") // an error of the caller
	ErrTogether    = errors.New("a write that was to happen together with this one cannot")
	ErrTooMany     = errors.New("the session follows as many jobs as it may")
	ErrTrimmed     = errors.New("the position is no longer kept")                             // see TrimmedError
	ErrBroken      = errors.New("the store failed and was shut")                              // after an error of Commit
	ErrLocked      = errors.New("another process uses the directory")                         // at open
	ErrFormat      = errors.New("the directory has a format that this version does not know") // at open
	ErrUnsupported = errors.New("this store cannot do that")
)

// TrimmedError is the ErrTrimmed of a reader of a session or a feed: the next
// number was trimmed, or its job was deleted.
type TrimmedError struct {
	After uint64 // the last number before what is missing
	UpTo  uint64 // the last one that is missing; more may be behind it
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("after %d, up to %d: %v", e.After, e.UpTo, ErrTrimmed)
}

func (e *TrimmedError) Unwrap() error { return ErrTrimmed }

// FeedRun is a piece of a principal's feed: the events of one job, or announced
// ones, with positions from First on without a gap.
type FeedRun struct {
	Principal     string
	First         uint64
	Job           arcp.JobID     // empty: they were announced
	Session       arcp.SessionID // that submitted the job; may be empty
	CorrelationID arcp.MessageID // the id of the submit
	Events        []*Event
}

// FeedEvent is one event of a feed.
type FeedEvent struct {
	Position      uint64
	Job           arcp.JobID     // empty: it was announced
	Session       arcp.SessionID // that submitted the job; may be empty
	CorrelationID arcp.MessageID // the id of the submit
	Event         *Event
}

// JobRecords begins the keys of the records that are deleted with a job.
func JobRecords(id arcp.JobID) string { return "job/" + string(id) + "/" }

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
	PrevHashes [][32]byte     // of those before that are still good
	Identity   arcp.Raw       // what the connection's credentials said; opaque here
	Acks       bool           // it acknowledges: what it has not acknowledged is kept
	Written    uint64         // if it does not: up to this number everything was written to its connections; 0: that is not known
	CreatedAt  time.Time
	Epoch      uint32 // read only but for the check in Write; 1 for the first connection
	LastSeq    uint64 // read only: the highest number given
	TrimmedTo  uint64 // read only
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
