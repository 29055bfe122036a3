package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// supervisor is the goroutine that owns a job during one attempt, or while
// something is done to it that waits for one: its machine, its clock and the
// writes to its log.
type supervisor struct {
	*run
	attempt uint32
	m       *job.Machine
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	started time.Time     // the attempt; zero: it has not
	due     time.Time     // the machine's deadline; zero: none
	toolEnd time.Time     // when the tool's own time limit is over; zero: none
	toolC   chan struct{} // closed when the tool has returned; nil: not called

	ordinal   int                  // questions of the attempt
	parked    int                  // waiters of pending questions
	toolLeft  time.Duration        // of the tool's own time limit, while it waits for people
	gives     []store.DeliverEvent // of the next write
	rotations []*rotation          // of the next write
	bookings  []booking            // of the write under way
	noting    []note               // of the write under way
	round     int                  // attempts that had failed before this one

	pending  []*store.Event // of the machine, to go before the tool's
	entered  arcp.JobState  // the state to be written
	unsaved  bool           // so is the progress
	asked    []demand       // to be answered when what they do is durable
	joined   []joined       // calls that end in the next write
	late     []demand       // to be answered when the job has ended
	saving   *saving        // the checkpoint of the write under way
	again    *retry         // the attempt has failed and another one shall be made
	rewound  bool           // another one shall be made from a checkpoint
	dozes    bool           // there is no attempt to make now, and nothing else to do
	outcome  *job.Outcome
	spare    []*store.Event
	restored arcp.Raw // data of the checkpoint that the attempt goes on from
	from     point    // that one; its N is 0: none
	terms    tool.AttemptInfo

	// Shared with the tool, guarded by run.mu.
	space              sync.Cond
	queue              []*store.Event
	bytes              int
	point              *saving // a checkpoint, whose event is in the queue
	checkpointRequests checkpointRequests
	manual             bool // the tool said that it sends the heartbeats
	beat               bool // and sent one
	returned           bool // with value and err
	value              arcp.Raw
	err                *arcp.Error
	gone               string        // the attempt is lost: what has become of it
	endc               chan struct{} // closed when nothing more of the attempt is taken and it has a supervisor no longer
	stopping           error         // why the tool was told to stop; nil: it was not
	over               bool          // nothing more of the attempt is taken
	spent              bool          // the budget has changed
	lapsed             bool          // an operation was refused because the job's lease had ended
	booked             []booking     // and so has the account of the children
	noted              []note        // to be written down with the next write
	notes              int           // of the attempt, so far
	halt               chan struct{} // closed by the next interrupt; nil: the tool does not look
}

func (s *supervisor) supervise() {
	defer s.e.wg.Done()
	s.m = job.Restore(s.spec(), s.state)
	s.due = s.m.Deadline()
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	for _, q := range s.questions {
		q.waiters = 0 // they were an earlier attempt's
	}
	for s.turn() {
	}
	s.finish()
}

func (r *run) spec() job.Spec {
	return job.Spec{MaxRuntime: r.maxRuntime, Heartbeat: r.e.cfg.Heartbeat, Block: r.e.cfg.Block,
		Window: r.e.cfg.ResumeWindow, Since: r.progress.Started, Lost: r.remote()}
}

// turn does one round; it reports false when the supervisor's work is over.
func (s *supervisor) turn() bool {
	in, ok := s.inbox()
	if !ok {
		return false
	}
	now := time.Now()
	changed := s.hear(now, &in)
	if s.advance(now, changed); s.started.IsZero() && s.holdsSlot() {
		s.start(now)
	}
	s.absorb(now, s.m.Take(), in.accepted)
	// Until the claim is durable events stay where they are, unless somebody waits
	// for an answer or the job is over: then all of it is written at once, right
	// behind the claim.
	if in.accepted || s.outcome != nil || len(s.asked) > 0 {
		w, later, err := s.write(now)
		switch {
		case later:
			return true
		case w != nil || err != nil:
			return s.commit(w, err) && s.goOn()
		}
		s.answer(nil)
	}
	if s.dozes = in.accepted && s.started.IsZero() && !s.holdsSlot(); s.dozes {
		return false
	}
	s.wait(now, in.accepted)
	return true
}

// answer answers the demands that have become durable, or have not.
func (s *supervisor) answer(err error) {
	for _, d := range s.asked {
		d.settled(s, err)
	}
	s.asked = nil
}

