package engine

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/job"
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
	if o.Err != nil {
		if text := cfg.scrubber().text(o.Err.Message); text != "" {
			ev = ev.Str("error", withoutArguments(text, r.row.Arguments))
		}
	}
	ev.Dur("duration_ms", took).Msg("job finished")
}

func describeJob(ev *zerolog.Event, r *run) *zerolog.Event {
	ev = ev.Str("job_id", string(r.row.ID))
	if r.row.Session != "" {
		ev = ev.Str("session_id", string(r.row.Session))
	}
	return ev.Str("principal", r.row.Principal).Str("tool", r.row.Agent).Str("trace_id", r.row.TraceID)
}

// Bounds of an error text in the log, in bytes.
const (
	maxLoggedError     = 1024
	maxSearched        = 64 << 10 // arguments that are searched for texts
	minArgument        = 4        // of a text that is removed
	minArgumentPrefix  = 16       // of a text that the error has only the beginning of
	omittedArgument    = "[argument]"
	omittedErrorOfTool = "[omitted: the arguments cannot be removed from it]"
)

// withoutArguments returns the message of an error for the log, without the texts and numbers of the arguments,
// which a tool may repeat in its errors.
func withoutArguments(message string, arguments arcp.Raw) string {
	message = clip.Ellipsis(message, maxLoggedError)
	if len(arguments) > maxSearched {
		return omittedErrorOfTool
	}
	var value any
	if len(arguments) > 0 && arcp.Unmarshal(arguments, &value) != nil {
		return omittedErrorOfTool
	}
	texts := appendTexts(nil, value)
	slices.SortFunc(texts, func(a, b string) int { return len(b) - len(a) }) // a text may be a part of a longer one
	for _, text := range texts {
		message = withoutText(message, text)
	}
	return message
}

// appendTexts appends the texts and numbers of a decoded JSON value.
func appendTexts(list []string, value any) []string {
	switch value := value.(type) {
	case string:
		return append(list, value)
	case float64:
		return append(list, strconv.FormatFloat(value, 'f', -1, 64))
	case []any:
		for _, v := range value {
			list = appendTexts(list, v)
		}
	case map[string]any:
		for _, v := range value {
			list = appendTexts(list, v)
		}
	}
	return list
}

// withoutText removes a text, and what a message has of its beginning.
func withoutText(message, text string) string {
	if len(text) < minArgument || len(text) < minArgumentPrefix && !strings.Contains(message, text) {
		return message
	}
	message = strings.ReplaceAll(message, text, omittedArgument)
	if len(text) < minArgumentPrefix {
		return message
	}
	for {
		before, after, found := strings.Cut(message, text[:minArgumentPrefix])
		if !found {
			return message
		}
		rest := text[minArgumentPrefix:]
		for after != "" && rest != "" && after[0] == rest[0] {
			after, rest = after[1:], rest[1:]
		}
		message = strings.ToValidUTF8(before+omittedArgument+after, "")
	}
}
