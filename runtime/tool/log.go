package tool

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// LevelCritical is the slog level of critical log events.
const LevelCritical = slog.LevelError + 4

// Bounds of a record of Job.Logger, in bytes.
const (
	maxLogMessage    = 16 << 10
	maxLogAttributes = 64 << 10
)

// logHandler emits records as log events of a job.
type logHandler struct {
	job    Job
	groups []string
	attrs  []groupedAttr
}

// groupedAttr is an attribute with its groups.
type groupedAttr struct {
	groups []string
	attr   slog.Attr
}

// Enabled accepts every level: clients filter by level.
func (h *logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{h.job, append(slices.Clip(h.groups), name), h.attrs}
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	all := slices.Clip(h.attrs)
	for _, a := range attrs {
		all = append(all, groupedAttr{h.groups, a})
	}
	return &logHandler{h.job, h.groups, all}
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	fields := make(map[string]any)
	for _, a := range h.attrs {
		addAttr(fields, a.groups, a.attr)
	}
	r.Attrs(func(a slog.Attr) bool {
		addAttr(fields, h.groups, a)
		return true
	})
	var attributes any
	if len(fields) > 0 {
		raw, err := encodeEvent(fields)
		if err != nil || len(raw) > maxLogAttributes {
			raw = fmt.Appendf(nil, `{"attributes_omitted_bytes":%d}`, len(raw))
		}
		attributes = raw
	}
	return h.job.Log(logLevel(r.Level), clip.Text(r.Message, maxLogMessage), attributes)
}

// addAttr adds an attribute to the object of its groups.
func addAttr(fields map[string]any, groups []string, a slog.Attr) {
	v := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return
	}
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			groups = append(slices.Clip(groups), a.Key)
		}
		for _, member := range v.Group() {
			addAttr(fields, groups, member)
		}
		return
	}
	for _, g := range groups {
		inner, ok := fields[g].(map[string]any)
		if !ok {
			inner = make(map[string]any)
			fields[g] = inner
		}
		fields = inner
	}
	fields[a.Key] = logValue(v)
}

// logValue returns a value that can be encoded: the text of errors, of durations and of values
// without JSON.
func logValue(v slog.Value) any {
	if v.Kind() == slog.KindDuration {
		return v.Duration().String()
	}
	if err, ok := v.Any().(error); ok {
		return err.Error()
	}
	raw, err := arcp.Marshal(v.Any())
	if err != nil {
		return fmt.Sprint(v.Any())
	}
	return raw
}

// logLevel returns the level of arcp.LogLevels for a level of slog.
func logLevel(l slog.Level) string {
	switch {
	case l < slog.LevelDebug:
		return arcp.LevelTrace
	case l < slog.LevelInfo:
		return arcp.LevelDebug
	case l < slog.LevelWarn:
		return arcp.LevelInfo
	case l < slog.LevelError:
		return arcp.LevelWarn
	case l < LevelCritical:
		return arcp.LevelError
	}
	return arcp.LevelCritical
}
