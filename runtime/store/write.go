package store

import "github.com/arcpd/arcpd/arcp"

// Write is a list of operations that happen together or not at all.
//
// All operations are checked before the first one happens, and the first refused
// operation in the list sets Result.Err. The operations then happen in the order
// of the list. An operation may depend on an earlier one: a session may submit a
// job in the write that opens the session.
//
// A write has at most one operation of each type, except for PutRecord and
// DeliverEvent. It has at most one of OpenSession, AttachSession and PutSession,
// and does not have both Announce and AppendEvents with events. Anything else is
// ErrInvalid.
type Write struct {
	Ops []Op

	// With are writes that happen together with this one, and before it: all of them
	// or none. Each is checked against the store as it is before the first. Two of
	// them must not change the same job or record. If one is refused, or has
	// Result.Existing, the Err of this one is ErrTogether and Result.With has the
	// results. Writes in With have no With of their own.
	With []*Write

	// NoSync says that the loss of this write in a crash is harmless. A batch with
	// NoSync in every write is not synced to disk. The next other batch makes it durable,
	// also one whose writes have no operations.
	NoSync bool

	few [2]Op // the first operations, without an allocation of their own
}

// NewWrite returns a write of operations.
func NewWrite(ops ...Op) *Write { return new(Write).Add(ops...) }

// Add appends operations and returns w.
func (w *Write) Add(ops ...Op) *Write {
	if w.Ops == nil {
		w.Ops = w.few[:0]
	}
	w.Ops = append(w.Ops, ops...)
	return w
}

// Put appends a PutRecord for each record and returns w.
func (w *Write) Put(records ...Record) *Write {
	for i := range records {
		w.Add((*PutRecord)(&records[i]))
	}
	return w
}

// Find returns the first operation of type T in w, nil if there is none.
func Find[T Op](w *Write) (op T) {
	for _, o := range w.Ops {
		if op, ok := o.(T); ok {
			return op
		}
	}
	return op
}

// Op is an operation of a Write: a pointer to an operation below. It must not be
// changed after the write was passed to Commit.
type Op interface{ op() }

// OpenSession creates a session with epoch 1. ErrExists: the id is or was in use.
type OpenSession struct{ Row *Session }

// AttachSession replaces the row of a session and increments its epoch. Of two
// connections that attach at the same time only one succeeds. Later writes of the
// previous connection are refused. ErrFenced: Row.Epoch is not the stored one.
// ErrNotFound: there is no such session.
type AttachSession struct{ Row *Session }

// PutSession replaces the row of a session, or creates the session if Row.Epoch
// is 0. ErrFenced: Row.Epoch is not the stored one.
type PutSession struct{ Row *Session }

// EndSession deletes a session with its log and its follows. Its jobs continue. An
// unknown session changes nothing. The id cannot be used again.
type EndSession struct{ Session arcp.SessionID }

// SubmitJob creates a job in its State, accepted or queued. The submitting session,
// if there is one, follows the job from then on with the SubmitID as correlation id.
//
// If Row.IdempotencyKey is held by a job of the same principal, nothing of the write
// happens and Result.Existing is that job. With Recheck the same holds, with
// Result.Repeated, for a job that the session has submitted with the same SubmitID.
// The store looks such jobs up, so Recheck is for submits that memory does not know.
//
// ErrExists: the id is or was in use. ErrNotFound: there is no such session.
type SubmitJob struct {
	Row     *Job
	Recheck bool
}

// Follow adds the events of a job after From, and all later ones, to the log of a
// session. A session may follow a job more than once with different correlation ids.
// A second follow with the same correlation id adds the history again, and extends
// Types and Forwarded of the first one. Two clients may choose the same id.
//
// With New, a session that follows a live job with all Types already gets no history and no further
// follow, whatever the correlation ids. A follow with the same correlation id is still extended: it
// can be one of a subscription, which Unfollow ends.
//
// ErrNotFound: there is no such session or job. ErrTooMany: see Limit.
type Follow struct {
	Session       arcp.SessionID
	Job           arcp.JobID
	CorrelationID arcp.MessageID
	From          uint64       // JSeq
	Types         arcp.TypeSet // zero: everything the session's view shows; without arcp.RuntimeMetrics and arcp.DraftChunks, which are not stored
	Forwarded     bool         // the events are forwarded copies
	Once          bool         // only the history: later events are not followed
	New           bool         // adds nothing if the session follows the job already; see above

	// Limit is the number of live jobs of others that the session may follow. A
	// follow past it is ErrTooMany. 0: no limit.
	Limit int

	// Max bounds the number of events of the history that one Follow reads, so that a
	// long history does not delay other writes. If there are more, the session does not
	// follow the job yet, and the next Follow begins at Result.From. 0: no bound.
	Max uint64
}

