// Package store stores sessions, jobs and the events of jobs. No other state of the runtime
// survives the process.
//
// An event is stored once, in the log of its job. The log of a session holds pointers to
// events, in runs, each with an event_seq. Commit decides by the session's view which
// events a session gets, so every event_seq is of an event that the session sees.
//
// Stores live in this module: Op is sealed, and the package sequence, which decides the writes of
// every store, is internal. All stores pass one suite, in storetest.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Store stores sessions, jobs, events and records durably.
//
// Commit is called by one goroutine at a time. All other methods may be called by any
// number of goroutines, also while Commit runs, and see all of a write or nothing of it.
// The caller must not change returned values.
type Store interface {
	// Commit performs writes in order. Each is atomic: it happens as a whole or, when
	// results[i].Err is set, not at all. When Commit returns nil, all writes are durable,
	// unless all have NoSync. After an error of Commit itself any part of the batch may
	// be stored, and the store is broken. len(results) must be len(writes); results are
	// overwritten.
	Commit(writes []*Write, results []Result) error

	// Job returns a job's row; ErrNotFound if there is none.
	Job(ctx context.Context, id arcp.JobID) (Job, error)

	// Jobs calls fn for a principal's jobs in the order of (CreatedAt, ID),
	// starting after a position, until fn returns false. With JobQuery.Live it reads
	// no job that has ended. With JobQuery.Newest the order is reversed.
	Jobs(ctx context.Context, q JobQuery, fn func(Job) bool) error

	// LiveJobs calls fn for every job that has not ended, of all principals, in the
	// order of their ids. Used at start-up.
	LiveJobs(ctx context.Context, fn func(Job) bool) error

	// JobEvents calls fn for a job's events with JSeq > after, in order, until
	// fn returns false. The events are immutable and stay valid.
	JobEvents(ctx context.Context, id arcp.JobID, after uint64, fn func(*Event) bool) error

	// SessionEvents calls fn for the events in a session's log with event_seq > after, in
	// order and gap-free, until fn returns false. *TrimmedError if the next event is no
	// longer stored.
	SessionEvents(ctx context.Context, id arcp.SessionID, after uint64, fn func(Delivery) bool) error

	// Feed calls fn for the events in a principal's feed with a position > after, in the
	// order of their commits, until fn returns false. The feed has the events of all jobs of
	// the principal and its announced events. *TrimmedError if the next event is no longer
	// stored.
	Feed(ctx context.Context, principal string, after uint64, fn func(FeedEvent) bool) error

	// FeedBounds returns the last trimmed position of a principal's feed and its last
	// position; 0 if there is none.
	FeedBounds(ctx context.Context, principal string) (trimmed, last uint64, err error)

	// FeedPosition returns the position of the event with an id in a principal's feed;
	// ErrNotFound if the feed does not have it, or no longer. Ids ascend in a feed.
	FeedPosition(ctx context.Context, principal string, id arcp.MessageID) (uint64, error)

	// Feeds calls fn for every principal that has a feed, in order.
	Feeds(ctx context.Context, fn func(principal string) bool) error

	// EndedJobs calls fn for the jobs that ended before a time, of all principals,
	// the first ended first, until fn returns false.
	EndedJobs(ctx context.Context, before time.Time, fn func(Job) bool) error

	// Records calls fn for the records whose key begins with prefix and is > after, in the
	// order of the keys, until fn returns false.
	Records(ctx context.Context, prefix, after string, fn func(Record) bool) error

	// Session returns a session's row; ErrNotFound if there is none.
	Session(ctx context.Context, id arcp.SessionID) (Session, error)

	// Sessions calls fn for every session in the order of their ids.
	Sessions(ctx context.Context, fn func(Session) bool) error

	// Get returns a record; Rev is 0 if there is none.
	Get(ctx context.Context, key string) (Record, error)

	// Stat returns the size of the store.
	Stat() Stat

	// Backup writes a consistent copy of the durable data into a directory that does not
	// exist yet, while the store is in use. Open opens the copy. ErrUnsupported if the
	// store has no files.
	Backup(ctx context.Context, dir string) error

	// Close flushes and releases the store. It must not be called while Commit runs, nor
	// by an fn of another method. Calls in progress end normally or with an error, a
	// Backup with an error. Later calls fail.
	Close() error
}

// Errors of a Store. They are compared with errors.Is. The operations of a Write
// document which of them they return.
var (
	ErrNotFound    = errors.New("not found")
	ErrFenced      = errors.New("superseded by another attempt or connection")
	ErrLive        = errors.New("the job has not ended")
	ErrTerminal    = errors.New("the job has ended")
	ErrExists      = errors.New("exists already")
	ErrConflict    = errors.New("the record was changed meanwhile")
	ErrInvalid     = errors.New("the write contradicts itself") // an error of the caller
	ErrTogether    = errors.New("another write of the group was refused")
	ErrTooMany     = errors.New("the session follows the maximum number of jobs")
	ErrTrimmed     = errors.New("the position is no longer kept")                             // see TrimmedError
	ErrBroken      = errors.New("the store has failed and is closed")                         // after an error of Commit
	ErrLocked      = errors.New("another process uses the directory")                         // at open
	ErrFormat      = errors.New("the directory has a format that this version does not know") // at open
	ErrUnsupported = errors.New("this store cannot do that")
)

