package draft_test

import (
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
)

// steady are the events that a job emits many of.
var steady = []struct {
	name string
	event
}{
	{"progress", event{arcp.JobProgress, arcp.JobProgressPayload{Current: 3, Total: new(10.5), Units: "files", Message: "three of ten"}}},
	{"log", event{arcp.Log, arcp.LogPayload{Level: "info", Message: "a line", Attributes: arcp.Raw(`{"n":1}`)}}},
	{"metric", event{arcp.Metric, arcp.MetricPayload{Name: "cost.tokens", Value: "0.10", Unit: "USD", Dims: arcp.Raw(`{"model":"m","n":1}`)}}},
	{"chunk", event{arcp.JobResultChunk, arcp.JobResultChunkPayload{ResultID: "res_1", Data: "abc", Encoding: "utf8", More: true}}},
	{"emit", event{arcp.EventEmit, emit("tool_call", `{"tool":"t","args":{"x":1},"call_id":"c1"}`)}},
	{"completed", event{arcp.JobCompleted, arcp.JobCompletedPayload{Value: arcp.Raw(`{"x":1}`)}}},
}

func BenchmarkAppendEvent(b *testing.B) {
	for _, e := range steady {
		b.Run(e.name, func(b *testing.B) {
			s := libraries[0].connect(b).accept().s
			ev := newEvent(job, e.t, e.payload)
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, err = s.AppendEvent(dst[:0], 1, "", ev); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(dst)))
		})
	}
}

func BenchmarkAppendEventFrame(b *testing.B) {
	s := libraries[0].connect(b).accept().s
	body, err := draft.EventBody(newEvent(job, steady[0].t, steady[0].payload), draft.Go)
	if err != nil {
		b.Fatal(err)
	}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = s.AppendEventFrame(dst[:0], 1, "", body)
	}
}

func BenchmarkDecodeSubmit(b *testing.B) {
	c := libraries[0].connect(b).accept()
	frame := c.frame(`"type":"job.submit","session_id":"sess_1","trace_id":"` + trace + `","payload":{"agent":"echo@1.0.0","input":{"x":1},"idempotency_key":"k"}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(frame)))
	for b.Loop() {
		if _, err := c.s.Decode(frame); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJobAccepted(b *testing.B) {
	c := libraries[0].connect(b).accept()
	frame := c.frame(`"type":"job.submit","payload":{"agent":"echo@1.0.0"}`)
	var frames draft.Frames
	env := arcp.Frame(arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: job, Agent: "echo@1.0.0", AcceptedAt: moment, TraceID: trace})
	b.ReportAllocs()
	for b.Loop() {
		in, err := c.s.Decode(frame)
		if err != nil {
			b.Fatal(err)
		}
		env.CorrelationID = in.ID
		frames.Data, frames.Ends = frames.Data[:0], frames.Ends[:0]
		if err = c.s.AppendAnswer(&frames, moment, &env); err != nil {
			b.Fatal(err)
		}
	}
}
