package job

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of a cancel's deadline_ms (SPEC.md §5.7).
const (
	DefaultCancelDeadline = 5 * time.Second
	MaxCancelDeadline     = 60 * time.Second
)

// Machine is the state machine of one job (SPEC.md §5.6). One goroutine owns it. The owner passes
// inputs, calls TakeOutput for the output, and calls Advance when Deadline has passed.
//
// An input has precedence over a deadline that has passed: a value that arrives after a deadline, but
// before Advance, completes the job. A job ends once. The machine ignores inputs after the end, and
// inputs without a row in the table for its state.
type Machine struct {
	spec         Spec
	state        arcp.JobState
	waiting      wait
	clock        clock
	heartbeat    heartbeat
	cancellation cancellation
	silenceErr   *arcp.Error // the error of missed heartbeats; nil: none were missed
	out          Output
	outcome      Outcome // out.Terminal refers to it
}

// wait is the reason for which a job is blocked.
type wait uint8

const (
	notWaiting        wait = iota // the job is not blocked
	waitsForAnswer                // for an answer
	waitsForHeartbeat             // for a heartbeat, after missed ones
)

// cancellation is a cancel that was accepted while the attempt ran.
type cancellation struct {
	reason   string
	deadline time.Time // of the hard stop; zero: not cancelled
}

func (c *cancellation) requested() bool { return !c.deadline.IsZero() }

// New returns the machine of a job that was just accepted.
func New(spec Spec) *Machine { return Restore(spec, arcp.StateAccepted) }

// Restore returns the machine of a stored job that has no attempt in this process. The caller calls
// Restart if the job was running.
func Restore(spec Spec, state arcp.JobState) *Machine {
	return &Machine{spec: spec, state: state, clock: clock{runningSince: spec.StartedAt}, heartbeat: heartbeat{interval: spec.Heartbeat}}
}

// State returns the present state of the job.
func (m *Machine) State() arcp.JobState { return m.state }

// TakeOutput returns the output since the last call of TakeOutput.
func (m *Machine) TakeOutput() Output {
	out := m.out
	m.out = Output{}
	return out
}

// move applies an input by the table. It reports false if the input has no row for the state.
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
		m.outcome = o
		m.out.Terminal = &m.outcome
	}
}

// fail ends the job with err and stops an attempt that may still run.
func (m *Machine) fail(in Input, err *arcp.Error) {
	m.stopAttempt(err)
	m.end(in, Outcome{Err: err})
}

// stopAttempt requests the stop of a running attempt. It is not called after a cancel, which has
// requested the stop already.
func (m *Machine) stopAttempt(cause *arcp.Error) {
	if m.active() {
		m.out.Stop = cause
	}
}

// active reports whether there is an attempt.
func (m *Machine) active() bool {
	return m.state == arcp.StateRunning || m.state == arcp.StateBlocked
}

// Queue records that the tool has no capacity for the job.
func (m *Machine) Queue(time.Time) { m.move(InputQueue) }

// Start begins an attempt. The first heartbeat is due one interval later.
func (m *Machine) Start(now time.Time) {
	if !m.move(InputStart) {
		return
	}
	m.out.Started = true
	m.clock.start(now)
	m.heartbeat.schedule(now)
}

// Restart records that the runtime was restarted. An attempt of the earlier process has ended, and
// another one follows.
func (m *Machine) Restart(time.Time) { m.move(InputRestart) }

// Retry records that the attempt has ended with err and that another one follows. A cancelled job ends.
func (m *Machine) Retry(now time.Time, err *arcp.Error) {
	if m.cancellation.requested() {
		m.endCancelled(m.cancellation.reason)
		return
	}
	m.endAttempt(now, InputRetry, err)
}

// Pause records that the attempt has stopped at a checkpoint, from which the job continues after the
// next start of the runtime. A cancelled job ends.
func (m *Machine) Pause(now time.Time) {
	if m.cancellation.requested() {
		m.endCancelled(m.cancellation.reason)
		return
	}
	m.endAttempt(now, InputPause, arcp.Errorf(arcp.CodeAborted, "the runtime is shutting down; the job continues after the next start"))
}

// Rewind ends the attempt, and another one follows from a checkpoint. It reports false if there is no
// attempt, or if the job is cancelled.
func (m *Machine) Rewind(now time.Time) bool {
	if !m.active() || m.cancellation.requested() {
		return false
	}
	m.endAttempt(now, InputRewind, arcp.Errorf(arcp.CodeAborted, "the job continues from an earlier checkpoint"))
	return true
}

