package engine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job/authority"
	"github.com/arcpd/arcpd/runtime/tool"
)

// loseAttempt ends an attempt whose result will not be known. Another attempt or the end of the job
// follows, as after a restart of the runtime.
func (s *supervisor) loseAttempt(now time.Time, err *arcp.Error) {
	if s.exit != exitNone {
		return
	}
	if s.tool.Recovery == tool.RecoveryFail {
		s.failAttempt(now, arcp.Errorf(arcp.CodeAborted, "%s; the tool has no recovery", err.Message))
		return
	}
	s.progress.endBlock(now)
	if last := s.progress.Lose(err); last != nil {
		s.machine.Fail(now, last)
		return
	}
	if s.machine.Retry(now, err); s.machine.State() == arcp.StateQueued {
		s.exit.set(exitRetry)
		s.retryCause = failure{at: now, code: err.Code}
		s.progress.Next, s.progress.unsaved = now, true
	}
}

func (j toolJob) Ended() <-chan struct{} {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return j.s.end.channel()
}

// Failure returns the error with which the job ended, once Ended is closed.
func (j toolJob) Failure() *arcp.Error {
	select {
	case <-j.Ended(): // the supervisor writes nothing any more
	default:
		return nil
	}
	switch o := j.s.outcome; {
	case o == nil:
		return nil
	case o.State == arcp.StateCancelled:
		return arcp.Errorf(o.Code, "%s", o.Reason)
	default:
		return o.Err
	}
}

func (j toolJob) Info() tool.AttemptInfo { return j.s.call.info }

// attemptInfo returns a copy of the attempt's lease, deadlines and checkpoint, which the tool reads on its
// own goroutine.
func (s *supervisor) attemptInfo() tool.AttemptInfo {
	raw, _ := authority.WireForm(s.authority.Lease)
	t := tool.AttemptInfo{Principal: s.row.Principal, Priority: s.row.Priority, SpanID: s.row.SpanID, Lease: raw,
		Deadline: s.deadline()}
	if !s.limit.End().IsZero() {
		t.Limit = s.tool.Limits.Timeout
	}
	if l := s.authority.Lease; l != nil {
		t.Deadline = earliest(t.Deadline, l.ExpiresAt())
	}
	if s.checkpoint.N > 0 {
		t.Checkpoint = &arcp.JobCheckpointPayload{CheckpointID: s.checkpoint.ID, Label: s.checkpoint.Label, Data: s.checkpoint.Data}
	}
	return t
}
