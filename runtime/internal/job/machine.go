package job

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of a cancel's deadline_ms (SPEC.md §5.6).
const (
	DefaultCancelDeadline = 5 * time.Second
	MaxCancelDeadline     = 60 * time.Second
)

// Machine is the machine of one job (SPEC.md §5.6). One goroutine owns it: it
// tells the machine what happened, takes what there is to do, and calls Advance
// when Deadline has passed.
//
// What happened counts before what became due meanwhile: a value that comes
// after a deadline, but before Advance, completes the job. A job ends once;
// everything after its end is ignored, as is what makes no sense in its state.
type Machine struct {
	spec    Spec
	state   arcp.JobState
	waiting wait
	clock   clock
	heart   heart
	stop    stop
	silent  *arcp.Error // what the missed heartbeats are; nil: none are
	out     Output
}

// wait says what a blocked job waits for.
type wait uint8

const (
	forNothing wait = iota // not blocked
	forPerson              // for an answer
	forBeat                // for a heartbeat, after missed ones
)

// stop is a cancel that was accepted while the attempt ran.
type stop struct {
	reason   string
	deadline time.Time // of the hard stop; zero: not cancelled
}

func (s *stop) asked() bool { return !s.deadline.IsZero() }

// New returns the machine of a job that was just accepted.
func New(spec Spec) *Machine { return Restore(spec, arcp.StateAccepted) }

// Restore returns the machine of a job that is in a state without an attempt
// that this process knows of. One that was running must be told of the Restart.
func Restore(spec Spec, state arcp.JobState) *Machine {
	return &Machine{spec: spec, state: state, clock: clock{since: spec.Since}, heart: heart{interval: spec.Heartbeat}}
}

// State returns the state the job is in now.
func (m *Machine) State() arcp.JobState { return m.state }

// Take returns what the caller must do since the last Take, and forgets it.
func (m *Machine) Take() Output {
	out := m.out
	m.out = Output{}
	return out
}

// move follows the table; false: the input has no row for the state.
func (m *Machine) move(in Input) bool {
	to, ok := table[transition{m.state, in}]
	if ok && to != m.state {
		m.state, m.out.State = to, to
	}
	return ok
}

// end is move for the inputs that end the job.
func (m *Machine) end(in Input, o Outcome) {
	if m.move(in) {
		o.State = m.state
		m.out.Terminal = &o
	}
}

// fail ends the job with err and stops an attempt that may still run.
func (m *Machine) fail(in Input, err *arcp.Error) {
	m.halt(err)
	m.end(in, Outcome{Err: err})
}

// halt asks an attempt to stop. It was not asked before: once it was, only
// giving up and the hard stop end the job.
func (m *Machine) halt(cause *arcp.Error) {
	if m.active() {
		m.out.Stop = cause
	}
}

// active reports whether an attempt has started and not ended.
func (m *Machine) active() bool {
	return m.state == arcp.StateRunning || m.state == arcp.StateBlocked
}

// Queue says that the tool has no capacity for the job now.
func (m *Machine) Queue(time.Time) { m.move(InputQueue) }

// Start begins an attempt. The first heartbeat is due one interval later.
func (m *Machine) Start(now time.Time) {
	if !m.move(InputStart) {
		return
	}
	m.out.Started = true
	m.clock.run(now)
	m.heart.schedule(now)
}

// Restart says that the runtime has stopped since the job was last looked at:
// an attempt there was is over, and another one will be made.
func (m *Machine) Restart(time.Time) { m.move(InputRestart) }

// Retry says that the attempt returned err, or that the runtime ends it so, and
// that another one will be made. A job that was cancelled before ends.
func (m *Machine) Retry(now time.Time, err *arcp.Error) {
	if m.stop.asked() {
		m.giveUp(m.stop.reason)
		return
	}
	m.leave(now, InputRetry, err)
}

// Pause says that the attempt stands at a checkpoint from which the job is to go
// on when the runtime is started again. A job that was cancelled before ends.
func (m *Machine) Pause(now time.Time) {
	if m.stop.asked() {
		m.giveUp(m.stop.reason)
		return
	}
	m.leave(now, InputPause, arcp.Errorf(arcp.CodeAborted, "the runtime is shutting down; the job goes on later"))
}

