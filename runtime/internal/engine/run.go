package engine

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/job/family"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/tracing"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of a job's events that are not yet durable.
const (
	maxQueuedEvents = 1024    // as many as a fast tool emits during one commit
	maxQueuedBytes  = 1 << 20 // of their payloads
)

// Bounds of what a tool returns.
const (
	maxPayload = 512 << 10      // bytes of one event
	maxResult  = tool.MaxResult // bytes, in chunks
)

// abandonAfter is how long a tool may take to return after its job has ended.
const abandonAfter = 5 * time.Second

// definition is the part of a job that does not change once the run is in the jobTable.
type definition struct {
	row     store.Job // shared with the store: not changed
	tool    *tool.Tool
	metrics *metrics.Tool
	common  store.JobContext
	span    *tracing.Span // of the job; nil: no spans
	created time.Time

	catalog *catalog.Snapshot // the tools that the job can call
	roles   []string          // of the principal at the submit of the root job; nil: not known
	barred  []arcp.SessionID  // must not answer the job's gates, nor must its own session
	trust   arcp.TrustLevel   // of the principal at the submit of the root job
	maxJobs int               // of the principal at the submit of the root job; 0: the engine's default

	identity arcp.Raw // Submit.Identity of the root job; empty: it was submitted without one, or in an earlier process

	maxRuntime                               time.Duration
	retry                                    tool.Retry
	restoredFrom                             *arcp.RestoredFrom // the first attempt continues from this checkpoint; nil: from the start
	direct, strictCancel, cancelOnDisconnect bool
	metricEvents                             bool // the job has the metrics of the runtime as events

	position family.Position
}

// run is a job that has not ended. While an attempt runs, or a command is applied, the run has a
// supervisor, which owns the members that no lock guards. A run has one supervisor at a time.
type run struct {
	e *Engine
	definition

	// Changed by the supervisor. mu guards the list of questions, their rows and whether they are
	// closed, and the children of the ledger: other goroutines read these. The saved revisions are
	// only the supervisor's and, during a commit, the committer's.
	questions jobQuestions
	ledger    family.Ledger
	planned   *plannedJob // of a schedule; nil: the job is none

	// Guarded by Engine.mu.
	queueEntry
	entry tableEntry

	wakec chan struct{} // buffered 1: there is input for the supervisor
	done  completion

	// Owned by the supervisor.
	times       jobTimes
	state       arcp.JobState // when no attempt runs
	gauge       stateGauge
	lastJSeq    uint64 // position of the last event in the job's log
	progress    progressState
	checkpoints *checkpointSlots // nil: none was saved or read
	attempt     uint32

	mu         sync.Mutex // guards the members below
	lifecycle  lifecycle
	current    *supervisor // nil: there is none
	commands   commandQueue
	timers     jobTimers
	authority  jobAuthority
	interrupts interrupts
	inputs     clientStreams
	creating   map[arcp.JobID]chan struct{} // children that are being created; the channel is closed when it is decided
}

// completion has the outcome of a job for a caller in this process that waits for it: the parent of a
// child, or RunCleanupTool.
type completion struct {
	donec   chan struct{} // closed when no supervisor follows; nil: no caller waits
	outcome *job.Outcome  // written before donec is closed; nil: this process has not decided it
}

// commandQueue has the commands that no supervisor has handled yet. wanted says that a supervisor starts
// as soon as the lifecycle permits it.
type commandQueue struct {
	list   []command
	wanted bool
}

// jobTimers wake a job without a supervisor. A nil timer was never set.
type jobTimers struct {
	attempt  *time.Timer // the next attempt is due
	deadline *time.Timer // the maximum runtime is over, or a question or a lease ends

	next time.Time // when the next attempt is due
	set  time.Time // when attempt was set
}

func (t *jobTimers) stop() {
	for _, t := range [...]*time.Timer{t.attempt, t.deadline} {
		if t != nil {
			t.Stop()
		}
	}
}

func newRun(e *Engine, t *tool.Tool) *run {
	r := &run{e: e, definition: definition{tool: t, metrics: e.cfg.Metrics.Tool(metricName(t))}, attempt: 1, state: arcp.StateAccepted,
		authority: jobAuthority{loadedAt: time.Now()}, wakec: make(chan struct{}, 1)}
	r.questions.mu = &r.mu
	return r
}

// metricName returns the value of the metric label tool: the built-in tools have one in common.
func metricName(t *tool.Tool) string {
	if t.Source == tool.SourceBuiltin {
		return metrics.Builtin
	}
	return t.Name
}

// builtin reports whether the tool is built-in. Limits does not count the job, and the job emits no
// job.started.
func (d *definition) builtin() bool { return d.tool.Source == tool.SourceBuiltin }

// runsInline reports whether the tool runs before the job is claimed: it is built-in and changes
// nothing, so the claim may be a repetition.
func (d *definition) runsInline() bool { return d.builtin() && d.tool.SideEffect.ReadOnly() }

