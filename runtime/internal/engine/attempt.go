package engine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/digest"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/job/authority"
	"github.com/arcpd/arcpd/runtime/internal/job/question"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/tracing"
	"github.com/arcpd/arcpd/runtime/tool"
)

// startAttempt starts an attempt, unless the job was cancelled in the queue or its checkpoint cannot be
// read.
func (s *supervisor) startAttempt(now time.Time) {
	if (s.attempt > 1 || s.restoredFrom != nil) && s.tool.Recovery == tool.RecoveryCheckpoint && !s.machine.State().Terminal() {
		s.restore(now)
	}
	s.machine.Start(now)
	if q := s.questions.Interrupt(); q != nil && s.running() { // an interrupt of an earlier attempt is still pending
		s.questioner().blockOn(now, q)
	}
	s.due = s.machine.Deadline()
}

// emitStarted emits job.started and calls the tool.
func (s *supervisor) emitStarted(now time.Time) {
	s.started = now
	s.times.start(now, s.attempt)
	logStarted(s.run)
	s.attemptSpan = s.span.Start(tracing.Attempt)
	s.attemptSpan.SetAttempt(s.attempt)
	if s.attempt == 1 {
		s.metrics.Queue.Observe(now.Sub(s.created).Seconds())
	}
	if s.maxRuntime > 0 && s.progress.Started.IsZero() {
		s.progress.Started, s.progress.unsaved = now, true
	}
	if !s.direct && !s.builtin() {
		payload := arcp.JobStartedPayload{Description: s.describe()}
		s.write.started = encodeEvent(arcp.JobStarted, now, &s.common, s.row.Priority, payload.AppendJSON)
	}
	if q := s.questions.Interrupt(); q != nil { // an interrupt of an earlier attempt is still pending
		s.questioner().blockOn(now, q)
	}
	if !s.startsAfterWrite() {
		s.startTool()
	}
}

func (s *supervisor) describe() string {
	if s.attempt == 1 {
		return "invoking " + s.row.Agent
	}
	return fmt.Sprintf("invoking %s, attempt %d", s.row.Agent, s.attempt)
}

// startTool calls the tool. An early tool is only marked: takeTurns calls it.
func (s *supervisor) startTool() {
	now := time.Now()
	if s.questions.Blocked() {
		s.limit.Pause(now, job.PauseAnswer)
	}
	s.limit.Start(now, s.tool.Limits.Timeout)
	s.call.failedBefore = s.progress.Failed
	s.call.info = s.attemptInfo()
	s.call.begun = true
	if s.write.claim != nil {
		s.call.early = true
		return
	}
	s.e.pool.Run(toolRunner{toolGoroutine{s}}.run)
}

// toolRunner calls the tool of an attempt, on the tool's goroutine.
type toolRunner struct{ toolGoroutine }

// errVanished is the error of a tool that calls runtime.Goexit.
var errVanished = arcp.Errorf(arcp.CodeInternal, "the tool ended its goroutine")

// run calls the tool and passes the result to the supervisor.
func (t toolRunner) run() {
	s := t.s
	result := errVanished
	var value arcp.Raw
	begun := time.Now()
	defer func() {
		s.e.slow.record(s.tool, time.Since(begun))
		s.mu.Lock()
		s.call.end.send()
		s.call.returned, s.call.value, s.call.err = true, value, result
		s.mu.Unlock()
		s.wake()
	}()
	args, err := t.authorize()
	if err != nil {
		result, _ = arcp.AsError(err)
		t.describeRefusal(err)
		s.metrics.CountRefusedCall(callStatus(result))
		return
	}
	began := time.Now()
	span := s.attemptSpan.Start(tracing.Call)
	value, result = s.tool.Run(span.Context(s.ctx), s.job(), args)
	span.End(codeOf(result))
	s.metrics.CountCall(callStatus(result), time.Since(began))
}

// authorize calls the hooks and, if the tool needs an approval, asks another session. It returns the
// arguments of the call, which a hook may have replaced. After the end of the job's lease it refuses the call.
func (t toolRunner) authorize() (arcp.Raw, error) {
	s := t.s
	args := s.row.Arguments
	if s.builtin() {
		return args, nil
	}
	decision := s.catalog.Before(s.ctx, s.tool, tool.HookCall{Arguments: args, Job: s.row.ID, Parent: s.row.Parent,
		Session: s.row.Session, Principal: s.row.Principal, Attempt: s.attempt})
	if decision.Fault != nil {
		s.e.cfg.Logger.Error().Err(decision.Fault).Str("job_id", string(s.row.ID)).Str("hook", decision.Hook).Msg("hook could not decide")
	}
	switch {
	case decision.Refused != nil:
		t.hookDenied(&decision)
		return nil, &tool.LoggableError{Err: decision.Refused, Log: "the hook " + decision.Hook + " refused the call"}
	case decision.Arguments != nil:
		args = decision.Arguments
		t.addNote(callNote{HookArguments: true, Request: digest.OfArguments(args)})
	}
	if err := t.approve(args); err != nil {
		return nil, err
	}
	if err := t.withdrawApprovals(); err != nil {
		return nil, err
	}
	return args, t.CheckLease()
}