// goOn reports whether the attempt goes on, which may have become ready to be
// made.
func (s *supervisor) goOn() bool {
	if s.leaving() {
		return false
	}
	if !s.started.IsZero() && s.toolC == nil {
		s.call()
	}
	return true
}

// leaving reports whether this was the supervisor's last write.
func (s *supervisor) leaving() bool {
	return s.outcome != nil || s.again != nil || s.rewound || s.dozes || s.paused()
}

func (s *supervisor) paused() bool {
	return s.m.State() == arcp.StatePaused && s.state != arcp.StatePaused
}

// changes are the inputs of an attempt since the last turn.
type changes struct {
	demands      []demand
	manual, beat bool
	returned     bool
	lapsed       bool
	pause        bool
	accepted     bool
}

// inbox takes what has happened; ok is false when there is no job, or the
// runtime stops.
func (s *supervisor) inbox() (in changes, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped || s.stopped {
		return in, false // what was asked for is told so by close
	}
	in = changes{demands: s.demands, manual: s.manual, beat: s.beat, returned: s.returned && !s.over, lapsed: s.lapsed,
		pause: s.point != nil && s.point.pause, accepted: s.accepted}
	s.demands, s.manual, s.beat, s.returned = nil, false, false, false
	return in, true
}

// hear tells the machine what has happened, and reports whether anything has.
func (s *supervisor) hear(now time.Time, in *changes) bool {
	if in.manual {
		s.m.Manual(now)
	}
	if in.beat {
		s.m.Beat(now)
	}
	if in.pause {
		s.m.Pause(now)
	}
	switch {
	case in.lapsed: // whatever the tool has made of it
		s.preempt(now)
	case in.returned:
		s.conclude(now)
	}
	for _, d := range in.demands {
		d.meet(s, now)
	}
	return in.manual || in.beat || in.pause || in.returned || in.lapsed || len(in.demands) > 0
}

// conclude tells the machine what came of the attempt.
func (s *supervisor) conclude(now time.Time) {
	switch {
	case s.gone != "":
		s.lose(now, arcp.Errorf(arcp.CodeAborted, "%s", s.gone))
	case s.err != nil:
		s.fail(now, s.err)
	default:
		s.m.Complete(now, s.value)
	}
}

// advance tells the machine the time when one of its timers is due; what was
// done to it may have moved them.
func (s *supervisor) advance(now time.Time, changed bool) {
	if changed {
		s.due = s.m.Deadline()
	}
	if !s.due.IsZero() && !now.Before(s.due) {
		s.m.Advance(now)
		if err := s.m.Silence(); err != nil {
			s.lose(now, err)
		}
		s.due = s.m.Deadline()
	}
	if d := s.questionsDue(); !d.IsZero() && !now.Before(d) {
		s.expire(now)
	}
	if d := s.preempts(); !d.IsZero() && !s.now().Before(d) {
		s.preempt(now)
	}
	if d := s.permitEnd(); !d.IsZero() && !s.now().Before(d) {
		s.sweep()
	}
	if s.again == nil && !s.toolEnd.IsZero() && !now.Before(s.toolEnd) {
		s.fail(now, arcp.Errorf(arcp.CodeDeadlineExceeded, "%s ran longer than its limit of %s", s.tool.Name, s.tool.Limits.Timeout))
	}
}

// absorb does what the machine asks for, but for writing.
func (s *supervisor) absorb(now time.Time, out job.Output, accepted bool) {
	if out.State != "" {
		s.entered = out.State
		s.count(out.State)
	}
	if out.Started {
		s.begin(now)
	}
	if out.Heartbeat != nil && accepted {
		ev := s.event(arcp.JobHeartbeat, now, arcp.PriorityLow, out.Heartbeat)
		s.e.cfg.Log.Append(&store.Write{Ops: []store.Op{&store.DeliverUnlogged{Job: s.row.ID, Attempt: s.attempt, Event: ev}}, NoSync: true}, nil)
	}
	if out.Stop != nil {
		s.cancel(out.Stop)
		s.mu.Lock()
		s.stopping = out.Stop
		s.space.Broadcast() // it does not wait for the disk any more
		s.mu.Unlock()
		s.toolEnd, s.toolLeft = time.Time{}, 0 // the machine's deadline for the stop counts now
	}
	if out.Terminal != nil {
		s.outcome = out.Terminal
	}
}

