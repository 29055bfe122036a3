package engine

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// SessionJobs finds and cancels the jobs of a session that have not ended. Its methods may be called
// by many goroutines. Only AwaitClaims blocks.
type SessionJobs struct{ e *Engine }

// SessionJobs returns the jobs by session.
func (e *Engine) SessionJobs() SessionJobs { return SessionJobs{e} }

// Has reports whether a session has jobs.
func (j SessionJobs) Has(id arcp.SessionID) bool {
	j.e.mu.Lock()
	defer j.e.mu.Unlock()
	return j.e.jobs.perSession[id].n > 0
}

// HasActive reports whether a session has jobs that are not schedules: schedules do not need their
// session.
func (j SessionJobs) HasActive(id arcp.SessionID) bool {
	j.e.mu.Lock()
	defer j.e.mu.Unlock()
	l := j.e.jobs.perSession[id]
	return l.n > l.schedules
}

// AwaitClaims waits until the claims of all submits of a session up to now have their positions in the
// log, or until ctx ends. A write that is appended then follows them.
func (j SessionJobs) AwaitClaims(ctx context.Context, id arcp.SessionID) {
	placed := make(chan struct{})
	waits := j.e.order.wait(id, stepFunc(func() bool {
		close(placed)
		return false
	}))
	if !waits {
		return
	}
	select {
	case <-placed:
	case <-ctx.Done():
	}
}

// IDs returns the jobs of a session.
func (j SessionJobs) IDs(id arcp.SessionID) (jobs []arcp.JobID) {
	j.e.mu.Lock()
	defer j.e.mu.Unlock()
	for r := range j.e.jobs.perSession[id].all() {
		jobs = append(jobs, r.row.ID)
	}
	return jobs
}

// Submitted returns the jobs of a session that it has submitted itself: the others were handed over to it.
func (j SessionJobs) Submitted(id arcp.SessionID) (jobs []arcp.JobID) {
	j.e.mu.Lock()
	defer j.e.mu.Unlock()
	for r := range j.e.jobs.perSession[id].all() {
		if r.row.Session == id {
			jobs = append(jobs, r.row.ID)
		}
	}
	return jobs
}

// Owner returns the session that owns a job, or owned it when it ended: the one that has submitted it, or to
// which it was handed over last.
func (j SessionJobs) Owner(ctx context.Context, row *store.Job) (arcp.SessionID, error) {
	if r := j.e.run(row.ID); r != nil {
		return r.owner(), nil
	}
	rec, err := j.e.cfg.Store.Get(ctx, progressKey(row.ID))
	if err != nil || rec.Rev == 0 {
		return row.Session, err
	}
	var p progressRow
	if err := arcp.Unmarshal(rec.Value, &p); err != nil {
		return "", err
	}
	if n := len(p.Owners); n > 0 {
		return p.Owners[n-1], nil
	}
	return row.Session, nil
}

// CancelIfOnDisconnect cancels those of the jobs that end with the connection of their session.
func (j SessionJobs) CancelIfOnDisconnect(ids []arcp.JobID, reason string) {
	for _, id := range ids {
		if r := j.e.run(id); r != nil && r.cancelOnDisconnect {
			r.post(internalCancel(id, reason))
		}
	}
}

// CancelAll cancels the jobs of a session, also those whose submits wait for earlier ones.
func (j SessionJobs) CancelAll(id arcp.SessionID, reason string) {
	cancel := func() bool {
		j.cancel(id, reason, func(*run) bool { return true })
		return false
	}
	if !j.e.order.wait(id, stepFunc(cancel)) {
		cancel()
	}
}

// EndStreams ends the streams of a session, which has ended, to jobs of its principal.
func (j SessionJobs) EndStreams(id arcp.SessionID) { j.e.endStreamsOf(id) }

// CancelOnDisconnect cancels the jobs of a session that end with its connection.
func (j SessionJobs) CancelOnDisconnect(id arcp.SessionID, reason string) {
	j.cancel(id, reason, func(r *run) bool { return r.cancelOnDisconnect })
}

func (j SessionJobs) cancel(id arcp.SessionID, reason string, selects func(*run) bool) {
	j.e.mu.Lock()
	var jobs []*run
	for r := range j.e.jobs.perSession[id].all() {
		if selects(r) {
			jobs = append(jobs, r)
		}
	}
	j.e.mu.Unlock()
	for _, r := range jobs {
		r.post(internalCancel(r.row.ID, reason))
	}
}

// EndingOnDisconnect returns the sessions with jobs that end with the session's connection. After a
// restart these sessions have no connection until they are resumed.
func (j SessionJobs) EndingOnDisconnect() (ids []arcp.SessionID) {
	j.e.mu.Lock()
	defer j.e.mu.Unlock()
	for id, list := range j.e.jobs.perSession {
		for r := range list.all() {
			if r.cancelOnDisconnect {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}