// Rewind ends the attempt, and another one will be made from a checkpoint. It
// is false if there is no attempt to end, or the job was cancelled.
func (m *Machine) Rewind(now time.Time) bool {
	if !m.active() || m.stop.asked() {
		return false
	}
	m.leave(now, InputRewind, arcp.Errorf(arcp.CodeAborted, "the job goes on from an earlier checkpoint"))
	return true
}

// leave ends the attempt, but not the job, whose time runs on.
func (m *Machine) leave(now time.Time, in Input, cause *arcp.Error) {
	m.halt(cause)
	if m.move(in) {
		m.waiting = forNothing
		m.heart.manual = false
		m.clock.run(now)
	}
}

// Complete says that the attempt returned value, which is one encoded JSON
// value. After a cancel the value is dropped.
func (m *Machine) Complete(_ time.Time, value arcp.Raw) {
	if m.stop.asked() {
		m.giveUp(m.stop.reason)
		return
	}
	m.end(InputComplete, Outcome{Value: value})
}

// Fail says that the attempt returned err, or that the runtime fails the job.
// Since the attempt may still run, Output.Stop is err too. A job that was
// cancelled before, or whose err is CANCELLED, ends as cancelled.
func (m *Machine) Fail(_ time.Time, err *arcp.Error) {
	switch {
	case m.stop.asked():
		m.giveUp(m.stop.reason)
	case err.Code == arcp.CodeCancelled:
		m.halt(err)
		m.giveUp(err.Message)
	default:
		m.fail(InputFail, err)
	}
}

func (m *Machine) giveUp(reason string) {
	m.end(InputGiveUp, Outcome{Reason: reason, Code: arcp.CodeCancelled})
}

// Cancel ends a job that does not run yet. A running one is asked to stop and
// ends when its attempt returns, or by force when deadline has passed: zero is
// DefaultCancelDeadline, more than MaxCancelDeadline counts as that. While the
// job is stopping, another cancel is accepted and can only bring the deadline
// forward. Cancel is false if the job has ended already.
func (m *Machine) Cancel(now time.Time, reason string, deadline time.Duration) bool {
	if !m.active() {
		ended := m.state.Terminal()
		m.end(InputCancel, Outcome{Reason: reason, Code: arcp.CodeCancelled})
		return !ended
	}
	m.move(InputCancel)
	if deadline <= 0 {
		deadline = DefaultCancelDeadline
	}
	at := now.Add(min(deadline, MaxCancelDeadline))
	if !m.stop.asked() {
		m.stop = stop{reason, at}
		m.out.Stop = cancelled(reason)
	}
	m.stop.deadline = earlier(m.stop.deadline, at)
	return true
}

func cancelled(reason string) *arcp.Error {
	if reason == "" {
		reason = "cancelled"
	}
	return &arcp.Error{Code: arcp.CodeCancelled, Message: reason}
}

// Block says that the attempt waits for a person. Until Unblock the maximum
// runtime stands still and the runtime sends the heartbeats.
func (m *Machine) Block(now time.Time) {
	if m.move(InputBlock) {
		m.waiting = forPerson
		m.clock.pause(now)
	}
}

// Unblock says that the attempt waits for nobody any more. It does not end a
// wait for heartbeats.
func (m *Machine) Unblock(now time.Time) {
	if m.waiting == forPerson && m.move(InputUnblock) {
		m.waiting = forNothing
		m.clock.run(now)
		m.heart.heard = now
	}
}

// Manual makes the tool responsible for the heartbeats from now on.
func (m *Machine) Manual(now time.Time) {
	if m.move(InputManual) && !m.heart.manual {
		m.heart.manual, m.heart.heard = true, now
	}
}

// Beat says that the tool sent a heartbeat. Those that follow each other by
// less than a quarter of the interval are counted, but not emitted.
func (m *Machine) Beat(now time.Time) {
	m.heart.heard = now
	switch {
	case m.waiting == forBeat:
		if m.move(InputReturn) {
			m.waiting = forNothing
			m.emit(now)
		}
	case m.move(InputBeat) && m.heart.ripe(now):
		m.emit(now)
	}
}

// emit puts a heartbeat into the output.
func (m *Machine) emit(now time.Time) { m.out.Heartbeat = m.heart.beat(now, m.state) }