// runsAsCall reports whether the job runs as a Call: its tool is built-in, changes something
// and returns at once.
func (d *definition) runsAsCall() bool {
	return d.builtin() && !d.tool.SideEffect.ReadOnly() && d.tool.SideEffect != tool.SideEffectExternal
}

// runsOnWorker reports whether a worker executes the job. Its attempts may be lost while this process
// runs.
func (d *definition) runsOnWorker() bool { return d.tool.Source == tool.SourceWorker }

// waitsForServer reports whether the server of the tool has not been reached since the start of the runtime.
func (d *definition) waitsForServer() bool { return !d.tool.Gate.IsOpen() }

// hasWorker reports whether a connected worker accepts the job, if the job needs one.
func (d *definition) hasWorker() bool { return !d.runsOnWorker() || d.tool.VisibleTo(d.row.Principal) }

// endless reports whether a shutdown does not wait for the job: it does not end by itself, or its
// built-in tool waits for an answer and is rerun at the next start.
func (d *definition) endless() bool {
	return d.tool.Endless || d.builtin() && d.tool.Recovery == tool.RecoveryRerun && d.tool.Limits.Timeout <= 0
}

// isSchedule reports whether the job is a schedule: its tool is never called.
func (d *definition) isSchedule() bool { return d.builtin() && d.tool.Name == ScheduleTool }

// mayRepeat reports whether a submit may be the repetition of an earlier one.
func (d *definition) mayRepeat(s *Submit) bool { return d.row.IdempotencyKey != "" || s.Recheck }

// startsAfterWrite reports whether the tool is called only after its start is durable, so that a restart
// does not repeat the call.
func (d *definition) startsAfterWrite() bool {
	return d.tool.Recovery == tool.RecoveryFail && !d.tool.SideEffect.ReadOnly()
}

// startsBeforeDurable reports whether the tool of a submit starts before the claim is durable. The tool
// has no side effect, the submit cannot be a repetition, the job begins at the start and needs no
// credentials, and a slot is free for it.
func (r *run) startsBeforeDurable(s *Submit) bool {
	return r.tool.SideEffect.ReadOnly() && !r.mayRepeat(s) && s.firstCheckpoint == nil &&
		!r.credentials().provisioned() && r.holdsSlot()
}

// launch starts the supervisor if there is none. Before the claim is placed it only marks the run, and
// markPlaced starts the supervisor.
func (r *run) launch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commands.wanted = true
	r.launchLocked()
}

func (r *run) launchLocked() {
	if !r.commands.wanted || !r.lifecycle.startable() || r.current != nil {
		return
	}
	s := newSupervisor(r)
	r.current, r.commands.wanted = s, false
	r.e.wg.Add(1)
	r.e.pool.Run(s.supervise)
}

// markPlaced records that the claim is in the log.
func (r *run) markPlaced() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lifecycle.apply(onPlaced)
	r.launchLocked()
}

// markAccepted records that the claim is durable, and starts the job if start is set.
func (r *run) markAccepted(start bool) {
	r.mu.Lock()
	r.lifecycle.apply(onDurable)
	var due time.Time
	if start && r.current == nil { // a supervisor sets its own timer
		due = r.leaseOrQuestionDue()
	}
	r.launchLocked()
	r.mu.Unlock()
	switch {
	case start && r.holdsSlot():
		r.launch()
	case start && !due.IsZero():
		r.setTimers(time.Time{}, due)
	}
	r.wake()
}

// markSlotGranted records that the job got a slot of its tool.
func (r *run) markSlotGranted() {
	r.mu.Lock()
	ready := r.lifecycle == lifeAccepted
	r.mu.Unlock()
	if ready {
		r.launch()
	}
	r.wake()
}

func (r *run) holdsSlot() bool {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.slot == slotHeld
}

// discard removes a job whose claim was refused.
func (r *run) discard() {
	r.mu.Lock()
	r.lifecycle.apply(onRefused)
	launched := r.current != nil
	r.mu.Unlock()
	if launched {
		r.wake()
		return
	}
	r.e.release(r)
	r.releaseSlot()
	r.rejectUnhandled()
}

// rejectUnhandled rejects the commands that no supervisor will handle.
func (r *run) rejectUnhandled() {
	r.mu.Lock()
	var list []command
	if r.current == nil {
		list, r.commands.list = r.commands.list, nil
	}
	stopped := r.lifecycle == lifeStopped
	r.mu.Unlock()
	for _, c := range list {
		c.rejected(r.e, stopped)
	}
}

// stop ends the supervisor without ending the job. No other supervisor follows.
func (r *run) stop() {
	r.mu.Lock()
	r.lifecycle.apply(onStop)
	r.timers.stop()
	r.mu.Unlock()
	r.wake()
}

func stopEndless(r *run) {
	if r.endless() {
		r.stop()
	}
}