// TrimmedError is the ErrTrimmed of a read of a session's log or a feed: the next event
// was trimmed, or its job was deleted.
type TrimmedError struct {
	After uint64 // the last number before the missing events
	UpTo  uint64 // a missing number; the numbers after it may be missing, too
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("after %d, up to %d: %v", e.After, e.UpTo, ErrTrimmed)
}

func (e *TrimmedError) Unwrap() error { return ErrTrimmed }

// FeedRun is a part of a principal's feed: events of one job, or announced events, with
// positions from First on without a gap.
type FeedRun struct {
	Principal     string
	First         uint64
	Job           arcp.JobID     // empty: announced events
	Session       arcp.SessionID // that submitted the job; may be empty
	CorrelationID arcp.MessageID // the id of the submit
	Events        []*Event
}

// FeedEvent is one event of a feed.
type FeedEvent struct {
	Position      uint64
	Job           arcp.JobID     // empty: an announced event
	Session       arcp.SessionID // that submitted the job; may be empty
	CorrelationID arcp.MessageID // the id of the submit
	Event         *Event
}

// JobRecordPrefix returns the prefix of the keys of the records that are deleted with a job.
func JobRecordPrefix(id arcp.JobID) string { return "job/" + string(id) + "/" }

// Run is a part of a session's log: the events of one job that the session's view shows,
// numbered from First without a gap. Runs of several sessions, and the Write, may share
// Events.
type Run struct {
	Session       arcp.SessionID
	First         uint64
	CorrelationID arcp.MessageID
	Forwarded     bool // the session did not submit the job
	Events        []*Event
}

// Delivery is an event in a session's log.
type Delivery struct {
	Session       arcp.SessionID
	Seq           uint64
	CorrelationID arcp.MessageID
	Forwarded     bool
	Event         *Event
}

// Record is a value with a key. To create a record, Rev is 0. To change a record, Rev is
// the revision that was read, and the new revision is one more. A nil Value deletes the
// record. A key never has the same revision twice.
type Record struct {
	Key   string
	Rev   uint64
	Value []byte
}

// Session is the row of a session. LastSeq and TrimmedTo are not part of the row: a write
// of the row does not change them.
type Session struct {
	ID         arcp.SessionID
	Principal  string
	Anonymous  bool
	Version    string         // of the client's arcp member
	ClientKind string         // of the client, as the client names itself
	Dialect    arcp.Dialect   // selects, with Negotiated, the events that it sees
	Profile    string         // of the client's library, in the draft dialect
	Negotiated []arcp.Feature // features of the session
	TokenHash  [32]byte       // SHA-256 of its resume token
	PrevHashes [][32]byte     // of earlier resume tokens that are still valid
	Identity   arcp.Raw       // of the connection's credentials; opaque here
	Acks       bool           // the client acknowledges: events are stored until it has acknowledged them
	Written    uint64         // without Acks: the events up to this number were written to a connection; 0: unknown
	CreatedAt  time.Time
	Epoch      uint32 // 1 for the first connection; compared by writes of the row, else read only
	LastSeq    uint64 // read only: the last number in its log
	TrimmedTo  uint64 // read only: the last trimmed number
}

// View returns the event types that the session sees.
func (s *Session) View() arcp.TypeSet {
	negotiated := func(f arcp.Feature) bool { return slices.Contains(s.Negotiated, f) }
	if s.Dialect == arcp.DialectDraft {
		return arcp.VisibleInDraft(negotiated)
	}
	return arcp.Visible(negotiated)
}

// Job is the row of a job.
type Job struct {
	ID             arcp.JobID
	Principal      string
	Session        arcp.SessionID // that submitted the job; may be empty
	SubmitID       arcp.MessageID // of the submit; the correlation id of its events
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

	State     arcp.JobState
	Attempt   uint32    // fences writes; 1 for the first attempt
	StartedAt time.Time // of its first job.started; zero: none, or written by an earlier version
	EndedAt   time.Time // zero: not ended
	Code      arcp.Code // of a failure
	LastJSeq  uint64    // number of its events
	LastSeq   uint64    // OriginSeq of its last event
}

// JobQuery selects jobs of a principal. Zero fields select all jobs.
type JobQuery struct {
	Principal     string
	AfterTime     time.Time  // with AfterID: the position to start after
	AfterID       arcp.JobID // among jobs of AfterTime
	CreatedAfter  time.Time  // exclusive
	CreatedBefore time.Time  // exclusive
	Live          bool       // only jobs that have not ended
	Newest        bool       // reverse order, from the newest job; the position is the one to start before
}

// Stat describes a store.
type Stat struct {
	Jobs, LiveJobs, Sessions int   // estimates are fine
	Bytes                    int64 // on disk, or in memory
	Lags                     bool  // Bytes falls some time after a deletion, when the space is reclaimed
}
