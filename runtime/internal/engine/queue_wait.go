package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of the events that say why jobs wait in the queues of their tools (SPEC.md §5.6).
const (
	waitGrace   = time.Second      // how long a job waits for a reason before an event says so
	maxEventGap = 10 * time.Minute // between two such events of a job; the gap begins with waitGrace and doubles
	sweepGap    = waitGrace / 2    // between two looks at the queues
	maxChanges  = 256              // jobs that one look changes: each is a write
)

// queueWait is the wait of a job in the queue of its tool. It is guarded by Engine.mu.
type queueWait struct {
	reason      string    // at the latest look; empty: there was none
	since       time.Time // when the wait for the reason began
	recoveredAt time.Time // when the runtime was started with the job; zero: it got the job later
	saved       bool      // the progress has the begin of the wait without a worker
	expired     bool      // the start timeout has ended the job
	waitEvents
}

func newQueueWait(now time.Time) *queueWait {
	return &queueWait{since: now, waitEvents: waitEvents{eventAt: now.Add(waitGrace)}}
}

// waitEvents decides when events announce the reason for which a job waits.
type waitEvents struct {
	announced string        // reason in the latest event; empty: there was none
	eventAt   time.Time     // no event is sent before
	gap       time.Duration // from the latest event to eventAt; 0: there was none
}

// due returns when an event announces a reason since which the job waits; zero: it is announced.
func (w *waitEvents) due(reason string, since time.Time) time.Time {
	if reason == w.announced {
		return time.Time{}
	}
	return latest(w.eventAt, since.Add(waitGrace))
}

// record records that an event announces a reason now.
func (w *waitEvents) record(now time.Time, reason string) {
	w.gap = min(max(2*w.gap, waitGrace), maxEventGap)
	w.announced, w.eventAt = reason, now.Add(w.gap)
}

// startTimeoutAt returns when the start timeout of a job that was just queued may end it; zero: never.
func (w *queueWait) startTimeoutAt(r *run) time.Time {
	timeout := startTimeoutOf(r, r.e.jobs.limits.StartTimeout)
	if !r.runsOnWorker() && !r.waitsForServer() || timeout <= 0 {
		return time.Time{}
	}
	return w.since.Add(timeout)
}

// noWorkerRow is the begin of an attempt's wait without a connected worker, as an event has announced it.
type noWorkerRow struct {
	Attempt uint32    `json:"attempt"`
	Since   time.Time `json:"since"`
}

// recoverQueueWait continues the wait of a recovered job. An announced wait without a worker has its begin
// in the progress. Another one begins with the start of the runtime, when no worker is connected yet.
func recoverQueueWait(j *recoveredJob, now time.Time) {
	w, p := j.wait, &j.progress
	w.recoveredAt = now
	switch {
	case p.NoWorker != nil && p.NoWorker.Attempt == j.attempt:
		w.reason, w.announced, w.since, w.saved = arcp.WaitWorker, arcp.WaitWorker, p.NoWorker.Since, true
	case j.attempt == 1:
		w.since = j.created
	case j.newState == "" && !p.Next.IsZero():
		w.since = p.Next
	}
}

// look records why the job waits now.
func (w *queueWait) look(now time.Time, reason string) {
	switch {
	case w.reason == "" && isAbsence(reason) && !w.recoveredAt.IsZero():
		w.since = w.recoveredAt
	case w.reason != "" && w.reason != reason:
		w.since = now
	}
	w.reason = reason
}

// isAbsence reports whether the start timeout limits a wait for a reason.
func isAbsence(reason string) bool { return reason == arcp.WaitWorker || reason == arcp.WaitServer }

// timesOutAt returns when the start timeout ends the job; zero: never. After a start of the runtime its
// workers and servers have the time grace to connect.
func (w *queueWait) timesOutAt(timeout, grace time.Duration) time.Time {
	if !isAbsence(w.reason) || timeout <= 0 || w.expired {
		return time.Time{}
	}
	at := w.since.Add(timeout)
	if w.recoveredAt.IsZero() {
		return at
	}
	return latest(at, w.recoveredAt.Add(min(grace, timeout)))
}

// announcesAt returns when an event announces the reason; zero: it is announced.
func (w *queueWait) announcesAt() time.Time { return w.due(w.reason, w.since) }

// change returns the change of the job that is due after a look; nil: none.
func (w *queueWait) change(now time.Time, r *run, timeout time.Duration) command {
	if hasPassed(w.timesOutAt(timeout, workerGrace(&r.e.cfg)), now) {
		w.expired = true
		return startTimeout{after: timeout}
	}
	c := waitChange{}
	if w.reason == arcp.WaitWorker && w.saved {
		c.noWorker = w.since
	}
	if hasPassed(w.announcesAt(), now) {
		view := r.e.queues.waitOf(r)
		view.reason = w.reason
		c.event = view.view(r.tool.Ref())
		w.record(now, w.reason)
		if w.reason == arcp.WaitWorker {
			c.noWorker = w.since
		}
	}
	if saved := !c.noWorker.IsZero(); c.event != nil || saved != w.saved {
		w.saved = saved
		return c
	}
	return nil
}

// workerGrace is how long workers may take to connect after a start of the runtime (SPEC.md §7.8).
func workerGrace(c *Config) time.Duration {
	if c.Heartbeat <= 0 { // off
		return time.Minute
	}
	return 2 * c.Heartbeat
}

