package engine

import (
	"math"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/tool"
)

// toolQueues has a queue for each tool with a limit that has jobs. It is guarded by Engine.mu.
type toolQueues struct {
	slots  *catalog.Slots // of tools from workers
	byTool map[toolQueueKey]*toolQueue
}

// toolQueueKey identifies the jobs that share a queue: by their tool. For a worker's tool it is the
// reference, because the worker may replace the tool's description while jobs wait.
type toolQueueKey struct {
	tool *tool.Tool
	ref  string
}

func keyOf(t *tool.Tool) toolQueueKey {
	if t.Source == tool.SourceWorker {
		return toolQueueKey{ref: t.Ref()}
	}
	return toolQueueKey{tool: t}
}

// limit returns the number of jobs of a tool that may run now; negative: any number.
func (q *toolQueues) limit(t *tool.Tool) int {
	switch {
	case !t.Gate.IsOpen():
		return 0
	case t.Source == tool.SourceWorker:
		return q.slots.Of(t.Ref())
	case t.Limits.Concurrency <= 0:
		return -1
	}
	return t.Limits.Concurrency
}

// reserve assigns a slot of its tool, or a place in the queue, to a new job.
func (q *toolQueues) reserve(r *run) *limitError {
	if q.enqueue(r, tool.MaxQueue) {
		return nil
	}
	return &limitError{"tool_queue", arcp.Errorf(arcp.CodeResourceExhausted, "%s: %d jobs are running and %d waiting", r.tool.Name,
		max(q.limit(r.tool), 0), tool.MaxQueue).RetryAfter(retryAfter)}
}

// enqueue assigns a job a slot, or a place in a queue of fewer than maxWaiting jobs; negative: of any
// length. It reports whether there was room.
func (q *toolQueues) enqueue(r *run, maxWaiting int) bool {
	if r.isSchedule() { // has no attempts, and stays queued
		return true
	}
	key := keyOf(r.tool)
	tq := q.byTool[key]
	if tq == nil {
		e, t := r.e, r.tool
		gated := t.Gate != nil && t.Gate.OnOpen(func() { e.gateOpened(t) })
		if r.builtin() || !gated && q.limit(t) < 0 {
			r.slot.apply(onSlot)
			return true
		}
		tq = &toolQueue{}
		q.byTool[key] = tq
	}
	tq.setLimit(q.limit(r.tool))
	switch {
	case tq.running < tq.limit:
		tq.running++
		r.slot.apply(onSlot)
	case maxWaiting < 0 || tq.waiting() < maxWaiting:
		r.passedOver = 0
		tq.queue = append(tq.queue, r)
		r.wait = newQueueWait(time.Now())
		setQueueWatch(r.e, earliest(r.wait.eventAt, r.wait.startTimeoutAt(r)))
		r.slot.apply(onQueue)
		tq.countPrioritized(r, 1)
	default:
		return false
	}
	return true
}

// release releases the slot or the place of a job, and returns the job that gets the slot; nil: none.
func (q *toolQueues) release(r *run) (next *run) {
	if tq := q.byTool[keyOf(r.tool)]; tq != nil {
		switch r.slot {
		case slotHeld:
			next = tq.grantSlot()
		case slotQueued:
			tq.withdraw(r)
		}
		q.removeIdle(r.tool)
	}
	r.slot.apply(onRelease)
	return next
}

// freeSlot passes a released slot to the next job and returns that job; nil: none.
func (q *toolQueues) freeSlot(t *tool.Tool) (next *run) {
	if tq := q.byTool[keyOf(t)]; tq != nil {
		next = tq.grantSlot()
		q.removeIdle(t)
	}
	return next
}

// recount applies a new limit of a tool, and returns the jobs that get a slot.
func (q *toolQueues) recount(key toolQueueKey, limit int) (start []*run) {
	tq := q.byTool[key]
	if tq == nil {
		return nil
	}
	tq.setLimit(limit)
	for tq.running < tq.limit && tq.waiting() > 0 {
		tq.running++
		r := tq.grantSlot()
		if r == nil { // the waiting jobs have no worker
			break
		}
		start = append(start, r)
	}
	return start
}

// removeIdle removes the queue of a tool without jobs. A queue behind a closed gate stays for gateOpened.
func (q *toolQueues) removeIdle(t *tool.Tool) {
	key := keyOf(t)
	if l := q.byTool[key]; l.running == 0 && l.waiting() == 0 && t.Gate.IsOpen() {
		delete(q.byTool, key)
	}
}

// toolQueue bounds how many jobs of one tool run at once. The other jobs wait in the order of their
// arrival. A principal's jobs use the principal's places in the order of their priority.
//
// A job that leaves keeps its entry in queue until such entries are more than half of it.
type toolQueue struct {
	limit       int
	running     int
	queue       []*run
	withdrawn   int
	prioritized int // jobs that wait with another priority than normal
}

// queueEntry has the state of a run in the queue of its tool.
type queueEntry struct {
	slot       slotState
	passedOver int32      // how often a later job of the principal got a slot instead
	wait       *queueWait // the present or the latest wait in the queue; nil: there was none
}

