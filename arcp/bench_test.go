package arcp_test

import (
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

const (
	benchInvoke = `{"arcp":"1.1","id":"msg_01JAAAAAAAAAAAAAAAAAAAAAAA","timestamp":"2026-05-09T13:00:00.123456Z","type":"tool.invoke","session_id":"sess_01JAAAAAAAAAAAAAAAAAAAAAAA","idempotency_key":"search-1","payload":{"tool":"demo.echo","arguments":{"query":"*.ts","n":12}}}`
	benchAck    = `{"arcp":"1.1","id":"msg_01JAAAAAAAAAAAAAAAAAAAAAAA","timestamp":"2026-05-09T13:00:00.123456Z","type":"session.ack","session_id":"sess_01JAAAAAAAAAAAAAAAAAAAAAAA","payload":{"last_processed_seq":1827}}`
	benchLog    = `{"arcp":"1.1","session_id":"sess_01JAAAAAAAAAAAAAAAAAAAAAAA","correlation_id":"msg_01JAAAAAAAAAAAAAAAAAAAAAAA","event_seq":1827,"id":"msg_01JAAAAAAAAAAAAAAAAAAAAAAA","type":"log","timestamp":"2026-05-09T13:00:00.123456Z","job_id":"job_01JAAAAAAAAAAAAAAAAAAAAAAA","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","payload":{"level":"info","message":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","attributes":{"n":17}}}`
)

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct{ name, frame string }{{"invoke", benchInvoke}, {"ack", benchAck}, {"log", benchLog}} {
		b.Run(c.name, func(b *testing.B) {
			frame := []byte(c.frame)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := arcp.Decode(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodePayload(b *testing.B) {
	env, err := arcp.Decode([]byte(benchInvoke))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := arcp.DecodePayload[arcp.ToolInvokePayload](&env); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	env, err := arcp.Decode([]byte(benchInvoke))
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = env.Append(buf[:0])
	}
}

func BenchmarkMarshal(b *testing.B) {
	at := time.Date(2026, 5, 9, 13, 0, 0, 123456000, time.FixedZone("", 7200))
	for _, c := range []struct {
		name    string
		payload any
	}{
		{"job.accepted", arcp.JobAcceptedPayload{JobID: "job_01JAAAAAAAAAAAAAAAAAAAAAAA", Agent: "demo.echo@1.0.0", AcceptedAt: at}},
		{"job.completed", arcp.JobCompletedPayload{Value: arcp.Raw(`{"query":"*.ts","n":12}`)}},
		{"log", arcp.LogPayload{Level: "info", Message: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", Attributes: arcp.Raw(`{"n":17}`)}},
		{"metric", arcp.MetricPayload{Name: "cost.demo", Value: "1.25", Unit: "USD"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if buf, err = arcp.AppendJSON(buf[:0], c.payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNewID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		arcp.NewMessageID()
	}
}