// write collects what is to be committed; nil if there is nothing. later says
// that the machine must be told of something before.
func (s *supervisor) write(now time.Time) (w *store.Write, later bool, err error) {
	if s.outcome != nil {
		s.dropQuestions(now)
		s.dropRotations()
	}
	if s.leaving() && s.outcome == nil {
		s.waitOver(now)
	}
	emitted, ok := s.emitted()
	if !ok {
		return nil, true, nil
	}
	log := &store.AppendEvents{Job: s.row.ID, Attempt: s.attempt, State: s.entered}
	w = store.NewWrite(log)
	log.Events = make([]*store.Event, 0, len(s.pending)+len(emitted)+1) // and most likely one that ends the job
	log.Events = append(append(log.Events, s.pending...), emitted...)
	clear(emitted)
	s.pending, s.spare, s.entered = nil, emitted, ""
	switch {
	case s.outcome != nil:
		log.Events = append(log.Events, s.outcomeEvents(now)...)
		log.State, log.Code = s.outcome.State, outcomeCode(s.outcome)
		records, err := s.ending()
		if err != nil {
			return nil, false, err
		}
		w.Put(records...)
	case s.again != nil:
		log.Events = append(log.Events, s.retryEvent(now))
		log.NewAttempt = true
	case s.rewound:
		log.NewAttempt = true
	}
	if err := s.addRecords(w); err != nil {
		return nil, false, err
	}
	if len(w.Ops) == 1 && len(log.Events) == 0 && log.State == "" {
		return nil, false, nil
	}
	s.addJoined(w)
	return w, false, nil
}

// emitted takes what the tool has emitted, and after the attempt's end sees to
// it that it emits nothing more. It is false if the tool has just come to where
// the attempt ends: what is to be written goes with that.
func (s *supervisor) emitted() (events []*store.Event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.point != nil && s.point.pause && !s.leaving() {
		return nil, false // it came during this turn: the machine is told of the pause in the next one, first
	}
	events = s.queue
	s.queue, s.bytes = s.spare[:0], 0
	s.saving, s.point = s.point, nil
	if s.spent {
		s.progress.Spent, s.spent, s.unsaved = s.auth.Budget.Save(), false, true
	}
	s.bookings, s.booked = append(s.bookings, s.booked...), nil
	s.noting, s.noted = append(s.noting, s.noted...), nil
	s.over = s.leaving()
	s.ended = s.outcome != nil
	s.space.Broadcast()
	return events, true
}