// describeRefusal records the text that the log may have of an error of authorize: its message, unless that may
// repeat words of others.
func (t toolRunner) describeRefusal(err error) {
	e, _ := arcp.AsError(err)
	text := e.Message
	if l, ok := errors.AsType[*tool.LoggableError](err); ok {
		text = l.LogText()
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.call.logText = text
}

// hookDenied audits that a hook has refused the call. It fails the parent job if the hook says so.
func (t toolRunner) hookDenied(r *catalog.CallDecision) {
	s := t.s
	s.e.cfg.audit().Event("call", s.row.Principal, s.row.Session).Str("job_id", string(s.row.ID)).Str("target", s.row.Agent).
		Str("decision", "denied").Str("reason", "hook "+r.Hook).Msg("audit")
	if parent := s.e.run(s.row.Parent); r.Abort && parent != nil && !parent.isSchedule() {
		parent.post(abortJob{err: r.Refused})
	}
}

// abortJob fails a job.
type abortJob struct {
	noAnswer
	err *arcp.Error
}

func (a abortJob) apply(s *supervisor, now time.Time) {
	if !s.machine.State().Terminal() {
		s.progress.endBlock(now)
		s.progress.toolError = toolError{err: a.err}
		s.machine.Fail(now, a.err)
	}
}

// approve asks another session for an approval of the call, if the tool needs one.
func (t toolRunner) approve(args arcp.Raw) error {
	s := t.s
	if s.tool.Approval == tool.ApprovalNone {
		return nil
	}
	approved, err := s.tool.Approves(s.ctx, tool.ApprovalCall{
		Arguments: args,
		Principal: s.row.Principal,
		Roles:     s.roles,
		Lease:     t.leaseText(),
		Attempt:   s.attempt,
	})
	if err != nil {
		s.e.cfg.Logger.Warn().Err(err).Str("job_id", string(s.row.ID)).Str("tool", s.row.Agent).
			Msg("approval rule could not decide: an approval is requested")
	}
	if approved {
		return nil
	}
	row := approval.Row{Ordinal: question.BeforeCall, Action: "call " + s.row.Agent, Details: preview(args), Quorum: s.tool.Approval.Quorum}
	if d := s.tool.Approval.EscalateAfter; d > 0 {
		row.EscalateAt = time.Now().Add(d).UTC()
	}
	span := s.attemptSpan.Start(tracing.Approval)
	if err = t.gate(s.ctx, row, 0); err == nil {
		err = t.checkPrincipal()
	}
	span.End(codeOf(err))
	return err
}

// checkPrincipal refuses the call of a job that has waited for an approval, if its principal may not submit jobs
// any more.
func (t toolRunner) checkPrincipal() error {
	s := t.s
	if s.e.cfg.Rights == nil {
		return nil
	}
	identity, err := t.identity()
	if err != nil || len(identity) == 0 {
		return err
	}
	if _, refusal := s.e.cfg.Rights(identity); refusal != nil {
		s.e.cfg.audit().denied("call", s.row.Principal, s.row.Session, s.row.Agent, "principal")
		return refusal
	}
	return nil
}

// withdrawApprovals withdraws the approvals of earlier attempts that this attempt does not need, and waits
// until that is durable: Recover takes a pending approval of the call as proof that the tool was not called.
func (t toolRunner) withdrawApprovals() error {
	s := t.s
	s.mu.Lock()
	pending := s.questions.AwaitsApproval()
	s.mu.Unlock()
	if !pending {
		return nil
	}
	w := &withdrawApprovals{attempt: s, toolReply: newToolReply()}
	if t.attemptEnded() || !s.post(w) {
		return errEnded
	}
	return <-w.done
}

// withdrawApprovals is the command of toolRunner.withdrawApprovals.
type withdrawApprovals struct {
	attempt *supervisor
	toolReply
}

func (w *withdrawApprovals) apply(s *supervisor, now time.Time) {
	if s != w.attempt || !s.running() {
		w.done <- errEnded
		return
	}
	s.mu.Lock()
	effects := s.questions.WithdrawApprovals(now)
	s.mu.Unlock()
	for _, e := range effects {
		s.questioner().applyEffect(now, e)
	}
	s.write.addCommands(w)
}

// codeOf returns the code of an error; empty: there is none.
func codeOf(err error) arcp.Code {
	if e, ok := errors.AsType[*arcp.Error](err); ok && e == nil || err == nil {
		return ""
	}
	e, _ := arcp.AsError(err)
	return e.Code
}

// leaseText returns the job's lease for an approval rule.
func (t toolRunner) leaseText() arcp.Raw {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, _ := authority.WireForm(s.authority.Lease)
	return raw
}

// preview returns the arguments as the details of a question. It replaces arguments that are too large
// or too deeply nested by their size and their SHA-256, so that an approval counts for no other arguments.
func preview(args arcp.Raw) arcp.Raw {
	if len(args) > approval.MaxDetails || arcp.DeeperThan(args, tool.MaxDepth-1) {
		return arcp.Raw(fmt.Sprintf(`{"arguments_bytes":%d,"arguments_sha256":"%x"}`, len(args), sha256.Sum256(args)))
	}
	raw, err := arcp.Marshal(struct {
		Arguments arcp.Raw `json:"arguments,omitzero"`
	}{args})
	if err != nil { // they were decoded
		panic("engine: arguments: " + err.Error())
	}
	return raw
}

// callStatus returns the metric label for the result of a call.
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
