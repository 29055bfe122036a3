package engine

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/job"
	"github.com/arcpd/arcpd/runtime/metrics"
	"github.com/arcpd/arcpd/runtime/store"
)

// supervisor is the goroutine that owns a running job: its machine, its clock
// and the writes to its log.
type supervisor struct {
	*run
	m       *job.Machine
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	started time.Time
	due     time.Time     // the machine's deadline; zero: none
	toolEnd time.Time     // when the tool's own time limit is over; zero: none
	toolC   chan struct{} // closed when the tool has returned; nil: not started

	pending []*store.Event // of the machine, to go before the tool's
	state   arcp.JobState  // to be written
	outcome *job.Outcome
	spare   []*store.Event
}

func (r *run) supervise() {
	defer r.e.wg.Done()
	s := &supervisor{run: r}
	s.m = job.New(job.Spec{MaxRuntime: r.maxRuntime, Heartbeat: r.e.cfg.Heartbeat, Block: r.e.cfg.Block,
		Window: r.e.cfg.ResumeWindow})
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	if r.row.State == arcp.StateQueued {
		s.m.Queue(r.created)
	}
	for s.turn() {
	}
	s.finish()
}

// turn does one round; it reports false when the supervisor's work is over.
func (s *supervisor) turn() bool {
	posted, accepted, ok := s.inbox()
	if !ok {
		return false
	}
	now := time.Now()
	for _, f := range posted {
		f(s.m, now)
	}
	changed := len(posted) > 0
	if s.toolC == nil && s.holdsSlot() {
		s.m.Start(now) // unless it was cancelled in its queue
		changed = true
	}
	s.advance(now, changed)
	if !s.toolEnd.IsZero() && !now.Before(s.toolEnd) {
		s.m.Fail(now, arcp.Errorf(arcp.CodeDeadlineExceeded, "%s ran longer than its limit of %s", s.tool.Name, s.tool.Limits.Timeout))
	}
	s.absorb(now, s.m.Take(), accepted)
	// Until the claim is durable events stay where they are, unless the attempt
	// is over: then all of the job is written at once, right behind the claim.
	if accepted || s.outcome != nil {
		if w := s.write(now); w != nil {
			return s.commit(w) && s.outcome == nil
		}
	}
	s.wait(now, accepted)
	return true
}

// advance tells the machine the time when one of its timers is due; what was
// done to it may have moved them.
func (s *supervisor) advance(now time.Time, changed bool) {
	if changed {
		s.due = s.m.Deadline()
	}
	if !s.due.IsZero() && !now.Before(s.due) {
		s.m.Advance(now)
		s.due = s.m.Deadline()
	}
}

// inbox takes what was posted; ok is false when there is no job, or the runtime
// stops.
func (s *supervisor) inbox() (posted []func(*job.Machine, time.Time), accepted, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	posted, s.posted = s.posted, nil
	if s.manual {
		posted = append(posted, (*job.Machine).Manual)
	}
	if s.beat {
		posted = append(posted, (*job.Machine).Beat)
	}
	s.manual, s.beat = false, false
	return posted, s.accepted, !s.dropped && !s.stopped
}

// absorb does what the machine asks for, but for writing.
func (s *supervisor) absorb(now time.Time, out job.Output, accepted bool) {
	if out.State != "" {
		s.state = out.State
		s.count(out.State)
	}
	if out.Started {
		s.begin(now)
	}
	if out.Heartbeat != nil && accepted {
		ev := s.event(arcp.JobHeartbeat, now, arcp.PriorityLow, out.Heartbeat)
		s.e.cfg.Log.Append(&store.Write{Job: s.row.ID, Attempt: s.row.Attempt, Unlogged: ev, NoSync: true}, nil)
	}
	if out.Stop != nil {
		s.cancel(out.Stop)
		s.toolEnd = time.Time{} // the machine's deadline for the stop counts now
	}
	if out.Terminal != nil {
		s.outcome = out.Terminal
	}
}

// begin starts the attempt.
func (s *supervisor) begin(now time.Time) {
	s.started = now
	s.tm.Queue.Observe(now.Sub(s.created).Seconds())
	if !s.direct {
		s.pending = append(s.pending, s.event(arcp.JobStarted, now, "", arcp.JobStartedPayload{Description: "invoking " + s.row.Agent}))
	}
	if t := s.tool.Limits.Timeout; t > 0 {
		s.toolEnd = now.Add(t)
	}
	s.toolC = make(chan struct{})
	s.e.pool.Run(func() { s.attempt(s.toolC) })
}

// callStatus is how a call of a tool ended, as the metrics say it.
func callStatus(err *arcp.Error) string {
	switch {
	case err == nil:
		return metrics.CallOK
	case err.Code == arcp.CodeTimeout || err.Code == arcp.CodeDeadlineExceeded:
		return metrics.CallTimeout
	case err.Code == arcp.CodePermissionDenied:
		return metrics.CallDenied
	}
	return metrics.CallError
}

// errVanished is the outcome of a tool that calls runtime.Goexit.
var errVanished = arcp.Errorf(arcp.CodeInternal, "the tool ended its goroutine")

