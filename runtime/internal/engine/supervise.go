package engine

import (
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/tracing"
	"github.com/arcpd/arcpd/runtime/store"
)

// supervisor is the state of one attempt, or of the time in which commands are applied between two
// attempts. For a job it runs on its own goroutine, which owns the job's machine and its log. A Call
// uses it on the goroutine of the tool, without a machine.
type supervisor struct {
	*run
	attemptClock
	attempt     uint32          // of this supervisor; run.attempt is the next one once it is to begin
	ctx         context.Context // of the tool
	cancel      context.CancelCauseFunc
	timer       *time.Timer
	attemptSpan *tracing.Span  // of the attempt; nil: it has not started, or there are no spans
	started     time.Time      // when the attempt started; zero: it has not
	checkpoint  job.Checkpoint // the attempt continues from it; its N is 0: none

	call  toolCall
	write jobWriter
	attemptEnd

	// Shared with the tool, guarded by run.mu.
	events     eventQueue
	requests   checkpointRequests
	heartbeats heartbeats
	notes      noteLog
	end        signal // the attempt and this supervisor have ended

	workerWait  workerWait
	silentSince time.Time // when missed heartbeats blocked the job; zero: it does not wait for one
}

// attemptEnd says why a supervisor ends.
type attemptEnd struct {
	exit       exit
	retryCause failure                   // with exitRetry
	outcome    *job.Outcome              // with exitEnd
	reference  *arcp.JobCompletedPayload // to the result in chunks of the tool; nil: there is none
}

// code returns the code of the failure of the attempt; empty: it has not failed.
func (ae *attemptEnd) code() arcp.Code {
	switch {
	case ae.outcome != nil:
		return outcomeCode(ae.outcome)
	case ae.exit == exitRetry:
		return ae.retryCause.code
	}
	return ""
}

// newSupervisor returns the supervisor of the current attempt of a run.
func newSupervisor(r *run) *supervisor {
	s := &supervisor{run: r, attempt: r.attempt}
	s.events.space.L = &r.mu
	s.write = jobWriter{run: r, attempt: r.attempt, end: &s.attemptEnd, queue: &s.events, notes: &s.notes}
	return s
}

func (s *supervisor) supervise() {
	s.machine = *job.Restore(s.spec(&s.e.cfg, s.progress.Started), s.state)
	s.due = s.machine.Deadline()
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.questions.BeginAttempt()
	s.takeTurns()
}

// takeTurns supervises until the supervisor ends, or until another goroutine does so.
func (s *supervisor) takeTurns() {
	for s.turn() {
		if s.call.early && !s.runEarlyTool() {
			return
		}
	}
	s.finish()
	s.e.wg.Done()
}

// spec describes the job to its machine. startedAt is when the first attempt started; zero: it has not.
func (d *definition) spec(cfg *Config, startedAt time.Time) job.Spec {
	return job.Spec{
		MaxRuntime:     d.maxRuntime,
		Heartbeat:      cfg.Heartbeat,
		BlockOnSilence: cfg.Block,
		SilenceWindow:  cfg.ResumeWindow,
		StartedAt:      startedAt,
		ReportSilence:  d.runsOnWorker(),
	}
}

// turn handles the present input, makes the next write and waits for more input. It reports false when
// the supervisor ends.
func (s *supervisor) turn() bool {
	in, ok := s.collectInput()
	if !ok {
		return false
	}
	now := time.Now()
	changed := s.handleInput(now, &in)
	if s.advance(now, changed); s.started.IsZero() && s.holdsSlot() {
		s.startAttempt(now)
	}
	s.applyOutput(now, s.machine.TakeOutput(), in.accepted)
	if s.call.early {
		return true // the tool may return before the claim is in the log
	}
	if s.outcome == nil || len(s.write.commands)+len(s.write.calls) > 0 {
		s.write.placeClaim()
	}
	// Until the claim is durable events stay in the queue, unless a command waits for
	// its answer or the job ends: then all are written at once, directly behind the claim.
	if in.accepted || s.outcome != nil || len(s.write.commands) > 0 {
		s.beginEnd(now)
		w, later, err := s.write.next(now)
		switch {
		case later:
			return true
		case w != nil || err != nil:
			return s.write.commit(w, err) && s.continueAfterWrite()
		}
		s.write.answerCommands(nil)
	}
	if in.accepted && s.started.IsZero() && !s.holdsSlot() {
		s.exit.set(exitIdle)
		return false
	}
	s.wait(now, in.accepted)
	return true
}

