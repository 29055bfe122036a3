package engine

import (
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job/question"
)

// jobWait says why a job waits (SPEC.md §5.6). An empty reason says that it does not wait.
type jobWait struct {
	reason         string
	since          time.Time
	running, limit int       // with slot and worker_slot: jobs that run, and may run at once
	next           time.Time // with retry and schedule: when the job continues; with reconnect: when the attempt is lost
	worker         string    // with reconnect: name of the worker; "": it is of another principal
	question       string    // with approval, permission and input: id of the question
}

// WaitingOf returns why a job waits; nil: it does not wait, or this process does not run it.
func WaitingOf(e *Engine, id arcp.JobID) *arcp.JobWaiting {
	r := e.run(id)
	if r == nil {
		return nil
	}
	w := waitOf(r)
	if w.reason == "" {
		return nil
	}
	return w.view(r.tool.Ref())
}

// CountWaiting returns the number of jobs that wait, by reason.
func CountWaiting(e *Engine) map[string]int {
	n := make(map[string]int)
	e.eachRun(func(r *run) {
		if w := waitOf(r); w.reason != "" {
			n[w.reason]++
		}
	})
	return n
}

// view returns a wait for the client.
func (w *jobWait) view(ref string) *arcp.JobWaiting {
	return &arcp.JobWaiting{Reason: w.reason, Since: w.since.UTC(), Message: w.message(ref), ApprovalID: w.question}
}

// optional returns a text behind a prefix; "" without a text.
func optional(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// message says what the job of a tool waits for and, where something can be done, what.
func (w *jobWait) message(ref string) string {
	switch w.reason {
	case arcp.WaitWorker:
		return fmt.Sprintf("no connected worker executes %s: start one, or cancel the job", ref)
	case arcp.WaitWorkerSlot:
		if w.limit == 0 {
			return fmt.Sprintf("the workers of %s are busy: start another worker, or wait", ref)
		}
		return fmt.Sprintf("all workers of %s are busy, %d of %d jobs run: start another worker, or wait", ref, w.running, w.limit)
	case arcp.WaitReconnect:
		return fmt.Sprintf("the worker%s has lost its connection: it has until %s to reconnect", optional(" ", w.worker), w.next.UTC().Format(time.RFC3339))
	case arcp.WaitServer:
		return fmt.Sprintf("the server of %s has not answered since the start of the runtime: the job starts when it does", ref)
	case arcp.WaitSlot:
		return fmt.Sprintf("%d of %d jobs of %s run: the job starts in its turn", w.running, w.limit, ref)
	case arcp.WaitApproval:
		return fmt.Sprintf("the approval %s is pending: an approver decides it", w.question)
	case arcp.WaitPermission:
		return fmt.Sprintf("the permission request %s is pending: grant or deny it", w.question)
	case arcp.WaitInput:
		return fmt.Sprintf("the question %s is pending: answer it", w.question)
	case arcp.WaitRetry:
		return fmt.Sprintf("the next attempt starts at %s", w.next.UTC().Format(time.RFC3339))
	case arcp.WaitSchedule:
		return fmt.Sprintf("the next occurrence is due at %s", w.next.UTC().Format(time.RFC3339))
	case arcp.WaitHeartbeat:
		return fmt.Sprintf("%s has missed heartbeats: the job continues with the next one", ref)
	case arcp.WaitDisk:
		return "there is no space for its events: free disk space, or raise --max-data"
	}
	return "the runtime stops: the job continues after its next start"
}

// waitOf returns why a job waits. It takes the locks of the engine and of the run, one after the
// other.
func waitOf(r *run) jobWait {
	e := r.e
	e.mu.Lock()
	slot, w := r.slot, jobWait{}
	switch slot {
	case slotQueued:
		w = e.queues.waitOf(r)
	case slotResting:
		if e.shutdown.draining() {
			w = jobWait{reason: arcp.WaitDrain, since: e.shutdown.since}
		}
	}
	e.mu.Unlock()
	switch {
	case r.isSchedule():
		return jobWait{reason: arcp.WaitSchedule, since: r.created, next: e.scheduler.wakesAt(r)}
	case w.reason == arcp.WaitWorker && hasConnectedWorker(r):
		w.reason = arcp.WaitWorkerSlot
		return w
	case w.reason != "":
		return w
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slot == slotResting {
		return jobWait{reason: arcp.WaitRetry, since: r.timers.set, next: r.timers.next}
	}
	return attemptWait(r)
}

// waitOf returns the wait of a job in the queue of its tool. Without a look at the workers it is a
// wait for a worker if the tool is one of workers. Called with Engine.mu.
func (q *toolQueues) waitOf(r *run) jobWait {
	w := jobWait{reason: arcp.WaitSlot, since: r.wait.since}
	switch {
	case r.runsOnWorker():
		w.reason = arcp.WaitWorker
	case r.waitsForServer():
		w.reason = arcp.WaitServer
	}
	if tq := q.byTool[keyOf(r.tool)]; tq != nil {
		w.running, w.limit = tq.running, max(q.limit(r.tool), 0)
	}
	return w
}

// hasConnectedWorker reports whether a connected worker executes the tool of a job for its principal.
func hasConnectedWorker(r *run) bool {
	return r.e.cfg.Connected == nil || r.e.cfg.Connected(r.tool.Ref(), r.row.Principal)
}

// attemptWait returns why the attempt of a job waits. Called with run.mu.
func attemptWait(r *run) jobWait {
	if q := r.questions.Pending(); q != nil {
		return questionWait(q)
	}
	s := r.current
	if s == nil {
		return jobWait{}
	}
	if w := s.workerWait.current(); w != nil {
		return *viewOf(w)
	}
	switch {
	case !s.silentSince.IsZero():
		return jobWait{reason: arcp.WaitHeartbeat, since: s.silentSince}
	case !s.events.fullSince.IsZero():
		return jobWait{reason: arcp.WaitDisk, since: s.events.fullSince}
	}
	return jobWait{}
}

// questionWait returns the wait for the answer to a question.
func questionWait(q *question.Question) jobWait {
	return jobWait{reason: questionReason(q.Row.Kind), since: q.Row.CreatedAt, question: q.Row.ID}
}

// questionReason returns the reason of a wait for the answer to a question.
func questionReason(k approval.Kind) string {
	switch k {
	case approval.Permission:
		return arcp.WaitPermission
	case approval.Input, approval.Choice:
		return arcp.WaitInput
	}
	return arcp.WaitApproval
}

// waitingPayload returns the payload of the event that says why the job waits.
func waitingPayload(w *arcp.JobWaiting) arcp.EventEmitPayload {
	data, err := arcp.Marshal(w)
	if err != nil { // plain members
		panic("engine: " + err.Error())
	}
	return arcp.EventEmitPayload{Name: arcp.EventWaiting, Data: data}
}
