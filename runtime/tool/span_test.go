package tool_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

func TestSpanIsEmittedAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := tooltest.New(tooltest.Script{TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902b7"})
		start := time.Now().UTC()
		outer := j.Job().Span("query", map[string]any{"rows": 3})
		inner := outer.Span("connect", nil)
		if n := len(j.Record().Spans); n != 0 {
			t.Errorf("%d spans before their end", n)
		}
		time.Sleep(time.Second)
		end := time.Now().UTC()
		err := errors.Join(inner.End(arcp.Errorf(arcp.CodeUnavailable, "no route")), outer.End(nil), outer.End(errors.New("again")))
		if err != nil {
			t.Fatal(err)
		}
		const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
		want := []arcp.TraceSpanPayload{
			{Name: "connect", TraceID: trace, SpanID: inner.ID(), ParentSpanID: outer.ID(), StartTime: start, EndTime: end,
				Attributes: arcp.Raw(`{"error.message":"no route","error.type":"UNAVAILABLE"}`)},
			{Name: "query", TraceID: trace, SpanID: outer.ID(), ParentSpanID: "00f067aa0ba902b7", StartTime: start, EndTime: end,
				Attributes: arcp.Raw(`{"rows":3}`)},
		}
		if diff := cmp.Diff(want, j.Record().Spans); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
		if got, want := inner.Traceparent(), "00-"+trace+"-"+inner.ID()+"-01"; got != want {
			t.Errorf("traceparent = %s, want %s", got, want)
		}
	})
}

func TestInvalidSpanIsRefused(t *testing.T) {
	now := time.Now()
	valid := arcp.TraceSpanPayload{Name: "n", TraceID: "t", SpanID: "s", StartTime: now, EndTime: now}
	if err := tooltest.New(tooltest.Script{}).Job().EmitSpan(valid); err != nil {
		t.Error(err)
	}
	for why, change := range map[string]func(*arcp.TraceSpanPayload){
		"no name":              func(p *arcp.TraceSpanPayload) { p.Name = "" },
		"long name":            func(p *arcp.TraceSpanPayload) { p.Name = strings.Repeat("n", 257) },
		"no trace id":          func(p *arcp.TraceSpanPayload) { p.TraceID = "" },
		"no span id":           func(p *arcp.TraceSpanPayload) { p.SpanID = "" },
		"end before the start": func(p *arcp.TraceSpanPayload) { p.EndTime = now.Add(-1) },
		"list of attributes":   func(p *arcp.TraceSpanPayload) { p.Attributes = arcp.Raw(`[1]`) },
		"invalid attributes":   func(p *arcp.TraceSpanPayload) { p.Attributes = arcp.Raw(`{`) },
	} {
		p, j := valid, tooltest.New(tooltest.Script{})
		change(&p)
		err := j.Job().EmitSpan(p)
		if e, ok := errors.AsType[*arcp.Error](err); !ok || e.Code != arcp.CodeInvalidArgument || len(j.Record().Spans) != 0 {
			t.Errorf("%s: %v, want INVALID_ARGUMENT and no event", why, err)
		}
	}
	span := tooltest.New(tooltest.Script{}).Job().Span("n", map[string]any{"f": func() {}})
	if err := span.End(nil); err == nil {
		t.Error("attributes that cannot be encoded are accepted")
	}
}
