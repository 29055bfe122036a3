package job

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of attempts (SPEC.md §5.6).
const (
	maxLost           = 5              // lost attempts of a job; a job that crashes every worker must end
	maxRequestedDelay = 24 * time.Hour // delay that an error may request
)

// Attempts is the history of a job's attempts that must survive the process.
type Attempts struct {
	Started time.Time `json:"started_at,omitzero"` // when the first attempt started; only for jobs with a maximum runtime
	Next    time.Time `json:"next_at,omitzero"`    // when the next attempt may start
	Failed  int       `json:"failed,omitzero"`     // failed attempts that were followed by another one
	Lost    int       `json:"lost,omitzero"`       // lost attempts
	Blocked time.Time `json:"blocked_at,omitzero"` // since when the job waits for an answer; only for jobs with a maximum runtime
}

// Deadline returns when the maximum runtime is over; zero: never, or the job has not started.
func (a *Attempts) Deadline(maxRuntime time.Duration) time.Time {
	if maxRuntime <= 0 || a.Started.IsZero() {
		return time.Time{}
	}
	return a.Started.Add(maxRuntime)
}

// Unblock ends a wait for an answer. The wait does not count for the maximum runtime.
func (a *Attempts) Unblock(now time.Time) {
	if !a.Blocked.IsZero() && !a.Started.IsZero() {
		a.Started = a.Started.Add(max(0, now.Sub(a.Blocked)))
	}
	a.Blocked = time.Time{}
}

// RetryDelay decides whether another attempt follows err, and after which delay: the backoff, or the
// longer delay that err requests. No attempt follows that would begin after the deadline; zero: there
// is none.
func (a *Attempts) RetryDelay(now time.Time, err *arcp.Error, maxAttempts int, backoff time.Duration,
	deadline time.Time) (time.Duration, bool) {
	if !err.Retryable || a.Failed+1 >= maxAttempts {
		return 0, false
	}
	requested, _ := arcp.RetryAfterOf(err.Details) // 0: it requests none
	delay := max(backoff, min(requested, maxRequestedDelay))
	if !deadline.IsZero() && !now.Add(delay).Before(deadline) {
		return 0, false
	}
	return delay, true
}

// Fail records a failed attempt that is followed by another one after delay.
func (a *Attempts) Fail(now time.Time, delay time.Duration) {
	a.Failed++
	a.Next = now.Add(delay)
}

// Lose records a lost attempt, whose result is unknown. It returns the error with which the job fails;
// nil: another attempt may follow.
func (a *Attempts) Lose(err *arcp.Error) *arcp.Error {
	if a.Lost++; a.Lost < maxLost {
		return nil
	}
	last := arcp.Errorf(arcp.CodeAborted, "%d attempts were lost; the last one: %s", maxLost, err.Message)
	last.Retryable = false
	return last
}

// Pause is a reason for which the time limit of an attempt does not run.
type Pause uint8

// The reasons.
const (
	PauseAnswer Pause = 1 << iota // the attempt waits for an answer
	PauseWorker                   // the attempt waits for a worker
)

// TimeLimit is the time limit of one attempt. It runs while there is no reason to pause it. The zero
// value is no limit. At most one of end and remaining is not zero.
type TimeLimit struct {
	end       time.Time
	remaining time.Duration // of a paused limit
	pauses    Pause         // the present reasons
}

// Start starts a limit of d; zero or less: there is no limit.
func (l *TimeLimit) Start(now time.Time, d time.Duration) {
	switch {
	case d <= 0:
	case l.pauses != 0:
		l.remaining = d
	default:
		l.end = now.Add(d)
	}
}

// Pause stops the clock for a reason.
func (l *TimeLimit) Pause(now time.Time, reason Pause) {
	l.pauses |= reason
	if !l.end.IsZero() {
		l.remaining, l.end = max(l.end.Sub(now), 1), time.Time{}
	}
}

// Resume ends a reason. The clock runs again if no other reason is left.
func (l *TimeLimit) Resume(now time.Time, reason Pause) {
	l.pauses &^= reason
	if l.pauses == 0 && l.remaining > 0 {
		l.end, l.remaining = now.Add(l.remaining), 0
	}
}

// Extend lets a limit that runs end later by d.
func (l *TimeLimit) Extend(d time.Duration) {
	if !l.end.IsZero() {
		l.end = l.end.Add(d)
	}
}

// End returns when the limit is over; zero: there is none, or it is paused.
func (l *TimeLimit) End() time.Time { return l.end }
