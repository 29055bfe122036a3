package engine

import (
	"container/heap"
	"sync"
	"time"
)

// maxSchedules bounds the schedules of a principal that have not ended.
const maxSchedules = 1000

// maxTimer bounds the time of the scheduler's timer. When the clock is set forward, schedules are at most
// this late.
const maxTimer = time.Minute

// scheduler wakes the schedules whose next occurrence is due, with one timer for all of them. A waiting
// schedule has no goroutine and no slot of a tool. Any goroutine may call the methods; they do not block.
type scheduler struct {
	mu      sync.Mutex
	waiting occurrences
	timer   *time.Timer // nil: it was never set
	stopped bool        // no schedule is woken any more
}

// wakeTime is the time at which a schedule is woken.
type wakeTime struct {
	at    time.Time
	run   *run
	index int // in the heap; -1: not there
}

// set sets the time at which a schedule is woken.
func (sc *scheduler) set(r *run, at time.Time) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.stopped {
		return
	}
	w := &r.planned.wake
	w.at, w.run = at.Round(0), r // by the wall clock, as all of them
	if w.index < 0 {
		heap.Push(&sc.waiting, w)
	} else {
		heap.Fix(&sc.waiting, w.index)
	}
	sc.startTimer(time.Now())
}

// remove forgets a run. It ignores a run that is no schedule.
func (sc *scheduler) remove(r *run) {
	if r.planned == nil {
		return
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if w := &r.planned.wake; w.index >= 0 {
		heap.Remove(&sc.waiting, w.index)
	}
}

// wakesAt returns when a schedule is woken.
func (sc *scheduler) wakesAt(r *run) time.Time {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return r.planned.wake.at
}

// startTimer sets the timer for the earliest schedule. Called with sc.mu.
func (sc *scheduler) startTimer(now time.Time) {
	if len(sc.waiting) == 0 {
		return
	}
	d := min(sc.waiting[0].at.Sub(now.Round(0)), maxTimer)
	if sc.timer == nil {
		sc.timer = time.AfterFunc(d, sc.wake)
	} else {
		sc.timer.Reset(d)
	}
}

// wake wakes the schedules that are due.
func (sc *scheduler) wake() {
	for _, r := range sc.takeDue(time.Now()) {
		r.post(occurrence{})
	}
}

func (sc *scheduler) takeDue(now time.Time) (due []*run) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.stopped {
		return nil
	}
	for len(sc.waiting) > 0 && !now.Before(sc.waiting[0].at) {
		due = append(due, heap.Pop(&sc.waiting).(*wakeTime).run)
	}
	sc.startTimer(now)
	return due
}

// stop ends the scheduler: schedules are left to the next start of the runtime.
func (sc *scheduler) stop() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.stopped = true
	if sc.timer != nil {
		sc.timer.Stop()
	}
}

// occurrences is a heap of schedules by the time at which they are woken.
type occurrences []*wakeTime

func (o occurrences) Len() int           { return len(o) }
func (o occurrences) Less(i, j int) bool { return o[i].at.Before(o[j].at) }

func (o occurrences) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].index, o[j].index = i, j
}

func (o *occurrences) Push(x any) {
	w := x.(*wakeTime)
	w.index = len(*o)
	*o = append(*o, w)
}

func (o *occurrences) Pop() any {
	last := len(*o) - 1
	w := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	w.index = -1
	return w
}
