package engine

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// toolQueue bounds how many jobs of one tool run at once. The other jobs wait. Their places are
// in the order in which they came; the places of a principal go to its jobs by priority.
// It is guarded by Engine.mu.
type toolQueue struct {
	limit   int
	running int
	queue   []*run // those that have left it are still there, until they are many
	left    int    // how many of them
	urgent  int    // how many wait with another priority than normal
}

// mostPassed is how often the oldest job of a principal is passed by others of its:
// the eighth start is its own whatever its priority, so that none waits for ever.
const mostPassed = 7

func (l *toolQueue) waiting() int { return len(l.queue) - l.left }

// toolQueueKey is what jobs share a tool queue by: their tool or, for one whose workers may
// describe it anew while jobs wait for them, its reference.
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

// limitOf is how many jobs of a tool may run now; negative: any number.
func (e *Engine) limitOf(t *tool.Tool) int {
	switch {
	case t.Source == tool.SourceWorker:
		return e.cfg.Slots.Of(t.Ref())
	case t.Limits.Concurrency <= 0:
		return -1
	}
	return t.Limits.Concurrency
}

// Recount is told that Config.Slots has changed for a tool: jobs that wait start,
// if there is more. It must not be called by who holds what Slots is changed with.
func (e *Engine) Recount(ref string) {
	e.mu.Lock()
	var start []*run
	if l := e.toolQueues[toolQueueKey{ref: ref}]; l != nil {
		l.limit = e.cfg.Slots.Of(ref)
		for l.running < l.limit && l.waiting() > 0 {
			l.running++
			r := l.hand()
			if r == nil { // those that wait are for workers that there are none of
				break
			}
			start = append(start, r)
		}
	}
	e.mu.Unlock()
	for _, r := range start {
		r.granted()
	}
}

// reserve gives a new job a slot of its tool or a place in the queue. Called
// with e.mu.
func (e *Engine) reserve(r *run) *arcp.Error {
	if e.enqueue(r, tool.MaxQueue) {
		return nil
	}
	e.cfg.Metrics.RateLimited.WithLabelValues("tool_queue").Inc()
	return arcp.Errorf(arcp.CodeResourceExhausted, "%s: %d jobs are running and %d waiting", r.tool.Name,
		max(e.limitOf(r.tool), 0), tool.MaxQueue).RetryAfter(retryAfter)
}

// enqueue is reserve for a queue of a length; negative: it takes all. Called
// with e.mu.
func (e *Engine) enqueue(r *run, most int) bool {
	limit := e.limitOf(r.tool)
	if limit < 0 || r.builtin() {
		r.slot = true
		return true
	}
	key := keyOf(r.tool)
	l := e.toolQueues[key]
	if l == nil {
		l = &toolQueue{}
		e.toolQueues[key] = l
	}
	l.limit = limit
	switch {
	case l.running < limit:
		l.running++
		r.slot = true
	case most < 0 || l.waiting() < most:
		r.passed = 0
		l.queue = append(l.queue, r)
		l.wait(r, true)
	default:
		return false
	}
	return true
}

// vacate takes a job from its slot, which goes to the next one that waits, or
// from the queue.
func (e *Engine) vacate(r *run) {
	e.mu.Lock()
	var next *run
	if l := e.toolQueues[keyOf(r.tool)]; l != nil {
		if r.slot {
			next = l.hand()
		} else if r.waiting {
			l.leave(r)
		}
		e.tidy(r.tool)
	}
	r.slot = false
	e.mu.Unlock()
	if next != nil {
		next.granted()
	}
}

// free gives a slot of a tool on that no job holds any more.
func (e *Engine) free(t *tool.Tool) {
	e.mu.Lock()
	var next *run
	if l := e.toolQueues[keyOf(t)]; l != nil {
		next = l.hand()
		e.tidy(t)
	}
	e.mu.Unlock()
	if next != nil {
		next.granted()
	}
}

// wait notes whether a job of the queue waits.
func (l *toolQueue) wait(r *run, waits bool) {
	r.waiting = waits
	switch {
	case r.row.Priority.Rank() == 0:
	case waits:
		l.urgent++
	default:
		l.urgent--
	}
}

// hand gives a free slot to the next that waits and may have it, unless there are
// fewer slots than there were. Called with e.mu.
func (l *toolQueue) hand() *run {
	if l.running > l.limit {
		l.running--
		return nil
	}
	for len(l.queue) > 0 && !l.queue[0].waiting {
		l.drop(0)
		l.left--
	}
	i := l.next()
	if i < 0 {
		l.running--
		return nil
	}
	r := l.queue[i]
	l.drop(i)
	l.wait(r, false)
	r.slot = true
	return r
}

// next is the place of who gets the next slot, that of the oldest that waits; -1:
// nobody may have it. Of its principal's jobs the oldest of those with the highest
// priority comes to that place, and those that it passes each move to the place of
// the next: nobody else's place changes.
func (l *toolQueue) next() int {
	first, best := -1, -1
	for i, r := range l.queue {
		switch {
		case !r.waiting || !r.served():
		case first < 0:
			if l.urgent == 0 || r.passed == mostPassed {
				return i
			}
			first, best = i, i
		case r.row.Principal == l.queue[first].row.Principal && r.row.Priority.Rank() > l.queue[best].row.Priority.Rank():
			best = i
		}
	}
	if best == first {
		return first
	}
	l.queue[first].passed++
	moves, principal := l.queue[best], l.queue[first].row.Principal
	for i, r := range l.queue[:best+1] {
		if r.waiting && r.row.Principal == principal && r.served() {
			l.queue[i], moves = moves, r
		}
	}
	return first
}

// drop takes one out of the queue: the first, as mostly, at no cost.
func (l *toolQueue) drop(i int) {
	if i > 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		return
	}
	l.queue[0] = nil
	l.queue = l.queue[1:]
}

// served reports whether those who execute the job's tool now do the jobs of its
// principal. A tool whose workers have left may be somebody else's since.
func (r *run) served() bool { return !r.remote() || r.tool.May(r.row.Principal) }

// leave takes a job out of the queue: at once from the records, from memory when
// enough have gone that it costs each of them little.
func (l *toolQueue) leave(r *run) {
	l.wait(r, false)
	if l.left++; 2*l.left > len(l.queue) {
		l.queue = slices.DeleteFunc(l.queue, func(w *run) bool { return !w.waiting })
		l.left = 0
	}
}

// tidy forgets a tool queue that nobody uses. Called with e.mu.
func (e *Engine) tidy(t *tool.Tool) {
	key := keyOf(t)
	if l := e.toolQueues[key]; l.running == 0 && l.waiting() == 0 {
		delete(e.toolQueues, key)
	}
}