// beginEnd prepares the write with which the job or the attempt ends.
func (s *supervisor) beginEnd(now time.Time) {
	switch {
	case s.outcome != nil:
		s.questioner().withdrawAll(now)
		s.mu.Lock()
		s.write.dropRotations(&s.events)
		s.mu.Unlock()
	case s.exit != exitNone:
		s.progress.endBlock(now)
	}
}

// continueAfterWrite reports whether the supervisor continues after a write. It calls the tool if the
// call waits for the write.
func (s *supervisor) continueAfterWrite() bool {
	if s.exit != exitNone {
		return false
	}
	if !s.started.IsZero() && !s.call.begun {
		s.startTool()
	}
	return true
}

// postpone queues a command again if an attempt is about to start: the command of a client that has
// read job.accepted may arrive before the first turn. It reports false if no attempt is about to start.
func (s *supervisor) postpone(c command) bool {
	if !s.started.IsZero() || s.machine.State().Terminal() || s.progress.Cancel != nil || !s.holdsSlot() {
		return false
	}
	if !s.post(c) {
		c.rejected(s.e, s.stopped())
	}
	return true
}

// turnInput is the input since the last turn.
type turnInput struct {
	commands                    []command
	manualHeartbeats, heartbeat bool
	returned                    bool
	leaseLapsed                 bool
	pausing                     bool
	accepted                    bool // the claim is durable
}

// collectInput returns the input since the last turn. ok is false if there is no job, or if the runtime
// stops.
func (s *supervisor) collectInput() (in turnInput, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifecycle.aborted() {
		return in, false // close rejects the commands
	}
	in = turnInput{
		commands:         s.commands.list,
		manualHeartbeats: s.heartbeats.manual,
		heartbeat:        s.heartbeats.received,
		returned:         s.call.returned && !s.events.closed,
		leaseLapsed:      s.authority.Lapsed,
		pausing:          s.events.pausing(),
		accepted:         s.lifecycle == lifeAccepted,
	}
	s.commands.list, s.heartbeats, s.call.returned = nil, heartbeats{}, false
	return in, true
}

// handleInput passes the input to the machine, and reports whether there was any.
func (s *supervisor) handleInput(now time.Time, in *turnInput) bool {
	if in.manualHeartbeats {
		s.machine.SetManualHeartbeats(now)
	}
	if in.heartbeat {
		s.machine.Heartbeat(now)
	}
	if in.pausing {
		if s.machine.Pause(now); s.machine.State() == arcp.StatePaused {
			s.exit.set(exitPause)
		}
	}
	waitChanged := applyWorkerWait(s, now)
	switch {
	case in.leaseLapsed: // has precedence over the tool's result
		s.endExpired(now)
	case in.returned:
		s.handleReturn(now)
	}
	for _, c := range in.commands {
		c.apply(s, now)
	}
	left := in.accepted && leaveAtGate(s, now)
	return left || waitChanged || in.manualHeartbeats || in.heartbeat || in.pausing || in.returned || in.leaseLapsed || len(in.commands) > 0
}

// handleReturn passes the tool's result to the machine.
func (s *supervisor) handleReturn(now time.Time) {
	switch {
	case s.call.lostReason != "":
		s.loseAttempt(now, arcp.Errorf(arcp.CodeAborted, "%s", s.call.lostReason))
	case s.call.err != nil:
		s.progress.toolError = toolError{err: s.call.err, logText: s.call.logText}
		s.failAttempt(now, s.call.err)
	default:
		s.completeAttempt(now)
	}
}

