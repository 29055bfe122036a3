package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/arcpd/arcpd/runtime"
)

// flushTimeout bounds the export of the last spans during a stop.
const flushTimeout = 5 * time.Second

// exportLogInterval is the least time between two log records of failed exports.
const exportLogInterval = time.Minute

// newTracerProvider returns a provider that exports spans as the OTEL_ variables of the environment say; nil:
// they request no export. The queue of the provider is bounded: it drops spans instead of blocking jobs.
func newTracerProvider(ctx context.Context, log zerolog.Logger) (*sdktrace.TracerProvider, error) {
	on, err := exportsTraces(os.Getenv)
	if err != nil || !on {
		return nil, err
	}
	exporter, err := newExporter(ctx, os.Getenv)
	if err != nil {
		return nil, err
	}
	res, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "arcp"), attribute.String("service.version", thisBuild().Version)),
		resource.WithFromEnv()) // the last one has precedence
	if err != nil {
		return nil, failf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	sampled := log.Sample(&zerolog.BurstSampler{Burst: 1, Period: exportLogInterval})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { sampled.Warn().Err(err).Msg("spans are not exported") }))
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res),
		sdktrace.WithIDGenerator(runtime.IDGenerator{})), nil
}

// exportsTraces reports whether the environment requests the export of spans.
func exportsTraces(env func(string) string) (bool, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch name := env("OTEL_TRACES_EXPORTER"); name {
	case "none":
		return false, nil
	case "otlp":
		return true, nil
	case "":
		return env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_ENDPOINT") != "", nil
	default:
		return false, usagef("OTEL_TRACES_EXPORTER is %q; it must be otlp or none", name)
	}
}

// newExporter returns the exporter of the protocol in the environment. It does not connect.
func newExporter(ctx context.Context, env func(string) string) (*otlptrace.Exporter, error) {
	var exporter *otlptrace.Exporter
	var err error
	switch protocol := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), env("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"); protocol {
	case "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	case "http/protobuf":
		exporter, err = otlptracehttp.New(ctx)
	default:
		return nil, usagef("OTEL_EXPORTER_OTLP_PROTOCOL is %q; it must be grpc or http/protobuf", protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("create the exporter of spans: %w", err)
	}
	return exporter, nil
}

// flushSpans exports the last spans, within flushTimeout. Spans that cannot be exported are lost.
func (s *server) flushSpans() {
	if s.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := s.tracer.Shutdown(ctx); err != nil {
		s.log.Warn().Err(err).Msg("the last spans are not exported")
	}
}
