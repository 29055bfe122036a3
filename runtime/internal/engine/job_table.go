package engine

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
)

// jobTable has the jobs that have not ended, and counts them for the limits. It is
// guarded by Engine.mu, except for concluded.
//
// A job is counted from add until its end is durable, which is before remove. A session
// and a principal have an entry while they have jobs.
type jobTable struct {
	limits       Limits
	shared       func() bool // see Config.Shared
	runs         map[arcp.JobID]*run
	perSession   map[arcp.SessionID]jobList
	perPrincipal map[string]int                 // jobs, not of built-in tools
	perCaller    map[string]int                 // jobs of built-in tools, by principal
	argumentsOf  map[string]int64               // bytes, by principal; not of calls of built-in tools
	schedules    map[string]map[arcp.JobID]*run // by principal
	scheduled    int                            // of all principals
	counted      int                            // jobs that count for Limits.MaxJobs
	arguments    int64                          // bytes, for Limits.MaxArguments
	resting      int                            // jobs that are endless or resting: Engine.Stop does not wait for them

	concluded atomic.Pointer[run] // linked list of jobs whose end is durable and that are still counted
}

func newJobTable(l Limits, shared func() bool) jobTable {
	return jobTable{limits: l, shared: shared, argumentsOf: make(map[string]int64), runs: make(map[arcp.JobID]*run), perSession: make(map[arcp.SessionID]jobList),
		perPrincipal: make(map[string]int), perCaller: make(map[string]int), schedules: make(map[string]map[arcp.JobID]*run)}
}

// tableEntry has the links of a run in the jobTable. It is guarded by Engine.mu, except
// for nextConcluded, which belongs to the list concluded, and handedTo.
type tableEntry struct {
	handedTo      atomic.Pointer[[]arcp.SessionID] // owners after the submitter, the latest last; nil: none
	owner         arcp.SessionID                   // in whose list the run is
	prev, next    *run                             // of the same owner
	releasedc     chan struct{}                    // closed when the run leaves the table; nil: it has no waiter
	concluded     bool                             // the run is not counted any more
	nextConcluded *run
}

func (t *jobTable) add(r *run) {
	r.gauge.set(r.e.cfg.Metrics, r.state)
	t.runs[r.row.ID] = r
	if r.endless() {
		t.resting++
	}
	r.entry.owner = r.owner()
	t.link(r)
	t.count(r, 1)
}

// link adds a run to the list of its owner.
func (t *jobTable) link(r *run) {
	l := t.perSession[r.entry.owner]
	l.add(r)
	t.perSession[r.entry.owner] = l
}

// unlink removes a run from the list of its owner.
func (t *jobTable) unlink(r *run) {
	l := t.perSession[r.entry.owner]
	if l.remove(r); l.n == 0 {
		delete(t.perSession, r.entry.owner)
	} else {
		t.perSession[r.entry.owner] = l
	}
}

// move changes the owner of a run, unless the run has left the table.
func (t *jobTable) move(r *run, to arcp.SessionID) {
	t.uncountConcluded()
	if t.runs[r.row.ID] != r {
		return
	}
	counted := !r.entry.concluded
	if counted {
		t.countForSession(r, -1)
	}
	t.unlink(r)
	r.entry.owner = to
	t.link(r)
	if counted {
		t.countForSession(r, 1)
	}
}

func (t *jobTable) remove(r *run) {
	t.uncountConcluded()
	delete(t.runs, r.row.ID)
	if r.entry.releasedc != nil {
		close(r.entry.releasedc)
	}
	if !r.entry.concluded {
		t.count(r, -1)
	}
	t.unlink(r)
	t.markActive(r)
	if r.endless() {
		t.resting--
	}
}

// markResting records that a run is between two attempts. An endless run is counted as resting anyway.
func (t *jobTable) markResting(r *run) {
	if r.slot.apply(onRest) && !r.endless() {
		t.resting++
	}
}

// markActive records that a run is not between two attempts any more.
func (t *jobTable) markActive(r *run) {
	if r.slot.apply(onResume) && !r.endless() {
		t.resting--
	}
}

// active reports whether an attempt of a job may run.
func (t *jobTable) active(id arcp.JobID) bool {
	r := t.runs[id]
	return r != nil && r.slot != slotResting
}

// isCalled reports whether a job was created by a running job. A schedule creates jobs, and does not run.
func (t *jobTable) isCalled(r *run) bool {
	parent := t.runs[r.row.Parent]
	return parent != nil && !parent.isSchedule()
}