// maxPassedOver bounds how often other jobs of a principal get a slot before the principal's oldest job.
// Then the oldest job gets the next slot, whatever its priority, so that no job waits for ever.
const maxPassedOver = 7

// setLimit sets how many jobs may run; negative: any number.
func (tq *toolQueue) setLimit(limit int) {
	if limit < 0 { // jobs had to wait behind the gate of their tool
		limit = math.MaxInt
	}
	tq.limit = limit
}

func (tq *toolQueue) waiting() int { return len(tq.queue) - tq.withdrawn }

// countPrioritized counts a job that waits with another priority than normal.
func (tq *toolQueue) countPrioritized(r *run, d int) {
	if r.row.Priority.Rank() != 0 {
		tq.prioritized += d
	}
}

// grantSlot assigns a free slot to the next waiting job that has a worker. It returns nil if there is
// none, or if the number of slots has fallen.
func (tq *toolQueue) grantSlot() *run {
	if tq.running > tq.limit {
		tq.running--
		return nil
	}
	for len(tq.queue) > 0 && tq.queue[0].slot != slotQueued {
		tq.remove(0)
		tq.withdrawn--
	}
	i := tq.next()
	if i < 0 {
		tq.running--
		return nil
	}
	r := tq.queue[i]
	tq.remove(i)
	tq.countPrioritized(r, -1)
	r.slot.apply(onSlot)
	return r
}

// next returns the index of the job that gets the next slot, which is the oldest waiting place; -1:
// there is none. Within the principal of that place, the oldest job of the highest priority moves to
// it, and the jobs that it passes move back by one place each. Other principals' places do not change.
func (tq *toolQueue) next() int {
	first, best := -1, -1
	for i, r := range tq.queue {
		switch {
		case r.slot != slotQueued || !r.hasWorker():
		case first < 0:
			if tq.prioritized == 0 || r.passedOver == maxPassedOver {
				return i
			}
			first, best = i, i
		case r.row.Principal == tq.queue[first].row.Principal && r.row.Priority.Rank() > tq.queue[best].row.Priority.Rank():
			best = i
		}
	}
	if best == first {
		return first
	}
	tq.queue[first].passedOver++
	moves, principal := tq.queue[best], tq.queue[first].row.Principal
	for i, r := range tq.queue[:best+1] {
		if r.slot == slotQueued && r.row.Principal == principal && r.hasWorker() {
			tq.queue[i], moves = moves, r
		}
	}
	return first
}

// remove removes a place. Removal of the first place, the usual case, moves no others.
func (tq *toolQueue) remove(i int) {
	if i > 0 {
		tq.queue = slices.Delete(tq.queue, i, i+1)
		return
	}
	tq.queue[0] = nil
	tq.queue = tq.queue[1:]
}

// withdraw removes a waiting job from the queue.
func (tq *toolQueue) withdraw(r *run) {
	tq.countPrioritized(r, -1)
	r.slot.apply(onRelease)
	if tq.withdrawn++; 2*tq.withdrawn > len(tq.queue) {
		tq.queue = slices.DeleteFunc(tq.queue, func(w *run) bool { return w.slot != slotQueued })
		tq.withdrawn = 0
	}
}

// SlotsChanged starts waiting jobs after a change of Config.Slots for a tool. The caller must not hold
// a lock that Slots needs.
func (e *Engine) SlotsChanged(ref string) {
	grantSlots(e, func(q *toolQueues) []*run {
		start := q.recount(toolQueueKey{ref: ref}, q.slots.Of(ref))
		if tq := q.byTool[toolQueueKey{ref: ref}]; tq != nil && tq.waiting() > 0 {
			setQueueWatch(e, time.Now())
		}
		return start
	})
}

// gateOpened starts the jobs that have waited for the gate of their tool.
func (e *Engine) gateOpened(t *tool.Tool) {
	grantSlots(e, func(q *toolQueues) []*run {
		start := q.recount(keyOf(t), q.limit(t))
		if q.byTool[keyOf(t)] != nil {
			q.removeIdle(t)
		}
		return start
	})
}

// startNext starts the job that gets a slot; next returns nil if there is none.
func (e *Engine) startNext(next func(*toolQueues) *run) {
	grantSlots(e, func(q *toolQueues) []*run {
		if r := next(q); r != nil {
			return []*run{r}
		}
		return nil
	})
}

// grantSlots changes the queues, and starts the jobs that get a slot. Once Stop stops the jobs it
// does nothing: a job that ends first would pass its slot to a job that is not stopped yet.
func grantSlots(e *Engine, change func(*toolQueues) []*run) {
	e.mu.Lock()
	if e.shutdown.quitting() || e.shutdown.phase == shutdownDrained {
		e.mu.Unlock()
		return
	}
	start := change(&e.queues)
	e.shutdown.check(&e.jobs, &e.queues)
	e.mu.Unlock()
	for _, r := range start {
		r.markSlotGranted()
	}
}
