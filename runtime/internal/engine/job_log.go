package engine

import (
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/tool"
)

// countAccepted counts and logs a job whose claim is durable. The caller may be the committer, which does not wait
// for the log.
func countAccepted(r *run) {
	r.metrics.Submitted.Inc()
	if ev := r.e.cfg.Logger.Debug(); ev.Enabled() && !r.runsInline() {
		r.e.pool.Run(func() { describeJob(ev, r).Msg("job accepted") })
	}
}

// logStarted logs the start of an attempt.
func logStarted(r *run) {
	if ev := r.e.cfg.Logger.Debug(); ev.Enabled() {
		describeJob(ev, r).Uint32("attempt", r.attempt).Msg("job started")
	}
}

// logWaiting logs a wait of which an event tells: for a worker or server that is not connected with the level info,
// otherwise with the level debug. A question is such an event.
func logWaiting(r *run, w *arcp.JobWaiting) {
	ev := r.e.cfg.Logger.Debug()
	if isAbsence(w.Reason) || w.Reason == arcp.WaitReconnect {
		ev = r.e.cfg.Logger.Info()
	}
	if ev.Enabled() {
		describeJob(ev, r).Str("reason", w.Reason).Str("detail", w.Message).Msg("job waits")
	}
}

// logOutcome logs the end of a job: of a built-in tool, other than a schedule, with the level debug.
func logOutcome(cfg *Config, r *run, o *job.Outcome, took time.Duration) {
	ev := cfg.Logger.Info()
	if r.tool != nil && r.builtin() && !r.isSchedule() {
		ev = cfg.Logger.Debug()
	}
	if !ev.Enabled() {
		return
	}
	ev = describeJob(ev, r).Str("outcome", string(o.State))
	if code := outcomeCode(o); code != "" {
		ev = ev.Str("code", string(code))
	}
	if text := loggedError(cfg, r, o); text != "" {
		ev = ev.Str("error", clip.Ellipsis(text, maxLoggedError))
	}
	ev.Dur("duration_ms", took).Msg("job finished")
}

// loggedError returns the error of an outcome as the log has it; empty: nothing. The message of an error of a tool may
// repeat arguments and results, so it is logged only with Config.LogToolErrors.
func loggedError(cfg *Config, r *run, o *job.Outcome) string {
	switch {
	case o.Err == nil:
		return ""
	case o.Err == r.progress.toolError.err && !cfg.LogToolErrors:
		return cfg.scrubber().text(r.progress.toolError.logText)
	}
	return cfg.scrubber().text(o.Err.Message)
}

// logPanic logs the stack of a tool that panicked. The value of the panic may repeat arguments and results, so it is
// logged only with Config.LogToolErrors.
func logPanic(cfg *Config, r *run, p *tool.PanicError) {
	ev := describeJob(cfg.Logger.Error(), r)
	if cfg.LogToolErrors {
		ev = ev.Str("panic", clip.Ellipsis(cfg.scrubber().text(fmt.Sprint(p.Value)), maxLoggedError))
	}
	ev.Str("stack", string(p.Stack)).Msg("tool panicked")
}

func describeJob(ev *zerolog.Event, r *run) *zerolog.Event {
	ev = ev.Str("job_id", string(r.row.ID))
	if r.row.Session != "" {
		ev = ev.Str("session_id", string(r.row.Session))
	}
	return ev.Str("principal", r.row.Principal).Str("tool", r.row.Agent).Str("trace_id", r.row.TraceID)
}

// panicText is the error of a tool that panicked, as tool.Run returns it.
const panicText = "the tool panicked"

// maxLoggedError bounds the text of an error or a panic in the log, in bytes.
const maxLoggedError = 1024
