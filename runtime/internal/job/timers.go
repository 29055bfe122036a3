package job

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// clock measures how long a job has run. The zero value stands still at 0.
type clock struct {
	used  time.Duration // before since
	since time.Time     // running since; zero: it stands still
}

// run lets the clock run, if it does not.
func (c *clock) run(now time.Time) {
	if c.since.IsZero() {
		c.since = now
	}
}

func (c *clock) pause(now time.Time) {
	if !c.since.IsZero() {
		c.used += max(0, now.Sub(c.since))
		c.since = time.Time{}
	}
}

// reaches returns when the clock shows d; zero if it stands still.
func (c *clock) reaches(d time.Duration) time.Time {
	if c.since.IsZero() {
		return time.Time{}
	}
	return c.since.Add(d - c.used)
}

// heartbeat is the state of a job's heartbeats.
type heartbeat struct {
	interval  time.Duration // zero: no heartbeats
	sequence  uint64        // of the latest one emitted
	due       time.Time     // of the next one the runtime sends
	manual    bool          // the tool sends them
	received  time.Time     // manual: when the tool sent the latest one
	blockedAt time.Time     // when missed ones blocked the job
}

// missed is the number of intervals without a heartbeat after which the tool counts as silent (SPEC.md §5.6).
const missed = 2

func (h *heartbeat) schedule(now time.Time) { h.due = now.Add(h.interval) }

// worthEmitting reports whether a heartbeat of the tool becomes an event.
func (h *heartbeat) worthEmitting(now time.Time) bool {
	return h.manual && h.interval > 0 && now.Sub(h.due) >= -h.interval*3/4
}

func (h *heartbeat) next(now time.Time, s arcp.JobState) *arcp.JobHeartbeatPayload {
	h.sequence++
	h.schedule(now)
	return &arcp.JobHeartbeatPayload{
		Sequence: h.sequence, DeadlineMS: uint64((missed * h.interval).Milliseconds()), State: string(s)}
}

// timer calls fire at a time; zero: never.
type timer struct {
	at   time.Time
	fire func(m *Machine, now time.Time)
}

// timers returns the pending timers; of two at the same time the first counts. After a cancel only its
// deadline ends the job.
func (m *Machine) timers() [3]timer {
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
		t[2] = timer{m.heartbeat.due, (*Machine).emit}
	}
	return t
}

// runtimeTimer also runs between two attempts.
func (m *Machine) runtimeTimer() timer {
	if m.spec.MaxRuntime <= 0 || !m.active() && m.state != arcp.StateQueued {
		return timer{}
	}
	return timer{m.clock.reaches(m.spec.MaxRuntime), (*Machine).timeout}
}

func (m *Machine) silenceTimer() timer {
	h := &m.heartbeat
	switch {
	case m.waiting == forHeartbeat && m.spec.Window > 0:
		return timer{h.blockedAt.Add(m.spec.Window), (*Machine).window}
	case m.waiting == forNothing && h.manual && h.interval > 0:
		return timer{h.received.Add(missed * h.interval), (*Machine).silence}
	}
	return timer{}
}

// next returns the earliest pending timer.
func (m *Machine) next() timer {
	var first timer
	for _, t := range m.timers() {
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
func (m *Machine) Deadline() time.Time { return m.next().at }

// Advance fires the timers that are due at now, the earliest first. After it Deadline is zero or later than
// now.
func (m *Machine) Advance(now time.Time) {
	for t := m.next(); !t.at.IsZero() && !t.at.After(now); t = m.next() {
		t.fire(m, now)
	}
}

func (m *Machine) hardStop(time.Time) {
	m.end(InputHardStop, Outcome{Reason: m.cancellation.reason, Code: arcp.CodeAborted})
}

func (m *Machine) timeout(time.Time) {
	m.fail(InputTimeout, arcp.Errorf(arcp.CodeTimeout, "the job ran longer than %v", m.spec.MaxRuntime))
}

func (m *Machine) silence(now time.Time) {
	if !m.spec.Block {
		m.endSilent(now, InputSilence)
		return
	}
	m.move(InputHold) // the runtime's own heartbeat is overdue and shows the new state at once
	m.waiting, m.heartbeat.blockedAt = forHeartbeat, now
}

func (m *Machine) window(now time.Time) { m.endSilent(now, InputWindow) }

// endSilent fails the job because of missed heartbeats. With Spec.Lost it only sets the error for Silence.
func (m *Machine) endSilent(now time.Time, in Input) {
	if !m.spec.Lost {
		m.fail(in, m.errLost())
		return
	}
	m.silenceErr = m.errLost()
	m.heartbeat.received, m.heartbeat.blockedAt = now, now // not again at once
}

// Silence returns the error of missed heartbeats, once; nil: none were missed. The state of the job does not
// change until the caller ends the attempt.
func (m *Machine) Silence() *arcp.Error {
	err := m.silenceErr
	m.silenceErr = nil
	return err
}

func (m *Machine) errLost() *arcp.Error {
	return arcp.Errorf(arcp.CodeHeartbeatLost, "the tool missed %d heartbeats of %v", missed, m.heartbeat.interval)
}