// stopUnsupervised stops a job without a supervisor. A supervisor completes the command that it applies.
func (r *run) stopUnsupervised() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		r.lifecycle.apply(onStop)
		r.timers.stop()
	}
}

// currentLifecycle returns the lifecycle of the run, on any goroutine.
func (r *run) currentLifecycle() lifecycle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lifecycle
}

func (r *run) stopped() bool { return r.currentLifecycle() == lifeStopped }

func (r *run) supervised() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current != nil
}

// wake makes the supervisor run another turn.
func (r *run) wake() {
	select {
	case r.wakec <- struct{}{}:
	default:
	}
}

// wakeTool wakes a tool that waits for room to emit.
func (r *run) wakeTool() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		r.current.events.space.Broadcast()
	}
}

// wakeOrLaunch wakes or starts a supervisor, which applies due timers and queued commands.
func (r *run) wakeOrLaunch() {
	r.launch()
	r.wake()
}

// command is a request of a client, of the tool or of the runtime to change a job. The
// job's supervisor applies it.
type command interface {
	// apply changes the job. A command that is answered when its change is durable
	// joins the pending write. A command that is answered after the job's end joins
	// pendingWrite.afterEnd.
	apply(s *supervisor, now time.Time)
	// committed answers a command that has joined a write of jw; err is the write's error.
	committed(jw *jobWriter, err error)
	// rejected answers a command that comes after the end of the job, or of the runtime
	// if stopped is set.
	rejected(e *Engine, stopped bool)
}

// noAnswer is embedded in commands without an answer.
type noAnswer struct{}

func (noAnswer) committed(*jobWriter, error) {}
func (noAnswer) rejected(*Engine, bool)      {}

// toolReply is embedded in commands for which a goroutine of the tool waits.
type toolReply struct {
	done chan error // buffered 1; gets one result
}

func newToolReply() toolReply { return toolReply{make(chan error, 1)} }

func (r toolReply) committed(_ *jobWriter, err error) { r.done <- endedIf(err) }
func (r toolReply) rejected(*Engine, bool)            { r.done <- errEnded }

// endedIf returns errEnded if a write has failed.
func endedIf(err error) error {
	if err != nil {
		return errEnded
	}
	return nil
}

// post queues a command and starts a supervisor if there is none. It reports false if the job accepts
// no commands any more.
func (r *run) post(c command) bool {
	r.mu.Lock()
	if !r.lifecycle.open() {
		r.mu.Unlock()
		return false
	}
	r.commands.list = append(r.commands.list, c)
	r.commands.wanted = true
	r.launchLocked()
	r.mu.Unlock()
	r.wake()
	return true
}

// stateGauge counts a job in the gauge of its state.
type stateGauge struct {
	current prometheus.Gauge // nil: the job is not counted
}

// set moves the job to the gauge of a state; a job that has ended to none.
func (g *stateGauge) set(m *metrics.Metrics, to arcp.JobState) {
	if g.current != nil {
		g.current.Dec()
	}
	if g.current = nil; !to.Terminal() {
		g.current = m.JobState(to)
		g.current.Inc()
	}
}

// setTimers sets the timers of a job without a supervisor: next is when an attempt is due, end
// when a deadline of the job is; zero: no timer.
func (r *run) setTimers(next, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lifecycle.isFinal() || r.lifecycle == lifeStopped {
		return
	}
	if !next.IsZero() {
		r.timers.attempt = time.AfterFunc(time.Until(next), r.resume)
		r.timers.next, r.timers.set = next, time.Now()
	}
	if !end.IsZero() {
		if r.timers.deadline != nil {
			r.timers.deadline.Stop()
		}
		r.timers.deadline = time.AfterFunc(time.Until(end), r.wakeOrLaunch)
	}
}

// deadline returns when the job's maximum runtime is over; zero: never, or the job has not
// started.
func (r *run) deadline() time.Time { return r.progress.Deadline(r.maxRuntime) }

// leaseOrQuestionDue returns when something is due that does not depend on an attempt: a question
// expires, or a lease ends.
func (r *run) leaseOrQuestionDue() time.Time {
	return earliest(r.questions.Due(), r.leaseDeadline(), r.authority.wallTime(r.nextGrantEnd()))
}

// leaseDeadline returns when the job ends because its lease ends; zero: at its next operation.
func (r *run) leaseDeadline() time.Time {
	if !r.e.cfg.PreemptExpired {
		return time.Time{}
	}
	return r.authority.wallTime(r.authority.EndsAt())
}

// nextGrantEnd returns when the next permission lease expires whose expiry is not counted, by the lease
// clock; zero: there is none.
func (r *run) nextGrantEnd() time.Time { return r.authority.Grants.NextEnd(r.progress.Swept) }

// releaseSlot releases the slot or the place of a job that has ended, and starts the next job.
func (r *run) releaseSlot() { r.e.startNext(func(q *toolQueues) *run { return q.release(r) }) }
