package tool

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
)

// loggingHost records log events.
type loggingHost struct {
	Host
	logs []arcp.LogPayload
}

func (h *loggingHost) Emit(_ arcp.Type, payload any) error {
	h.logs = append(h.logs, payload.(arcp.LogPayload))
	return nil
}

func TestLoggerEmitsLogEvents(t *testing.T) {
	h := new(loggingHost)
	log, ctx := NewJob(h).Logger(), context.Background()
	log.Log(ctx, slog.LevelDebug-4, "a")
	log.Debug("b", "n", 1)
	log.With("n", 1).Info("c", "n", 2, slog.Group("g", "x", true))
	log.WithGroup("g").With("x", time.Second).WithGroup("h").Warn("d", "err", errors.New("no"))
	log.Error("e")
	log.Log(ctx, LevelCritical, "f", "at", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	want := []arcp.LogPayload{
		{Level: "trace", Message: "a"},
		{Level: "debug", Message: "b", Attributes: arcp.Raw(`{"n":1}`)},
		{Level: "info", Message: "c", Attributes: arcp.Raw(`{"g":{"x":true},"n":2}`)},
		{Level: "warn", Message: "d", Attributes: arcp.Raw(`{"g":{"h":{"err":"no"},"x":"1s"}}`)},
		{Level: "error", Message: "e"},
		{Level: "critical", Message: "f", Attributes: arcp.Raw(`{"at":"2026-01-02T03:04:05.000000Z"}`)},
	}
	if diff := cmp.Diff(want, h.logs); diff != "" {
		t.Errorf("log events (-want +got):\n%s", diff)
	}
}

func TestLoggerIsBounded(t *testing.T) {
	h := new(loggingHost)
	log := NewJob(h).Logger()
	log.Info(strings.Repeat("x", 1<<20), "data", strings.Repeat("y", 1<<20))
	log.Info("m", "value", make(chan int))
	got := h.logs[0]
	if len(got.Message) > maxLogMessage+len("…") || string(got.Attributes) != `{"attributes_omitted_bytes":1048587}` {
		t.Errorf("message of %d bytes, attributes %.80s", len(got.Message), got.Attributes)
	}
	if attrs := string(h.logs[1].Attributes); !strings.HasPrefix(attrs, `{"value":"0x`) {
		t.Errorf("a value without JSON is %s, want its text", attrs)
	}
}

func TestEventsAreChecked(t *testing.T) {
	job := NewJob(new(loggingHost))
	deep := arcp.Raw(strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1))
	for name, err := range map[string]error{
		"level":      job.Log("loud", "m", nil),
		"attributes": job.Log(arcp.LevelInfo, "m", arcp.Raw("{")),
		"depth":      job.Log(arcp.LevelInfo, "m", deep),
		"progress":   job.Progress(arcp.JobProgressPayload{Current: -1}),
		"metric":     job.Metric(arcp.MetricPayload{Name: "m"}),
		"event":      job.Emit("", nil),
		"checkpoint": job.Checkpoint("", make(chan int)),
		"permission": func() error {
			_, err := job.Permissions().Request(t.Context(), PermissionRequest{Permission: "p"})
			return err
		}(),
		"question": func() error { _, err := job.Ask(t.Context(), InputRequest{}); return err }(),
		"default": func() error {
			_, err := job.Ask(t.Context(), InputRequest{Prompt: "?", Schema: arcp.Raw(`{"type":"string"}`), Default: arcp.Raw("1")})
			return err
		}(),
		"choice": func() error { _, err := job.Choose(t.Context(), ChoiceRequest{}); return err }(),
	} {
		if e, ok := errors.AsType[*arcp.Error](err); !ok || e.Code != arcp.CodeInvalidArgument {
			t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
		}
	}
}

func TestUpstreamStatusHasACode(t *testing.T) {
	for status, want := range map[int]arcp.Code{402: arcp.CodeBudgetExhausted, 401: arcp.CodePermissionDenied, 403: arcp.CodePermissionDenied,
		429: arcp.CodeResourceExhausted, 503: arcp.CodeUnavailable, 404: arcp.CodeUnknown} {
		if e, ok := errors.AsType[*arcp.Error](UpstreamError(status, "m")); !ok || e.Code != want {
			t.Errorf("%d: %v, want %s", status, e, want)
		}
	}
}
