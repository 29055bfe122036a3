package engine

import (
	"github.com/arcpd/arcpd/arcp"
)

// The delays after which a refused client may retry, in seconds.
const (
	retryAfter     = 1  // for lack of capacity
	retryAfterFull = 10 // for lack of space
)

// admit counts a job for the limits and adds it to the jobTable. It refuses a call of a built-in tool
// only if the disk is full, or if the principal has maxBuiltins calls. It refuses a child whose parent
// does not run any more; a shutdown waits for the children of running jobs.
func (e *Engine) admit(r *run, maxJobs int) *arcp.Error {
	refused := e.reserve(r, maxJobs)
	if refused == nil {
		return nil
	}
	if refused.name != "" {
		e.cfg.Metrics.RateLimited.WithLabelValues(refused.name).Inc()
	}
	return refused.err
}

// JobRefusal returns why every job of the caller's session would be refused now: for lack of space, because of the
// limits of jobs or a shutdown; nil: one would be accepted.
func (j builtinJob) JobRefusal() *arcp.Error {
	e, r := j.s.e, j.s.run
	if err := e.checkSpace(false); err != nil {
		return err.err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shutdown.draining() {
		return errShuttingDown()
	}
	e.jobs.uncountConcluded()
	if err := e.jobs.checkCounts(r.row.Principal, r.row.Session, r.maxJobs); err != nil {
		return err.err
	}
	return nil
}

// reserve is admit without metrics.
func (e *Engine) reserve(r *run, maxJobs int) *limitError {
	if err := e.checkSpace(r.builtin()); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case r.row.Parent != "" && !e.jobs.active(r.row.Parent):
		return &limitError{"", errEnded}
	case e.shutdown.quitting() || e.shutdown.draining() && !e.jobs.isCalled(r):
		return &limitError{"", errShuttingDown()}
	case r.runsInline():
		return nil
	case r.runsAsCall():
		e.calls.Add(1)
		return nil
	}
	if err := e.jobs.check(r, maxJobs); err != nil {
		return err
	}
	if err := e.rates.check(r.tool); err != nil {
		return err
	}
	if err := e.queues.reserve(r); err != nil {
		return err
	}
	if r.slot != slotHeld {
		r.state, r.row.State = arcp.StateQueued, arcp.StateQueued
	}
	e.jobs.add(r)
	return nil
}

// checkSpace refuses a job for lack of space. A built-in tool can be called at the bound of the store, and until
// the disk is exhausted: jobs.delete makes room, and the job of the call can be deleted as soon as it ends.
func (e *Engine) checkSpace(builtin bool) *limitError {
	switch {
	case e.cfg.Space.DiskExhausted(), e.cfg.Space.DiskFull() && !builtin:
		return &limitError{"disk", arcp.Errorf(arcp.CodeResourceExhausted, "the disk is nearly full").RetryAfter(retryAfterFull)}
	case e.cfg.Space.DataFull() && !builtin:
		return &limitError{"data", arcp.Errorf(arcp.CodeResourceExhausted, "the runtime stores as much data as it may").RetryAfter(retryAfterFull)}
	}
	return nil
}
