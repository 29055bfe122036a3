package engine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// maxLost bounds the attempts of a job that are lost: one that ends every program
// that takes it must not go on for ever.
const maxLost = 5

// remote reports whether the job is done by a worker: its attempt may be lost
// while this process goes on.
func (r *run) remote() bool { return r.tool.Source == tool.SourceWorker }

// lose ends an attempt of which nobody will say what came of it. What follows is
// what follows a restart of the runtime: another attempt, or the job's end.
func (s *supervisor) lose(now time.Time, err *arcp.Error) {
	if s.leaving() {
		return
	}
	if s.tool.Recovery == tool.RecoveryFail {
		s.fail(now, arcp.Errorf(arcp.CodeAborted, "%s", err.Message))
		return
	}
	s.waitOver(now)
	if s.progress.Lost++; s.progress.Lost >= maxLost {
		last := arcp.Errorf(arcp.CodeAborted, "%d attempts were lost; the last one: %s", maxLost, err.Message)
		last.Retryable = false
		s.m.Fail(now, last)
		return
	}
	if s.m.Retry(now, err); s.m.State() == arcp.StateQueued {
		s.again = &retry{code: err.Code}
		s.progress.Next, s.unsaved = now, true
	}
}

func (j toolJob) Ended() <-chan struct{} { return j.s.endc }

// Failure is the error that the job ended with, once Ended is closed.
func (j toolJob) Failure() *arcp.Error {
	select {
	case <-j.s.endc: // the supervisor writes nothing any more
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
func (j toolJob) Terms() tool.AttemptInfo { return j.s.terms }

// newTerms is what the attempt is made under, for its tool, which runs beside the
// supervisor.
func (s *supervisor) newTerms() tool.AttemptInfo {
	raw, _ := describeLease(s.auth.Lease)
	t := tool.AttemptInfo{Principal: s.row.Principal, Priority: s.row.Priority, SpanID: s.row.SpanID, Lease: raw,
		Deadline: earliest(s.deadline(), s.toolEnd)}
	if l := s.auth.Lease; l != nil {
		t.Deadline = earliest(t.Deadline, l.ExpiresAt())
	}
	if s.from.N > 0 {
		t.Checkpoint = &arcp.JobCheckpointPayload{CheckpointID: s.from.ID, Label: s.from.Label, Data: s.from.Data}
	}
	return t
}
