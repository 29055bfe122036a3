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
		for _, before := range []store.JobContext{{}, {JobID: "job_1", TraceID: "trace"}, {JobID: "job_2", TraceID: "other"}} {
			id, job, trace, raw := e.Members(before.JobID, before.TraceID)
			if id != e.ID() || job != c.JobID || trace != c.TraceID || string(raw) != string(payload) {
				t.Errorf("%+v after %+v: %s, %s, %s, %s", c, before, id, job, trace, raw)
			}
		}
		if e.JobID() != c.JobID {
			t.Errorf("job = %s, want %s", e.JobID(), c.JobID)
		}
	}
}