// markConcluded records that the end of a job is durable, before a client gets the end: the client may
// submit the next job at once. It runs without Engine.mu on the committer's goroutine, which must not
// wait.
func (t *jobTable) markConcluded(r *run) {
	for {
		r.entry.nextConcluded = t.concluded.Load()
		if t.concluded.CompareAndSwap(r.entry.nextConcluded, r) {
			return
		}
	}
}

// uncountConcluded stops counting the concluded jobs.
func (t *jobTable) uncountConcluded() {
	if t.concluded.Load() == nil {
		return
	}
	for r := t.concluded.Swap(nil); r != nil; {
		next := r.entry.nextConcluded
		r.entry.concluded, r.entry.nextConcluded = true, nil
		t.count(r, -1)
		r = next
	}
}

// count adds d jobs like r to the counts for the limits.
func (t *jobTable) count(r *run, d int) {
	n := int64(d * len(r.row.Arguments))
	t.arguments += n
	if !r.builtin() || r.isSchedule() {
		addCount(t.argumentsOf, r.row.Principal, n)
	}
	if r.isSchedule() {
		t.countSchedule(r, d)
		return
	}
	if r.builtin() {
		addCount(t.perCaller, r.row.Principal, d)
		return
	}
	t.counted += d
	addCount(t.perPrincipal, r.row.Principal, d)
	t.countForSession(r, d)
}

// countForSession adds d schedules, or d jobs that count for Limits.MaxJobsPerSession, to the counts of the
// owner of a run.
func (t *jobTable) countForSession(r *run, d int) {
	l := t.perSession[r.entry.owner]
	if r.isSchedule() {
		l.schedules += d
	} else {
		l.counted += d
	}
	t.perSession[r.entry.owner] = l
}

// countSchedule adds or, with d of -1, removes a schedule.
func (t *jobTable) countSchedule(r *run, d int) {
	t.countForSession(r, d)
	t.scheduled += d
	r.e.cfg.Metrics.Schedules.Add(float64(d))
	owned := t.schedules[r.row.Principal]
	switch {
	case d < 0:
		delete(owned, r.row.ID)
	case owned == nil:
		t.schedules[r.row.Principal] = map[arcp.JobID]*run{r.row.ID: r}
	default:
		owned[r.row.ID] = r
	}
	if len(owned) == 0 && d < 0 {
		delete(t.schedules, r.row.Principal)
	}
}

// schedulesOf returns the schedules of a principal whose end is not durable, or the one with an id that is
// not empty.
func (t *jobTable) schedulesOf(principal string, id arcp.JobID) []*run {
	t.uncountConcluded()
	owned := t.schedules[principal]
	if id == "" {
		return slices.Collect(maps.Values(owned))
	}
	if r := owned[id]; r != nil {
		return []*run{r}
	}
	return nil
}

// unconcluded returns the jobs whose end is not durable.
func (t *jobTable) unconcluded() []*run {
	t.uncountConcluded()
	list := make([]*run, 0, len(t.runs))
	for _, r := range t.runs {
		if !r.entry.concluded {
			list = append(list, r)
		}
	}
	return list
}

// limitError is the refusal of a job beyond a limit; name is the label of the metric.
type limitError struct {
	name string
	err  *arcp.Error
}

// maxBuiltins bounds the jobs of built-in tools that a principal has at once, including jobs that wait
// for an answer. Limits does not count them.
const maxBuiltins = 4096

// smallCall is the size of arguments, in bytes, up to which a built-in tool can be called
// when MaxArguments is reached: calls such as jobs.delete must still work.
const smallCall = 4 << 10

