package conn

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/store"
)

// draftFollowers returns connections with an accepted session of the draft dialect each.
func draftFollowers(t testing.TB, n int) []*conn {
	t.Helper()
	srv := &Server{opts: Options{Metrics: metrics.New(prometheus.NewRegistry(), "test")}}
	accepted := arcp.Frame(arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: "sess_1", ResumeToken: "rt_1"})
	list := make([]*conn, n)
	for i := range list {
		codec, err := draft.NewServerCodec(fmt.Appendf(nil,
			`{"arcp":"1.1","id":"01980000-0000-7000-8000-%012d","type":"session.hello","payload":{}}`, i))
		if err != nil {
			t.Fatal(err)
		}
		if err := codec.AppendAnswer(new(draft.Frames), time.Unix(0, 0), &accepted); err != nil {
			t.Fatal(err)
		}
		list[i] = &conn{srv: srv}
		list[i].bindParts()
		list[i].output.codec, list[i].dialect = codec, (*draftDialect)(list[i])
		list[i].output.counts.metrics = srv.opts.Metrics
	}
	return list
}

func newProgress() *store.Event {
	payload := []byte(`{"current":3,"total":10,"units":"files","message":"three of ten"}`)
	return store.NewEvent(arcp.JobProgress, time.Unix(0, 0), &store.JobContext{JobID: "job_01JZ0000000000000000000001"},
		arcp.PriorityNormal, payload)
}

// The body of an event is encoded once for all followers that read the same form.
func TestFollowersShareDraftBody(t *testing.T) {
	followers := draftFollowers(t, 3)
	item := eventlog.Item{Seq: 7, Event: newProgress(), Forms: new(eventlog.Forms)}
	item.Forms.Add([]*store.Event{item.Event})
	followers[0].dialect.appendEvent(item)
	alone := item
	alone.Forms = nil
	followers[1].dialect.appendEvent(alone)
	if got, want := followers[0].output.current.data, followers[1].output.current.data; !bytes.Equal(got, want) {
		t.Errorf("the shared frame is %s, want %s", got, want)
	}
	body, ok := item.Forms.Get(item.Event, followers[0].output.codec.Form(arcp.JobProgress), func() any { return nil }).(*draft.Body)
	if !ok {
		t.Fatal("the event has no form")
	}
	body.JSON = []byte(`"made":"once"}`)
	followers[2].dialect.appendEvent(item)
	if got := followers[2].output.current.data; !bytes.Contains(got, body.JSON) {
		t.Errorf("another follower has the frame %s, want the body that the first one has encoded", got)
	}
}

// BenchmarkDraftFollowers appends an event to the batches of its followers. Each follower after the
// first costs a copy, not an encoding.
func BenchmarkDraftFollowers(b *testing.B) {
	for _, n := range []int{1, 50} {
		for _, shared := range []bool{false, true} {
			b.Run(fmt.Sprintf("followers=%d/shared=%v", n, shared), func(b *testing.B) {
				followers := draftFollowers(b, n)
				body := newProgress().Body
				b.ReportAllocs()
				for b.Loop() {
					item := eventlog.Item{Seq: 7, Event: &store.Event{Type: arcp.JobProgress, Body: body}}
					if shared {
						item.Forms = new(eventlog.Forms)
						item.Forms.Add([]*store.Event{item.Event})
					}
					for _, c := range followers {
						c.dialect.appendEvent(item)
						batch := c.output.batch()
						batch.data, batch.ends = batch.data[:0], batch.ends[:0]
					}
				}
			})
		}
	}
}
