package job

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// clock measures how long a job has run. The zero value is stopped at 0.
type clock struct {
	elapsed      time.Duration // before runningSince
	runningSince time.Time     // zero: the clock is stopped
}

// start starts a stopped clock.
func (c *clock) start(now time.Time) {
	if c.runningSince.IsZero() {
		c.runningSince = now
	}
}

func (c *clock) pause(now time.Time) {
	if !c.runningSince.IsZero() {
		c.elapsed += max(0, now.Sub(c.runningSince))
		c.runningSince = time.Time{}
	}
}

// reaches returns when the clock will show d; zero: it is stopped.
func (c *clock) reaches(d time.Duration) time.Time {
	if c.runningSince.IsZero() {
		return time.Time{}
	}
	return c.runningSince.Add(d - c.elapsed)
}

// heartbeat is the state of the heartbeats of a job.
type heartbeat struct {
	interval  time.Duration // zero: no heartbeats
	sequence  uint64        // of the latest one emitted
	nextAt    time.Time     // when the runtime sends the next one
	manual    bool          // the tool sends them
	suspended bool          // missing ones do not count
	received  time.Time     // when the tool sent the latest one, if manual
	blockedAt time.Time     // when missed heartbeats blocked the job
}

// maxMissed is the number of intervals without a heartbeat of the tool after which its heartbeats count
// as missed (SPEC.md §5.6).
const maxMissed = 2

func (h *heartbeat) schedule(now time.Time) { h.nextAt = now.Add(h.interval) }

// isEmitted reports whether a heartbeat that the tool sends now becomes an event.
func (h *heartbeat) isEmitted(now time.Time) bool {
	return h.manual && h.interval > 0 && now.Sub(h.nextAt) >= -h.interval*3/4
}

func (h *heartbeat) next(now time.Time, s arcp.JobState) *arcp.JobHeartbeatPayload {
	h.sequence++
	h.schedule(now)
	return &arcp.JobHeartbeatPayload{
		Sequence: h.sequence, DeadlineMS: uint64((maxMissed * h.interval).Milliseconds()), State: string(s)}
}

// timer calls fire at a time; zero: never.
type timer struct {
	at   time.Time
	fire func(m *Machine, now time.Time)
}

// pendingTimers returns the pending timers. Of two at the same time the first one fires. After a cancel
// only the deadline of the cancel ends the job.
func (m *Machine) pendingTimers() [3]timer {
	var t [3]timer
	switch {
	case !m.active():
		t[0] = m.runtimeTimer()
		return t
	case m.cancellation.requested():
		t[0] = timer{m.cancellation.deadline, (*Machine).hardStop}
	default:
		t[0], t[1] = m.runtimeTimer(), m.silenceTimer()
	}
	if m.heartbeat.interval > 0 && (!m.heartbeat.manual || m.state == arcp.StateBlocked) {
		t[2] = timer{m.heartbeat.nextAt, (*Machine).emitHeartbeat}
	}
	return t
}

// runtimeTimer returns the timer of the maximum runtime, which also runs between two attempts.
func (m *Machine) runtimeTimer() timer {
	if m.spec.MaxRuntime <= 0 || !m.active() && m.state != arcp.StateQueued {
		return timer{}
	}
	return timer{m.clock.reaches(m.spec.MaxRuntime), (*Machine).timeout}
}

func (m *Machine) silenceTimer() timer {
	h := &m.heartbeat
	switch {
	case h.suspended:
	case m.waiting == waitsForHeartbeat && m.spec.SilenceWindow > 0:
		return timer{h.blockedAt.Add(m.spec.SilenceWindow), (*Machine).windowPassed}
	case m.waiting == notWaiting && h.manual && h.interval > 0:
		return timer{h.received.Add(maxMissed * h.interval), (*Machine).heartbeatsMissed}
	}
	return timer{}
}

// nextTimer returns the earliest pending timer.
func (m *Machine) nextTimer() timer {
	var first timer
	for _, t := range m.pendingTimers() {
		if at := earlier(first.at, t.at); !at.Equal(first.at) {
			first = t
		}
	}
	return first
}

// earlier returns the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Deadline returns when Advance is to be called next; zero: never.
func (m *Machine) Deadline() time.Time { return m.nextTimer().at }

// Advance fires the timers that are due at now, the earliest first. Afterwards Deadline is zero or later
// than now.
func (m *Machine) Advance(now time.Time) {
	for t := m.nextTimer(); !t.at.IsZero() && !t.at.After(now); t = m.nextTimer() {
		t.fire(m, now)
	}
}

func (m *Machine) hardStop(time.Time) {
	m.end(InputHardStop, Outcome{Reason: m.cancellation.reason, Code: arcp.CodeAborted})
}

func (m *Machine) timeout(time.Time) {
	m.fail(InputTimeout, arcp.Errorf(arcp.CodeTimeout, "the job ran longer than %v", m.spec.MaxRuntime))
}

func (m *Machine) heartbeatsMissed(now time.Time) {
	if !m.spec.BlockOnSilence {
		m.endSilent(now, InputSilence)
		return
	}
	m.move(InputHold) // the runtime's own heartbeat is overdue and shows the new state at once
	m.waiting, m.heartbeat.blockedAt = waitsForHeartbeat, now
}

func (m *Machine) windowPassed(now time.Time) { m.endSilent(now, InputWindow) }

// endSilent fails the job because of missed heartbeats. With Spec.ReportSilence it only sets the
// error for TakeSilenceError.
func (m *Machine) endSilent(now time.Time, in Input) {
	if !m.spec.ReportSilence {
		m.fail(in, m.errLost())
		return
	}
	m.silenceErr = m.errLost()
	m.heartbeat.received, m.heartbeat.blockedAt = now, now // else it is reported again at once
}

// TakeSilenceError returns the error of missed heartbeats once; nil: none were missed. The state of
// the job does not change until the caller ends the attempt.
func (m *Machine) TakeSilenceError() *arcp.Error {
	err := m.silenceErr
	m.silenceErr = nil
	return err
}

func (m *Machine) errLost() *arcp.Error {
	return arcp.Errorf(arcp.CodeHeartbeatLost, "the tool missed %d heartbeats of %v", maxMissed, m.heartbeat.interval)
}
