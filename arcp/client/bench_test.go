package client_test

import (
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

func benchClient(b *testing.B, opts client.Options) *client.Client {
	b.Helper()
	near, far := transport.Pipe(transport.Limits{})
	go serveEcho(far)
	c, err := client.New(b.Context(), near, opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Abort)
	return c
}

// BenchmarkInvoke is a round trip: submit, three events, outcome.
func BenchmarkInvoke(b *testing.B) {
	c := benchClient(b, bearer)
	request := client.InvokeParams{Tool: "demo.echo", Arguments: arcp.Raw(`{"n":1}`), DiscardEvents: true}
	b.ReportAllocs()
	for b.Loop() {
		j, err := c.Invoke(b.Context(), request)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := j.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPipeline submits jobs without waiting and counts the outcomes in a hook, as a load
// generator does.
func BenchmarkPipeline(b *testing.B) {
	const window = 64
	slots := make(chan struct{}, window)
	opts := bearer
	opts.OnEnvelope = func(env *arcp.Envelope) bool {
		if env.Type == arcp.JobCompleted {
			<-slots
		}
		return env.EventSeq != 0
	}
	c := benchClient(b, opts)
	env := arcp.Frame(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "demo.echo", Arguments: arcp.Raw(`{"n":1}`)})
	b.ReportAllocs()
	for b.Loop() {
		slots <- struct{}{}
		if err := c.Send(env); err != nil {
			b.Fatal(err)
		}
	}
}

// flood answers a handshake and then sends events as fast as they are read.
func flood(conn transport.Conn) {
	frame, err := conn.Read()
	if err != nil {
		return
	}
	open, err := arcp.Decode(frame)
	if err != nil {
		return
	}
	env := arcp.Frame(arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: "sess_1"})
	env.ARCP, env.ID, env.Timestamp, env.CorrelationID = arcp.Version, "msg_1", time.Now(), open.ID
	for seq := uint64(0); conn.Write(env.Append(nil)) == nil; seq++ {
		if seq%64 == 0 && conn.Flush() != nil {
			return
		}
		env = arcp.Frame(arcp.Log, arcp.LogPayload{Level: "info", Message: "0123456789012345678901234567890123456789012345678901234567890123"})
		env.ARCP, env.ID, env.Timestamp, env.SessionID = arcp.Version, "msg_01JAAAAAAAAAAAAAAAAAAAAAAA", time.Time{}.AddDate(2000, 0, 0), "sess_1"
		env.JobID, env.EventSeq = "job_01JAAAAAAAAAAAAAAAAAAAAAAA", seq+1
	}
}

// BenchmarkEvents measures the receiver: one event is read, decoded, checked and passed to the
// hook.
func BenchmarkEvents(b *testing.B) {
	events := make(chan struct{}, 1024)
	opts := bearer
	opts.OnEnvelope = func(env *arcp.Envelope) bool {
		if env.EventSeq == 0 {
			return false
		}
		if env.EventSeq%1024 == 0 {
			select {
			case events <- struct{}{}:
			default:
			}
		}
		return true
	}
	near, far := transport.Pipe(transport.Limits{})
	go flood(far)
	c, err := client.New(b.Context(), near, opts)
	if err != nil {
		b.Fatal(err)
	}
	defer far.Abort()
	defer c.Abort()
	start := c.LastEventSeq()
	for b.Loop() {
		<-events
	}
	b.ReportMetric(float64(c.LastEventSeq()-start)/b.Elapsed().Seconds(), "events/s")
}
