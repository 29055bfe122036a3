package engine

import (
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/tool"
)

// start has the machine start an attempt, unless the job was cancelled in its
// queue or its checkpoint cannot be read.
func (s *supervisor) start(now time.Time) {
	if (s.attempt > 1 || s.origin != nil) && s.tool.Recovery == tool.RecoveryCheckpoint && !s.m.State().Terminal() {
		s.restore(now)
	}
	s.m.Start(now)
	if q := s.interrupted(); q != nil && s.running() { // during an earlier attempt
		s.await(now, q)
	}
	s.due = s.m.Deadline()
}

// begin starts the attempt.
func (s *supervisor) begin(now time.Time) {
	s.started = now
	if s.attempt == 1 {
		s.tm.Queue.Observe(now.Sub(s.created).Seconds())
	}
	if s.maxRuntime > 0 && s.progress.Started.IsZero() {
		s.progress.Started, s.unsaved = now, true
	}
	if !s.direct && !s.builtin() {
		s.pending = append(s.pending, s.event(arcp.JobStarted, now, s.row.Priority, arcp.JobStartedPayload{Description: s.describe()}))
	}
	if q := s.interrupted(); q != nil { // of an earlier attempt
		s.await(now, q)
	}
	if !s.onlyOnce() {
		s.call()
	}
}

func (s *supervisor) describe() string {
	if s.attempt == 1 {
		return "invoking " + s.row.Agent
	}
	return fmt.Sprintf("invoking %s, attempt %d", s.row.Agent, s.attempt)
}

// onlyOnce reports whether the tool is called when its start is durable, and not
// before: what a restart must not repeat must leave a trace before it happens.
func (s *supervisor) onlyOnce() bool {
	return s.tool.Recovery == tool.RecoveryFail && !s.tool.SideEffect.Early()
}

// call has the tool run.
func (s *supervisor) call() {
	switch t := s.tool.Limits.Timeout; {
	case t <= 0:
	case s.parked > 0:
		s.toolLeft = t
	default:
		s.toolEnd = time.Now().Add(t)
	}
	s.round = s.progress.Failed
	s.terms = s.newTerms()
	s.toolC = make(chan struct{})
	s.e.pool.Run(s.runTool)
}

// errVanished is the outcome of a tool that calls runtime.Goexit.
var errVanished = arcp.Errorf(arcp.CodeInternal, "the tool ended its goroutine")

// runTool runs the tool and leaves what came of it to the supervisor.
func (s *supervisor) runTool() {
	result := errVanished
	var value arcp.Raw
	defer func() {
		close(s.toolC)
		s.mu.Lock()
		s.returned, s.value, s.err = true, value, result
		s.mu.Unlock()
		s.wake()
	}()
	args, err := s.clear()
	if err != nil {
		result, _ = arcp.AsError(err)
		s.tm.Refused(callStatus(result))
		return
	}
	began := time.Now()
	value, result = s.tool.Run(s.ctx, s.job(), args)
	s.tm.Called(callStatus(result), time.Since(began))
}

// clear asks the hooks, and then whoever must approve, whether the tool may be
// called. It returns the arguments to call it with.
func (s *supervisor) clear() (arcp.Raw, error) {
	args := s.row.Arguments
	if s.builtin() {
		return args, nil
	}
	ruling := s.catalogue.Before(s.ctx, s.tool, tool.HookCall{Arguments: args, Job: s.row.ID, Parent: s.row.Parent,
		Session: s.row.Session, Principal: s.row.Principal, Attempt: s.attempt})
	if ruling.Fault != nil {
		s.e.cfg.Logger.Error().Err(ruling.Fault).Str("job_id", string(s.row.ID)).Str("hook", ruling.Hook).Msg("hook could not decide")
	}
	switch {
	case ruling.Refused != nil:
		s.hookDenied(&ruling)
		return nil, ruling.Refused
	case ruling.Arguments != nil:
		args = ruling.Arguments
		s.note(note{Own: true, Request: tool.ArgumentsDigest(args)})
	}
	return args, s.approve(args)
}

// hookDenied records that a hook has refused the call, and ends the job that made
// it if the hook says so.
func (s *supervisor) hookDenied(r *tool.CallDecision) {
	s.e.audit().Event("call", s.row.Principal, s.row.Session).Str("job_id", string(s.row.ID)).Str("target", s.row.Agent).Str("decision", "denied").Str("reason", "hook "+r.Hook).Msg("audit")
	if parent := s.e.run(s.row.Parent); r.Abort && parent != nil {
		parent.post(abort{r.Refused})
	}
}

// abort ends a job.
type abort struct{ why *arcp.Error }

func (a abort) meet(s *supervisor, now time.Time) {
	if !s.m.State().Terminal() {
		s.waitOver(now)
		s.m.Fail(now, a.why)
	}
}

func (abort) settled(*supervisor, error) {}
func (abort) tooLate(*Engine, bool)      {}

// approve asks somebody else whether the tool may be called, unless its policy says
// that nobody need be asked.
func (s *supervisor) approve(args arcp.Raw) error {
	if s.tool.Approval == tool.ApprovalNone {
		return nil
	}
	yes, err := s.tool.Approves(s.ctx, tool.RuleCall{Arguments: args, Principal: s.row.Principal, Roles: s.roles, Lease: s.leaseText(), Attempt: s.attempt})
	if err != nil {
		s.e.cfg.Logger.Warn().Err(err).Str("job_id", string(s.row.ID)).Str("tool", s.row.Agent).Msg("approval rule could not decide: somebody is asked")
	}
	if yes {
		return nil
	}
	row := approval.Row{Ordinal: beforeCall, Action: "call " + s.row.Agent, Details: preview(args), Quorum: s.tool.Approval.Quorum}
	if d := s.tool.Approval.EscalateAfter; d > 0 {
		row.EscalateAt = time.Now().Add(d).UTC()
	}
	return s.gate(s.ctx, row, 0)
}

// leaseText is the job's lease as rules read it.
func (s *supervisor) leaseText() arcp.Raw {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, _ := describeLease(s.auth.Lease)
	return raw
}

// preview is what a person is shown of arguments; those that are too large or
// nested too deep are left out.
func preview(args arcp.Raw) arcp.Raw {
	if len(args) > approval.MaxDetails || arcp.DeeperThan(args, tool.MaxDepth-1) {
		return arcp.Raw(fmt.Sprintf(`{"arguments_bytes":%d}`, len(args)))
	}
	raw, err := arcp.Marshal(struct {
		Arguments arcp.Raw `json:"arguments,omitzero"`
	}{args})
	if err != nil { // they were decoded
		panic("engine: arguments: " + err.Error())
	}
	return raw
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
