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

// Errors of a Store. They are compared with errors.Is.
var (
	ErrNotFound = errors.New("not found")
	ErrFenced   = errors.New("another attempt has taken over")                             // Write.Attempt is not the job's, or Session.Epoch not the session's
	ErrLive     = errors.New("the job has not ended")                                      // DeleteJob
	ErrTerminal = errors.New("the job has ended")                                          // a job ends once
	ErrExists   = errors.New("exists already")                                             // a job or session id is taken
	ErrConflict = errors.New("the record was changed meanwhile")                           // a Record's Rev is not the stored one
	ErrInvalid  = errors.New("the write contradicts itself")                               // a mistake of the caller
	ErrTogether = errors.New("a write that was to happen together with this one cannot")   // Write.With
	ErrTooMany  = errors.New("the session follows as many jobs as it may")                 // Follow.Limit
	ErrTrimmed  = errors.New("the position is no longer kept")                             // below what was trimmed
	ErrBroken   = errors.New("the store failed and was shut")                              // after an error of Commit
	ErrLocked   = errors.New("another process uses the directory")                         // at open
	ErrFormat   = errors.New("the directory has a format that this version does not know") // at open

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

// Write is one atomic change. Its parts are optional and happen in the order of
// the fields.
type Write struct {
	// Session creates a session or, if one with its ID exists, replaces its row.
	// With NewSession an existing one is ErrExists. The Epoch of the row must be the
	// stored one, else ErrFenced; with Attach it is raised by one: of two
	// connections that attach at the same time only one succeeds, and what the
	// connection before it still writes is refused.
	Session    *Session
	NewSession bool
	Attach     bool

	// EndSession deletes a session, what it was given and its follows. Its jobs go
	// on without it. A session that does not exist changes nothing. The id is not
	// used again, nor is that of a job that is deleted.
	EndSession arcp.SessionID

	// Submit creates a job in its State (accepted or queued). Its submitting
	// session, if any, follows it from then on. When IdempotencyKey is set and
	// taken by the same principal, nothing of the write happens and the result
	// has Existing set. So it has, with Repeated, when Recheck is set and the
	// session has submitted a job with the SubmitID before: that is looked up in
	// the store, so it is asked for only where memory does not know.
	Submit  *Job
	Recheck bool

	// Follow lets a session follow a job: it is given the job's events, those
	// so far after From and those to come. The submitting session follows from
	// the submit on, with the SubmitID as correlation id. Following again with
	// the same correlation id gives the history again and adds to the Types and
	// the Origin that there are: two clients may choose the same id. Unfollow ends
	// the follow with the session, job and correlation id, or, with Origin, what was
	// followed so: the Types that were followed without stay. Ending what is not there
	// changes nothing.
	Follow   *Follow
	Unfollow *Follow

	// Give gives sessions single events that their jobs have already, also ones of a
	// directed type. Sessions that are not there are left out.
	Give []Give

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

	// Announce appends events that are of no job to a principal's feed. Nobody but
	// who reads the feed is given them. A write has these or Events of a job.
	Announce *Announcement

	// Trim forgets what the session was given up to and including Trim.Seq, at
	// most everything.
	Trim *Trim

	// Records are compare-and-set together with the rest. A key occurs once.
	Records []Record

	// Unlogged is delivered to whoever follows Job, neither stored nor numbered.
	// Who follows with Types is not given types that have no number.
	Unlogged *Event

	// Mark asks for the LastSeq of a session in the result, and nothing else;
	// MarkFeed for FeedLast of a principal.
	Mark     arcp.SessionID
	MarkFeed string

	// DeleteJob deletes a job that has ended, ErrLive otherwise, with its events,
	// the idempotency key it holds and all records whose key begins with
	// JobRecords of it. Its submitting session is trimmed up to the last number the
	// job has there. A job that does not exist changes nothing.
	DeleteJob arcp.JobID

	// TrimFeed forgets a principal's feed up to and including a position.
	TrimFeed *FeedTrim

	// With are writes that happen together with this one, and before it: all of them
	// or none. Each is checked against the store as it is before the first. If one
	// cannot happen, or has Result.Existing, the Err of this one is ErrTogether and
	// Result.With says which it was. They have no With of their own.
	With []*Write

	// NoSync says that losing this write in a crash is harmless: a trim, a mark,
	// an unlogged event. A batch in which all do is not synced.
	NoSync bool
}

// Result is what came of a write.
type Result struct {
	Err      error
	Existing arcp.JobID    // the job that holds the idempotency key, or that was submitted with the same id
	Repeated bool          // the latter
	Digest   string        // the digest that job was submitted with
	Epoch    uint32        // of the session in Session, after the write
	More     bool          // of Follow: there are events after From
	From     uint64        // JSeq
	JobState arcp.JobState // of the job of Follow, where it begins to be followed; empty: it had ended before, or there is none
	JobSeq   uint64        // its LastSeq there
	LastSeq  uint64        // of Mark, or of the session in Session or Follow, after the write
	Runs     []Run         // what sessions were given
	Unlogged []Delivery    // receivers of Write.Unlogged: Seq is 0
	Feed     FeedRun       // what the principal's feed was given; no Events: nothing
	FeedLast uint64        // of MarkFeed: the last position of the feed, after the write
	With     []Result      // of Write.With, in its order; nil: it had none
}

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

// Announcement is events of a principal that are of no job. They live in its feed:
// their JSeq is their position there, they have no OriginSeq, and they are kept
// until the feed is trimmed.
type Announcement struct {
	Principal string
	Events    []*Event // at least one
}

// FeedTrim names a position of a feed.
type FeedTrim struct {
	Principal string
	Position  uint64
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

// Follow says that a session follows a job. A session may follow a job more
// than once, with different correlation ids.
type Follow struct {
	Session       arcp.SessionID
	Job           arcp.JobID
	CorrelationID arcp.MessageID
	From          uint64       // JSeq; what comes after it is given
	Types         arcp.TypeSet // zero: everything the view shows
	Origin        bool
	Once          bool // only those so far: who follows what is not changed
	New           bool // nothing happens if the session follows the job already with the correlation id, and all Types

	// Limit refuses, with ErrTooMany, what would have the session follow more live
	// jobs that it did not submit; 0: any number.
	Limit int

	// Max bounds how many of the events so far are looked at; 0: all. If there are
	// more, that is all that happens, and the result says from where to go on: a
	// long history in pieces does not hold up other writes.
	Max uint64
}

// Give names an event of a job, and a session that is given it.
type Give struct {
	Session arcp.SessionID
	Job     arcp.JobID
	JSeq    uint64
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