// addRecords adds the checkpoint, the questions, the rotations and the children that
// go with the events, and the progress unless the job ends. What a child has spent is
// needed after its end.
func (s *supervisor) addRecords(w *store.Write) error {
	if err := errors.Join(s.addQuestions(w), s.addRotations(w)); err != nil {
		return err
	}
	if s.saving != nil {
		s.saving.Asked = s.ordinal
		rec, err := s.pointRecord(&s.saving.point)
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	if err := errors.Join(s.addBookings(w), s.addNotes(w)); err != nil {
		return err
	}
	if s.unsaved && (s.outcome == nil || s.row.Parent != "") {
		rec, err := s.progressRecord()
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	return nil
}

// commit waits until a write is durable; false means that the job is over for
// this supervisor. err is why there is no write.
func (s *supervisor) commit(w *store.Write, err error) bool {
	if err == nil {
		if err = s.append(w); errors.Is(err, store.ErrTogether) {
			s.dropJoined(w)
			err = s.append(w)
		}
	}
	if err != nil {
		s.answer(err)
		s.lost(err)
		return false
	}
	s.written(w)
	return true
}

// append appends a write and waits until it is durable, or refused. The demands are
// answered before what they lead to is delivered.
func (s *supervisor) append(w *store.Write) error {
	s.e.cfg.Log.Append(w, func(r *store.Result) {
		if errors.Is(r.Err, store.ErrTogether) {
			s.committed <- r.Err
			return
		}
		if r.Err == nil {
			s.posed()
			s.joinedWritten()
		}
		if store.Find[*store.AppendEvents](w).State.Terminal() && (r.Err == nil || gone(r.Err)) {
			s.e.concluded(s.run)
			s.endCredentials()
		}
		s.answer(r.Err)
		s.committed <- r.Err
	})
	return <-s.committed
}

// written notes what has become durable.
func (s *supervisor) written(w *store.Write) {
	if s.unsaved && s.outcome == nil {
		s.progressRev, s.unsaved = raised(s.progressRev), false
	}
	if s.saving != nil {
		s.saved(s.saving)
		s.saving = nil
	}
	log := store.Find[*store.AppendEvents](w)
	if n := len(log.Events); n > 0 {
		s.jseq = log.Events[n-1].JSeq
	}
	s.questionsWritten()
	s.bookingsWritten()
	s.noting = nil
	if log.NewAttempt {
		s.run.attempt++
	}
}

// lost says why a job's writes are refused.
func (s *supervisor) lost(err error) {
	s.mu.Lock()
	dropped := s.dropped
	s.ended, s.over = true, true
	s.space.Broadcast()
	s.mu.Unlock()
	switch {
	case dropped || errors.Is(err, store.ErrBroken): // told elsewhere
	case errors.Is(err, store.ErrFenced):
		s.e.cfg.Logger.Warn().Str("job_id", string(s.row.ID)).Uint32("attempt", s.attempt).Msg("job lost: another attempt has taken over")
	default:
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("event of a job refused by the store")
	}
	s.outcome, s.again = nil, nil
	s.dropBookings()
}

// wait blocks until something was posted or emitted, or time has passed.
func (s *supervisor) wait(now time.Time, accepted bool) {
	deadline := earliest(s.due, s.toolEnd, s.otherDue())
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

// finish gives everything back, or leaves the job until its next attempt.
func (s *supervisor) finish() {
	rests, quit, late := s.close()
	close(s.endc)
	if s.timer != nil {
		s.timer.Stop()
	}
	if quit {
		s.cancel(ErrStopping)
	} else {
		s.cancel(errEnded)
	}
	if rests {
		s.rest()
		return
	}
	s.report()
	s.e.release(s.run)
	for _, d := range late {
		d.tooLate(s.e, quit)
	}
	s.parted()
	if s.toolC != nil && !quit {
		s.awaitTool()
	}
	s.e.vacate(s.run)
}

// close takes nothing more of the attempt and, unless the job rests until the
// next one, for the job: who has asked in vain is then to be told.
func (s *supervisor) close() (rests, quit bool, late []demand) {
	s.mu.Lock()
	quit = s.stopped
	rests = !quit && !s.ended && !s.dropped && s.outcome == nil && s.leaving()
	s.over, s.ended, s.closed = true, !rests, !rests
	if !rests {
		late = slices.Concat(s.asked, s.late, s.demands)
		s.asked, s.late, s.demands = nil, nil, nil
	}
	for _, p := range [...]*saving{s.saving, s.point} {
		if p != nil {
			p.done <- errEnded
		}
	}
	s.saving, s.point = nil, nil
	s.dropBookings()
	s.space.Broadcast()
	s.mu.Unlock()
	return rests, quit, late
}

// errEnded is the cause of a tool's context after its job has ended.
var errEnded = arcp.Errorf(arcp.CodeAborted, "the job has ended")

// awaitTool waits for a tool to return; one that does not is left behind after a
// while.
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
	if s.outcome == nil {
		return
	}
	now := time.Now()
	if !s.started.IsZero() {
		s.tm.Exec.Observe(now.Sub(s.started).Seconds())
	}
	s.finished(s.outcome, now)
}

// finished logs and counts a job that has ended, whoever has ended it. It is called
// once.
func (r *run) finished(o *job.Outcome, now time.Time) {
	took := now.Sub(r.row.CreatedAt)
	r.tm.Finished(o.State).Inc()
	r.tm.Total.Observe(took.Seconds())
	if o.Err != nil {
		r.e.cfg.Metrics.Errors.WithLabelValues(string(o.Err.Code)).Inc()
	}
	if ev := r.e.cfg.Logger.Info(); ev.Enabled() {
		ev.Str("job_id", string(r.row.ID)).Str("session_id", string(r.row.Session)).Str("principal", r.row.Principal).
			Str("tool", r.row.Agent).Str("outcome", string(o.State)).Str("code", string(outcomeCode(o))).
			Str("trace_id", r.row.TraceID).Dur("duration", took).Msg("job finished")
	}
}

// earliest returns the first of the times that are not zero; zero: all are.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