// attempt runs the tool and posts what came of it.
func (s *supervisor) attempt(done chan struct{}) {
	result := errVanished
	var value arcp.Raw
	defer func() {
		close(done)
		s.post(func(m *job.Machine, now time.Time) {
			if result != nil {
				m.Fail(now, result)
			} else {
				m.Complete(now, value)
			}
		})
	}()
	began := time.Now()
	value, result = s.tool.Run(s.ctx, toolJob{s.run}, s.row.Arguments)
	s.tm.Called(callStatus(result), time.Since(began))
}

// write collects what is to be committed; nil if there is nothing.
func (s *supervisor) write(now time.Time) *store.Write {
	w := &store.Write{Job: s.row.ID, Attempt: s.row.Attempt, State: s.state}
	s.mu.Lock()
	emitted := s.queue
	s.queue, s.bytes = s.spare[:0], 0
	s.ended = s.outcome != nil
	s.space.Broadcast()
	s.mu.Unlock()
	w.Events = make([]*store.Event, 0, len(s.pending)+len(emitted)+1) // and most likely one that ends the job
	w.Events = append(append(w.Events, s.pending...), emitted...)
	clear(emitted)
	s.pending, s.spare, s.state = nil, emitted, ""
	if s.outcome != nil {
		w.Events = append(w.Events, s.outcomeEvents(now)...)
		w.State, w.Code = s.outcome.State, outcomeCode(s.outcome)
	}
	if len(w.Events) == 0 && w.State == "" {
		return nil
	}
	return w
}

// commit waits until a write is durable; false means that the job is over for
// this supervisor.
func (s *supervisor) commit(w *store.Write) bool {
	s.e.cfg.Log.Append(w, func(r *store.Result) { s.committed <- r.Err })
	if err := <-s.committed; err != nil {
		s.lost(err)
		return false
	}
	return true
}

// lost says why a job's writes are refused.
func (s *supervisor) lost(err error) {
	s.mu.Lock()
	dropped := s.dropped
	s.ended = true
	s.space.Broadcast()
	s.mu.Unlock()
	if !dropped && !errors.Is(err, store.ErrBroken) {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("event of a job refused by the store")
	}
	s.outcome = nil
}

// wait blocks until something was posted or emitted, or time has passed.
func (s *supervisor) wait(now time.Time, accepted bool) {
	deadline := s.due
	if !s.toolEnd.IsZero() && (deadline.IsZero() || s.toolEnd.Before(deadline)) {
		deadline = s.toolEnd
	}
	if !accepted || deadline.IsZero() {
		<-s.kick // the claim's end always comes
		return
	}
	if s.timer == nil {
		s.timer = time.NewTimer(deadline.Sub(now))
	} else {
		s.timer.Reset(deadline.Sub(now))
	}
	select {
	case <-s.kick:
	case <-s.timer.C:
	}
}

// finish gives everything back. A tool that does not return is waited for a
// while, then left behind.
func (s *supervisor) finish() {
	s.mu.Lock()
	s.ended = true
	quit := s.stopped
	late := s.posted
	s.posted = nil
	s.space.Broadcast()
	s.mu.Unlock()
	for _, f := range late { // posted during the last turn: whoever asked is answered
		f(s.m, time.Now())
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	if quit {
		s.cancel(ErrStopping)
	} else {
		s.cancel(errEnded)
	}
	s.report()
	s.e.release(s.run)
	if s.toolC != nil && !quit {
		s.awaitTool()
	}
	s.e.vacate(s.run)
}

// errEnded is the cause of a tool's context after its job has ended.
var errEnded = arcp.Errorf(arcp.CodeAborted, "the job has ended")

func (s *supervisor) awaitTool() {
	select {
	case <-s.toolC:
		return
	default:
	}
	t := time.NewTimer(abandonAfter)
	defer t.Stop()
	select {
	case <-s.toolC:
	case <-s.e.quit:
	case <-t.C:
		s.tm.Abandoned.Inc()
		s.e.cfg.Logger.Warn().Str("job_id", string(s.row.ID)).Str("tool", s.row.Agent).
			Msg("tool ignored the end of its job and was left behind")
	}
}

// report logs and counts a finished job.
func (s *supervisor) report() {
	o := s.outcome
	if o == nil {
		return
	}
	now := time.Now()
	s.tm.Finished(o.State).Inc()
	s.tm.Total.Observe(now.Sub(s.created).Seconds())
	if !s.started.IsZero() {
		s.tm.Exec.Observe(now.Sub(s.started).Seconds())
	}
	if ev := s.e.cfg.Logger.Info(); ev.Enabled() {
		ev.Str("job_id", string(s.row.ID)).Str("session_id", string(s.row.Session)).Str("principal", s.row.Principal).
			Str("tool", s.row.Agent).Str("outcome", string(o.State)).Str("code", string(outcomeCode(o))).
			Str("trace_id", s.row.TraceID).Dur("duration", now.Sub(s.created)).Msg("job finished")
	}
}