// Unfollow ends the follow with the session, job and correlation id. With Forwarded it
// ends only the part that was followed with Forwarded. An unknown follow changes
// nothing.
//
// ErrNotFound: there is no such session or job.
type Unfollow struct {
	Session       arcp.SessionID
	Job           arcp.JobID
	CorrelationID arcp.MessageID
	Forwarded     bool
}

// DeliverEvent adds one stored event of a job to the log of a session, also an event
// of a directed type. An unknown session changes nothing. ErrNotFound: there is no
// such job. ErrInvalid: JSeq is 0.
type DeliverEvent struct {
	Session arcp.SessionID
	Job     arcp.JobID
	JSeq    uint64
}

// AppendEvents appends events to the log of a job and changes the job's state. With
// neither events nor a state it only checks the attempt.
//
// ErrFenced: Attempt is not the job's. ErrTerminal: the job has ended. ErrNotFound:
// there is no such job. ErrInvalid: a terminal event without a terminal State, or the
// reverse, or a terminal event that is not the last.
type AppendEvents struct {
	Job        arcp.JobID // empty, with Attempt: the job of SubmitJob in the same write
	Attempt    uint32
	NewAttempt bool // increments the job's attempt
	Events     []*Event
	State      arcp.JobState // empty: unchanged; a terminal state ends the job
	Code       arcp.Code     // with a terminal State: the error code of a failure
}

// Announce appends events that belong to no job to the feed of a principal. Their
// JSeq is their position in the feed and they have no OriginSeq. They are stored until
// the feed is trimmed. ErrInvalid: no principal or no events.
type Announce struct {
	Principal string
	Events    []*Event
}

// TrimSession deletes the log of a session up to and including Seq. ErrNotFound:
// there is no such session.
type TrimSession struct {
	Session arcp.SessionID
	Seq     uint64
}

// PutRecord creates, changes or, with a nil Value, deletes a record. A write has each
// key once, else ErrInvalid. ErrConflict: Rev is not the stored one.
type PutRecord Record

// DeliverUnlogged delivers an event to the sessions that follow a job. The event is
// neither stored nor numbered. A follow with Types matches no type without a number.
// Errors as of AppendEvents.
type DeliverUnlogged struct {
	Job     arcp.JobID // empty, with Attempt: the job of SubmitJob in the same write
	Attempt uint32
	Event   *Event
}

// ReadPosition reads Result.LastSeq of a session. ErrNotFound: there is no such session.
type ReadPosition struct{ Session arcp.SessionID }

// ReadFeedPosition reads Result.FeedLast of the feed of a principal.
type ReadFeedPosition struct{ Principal string }

// DeleteJob deletes a job that has ended with its events, the idempotency key it holds
// and all records whose key begins with its JobRecordPrefix. The log of the submitting
// session is trimmed up to the last event of the job. An unknown job changes nothing.
// The id cannot be used again. ErrLive: the job has not ended. ErrInvalid: another
// operation of the write is about the job.
type DeleteJob struct{ Job arcp.JobID }

// TrimFeed deletes the feed of a principal up to and including Position. ErrInvalid:
// no principal.
type TrimFeed struct {
	Principal string
	Position  uint64
}

func (*OpenSession) op()      {}
func (*AttachSession) op()    {}
func (*PutSession) op()       {}
func (*EndSession) op()       {}
func (*SubmitJob) op()        {}
func (*Follow) op()           {}
func (*Unfollow) op()         {}
func (*DeliverEvent) op()     {}
func (*AppendEvents) op()     {}
func (*Announce) op()         {}
func (*TrimSession) op()      {}
func (*PutRecord) op()        {}
func (*DeliverUnlogged) op()  {}
func (*ReadPosition) op()     {}
func (*ReadFeedPosition) op() {}
func (*DeleteJob) op()        {}
func (*TrimFeed) op()         {}

// Result is the outcome of a Write.
type Result struct {
	Err      error
	Existing arcp.JobID    // of SubmitJob: the job that holds the idempotency key, or was submitted with the same SubmitID
	Repeated bool          // Existing was submitted with the same SubmitID
	Digest   string        // of Existing
	Epoch    uint32        // of OpenSession, AttachSession and PutSession: of the session after the write
	Followed []arcp.JobID  // of AttachSession: the live jobs that the session follows and did not submit
	More     bool          // of Follow: there are events after From
	From     uint64        // of Follow: JSeq
	JobState arcp.JobState // of Follow: of the job before the write appends events; empty: the job had ended before, or there is none
	JobSeq   uint64        // of Follow: LastSeq of the job at that point
	LastSeq  uint64        // of the session in the last ReadPosition, Follow or session row, after the write
	Runs     []Run         // events added to the logs of sessions
	Unlogged []Delivery    // receivers of DeliverUnlogged: Seq is 0
	Feed     FeedRun       // events added to the feed of a principal; no Events: none
	FeedLast uint64        // of ReadFeedPosition: the last position of the feed, at that point
	With     []Result      // of Write.With, in its order; nil: there were none
}