// completeAttempt completes the job with the value or the result in chunks of the tool.
func (s *supervisor) completeAttempt(now time.Time) {
	s.mu.Lock()
	reference, err := s.events.resultReference(s.call.value)
	s.mu.Unlock()
	if err != nil {
		s.failAttempt(now, err)
		return
	}
	s.reference = reference
	s.machine.Complete(now, s.call.value)
}

// advance applies the deadlines that have passed: of the machine, questions, leases and the tool's time
// limit. changed says that the machine's deadline may have moved.
func (s *supervisor) advance(now time.Time, changed bool) {
	if changed {
		s.due = s.machine.Deadline()
	}
	if hasPassed(s.due, now) {
		s.machine.Advance(now)
		if err := s.machine.TakeSilenceError(); err != nil {
			s.loseAttempt(now, err)
		}
		s.due = s.machine.Deadline()
	}
	if hasPassed(s.questions.Due(), now) {
		s.questioner().advance(now)
	}
	if hasPassed(s.leaseDeadline(), s.authority.now()) {
		s.endExpired(now)
	}
	if hasPassed(s.nextGrantEnd(), s.authority.now()) {
		s.sweepGrants()
	}
	advanceWorkerWait(s, now)
	if s.exit != exitRetry && hasPassed(s.limit.End(), now) {
		s.failAttempt(now, arcp.Errorf(arcp.CodeDeadlineExceeded, "%s ran longer than its limit of %s (limits.timeout_ms)", s.tool.Name, s.tool.Limits.Timeout))
	}
}

// applyOutput applies the output of the machine, except that it writes nothing.
func (s *supervisor) applyOutput(now time.Time, out job.Output, accepted bool) {
	if out.State != "" {
		s.write.newState = out.State
		s.gauge.set(s.e.cfg.Metrics, out.State)
		setSilent(s, now, out.State)
	}
	if out.Started {
		s.emitStarted(now)
	}
	if out.Heartbeat != nil && accepted {
		ev := s.event(arcp.JobHeartbeat, now, arcp.PriorityLow, out.Heartbeat)
		s.e.cfg.Log.Append(&store.Write{Ops: []store.Op{&store.DeliverUnlogged{Job: s.row.ID, Attempt: s.attempt, Event: ev}}, NoSync: true}, nil)
	}
	if out.Stop != nil {
		s.cancel(out.Stop)
		s.mu.Lock()
		s.events.stop(out.Stop)
		s.mu.Unlock()
		s.limit = job.TimeLimit{} // replaced by the machine's deadline of the stop
	}
	if out.Terminal != nil {
		s.outcome = out.Terminal
		if s.outcome.State == arcp.StateCompleted {
			s.outcome.Reference = s.reference
		}
		s.exit.set(exitEnd)
	}
}

// setSilent records whether missed heartbeats block the job in its new state.
func setSilent(s *supervisor, now time.Time, state arcp.JobState) {
	silent := state == arcp.StateBlocked && !s.questions.Blocked()
	if silent != s.silentSince.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silentSince = (time.Time{}); silent {
		s.silentSince = now
	}
}

// wait blocks until there is input, or a deadline has passed.
func (s *supervisor) wait(now time.Time, accepted bool) {
	deadline := earliest(s.due, s.limit.End(), workerWaitDue(s), s.leaseOrQuestionDue())
	if !accepted || deadline.IsZero() {
		<-s.wakec // the result of the claim always wakes the supervisor
		return
	}
	if s.timer == nil {
		s.timer = time.NewTimer(deadline.Sub(now))
	} else {
		s.timer.Reset(deadline.Sub(now))
	}
	select {
	case <-s.wakec:
	case <-s.timer.C:
	}
}

