package conformance

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

func controlPing(_ context.Context, t *T) {
	c := t.Open()
	for _, nonce := range []string{"n1", "", "ünïcödé \" \\ / \u2028 \U0001F600"} {
		id := c.Send(arcp.Ping, arcp.PingPayload{Nonce: nonce})
		f := c.Expect("a ping is answered at once", arcp.Pong, id)
		want(t, "the pong carries the ping's nonce", payload[arcp.PongPayload](t, f).Nonce, nonce)
	}
}

func controlSessionPing(_ context.Context, t *T) {
	c := t.Open()
	before := time.Now()
	id := c.Send(arcp.SessionPing, arcp.SessionPingPayload{Nonce: "p_1", SentAt: before})
	f := c.Expect("session.ping is answered at once", arcp.SessionPong, id)
	p := payload[arcp.SessionPongPayload](t, f)
	want(t, "the pong carries the ping's nonce", p.PingNonce, "p_1")
	t.Want("the pong says when the ping came", !p.ReceivedAt.IsZero(), "received_at is %v", p.ReceivedAt)
}

func controlUnnumbered(_ context.Context, t *T) {
	c := t.Open()
	last := uint64(0)
	for range 3 {
		job := c.Invoke("demo.echo", map[string]any{})
		want(t, "the numbers go on where they were", job.Event(0).EventSeq, last+1)
		last = job.End().EventSeq
		c.ExpectNothing("a pong has no number")
		id := c.Send(arcp.SessionPing, arcp.SessionPingPayload{Nonce: "p", SentAt: time.Now()})
		want(t, "a session.pong has no number", c.Expect("session.ping is answered", arcp.SessionPong, id).EventSeq, 0)
	}
}

func controlPingDuringJob(_ context.Context, t *T) {
	c := t.Open()
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := c.AwaitStarted(submit)
	for range 3 {
		c.ExpectNothing("a running job says nothing and does not delay a pong")
	}
	c.Cancel(job, 5000)
	c.Follow(submit)
}

func controlOrder(_ context.Context, t *T) {
	c := t.Open()
	var ids []arcp.MessageID
	for range 50 {
		id, _ := c.Ping()
		ids = append(ids, id)
	}
	for _, id := range ids {
		c.Expect("commands are performed in their order", arcp.Pong, id)
	}
}

func controlAnswersAreSilent(_ context.Context, t *T) {
	c := t.Open()
	corr := func(env *arcp.Envelope) { env.CorrelationID = "msg_of_nobody" }
	c.Send(arcp.Ack, arcp.AckPayload{Note: "fine"}, corr)
	c.Send(arcp.Nack, arcp.Errorf(arcp.CodeUnimplemented, "not me"), corr)
	c.Send(arcp.Pong, arcp.PongPayload{Nonce: "nobody asked"}, corr)
	c.Send(arcp.SessionPong, arcp.SessionPongPayload{PingNonce: "nobody asked", ReceivedAt: time.Now()}, corr)
	c.ExpectNothing("an answer is not answered")
}

func controlTelemetryIsSilent(_ context.Context, t *T) {
	c := t.Open()
	now := time.Now()
	c.Send(arcp.Log, arcp.LogPayload{Level: arcp.LevelInfo, Message: "hello"})
	c.Send(arcp.Metric, arcp.MetricPayload{Name: "bytes.in", Value: "1", Unit: "bytes"})
	c.Send(arcp.EventEmit, arcp.EventEmitPayload{Name: "something"})
	c.Send(arcp.TraceSpan, arcp.TraceSpanPayload{Name: "s", TraceID: "t", SpanID: "1", StartTime: now, EndTime: now})
	c.ExpectNothing("telemetry is taken or left, without a word")
}

func controlAck(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.echo", map[string]any{})
	last := job.End().EventSeq
	for _, seq := range []uint64{last, 1, last, 0, last + 1000, 1 << 60} {
		c.Send(arcp.SessionAck, arcp.SessionAckPayload{LastProcessedSeq: seq})
		c.ExpectNothing("an acknowledgement is advice, never an error")
	}
	again := c.Invoke("demo.echo", map[string]any{})
	want(t, "acknowledgements do not move the numbers", again.Event(0).EventSeq, last+1)
}
