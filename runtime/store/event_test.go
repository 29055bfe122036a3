package store_test

import (
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

func TestEventMembers(t *testing.T) {
	at := time.Date(2026, 5, 9, 15, 0, 0, 0, time.UTC)
	payload := arcp.Raw(`{"job_id":"other","trace_id":"other","payload":{}}`)
	for _, c := range []store.JobContext{
		{JobID: "job_1", TraceID: "trace", SpanID: "span"},
		{JobID: "job_1", SpanID: "span"},
		{TraceID: "trace"},
		{},
	} {
		e := store.NewEvent(arcp.Log, at, &c, arcp.PriorityNormal, payload)
		m := e.Members()
		quoted := func(s string) string {
			if s == "" {
				return ""
			}
			return `"` + s + `"`
		}
		for _, member := range []struct{ name, got, want string }{
			{"id", string(m.ID), quoted(string(e.ID()))},
			{"timestamp", string(m.Timestamp), string(arcp.AppendTime(nil, at))},
			{"job_id", string(m.JobID), quoted(string(c.JobID))},
			{"trace_id", string(m.TraceID), quoted(c.TraceID)},
			{"payload", string(m.Payload), string(payload)},
		} {
			if member.got != member.want {
				t.Errorf("%+v: %s = %s, want %s", c, member.name, member.got, member.want)
			}
		}
		if e.JobID() != c.JobID {
			t.Errorf("job = %s, want %s", e.JobID(), c.JobID)
		}
	}
}

// An event is encoded into one piece of memory of its size.
func TestNewEventAllocatesOnce(t *testing.T) {
	id := func(prefix string) string { return arcp.NewID(prefix) }
	c := store.JobContext{JobID: arcp.JobID(id(arcp.JobPrefix)), TraceID: id(""), SpanID: id(""), ParentSpanID: id(""),
		CausationID: arcp.NewMessageID(), StreamID: arcp.StreamID(id(arcp.StreamPrefix))}
	payload := make([]byte, 100)
	allocations := testing.AllocsPerRun(100, func() {
		store.NewEvent(arcp.StreamChunk, time.Now(), &c, arcp.PriorityCritical, payload)
	})
	if allocations != 2 {
		t.Errorf("%v allocations, want 2: the event and its body", allocations)
	}
}