// finish releases the job, or leaves it until its next attempt.
func (s *supervisor) finish() {
	s.attemptSpan.End(s.attemptEnd.code())
	s.write.placeClaim()
	rests, stopped, rejected := s.close()
	if s.timer != nil {
		s.timer.Stop()
	}
	if stopped {
		s.cancel(ErrStopping)
	} else {
		s.cancel(errEnded)
	}
	if rests {
		s.suspend()
		return
	}
	s.logEnd()
	s.e.release(s.run)
	for _, c := range rejected {
		c.rejected(s.e, stopped)
	}
	s.finishFamily()
	if s.call.begun && !stopped {
		s.awaitTool()
	}
	s.releaseSlot()
}

// close ends the attempt. Unless the job rests until its next attempt, it also ends the run and returns
// the commands to reject.
func (s *supervisor) close() (rests, stopped bool, rejected []command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stopped = s.lifecycle == lifeStopped
	rests = s.lifecycle.startable() && s.outcome == nil && s.exit != exitNone
	if !rests {
		s.lifecycle.apply(onClosed)
		rejected = slices.Concat(s.write.commands, s.write.afterEnd, s.commands.list)
		s.write.commands, s.write.afterEnd, s.commands.list = nil, nil, nil
	}
	s.events.close()
	s.events.endStreams()
	if !rests || s.exit != exitIdle { // an idle supervisor has run no attempt
		s.inputs.end()
	}
	for _, p := range [...]*pendingCheckpoint{s.write.checkpoint, s.events.checkpoint} {
		if p != nil {
			p.done <- errEnded
		}
	}
	s.write.checkpoint, s.events.checkpoint = nil, nil
	s.end.send()
	return rests, stopped, rejected
}

// errEnded is the cause of a tool's context after its job has ended.
var errEnded = arcp.Errorf(arcp.CodeAborted, "the job has ended")

// awaitTool waits until the tool returns, at most abandonAfter.
func (s *supervisor) awaitTool() {
	s.mu.Lock()
	if s.call.end.sent {
		s.mu.Unlock()
		return
	}
	returned := s.call.end.channel()
	s.mu.Unlock()
	t := time.NewTimer(abandonAfter)
	defer t.Stop()
	select {
	case <-returned:
	case <-s.e.shutdown.quitc:
	case <-t.C:
		s.metrics.Abandoned.Inc()
		s.e.cfg.Logger.Warn().Str("job_id", string(s.row.ID)).Str("tool", s.row.Agent).
			Msg("tool ignored the end of its job and was abandoned")
	}
}

// logEnd logs and counts a finished job.
func (s *supervisor) logEnd() {
	if s.outcome == nil {
		return
	}
	now := time.Now()
	if !s.started.IsZero() {
		s.metrics.Exec.Observe(now.Sub(s.started).Seconds())
	}
	s.logFinished(&s.e.cfg, s.outcome, now)
}

// endSpan ends the span of the job.
func (r *run) endSpan(o *job.Outcome) {
	if r.span == nil {
		return
	}
	r.mu.Lock()
	expiresAt, budget := r.authority.Lease.ExpiresAt(), r.authority.Budget.JSON()
	r.mu.Unlock()
	r.span.SetLease(expiresAt, budget)
	r.span.End(outcomeCode(o))
}

// logFinished logs and counts the end of a job, and ends its span. It is called once for each job.
func (r *run) logFinished(cfg *Config, o *job.Outcome, now time.Time) {
	r.endSpan(o)
	took := now.Sub(r.row.CreatedAt)
	r.metrics.Finished(o.State).Inc()
	r.metrics.Total.Observe(took.Seconds())
	if o.Err != nil {
		cfg.Metrics.Errors.WithLabelValues(string(o.Err.Code)).Inc()
	}
	logOutcome(cfg, r, o, took)
}

// hasPassed reports whether a deadline, if there is one, has passed.
func hasPassed(deadline, now time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }

// earliest returns the first of the times that are not zero; zero: all are.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