// endAttempt ends the attempt, but not the job. The maximum runtime keeps counting.
func (m *Machine) endAttempt(now time.Time, in Input, cause *arcp.Error) {
	m.stopAttempt(cause)
	if m.move(in) {
		m.waiting = notWaiting
		m.heartbeat.manual = false
		m.clock.start(now)
	}
}

// Complete records that the attempt returned value, one encoded JSON value. After a cancel the value is
// dropped.
func (m *Machine) Complete(_ time.Time, value arcp.Raw) {
	if m.cancellation.requested() {
		m.endCancelled(m.cancellation.reason)
		return
	}
	m.end(InputComplete, Outcome{Value: value})
}

// Conclude completes a queued job that has no attempts, such as a schedule, with value.
func (m *Machine) Conclude(_ time.Time, value arcp.Raw) {
	m.end(InputConclude, Outcome{Value: value})
}

// Fail records that the attempt returned err, or that the runtime fails the job. The attempt may still
// run, so Output.Stop is err, too. The job ends as cancelled if it was cancelled before, or if err is
// CANCELLED.
func (m *Machine) Fail(_ time.Time, err *arcp.Error) {
	switch {
	case m.cancellation.requested():
		m.endCancelled(m.cancellation.reason)
	case err.Code == arcp.CodeCancelled:
		m.stopAttempt(err)
		m.endCancelled(err.Message)
	default:
		m.fail(InputFail, err)
	}
}

func (m *Machine) endCancelled(reason string) {
	m.end(InputGiveUp, Outcome{Reason: reason, Code: arcp.CodeCancelled})
}

// Cancel ends a job that does not run. The attempt of a running job gets a request to stop. The job ends
// when the attempt returns, or at the deadline: zero is DefaultCancelDeadline, the maximum is
// MaxCancelDeadline. A second cancel can only shorten the deadline. Cancel reports false if the job has
// ended already.
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
	if !m.cancellation.requested() {
		m.cancellation = cancellation{reason, at}
		m.out.Stop = cancelled(reason)
	}
	m.cancellation.deadline = earlier(m.cancellation.deadline, at)
	return true
}

func cancelled(reason string) *arcp.Error {
	if reason == "" {
		reason = "cancelled"
	}
	return &arcp.Error{Code: arcp.CodeCancelled, Message: reason}
}

// Block records that the attempt waits for an answer. Until Unblock the clock of the maximum runtime is
// stopped, and the runtime sends the heartbeats.
func (m *Machine) Block(now time.Time) {
	if m.move(InputBlock) {
		m.waiting = waitsForAnswer
		m.clock.pause(now)
	}
}

// Unblock records that the attempt waits for no answer any more. It does not end a wait for heartbeats.
func (m *Machine) Unblock(now time.Time) {
	if m.waiting == waitsForAnswer && m.move(InputUnblock) {
		m.waiting = notWaiting
		m.clock.start(now)
		m.heartbeat.received = now
	}
}

// SetManualHeartbeats records that the tool sends the heartbeats from now on.
func (m *Machine) SetManualHeartbeats(now time.Time) {
	if m.move(InputManual) && !m.heartbeat.manual {
		m.heartbeat.manual, m.heartbeat.received = true, now
	}
}

// Heartbeat records a heartbeat of the tool. It is not emitted if it follows the last one by less than a
// quarter of the interval.
func (m *Machine) Heartbeat(now time.Time) {
	m.heartbeat.received = now
	switch {
	case m.waiting == waitsForHeartbeat:
		if m.move(InputReturn) {
			m.waiting = notWaiting
			m.emitHeartbeat(now)
		}
	case m.move(InputHeartbeat) && m.heartbeat.isEmitted(now):
		m.emitHeartbeat(now)
	}
}

// SuspendSilence records whether missing heartbeats of the tool count. When they count again, the tool has the
// whole time for the next one.
func (m *Machine) SuspendSilence(now time.Time, suspended bool) {
	if m.heartbeat.suspended == suspended {
		return
	}
	if m.heartbeat.suspended = suspended; !suspended {
		m.Heartbeat(now)
	}
}

// emitHeartbeat adds a heartbeat to the output.
func (m *Machine) emitHeartbeat(now time.Time) { m.out.Heartbeat = m.heartbeat.next(now, m.state) }
