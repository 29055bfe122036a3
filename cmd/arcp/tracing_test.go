package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
)

func TestEnvironmentSelectsTheExportOfSpans(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		on   bool
		fail bool
	}{
		{env: nil},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, on: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, on: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, on: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}},
		{env: map[string]string{"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, fail: true},
	} {
		on, err := exportsTraces(func(name string) string { return test.env[name] })
		if on != test.on || (err != nil) != test.fail {
			t.Errorf("%v: %v, %v, want %v, an error: %v", test.env, on, err, test.on, test.fail)
		}
	}
	if _, err := newExporter(t.Context(), func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}[name]
	}); err == nil || !strings.Contains(err.Error(), "http/json") {
		t.Errorf("error = %v, want the protocol refused", err)
	}
}

// Failed exports are logged at most once in exportLogInterval.
func TestFailedExportsAreLoggedOnce(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	var log bytes.Buffer
	provider, err := newTracerProvider(t.Context(), zerolog.New(&log))
	if err != nil || provider == nil {
		t.Fatalf("provider = %v, %v", provider, err)
	}
	defer func() { _ = provider.Shutdown(t.Context()) }() // nothing is to be exported
	for range 3 {
		otel.Handle(errors.New("no collector"))
	}
	if got := strings.Count(log.String(), "no collector"); got != 1 {
		t.Errorf("%d records, want 1:\n%s", got, &log)
	}
}
