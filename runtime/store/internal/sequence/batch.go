package sequence

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Source reads stored data. It does not see the batch that is being decided.
type Source interface {
	// Session returns a row with LastSeq and TrimmedTo; store.ErrNotFound.
	Session(id arcp.SessionID) (store.Session, error)
	// Ended reports whether a job with an id has ended. It is not called for live jobs.
	Ended(id arcp.JobID) (bool, error)
	// Job returns the row of a job that exists.
	Job(id arcp.JobID) (store.Job, error)
	// Key returns the job that holds an idempotency key and its digest, or "".
	Key(principal, key string) (arcp.JobID, string, error)
	// Submitted returns the job that a session submitted last with an id, and its
	// digest, or "".
	Submitted(id arcp.SessionID, submit arcp.MessageID) (arcp.JobID, string, error)
	// Feed returns the bounds of a principal's feed.
	Feed(principal string) (trimmed, last uint64, err error)
	// Rev returns the revision of a record, or 0.
	Rev(key string) (uint64, error)
	// Keys calls fn for the keys of records that begin with a prefix.
	Keys(prefix string, fn func(key string)) error
	// Events calls fn for a job's stored events after a position.
	Events(id arcp.JobID, after uint64, fn func(*store.Event) bool) error
}

// batch is the batch being decided. All tables of a Core share it.
type batch struct {
	source  Source
	ids     *arcp.IDSource
	number  uint64 // of this batch since the start
	changes Changes
	err     error // of the source: nothing more can be decided
}

// fail records the first error of the source.
func (b *batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}
