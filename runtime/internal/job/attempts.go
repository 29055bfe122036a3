package job

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of attempts (SPEC.md §5.6).
const (
	maxLost       = 5              // lost attempts: a job that crashes every worker must end
	maxRetryFloor = 24 * time.Hour // the wait that an error may ask for
)

// Attempts is the history of a job's attempts that must survive the process.
type Attempts struct {
	Started time.Time `json:"started_at,omitzero"` // the first attempt; only for jobs with a maximum runtime
	Next    time.Time `json:"next_at,omitzero"`    // the next attempt does not start before
	Failed  int       `json:"failed,omitzero"`     // failed attempts that another one followed
	Lost    int       `json:"lost,omitzero"`       // lost attempts
	Blocked time.Time `json:"blocked_at,omitzero"` // the job waits for people since; only for jobs with a maximum runtime
}

// Deadline returns when the maximum runtime is over; zero: never, or the job has not started.
func (a *Attempts) Deadline(maxRuntime time.Duration) time.Time {
	if maxRuntime <= 0 || a.Started.IsZero() {
		return time.Time{}
	}
	return a.Started.Add(maxRuntime)
}

// Unblock ends a wait for people, which does not count for the maximum runtime.
func (a *Attempts) Unblock(now time.Time) {
	if !a.Blocked.IsZero() && !a.Started.IsZero() {
		a.Started = a.Started.Add(max(0, now.Sub(a.Blocked)))
	}
	a.Blocked = time.Time{}
}

// RetryDelay decides whether another attempt follows err, and after how long. The delay is the
// backoff, or the longer wait that err asks for. deadline is when the job's time is over, or zero:
// no attempt follows that would begin after it.
func (a *Attempts) RetryDelay(now time.Time, err *arcp.Error, maxAttempts int, backoff time.Duration, deadline time.Time) (time.Duration, bool) {
	if !err.Retryable || a.Failed+1 >= maxAttempts {
		return 0, false
	}
	floor, _ := arcp.RetryAfterOf(err.Details) // 0 if it asks for none
	delay := max(backoff, min(floor, maxRetryFloor))
	if !deadline.IsZero() && !now.Add(delay).Before(deadline) {
		return 0, false
	}
	return delay, true
}

// Fail records a failed attempt that another one follows after delay.
func (a *Attempts) Fail(now time.Time, delay time.Duration) {
	a.Failed++
	a.Next = now.Add(delay)
}

// Lose records a lost attempt. It returns the error with which the job fails; nil: another attempt
// may follow.
func (a *Attempts) Lose(err *arcp.Error) *arcp.Error {
	if a.Lost++; a.Lost < maxLost {
		return nil
	}
	last := arcp.Errorf(arcp.CodeAborted, "%d attempts were lost; the last one: %s", maxLost, err.Message)
	last.Retryable = false
	return last
}

// TimeLimit is the time limit of one attempt, which pauses while the attempt waits for people. The
// zero value is no limit. At most one of its members is not zero.
type TimeLimit struct {
	end  time.Time
	left time.Duration // of a paused limit
}

// Start begins a limit of d; zero or less: none.
func (l *TimeLimit) Start(now time.Time, d time.Duration, paused bool) {
	switch {
	case d <= 0:
	case paused:
		l.left = d
	default:
		l.end = now.Add(d)
	}
}

// Pause stops the clock.
func (l *TimeLimit) Pause(now time.Time) {
	if !l.end.IsZero() {
		l.left, l.end = max(l.end.Sub(now), 1), time.Time{}
	}
}

// Resume lets the clock run again.
func (l *TimeLimit) Resume(now time.Time) {
	if l.left > 0 {
		l.end, l.left = now.Add(l.left), 0
	}
}

// End returns when the limit is over; zero: there is none, or it is paused.
func (l *TimeLimit) End() time.Time { return l.end }
