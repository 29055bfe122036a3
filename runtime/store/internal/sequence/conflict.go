package sequence

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// hasConflicts reports whether writes that happen together change the same job or record, or one changes a
// job that another one is about. Each of them is checked without the others. Every operation is looked at
// once: a client chooses the number of writes.
func hasConflicts(w *store.Write) bool {
	if len(w.With) == 0 {
		return false
	}
	u := uses{records: make(map[string]int), jobs: make(map[arcp.JobID]jobUse)}
	for i, part := range w.With {
		if len(part.With) > 0 || u.conflict(i+1, part.Ops) {
			return true
		}
	}
	return u.conflict(len(w.With)+1, w.Ops)
}

// uses are the records and jobs that writes use. The writes have numbers from 1 on, and are added in this order.
type uses struct {
	records map[string]int // by key: the first write that changes the record
	jobs    map[arcp.JobID]jobUse
}

// jobUse has the first write that is about a job, and the first one that changes the job; 0: there is none.
type jobUse struct{ about, changes int }

// conflict adds the operations of write n. It reports whether one of them conflicts with a write before.
func (u *uses) conflict(n int, ops []store.Op) bool {
	for _, op := range ops {
		if r, ok := op.(*store.PutRecord); ok {
			if u.changesRecord(n, r.Key) {
				return true
			}
			continue
		}
		about, changed := jobOf(op), changedJob(op)
		if about != "" && u.isAbout(n, about) || changed != "" && u.changesJob(n, changed) {
			return true
		}
	}
	return false
}

// changesRecord adds a change of a record to write n. It reports whether a write before changes the record.
func (u *uses) changesRecord(n int, key string) bool {
	first, ok := u.records[key]
	if !ok {
		u.records[key] = n
	}
	return ok && first < n
}

// isAbout adds an operation about a job to write n. It reports whether a write before changes the job.
func (u *uses) isAbout(n int, id arcp.JobID) bool {
	use := u.jobs[id]
	if use.about == 0 {
		use.about = n
		u.jobs[id] = use
	}
	return use.changes != 0 && use.changes < n
}

// changesJob adds a change of a job to write n. It reports whether a write before is about the job.
func (u *uses) changesJob(n int, id arcp.JobID) bool {
	use := u.jobs[id]
	if use.changes == 0 {
		use.changes = n
		u.jobs[id] = use
	}
	return use.about != 0 && use.about < n
}

// jobOf returns the job that an operation other than DeleteJob is about.
func jobOf(op store.Op) arcp.JobID {
	switch op := op.(type) {
	case *store.SubmitJob:
		return op.Row.ID
	case *store.Follow:
		return op.Job
	case *store.Unfollow:
		return op.Job
	case *store.DeliverEvent:
		return op.Job
	case *store.AppendEvents:
		return op.Job
	case *store.DeliverUnlogged:
		return op.Job
	}
	return ""
}

// changedJob returns the stored job that an operation changes.
func changedJob(op store.Op) arcp.JobID {
	switch op := op.(type) {
	case *store.AppendEvents:
		return op.Job
	case *store.DeliverUnlogged:
		return op.Job
	case *store.DeleteJob:
		return op.Job
	}
	return ""
}