// startTimeoutOf returns how long a job may wait without a connected worker or server; 0: for ever.
func startTimeoutOf(r *run, byDefault time.Duration) time.Duration {
	switch own := r.tool.Limits.StartTimeout; {
	case own < 0:
		return 0
	case own > 0:
		return own
	}
	return byDefault
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// queueWatch looks at the queues of all tools when something may have changed: a job is to be told why it
// waits, or its start timeout passes. One timer serves all jobs, and none runs while nothing is due.
type queueWatch struct {
	looking sync.Mutex // held by the look in progress

	// Guarded by Engine.mu.
	timer *time.Timer
	at    time.Time // when the timer fires; zero: it is not set
	last  time.Time // when the latest look began
}

// setQueueWatch has the queues looked at when a time has come, and at most every sweepGap. Called with
// Engine.mu.
func setQueueWatch(e *Engine, at time.Time) {
	w := &e.watch
	if at = latest(at, w.last.Add(sweepGap)); e.shutdown.quitting() || !w.at.IsZero() && !at.Before(w.at) {
		return
	}
	w.at = at
	if d := time.Until(at); w.timer == nil {
		w.timer = time.AfterFunc(d, func() { lookAtQueues(e) })
	} else {
		w.timer.Reset(d)
	}
}

// lookAtQueues finds out why jobs wait, and changes the jobs for which a change is due.
func lookAtQueues(e *Engine) {
	e.watch.looking.Lock()
	defer e.watch.looking.Unlock()
	now := time.Now()
	list := beginLook(e, now)
	reasons := queueReasons(list)
	e.mu.Lock()
	due := make(map[*run]command)
	var next time.Time
	for i, r := range list {
		if r.slot != slotQueued {
			continue
		}
		timeout := startTimeoutOf(r, e.jobs.limits.StartTimeout)
		if r.wait.look(now, reasons[i]); len(due) < maxChanges {
			if c := r.wait.change(now, r, timeout); c != nil {
				due[r] = c
			}
		}
		next = earliest(next, r.wait.timesOutAt(timeout, workerGrace(&e.cfg)), r.wait.announcesAt())
	}
	if !next.IsZero() {
		setQueueWatch(e, next)
	}
	e.mu.Unlock()
	for r, c := range due {
		r.post(c)
	}
}

// beginLook returns the jobs in the queues.
func beginLook(e *Engine, now time.Time) (list []*run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watch.at, e.watch.last = time.Time{}, now
	for _, tq := range e.queues.byTool {
		for _, r := range tq.queue {
			if r.slot == slotQueued {
				list = append(list, r)
			}
		}
	}
	return list
}

// queueReasons returns for each job in a queue why it waits. It is called without a lock, because it asks
// the pool of workers.
func queueReasons(list []*run) []string {
	type audience struct{ ref, principal string }
	connected := make(map[audience]bool)
	reasons := make([]string, len(list))
	for i, r := range list {
		if !r.runsOnWorker() {
			if reasons[i] = arcp.WaitSlot; r.waitsForServer() {
				reasons[i] = arcp.WaitServer
			}
			continue
		}
		a := audience{r.tool.Ref(), r.row.Principal}
		found, ok := connected[a]
		if !ok {
			found = hasConnectedWorker(r)
			connected[a] = found
		}
		if reasons[i] = arcp.WaitWorker; found {
			reasons[i] = arcp.WaitWorkerSlot
		}
	}
	return reasons
}

// isQueued reports whether a job waits in the queue of its tool.
func isQueued(s *supervisor) bool {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.slot == slotQueued && !s.machine.State().Terminal()
}

// waitChange announces why a queued job waits, and saves since when no worker is connected.
type waitChange struct {
	noAnswer
	event    *arcp.JobWaiting // nil: none
	noWorker time.Time        // zero: a worker is connected, or the wait is not announced
}

func (c waitChange) apply(s *supervisor, now time.Time) {
	if !isQueued(s) {
		return
	}
	var row *noWorkerRow
	if !c.noWorker.IsZero() {
		row = &noWorkerRow{s.attempt, c.noWorker.UTC()}
	}
	if row != nil || s.progress.NoWorker != nil {
		s.progress.NoWorker, s.progress.unsaved = row, true
	}
	if c.event != nil {
		announceWait(s, now, c.event)
	}
}

// announceWait logs why the job waits, and emits the event that says it. A direct job has no event.
func announceWait(s *supervisor, now time.Time, w *arcp.JobWaiting) {
	logWaiting(s.run, w)
	if s.direct {
		return
	}
	ev := s.event(arcp.EventEmit, now, s.row.Priority, waitingPayload(w))
	s.mu.Lock()
	s.events.push(ev)
	s.mu.Unlock()
}

// startTimeout fails a queued job without a connected worker or server.
type startTimeout struct {
	noAnswer
	after time.Duration
}

func (t startTimeout) apply(s *supervisor, now time.Time) {
	if !isQueued(s) {
		return
	}
	s.machine.Fail(now, errStartTimeout(s.run, t.after))
}

func errStartTimeout(r *run, after time.Duration) *arcp.Error {
	text := "no connected worker executes %s: the job has waited for one longer than the start timeout of %s"
	if !r.runsOnWorker() {
		text = "the server of %s does not answer: the job has waited for it longer than the start timeout of %s"
	}
	err := arcp.Errorf(arcp.CodeUnavailable, text, r.tool.Ref(), after)
	err.Details = arcp.Raw(fmt.Sprintf(`{"start_timeout_ms":%d}`, after.Milliseconds()))
	return err
}
