package sequence

import (
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// job is the state of a live job.
type job struct {
	id        arcp.JobID
	session   arcp.SessionID // that submitted the job; may be empty, or have ended
	submitter *session       // the same; nil: empty or ended
	feed      *feed          // of the principal; nil: the job has no principal
	submitID  arcp.MessageID
	followers []follower // in the order in which they get numbers; see follower.before
	state     arcp.JobState
	attempt   uint32
	startedAt time.Time
	started   bool // startedAt is set, or unknown
	ended     bool // in this batch
	unfollows bool // the submitter has ended its primary follow
	lastJSeq  uint64
	lastSeq   uint64
	changed   *JobChange
	few       [1]follower // the first follower, without an allocation of its own
}

// put adds a follower, or replaces the follower with the same key.
func (j *job) put(f follower) {
	f.primary = f.session == j.submitter && f.correlation == j.submitID
	if i := j.find(f.session.id, f.correlation); i >= 0 {
		j.followers[i] = f
		return
	}
	f.session.addJob(j)
	i := slices.IndexFunc(j.followers, func(o follower) bool { return f.before(&o) })
	if i < 0 {
		i = len(j.followers)
	}
	if j.followers == nil {
		j.followers = j.few[:0]
	}
	j.followers = slices.Insert(j.followers, i, f)
}

func (j *job) find(id arcp.SessionID, correlation arcp.MessageID) int {
	return slices.IndexFunc(j.followers, func(f follower) bool { return f.session.id == id && f.correlation == correlation })
}

// reaches reports whether a follow of the session has all types.
func (j *job) reaches(s *session, types arcp.TypeSet) bool {
	return slices.ContainsFunc(j.followers, func(f follower) bool { return f.session == s && f.types&types == types })
}

// remove removes the follower with a key, if there is one, and returns it.
func (j *job) remove(k FollowKey) (f follower, ok bool) {
	i := j.find(k.Session, k.CorrelationID)
	if i < 0 {
		return f, false
	}
	f = j.followers[i]
	j.followers = slices.Delete(j.followers, i, i+1)
	if f.session != j.submitter && !slices.ContainsFunc(j.followers, func(o follower) bool { return o.session == f.session }) {
		f.session.removeJob(j)
	}
	return f, true
}

// removeSession removes a session that ends.
func (j *job) removeSession(s *session) {
	j.followers = slices.DeleteFunc(j.followers, func(f follower) bool { return f.session == s })
	if j.submitter == s {
		j.submitter, j.unfollows = nil, false
	}
}

// start sets when the job started if one of the events says so and none did before. It reports whether it did.
func (j *job) start(events []*store.Event) bool {
	if j.started {
		return false
	}
	i := slices.IndexFunc(events, func(e *store.Event) bool { return e.Type == arcp.JobStarted })
	if i < 0 {
		return false
	}
	j.started, j.startedAt = true, events[i].Time
	return true
}

// release removes a job that has ended from its sessions and its feed.
func (j *job) release() {
	for i := range j.followers {
		j.followers[i].session.removeJob(j)
	}
	if j.submitter != nil {
		j.submitter.removeJob(j)
	}
	if j.feed != nil {
		j.feed.jobs--
	}
}

// receiver returns a follower for single events of a session that need not follow the job. A session that
// follows the job as its submitter does gets the event as that does.
func (j *job) receiver(s *session) follower {
	if s == j.submitter {
		return follower{session: s, correlation: j.submitID, types: allTypes, primary: true}
	}
	i := slices.IndexFunc(j.followers, func(f follower) bool { return f.session == s && f.plain == allTypes })
	if i >= 0 {
		return follower{session: s, correlation: j.followers[i].correlation, types: allTypes}
	}
	return follower{session: s, types: allTypes, forwarded: true}
}

// receiversOf returns the deliveries of an unlogged event.
func (j *job) receiversOf(e *store.Event) (out []store.Delivery) {
	bit := bitOf(e)
	for i := range j.followers {
		if f := &j.followers[i]; f.seesUnlogged(bit) {
			out = append(out, store.Delivery{Session: f.session.id, CorrelationID: f.correlation, Forwarded: f.forwarded, Event: e})
		}
	}
	return out
}

// jobs are the live jobs.
type jobs struct {
	*batch
	sessions *sessions
	feeds    *feeds
	live     map[arcp.JobID]*job
	keys     map[idempotencyKey]*JobChange // of this batch
	deleted  map[arcp.JobID]struct{}       // in this batch: the source still has them
}

type idempotencyKey struct{ principal, key string }

// load adds a stored live job with its stored follows.
func (js *jobs) load(row *store.Job, follows []FollowChange) {
	j := js.add(row)
	j.state, j.attempt, j.lastJSeq, j.lastSeq = row.State, row.Attempt, row.LastJSeq, row.LastSeq
	j.startedAt = row.StartedAt
	j.started = !row.StartedAt.IsZero() || row.Attempt > 1 || row.State != arcp.StateAccepted && row.State != arcp.StateQueued // by an earlier version
	for i := range follows {
		f := &follows[i]
		if f.Unfollowed {
			j.remove(f.FollowKey)
			j.unfollows = j.submitter != nil
		} else if s := js.sessions.get(f.Session); s != nil {
			plain := f.Plain
			if !f.Forwarded {
				plain = f.Types
			}
			j.put(follower{session: s, correlation: f.CorrelationID, types: f.Types, plain: plain, forwarded: f.Forwarded, stored: true})
		}
	}
}

// add adds a job and the follow of its submitter.
func (js *jobs) add(row *store.Job) *job {
	j := &job{id: row.ID, session: row.Session, submitID: row.SubmitID, state: row.State, attempt: max(row.Attempt, 1)}
	if row.Principal != "" {
		j.feed = js.feeds.get(row.Principal)
		j.feed.jobs++
	}
	if row.Session != "" {
		if j.submitter = js.sessions.get(row.Session); j.submitter != nil {
			j.put(follower{session: j.submitter, correlation: row.SubmitID, types: allTypes, plain: allTypes})
		}
	}
	js.live[j.id] = j
	return j
}

func (js *jobs) submit(row *store.Job) *job {
	created := *row
	created.Attempt = max(row.Attempt, 1)
	j := js.add(&created)
	change := js.changeOf(j)
	change.Created = &created
	if row.IdempotencyKey != "" {
		js.keys[idempotencyKey{row.Principal, row.IdempotencyKey}] = change
	}
	return j
}

// changeOf returns the change of a job in this batch.
func (js *jobs) changeOf(j *job) *JobChange {
	if j.changed == nil {
		js.changes.Jobs, j.changed = next(js.changes.Jobs)
		j.changed.ID, j.changed.job, j.changed.First = j.id, j, j.lastJSeq+1
	}
	return j.changed
}

// exists reports whether there is a job, live or not.
func (js *jobs) exists(id arcp.JobID) bool {
	if js.isDeleted(id) {
		return false
	}
	if js.live[id] != nil {
		return true
	}
	ended, err := js.source.Ended(id)
	if err != nil {
		js.fail(fmt.Errorf("job %s: %w", id, err))
	}
	return ended
}

// isDeleted reports whether a job was deleted in this batch.
func (js *jobs) isDeleted(id arcp.JobID) bool {
	_, ok := js.deleted[id]
	return ok
}

// holder returns the job that holds an idempotency key, also a deleted one.
func (js *jobs) holder(principal, key string) (arcp.JobID, string) {
	if change := js.keys[idempotencyKey{principal, key}]; change != nil {
		return change.ID, change.Created.Digest
	}
	id, digest, err := js.source.Key(principal, key)
	if err != nil {
		js.fail(fmt.Errorf("idempotency key of %s: %w", principal, err))
	}
	return id, digest
}

// submitted returns the job that a session submitted last with an id, also a deleted
// one. It is called too rarely for an index of the batch.
func (js *jobs) submitted(id arcp.SessionID, submit arcp.MessageID) (arcp.JobID, string) {
	for _, change := range slices.Backward(js.changes.Jobs) {
		if row := change.Created; row != nil && row.Session == id && row.SubmitID == submit {
			return row.ID, row.Digest
		}
	}
	job, digest, err := js.source.Submitted(id, submit)
	if err != nil {
		js.fail(fmt.Errorf("submits of %s: %w", id, err))
	}
	return job, digest
}

// delete deletes a job that has ended and returns its row.
func (js *jobs) delete(id arcp.JobID) store.Job {
	row := js.endedRow(id)
	js.deleted[id] = struct{}{}
	js.changes.Deletions = append(js.changes.Deletions, Deletion{Row: row})
	return row
}

// endedRow returns the row of a job that has ended, maybe in this batch.
func (js *jobs) endedRow(id arcp.JobID) store.Job {
	var change *JobChange
	if j := js.live[id]; j != nil {
		change = j.changed
		change.finish()
	}
	if change != nil && change.Created != nil {
		return *change.Created
	}
	row, err := js.source.Job(id)
	if err != nil {
		js.fail(fmt.Errorf("job %s: %w", id, err))
	}
	if change != nil {
		change.Status.Apply(&row)
	}
	return row
}

// endBatch completes the changes of jobs and removes the jobs that have ended.
func (js *jobs) endBatch() {
	for _, change := range js.changes.Jobs {
		change.finish()
		if change.job.changed = nil; change.job.ended {
			change.job.release()
			delete(js.live, change.ID)
		}
	}
	for i := range js.changes.Deletions {
		js.releaseNames(&js.changes.Deletions[i])
	}
}

// releaseNames sets which names a deleted job still holds at the end of the batch:
// another job may have got them since.
func (js *jobs) releaseNames(d *Deletion) {
	row := &d.Row
	if row.IdempotencyKey != "" {
		holder, _ := js.holder(row.Principal, row.IdempotencyKey)
		d.Key = holder == row.ID
	}
	if row.Session != "" && row.SubmitID != "" && !js.sessions.hasEnded(row.Session) {
		holder, _ := js.submitted(row.Session, row.SubmitID)
		d.Submit = holder == row.ID
	}
}