// check refuses a job beyond the limits; nil: it may be added. maxJobs is the limit of
// the principal; 0: Limits.MaxJobsPerPrincipal.
func (t *jobTable) check(r *run, maxJobs int) *limitError {
	t.uncountConcluded()
	if r.isSchedule() {
		if len(t.schedules[r.row.Principal]) >= maxSchedules {
			return &limitError{"schedules_per_principal", arcp.Errorf(arcp.CodeResourceExhausted,
				"%d schedules have not ended; cancel one", maxSchedules)}
		}
		if limit := t.limits.MaxJobs; limit > 0 && t.scheduled >= limit {
			return &limitError{"schedules", arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d schedules reached", limit).RetryAfter(retryAfter)}
		}
		return t.checkArguments(r)
	}
	if r.builtin() {
		if t.perCaller[r.row.Principal] >= maxBuiltins {
			return &limitError{"builtins_per_principal", arcp.Errorf(arcp.CodeResourceExhausted,
				"%d calls of built-in tools have not ended", maxBuiltins).RetryAfter(retryAfter)}
		}
		return t.checkArguments(r)
	}
	if err := t.checkCounts(r.row.Principal, r.row.Session, maxJobs); err != nil {
		return err
	}
	return t.checkArguments(r)
}

// checkCounts refuses a job of a tool that is not built in, if the limits of jobs are reached.
func (t *jobTable) checkCounts(principal string, session arcp.SessionID, maxJobs int) *limitError {
	perPrincipal, setting := t.limits.MaxJobsPerPrincipal, "max-jobs-per-principal"
	switch {
	case maxJobs > 0:
		perPrincipal, setting = maxJobs, "limits.jobs of the principal"
	case t.limits.JobShare > 0 && t.shared():
		perPrincipal, setting = t.limits.JobShare, "its share of max-jobs; cancel some, or set max-jobs-per-principal"
	}
	for _, l := range [...]struct {
		name, setting string
		n, limit      int
	}{
		{"jobs", "max-jobs", t.counted, t.limits.MaxJobs},
		{"jobs_per_principal", setting, t.perPrincipal[principal], perPrincipal},
		{"jobs_per_session", "max-jobs-per-session", t.perSession[session].counted, t.limits.MaxJobsPerSession},
	} {
		if l.limit > 0 && l.n >= l.limit {
			return &limitError{l.name, arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d %s reached (%s)", l.limit,
				strings.ReplaceAll(l.name, "_", " "), l.setting).RetryAfter(retryAfter)}
		}
	}
	return nil
}

// checkArguments refuses a job if its arguments and the arguments of all active jobs together
// exceed MaxArguments, or those of its principal the share.
func (t *jobTable) checkArguments(r *run) *limitError {
	n, limit, share := int64(len(r.row.Arguments)), t.limits.MaxArguments, t.limits.ArgumentShare
	if r.builtin() && !r.isSchedule() && n <= smallCall {
		return nil
	}
	if limit > 0 && n > limit {
		err := arcp.Errorf(arcp.CodeResourceExhausted,
			"the arguments have %d bytes; those of all jobs together may have %d (max-arguments): send less, for example the reference of an artifact", n, limit)
		err.Retryable = false
		return &limitError{"arguments", err}
	}
	if limit > 0 && t.arguments+n > limit {
		return &limitError{"arguments", arcp.Errorf(arcp.CodeResourceExhausted,
			"limit of %d bytes of arguments of jobs that have not ended reached (max-arguments)", limit).RetryAfter(retryAfter)}
	}
	if own := t.argumentsOf[r.row.Principal]; share > 0 && own > 0 && own+n > share && t.shared() {
		return &limitError{"arguments_per_principal", arcp.Errorf(arcp.CodeResourceExhausted,
			"limit of %d bytes of arguments of jobs of a principal that have not ended reached (its share of max-arguments; cancel some)",
			share).RetryAfter(retryAfter)}
	}
	return nil
}

// jobList has the jobs of a session, linked through their table entries.
type jobList struct {
	first     *run
	n         int
	counted   int // jobs that count for Limits.MaxJobsPerSession
	schedules int
}

func (l *jobList) add(r *run) {
	if r.entry.next = l.first; l.first != nil {
		l.first.entry.prev = r
	}
	l.first = r
	l.n++
}

// all returns the runs of the list, the newest first.
func (l jobList) all() iter.Seq[*run] {
	return func(yield func(*run) bool) {
		for r := l.first; r != nil && yield(r); r = r.entry.next {
		}
	}
}

func (l *jobList) remove(r *run) {
	if r.entry.prev != nil {
		r.entry.prev.entry.next = r.entry.next
	} else {
		l.first = r.entry.next
	}
	if r.entry.next != nil {
		r.entry.next.entry.prev = r.entry.prev
	}
	r.entry.prev, r.entry.next = nil, nil
	l.n--
}

func addCount[K comparable, N int | int64](m map[K]N, k K, d N) {
	if n := m[k] + d; n == 0 {
		delete(m, k)
	} else {
		m[k] = n
	}
}

// callGroup has the running calls of built-in tools, and the restores of ended jobs that read the
// store. Add is called with Engine.mu while the engine does not drain.
type callGroup struct {
	sync.WaitGroup
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newCallGroup() callGroup {
	ctx, cancel := context.WithCancelCause(context.Background())
	return callGroup{ctx: ctx, cancel: cancel}
}
